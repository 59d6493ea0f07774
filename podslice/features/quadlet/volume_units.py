"""Volumes: files of podman's generator, and how containers mount each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from podslice.errors import invalid
from podslice.features.quadlet.result import (
    PODMAN,
    PRIVATE_MODE,
    Directory,
    File,
    Options,
    PodSource,
)
from podslice.features.quadlet.unit_text import (
    argument,
    csv_field,
    double,
    plain,
    section,
    shell,
    unit_file,
    word,
    words,
)
from podslice.features.quadlet.workload import (
    Claim,
    DataFiles,
    EmptyDir,
    HostPath,
    Volume,
    VolumeMount,
    is_in_memory,
    is_podmans,
)
from podslice.inputs.manifest.fields import checked
from podslice.model.naming import POD_LABEL

_PROPAGATION = {"None": "", "HostToContainer": "rslave", "Bidirectional": "rshared"}
"""Source: Kubernetes, types.go, MountPropagationMode; podman-run(1), --volume."""
_TESTS = {"Directory": "-d", "File": "-f", "Socket": "-S", "CharDevice": "-c", "BlockDevice": "-b"}
"""Type of a hostPath → the option of test(1) that it must pass before the container starts."""
MAKE_BELOW = (
    'top=$(realpath -e "$1") || exit; path=${top%/}/$2; '
    '[ "$(realpath -m "$path")" = "$path" ] || { echo "$2 leads out of $1" >&2; exit 1; }; '
    '[ -e "$path" ] || { umask "$(printf %o $((~0$(stat -c %a "$top") & 0777)))"; mkdir -p "$path"; }'
)
"""Creates a path below a directory, with the mode of that, unless a symbolic link leads elsewhere.

What processes of the volume's containers have written there must not choose a path of the host.

Source: Kubernetes, pkg/volume/util/subpath/subpath_linux.go, SafeMakeDir.
"""
_TOP = f'"$({PODMAN} volume inspect --format {{{{.Mountpoint}}}} "$1")"'
_MAKE_BELOW_VOLUME = f'set -- {_TOP} "$2"; {MAKE_BELOW}'
_OPEN = f"chmod 0777 {_TOP}"
_SET_GROUP = (
    f"top={_TOP} || exit; "
    '[ "$3" = Always ] || [ -z "$(find "$top" -maxdepth 0 -gid "$2" -perm "$5")" ] || exit 0; '
    'chgrp -hR "$2" "$top" && find "$top" -type d -exec chmod "ug+$4x,g+s" {} + '
    '-o ! -type l -exec chmod "ug+$4" {} +'
)
"""Gives a volume to a group that may use all of it, and to which new files belong.

Source: Kubernetes, pkg/volume/volume_linux.go, changeFilePermission, requiresPermissionChange.
"""
_SET_GROUP_OF_TOP = 'chgrp "$2" "$1" && chmod g+rwxs "$1"'
_WATCH = (
    "name=$1 limit=$2; shift 2; while sleep 60; do "
    f'[ -n "$top" ] || top=$({PODMAN} volume inspect --format {{{{.Mountpoint}}}} "$name") || continue; '
    'used=$(du -sx --block-size=1 "$top" 2>/dev/null | cut -f1); '
    '[ "${used:-0}" -le "$limit" ] || "$@"; done'
)
"""Compares the size of a volume with a limit each minute, and runs a command while it is larger.

