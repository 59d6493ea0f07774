"""Volumes: files of podman's generator, and how containers mount each kind."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from podslice.errors import invalid
from podslice.features.quadlet.result import PODMAN, PRIVATE_MODE, Directory, File, Names, Options
from podslice.features.quadlet.unit_text import (
    argument,
    csv_field,
    double,
    plain,
    section,
    unit,
    word,
    words,
)
from podslice.features.quadlet.workload import (
    Claim,
    DataFiles,
    EmptyDir,
    HostPath,
    PodWorkload,
    Volume,
    VolumeMount,
    is_in_memory,
    is_podmans,
)
from podslice.inputs.manifest.fields import checked
from podslice.model.naming import POD_LABEL
from podslice.model.unit import GENERATED

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
_OTHERS_READ, _GROUP_READS = 0o004, 0o440
_DIRECTORY_MODE = 0o755


def volume_file(
    volume: Volume, workload: PodWorkload, names: Names, options: Options
) -> Iterator[File]:
    """Yield the unit of a volume that podman holds.

    An empty directory does not get what the image has at its place, and every user may write to it;
    with an owner that is stated, podman does not give it to the user of its first container. A claim
    has the same name as for `podman kube play`; one with a group is like an empty directory.

    Source: Kubernetes, pkg/volume/emptydir/empty_dir.go, perm; podman-volume-create(1), --opt.
    """
    if not is_podmans(volume):
        return
    head, service = section("Unit"), section("Service")
    what = double(names.decision.pod.key)
    head.add("Description", f"Volume {volume.name} of pod {what}")
    # the next start of the pod creates a volume that was removed meanwhile
    head.add("PartOf", names.pod_service)
    body = section("Volume")
    name, group = names.volume(volume), workload.fs_group
    body.add("VolumeName", name)
    if isinstance(volume, EmptyDir) or group is not None:
        body.add("Copy", "false")
        body.add("User", "0")
        body.add("Group", str(group or 0))
    if isinstance(volume, EmptyDir):
        body.add("Label", word(f"{POD_LABEL}={names.decision.pod.key}"))
        service.add("ExecStartPost", words(("/usr/bin/sh", "-c", _OPEN, "sh", name)))
    if group is not None:
        is_read_only = isinstance(volume, Claim) and volume.read_only
        rights = ("r", "-2550") if is_read_only else ("rw", "-2770")
        policy = workload.fields["securityContext"]["fsGroupChangePolicy"] or "Always"
        command = _setting_groups(_SET_GROUP, options, name, str(group), policy, *rights)
        service.add("ExecStartPost", command)
    text = unit(GENERATED, (head, body, service))
    yield File(path=names.volume_file(volume.name), content=text.encode())


def _setting_groups(script: str, options: Options, *stated: str) -> str:
    """Return the command of a script; for a user's pod it has the groups of the user's containers."""
    own = (PODMAN, "unshare") if options.manager.is_user else ()
    return words((*own, "/usr/bin/sh", "-c", script, "sh", *stated))


def data_files(
    volume: Volume, workload: PodWorkload, names: Names, options: Options
) -> Iterator[File]:
    """Yield the files of ConfigMaps and Secrets; a later one of the same path is valid.

    A file that not all may read belongs to the group of the volumes.

    Raises:
        InputError: a user may not give a file to that group.
    """
    if not isinstance(volume, DataFiles):
        return
    for each in {file.path: file for file in volume.files}.values():
        mode, gid = each.mode, None
        if workload.fs_group is not None and not mode & _OTHERS_READ:
            mode, gid = mode | _GROUP_READS, workload.fs_group
            if options.manager.is_user:
                hint = "let all read the file (mode 0644), or continue without it: --ignore fsGroup"
                what = f"a user cannot give {each.path} of volume {volume.name} to the fsGroup"
                raise invalid(what, hint)
        path = f"{names.data}/{volume.name}/{each.path}"
        yield File(path=path, content=each.content, mode=mode, gid=gid, is_secret=each.is_secret)


def data_directories(volumes: tuple[Volume, ...], names: Names) -> Iterator[Directory]:
    """Yield the directories of data, parents first."""
    yield Directory(path=names.data, mode=PRIVATE_MODE)
    for volume in volumes:
        if isinstance(volume, DataFiles):
            top = f"{names.data}/{volume.name}"
            below = {f"{top}/{part}" for each in volume.files for part in _parents(each.path)}
            for path in sorted({top, *below}):
                yield Directory(path=path, mode=_DIRECTORY_MODE)


def _parents(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounter:
    """Mounts the volumes of one pod into its containers."""

    names: Names
    workload: PodWorkload
    volumes: Mapping[str, Volume]
    options: Options

    def line(self, mount: VolumeMount) -> tuple[str, str]:
        """Return the key and the value for a mount.

        Only with `Mount=` a part of one of podman's volumes can be mounted.
        """
        volume = self.volumes[mount.volume]
        read_only = mount.read_only or (isinstance(volume, Claim) and volume.read_only)
        if mount.sub_path and is_podmans(volume):
            return "Mount", self._part(mount, read_only=read_only)
        options = ["ro"] if read_only or isinstance(volume, DataFiles) else []
        if isinstance(volume, DataFiles):
            options.append("z")  # its containers share the SELinux label
        options += [_PROPAGATION[mount.propagation]] if mount.propagation != "None" else []
        suffix = f":{','.join(options)}" if options else ""
        path = plain("VolumeMount.mountPath", mount.path)
        return "Volume", f"{self._source(volume, mount.sub_path)}:{path}{suffix}"

    def _part(self, mount: VolumeMount, *, read_only: bool) -> str:
        """Return the mount of a part of one of podman's volumes.

        Source: podman 5.4, podman-run(1), --mount, which splits it as CSV.
        """
        fields = [
            "type=volume",
            f"source={self.names.volume_file(mount.volume)}",
            f"destination={checked('VolumeMount.mountPath', mount.path)}",
            f"subpath={checked('VolumeMount.subPath', mount.sub_path)}",
        ]
        fields += ["ro=true"] if read_only else []
        return argument(",".join(map(csv_field, fields)))

    def _source(self, volume: Volume, sub_path: str) -> str:
        below = sub_path and f"/{plain('VolumeMount.subPath', sub_path)}"
        if isinstance(volume, DataFiles):
            top = double(self.options.manager.own_state_directory)
            return f"{top}/{self.names.data}/{volume.name}{below}"
        if isinstance(volume, HostPath):
            return f"{plain('HostPathVolumeSource.path', volume.path)}{below}"
        if is_in_memory(volume):
            return f"{self._memory_path(volume.name)}{below}"
        return self.names.volume_file(volume.name)

    def _memory_path(self, name: str) -> str:
        """Return the path of a volume in memory, which is a mount of podslice.

        For a user it is a directory below the runtime directory, which systemd knows as `%t`.
        """
        decided = next(each for each in self.names.decision.volumes if each.name == name)
        if self.options.manager.is_user:
            return f"%t{decided.path.removeprefix('$XDG_RUNTIME_DIR').removeprefix('/run')}"
        return decided.path

    def before(self, mount: VolumeMount) -> Iterator[str]:
        """Yield the commands that create or check what is mounted, before the container starts.

        Source: Kubernetes, pkg/volume/hostpath/host_path.go, checkType; a path without a type is
        created as a directory by container runtimes.
        """
        volume = self.volumes[mount.volume]
        if isinstance(volume, HostPath):
            yield _prepare(volume)
        if is_in_memory(volume) and (group := self.workload.fs_group) is not None:
            command = _setting_groups(_SET_GROUP_OF_TOP, self.options)
            yield f"{command} {self._memory_path(volume.name)} {group}"
        if mount.sub_path and not isinstance(volume, DataFiles):
            yield self._make_below(volume, mount.sub_path)

    def _make_below(self, volume: Volume, sub_path: str) -> str:
        """Return the command that creates the part of a volume that is mounted."""
        if is_podmans(volume):
            script, top = _MAKE_BELOW_VOLUME, word(self.names.volume(volume))
        elif isinstance(volume, HostPath):
            script, top = MAKE_BELOW, word(volume.path)
        else:
            script, top = MAKE_BELOW, self._memory_path(volume.name)
        return f"{words(('/usr/bin/sh', '-c', script, 'sh'))} {top} {word(sub_path)}"


def _prepare(volume: HostPath) -> str:
    if volume.type in _TESTS:
        return words(("/usr/bin/test", _TESTS[volume.type], volume.path))
    create = ': > "$1"' if volume.type == "FileOrCreate" else 'mkdir -p -m 0755 "$1"'
    return words(("/usr/bin/sh", "-c", f'test -e "$1" || {create}', "sh", volume.path))
