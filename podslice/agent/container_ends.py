"""Records the ends of containers that have no parent to do it: adopted processes."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.agent.context import AgentContext
from podslice.agent.oomd_kills import OomdMonitor
from podslice.dataclass import dataclass
from podslice.errors import HostError
from podslice.model.container_exit import OOM_KILL, UNKNOWN
from podslice.model.desired import PodDecision
from podslice.model.naming import service_name
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.observe import control_group
from podslice.store.histories import save_observed_end, save_oomd_kill


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """The running containers of a pod, and the OOM kills in it so far."""

    containers: frozenset[str]
    oom_kills: int


_NONE = _Running(containers=frozenset(), oom_kills=0)


class ContainerEnds:
    """Notices containers whose unit is gone since the last round."""

    def __init__(self, context: AgentContext, oomd: OomdMonitor) -> None:
        """`oomd` has followed the containers in this round."""
        self._context = context
        self._oomd = oomd
        self._running: Mapping[str, _Running] = {}
        """By the uids of their pods."""

    def follow(self) -> None:
        """Record the ends since the last call; those of removed pods are ignored."""
        assessment = self._context.assessment
        if assessment is None:
            return
        before, self._running = self._running, self._observe(assessment)
        for pod in assessment.desired.pods if before else ():
            was, now = (each.get(pod.pod.uid, _NONE) for each in (before, self._running))
            if ended := was.containers - now.containers:
                is_oom = self._count_oom_kills(pod, assessment) > was.oom_kills
                for container in sorted(ended):
                    self._record(pod.pod.uid, container, is_oom=is_oom)

    def _record(self, uid: str, container: str, *, is_oom: bool) -> None:
        is_oomd = self._oomd.take(uid, container)
        store = self._context.world.store
        history = store.histories(uid).get(container)
        if history is None or (history.has_ended and not is_oomd):
            return
        try:
            path = store.end_path(uid, container, history.started_usec)
            if is_oomd:
                save_oomd_kill(path)
            else:
                save_observed_end(path, OOM_KILL if is_oom else UNKNOWN)
        except HostError as error:
            self._context.events.note(f"the end of {container} could not be recorded: {error}")

    def _observe(self, assessment: Assessment) -> dict[str, _Running]:
        """Return the pods with running containers."""
        units = assessment.observed.units
        found = {}
        for pod in assessment.desired.pods:
            running = [
                each.name
                for each in pod.scopes
                if each.scope in units or service_name(each.scope) in units
            ]
            if running:
                kills = self._count_oom_kills(pod, assessment)
                found[pod.pod.uid] = _Running(containers=frozenset(running), oom_kills=kills)
        return found

    def _count_oom_kills(self, pod: PodDecision, assessment: Assessment) -> int:
        group = control_group(pod.slice, assessment.observed)
        return self._context.world.cgroups.events(group).get("oom_kill", 0)
