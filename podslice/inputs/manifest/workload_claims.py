"""`volumeClaimTemplates` of a StatefulSet → the claims of one of its pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from podslice.inputs.manifest.names import check_label
from podslice.inputs.manifest.schema import read_model
from podslice.inputs.manifest.workload_fields import Refusals, is_stated
from podslice.inputs.manifest.workload_models import ENTRIES, Fields, Text
from podslice.inputs.scalars import extend_path
from podslice.model.pod import Pod
from podslice.model.workload import Claim


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
