"""The problems of one object, each with its address."""

from __future__ import annotations

from dataclasses import dataclass, field

from podslice.errors import Problem, Severity, warning
from podslice.inputs.budget import POD_PROBLEMS_MAX
from podslice.model.config import Validate

_REMOVE = "remove it, or ignore it with --validate=warn"


@dataclass(slots=True)
class Problems:
    """The problems of one object, as they are found."""

    where: str
    """Its file, with the number of the document if there are several."""
    found: list[Problem] = field(default_factory=list)
    validate: Validate = Validate.STRICT
    """What an unknown name is."""

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

    def unknown(self, path: str, message: str, hint: str = "") -> None:
        """Add the problem of a name that is not known, as the configuration has it."""
        if self.validate is Validate.STRICT:
            self.error(path, message, hint or _REMOVE)
        elif self.validate is Validate.WARN:
            self.warn(path, message, hint or "it is ignored")

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
