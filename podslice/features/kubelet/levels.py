"""Applies the pod levels that a kubelet does not apply, round after round."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from podslice.agent.context import Counters, EventLog, NodeStatus
from podslice.agent.drift import CONTESTED_SEC, CONTESTED_TIMES, RepairTimes
from podslice.errors import HostError, InputError, NoSuchUnit, SystemdError
from podslice.features.kubelet.model import (
    LEVEL_PROPERTIES,
    KubeletNode,
    LeftAlone,
    LeftReason,
    LevelChange,
    LevelPlan,
    LevelValues,
)
from podslice.features.kubelet.policy import SliceState, plan_levels
from podslice.features.kubelet.units import is_in_kernel, read_values
from podslice.kernel.cgroup import CgroupFs
from podslice.model.event import Kind
from podslice.model.naming import Tree
from podslice.model.properties import PROPERTIES, format_value
from podslice.model.unit import ObservedUnit, PropertyValue, UnitKind, UnitName
from podslice.store.files import ValueFile
from podslice.systemd.client import Client


class PodLevels:
    """The pod levels of a kubelet's pods, and the record of what was set for them."""

    def __init__(  # noqa: PLR0913 - the parts of the agent that it uses
        self,
        slices: LevelSlices,
        read: Callable[[], KubeletNode],
        record: LevelRecord,
        *,
        events: EventLog,
        status: NodeStatus,
        counters: Counters,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with the recorded values.

        Args:
            slices: the slices of the kubelet.
            read: reads the kubelet's pods and configuration, in another thread; raises `HostError`
                or `InputError`.
            record: keeps the values that were set.
            events: receives what was set and what was not.
            status: receives what keeps the agent from its work.
            counters: count repairs and rounds.
            now: a monotonic clock.
        """
        self._slices = slices
        self._read = read
        self._record = record
        self._events = events
        self._status = status
        self._counters = counters
        self._now = now
        self._own = {unit: dict(values) for unit, values in record.read().items()}
        self._repairs = RepairTimes(now)
        self._contested: set[UnitName] = set()
        self._reported: set[tuple[str, str | None, LeftReason]] = set()
        self._reading_since: float | None = None
        self.kubelet: KubeletNode | None = None
        """What was read last; None before that."""
        self.plan = LevelPlan()
        """The state after the last round, with all that is left alone."""

    def concerns(self, name: UnitName) -> bool:
        """Return whether a change of a unit may concern a pod of the kubelet."""
        if not name.endswith(f".{UnitKind.SLICE}"):
            return False
        # Before the first read the root is not known: every slice may be below it.
        prefix = "" if self.kubelet is None else _root(self.kubelet).removesuffix(".slice")
        return name.startswith(prefix)

    @property
    def reading_sec(self) -> float:
        """Return how long the current read of the kubelet has taken so far; 0 without one."""
        return 0.0 if self._reading_since is None else self._now() - self._reading_since

    async def run_round(self) -> bool:
        """Read the kubelet, and set what its slices lack; return whether that succeeded."""
        started = self._now()
        try:
            self.kubelet = await self._read_kubelet()
            self._status.recover("kubelet")
            # Each topic recovers by itself: a reply of the kubelet does not mean that systemd replies, too.
            is_settled = await self._converge(self.kubelet)
            self._status.recover("reconcile")
        except (HostError, InputError) as error:
            is_settled = self._fail("kubelet", error)
        except SystemdError as error:
            is_settled = self._fail("reconcile", error)
        self._counters.reconciled(self._now() - started, failed=not is_settled)
        return is_settled

    async def remove(self) -> None:
        """Set all properties back to the kubelet's values.

        A failure is reported, and leaves the values and their record.
        """
        if not self._own:
            return
        try:
            if self.kubelet is None:
                self.kubelet = await self._read_kubelet()
            await self._converge(self.kubelet, removes=True)
        except (HostError, InputError, SystemdError) as error:
            self._fail("restore", error)

    async def _read_kubelet(self) -> KubeletNode:
        """Read the kubelet; the read itself cannot be interrupted.

        Raises:
            HostError, InputError: as the read.
        """
        self._reading_since = self._now()
        try:
            return await asyncio.to_thread(self._read)
        finally:
            self._reading_since = None

    def _fail(self, topic: str, error: HostError | InputError | SystemdError) -> bool:
        problems = error.problems if isinstance(error, InputError) else (error,)
        self._status.fail(topic, "; ".join(map(str, problems)))
        return False

    async def _converge(self, kubelet: KubeletNode, *, removes: bool = False) -> bool:
        page_size = kubelet.node.page_size_bytes
        slices = await self._slices.observe(_root(kubelet), self._own.keys(), page_size)
        self._contested &= slices.keys()
        self._repairs.keep(slices)
        plan = plan_levels(
            kubelet.pods, slices, self._own, kubelet.node, kubelet.settings, removes=removes
        )
        changes = {change.unit: change for change in plan.changes}
        # what is recorded first can be removed by another agent, even after a kill
        either = {unit: {**plan.own.get(unit, {}), **self._own.get(unit, {})} for unit in changes}
        if not self._save({**plan.own, **either}) and not removes:
            return False
        # a stop may interrupt the changes that follow
        self._own = {unit: values for unit, values in self._own.items() if unit in changes}
        self._own |= {u: dict(values) for u, values in plan.own.items() if u not in changes}
        left = list(plan.left)
        # one slice after the other: a stop in between leaves the others as they were recorded
        for unit, change in changes.items():
            problem = await self._apply(change, dict(plan.own.get(unit, {})), removes=removes)
            if problem is not None:
                left.append(problem)
        self._publish(plan, left)
        is_saved = self._save(self._own)
        return is_saved and not any(each.reason is LeftReason.FAILED for each in left)

    def _publish(self, plan: LevelPlan, left: list[LeftAlone]) -> None:
        """Report what is left alone, and keep the state of the round."""
        own = self._own = {unit: values for unit, values in self._own.items() if values}
        self._report_left(left)
        pods = {**self.plan.pods, **plan.pods, **{each.unit: each.pod for each in plan.changes}}
        self.plan = LevelPlan(
            changes=plan.changes,
            left=tuple(left),
            own=own,
            pods={unit: pod for unit, pod in pods.items() if unit in own},
        )

    def _save(self, own: LevelValues) -> bool:
        """Record values; return whether that succeeded."""
        try:
            self._record.save({unit: values for unit, values in own.items() if values})
        except HostError as error:
            return self._fail("record", error)
        self._status.recover("record")
        return True

    async def _apply(
        self, change: LevelChange, own: dict[str, int | str], *, removes: bool
    ) -> LeftAlone | None:
        """Set the properties of a slice; return why they were not set.

        `own` are the values of podslice on it once they are set.
        """
        unit, before = change.unit, self._own.get(change.unit, {})
        # podslice has set this value before: another program has replaced it since
        is_repair = any(before.get(name) == value for name, value in change.values.items())
        if is_repair and self._repairs.count(unit) is not None:
            self._contested.add(unit)
        others = {name: value for name, value in own.items() if name not in change.values}
        if unit in self._contested and not removes:
            self._own[unit] = others
            return _left(change, LeftReason.CONTESTED, _CONTESTED)
        self._own[unit] = {**own, **before}  # an interrupted call may take effect
        try:
            await self._slices.set(change)
        except NoSuchUnit:
            self._own[unit] = {}
            return _left(change, LeftReason.NO_SLICE, "the kubelet has removed its slice")
        except SystemdError as error:
            self._own[unit] = {**others, **before}
            return _left(change, LeftReason.FAILED, str(error))
        self._own[unit] = own
        self._counters.drift_repaired += is_repair
        self._report(change, own)
        return None

    def _report(self, change: LevelChange, own: Mapping[str, int | str]) -> None:
        applied = [each for each in change.properties if each.name in own]
        removed = [each for each in change.properties if each.name not in own]
        for kind, properties, verb in (
            (Kind.LEVEL_APPLIED, applied, "set"),
            (Kind.LEVEL_REMOVED, removed, "set back to the kubelet's values"),
        ):
            if properties:
                text = f"{change.pod}: {', '.join(map(_format, properties))} {verb}"
                self._events.report(kind, text, pod=change.pod, unit=change.unit)

    def _report_left(self, left: list[LeftAlone]) -> None:
        """Report once what is left alone; a slice that does not exist yet is not reported."""
        now = {(each.pod, each.property, each.reason): each for each in left}
        for key, each in now.items():
            if key not in self._reported and each.reason is not LeftReason.NO_SLICE:
                what = "the pod level" if each.property is None else PROPERTIES[each.property].key
                text = f"{each.pod}: {what} is not applied: {each.message}"
                fields = {"REASON": each.reason.value}
                self._events.report(
                    Kind.LEVEL_LEFT, text, pod=each.pod, unit=each.unit, fields=fields
                )
        self._reported = set(now)


_CONTESTED = (
    f"its values were replaced {CONTESTED_TIMES} times within {CONTESTED_SEC:.0f} s: another program"
    " sets them, and podslice no longer does"
)


def _root(kubelet: KubeletNode) -> UnitName:
    return Tree(cgroup_root=kubelet.settings.config.cgroup_root).root


def _format(value: PropertyValue) -> str:
    return f"{PROPERTIES[value.name].key}={format_value(value.name, value.value)}"


def _left(change: LevelChange, reason: LeftReason, message: str) -> LeftAlone:
    return LeftAlone(pod=change.pod, unit=change.unit, reason=reason, message=message)


class LevelRecord:
    """A file, which exists while there are such values."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of all records."""
        kind = dict[str, dict[UnitName, dict[str, int]]]
        self._file = ValueFile(root / "pod-levels.json", kind)

    def read(self) -> LevelValues:
        """Return the values; none where the file is damaged."""
        found = (self._file.read() or {}).get("slices", {})
        is_valid = all(each.keys() <= set(LEVEL_PROPERTIES) for each in found.values())
        return found if is_valid else {}

    def save(self, levels: LevelValues) -> None:
        """Write the values, if they have changed; without any, remove the file.

        Raises:
            HostError: it can't be written.
        """
        slices = {
            unit: {name: int(value) for name, value in values.items()}
            for unit, values in levels.items()
        }
        self._file.save({"slices": slices} if slices else None)


_OF_POD = re.compile(r"[^/]+-pod[^-/]+\.slice")


class LevelSlices:
    """The slices of a kubelet's pods."""

    def __init__(self, client: Client, cgroups: CgroupFs) -> None:
        """Use this client for nothing else."""
        self._client = client
        self._cgroups = cgroups

    async def observe(
        self, root: UnitName, own: Collection[UnitName], page_size: int
    ) -> Mapping[UnitName, SliceState]:
        """Return the loaded slices of pods below the root.

        Args:
            root: the slice of all pods.
            own: the slices whose values in the kernel are compared as well.
            page_size: of the node's memory, in bytes.

        Raises:
            SystemdError: systemd cannot be asked.
        """
        pattern = f"{root.removesuffix(f'.{UnitKind.SLICE}')}-*.{UnitKind.SLICE}"
        return {
            unit.name: SliceState(
                unit=unit,
                rewritten=self._rewritten(unit, page_size) if unit.name in own else frozenset(),
            )
            for unit in await self._client.observe([pattern])
            if unit.active_state != "inactive" and _OF_POD.fullmatch(unit.name)
        }

    async def set(self, change: LevelChange) -> None:
        """Set properties of a slice until the next boot, or until the slice is removed.

        Raises:
            NoSuchUnit: the slice was removed.
            SystemdError: systemd refuses, or cannot be reached.
            ValueError: the change is not one of a pod's level; nothing changed.
        """
        values = change.values
        # Authors of pods state the values: whatever was planned, no other unit or property is
        # changed.
        if not _OF_POD.fullmatch(change.unit) or not values.keys() <= set(LEVEL_PROPERTIES):
            raise ValueError(f"{change.unit}: {', '.join(values)} may not be changed")
        await self._client.set_properties(change.unit, values)

    def _rewritten(self, unit: ObservedUnit, page_size: int) -> frozenset[str]:
        """Return the properties of which the kernel has another value than systemd."""
        kernel = read_values(self._cgroups, unit.control_group, ())
        return frozenset(
            name
            for name in LEVEL_PROPERTIES
            if name in kernel
            and not is_in_kernel(name, unit.properties.get(name), kernel[name], page_size)
        )
