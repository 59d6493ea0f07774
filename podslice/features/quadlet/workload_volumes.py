"""`spec.volumes` of a pod → values, with the files of ConfigMaps and Secrets, and the claims of a StatefulSet."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from podslice.errors import Problem, quote
from podslice.features.quadlet.workload import (
    Claim,
    DataFile,
    DataFiles,
    EmptyDir,
    HostPath,
    Volume,
)
from podslice.features.quadlet.workload_fields import Refusals, is_stated
from podslice.features.quadlet.workload_models import (
    ENTRIES,
    DataFields,
    DataVolumeFields,
    EmptyDirSourceFields,
    Fields,
    HostPathFields,
    ItemFields,
    ProjectedFields,
    SecretVolumeFields,
    VolumeSourceFields,
)
from podslice.inputs.manifest.kinds import DATA_KINDS
from podslice.inputs.manifest.names import check_label
from podslice.inputs.manifest.schema import Text, read_model
from podslice.inputs.scalars import extend_path
from podslice.model.pod import Pod

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


class DataObject(NamedTuple):
    """One ConfigMap or Secret."""

    where: str
    values: Mapping[str, bytes]
    is_secret: bool


DataObjects = Mapping[tuple[str, str, str], DataObject]
"""Kind, namespace and name → the object."""


def read_objects(
    documents: Mapping[str, object], namespace: str | None
) -> tuple[DataObjects, list[Problem]]:
    """Return the ConfigMaps and Secrets of documents, and the problems in them."""
    objects: dict[tuple[str, str, str], DataObject] = {}
    problems: list[Problem] = []
    for where, document in documents.items():
        for path, value in _objects_in(document, ""):
            metadata = value.get("metadata")
            stated = metadata if isinstance(metadata, Mapping) else {}
            place = f"{where}: {path}" if path else where
            values, found = _read_values(value, path)
            problems += [each.within(where) for each in found]
            key = (
                str(value["kind"]),
                str(stated.get("namespace") or namespace or "default"),
                str(stated.get("name") or ""),
            )
            if key in objects:
                message = f"the {key[0]} {quote(key[2])} is already in {objects[key].where}"
                problems.append(Problem(where=place, message=message, hint="remove one of the two"))
            objects[key] = DataObject(where=place, values=values, is_secret=key[0] == "Secret")
    return objects, problems


def _objects_in(value: object, path: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    if not isinstance(value, Mapping):
        return
    items = value.get("items")
    if value.get("kind") in DATA_KINDS:
        yield path, value
    elif str(value.get("kind")).endswith("List") and isinstance(items, list):
        kind = str(value["kind"]).removesuffix("List")
        for index, item in enumerate(items):
            if isinstance(item, Mapping):
                named = {"kind": kind, **item} if kind in DATA_KINDS else item
                yield from _objects_in(named, extend_path(path, "items", index))


def _read_values(
    value: Mapping[str, object], path: str
) -> tuple[dict[str, bytes], Iterable[Problem]]:
    """Return the values by key; `stringData` takes precedence, as in the API server."""
    plain = {key: each for key, each in value.items() if key not in ("kind", "metadata")}
    fields, problems = read_model(DataFields, plain, path)
    is_secret = value["kind"] == "Secret"
    values: dict[str, bytes] = {}
    for name, entries, encoded in (
        ("data", fields.data, is_secret),
        ("binaryData", fields.binary_data, True),
        ("stringData", fields.string_data, False),
    ):
        for key, text in (entries or {}).items():
            where = extend_path(path, name, key)
            if not _KEY.fullmatch(key) or key in (".", ".."):
                message = f"{quote(key)} is not a valid key"
                problems.append(Problem(where=where, message=message))
                continue
            try:
                content = text or ""
                values[key] = (
                    base64.b64decode(re.sub(r"\s", "", content), validate=True)
                    if encoded
                    else content.encode()
                )
            except (binascii.Error, ValueError):
                hint = "write plain text under stringData" if is_secret else ""
                problems.append(Problem(where=where, message="is not valid base64", hint=hint))
    return values, problems


_TYPES = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket")
HOST_PATH_TYPES = frozenset((*_TYPES, "CharDevice", "BlockDevice"))
_MODE = 0o644
"""Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_SecretVolumeSource."""
_NAME_BYTES_MAX = 255
"""Source: Linux, include/uapi/linux/limits.h, NAME_MAX."""
_PATH_BYTES_MAX = 1024
_PARTS_MAX = 32
_EXAMPLE = "write a/b, for example"


class _Source(NamedTuple):
    """One ConfigMap or Secret of a volume."""

    kind: str
    name: str
    items: Sequence[ItemFields] | None
    mode: int
    is_optional: bool
    path: str


class VolumeReader(NamedTuple):
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
            claim = entry.persistent_volume_claim
            read_only = bool(claim.read_only)
            return Claim(name=name, claim=claim.claim_name or "", read_only=read_only)
        sources = list(_sources(entry, path))
        if sources:
            placed = [each for source in sources for each in self._files(source)]
            self._check_directories(placed)
            return DataFiles(name=name, files=tuple(file for file, _ in placed))
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
        if kind not in HOST_PATH_TYPES:
            hint = f"write one of {', '.join(sorted(HOST_PATH_TYPES - {''}))}"
            self.refusals.error(f"{path}.type", f"unknown type {quote(kind)}", hint)
            return None
        return HostPath(name=name, path=posixpath.normpath(where), type=kind)

    def _files(self, source: _Source) -> Iterator[tuple[DataFile, str]]:
        """Yield the files of one ConfigMap or Secret, all keys or its items, with their places."""
        found = self.objects.get((source.kind, self.namespace, source.name))
        if found is None:
            if not source.is_optional:
                message = f"there is no {source.kind} {quote(source.name)} in the files"
                self.refusals.error(source.path, message, "add it with another -f")
            return
        if source.items is None:
            for key, content in sorted(found.values.items()):
                if self._is_usable(key, source.path):
                    file = DataFile(
                        path=key, content=content, mode=source.mode, is_secret=found.is_secret
                    )
                    yield file, source.path
            return
        for index, item in enumerate(source.items):
            at = f"{source.path}.items[{index}]"
            key, target = item.key or "", item.path or ""
            if key not in found.values:
                if not source.is_optional:
                    self.refusals.error(f"{at}.key", f"there is no key {quote(key)} in it")
            elif self._is_usable(target, f"{at}.path"):
                mode = source.mode if item.mode is None else item.mode
                file = DataFile(
                    path=target, content=found.values[key], mode=mode, is_secret=found.is_secret
                )
                yield file, f"{at}.path"

    def _is_usable(self, target: str, path: str) -> bool:
        """Return whether a file may have this relative path.

        Source: Kubernetes, pkg/apis/core/validation/validation.go, validateLocalNonReservedPath,
        which lets the kubelet find names that no file can have.
        """
        parts = target.split("/")
        if not target or target.startswith("/") or ".." in parts:
            message = f"{quote(target)} must be a relative path without '..'"
            self.refusals.error(path, message, _EXAMPLE)
        elif {"", "."}.intersection(parts):
            message = f"{quote(target)} must be the path of a file, without '.' and empty parts"
            self.refusals.error(path, message, _EXAMPLE)
        elif any(each.startswith("..") for each in parts):
            message = f"{quote(target)}: no part of the path may begin with '..'"
            self.refusals.error(path, message, "choose another name")
        elif not target.isprintable():
            if not self.refusals.has_error(path):
                message = f"{quote(target)} must have printable characters only"
                self.refusals.error(path, message, "choose another name")
        elif any(len(each.encode()) > _NAME_BYTES_MAX for each in parts):
            message = f"{quote(target)}: a name may have at most {_NAME_BYTES_MAX} bytes"
            self.refusals.error(path, message, "shorten it")
        elif len(target.encode()) > _PATH_BYTES_MAX or len(parts) > _PARTS_MAX:
            message = (
                f"{quote(target)} may have at most {_PATH_BYTES_MAX:,} bytes and {_PARTS_MAX} parts"
            )
            self.refusals.error(path, message, "shorten it")
        else:
            return True
        return False

    def _check_directories(self, placed: Sequence[tuple[DataFile, str]]) -> None:
        """Check that no file of a volume is the directory of another."""
        files = {file.path for file, _ in placed}
        for file, where in placed:
            above = file.path
            while above := posixpath.dirname(above):
                if above in files:
                    message = f"{quote(file.path)} would be below {quote(above)}, which is a file"
                    self.refusals.error(where, message, "choose another path for one of the two")


def _sources(entry: VolumeSourceFields, path: str) -> Iterator[_Source]:
    if entry.config_map:
        yield _source("ConfigMap", entry.config_map, f"{path}.configMap")
    if entry.secret:
        yield _source("Secret", entry.secret, f"{path}.secret")
    # in a projected volume a later file of the same path is valid
    fields = entry.projected or ProjectedFields()
    for index, each in enumerate(fields.sources or ()):
        at = f"{path}.projected.sources[{index}]"
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


def read_claims(pod: Pod, owner: object, path: str, refusals: Refusals) -> dict[str, Claim]:
    """Return the claims of a pod by the names of their volumes.

    The claim of each pod outlives it, and is named after the template and the pod.

    Args:
        pod: the pod.
        owner: the object with its template.
        path: the path of that object in the document, for a list.
        refusals: gets the problems.

    Source: Kubernetes v1.36, pkg/controller/statefulset/stateful_set_utils.go,
    getPersistentVolumeClaimName and updateStorage.
    """
    if not isinstance(owner, Mapping) or owner.get("kind") != "StatefulSet":
        return {}
    place = extend_path(path, "spec")
    fields, found = read_model(StatefulSetFields, owner.get("spec") or {}, place)
    refusals.add(found)
    names = _names(fields.volume_claim_templates or (), place, refusals)
    return {each: Claim(name=each, claim=f"{each}-{pod.name}") for each in names}


def _names(
    entries: Iterable[ClaimTemplateFields | None], path: str, refusals: Refusals
) -> Iterator[str]:
    for index, entry in enumerate(entries):
        place = f"{path}.volumeClaimTemplates[{index}]"
        metadata, spec = (entry.metadata, entry.spec) if entry else (None, None)
        name = (metadata.name if metadata else None) or ""
        problem = check_label(name, "volume")
        if problem is not None:
            if not refusals.has_error(f"{place}.metadata.name"):
                refusals.error(f"{place}.metadata.name", problem.message, problem.hint)
            continue
        if spec is not None:
            _refuse_unkept(spec, f"{place}.spec", refusals)
        yield name


def _refuse_unkept(spec: ClaimSpecFields, path: str, refusals: Refusals) -> None:
    if spec.volume_mode not in (None, "Filesystem"):
        refusals.refuse(f"{path}.volumeMode", "a volume of podman is a directory")
    for name, value in (("dataSource", spec.data_source), ("dataSourceRef", spec.data_source_ref)):
        if is_stated(value):
            refusals.refuse(f"{path}.{name}", "a volume of podman begins empty")


class ClaimNameFields(Fields):
    """`metadata` of a claim's template; labels mean nothing on a single host."""

    name: Text | None = None


class ClaimSpecFields(Fields):
    """`spec` of a claim's template; a volume of podman has neither a size nor a class."""

    volume_mode: Text | None = None
    data_source: object = None
    data_source_ref: object = None


class ClaimTemplateFields(Fields):
    """One entry of `volumeClaimTemplates`."""

    metadata: ClaimNameFields | None = None
    spec: ClaimSpecFields | None = None


class StatefulSetFields(Fields):
    """`spec` of a StatefulSet."""

    volume_claim_templates: Annotated[list[ClaimTemplateFields | None], ENTRIES] | None = None
    """An entry of another type is reported, and read as none."""
