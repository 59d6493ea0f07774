"""Records the ends of containers without a parent that does it, and reports failures and restarts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.agent.context import AgentContext
from podslice.agent.oomd_kills import OomdMonitor
from podslice.dataclass import dataclass
from podslice.errors import HostError
from podslice.model.container_exit import OOM_KILL, UNKNOWN, ContainerExit
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.naming import service_name
from podslice.model.unit import ObservedUnit, UnitName
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.observe import control_group
from podslice.store.histories import save_observed_end, save_oomd_kill

_FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """The running containers of a pod, and the OOM kills in it so far."""

    containers: frozenset[str]
    oom_kills: int


_NONE = _Running(containers=frozenset(), oom_kills=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """The service of a container, as it was observed last."""

    pod: PodDecision
    container: str
    unit: ObservedUnit


class ContainerEnds:
    """Notices containers whose unit is gone, has failed or was restarted since the last round."""

    def __init__(self, context: AgentContext, oomd: OomdMonitor) -> None:
        """`oomd` has followed the containers in this round."""
        self._context = context
        self._oomd = oomd
        self._running: Mapping[str, _Running] = {}
        """By the uids of their pods."""
        self._services: Mapping[UnitName, _Service] | None = None
        """None before the first round."""

    def follow(self) -> None:
        """Handle the ends since the last call; those of removed pods are ignored."""
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
                    self._report_end(pod, container)
        earlier, self._services = self._services, dict(_services(assessment))
        if earlier is not None:
            for name, service in self._services.items():
                self._compare(service, earlier.get(name))

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

    def _report_end(self, pod: PodDecision, container: str) -> None:
        """Report the recorded end of a container whose unit is gone, if it has failed."""
        history = self._context.world.store.histories(pod.pod.uid).get(container)
        if history is None or not history.has_ended:
            return
        last = history.last_exit
        if last is not None and last.is_failure and not self._is_leaving(pod):
            scope = next(each.scope for each in pod.scopes if each.name == container)
            self._report_failure(pod, container, last, unit=service_name(scope))

    def _compare(self, now: _Service, before: _Service | None) -> None:
        """Report what has happened to a service that is loaded."""
        had = before.unit if before else None
        last, has_failed = now.unit.main_exit, now.unit.active_state == _FAILED
        is_new = last is not None and (had is None or had.main_exit != last)
        is_killed = is_new and last is not None and (last.is_oom or last.is_oomd)
        is_failure = is_killed or (
            has_failed and (had is None or had.active_state != _FAILED or is_new)
        )
        is_restart = had is not None and now.unit.restarts > had.restarts
        if not (is_failure or is_restart) or self._is_leaving(now.pod):
            return
        if is_failure:
            self._report_failure(now.pod, now.container, last, unit=now.unit.name)
        if is_restart:
            # the last exit of a service that runs again is not known
            self._report_restart(now, last)

    def _report_failure(
        self, pod: PodDecision, container: str, last: ContainerExit | None, *, unit: UnitName
    ) -> None:
        is_killed = last is not None and (last.is_oom or last.is_oomd)
        cause = last.cause or last.result if last else "its service has failed"
        how = "was killed for lack of memory" if is_killed else "has failed"
        self._context.events.report(
            Kind.CONTAINER_OOM_KILLED if is_killed else Kind.CONTAINER_FAILED,
            f"container {container} of pod {pod.pod.key} {how}: {cause}",
            pod=pod.pod.key,
            unit=unit,
            fields={"CONTAINER": container, **_fields(last)},
        )

    def _report_restart(self, service: _Service, last: ContainerExit | None) -> None:
        restarts, key = service.unit.restarts, service.pod.pod.key
        after = f" after {last.cause}" if last and last.cause else ""
        count = "1 restart" if restarts == 1 else f"{restarts} restarts in a row"
        self._context.events.report(
            Kind.CONTAINER_RESTARTED,
            f"container {service.container} of pod {key} was restarted{after}: {count}",
            pod=key,
            unit=service.unit.name,
            fields={"CONTAINER": service.container, "RESTARTS": str(restarts), **_fields(last)},
        )

    def _is_leaving(self, pod: PodDecision) -> bool:
        """Return whether a pod is being stopped, by the agent or by a verb."""
        if pod.pod.uid in self._context.terminating.in_progress:
            return True
        changes = self._context.world.store.manual_changes.load()
        return any(pod.pod.key in each.pods and not each.is_over for each in changes)

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


def _services(assessment: Assessment) -> Iterator[tuple[UnitName, _Service]]:
    """Yield the services of containers that are loaded."""
    units = assessment.observed.units
    for pod in assessment.desired.pods:
        for container in pod.scopes:
            name = service_name(container.scope)
            if name in units:
                yield name, _Service(pod=pod, container=container.name, unit=units[name])


def _fields(last: ContainerExit | None) -> dict[str, str]:
    """Return the values of an exit for programs."""
    if last is None:
        return {}
    status = last.signal if last.exit_code is None else str(last.exit_code)
    return {"RESULT": last.result, **({"EXIT_STATUS": status} if status else {})}
