"""The problems of one object, each with its address."""

from __future__ import annotations

from dataclasses import field

from podslice.dataclass import dataclass
from podslice.errors import Problem, Severity, warning
from podslice.inputs.fields import FieldSet, find_misspelled, unknown_fields
from podslice.inputs.limits import POD_PROBLEMS_MAX, UNKNOWN_FIELDS_MAX


@dataclass(slots=True)
class Problems:
    """The problems of one object, as they are found."""

    where: str
    """Its file, with the number of the document if there are several."""
    found: list[Problem] = field(default_factory=list)
    _compared: int = 0
    """Unknown fields that were compared with the known ones."""

    def error(self, path: str, message: str, hint: str = "") -> None:
        """Add an error, which rejects the pod."""
        self.found.append(Problem(where=self.at(path), message=message, hint=hint))

    def warn(self, path: str, message: str, hint: str = "") -> None:
        """Add a warning."""
        self.found.append(warning(self.at(path), message, hint))

    def add(self, path: str, *problems: Problem | None) -> None:
        """Add problems whose addresses are below a path; None stands for a valid value."""
        self.found += [each.within(self.at(path)) for each in problems if each is not None]

    def has_error(self, *paths: str) -> bool:
        """Return whether one of the paths has an error."""
        places = {self.at(path) for path in paths}
        return any(each.where in places and each.severity is Severity.ERROR for each in self.found)

    def check_fields(self, field_set: FieldSet, fields: object, path: str) -> None:
        """Add a warning for each field of a mapping that is probably misspelled or misplaced."""
        if isinstance(fields, dict) and not field_set.known.issuperset(fields):
            unknown = unknown_fields(field_set, fields, UNKNOWN_FIELDS_MAX - self._compared)
            self._compared += len(unknown)
            self.found += find_misspelled(field_set, fields, unknown, self.where, path)

    def at(self, path: str) -> str:
        """Return the address of a path in the object."""
        return f"{self.where}: {path}" if path else self.where

    def bounded(self) -> tuple[Problem, ...]:
        """Return the first problems, and one that states the number of the others."""
        rest = len(self.found) - POD_PROBLEMS_MAX
        if rest <= 0:
            return tuple(self.found)
        last = Problem(where=self.where, message=f"there are {rest} more problems in it")
        return (*self.found[:POD_PROBLEMS_MAX], last)
