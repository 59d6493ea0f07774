"""What one load may take, over all of its files. It is charged before the work is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from podslice.errors import Problem
from podslice.inputs import limits


class BudgetItem(StrEnum):
    """What is counted, as messages name it."""

    BYTES = "of text"
    DOCUMENTS = "documents"
    VALUES = "values"
    PODS = "pods"
    CONTAINERS = "containers"
    VOLUMES = "volumes in memory"
    PROBLEMS = "problems"


LIMITS: Mapping[BudgetItem, int] = {
    BudgetItem.BYTES: limits.BYTES_MAX,
    BudgetItem.DOCUMENTS: limits.DOCUMENTS_MAX,
    BudgetItem.VALUES: limits.VALUES_MAX,
    BudgetItem.PODS: limits.PODS_MAX,
    BudgetItem.CONTAINERS: limits.CONTAINERS_MAX,
    BudgetItem.VOLUMES: limits.VOLUMES_MAX,
    BudgetItem.PROBLEMS: limits.PROBLEMS_MAX,
}


class Exhausted(Exception):
    """The manifests of one load have more of something than is read."""

    def __init__(self, kind: BudgetItem, most: int) -> None:
        self.kind = kind
        self.line: int | None = None
        """Where in the file, if that is known."""
        amount = f"{most // 1024:,} KiB" if kind is BudgetItem.BYTES else f"{most:,}"
        self.message = f"there are more than {amount} {kind}"
        self.hint = _HINTS.get(kind, "that is the most that all manifests together may have")
        super().__init__(self.message)

    def at(self, where: str) -> Problem:
        """Return the problem; `where` is the file that was being read."""
        where = where if self.line is None else f"{where}: line {self.line}"
        return Problem(where=where, message=self.message, hint=self.hint)


_HINTS = {
    BudgetItem.VALUES: "that is the most of all manifests together; an alias counts as what it stands for",
    BudgetItem.PROBLEMS: "nothing further is read",
}


@dataclass(slots=True)
class Budget:
    """Counts what a load takes."""

    limits: Mapping[BudgetItem, int] = field(default_factory=lambda: LIMITS)
    used: dict[BudgetItem, int] = field(default_factory=dict)

    def left(self, kind: BudgetItem) -> int:
        """Return how much may still be taken."""
        return self.limits[kind] - self.used.get(kind, 0)

    def charge(self, kind: BudgetItem, amount: int = 1) -> None:
        """Take an amount.

        Raises:
            Exhausted: that is more than what is left; nothing is taken.
        """
        if amount > self.left(kind):
            raise self.exhausted(kind)
        self.used[kind] = self.used.get(kind, 0) + amount

    def exhausted(self, kind: BudgetItem) -> Exhausted:
        """Return the error to raise where more of a kind is needed than is left."""
        return Exhausted(kind, self.limits[kind])

    def part(self) -> Budget:
        """Return a budget of what is left, whose charges this one does not know of yet."""
        return Budget(limits=self.limits, used=dict(self.used))

    def add(self, used: Mapping[BudgetItem, int]) -> None:
        """Take amounts that were charged before."""
        for kind, amount in used.items():
            self.used[kind] = self.used.get(kind, 0) + amount

    def take(self, part: Budget) -> None:
        """Take over the charges of a part."""
        self.used = dict(part.used)
