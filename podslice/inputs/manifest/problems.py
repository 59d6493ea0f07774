"""The problems of one object, each with its address, as they are found."""

from __future__ import annotations

from dataclasses import dataclass, field

from podslice.errors import Problem, Severity
from podslice.inputs.fields import Level, find_slips, unknown_fields
from podslice.inputs.limits import POD_PROBLEMS_MAX, UNKNOWN_FIELDS_MAX
from podslice.inputs.manifest.names import Mistake
from podslice.inputs.manifest.schema import Fault
from podslice.inputs.scalars import extend_path


@dataclass(slots=True)
class Notes:
    """The problems of one object, as they are found."""

    where: str
    """Its file, and the document's number when there are several."""
    problems: list[Problem] = field(default_factory=list)
    _compared: int = 0
    """Unknown fields that were compared with the known ones."""

    def error(self, path: str, message: str, hint: str = "") -> None:
        """Note what keeps the pod from being used."""
        self.problems.append(Problem(where=self.at(path), message=message, hint=hint))

    def warn(self, path: str, message: str, hint: str = "") -> None:
        """Note what is worth knowing."""
        where, warning = self.at(path), Severity.WARNING
        self.problems.append(Problem(where=where, message=message, hint=hint, severity=warning))

    def mistake(self, path: str, mistake: Mistake | None) -> None:
        """Note a mistake, if it is one."""
        if mistake is not None:
            self.error(path, *mistake)

    def has_error(self, *paths: str) -> bool:
        """Return whether one of the paths has an error already."""
        places = {self.at(path) for path in paths}
        return any(
            each.where in places and each.severity is Severity.ERROR for each in self.problems
        )

    def faults(self, path: str, faults: list[Fault]) -> None:
        """Note the fields below a path that could not be read."""
        for fault in faults:
            self.error(extend_path(path, *fault.path), fault.message, fault.hint)

    def slips(self, level: Level, fields: object, path: str) -> None:
        """Note the fields of a mapping that were probably meant to be others."""
        if isinstance(fields, dict) and not level.known.issuperset(fields):
            unknown = unknown_fields(level, fields, UNKNOWN_FIELDS_MAX - self._compared)
            self._compared += len(unknown)
            self.problems += find_slips(level, fields, unknown, self.where, path)

    def at(self, path: str) -> str:
        """The full address of a path."""
        return f"{self.where}: {path}" if path else self.where

    def told(self) -> tuple[Problem, ...]:
        """The problems, or the first of them where they are very many."""
        rest = len(self.problems) - POD_PROBLEMS_MAX
        if rest <= 0:
            return tuple(self.problems)
        last = Problem(where=self.where, message=f"there are {rest} more problems in it")
        return (*self.problems[:POD_PROBLEMS_MAX], last)
