"""`spec.volumes` of a pod → values, with the files of ConfigMaps and Secrets."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from podslice.dataclass import dataclass
from podslice.imports import quick_models
from podslice.inputs.manifest.workload_data import DataObjects
from podslice.inputs.manifest.workload_fields import Refusals
from podslice.inputs.scalars import quote
from podslice.model.workload import Claim, DataFile, DataFiles, EmptyDir, HostPath, Volume

with quick_models():
    from podslice.inputs.manifest.workload_models import (
        ClaimFields,
        DataVolumeFields,
        EmptyDirSourceFields,
        HostPathFields,
        ItemFields,
        ProjectedFields,
        SecretVolumeFields,
        VolumeSourceFields,
    )

_TYPES = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket")
HOST_PATH_TYPES = frozenset((*_TYPES, "CharDevice", "BlockDevice"))
_MODE = 0o644
"""Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_SecretVolumeSource."""
# podman's generator searches directories below its own for files with these names
_UNIT_SUFFIXES = (".container", ".pod", ".volume", ".network", ".kube", ".image", ".build")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """One ConfigMap or Secret of a volume."""

    kind: str
    name: str
    items: Sequence[ItemFields] | None
    mode: int
    is_optional: bool
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeReader:
    """Reads the volumes of one pod."""

    refusals: Refusals
    objects: DataObjects
    namespace: str

    def read(self, entries: Sequence[VolumeSourceFields], path: str) -> Iterator[Volume]:
        """Yield the volumes; one without a source is an empty directory, as in Kubernetes."""
        for index, entry in enumerate(entries):
            if entry.name:
                volume = self._read(entry, f"{path}[{index}]")
                if volume is not None:
                    yield volume

    def _read(self, entry: VolumeSourceFields, path: str) -> Volume | None:
        name = entry.name or ""
        if entry.host_path:
            return self._host_path(name, entry.host_path, f"{path}.hostPath")
        if entry.persistent_volume_claim:
            return self._claim(name, entry.persistent_volume_claim, f"{path}.persistentVolumeClaim")
        sources = list(_sources(entry, path))
        if sources:
            files = tuple(each for source in sources for each in self._files(source))
            return DataFiles(name=name, files=files)
        return self._empty_dir(name, entry.empty_dir or EmptyDirSourceFields(), f"{path}.emptyDir")

    def _empty_dir(self, name: str, fields: EmptyDirSourceFields, path: str) -> EmptyDir:
        in_memory = fields.medium == "Memory"
        if fields.size_limit is not None and not in_memory:
            reason = "podman's volumes on disk have no size"
            self.refusals.refuse(f"{path}.sizeLimit", reason, "set medium: Memory")
        return EmptyDir(name=name, in_memory=in_memory)

    def _host_path(self, name: str, fields: HostPathFields, path: str) -> HostPath | None:
        """Read a path of the host.

        Source: Kubernetes, pkg/apis/core/validation/validation.go, validateHostPathVolumeSource.
        """
        where, kind = fields.path or "", fields.type or ""
        if not where.startswith("/") or ".." in where.split("/") or ":" in where:
            message = f"{quote(where)} must be an absolute path without '..' and ':'"
            self.refusals.error(f"{path}.path", message)
            return None
        if kind not in HOST_PATH_TYPES:
            hint = f"write one of {', '.join(sorted(HOST_PATH_TYPES - {''}))}"
            self.refusals.error(f"{path}.type", f"unknown type {quote(kind)}", hint)
            return None
        return HostPath(name=name, path=posixpath.normpath(where), type=kind)

    def _claim(self, name: str, fields: ClaimFields, path: str) -> Claim | None:
        if not fields.claim_name:
            self.refusals.error(f"{path}.claimName", "a claim needs a name")
            return None
        return Claim(name=name, claim=fields.claim_name, read_only=bool(fields.read_only))

    def _files(self, source: _Source) -> Iterator[DataFile]:
        """Yield the files of one ConfigMap or Secret: all keys, or its items."""
        found = self.objects.get((source.kind, self.namespace, source.name))
        if found is None:
            if not source.is_optional:
                message = f"there is no {source.kind} {quote(source.name)} in the files"
                self.refusals.error(source.path, message, "add it with another -f")
            return
        if source.items is None:
            for key, content in sorted(found.values.items()):
                if self._is_usable(key, source.path):
                    yield DataFile(
                        path=key, content=content, mode=source.mode, is_secret=found.is_secret
                    )
            return
        for index, item in enumerate(source.items):
            at = f"{source.path}.items[{index}]"
            key, target = item.key or "", item.path or ""
            if key not in found.values:
                if not source.is_optional:
                    self.refusals.error(f"{at}.key", f"there is no key {quote(key)} in it")
            elif self._is_usable(target, f"{at}.path"):
                mode = source.mode if item.mode is None else item.mode
                yield DataFile(
                    path=target, content=found.values[key], mode=mode, is_secret=found.is_secret
                )

    def _is_usable(self, target: str, path: str) -> bool:
        """Return whether a relative path may be that of a file."""
        if not target or target.startswith("/") or ".." in target.split("/"):
            self.refusals.error(path, f"{quote(target)} must be a relative path without '..'")
            return False
        if target.endswith(_UNIT_SUFFIXES):
            reason = f"podman's generator would read {quote(target)} as a unit"
            self.refusals.refuse(path, reason, "choose another name")
            return False
        return True


def _sources(entry: VolumeSourceFields, path: str) -> Iterator[_Source]:
    if entry.config_map:
        yield _source("ConfigMap", entry.config_map, f"{path}.configMap")
    if entry.secret:
        yield _source("Secret", entry.secret, f"{path}.secret")
    yield from _projected(entry.projected, f"{path}.projected")


def _projected(fields: ProjectedFields | None, path: str) -> Iterator[_Source]:
    """Yield the sources of a projected volume; a later file of the same path is valid."""
    if fields is None:
        return
    for index, each in enumerate(fields.sources or ()):
        at = f"{path}.sources[{index}]"
        if each.config_map:
            yield _source("ConfigMap", each.config_map, f"{at}.configMap", fields.default_mode)
        if each.secret:
            yield _source("Secret", each.secret, f"{at}.secret", fields.default_mode)


def _source(
    kind: str,
    fields: DataVolumeFields | SecretVolumeFields,
    path: str,
    mode: int | None = None,
) -> _Source:
    stated = fields.default_mode if mode is None else mode
    # a volume names its Secret `secretName`, a projection `name`
    name = fields.secret_name if isinstance(fields, SecretVolumeFields) else fields.name
    return _Source(
        kind=kind,
        name=name or "",
        items=fields.items,
        mode=_MODE if stated is None else stated,
        is_optional=bool(fields.optional),
        path=path,
    )
