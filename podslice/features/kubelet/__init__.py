"""The nodes of kubelets: audit of their units, and pod levels on their slices."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "audit": VerbRow(
            group=VerbGroup.KUBELET,
            rank=10,
            function="podslice.features.kubelet.audit:audit",
            summary="Compare a kubelet's units with what its pods request.",
            report="podslice.features.kubelet.audit:AuditReport",
        ),
    },
    extends={"agent": "podslice.features.kubelet.agent:with_kubelet"},
)