Source: Kubernetes, pkg/volume/util/fs/fs.go, DiskUsage; kubelet's volumeStatsAggPeriod is 1m.
"""
_OTHERS_READ, _GROUP_READS = 0o004, 0o440
_DIRECTORY_MODE = 0o755


def volume_file(volume: Volume, pod: PodSource) -> Iterator[File]:
    """Yield the unit of a volume that podman holds.

    An empty directory does not get what the image has at its place, and every user may write to it;
    with an owner that is stated, podman does not give it to the user of its first container. A claim
    has the same name as for `podman kube play`; one with a group is like an empty directory.

    Source: Kubernetes, pkg/volume/emptydir/empty_dir.go, perm; podman-volume-create(1), --opt.
    """
    if not is_podmans(volume):
        return
    head, service = section("Unit"), section("Service")
    head.add("Description", f"Volume {volume.name} of pod {double(pod.key)}")
    # the next start of the pod creates a volume that was removed meanwhile
    head.add("PartOf", pod.pod_service)
    body = section("Volume")
    name, group = pod.volume(volume), pod.workload.fs_group
    body.add("VolumeName", name)
    if isinstance(volume, EmptyDir) or group is not None:
        body.add("Copy", "false")
        body.add("User", "0")
        body.add("Group", str(group or 0))
    if isinstance(volume, EmptyDir):
        body.add("Label", word(f"{POD_LABEL}={pod.key}"))
        service.add("ExecStartPost", shell(_OPEN, name))
    if group is not None:
        is_read_only = isinstance(volume, Claim) and volume.read_only
        rights = ("r", "-2550") if is_read_only else ("rw", "-2770")
        policy = pod.workload.fields["securityContext"]["fsGroupChangePolicy"] or "Always"
        command = _setting_groups(_SET_GROUP, pod.options, name, str(group), policy, *rights)
        service.add("ExecStartPost", command)
    yield unit_file(pod.volume_file(volume.name), head, body, service)


def size_files(pod: PodSource) -> Iterator[File]:
    """Yield a service for each empty directory on disk with a limit; the service evicts the pod.

    The eviction stops the service with the pod, and therefore runs in a transient service.
    """
    key, manager, slices = pod.key, pod.options.manager, pod.options.service_slices
    for volume in pod.limited_volumes:
        head, body = section("Unit"), section("Service")
        head.add("Description", f"Size of volume {volume.name} of pod {double(key)}")
        head.add("BindsTo", pod.pod_service)
        head.add("After", pod.pod_service)
        body.add("Type", "exec")
        body.add("Slice", *slices)
        limit = str(volume.limit_bytes)
        command = (
            *("/usr/bin/systemd-run", *manager.options, "--quiet", "--collect"),
            *(f"--slice={each}" for each in slices),
            *("--", pod.options.program, "__evict", *manager.options, key, volume.name, limit),
        )
        # files of a user's containers belong to other users of the host
        script = _WATCH.replace("$(du ", f"$({PODMAN} unshare du ") if manager.is_user else _WATCH
        name = pod.volume(volume)
        body.add("ExecStart", shell(script, name, limit, *command))
        body.add("Restart", "on-failure")
        yield unit_file(pod.size_watch(volume.name), head, body)


def _setting_groups(script: str, options: Options, *stated: str) -> str:
    """Return the command of a script; for a user's pod it has the groups of the user's containers."""
    own = f"{PODMAN} unshare " if options.manager.is_user else ""
    return f"{own}{shell(script, *stated)}"


def data_files(volume: Volume, pod: PodSource) -> Iterator[File]:
    """Yield the files of ConfigMaps and Secrets; a later one of the same path is valid.

    A file that not all may read belongs to the group of the volumes.

    Raises:
        InputError: a user may not give a file to that group.
    """
    if not isinstance(volume, DataFiles):
        return
    for each in {file.path: file for file in volume.files}.values():
        mode, gid = each.mode, None
        if pod.workload.fs_group is not None and not mode & _OTHERS_READ:
            mode, gid = mode | _GROUP_READS, pod.workload.fs_group
            if pod.options.manager.is_user:
                hint = "let all read the file (mode 0644), or continue without it: --ignore fsGroup"
                what = f"a user cannot give {each.path} of volume {volume.name} to the fsGroup"
                raise invalid(what, hint)
        path = f"{pod.data}/{volume.name}/{each.path}"
        yield File(path=path, content=each.content, mode=mode, gid=gid, is_secret=each.is_secret)


def data_directories(pod: PodSource) -> Iterator[Directory]:
    """Yield the directories of data, parents first."""
    yield Directory(path=pod.data, mode=PRIVATE_MODE)
    for volume in pod.workload.volumes:
        if isinstance(volume, DataFiles):
            top = PurePosixPath(pod.data, volume.name)
            parents = (part for each in volume.files for part in PurePosixPath(each.path).parents)
            for path in sorted({str(top), *(str(top / each) for each in parents)}):
                yield Directory(path=path, mode=_DIRECTORY_MODE)


def mount_line(mount: VolumeMount, volume: Volume, pod: PodSource) -> tuple[str, str]:
    """Return the key and the value for a mount.

    Only with `Mount=` a part of one of podman's volumes can be mounted.
    """
    read_only = mount.read_only or (isinstance(volume, Claim) and volume.read_only)
    if mount.sub_path and is_podmans(volume):
        return "Mount", _mount_of_part(mount, pod, read_only=read_only)
    options = ["ro"] if read_only or isinstance(volume, DataFiles) else []
    if isinstance(volume, DataFiles):
        options.append("z")  # its containers share the SELinux label
    options += [_PROPAGATION[mount.propagation]] if mount.propagation != "None" else []
    suffix = f":{','.join(options)}" if options else ""
    path = plain("VolumeMount.mountPath", mount.path)
    return "Volume", f"{_source(mount, volume, pod)}:{path}{suffix}"


def _mount_of_part(mount: VolumeMount, pod: PodSource, *, read_only: bool) -> str:
    """Return the mount of a part of one of podman's volumes.

    Source: podman 5.4, podman-run(1), --mount, which splits it as CSV.
    """
    fields = [
        "type=volume",
        f"source={pod.volume_file(mount.volume)}",
        f"destination={checked('VolumeMount.mountPath', mount.path)}",
        f"subpath={checked('VolumeMount.subPath', mount.sub_path)}",
    ]
    fields += ["ro=true"] if read_only else []
    return argument(",".join(map(csv_field, fields)))


def _source(mount: VolumeMount, volume: Volume, pod: PodSource) -> str:
    below = mount.sub_path and f"/{plain('VolumeMount.subPath', mount.sub_path)}"
    if isinstance(volume, DataFiles):
        top = double(pod.options.manager.own_state_directory)
        return f"{top}/{pod.data}/{volume.name}{below}"
    if isinstance(volume, HostPath):
        return f"{plain('HostPathVolumeSource.path', volume.path)}{below}"
    if is_in_memory(volume):
        return f"{_memory_path(volume.name, pod)}{below}"
    return pod.volume_file(volume.name)


def _memory_path(name: str, pod: PodSource) -> str:
    """Return the path of a volume in memory, which is a mount of podslice.

    For a user it is a directory below the runtime directory, which systemd knows as `%t`.
    """
    decided = next(each for each in pod.decision.volumes if each.name == name)
    if pod.options.manager.is_user:
        return f"%t{decided.path.removeprefix('$XDG_RUNTIME_DIR').removeprefix('/run')}"
    return decided.path


def commands_before(mount: VolumeMount, volume: Volume, pod: PodSource) -> Iterator[str]:
    """Yield the commands that create or check what is mounted, before the container starts.

    Source: Kubernetes, pkg/volume/hostpath/host_path.go, checkType; a path without a type is
    created as a directory by container runtimes.
    """
    if isinstance(volume, HostPath):
        yield _prepare(volume)
    if is_in_memory(volume) and (group := pod.workload.fs_group) is not None:
        command = _setting_groups(_SET_GROUP_OF_TOP, pod.options)
        yield f"{command} {_memory_path(volume.name, pod)} {group}"
    if mount.sub_path and not isinstance(volume, DataFiles):
        script = MAKE_BELOW
        if is_podmans(volume):
            script, top = _MAKE_BELOW_VOLUME, word(pod.volume(volume))
        elif isinstance(volume, HostPath):
            top = word(volume.path)
        else:
            top = _memory_path(volume.name, pod)
        yield f"{shell(script)} {top} {word(mount.sub_path)}"


def _prepare(volume: HostPath) -> str:
    if volume.type in _TESTS:
        return words(("/usr/bin/test", _TESTS[volume.type], volume.path))
    create = ': > "$1"' if volume.type == "FileOrCreate" else 'mkdir -p -m 0755 "$1"'
    return shell(f'test -e "$1" || {create}', volume.path)
