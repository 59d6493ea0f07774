"""Limits of input, and the budget of one load over all its files.

Input that exceeds a limit is rejected, quickly and in little memory; amounts are charged before the
work is done. The first group of limits applies to all files of one load: one command, or all
manifest directories of the agent. Each number is the need of 10,000 pods of 25 lines, with a margin:
5 MB, 320,001 values, 15,000 containers. The other groups apply to single parts. Source: measured
with `python -m tests.bombs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from podslice.errors import Problem

BYTES_MAX = 8 * 2**20
"""Bytes of text."""

DOCUMENTS_MAX = 20_000

VALUES_MAX = 350_000
"""Values in YAML and JSON; an alias counts as the values that it refers to."""

PODS_MAX = 10_000
"""Pods, replicas included. A Kubernetes node has 110 by default."""

CONTAINERS_MAX = 20_000
"""Containers and init containers, including those of every replica."""

VOLUMES_MAX = 10_000
"""Volumes in memory, including those of every replica; each is a mount."""

PROBLEMS_MAX = 5_000
"""Problems that are counted."""

FILES_MAX = 20_000
"""Manifests in one directory."""

DEPTH_MAX = 64
"""Nesting of YAML and JSON. Kubernetes' own types have about 20 levels."""

TEXT_BYTES_MAX = 2**20
"""Bytes of one value or key, or between two of them: comments, empty lines.

Source: Kubernetes, staging/src/k8s.io/api/core/v1/types.go, MaxSecretSize: a ConfigMap holds 1 MiB.
"""

OBJECT_BYTES_MAX = 3 * 2**20
"""Bytes of one value in the list of pods that a kubelet sends, which no author may make unreadable.

Source: Kubernetes, staging/src/k8s.io/apiserver/pkg/server/config.go, MaxRequestBodyBytes.
"""

DIRECTIVES_MAX = 1_000
"""Lines that begin with `%` between two values. PyYAML's time grows with the square of their number."""

REPLICAS_MAX = 1_000
"""Pods of one workload on one node."""

LISTS_MAX = 8
"""Lists in lists (`kind: List`)."""

POD_CONTAINERS_MAX = 256
"""Containers, and also init containers, of one pod."""

POD_VOLUMES_MAX = 256
"""Volumes of one pod."""

WORKLOAD_ENTRIES_MAX = 1_024
"""Variables, ports, mounts or arguments in one list of a container."""

RESOURCES_MAX = 64
"""Different resources in one list of requests or limits."""

POD_AMOUNTS_MAX = 4_096
"""Requests and limits of all containers of one pod: eight for each of 512."""

POD_PROBLEMS_MAX = 50
"""Problems shown of one document or pod."""

UNKNOWN_FIELDS_MAX = 1_000
"""Unknown fields of one object that are compared with the known ones: 10 ms."""

TOML_BYTES_MAX = 2**16
"""Bytes of one configuration file."""

TOML_DOTS_MAX = 40
"""Dots in one line of a configuration file. In keys the memory of Python's reader grows with the
square of their number; all eviction signals with fractions have 16."""

PIPE_WAIT_SEC = 1.0
"""Time to wait for the first writer of a named pipe."""

READ_WAIT_SEC = 60.0
"""Time to read a pipe or standard input to its end."""


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
    BudgetItem.BYTES: BYTES_MAX,
    BudgetItem.DOCUMENTS: DOCUMENTS_MAX,
    BudgetItem.VALUES: VALUES_MAX,
    BudgetItem.PODS: PODS_MAX,
    BudgetItem.CONTAINERS: CONTAINERS_MAX,
    BudgetItem.VOLUMES: VOLUMES_MAX,
    BudgetItem.PROBLEMS: PROBLEMS_MAX,
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
