"""The services of pods with quadlets: the steps to what should exist, and how they are taken."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
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
    check_quadlets,
    find_obstacles,
    installed,
    make_directories,
    place,
    read_installed,
    remove_file,
    write_file,
)
from podslice.features.quadlet.result import PODMAN, Quadlets
from podslice.features.quadlet.transition import (
    PresentPod,
    QuadletAction,
    QuadletStep,
    is_unit,
    service_of,
    steps_to_keep,
    steps_to_remove,
)
from podslice.kernel.programs import NoAnswerError
from podslice.model.unit import ListedUnit, Manager, UnitName
from podslice.reconcile.report import Outcome
from podslice.systemd.client import Client, run_concurrently
from podslice.systemd.journalctl import has_access
from podslice.usage.runtimes import communicate, run, run_patiently

ListUnits = Callable[[Sequence[str]], Awaitable[Sequence[ListedUnit]]]
"""Lists the loaded units whose names match a pattern."""
OF_FILES = (QuadletAction.WRITE, QuadletAction.REMOVE)
"""The actions on files."""


async def list_none(_: Sequence[str]) -> Sequence[ListedUnit]:
    """List no units, where there is no systemd to ask."""
    return ()


class QuadletPlanner:
    """Compares the files and services of pods with what they should be."""

    def __init__(
        self, list_units: ListUnits, manager: Manager, wanted: Iterable[Quadlets] = ()
    ) -> None:
        """`wanted` are the pods whose services should run."""
        self._list_units = list_units
        self.wanted = tuple(wanted)
        """The pods whose services should run."""
        self.directories = installed(manager)
        """Where the files are."""

    def check(self) -> Mapping[str, Sequence[Problem]]:
        """Check that the files of all pods can be written; return the obstacles of single pods.

        Raises:
            InputError, HostError: they cannot; nothing was changed.
        """
        check_quadlets(self.wanted, self.directories)
        return find_obstacles(self.wanted, self.directories)

    def path_of(self, step: QuadletStep) -> str:
        """Return the absolute path of a step on a file; empty for others."""
        return str(place(step.name, self.directories)) if step.action in OF_FILES else ""

    async def plan(
        self, keys: Collection[str] | None, excluded: Collection[str]
    ) -> tuple[QuadletStep, ...]:
        """Return the steps of `plan_removal` and then those of `plan_start`."""
        present = await self._observe()
        return (*_steps_to_remove(present, keys), *self._steps_to_start(present, excluded))

    async def plan_removal(self, keys: Collection[str] | None) -> tuple[QuadletStep, ...]:
        """Return the steps that remove pods; with None all."""
        return _steps_to_remove(await self._observe(), keys)

    async def plan_removal_of_kept(self, applied: Collection[str]) -> tuple[QuadletStep, ...]:
        """Return the steps that remove the pods that the agent keeps, without those applied."""
        present = await self._observe()
        kept = {key for key, pod in present.items() if pod.is_kept}
        return _steps_to_remove(present, kept.difference(applied))

    async def plan_start(self, excluded: Collection[str] = ()) -> tuple[QuadletStep, ...]:
        """Return the steps that let the wanted pods run, without the excluded ones."""
        return self._steps_to_start(await self._observe(), excluded)

    def _steps_to_start(
        self, present: Mapping[str, PresentPod], excluded: Collection[str]
    ) -> tuple[QuadletStep, ...]:
        return tuple(
            step
            for pod in self.wanted
            if pod.pod not in excluded
            for step in steps_to_keep(pod, present[pod.pod])
        )

    async def _observe(self) -> Mapping[str, PresentPod]:
        """Return what exists of each pod."""
        none = PresentPod(files={}, states={})
        found = {each.pod: none for each in self.wanted} | read_installed(self.directories)
        services = {each for pod in found.values() for each in pod.services.values()}
        services |= {
            service_of(each.path, each.text)
            for pod in self.wanted
            for each in pod.files
            if is_unit(each.path)
        }
        listed = await self._list_units(sorted(services)) if services else ()
        states = {each.name: each.active_state for each in listed}
        return {key: each._replace(states=states) for key, each in found.items()}


def _steps_to_remove(
    present: Mapping[str, PresentPod], keys: Collection[str] | None
) -> tuple[QuadletStep, ...]:
    return tuple(
        step
        for key in sorted(present)
        if keys is None or key in keys
        for step in steps_to_remove(key, present[key])
    )


START_WAIT_SEC = 600.0
"""How long a start is waited for; the services continue to start afterwards."""
_LOOK_SEC = 2.0
"""The interval at which services that are starting are looked at."""
_RESTARTS_MAX = 3
"""Restarts after which a service has failed, although systemd continues: after 10 s, or more."""
_STOP_WAIT_SEC = 24 * 3600.0
"""A stop ends by itself: each service has a limit of its own."""
_GENERATORS = "/usr/lib/systemd/{kind}-generators/podman-{kind}-generator"
_GENERATOR_WAIT_SEC = 60.0
_COMPLAINTS_MAX = 10
_NOT_STARTED = "a service that it requires did not start"
_NO_ACCESS = "only root and members of the group systemd-journal may read its messages"


class QuadletResult(NamedTuple):
    """A step and its outcome."""

    step: QuadletStep
    outcome: Outcome
    path: str = ""
    """The absolute path of a file."""
    error: str = ""

    @property
    def started(self) -> UnitName | None:
        """Return the service of a container that was started."""
        step = self.step
        is_start = step.action is QuadletAction.START and self.outcome is Outcome.DONE
        is_container = step.file is not None and step.file.path.endswith(".container")
        return UnitName(step.name) if is_start and is_container else None


class QuadletServices:
    """Takes the steps of a planner, and keeps their results."""

    def __init__(
        self,
        client: Client,
        manager: Manager,
        planner: QuadletPlanner,
        *,
        grace_sec: int | None = None,
    ) -> None:
        """Take the steps that the planner has planned.

        Processes that still run after `grace_sec` are killed; None: after the grace period of
        their pod.
        """
        self._client = client
        self._manager = manager
        self._planner = planner
        self._directories = planner.directories
        self._grace_sec = grace_sec
        self.removals: list[QuadletResult] = []
        """The results of `remove`."""
        self.results: list[QuadletResult] = []
        """The results of `change` and `start`."""
        self._failing: set[str] = set()
        """The pods of which a service fails again and again."""

    async def remove(self, steps: Sequence[QuadletStep]) -> None:
        """Take the steps that remove pods, and let systemd read the remaining files.

        Raises:
            HostError, SystemdError: as `change`.
        """
        self.removals += await self._take_all(steps)

    async def change(self, steps: Sequence[QuadletStep]) -> tuple[QuadletStep, ...]:
        """Take the steps before the starts, and let systemd read the files; return the starts.

        A pod of which a service could not be stopped keeps its files. A pod whose data cannot be
        written is not started; the other pods are.

        Raises:
            HostError: a unit cannot be written or removed.
            SystemdError: systemd could not read the files.
        """
        self.results += await self._take_all(steps)
        failed = {each.step.pod for each in self.results if each.outcome is not Outcome.DONE}
        return tuple(
            each for each in steps if each.action is QuadletAction.START and each.pod not in failed
        )

    def refuse(self, obstacles: Mapping[str, Sequence[Problem]]) -> None:
        """Add the results of pods whose files cannot be written."""
        for pod, problems in obstacles.items():
            for each in problems:
                step = QuadletStep(action=QuadletAction.WRITE, pod=pod, name=each.where)
                error = f"{each.message}; {each.hint}" if each.hint else each.message
                self.results.append(
                    QuadletResult(step=step, path=each.where, outcome=Outcome.FAILED, error=error)
                )

    async def _take_all(self, steps: Sequence[QuadletStep]) -> list[QuadletResult]:
        """Take all steps but starts, in the order of the actions; reload if a file has changed."""
        results: list[QuadletResult] = []
        failed: set[str] = set()
        for action in (each for each in QuadletAction if each is not QuadletAction.START):
            taken = [each for each in steps if each.action is action and each.pod not in failed]
            if not taken:
                continue
            results += await self._take(action, taken)
            failed |= {each.step.pod for each in results if each.outcome is not Outcome.DONE}
        if any(each.step.action in OF_FILES for each in results):
            await self._client.reload()
        return results

    async def start(self, steps: Iterable[QuadletStep]) -> None:
        """Start services, and wait until they are active or have failed.

        A service that systemd has restarted several times has failed, and so have those of its pod
        that still wait. systemd continues to start them.
        """
        self.results += await run_concurrently(self._start(each) for each in steps)

    async def _take(
        self, action: QuadletAction, steps: Sequence[QuadletStep]
    ) -> list[QuadletResult]:
        if action is QuadletAction.STOP:
            return await run_concurrently(map(self._stop, steps))
        if action is QuadletAction.REMOVE_VOLUME:
            return [await self._remove_volume(each) for each in steps]
        failed: set[str] = set()
        results: list[QuadletResult] = []
        for step in steps:
            if step.pod in failed:
                continue
            try:
                self._change_file(step)
            except OSError as error:
                where = error.filename or self._directories.generator
                text = f"{where}: {error.strerror}"
                if not self._directories.is_data(Path(where)):
                    raise HostError(text) from error
                failed.add(step.pod)
                results.append(self._result(step, text))
            else:
                results.append(self._result(step))
        return results

    def _change_file(self, step: QuadletStep) -> None:
        pod = next((each for each in self._planner.wanted if each.pod == step.pod), None)
        if step.file is None:
            kept = {each.path for each in pod.directories} if pod else ()
            remove_file(step.name, self._directories, kept)
            return
        if pod is not None:
            make_directories(pod, self._directories)
        write_file(step.file, self._directories)

    async def _stop(self, step: QuadletStep) -> QuadletResult:
        name = UnitName(step.name)
        stopping = asyncio.create_task(self._client.stop(name, timeout_sec=_STOP_WAIT_SEC))
        try:
            done, _ = await asyncio.wait({stopping}, timeout=self._grace_sec)
            if not done:
                await self._client.kill(name, signal.SIGKILL)
            await stopping
        except SystemdError as error:
            return self._result(step, str(error))
        finally:
            stopping.cancel()
        return self._result(step)

    async def _remove_volume(self, step: QuadletStep) -> QuadletResult:
        text = ""
        try:
            await run_patiently(PODMAN, "volume", "rm", "--force", step.name)
        except NoAnswerError as error:
            text = f"podman: {error}; to remove it: podman volume rm {step.name}"
        return self._result(step, text)

    async def _start(self, step: QuadletStep) -> QuadletResult:
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
        return self._result(step, error)

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

    def _result(self, step: QuadletStep, error: str = "") -> QuadletResult:
        outcome = Outcome.FAILED if error else Outcome.DONE
        return QuadletResult(
            step=step, path=self._planner.path_of(step), outcome=outcome, error=error
        )

    async def _with_last_message(self, name: UnitName, error: str) -> str:
        """Add the last message of a service's processes to a description of its failure."""
        prefix = "USER_" if self._manager.is_user else ""
        last = ""
        with suppress(NoAnswerError):
            options = ("--quiet", "--all", "--output=cat", "--lines=1")
            last = await run("journalctl", *options, f"_SYSTEMD_{prefix}UNIT={name}")
        if message := excerpt(last.strip()):
            return f"{error}; its last message: {message}"
        return error if has_access() else f"{error}; {_NO_ACCESS}"

    async def _find_complaint(self, step: QuadletStep) -> str:
        """Return what podman's generator reports on the file of a service; empty if nothing."""
        kind = "user" if self._manager.is_user else "system"
        generator = _GENERATORS.format(kind=kind)
        own = ("-user",) if self._manager.is_user else ()
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
