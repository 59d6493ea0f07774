"""What manifests state for the containers of pods → their workloads, with volumes and claims."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import PurePosixPath
from typing import NamedTuple

from podslice.errors import Problem, quote
from podslice.features.quadlet.data import DataObject, DataObjects, explain_absence, read_data
from podslice.features.quadlet.discovery import Member, connect
from podslice.features.quadlet.jobs import read_job
from podslice.features.quadlet.workload import (
    Claim,
    DataFile,
    DataFiles,
    Dns,
    EmptyDir,
    HostPath,
    PodNetwork,
    PodWorkload,
    Restart,
    Volume,
)
from podslice.features.quadlet.workload_containers import ContainerReader, Refusals
from podslice.inputs.manifest.load import LoadedPods, StatedWorkload
from podslice.inputs.manifest.reading import Fields, Reading, entries_of, unstated
from podslice.inputs.scalars import Amount
from podslice.model.grammar import check_label
from podslice.model.pod import Pod

_CLAIM = "PersistentVolumeClaim"

_HOST_PATH_TYPES = (
    *("BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate"),
    *("File", "FileOrCreate", "Socket"),
)
_HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
_DNS_POLICIES = ("None", "Default", "ClusterFirst", "ClusterFirstWithHostNet")
_MODE = 0o644
"""Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_SecretVolumeSource."""
_NAME_BYTES_MAX = 255
"""Source: Linux, include/uapi/linux/limits.h, NAME_MAX."""
_PATH_BYTES_MAX = 1024
_PARTS_MAX = 32
_EXAMPLE = "write a/b, for example"


class LoadedWorkloads(NamedTuple):
    """The workloads of pods, by `namespace/name`, with the problems of all."""

    workloads: Mapping[str, PodWorkload]
    problems: tuple[Problem, ...]


def read_workloads(
    loaded: LoadedPods, *, namespace: str | None = None, ignored: frozenset[str] = frozenset()
) -> LoadedWorkloads:
    """Return the workloads of pods, with what the Services beside them give them.

    The arguments are those of `read_members`.
    """
    members, problems = read_members(loaded, namespace=namespace, ignored=ignored)
    networks, lost = connect(loaded.data, members, namespace)
    return LoadedWorkloads(
        with_networks(members, networks),
        tuple(dict.fromkeys((*problems, *chain.from_iterable(lost.values())))),
    )


def with_networks(
    members: Iterable[Member], networks: Mapping[str, PodNetwork]
) -> Mapping[str, PodWorkload]:
    """Return the workloads of pods, by pod, with their networks."""
    return {m.pod.key: replace(m.workload, network=networks.get(m.pod.key)) for m in members}


def read_members(
    loaded: LoadedPods, *, namespace: str | None = None, ignored: frozenset[str] = frozenset()
) -> tuple[Sequence[Member], Sequence[Problem]]:
    """Return pods with their workloads, and the problems of these.

    Args:
        loaded: the pods, loaded with their workloads.
        namespace: of ConfigMaps, Secrets and Services that state none.
        ignored: fields that are given up instead of refused.
    """
    objects, found = read_data(loaded.data, namespace)
    members = []
    problems = list(found)
    used: set[str] = set()
    for pod in loaded.pods:
        stated = loaded.workloads[pod.where, pod.spec_where]
        known = frozenset(each.where for each in pod.problems)
        refusals = Refusals(where=pod.where, ignored=ignored, known=known)
        members.append(_member(pod, stated, _read_pod(pod, stated, objects, refusals)))
        problems += refusals.found
        used |= refusals.used
    problems += [
        Problem(where="--ignore", message=f"no field {quote(each)} was refused", hint="remove it")
        for each in sorted(ignored - used)
    ]
    return members, problems


def _member(pod: Pod, stated: StatedWorkload, workload: PodWorkload) -> Member:
    """Return a pod with its labels, of which a StatefulSet adds some.

    Source: Kubernetes, pkg/controller/statefulset/stateful_set_utils.go, initIdentity.
    """
    labels = stated.metadata.get("labels")
    labels = labels if isinstance(labels, dict) else {}
    owner = stated.owner_fields
    if "serviceName" in owner:
        labels = labels | {
            "statefulset.kubernetes.io/pod-name": pod.name,
            "apps.kubernetes.io/pod-index": pod.name.rpartition("-")[2],
        }
    return Member(pod, workload, labels, owner.get("serviceName") or "")


def _read_pod(
    pod: Pod, stated: StatedWorkload, objects: DataObjects, refusals: Refusals
) -> PodWorkload:
    """Return the workload of a pod; a claim of its owner replaces a volume of the same name."""
    claims = {}
    if stated.owner is not None:
        # a claim's fields with the claim, and a job's before those of its CronJob
        of_claims = {each for each in stated.owner.refused if each.field.startswith(_CLAIM)}
        others = (each for each in stated.owner.refused if each not in of_claims)
        by_job = sorted(others, key=lambda each: each.field.startswith("CronJobSpec"))
        refusals.refuse_all(by_job)
        further = (each for each in stated.owner.further if not refusals.has_error(each.where))
        refusals.add("", *further)
        claims = _read_claims(pod, stated.owner, stated.owner_path, refusals)
    path, spec = pod.spec_where, stated.spec.fields
    refusals.add("", *stated.spec.further)
    refusals.refuse_all(stated.spec.refused)
    _check_namespaces(spec, refusals, path)
    own = _VolumeReader(refusals, objects, pod.namespace).read(spec["volumes"], f"{path}.volumes")
    volumes = (*(each for each in own if each.name not in claims), *claims.values())
    names = dict.fromkeys(each["name"] for each in spec["volumes"] or () if each and each["name"])
    security = spec["securityContext"] or unstated("PodSecurityContext")
    stated_restart = spec["restartPolicy"] or Restart.ALWAYS
    restart = refusals.choose(Restart, stated_restart, f"{path}.restartPolicy")
    owner = stated.owner_fields
    is_job = "backoffLimit" in owner or "jobTemplate" in owner
    reader = ContainerReader(
        refusals=refusals,
        objects=objects,
        pod=pod,
        metadata=stated.metadata,
        security=security,
        volumes=names | {each.name: each for each in volumes},
        spec=spec,
        restart=restart,
        is_job=is_job,
    )
    containers = (
        *reader.read(spec["initContainers"], f"{path}.initContainers", init=True),
        *reader.read(spec["containers"], f"{path}.containers", init=False),
    )
    group = _fs_group(spec, volumes, refusals, path)
    job = read_job(owner, stated.owner_path, spec, path, refusals) if is_job else None
    groups = [*(security["supplementalGroups"] or ()), *([] if group is None else [group])]
    return PodWorkload(
        containers=containers,
        volumes=volumes,
        fields=spec,
        restart=restart,
        job=job,
        dns=_dns(spec, refusals, path),
        hosts={
            name: each["ip"] or ""
            for each in spec["hostAliases"] or ()
            if each is not None
            for name in each["hostnames"] or ()
        },
        sysctls={
            each["name"] or "": each["value"] or "" for each in security["sysctls"] or () if each
        },
        groups=tuple(dict.fromkeys(groups)),
        fs_group=group,
    )


def _check_namespaces(spec: Fields, refusals: Refusals, path: str) -> None:
    """Check which namespaces of the host a pod may have.

    Source: Kubernetes, pkg/apis/core/validation/validation.go, validateHostUsers and
    validatePodSpecSecurityContext ("ShareProcessNamespace and HostPID cannot both be enabled").
    """
    for name in _HOST_NAMESPACES if spec["hostUsers"] is False else ():
        if spec[name]:
            message = "cannot be true with hostUsers: false"
            refusals.error(f"{path}.{name}", message, "remove one of them")
    if spec["hostPID"] and spec["shareProcessNamespace"]:
        message = "cannot be true with hostPID: true"
        refusals.error(f"{path}.shareProcessNamespace", message, "remove it")


def _fs_group(spec: Fields, volumes: Iterable[Volume], refusals: Refusals, path: str) -> int | None:
    """Read the group of the volumes. A path of the host keeps its own, as in the kubelet.

    Source: Kubernetes, pkg/volume/hostpath/host_path.go, GetAttributes.
    """
    fields = spec["securityContext"] or unstated("PodSecurityContext")
    at = f"{path}.securityContext"
    group: int | None = fields["fsGroup"]
    policy = fields["fsGroupChangePolicy"]
    refusals.check(f"{at}.fsGroupChangePolicy", policy, ("Always", "OnRootMismatch"))
    is_mapped = group is not None and spec["hostUsers"] is False
    if is_mapped and not all(isinstance(each, HostPath) for each in volumes):
        refusals.refuse(f"{at}.fsGroup", "with hostUsers: false, podman maps the groups of the pod")
        return None
    return group


def _dns(spec: Fields, refusals: Refusals, path: str) -> Dns:
    """Read the resolver. Podman asks stated servers in place of the host's, as with the policy None.

    Source: Kubernetes, pkg/kubelet/network/dns/dns.go, GetPodDNS; podman 5.4,
    libpod/container_internal_common.go, addResolvConf.
    """
    config = spec["dnsConfig"] or unstated("PodDNSConfig")
    servers, searches = config["nameservers"], config["searches"]
    if spec["hostNetwork"] and (servers or searches or config["options"]):
        reason = "in the host's network podman uses the host's resolver"
        hint = "mount a ConfigMap with a resolv.conf"
        refusals.refuse(f"{path}.dnsConfig", reason, hint)
        return Dns()
    policy = spec["dnsPolicy"] or "ClusterFirst"
    refusals.check(f"{path}.dnsPolicy", policy, _DNS_POLICIES)
    if policy != "None" and servers:
        reason = "podman would ask them in place of the host's servers, not in addition"
        refusals.refuse(f"{path}.dnsConfig.nameservers", reason, "set dnsPolicy: None")
        servers = ()
    if policy == "None" and not servers:
        refusals.error(f"{path}.dnsConfig.nameservers", "dnsPolicy None needs at least one")
    return Dns(
        servers=tuple(servers or ()),
        # without an entry, podman takes the host's; "." stands for none
        searches=tuple(searches or ("." if policy == "None" else "")),
        options=tuple(
            (each["name"] or "", each["value"] or "")
            for each in config["options"] or ()
            if each is not None
        ),
    )


class _Source(NamedTuple):
    """One ConfigMap or Secret of a volume."""

    kind: str
    name: str
    fields: Fields
    mode: int
    path: str


class _VolumeReader(NamedTuple):
    """Reads the volumes of one pod."""

    refusals: Refusals
    objects: DataObjects
    namespace: str

    def read(self, volumes: Iterable[Fields | None] | None, path: str) -> Iterator[Volume]:
        """Yield the volumes; one without a source is an empty directory, as in Kubernetes."""
        for entry, at in entries_of(volumes, path):
            volume = self._read_volume(entry, at) if entry["name"] else None
            if volume is not None:
                yield volume

    def _read_volume(self, entry: Fields, path: str) -> Volume | None:
        name = entry["name"]
        if entry["hostPath"] is not None:
            return self._host_path(name, entry["hostPath"], f"{path}.hostPath")
        if (claim := entry["persistentVolumeClaim"]) is not None:
            read_only = bool(claim["readOnly"])
            return Claim(name=name, claim=claim["claimName"] or "", read_only=read_only)
        sources = list(_sources(entry, path))
        if sources:
            placed = [each for source in sources for each in self._files(source)]
            self._check_directories(placed)
            return DataFiles(name=name, files=tuple(file for file, _ in placed))
        directory = entry["emptyDir"] or unstated("EmptyDirVolumeSource")
        if directory["medium"] == "Memory":
            return EmptyDir(name=name, in_memory=True)
        return EmptyDir(name=name, limit_bytes=_size_limit(directory["sizeLimit"]))

    def _host_path(self, name: str, fields: Fields, path: str) -> HostPath | None:
        """Read a path of the host.

        Source: Kubernetes, pkg/apis/core/validation/validation.go, validateHostPathVolumeSource.
        """
        kind = fields["type"] or ""
        if not self.refusals.check(f"{path}.type", kind or None, _HOST_PATH_TYPES):
            return None
        return HostPath(name=name, path=posixpath.normpath(fields["path"] or ""), type=kind)

    def _files(self, source: _Source) -> Iterator[tuple[DataFile, str]]:
        """Yield the files of one ConfigMap or Secret, all keys or its items, with their places."""
        found = self.objects.get((source.kind, self.namespace, source.name))
        if found is None:
            if not source.fields["optional"]:
                items = entries_of(source.fields["items"], source.path)
                keys = [item["key"] or "" for item, _ in items]
                absence = explain_absence(source.kind, self.namespace, source.name, keys)
                self.refusals.error(source.path, *absence)
            return
        for key, path, mode, where in self._items(source, found):
            if self._is_usable(path, where):
                file = DataFile(
                    path=path, content=found.values[key], mode=mode, is_secret=found.is_secret
                )
                yield file, where

    def _items(self, source: _Source, found: DataObject) -> Iterator[tuple[str, str, int, str]]:
        """Yield the key of each file, its path in the volume, its mode, and its place."""
        if source.fields["items"] is None:
            for key in sorted(found.values):
                yield key, key, source.mode, source.path
        for item, at in entries_of(source.fields["items"], f"{source.path}.items"):
            key = item["key"] or ""
            if key in found.values:
                mode = source.mode if item["mode"] is None else item["mode"]
                yield key, item["path"] or "", mode, f"{at}.path"
            elif not source.fields["optional"]:
                self.refusals.error(f"{at}.key", f"there is no key {quote(key)} in it")

    def _is_usable(self, target: str, path: str) -> bool:
        """Return whether a file may have this relative path.

        Source: Kubernetes, pkg/apis/core/validation/validation.go, validateLocalNonReservedPath,
        which lets the kubelet find names that no file can have.
        """
        parts, shown, hint = target.split("/"), quote(target), "choose another name"
        if not target or target.startswith("/") or ".." in parts:
            message, hint = f"{shown} must be a relative path without '..'", _EXAMPLE
        elif {"", "."}.intersection(parts):
            message = f"{shown} must be the path of a file, without '.' and empty parts"
            hint = _EXAMPLE
        elif any(each.startswith("..") for each in parts):
            message = f"{shown}: no part of the path may begin with '..'"
        elif not target.isprintable():
            message = f"{shown} must have printable characters only"
            if self.refusals.has_error(path):
                return False
        elif any(len(each.encode()) > _NAME_BYTES_MAX for each in parts):
            message = f"{shown}: a name may have at most {_NAME_BYTES_MAX} bytes"
            hint = "shorten it"
        elif len(target.encode()) > _PATH_BYTES_MAX or len(parts) > _PARTS_MAX:
            message = f"{shown} may have at most {_PATH_BYTES_MAX:,} bytes and {_PARTS_MAX} parts"
            hint = "shorten it"
        else:
            return True
        self.refusals.error(path, message, hint)
        return False

    def _check_directories(self, placed: Sequence[tuple[DataFile, str]]) -> None:
        """Check that no file of a volume is the directory of another."""
        files = {file.path for file, _ in placed}
        for file, where in placed:
            for above in map(str, PurePosixPath(file.path).parents):
                if above in files:
                    message = f"{quote(file.path)} would be below {quote(above)}, which is a file"
                    self.refusals.error(where, message, "choose another path for one of the two")


def _size_limit(stated: Amount | None) -> int | None:
    """Return the size of a volume on disk in bytes, rounded up; zero means unlimited.

    Source: Kubernetes, pkg/kubelet/eviction/eviction_manager.go, emptyDirLimitEviction.
    """
    return -(-stated.milli // 1000) if stated and stated.milli else None


def _sources(entry: Fields, path: str) -> Iterator[_Source]:
    kinds = (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName"))
    for kind, name, key in kinds:
        if (fields := entry[name]) is not None:
            mode = _MODE if fields["defaultMode"] is None else fields["defaultMode"]
            yield _Source(kind, fields[key] or "", fields, mode, f"{path}.{name}")
    # in a projected volume a later file of the same path is valid
    projected = entry["projected"] or unstated("ProjectedVolumeSource")
    mode = _MODE if projected["defaultMode"] is None else projected["defaultMode"]
    for source, at in entries_of(projected["sources"], f"{path}.projected.sources"):
        for kind, name, _ in kinds:
            if (fields := source[name]) is not None:
                yield _Source(kind, fields["name"] or "", fields, mode, f"{at}.{name}")


def _read_claims(pod: Pod, owner: Reading, path: str, refusals: Refusals) -> dict[str, Claim]:
    """Return the claims of a pod by the names of their volumes.

    The claim of each pod outlives it, and is named after the template and the pod.

    Args:
        pod: the pod.
        owner: the `spec` of the object with its template; a StatefulSet has claims.
        path: the path of that `spec`.
        refusals: gets the problems.

    Source: Kubernetes v1.36, pkg/controller/statefulset/stateful_set_utils.go,
    getPersistentVolumeClaimName and updateStorage.
    """
    claims = {}
    for index, entry in enumerate(owner.fields.get("volumeClaimTemplates") or ()):
        at = f"{path}.volumeClaimTemplates[{index}]"
        fields = entry or unstated("PersistentVolumeClaim")
        name = str(fields["metadata"]["name"] or "") if fields["metadata"] else ""
        problem = check_label(name, "volume")
        if problem is not None:
            if not refusals.has_error(f"{at}.metadata.name"):
                refusals.error(f"{at}.metadata.name", problem.message, problem.hint)
            continue
        if fields["spec"] and fields["spec"]["volumeMode"] not in (None, "Filesystem"):
            refusals.refuse(f"{at}.spec.volumeMode", "a volume of podman is a directory")
        refusals.refuse_all(each for each in owner.refused if each.path.startswith(f"{at}."))
        claims[name] = Claim(name=name, claim=f"{name}-{pod.name}")
    return claims
