"""The files and services of pods with quadlets, around an apply, a delete or a plan."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from podslice.errors import (
    CallTimeout,
    HostError,
    JobFailed,
    NoSuchUnit,
    Problem,
    SystemdError,
    excerpt,
)
from podslice.features.quadlet.files import (
    find_obstacles,
    installed,
    may_have_quadlets,
    place,
    read_installed,
    remove_file,
    write_file,
)
from podslice.features.quadlet.result import PODMAN, Quadlets
from podslice.features.quadlet.transition import (
    ABSENT,
    PresentPod,
    QuadletStep,
    is_unit,
    service_of,
    steps_to_keep,
    steps_to_remove,
    steps_to_remove_networks,
)
from podslice.kernel.programs import NoAnswerError
from podslice.model.desired import Desired, PodDecision
from podslice.model.naming import podman_pod
from podslice.model.unit import UnitName
from podslice.plan import Action, PodStep, PodSteps
from podslice.policy.exclusive import with_lasting_cpus
from podslice.reconcile.assess import Assessment
from podslice.reconcile.extension import Extension, PodRequest
from podslice.reconcile.report import Outcome, PodResult
from podslice.reconcile.world import LiveWorld, World
from podslice.systemd.client import Client, run_concurrently
from podslice.systemd.journal import has_access, reading_command
from podslice.usage.runtimes import communicate, run, run_patiently
from podslice.usage.unit_status import ACTIVATING

_IN_PODMAN = {Action.REMOVE_VOLUME: ("volume", "--force"), Action.REMOVE_NETWORK: ("network",)}
"""What podman removes by a step, and with which options."""
_BEFORE_STARTS = (Action.STOP, Action.WRITE, Action.REMOVE, *_IN_PODMAN)
_OF_FILES = (Action.WRITE, Action.REMOVE)
START_WAIT_SEC = 600.0
"""How long a start is waited for; the services continue to start afterwards."""
_LOOK_SEC = 2.0
"""The interval at which services that are starting are looked at."""
_NOTE_SEC = 30.0
"""The interval of notes about starts that are not complete."""
_NOTED_MAX = 3
_RESTARTS_MAX = 3
"""Restarts after which a service has failed, although systemd continues: after 10 s, or more."""
_STOP_WAIT_SEC = 24 * 3600.0
"""A stop ends by itself: each service has a limit of its own."""
_GENERATORS = "/usr/lib/systemd/{kind}-generators/podman-{kind}-generator"
_GENERATOR_WAIT_SEC = 60.0
_COMPLAINTS_MAX = 10
_NOT_STARTED = "a service that it requires did not start"
_NO_ACCESS = "only root and members of the group systemd-journal may read its messages"


class PodsToStart(NamedTuple):
    """The pods whose containers are to run."""

    quadlets: tuple[Quadlets, ...] = ()
    """Without exclusive CPUs, which depend on the other pods."""
    decisions: tuple[PodDecision, ...] = ()
    make: Callable[[Iterable[PodDecision]], tuple[Quadlets, ...]] = lambda _: ()

    def with_cpus(self, desired: Desired) -> tuple[Quadlets, ...]:
        """Return the quadlets with the exclusive CPUs of the pods."""
        if not desired.own_cpus:
            return self.quadlets
        return self.make(with_lasting_cpus(self.decisions, desired))


class QuadletChanges(Extension):
    """What files and services of pods need, and how it is done."""

    section = QuadletStep.section

    def __init__(self, world: World, request: PodRequest) -> None:
        self._world = world
        self._request = request
        started = request.started
        self._started = started if isinstance(started, PodsToStart) else PodsToStart()
        self._directories = installed(world.manager)
        self._failing: set[str] = set()
        """The pods of which a service fails again and again."""

    async def plan(self, assessment: Assessment, failed: Collection[str] | None = None) -> PodSteps:
        """Return the steps; a pod with an obstacle among its files keeps the files that it has."""
        wanted = self._started.with_cpus(assessment.desired)
        is_first = failed is None
        if not wanted and not (is_first and may_have_quadlets(self._world.manager)):
            return PodSteps()
        obstacles = find_obstacles(wanted, self._directories)
        present = await self.observe(wanted)
        excluded = {*(failed or ()), *obstacles}
        excluded |= {each.pod for each in assessment.plan.refused}
        unwanted = self._unwanted(assessment, present) if is_first else ()
        left = {key: each for key, each in present.items() if key not in unwanted}
        return PodSteps(
            before=self.plan_removal(present, unwanted),
            after=(
                *(_obstacle(pod, each) for pod, found in obstacles.items() for each in found),
                *self.plan_start(left, (each for each in wanted if each.pod not in excluded)),
            ),
        )

    def _unwanted(self, assessment: Assessment, all_pods: Collection[str]) -> Collection[str]:
        """Return the pods to remove."""
        if self._request.named is None:
            return all_pods
        present = {each.pod.key for each in assessment.desired.pods}
        gone = {each.key for each in assessment.current if each.key not in present}
        return gone.union(self._request.named)

    async def observe(self, wanted: Iterable[Quadlets]) -> Mapping[str, PresentPod]:
        """Return what exists of each pod."""
        wanted = tuple(wanted)
        found = {each.pod: ABSENT for each in wanted} | read_installed(self._directories)
        services = {each for pod in found.values() for each in pod.services.values()}
        files = chain.from_iterable(pod.files for pod in wanted)
        services |= {service_of(each.path, each.text) for each in files if is_unit(each.path)}
        states = {}
        if services and isinstance(self._world, LiveWorld):
            listed = await self._world.client.list_units(sorted(services))
            states = {each.name: each.active_state for each in listed}
        return {key: each._replace(states=states) for key, each in found.items()}

    def plan_removal(
        self, present: Mapping[str, PresentPod], keys: Collection[str]
    ) -> tuple[QuadletStep, ...]:
        """Return the steps that remove pods, and the networks that no other pod has."""
        found = [key for key in sorted(present) if key in keys]
        before = {key: each.files for key, each in present.items()}
        after = {key: files for key, files in before.items() if key not in found}
        return self._located(
            (
                *(step for key in found for step in steps_to_remove(key, present[key])),
                *steps_to_remove_networks(before, after),
            )
        )

    def plan_start(
        self, present: Mapping[str, PresentPod], wanted: Iterable[Quadlets]
    ) -> tuple[QuadletStep, ...]:
        """Return the steps that let pods run."""
        wanted = tuple(wanted)
        before = {key: each.files for key, each in present.items()}
        after = {pod.pod: {each.path: each.content for each in pod.files} for pod in wanted}
        return self._located(
            (
                *(s for pod in wanted for s in steps_to_keep(pod, present.get(pod.pod, ABSENT))),
                *steps_to_remove_networks(before, before | after),
            )
        )

    def _located(self, steps: Iterable[QuadletStep]) -> tuple[QuadletStep, ...]:
        """Return steps with the paths of files."""
        return tuple(
            replace(each, path=str(place(each.name, self._directories)))
            if each.action in _OF_FILES
            else each
            for each in steps
        )

    async def act(self, steps: Sequence[PodStep]) -> AsyncGenerator[PodResult, None]:
        """Take steps in the order of their actions, and let systemd read the files before starts.

        A pod of which a service could not be stopped keeps its files. A pod whose data cannot be
        written is not changed further; the other pods are.

        Raises:
            HostError: a unit cannot be written or removed.
            SystemdError: systemd could not read the files.
        """
        for step in steps:
            if step.problem is not None:
                hint = f"; {step.problem.hint}" if step.problem.hint else ""
                yield _result(step, f"{step.problem.message}{hint}")
        possible = [each for each in steps if isinstance(each, QuadletStep) and not each.problem]
        failed: set[str] = set()
        is_changed = False
        for action in _BEFORE_STARTS:
            for result in await self._take(
                action,
                [each for each in possible if each.action is action and each.pod not in failed],
            ):
                is_changed |= action in _OF_FILES
                failed |= {result.step.pod} if result.error else set()
                yield result
        if is_changed:
            await self._client.reload()
        starts = [each for each in possible if each.action is Action.START]
        noting = asyncio.create_task(self._note_waits({UnitName(each.name) for each in starts}))
        try:
            for result in await run_concurrently(map(self._start, starts)):
                yield result
        finally:
            noting.cancel()

    async def _take(self, action: Action, steps: Sequence[QuadletStep]) -> list[PodResult]:
        """Take steps with the same action."""
        if action is Action.STOP:
            return await run_concurrently(map(self._stop, steps))
        if action in _IN_PODMAN:
            return await run_concurrently(map(_remove_from_podman, steps))
        pods: dict[str, list[QuadletStep]] = {}
        for step in steps:
            pods.setdefault(step.pod, []).append(step)
        results = await run_concurrently(map(self._change_files, pods.values()))
        return [*chain.from_iterable(results)]

    async def _change_files(self, steps: Iterable[QuadletStep]) -> list[PodResult]:
        """Write or remove the files of a pod, up to the first that fails.

        Raises:
            HostError: a unit cannot be written or removed.
        """
        results: list[PodResult] = []
        for step in steps:
            is_pod = step.action is Action.REMOVE and step.name.endswith(".pod")
            error = await _remove_pod(step.pod) if is_pod else ""
            results.append(_result(step, error or self._change_file(step)))
            if results[-1].error:
                break
        return results

    def _change_file(self, step: QuadletStep) -> str:
        """Write or remove a file; return why it failed, if that concerns one pod.

        Raises:
            HostError: a unit cannot be written or removed.
        """
        try:
            if step.file is None:
                kept = [each.path for each in step.directories]
                remove_file(step.name, self._directories, kept)
            else:
                for each in step.directories:
                    self._directories.data.make(each)
                write_file(step.file, self._directories)
        except OSError as error:
            where = error.filename or self._directories.generator
            text = f"{where}: {error.strerror}"
            if not self._directories.is_data(Path(where)):
                raise HostError(text) from error
            return text
        return ""

    async def _stop(self, step: QuadletStep) -> PodResult:
        name = UnitName(step.name)
        stopping = asyncio.create_task(self._client.stop(name, timeout_sec=_STOP_WAIT_SEC))
        try:
            grace_sec = self._request.grace_sec if step.is_killed else None
            done, _ = await asyncio.wait({stopping}, timeout=grace_sec)
            if not done:
                await self._client.kill(name, signal.SIGKILL)
            await stopping
        except SystemdError as error:
            return _result(step, str(error))
        finally:
            stopping.cancel()
        return _result(step)

    async def _start(self, step: QuadletStep) -> PodResult:
        name = UnitName(step.name)
        try:
            error = await self._await_start(name, step.pod)
        except NoSuchUnit as failure:
            error = await self._find_complaint(step) or str(failure)
        except JobFailed as failure:
            is_other = failure.result == "dependency"
            error = _NOT_STARTED if is_other else await self._with_last_message(name, str(failure))
        except CallTimeout:
            error = f"not active after {START_WAIT_SEC:g} s; it is still starting"
        except SystemdError as failure:
            error = str(failure)
        return _result(step, error)

    async def _note_waits(self, names: Collection[UnitName]) -> None:
        """Print at intervals which services systemd is still starting: of these, or else of all."""
        for count in itertools.count(1):
            await asyncio.sleep(_NOTE_SEC)
            with suppress(SystemdError):
                listed = await self._client.list_units(("*.service",))
                starting = [each.name for each in listed if each.active_state == ACTIVATING]
                found = [each for each in starting if each in names] or starting
                what = ", ".join(found[:_NOTED_MAX]) or "a job; see: systemctl list-jobs"
                see = (
                    f"; to see why: {reading_command(found[0], self._world.manager)}"
                    if found
                    else ""
                )
                self._world.on_note(f"after {count * _NOTE_SEC:g} s still waiting for {what}{see}")

    async def _await_start(self, name: UnitName, pod: str) -> str:
        """Start a service and wait; return why it is not active although its job continues.

        Services that wait for one that fails would otherwise be waited for, too.

        Raises:
            SystemdError: as `start_existing`.
        """
        job = self._client.start_existing(name, timeout_sec=START_WAIT_SEC)
        starting = asyncio.create_task(job)
        try:
            while True:
                await asyncio.wait({starting}, timeout=_LOOK_SEC)
                if starting.done():
                    await starting
                    return ""
                restarts = 0
                with suppress(SystemdError):
                    units = await self._client.observe([name])
                    restarts = sum(each.restarts for each in units)
                if restarts >= _RESTARTS_MAX:
                    self._failing.add(pod)
                    text = f"it has failed {restarts} times, and systemd continues to restart it"
                    return await self._with_last_message(name, text)
                if pod in self._failing:
                    return _NOT_STARTED
        finally:
            starting.cancel()

    @property
    def _client(self) -> Client:
        assert isinstance(self._world, LiveWorld)  # noqa: S101 - only a plan needs no systemd
        return self._world.client

    async def _with_last_message(self, name: UnitName, error: str) -> str:
        """Add the last message of a service's processes to a description of its failure."""
        prefix = "USER_" if self._world.manager.is_user else ""
        last = ""
        with suppress(NoAnswerError):
            options = ("--quiet", "--all", "--output=cat", "--lines=1")
            last = await run("journalctl", *options, f"_SYSTEMD_{prefix}UNIT={name}")
        if message := excerpt(last.strip()):
            return f"{error}; its last message: {message}"
        return error if has_access() else f"{error}; {_NO_ACCESS}"

    async def _find_complaint(self, step: QuadletStep) -> str:
        """Return what podman's generator reports on the file of a service; empty if nothing."""
        kind = "user" if self._world.manager.is_user else "system"
        generator = _GENERATORS.format(kind=kind)
        own = ("-user",) if self._world.manager.is_user else ()
        try:
            _, _, output = await communicate(
                *(generator, *own, "-dryrun", "-no-kmsg-log"), limit_sec=_GENERATOR_WAIT_SEC
            )
        except NoAnswerError as error:
            return f"podman's generator {generator}: {error}"
        except OSError as error:
            return f"podman's generator {generator}: {error.strerror}; install podman"
        file = step.file.path if step.file else step.name
        lines = (line for line in output.split("\n") if file in line)
        complaints = [excerpt(each) for each in lines if "Loading source unit file" not in each]
        text = f"podman's generator: {'; '.join(complaints[:_COMPLAINTS_MAX])}"
        return text if complaints else ""


