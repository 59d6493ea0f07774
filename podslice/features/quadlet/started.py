"""Pods that run from quadlets: `apply --start`, the removal of unwanted ones, and the whole report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from podslice.cli import interrupts
from podslice.cli.host import configuration_document
from podslice.cli.manifests import choose_candidates, load_all, require_pods
from podslice.cli.options import Planning
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.views import changes, documents
from podslice.cli.views.changes import (
    quadlet_plan_lines,
    quadlet_result_lines,
    quadlet_step_document,
    quadlets_document,
    step_lines,
)
from podslice.cli.views.documents import Document
from podslice.cli.views.style import Display
from podslice.cli.wanted import may_have_quadlets, sources_or_default
from podslice.errors import Problem, invalid
from podslice.features.quadlet.loading import (
    further_problems,
    host_options,
    load_with_workloads,
    make_quadlets,
)
from podslice.features.quadlet.result import Quadlets
from podslice.features.quadlet.services import (
    QuadletPlanner,
    QuadletResult,
    QuadletServices,
    list_none,
)
from podslice.features.quadlet.transition import QuadletStep
from podslice.features.run.services_view import PodServices, service_lines, services_document
from podslice.model.config import Origin
from podslice.model.desired import Desired, PodDecision
from podslice.plan import StopUnit
from podslice.policy.exclusive import with_lasting_cpus
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.report import Outcome, Report, summarize
from podslice.reconcile.world import LiveWorld, World


class PodsToStart(NamedTuple):
    """The pods that run from quadlets."""

    decisions: tuple[PodDecision, ...] = ()
    quadlets: tuple[Quadlets, ...] = ()
    """Without the CPUs that pods have for themselves, which depend on the other pods."""
    make: Callable[[Iterable[PodDecision]], tuple[Quadlets, ...]] = lambda _: ()

    def with_cpus(self, desired: Desired) -> tuple[Quadlets, ...]:
        """Return the quadlets with these CPUs."""
        if not desired.own_cpus:
            return self.quadlets

        return self.make(with_lasting_cpus(self.decisions, desired))


_NO_PODS = PodsToStart()


def load_pods_to_apply(
    planning: Planning,
    filename: list[str] | None,
    namespace: str | None,
    *,
    start: bool,
    ignored: Collection[str] | None,
    is_for_host: bool = False,
) -> tuple[tuple[PodDecision, ...], PodsToStart]:
    """Return the pods to apply, and with `start` those to start, if the whole input is valid.

    Without files they are those of the manifest directories. With `is_for_host` the configuration must
    not be that of another machine.

    Raises:
        InputError: there is an error in the input, or podman is too old; it has every problem.
        HostError: with `start`, podman or systemd is not installed.
        PodsliceError: the stated files have nothing that podslice runs.
    """
    if ignored and not start:
        raise invalid("is for quadlets only", "add --start", where="--ignore")
    sources = sources_or_default(planning, filename)
    if not start:
        _, loaded = load_all(planning, sources, namespace)
        candidates = choose_candidates(planning, loaded, is_for_host=is_for_host)
        require_pods(loaded, filename or ())
        return candidates, _NO_PODS

    validate = planning.config.validate
    loaded, workloads = load_with_workloads(sources, namespace, frozenset(ignored or ()), validate)
    further = further_problems(workloads.problems, loaded)
    candidates = choose_candidates(planning, loaded, further, is_for_host=is_for_host)
    require_pods(loaded, filename or ())
    options = host_options(planning, is_for_host=True)

    def make(decisions: Iterable[PodDecision]) -> tuple[Quadlets, ...]:
        return make_quadlets(decisions, workloads, options)

    made = make(candidates)
    for text in chain.from_iterable(each.notes for each in made):
        note(text)
    return candidates, PodsToStart(decisions=candidates, quadlets=made, make=make)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedServices:
    """The steps on files and services that `apply` would take."""

    steps: tuple[tuple[QuadletStep, str], ...] = ()
    """Each with the path of its file; empty if it is on a service."""
    problems: tuple[Problem, ...] = ()
    """Why the files of some pods would not be written."""

    def __bool__(self) -> bool:
        """Return whether there are steps."""
        return bool(self.steps)

    @property
    def names(self) -> list[str]:
        """Return the names of files, services and volumes."""
        return [path or step.name for step, path in self.steps]

    def document(self) -> Document:
        """Return the part of the document on quadlets, where there are some."""
        if not self.steps:
            return {}

        return {"changed": True, "quadlets": [quadlet_step_document(*each) for each in self.steps]}

    def lines(self, display: Display) -> Sequence[str]:
        """Return one line for each step."""
        return tuple(quadlet_plan_lines(self.steps, display))


class StartedPods:
    """The services of pods, around an apply or a delete."""

    def __init__(
        self,
        world: World,
        wanted: PodsToStart = _NO_PODS,
        *,
        grace_sec: int | None = None,
        named: Collection[str] | None = (),
    ) -> None:
        """`wanted` are the pods to start; those that are `named` (with None all) are removed."""
        self._wanted = wanted
        self._named = named
        self._planner: QuadletPlanner | None = None
        self._services: QuadletServices | None = None
        self._starts: tuple[QuadletStep, ...] = ()
        self._obstacles: Mapping[str, Sequence[Problem]] = {}
        """Why the files of pods cannot be written."""
        self.removed_pods: frozenset[str] = frozenset()
        """The pods whose files were removed."""
        if not wanted.quadlets and not may_have_quadlets(world.manager):
            return
        if not isinstance(world, LiveWorld):
            self._planner = QuadletPlanner(list_none, world.manager, wanted.quadlets)
            return
        client = world.client
        self._planner = QuadletPlanner(client.list_units, world.manager, wanted.quadlets)
        self._services = QuadletServices(client, world.manager, self._planner, grace_sec=grace_sec)

    @property
    def removals(self) -> Sequence[QuadletResult]:
        """Return the results of what was removed before the slices changed."""
        return self._services.removals if self._services else ()

    @property
    def results(self) -> Sequence[QuadletResult]:
        """Return the results of what was written and started after that."""
        return self._services.results if self._services else ()

    @property
    def exit_code(self) -> int:
        """0 after complete success, 1 where a step failed."""
        results = (*self.removals, *self.results)
        return int(any(each.outcome is not Outcome.DONE for each in results))

    async def plan(self, state: Assessment) -> PlannedServices:
        """Return all steps, as `apply` would take them."""
        if self._planner is None:
            return PlannedServices()
        self._planner.wanted = self._wanted.with_cpus(state.desired)
        obstacles = self._planner.check()
        refused = {*obstacles, *(each.pod for each in state.plan.refused)}
        steps = await self._planner.plan(self._unwanted(state), refused)
        return PlannedServices(
            steps=tuple((each, self._planner.path_of(each)) for each in steps),
            problems=tuple(chain.from_iterable(obstacles.values())),
        )

    async def prepare(self, state: Assessment) -> bool:
        """Stop and remove the services of the pods that are removed; return whether there were some.

        Raises:
            InputError: the files of the pods to start cannot be written; nothing was changed.
        """
        if self._planner is None or self._services is None:
            return False
        self._planner.wanted = self._wanted.with_cpus(state.desired)
        self._obstacles = self._planner.check()
        steps = await self._planner.plan_removal(self._unwanted(state))
        await self._services.remove(steps)
        failed = {each.step.pod for each in self.removals if each.outcome is not Outcome.DONE}
        self.removed_pods = frozenset({each.pod for each in steps} - failed)
        return bool(steps)

    async def write(self, report: Report) -> None:
        """Write the files of the pods whose slices are as they should be, and stop what changes.

        A pod with an obstacle among its files is a failure, and keeps the files that it has.
        """
        if self._planner is None or self._services is None:
            return
        self._services.refuse(self._obstacles)
        left = [each.step for each in report.results if each.outcome is not Outcome.DONE]
        failed = {each.pod if isinstance(each, StopUnit) else each.unit.pod for each in left}
        failed |= {*self._obstacles, *(each.pod for each in report.refused)}
        steps = await self._planner.plan_start({*filter(None, failed)})
        self._starts = await self._services.change(steps)

    async def start(self) -> None:
        """Start the services, and wait for them; the caller has released the lock.

        The last init container calls podslice, which takes it.
        """
        if self._services is None or not self._starts:
            return
        interrupts.begin(
            "the slices are as requested, and services continue to start; see: podslice status"
        )
        pods = dict.fromkeys(each.pod for each in self._starts)
        note(f"waiting for the services of {', '.join(pods)}")
        await self._services.start(self._starts)

    def _unwanted(self, state: Assessment) -> Collection[str] | None:
        """Return the pods to remove; with None all."""
        if self._named is None:
            return None
        present = {each.pod.key for each in state.desired.pods}
        return {each.key for each in state.current if each.key not in present}.union(self._named)


def emit_report(
    report: Report,
    output: OutputFormat,
    origin: Origin | None = None,
    *,
    started: StartedPods | None = None,
    services: PodServices | None = None,
    flag: str = "",
) -> int:
    """Print a report with the source of its configuration, and return the exit code.

    `flag` is the option of a user's service manager, after a space.
    """
    before, after = (started.removals, started.results) if started else ((), ())
    placed = services.results if services else ()
    emit(
        output,
        document=lambda: documents.document(
            **(configuration_document(origin) if origin else {}),
            **{
                **changes.report_document(report),
                **quadlets_document((*before, *after)),
                **services_document(placed),
            },
        ),
        lines=lambda display: (
            *service_lines(placed, flag, display),
            *quadlet_result_lines(before, display),
            *step_lines(report, display),
            *quadlet_result_lines(after, display),
            summarize(report, [each.outcome for each in (*before, *after)]),
        ),
        names=lambda: [
            *(each.service.unit for each in placed),
            *(each.step.name for each in before),
            *(result.step.name for result in report.results),
            *(each.step.name for each in after),
        ],
    )
    codes = (each.exit_code for each in (report, started, services) if each)
    return max(codes, default=0)
