"""The pods that are wanted and do not run, as the agent and `status` determine them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import Eviction, PendingPod
from podslice.policy.pending_pods import WantedState, pending_pods
from podslice.reconcile.assessment import Assessment


def find_pending(  # noqa: PLR0913 - each is another part of what is wanted
    assessment: Assessment,
    candidates: Iterable[PodDecision],
    *,
    digests: Mapping[str, str],
    sources: Mapping[str, str],
    waiting: Iterable[Refusal] = (),
    evicted: Iterable[Eviction] = (),
    started: Collection[str] = (),
) -> tuple[PendingPod, ...]:
    """Return the pods that do not run as wanted.

    Args:
        assessment: one of a request with these candidates, or made after that.
        candidates: the new and changed pods of manifests.
        digests: the digests of their manifests, by uid.
        sources: their files, by uid.
        waiting: pods that have to wait for others, and are not candidates.
        evicted: marks that are not recorded.
        started: the pods whose containers `apply --start` runs, by key.
    """
    refused = (*assessment.plan.refused, *waiting)
    keys = {each.pod for each in refused}
    return pending_pods(
        WantedState(
            candidates=tuple(
                each
                for each in candidates
                if each.pod.key in keys
                or assessment.digests.get(each.pod.uid) != digests[each.pod.uid]
            ),
            applied=assessment.current,
            refused=refused,
            evicted=(*assessment.evicted, *evicted),
            sources=sources,
            started=started,
            flag=assessment.observed.caps.manager.flag,
        )
    )
