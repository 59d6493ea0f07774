"""What exists of pods with quadlets, and the steps to what should exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from podslice.errors import Problem
from podslice.model.manager import Manager
from podslice.model.unit import ListedUnit
from podslice.processes.quadlet_files import (
    check_quadlets,
    find_obstacles,
    installed,
    place,
    read_installed,
)
from podslice.quadlet.result import Quadlets
from podslice.quadlet.transition import (
    PresentPod,
    QuadletAction,
    QuadletStep,
    is_unit,
    service_of,
    steps_to_keep,
    steps_to_remove,
)

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
