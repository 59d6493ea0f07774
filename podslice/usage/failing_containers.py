"""Containers that have failed, or that restart: how, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from podslice.model.container_exit import UNKNOWN, ContainerExit
from podslice.usage.unit_status import ACTIVATING, EXITED, UnitStatus


class FailingContainer(NamedTuple):
    """A container of a pod that has failed, or that waits for its next start."""

    pod: str
    name: str
    """The container, or what another program runs in the pod: `nginx.service`."""
    show: str
    """The command that shows its output."""
    start: str
    """The command that starts it again."""
    is_restarting: bool = False
    restarts: int = 0
    last_exit: ContainerExit | None = None

    @property
    def is_oom(self) -> bool:
        """Return whether it was killed for lack of memory."""
        return self.last_exit is not None and (self.last_exit.is_oom or self.last_exit.is_oomd)

    @property
    def message(self) -> str:
        """Return what is wrong, in a sentence."""
        count = f"{self.restarts} restart{'' if self.restarts == 1 else 's'}"
        cause = self.last_exit.cause if self.last_exit else ""
        if self.is_restarting:
            how = f", the last one after {cause}" if cause else ""
            return f"container {self.name} does not stay active: {count}{how}"
        return f"container {self.name} {self._failure}{f', {count}' if self.restarts else ''}"

    @property
    def hint(self) -> str:
        """Return the remedy."""
        show = f"to see its output: {self.show}"
        return show if self.is_restarting else f"{show}; to start it again: {self.start}"

    @property
    def _failure(self) -> str:
        last = self.last_exit
        if last is not None and self.is_oom:
            by = "systemd-oomd" if last.is_oomd else "the kernel"
            return f"was killed for lack of memory by {by}"
        if last is not None and last.cause:
            return f"has failed with {last.cause}"
        return (
            "has failed" if last is None or last.result == UNKNOWN else f"has failed: {last.result}"
        )


def failing_containers(units: Iterable[UnitStatus], flag: str) -> Iterator[FailingContainer]:
    """Yield the containers among units that have failed or restart.

    `flag` is the option of a user's service manager, after a space.
    """
    for unit in units:
        if unit.pod is None or not (unit.has_failed or unit.state == ACTIVATING):
            continue
        name = f"{unit.pod} -c {unit.label}"
        has_unit = unit.state != EXITED
        yield FailingContainer(
            pod=unit.pod,
            name=unit.label,
            is_restarting=unit.state == ACTIVATING,
            restarts=unit.restarts,
            last_exit=unit.last_exit,
            show=f"podslice logs{flag} {name}",
            start=f"systemctl{flag} restart {unit.name}"
            if has_unit
            else f"podslice run{flag} --detach {name} -- COMMAND",
        )
