"""`fieldRef` and `resourceFieldRef` of a variable → what the manifest itself states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from podslice.errors import quote
from podslice.inputs.manifest.workload_fields import Refusals
from podslice.inputs.manifest.workload_models import FieldRef, ResourceFieldRef
from podslice.model.pod import Container, Pod
from podslice.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, is_hugepages

_ONE = 1000
"""The divisor where none is stated, in thousandths."""
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
"""Source: Kubernetes, pkg/fieldpath/fieldpath.go, SplitMaybeSubscriptedPath."""
_KNOWN = "metadata.name, namespace and uid, and single labels and annotations"


class ReferenceReader(NamedTuple):
    """Resolves the references of one pod's variables."""

    refusals: Refusals
    pod: Pod
    metadata: object
    """The mapping with the pod's labels and annotations."""

    def read_field(self, ref: FieldRef, path: str) -> str | None:
        """Return the value of a field of the pod; None with a refusal.

        A label that the pod does not have is empty.

        Source: Kubernetes, pkg/fieldpath/fieldpath.go, ExtractFieldPathAsString.
        """
        pod, stated = self.pod, ref.field_path or ""
        own = {
            "metadata.name": pod.name,
            "metadata.namespace": pod.namespace,
            "metadata.uid": pod.uid,
        }
        if stated in own:
            return own[stated]
        if found := _SUBSCRIPT.fullmatch(stated):
            of_kind = self.metadata.get(found[1]) if isinstance(self.metadata, Mapping) else None
            value = of_kind.get(found[2]) if isinstance(of_kind, Mapping) else None
            return value if isinstance(value, str) else ""
        reason = f"{quote(stated)} is not known before the pod runs"
        self.refusals.refuse(path, reason, f"podslice knows {_KNOWN}")
        return None

    def read_resource(self, ref: ResourceFieldRef, container: str, path: str) -> str | None:
        """Return an amount of a container, divided and rounded up; None with a problem.

        Source: Kubernetes, pkg/api/v1/resource/helpers.go, ExtractContainerResourceValue.
        """
        name = ref.container_name or container
        holder = next((each for each in self.pod.containers if each.name == name), None)
        if holder is None:
            message = f"the pod has no container {quote(name)}"
            self.refusals.error(f"{path}.containerName", message)
            return None
        part, _, resource = (ref.resource or "").partition(".")
        is_known = resource in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_hugepages(resource)
        if part not in ("limits", "requests") or not is_known:
            message = f"unknown resource {quote(ref.resource or '')}"
            self.refusals.error(f"{path}.resource", message, "write limits.memory, for example")
            return None
        amount = _amount(holder, part, resource)
        if amount is None:
            reason = f"container {name} has no limit of {resource}, and the node's is not known"
            self.refusals.refuse(path, reason, "state a limit")
            return None
        return str(-(-amount // (ref.divisor or _ONE)))


def _amount(container: Container, part: str, resource: str) -> int | None:
    """Return a limit, or a request, which is the limit where none is stated, and otherwise 0."""
    limit = container.resources.limits.get(resource)
    if part == "limits":
        return limit
    return container.resources.requests.get(resource, limit or 0)
