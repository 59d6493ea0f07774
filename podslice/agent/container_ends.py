"""Records the ends of containers without a parent that does it, and reports failures and restarts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from podslice.agent.context import AgentContext
from podslice.agent.oomd_kills import OomdMonitor
from podslice.errors import HostError
from podslice.model.container_exit import OOM_KILL, UNKNOWN, ContainerExit
from podslice.model.desired import ContainerDecision, PodDecision
from podslice.model.event import Kind
from podslice.model.naming import service_name
from podslice.model.unit import ObservedUnit, UnitName
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.observe import control_group
from podslice.store.histories import save_observed_end, save_oomd_kill
from podslice.usage.pod_service import PodService

_FAILED = "failed"
_UNKNOWN_MAX = 1000
"""Services with exits to keep, of which most are not in pods."""


class _Running(NamedTuple):
    """The running containers of a pod, and the OOM kills in it so far."""

    containers: frozenset[str]
    oom_kills: int


_NONE = _Running(containers=frozenset(), oom_kills=0)


class _Service(NamedTuple):
    """A service in a pod, as it was observed last."""

    pod: PodDecision
    container: str
    unit: ObservedUnit
    last_exit: ContainerExit | None = None
    """The last known exit of its main process, also while it runs again."""
    stated_exit: ContainerExit | None = None
    """The exit that was stated as the reason of a restart."""


class ContainerEnds:
    """Notices containers whose unit is gone, has failed or was restarted since the last round."""

    def __init__(self, context: AgentContext, oomd: OomdMonitor) -> None:
        """`oomd` has followed the containers in this round."""
        self._context = context
        self._oomd = oomd
        self._running: Mapping[str, _Running] = {}
        """By the uids of their pods."""
        self._services: dict[UnitName, _Service] | None = None
        """None before the first round."""
        self._exits: dict[UnitName, list[ContainerExit]] = {}
        """The exits of services since the last round that had the service, in order."""
        self._noticed: set[UnitName] = set()
        self._due: set[UnitName] = set()
        """The units that were noticed before the round began."""
        self._handled: dict[tuple[str, str], int] = {}
        """The start whose end was handled, by the uid of the pod and the container."""

    def notice(self, name: UnitName) -> None:
        """Have `follow` look for the end of a unit that has changed.

        A container may start and end between two rounds.
        """
        self._noticed.add(name)

    def notice_exit(self, name: UnitName, last: ContainerExit) -> None:
        """Keep an exit of a service, which may run again when it is observed."""
        exits = self._exits.setdefault(name, [])
        if last not in exits:
            exits.append(last)

    def begin(self) -> None:
        """Begin a round, whose assessment is newer than what was noticed until now."""
        self._due |= self._noticed
        self._noticed = set()

    def follow(self, others: Iterable[PodService] = ()) -> None:
        """Handle the ends since the last call; ends of removed pods are ignored.

        `others` are the services of other programs in pods.
        """
        assessment = self._context.assessment
        if assessment is None:
            return
        before, self._running = self._running, self._observe(assessment)
        earlier = self._services
        self._services = {
            name: self._with_exit(service, (earlier or {}).get(name))
            for name, service in _services(assessment, others)
        }
        if earlier is None:
            self._handle_earlier(assessment)
        left: set[UnitName] = set()
        for pod in assessment.desired.pods if before or self._due else ():
            left |= self._follow_pod(pod, before.get(pod.pod.uid), assessment)
        self._due = left
        if self._handled:
            uids = {pod.pod.uid for pod in assessment.desired.pods}
            self._handled = {key: at for key, at in self._handled.items() if key[0] in uids}
        if earlier is not None:
            for name, service in list(self._services.items()):
                if self._compare(service, earlier.get(name)):
                    self._services[name] = service._replace(stated_exit=service.last_exit)
        # a service that is not known to be in a pod may be found there
        unknown = {} if len(self._exits) > _UNKNOWN_MAX else self._exits
        self._exits = {name: each for name, each in unknown.items() if name not in self._services}

    def report_crash(
        self, pod: PodDecision, container: str, last: ContainerExit, *, unit: UnitName
    ) -> None:
        """Report the crash of a container of a runtime, unless its pod is being stopped."""
        if not self._is_leaving(pod):
            self._report_failure(pod, container, last, unit=unit)

    def _handle_earlier(self, assessment: Assessment) -> None:
        """Leave out the ends before the first round."""
        self._due.clear()
        for pod in assessment.desired.pods:
            uid = pod.pod.uid
            for name, history in self._context.world.store.histories(uid).items():
                if history.has_ended:
                    self._handled[uid, name] = history.started_usec

    def _follow_pod(
        self, pod: PodDecision, was: _Running | None, assessment: Assessment
    ) -> set[UnitName]:
        """Handle the ends in a pod; return the noticed units whose end is not recorded yet."""
        uid = pod.pod.uid
        noticed = {each.name: found for each in pod.scopes if (found := self._due & _units(each))}
        before = was.containers if was else frozenset()
        ended = (before | noticed.keys()) - self._running.get(uid, _NONE).containers
        if not ended:
            return set()
        is_oom = was is not None and self._count_oom_kills(pod, assessment) > was.oom_kills
        left: set[UnitName] = set()
        for container in sorted(ended):
            if container in before:
                self._record(uid, container, is_oom=is_oom)
            if not self._handle_end(pod, container):
                left |= noticed.get(container, set())
        return left

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

    def _handle_end(self, pod: PodDecision, container: str) -> bool:
        """Report the end of a container whose unit is gone, if it has failed.

        Return whether its record is complete: `podslice run` writes that of the start last.
        """
        key = (pod.pod.uid, container)
        history = self._context.world.store.histories(pod.pod.uid).get(container)
        if history is None or not history.has_ended:
            return False
        if self._handled.get(key) == history.started_usec:
            return False
        self._handled[key] = history.started_usec
        last = history.last_exit
        if last is not None and last.is_failure and not self._is_leaving(pod):
            scope = next(each.scope for each in pod.scopes if each.name == container)
            self._report_failure(pod, container, last, unit=service_name(scope))
        return True

    def _compare(self, now: _Service, had: _Service | None) -> bool:
        """Report what has happened to a service that is loaded; return whether it was restarted."""
        was_failed = had is not None and had.unit.active_state == _FAILED
        new = self._new_exits(now, had)
        has_failed = now.unit.active_state == _FAILED and (not was_failed or bool(new))
        if had is None and now.unit.main_exit is not None and not new:
            has_failed = False
        restarts = now.unit.restarts > had.unit.restarts if had else bool(new and now.unit.restarts)
        failures = [each for each in new if each.is_oom or each.is_oomd]
        if not (failures or has_failed or restarts) or self._is_leaving(now.pod):
            return False
        if has_failed and now.unit.main_exit not in failures:
            self._report_failure(now.pod, now.container, now.unit.main_exit, unit=now.unit.name)
        for each in failures:
            self._report_failure(now.pod, now.container, each, unit=now.unit.name)
        if restarts:
            self._report_restart(now)
        return restarts

    def _with_exit(self, now: _Service, had: _Service | None) -> _Service:
        """Return a service with its last known exit."""
        exits = self._exits_of(now)
        before, stated = (had.last_exit, had.stated_exit) if had else (None, None)
        last = now.unit.main_exit or (exits[-1] if exits else before)
        return now._replace(last_exit=last, stated_exit=stated)

    def _exits_of(self, service: _Service) -> list[ContainerExit]:
        """Return the exits since the last round; the records of `podslice run` have its exits."""
        is_recorded = service.unit.transient and service.container != service.unit.name
        return [] if is_recorded else list(self._exits.get(service.unit.name, ()))

    def _new_exits(self, now: _Service, had: _Service | None) -> list[ContainerExit]:
        """Return the exits since the last round, in order."""
        exits = self._exits_of(now)
        if had is None:
            return exits  # without a signal, it was before the service was in the pod
        if now.unit.main_exit is not None and now.unit.main_exit not in exits:
            exits.append(now.unit.main_exit)
        return [each for each in exits if each != had.last_exit]

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

    def _report_restart(self, service: _Service) -> None:
        unit, key = service.unit, service.pod.pod.key
        last = service.last_exit if service.last_exit != service.stated_exit else None
        after = f" after {last.cause}" if last and last.cause else ""
        count = "1 restart" if unit.restarts == 1 else f"{unit.restarts} restarts in a row"
        self._context.events.report(
            Kind.CONTAINER_RESTARTED,
            f"container {service.container} of pod {key} was restarted{after}: {count}",
            pod=key,
            unit=unit.name,
            fields={
                "CONTAINER": service.container,
                "RESTARTS": str(unit.restarts),
                **_fields(last),
            },
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


def _units(container: ContainerDecision) -> set[UnitName]:
    """Return the units that a container may have."""
    return {container.scope, service_name(container.scope)}


def _services(
    assessment: Assessment, others: Iterable[PodService]
) -> Iterator[tuple[UnitName, _Service]]:
    """Yield the services in pods."""
    units = assessment.observed.units
    pods = {pod.pod.key: pod for pod in assessment.desired.pods}
    for pod in pods.values():
        for container in pod.scopes:
            name = service_name(container.scope)
            if name in units:
                yield name, _Service(pod=pod, container=container.name, unit=units[name])
    for each in others:
        if each.pod in pods:
            name = each.unit.name
            yield name, _Service(pod=pods[each.pod], container=each.container, unit=each.unit)


def _fields(last: ContainerExit | None) -> dict[str, str]:
    """Return the values of an exit for programs."""
    if last is None:
        return {}
    status = last.signal if last.exit_code is None else str(last.exit_code)
    return {"RESULT": last.result, **({"EXIT_STATUS": status} if status else {})}
