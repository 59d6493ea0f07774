"""The budget of one load over all its files. Amounts are charged before the work is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from podslice.errors import Problem
from podslice.inputs import limits
from podslice.inputs.limits import TEXT_BYTES_MAX


class BudgetItem(StrEnum):
    """An item that is counted, by its name in messages."""

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
    """The end of a load: the manifests exceed its budget for one item."""

    def __init__(self, item: BudgetItem, limit: int) -> None:
        self.item = item
        self.line: int | None = None
        """The line in the file, if it is known."""
        amount = f"{limit // 1024:,} KiB" if item is BudgetItem.BYTES else f"{limit:,}"
        self.message = f"there are more than {amount} {item}"
        self.hint = _HINTS.get(item, "this is the limit for all manifests together")
        super().__init__(self.message)

    def at(self, file: str) -> Problem:
        """Return the problem, with the address of the file that was being read."""
        where = file if self.line is None else f"{file}: line {self.line}"
        return Problem(where=where, message=self.message, hint=self.hint)


_HINTS = {
    BudgetItem.VALUES: "this is the limit for all manifests together;"
    " an alias counts as the values that it refers to",
    BudgetItem.PROBLEMS: "the rest was not read",
}


@dataclass(slots=True)
class Budget:
    """The limits of a load, and the amounts charged."""

    limits: Mapping[BudgetItem, int] = field(default_factory=lambda: LIMITS)
    text_bytes: int = TEXT_BYTES_MAX
    """The limit of one value in JSON."""
    used: dict[BudgetItem, int] = field(default_factory=dict)

    def left(self, item: BudgetItem) -> int:
        """Return the amount that is left of an item."""
        return self.limits[item] - self.used.get(item, 0)

    def charge(self, item: BudgetItem, amount: int = 1) -> None:
        """Charge an amount.

        Raises:
            Exhausted: it exceeds what is left; nothing is charged.
        """
        if amount > self.left(item):
            raise self.exhausted(item)
        self.used[item] = self.used.get(item, 0) + amount

    def exhausted(self, item: BudgetItem) -> Exhausted:
        """Return the error to raise where more of an item is needed than is left."""
        return Exhausted(item, self.limits[item])

    def part(self) -> Budget:
        """Return a copy, whose charges count here only after `take`."""
        return Budget(limits=self.limits, text_bytes=self.text_bytes, used=dict(self.used))

    def release(self, used: Mapping[BudgetItem, int]) -> None:
        """Return amounts that were charged in an earlier load."""
        for item, amount in used.items():
            self.used[item] -= amount

    def take(self, part: Budget) -> None:
        """Replace the charges by those of a part."""
        self.used = dict(part.used)
