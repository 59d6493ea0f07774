"""Read marks, the agent's state, histories and values outside the root from JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from podslice.errors import Problem, Severity
from podslice.model.container_exit import ContainerExit, ContainerHistory
from podslice.model.manual_change import ManualChange
from podslice.model.node_state import (
    AgentState,
    Condition,
    ContainerFailure,
    Eviction,
    PendingPod,
    StuckPod,
)
from podslice.model.properties import PROPERTIES
from podslice.model.reserved_values import ReservedValue, ReservedValues, Trial
from podslice.model.unit import INFINITY, UnitName

T = TypeVar("T")


def read(make: Callable[[Mapping[str, Any]], T], found: Mapping[str, Any]) -> T | None:
    """Return a value made from JSON; None where that is damaged."""
    try:
        return make(found)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def eviction(found: Mapping[str, Any]) -> Eviction:
    """Read the mark of an evicted pod."""
    return Eviction(
        pod=_text(found["pod"]),
        uid=_text(found["uid"]),
        digest=_text(found["digest"]),
        signal=_text(found["signal"]),
        message=_text(found["message"]),
        at_usec=_number(found["at_usec"]),
    )


def agent_state(found: Mapping[str, Any]) -> AgentState:
    """Read the state that an agent published."""
    return AgentState(
        pid=_number(found["pid"]),
        started_ticks=_number(found["started_ticks"]),
        conditions=tuple(map(Condition, found["conditions"])),
        terminating=tuple(map(_text, found["terminating"])),
        problems=tuple(map(_problem, found["problems"])),
        failures=tuple(map(_problem, found["failures"])),
        pending=None if found["pending"] is None else tuple(map(_pending, found["pending"])),
        stuck=tuple(map(_stuck, found["stuck"])),
    )


def _pending(found: Mapping[str, Any]) -> PendingPod:
    source = found["source"]
    return PendingPod(
        pod=_text(found["pod"]),
        reason=_text(found["reason"]),
        message=_text(found["message"]),
        hint=_text(found["hint"]),
        qos=_text(found["qos"]),
        source=None if source is None else _text(source),
        is_applied=bool(found["is_applied"]),
    )


def _stuck(found: Mapping[str, Any]) -> StuckPod:
    return StuckPod(pod=_text(found["pod"]), why=_text(found["why"]), hint=_text(found["hint"]))


def container_failures(found: Mapping[str, Any]) -> tuple[ContainerFailure, ...]:
    """Read why containers of the agent's pods do not run."""
    return tuple(map(_container_failure, found["failures"]))


def _container_failure(found: Mapping[str, Any]) -> ContainerFailure:
    pod, unit = found["pod"], found["unit"]
    return ContainerFailure(
        where=_text(found["where"]),
        message=_text(found["message"]),
        hint=_text(found["hint"]),
        pod=None if pod is None else _text(pod),
        unit=None if unit is None else UnitName(_text(unit)),
    )


def container_history(found: Mapping[str, Any]) -> ContainerHistory:
    """Read the history of a container."""
    last = found["last_exit"]
    return ContainerHistory(
        started_usec=_number(found["started_usec"]),
        restarts=_number(found["restarts"]),
        last_exit=None if last is None else _container_exit(last),
    )


def _container_exit(found: Mapping[str, Any]) -> ContainerExit:
    code, signal, ended = (found[name] for name in ("exit_code", "signal", "ended_usec"))
    return ContainerExit(
        result=_text(found["result"]),
        exit_code=None if code is None else _number(code),
        signal=None if signal is None else _text(signal),
        is_oom=found["is_oom"] is True,
        started_usec=_number(found["started_usec"]),
        ended_usec=None if ended is None else _number(ended),
        is_attended=found.get("is_attended") is True,
    )


def manual_change(found: Mapping[str, Any]) -> ManualChange:
    """Read what a verb is about to change."""
    return ManualChange(
        verb=_text(found["verb"]),
        pods=tuple(map(_text, found["pods"])),
        units=tuple(UnitName(_text(each)) for each in found["units"]),
        pid=_number(found["pid"]),
        started_ticks=_number(found["started_ticks"]),
        is_over=found["is_over"] is True,
    )


def reserved(found: Mapping[str, Any]) -> ReservedValues:
    """Read the values that podslice has set outside its root."""
    return ReservedValues(
        units={
            UnitName(_text(unit)): {_known(name): _held(held) for name, held in values.items()}
            for unit, values in found["units"].items()
        },
        until_usec=_number(found["until_usec"]),
        cgroup_root=_text(found["cgroup_root"]),
    )


def _held(found: Mapping[str, Any]) -> ReservedValue:
    ours = tuple(map(_value, found["ours"]))
    if not ours:
        raise ValueError("there must be a value that podslice set")
    trial = found["trial"]
    return ReservedValue(
        before=_value(found["before"]),
        ours=ours,
        trial=None
        if trial is None
        else Trial(
            old=_value(trial["old"]),
            new=None if trial["new"] is None else _value(trial["new"]),
        ),
    )


def _known(name: str) -> str:
    if name in PROPERTIES:
        return name
    raise ValueError(name)


def _value(found: object) -> int | str:
    return _text(found) if isinstance(found, str) else _number(found)


def _problem(found: Mapping[str, Any]) -> Problem:
    return Problem(
        where=_text(found["where"]),
        message=_text(found["message"]),
        hint=_text(found["hint"]),
        severity=Severity(found["severity"]),
    )


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(value)


def _number(value: object) -> int:
    if isinstance(value, int) and 0 <= value <= INFINITY:
        return value
    raise TypeError(value)
