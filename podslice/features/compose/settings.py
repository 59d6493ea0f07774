"""`x-podslice` of a compose file: the pod's name, and the budget of the project."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from podslice.errors import InputError, Problem, quote
from podslice.inputs.readers import read_amount, read_text
from podslice.inputs.scalars import describe, extend_path
from podslice.model.resources import CPU, MEMORY

KEY = "x-podslice"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The statements of a project, or of the command line, about its pod."""

    name: str | None = None
    namespace: str | None = None
    budget: Mapping[str, int] = field(default_factory=dict)
    """The limits of the pod, in thousandths."""
    requests: Mapping[str, int] = field(default_factory=dict)
    reserve: bool = False
    """Whether the limits are also the requests where these are not stated; the command line only."""


def read_settings(value: object, problems: list[Problem]) -> Settings:
    """Read the settings, and add their problems."""
    if value is None:
        return Settings()
    if not isinstance(value, dict):
        problems.append(Problem(where=KEY, message=f"must be a mapping, not {describe(value)}"))
        return Settings()
    known = ("name", "namespace", "budget", "requests")
    for key in value:
        if key not in known:
            hint = f"it has {', '.join(known)}"
            message = f"there is no such setting as {quote(str(key))}"
            problems.append(Problem(where=KEY, message=message, hint=hint))
    return Settings(
        name=_read(value, "name", read_text, problems),
        namespace=_read(value, "namespace", read_text, problems),
        budget=read_amounts(value.get("budget"), f"{KEY}.budget", problems),
        requests=read_amounts(value.get("requests"), f"{KEY}.requests", problems),
    )


def parse_budget(text: str, where: str) -> dict[str, int]:
    """Return the amounts of `cpu=2,memory=4Gi`.

    Raises:
        InputError: an amount is not valid; it has every problem.
    """
    problems: list[Problem] = []
    stated: dict[str, object] = {}
    for part in text.split(","):
        name, _, amount = part.partition("=")
        if name.strip() in stated:
            problems.append(Problem(where=where, message=f"{name.strip()} is stated twice"))
        stated[name.strip()] = amount.strip()
    amounts = read_amounts(stated, where, problems)
    if problems:
        raise InputError(problems)
    return amounts


def read_amounts(value: object, where: str, problems: list[Problem]) -> dict[str, int]:
    """Read amounts of cpu and memory, which are quantities as in a manifest."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        message = f"must be a mapping, not {describe(value)}"
        problems.append(Problem(where=where, message=message, hint="write cpu and memory below it"))
        return {}
    amounts: dict[str, int] = {}
    for name in value:
        if name not in (CPU, MEMORY):
            message = f"{quote(str(name))} is not part of a budget"
            hint = "write cpu=2,memory=4Gi" if where.startswith("--") else "it has cpu and memory"
            problems.append(Problem(where=where, message=message, hint=hint))
            continue
        amount = _read(value, name, read_amount, problems, where)
        if amount == 0:
            message = f"a budget of 0 for {name} is none"
            problems.append(Problem(where=_place(where, name), message=message))
        elif amount is not None:
            amounts[name] = amount
    return amounts


def _read(
    fields: Mapping[str, object],
    key: str,
    read: Callable[[object], _T],
    problems: list[Problem],
    where: str = KEY,
) -> _T | None:
    value = fields.get(key)
    if value is None:
        return None
    try:
        return read(value)
    except InputError as error:
        problems += [each.within(_place(where, key)) for each in error.problems]
        return None


def _place(where: str, key: str) -> str:
    """Return the place of a setting; an option on the command line is one place."""
    return where if where.startswith("--") else extend_path(where, key)
