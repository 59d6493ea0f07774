"""Records the usage of pods, containers and reserved slices, from which `recommend` proposes amounts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import RLock
from typing import NamedTuple, NoReturn

from podslice.agent.context import AgentContext, AgentPart
from podslice.errors import HostError
from podslice.features.history.files import UsageFiles
from podslice.features.history.model import PodHistory, UsageHistory
from podslice.features.history.recommendation import (
    only_amounts,
    recommend_whole,
)
from podslice.features.history.samples import (
    KEPT_SEC,
    add_cpu,
    add_memory,
    add_oom_kills,
    add_waits,
    is_expired,
    without_old,
)
from podslice.kernel.cgroup import CgroupFs
from podslice.model.desired import PodDecision
from podslice.model.naming import (
    USER_SLICE,
    kube_reserved_slice,
    service_name,
    system_reserved_slice,
)
from podslice.model.pod import Container
from podslice.model.resources import Amounts, RecommendedAmounts, memory_bytes
from podslice.model.unit import Observed, UnitName, control_group_of
from podslice.reconcile.assess import in_thread
from podslice.reconcile.observe import control_group

SAMPLE_SEC = 60.0
"""The time between two samples. Source: VPA recommender, config/config.go, MetricsFetcherInterval."""
SAVE_SEC = 600.0
"""The time after which histories are written: what a crash loses at most."""
_FIRST_SEC = 1.0
"""The time between two checks whether the first assessment is done."""
_ROUNDS_WITHOUT_WAITS = 10
"""Waits are totals that lose nothing between two readings."""


class _Record:
    """The usage of a pod and its containers, or of a slice."""

    __slots__ = ("containers", "day", "usage")

    def __init__(self, history: PodHistory) -> None:
        self.day = history.day
        self.usage = GroupUsage(history.pod)
        self.containers = {name: GroupUsage(found) for name, found in history.containers.items()}

    def history(self, now_sec: int) -> PodHistory:
        """Return the history without samples that no longer count."""
        containers = {
            name: without_old(each.history, now_sec)
            for name, each in self.containers.items()
            if not is_expired(each.history, now_sec)
        }
        pod = without_old(self.usage.history, now_sec)
        return PodHistory(pod=pod, containers=containers, day=self.day)


class UsageRecorder(AgentPart):
    """Takes a sample every minute, and writes the histories every ten minutes and at the end."""

    def __init__(
        self,
        context: AgentContext,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wall` is a clock of seconds since the Unix epoch."""
        self._context = context
        self._wall = wall
        self._monotonic = monotonic
        self._lock = RLock()
        """Held by a sample and a save: the one at the end may follow a sample in another thread."""
        self._files: UsageFiles | None = None
        self._records: dict[str, _Record] = {}
        """By the key of the pod, or the name of the slice, which has no `/`."""
        self._rounds = 0
        self._sec = 0

    async def run(self) -> NoReturn:
        next_save = self._monotonic() + SAVE_SEC
        while True:
            started = self._monotonic()
            await in_thread(self.sample)
            if started >= next_save:
                next_save = started + SAVE_SEC
                await in_thread(self.save)
            period_sec = _FIRST_SEC if self._context.assessment is None else SAMPLE_SEC
            await asyncio.sleep(max(started + period_sec - self._monotonic(), 0.0))

    def close(self) -> None:
        self.save()

    def sample(self) -> None:
        """Take one sample of everything."""
        with self._lock:
            self._follow_configuration()
            assessment = self._context.assessment
            if self._files is None or assessment is None:
                return
            cgroups, observed = self._context.world.cgroups, assessment.observed
            for pod in assessment.desired.pods:
                self._sample_pod(self._files, pod, observed, cgroups)
            for unit in self._slices():
                record = self._record(self._files, unit)
                self._sample(record.usage, cgroups, control_group_of(unit), {})
            if not self._rounds:
                # the metrics of a new agent do not wait for the first save
                self._recommend()
            self._rounds += 1

    def save(self) -> None:
        """Write the histories, and remove old ones of pods that no longer exist."""
        with self._lock:
            files, now_sec = self._files, self._now().sec
            if files is None:
                return
            self._recommend()
            try:
                for key, record in tuple(self._records.items()):
                    files.write(_path(files, key), record.history(now_sec))
                self._forget_removed()
                files.prune(self._records.keys(), now_sec - KEPT_SEC)
            except HostError as error:
                self._context.events.note(f"the history of usage is not written: {error}")

    def _recommend(self) -> None:
        """Replace the recommended amounts of the pods."""
        assessment, now_sec = self._context.assessment, self._now().sec
        found: dict[str, RecommendedAmounts] = {}
        for pod in assessment.desired.pods if assessment else ():
            record = self._records.get(pod.pod.key)
            if record is not None:
                amounts = recommend_whole(record.usage.history, now_sec, pod)
                found[pod.pod.key] = only_amounts(amounts)
        self._context.recommended = found

    def _follow_configuration(self) -> None:
        """Begin again in another directory after a reload."""
        directory = self._context.world.config.usage_history
        if self._files is None or str(self._files.directory) != directory:
            self.save()
            self._records.clear()
            self._rounds, self._context.recommended = 0, {}
            self._files = UsageFiles(Path(directory)) if directory else None

    def _sample_pod(
        self, files: UsageFiles, pod: PodDecision, observed: Observed, cgroups: CgroupFs
    ) -> None:
        record = self._record(files, pod.pod.key)
        group = control_group(pod.slice, observed)
        self._sample(record.usage, cgroups, group, pod.requests)
        milli, used_bytes = record.usage.cpu_milli, cgroups.working_set_bytes(group)
        if milli is not None and used_bytes is not None:
            record.day = record.day.add(self._now().sec, milli, used_bytes)
        for container, below in _container_groups(pod, observed):
            usage = record.containers.get(container.name)
            if usage is None:
                usage = record.containers[container.name] = GroupUsage(UsageHistory())
            self._sample(usage, cgroups, below, container.resources.requests)

    def _sample(self, usage: GroupUsage, cgroups: CgroupFs, group: str, requests: Amounts) -> None:
        now = self._now()
        if not self._rounds and usage.history.last_sec:
            # the group may be older than this recorder
            usage.skip_earlier(cgroups, group)
        usage.sample(cgroups, group, now, requests=requests)
        if self._rounds % _ROUNDS_WITHOUT_WAITS == 0:
            usage.sample_waits(cgroups, group, now)

    def _record(self, files: UsageFiles, key: str) -> _Record:
        """Return the record of a pod or a slice, from its file the first time."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record(self._read(files, _path(files, key)))
        return record

    def _read(self, files: UsageFiles, path: Path) -> PodHistory:
        try:
            return files.read(path) or PodHistory()
        except HostError as error:
            self._context.events.note(f"{error}; a new history is begun")
            return PodHistory()

    def _slices(self) -> Iterator[UnitName]:
        """Yield the slices of system daemons, users and container runtimes."""
        world = self._context.world
        if world.manager.is_user:
            return
        yield kube_reserved_slice(world.config.kube_reserved_cgroup)
        yield system_reserved_slice(world.config.system_reserved_cgroup)
        yield USER_SLICE

    def _forget_removed(self) -> None:
        """Forget the pods that no longer exist; their files stay until they are too old."""
        assessment = self._context.assessment
        pods = assessment.desired.pods if assessment else ()
        kept = {*(pod.pod.key for pod in pods), *self._slices()}
        self._records = {key: each for key, each in self._records.items() if key in kept}

    def _now(self) -> Moment:
        """Return the time; histories with samples of one second share the number."""
        sec = int(self._wall())
        if sec != self._sec:
            self._sec = sec
        return Moment(sec=self._sec, monotonic_sec=self._monotonic())


def _path(files: UsageFiles, key: str) -> Path:
    """Return the file of a pod, by its key, or of a slice, by its name."""
    return files.pod_path(key) if "/" in key else files.slice_path(UnitName(key))


def _container_groups(pod: PodDecision, observed: Observed) -> Iterator[tuple[Container, str]]:
    """Yield the containers that have a control group, each with the group."""
    for container, decision in zip(pod.pod.containers, pod.containers, strict=True):
        for name in (decision.scope, service_name(decision.scope)):
            unit = observed.units.get(name)
            if unit is not None and unit.control_group:
                yield container, unit.control_group
                break


class Moment(NamedTuple):
    """A time by two clocks."""

    sec: int
    """Since the Unix epoch."""
    monotonic_sec: float


class GroupUsage:
    """Adds samples of a control group to a history, which outlives the group."""

    __slots__ = ("_counted", "_kills", "_peak_bytes", "_waits", "cpu_milli", "history")

    def __init__(self, history: UsageHistory) -> None:
        self.history = history
        self.cpu_milli: int | None = None
        """The average between the last two samples; None before the second one."""
        self._counted: tuple[float, int] | None = None
        """When the CPU time was read last, and the CPU time in microseconds."""
        self._waits: tuple[float, int, int] | None = None
        """The same for the time that tasks have waited for a CPU, and for memory."""
        self._peak_bytes = 0
        self._kills = 0

    def skip_earlier(self, cgroups: CgroupFs, group: str) -> None:
        """Begin with the present peak and OOM kills of a group: the history has those so far."""
        self._peak_bytes = cgroups.counter(group, "peak_bytes") or 0
        self._kills = cgroups.counter(group, "oom_kills") or 0

    def sample(self, cgroups: CgroupFs, group: str, now: Moment, *, requests: Amounts) -> None:
        """Add a sample; without a group nothing is added, and the next group begins at 0."""
        usec = cgroups.counter(group, "cpu_usec")
        before, self.cpu_milli = self._counted, None
        # a counter that decreases belongs to a new group with the same name
        if usec is None or (before is not None and usec < before[1]):
            self._counted = self._waits = before = None
            self._peak_bytes = self._kills = 0
        if usec is None:
            return
        if is_expired(self.history, now.sec):
            self.history = UsageHistory()
        self._counted = now.monotonic_sec, usec
        if before is not None and now.monotonic_sec > before[0]:
            self.cpu_milli = round((usec - before[1]) / (now.monotonic_sec - before[0]) / 1000)
            self.history = add_cpu(self.history, self.cpu_milli, now.sec)
        # kills count from the previous sample on, and the peak with them
        earlier, self._kills = self._kills, cgroups.counter(group, "oom_kills") or 0
        kills = max(self._kills - earlier, 0)
        self._sample_memory(cgroups, group, now, is_killed=kills > 0)
        if kills:
            self.history = add_oom_kills(
                self.history, kills, now.sec, request_bytes=memory_bytes(requests) or 0
            )

    def sample_waits(self, cgroups: CgroupFs, group: str, now: Moment) -> None:
        """Add the time that tasks have waited since the last call."""
        waits, before = cgroups.waits_usec(group), self._waits
        self._waits = None if waits is None else (now.monotonic_sec, *waits)
        if waits is None or before is None:
            return
        elapsed_sec = now.monotonic_sec - before[0]
        cpu_sec, memory_sec = (
            (after - earlier) / 1e6 for after, earlier in zip(waits, before[1:], strict=True)
        )
        if elapsed_sec > 0 and cpu_sec >= 0 and memory_sec >= 0:
            self.history = add_waits(self.history, elapsed_sec, cpu_sec, memory_sec, now.sec)

    def _sample_memory(
        self, cgroups: CgroupFs, group: str, now: Moment, *, is_killed: bool
    ) -> None:
        """Add the working set, or the peak since the last sample, if it is a new peak of the window.

        Of the peak the present inactive file pages are subtracted, as of the use. Files are read only
        as far as they can show a new peak, since a host may have thousands of groups.
        """
        memory = self.history.memory
        known = memory.observed_bytes if now.sec < memory.window_end_sec else -1
        peak, before = cgroups.counter(group, "peak_bytes"), self._peak_bytes
        if peak is not None:
            self._peak_bytes = peak
            if peak <= known:
                return
        most = peak if is_killed or (peak or 0) > before else None
        if most is None:
            most = cgroups.counter(group, "memory_bytes")
        if most is not None and most > known:
            used = max(most - (cgroups.counter(group, "inactive_bytes") or 0), 0)
            self.history = add_memory(self.history, used, now.sec)


def make_recorder(context: AgentContext, _: str) -> UsageRecorder:
    """Return the part of the agent that records usage."""
    return UsageRecorder(context)
