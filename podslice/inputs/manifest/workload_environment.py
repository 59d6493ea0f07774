"""`env` and `envFrom` of a container → its variables, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from podslice.errors import quote
from podslice.inputs.manifest.workload_data import DataObject, DataObjects
from podslice.inputs.manifest.workload_fields import Refusals
from podslice.inputs.manifest.workload_models import (
    ContainerWorkloadFields,
    EnvFrom,
    EnvVar,
    ObjectRef,
    ValueFrom,
)
from podslice.inputs.manifest.workload_references import ReferenceReader
from podslice.model.grammar import ARGUMENT, VARIABLE
from podslice.model.workload import Variable


class EnvironmentReader(NamedTuple):
    """Reads the variables of the containers of one pod."""

    refusals: Refusals
    objects: DataObjects
    namespace: str
    references: ReferenceReader

    def read(self, container: ContainerWorkloadFields, path: str) -> Iterator[Variable]:
        """Yield the variables: those of whole objects first.

        Source: Kubernetes, pkg/kubelet/kubelet_pods.go, makeEnvironmentVariables.
        """
        for index, each in enumerate(container.env_from or ()):
            yield from self._read_all(each, f"{path}.envFrom[{index}]")
        for index, variable in enumerate(container.env or ()):
            yield from self._read_one(variable, container.name or "", f"{path}.env[{index}]")

    def _read_all(self, fields: EnvFrom, path: str) -> Iterator[Variable]:
        for kind, ref, name in (
            ("ConfigMap", fields.config_map_ref, "configMapRef"),
            ("Secret", fields.secret_ref, "secretRef"),
        ):
            found = None if ref is None else self._find(kind, ref, f"{path}.{name}")
            for key in sorted(found.values) if found else ():
                full = f"{fields.prefix or ''}{key}"
                if VARIABLE.matches(full) and found:
                    yield from self._from(found, key, full, path)

    def _read_one(self, fields: EnvVar, container: str, path: str) -> Iterator[Variable]:
        name = fields.name or ""
        if fields.value_from is not None:
            value = self._reference(fields.value_from, container, f"{path}.valueFrom")
            if value is not None and not ARGUMENT.matches(value):
                message = f"the value is not {ARGUMENT.name}"
                self.refusals.error(f"{path}.valueFrom", message, ARGUMENT.form)
            elif value is not None:
                yield Variable(name=name, value=value, is_literal=True)
            yield from self._read_key(name, fields.value_from, f"{path}.valueFrom")
        else:
            yield Variable(name=name, value=fields.value or "")

    def _reference(self, fields: ValueFrom, container: str, path: str) -> str | None:
        """Return what a reference to the pod itself states; None if there is none."""
        if fields.field_ref is not None:
            return self.references.read_field(fields.field_ref, f"{path}.fieldRef")
        if fields.resource_field_ref is not None:
            ref, at = fields.resource_field_ref, f"{path}.resourceFieldRef"
            return self.references.read_resource(ref, container, at)
        return None

    def _read_key(self, name: str, fields: ValueFrom, path: str) -> Iterator[Variable]:
        for kind, ref, of in (
            ("ConfigMap", fields.config_map_key_ref, "configMapKeyRef"),
            ("Secret", fields.secret_key_ref, "secretKeyRef"),
        ):
            found = None if ref is None else self._find(kind, ref, f"{path}.{of}")
            if found is None or ref is None:
                continue
            if ref.key in found.values:
                yield from self._from(found, ref.key or "", name, path)
            elif not ref.optional:
                message = f"there is no key {quote(ref.key or '')} in {found.where}"
                self.refusals.error(f"{path}.{of}.key", message)

    def _find(self, kind: str, ref: ObjectRef, path: str) -> DataObject | None:
        found = self.objects.get((kind, self.namespace, ref.name or ""))
        if found is None and not ref.optional:
            message = f"there is no {kind} {quote(ref.name or '')} in the files"
            self.refusals.error(path, message, "add it with another -f")
        return found

    def _from(self, found: DataObject, key: str, name: str, path: str) -> Iterator[Variable]:
        value = found.values[key].decode(errors="surrogateescape")
        if not ARGUMENT.matches(value):
            self.refusals.error(
                path, f"the value of {quote(key)} is not {ARGUMENT.name}", "mount it as a file"
            )
            return
        if found.is_secret and "\n" in value:
            reason = f"a secret variable has one line only, and {quote(key)} has several"
            self.refusals.refuse(path, reason, "mount it as a file")
            return
        yield Variable(name=name, value=value, is_literal=True, is_secret=found.is_secret)
