"""Marks, the agent's state and unconfirmed values as JSON; what is damaged counts as absent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from podslice.errors import Problem, Severity
from podslice.model.agent import AgentState, Condition, Eviction
from podslice.model.unconfirmed import Unconfirmed
from podslice.model.unit import INFINITY, UnitName

T = TypeVar("T")


def read(make: Callable[[Mapping[str, Any]], T], found: Mapping[str, Any]) -> T | None:
    """What was written; None where that is not what is there."""
    try:
        return make(found)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def eviction(found: Mapping[str, Any]) -> Eviction:
    """The mark of a pod."""
    return Eviction(
        pod=_text(found["pod"]),
        uid=_text(found["uid"]),
        digest=_text(found["digest"]),
        signal=_text(found["signal"]),
        message=_text(found["message"]),
        at_usec=_number(found["at_usec"]),
    )


def agent_state(found: Mapping[str, Any]) -> AgentState:
    """What an agent has left."""
    return AgentState(
        pid=_number(found["pid"]),
        started_ticks=_number(found["started_ticks"]),
        conditions=tuple(map(Condition, found["conditions"])),
        ending=tuple(map(_text, found["ending"])),
        problems=tuple(map(_problem, found["problems"])),
    )


def unconfirmed(found: Mapping[str, Any]) -> Unconfirmed:
    """Values that return."""
    old, new = _values(found["old"]), _values(found["new"])
    if any(values.keys() - old[unit].keys() for unit, values in new.items()):
        raise ValueError("a new value without an old one")
    return Unconfirmed(old=old, new=new, until_usec=_number(found["until_usec"]))


def _problem(found: Mapping[str, Any]) -> Problem:
    return Problem(
        where=_text(found["where"]),
        message=_text(found["message"]),
        hint=_text(found["hint"]),
        severity=Severity(found["severity"]),
    )


def _values(found: Mapping[str, Any]) -> dict[UnitName, dict[str, int | str]]:
    return {
        UnitName(unit): {
            name: _text(value) if isinstance(value, str) else _number(value)
            for name, value in values.items()
        }
        for unit, values in found.items()
    }


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(value)


def _number(value: object) -> int:
    if isinstance(value, int) and 0 <= value <= INFINITY:
        return value
    raise TypeError(value)
