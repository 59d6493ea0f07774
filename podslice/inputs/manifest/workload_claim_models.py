"""The fields of `volumeClaimTemplates` that quadlets keep, or refuse."""

from __future__ import annotations

from typing import Annotated

from podslice.inputs.manifest.workload_models import ENTRIES, Fields, Text


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