def _obstacle(pod: str, problem: Problem) -> QuadletStep:
    """Return a step that cannot be taken."""
    return QuadletStep(
        action=Action.WRITE, pod=pod, name=problem.where, path=problem.where, problem=problem
    )


def _result(step: PodStep, error: str = "") -> PodResult:
    return PodResult(step=step, outcome=Outcome.FAILED if error else Outcome.DONE, error=error)


async def _remove_pod(key: str) -> str:
    """Remove what podman still has of a pod whose services have stopped; return why that failed.

    systemd kills podman, and its services are stopped nevertheless, where a limit of time ends.
    """
    name, error = podman_pod(key), ""
    # the first time podman fails on a container whose conmon was killed, and records its end
    for _ in range(2 if shutil.which(PODMAN) else 0):
        try:
            await run_patiently(PODMAN, "pod", "rm", "--force", "--ignore", "--time=0", name)
        except NoAnswerError as failure:
            error = f"podman: {failure}; to remove the pod: podman pod rm --force {name}"
        else:
            return ""
    return error


async def _remove_from_podman(step: QuadletStep) -> PodResult:
    what, *options = _IN_PODMAN[step.action]
    try:
        await run_patiently(PODMAN, what, "rm", *options, step.name)
    except NoAnswerError as error:
        return _result(step, f"podman: {error}; to remove it: podman {what} rm {step.name}")
    return _result(step)
