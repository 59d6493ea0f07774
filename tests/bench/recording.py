"""The cost of recording usage: an hour of samples of many pods, in fast motion.

    python3 -m tests.bench recording [--quick]

The recorder of the agent reads control groups of files, with the content that cgroup v2 has, of pods
with one container each. Between two samples, which is not measured, the CPU time of every group grows
by a random amount, so that histograms have many buckets. A sample is taken each minute, and
the histories are written every ten minutes, to a real file system.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from podslice.features.history.recorder import UsageRecorder
from podslice.inputs.manifest.load import load_pods
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.desired import PodDecision
from podslice.policy.decide import decide
from tests.bench.planning import NODE
from tests.bench.pods import make_manifests
from tests.bench.result import Aim, Result, Table, spread

NAME = "recording"
TITLE = "Recording usage: CPU and memory of the agent for samples and histories"
SIZES, QUICK_SIZES = (110, 250, 500), (20,)
MINUTES, QUICK_MINUTES = 60, 11
SAVE_MINUTES = 10
CORE_AIM_PERCENT, MEMORY_AIM_MIB, FILE_AIM_BYTES = 0.1, 3.0, 2048
START_SEC = 1_700_006_400
MOST_MILLI = 400
_PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
_STAT = "".join(f"counter_{number} {number}\n" for number in range(50)) + "inactive_file 65536\n"
_FILES = {
    "memory.current": f"{20 * 2**20}\n",
    "memory.peak": f"{24 * 2**20}\n",
    "memory.stat": _STAT,
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
    "cpu.pressure": _PRESSURE,
    "memory.pressure": _PRESSURE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The measurements of one size."""

    pods: int
    sample_ms: list[float]
    """CPU time of each sample of all pods."""
    write_ms: list[float]
    """CPU time of each writing of all histories."""
    memory_mib: float
    """The growth of the resident memory."""
    file_bytes: int
    """The size of the largest file."""

    @property
    def ms_per_minute(self) -> float:
        """Return the CPU time of a minute."""
        return spread(self.sample_ms).middle + spread(self.write_ms).middle / SAVE_MINUTES


def run(*, quick: bool = False) -> Result:
    """Measure each size."""
    sizes, minutes = (QUICK_SIZES, QUICK_MINUTES) if quick else (SIZES, MINUTES)
    found = []
    for pods in sizes:
        sys.stderr.write(f"{pods} pods, {minutes} min\n")
        with tempfile.TemporaryDirectory() as directory, _one_process() as process:
            found.append(process.submit(measure, Path(directory), pods, minutes).result())
    return Result(
        name=NAME,
        title=TITLE,
        tables=(make_table(found),),
        aims=make_aims(found[-1]),
        rounds=[asdict(each) for each in found],
    )


def _one_process() -> ProcessPoolExecutor:
    """Return a new process: in this one histories may use memory that earlier work has released."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def make_table(found: list[Recording]) -> Table:
    """Return the cost of each size."""
    return Table(
        title="Recording the usage of pods with one container each",
        columns=(
            *("pods", "a sample, CPU ms", "writing all, CPU ms", "% of a core"),
            *("memory, MiB", "largest file, bytes"),
        ),
        rows=tuple(
            (
                f"{each.pods}",
                spread(each.sample_ms).show(),
                spread(each.write_ms).show(),
                f"{each.ms_per_minute / 600:.3f}",
                f"{each.memory_mib:.1f}",
                f"{each.file_bytes}",
            )
            for each in found
        ),
    )


def make_aims(cost: Recording) -> tuple[Aim, ...]:
    """Return the aims for the largest number of pods."""
    return (
        Aim(
            text=f"recording {cost.pods} pods",
            value=cost.ms_per_minute / 600,
            limit=CORE_AIM_PERCENT,
            unit="% of a core",
        ),
        Aim(
            text=f"memory of the histories of {cost.pods} pods",
            value=cost.memory_mib,
            limit=MEMORY_AIM_MIB,
            unit="MiB",
        ),
        Aim(
            text="the file of a pod with one container",
            value=cost.file_bytes,
            limit=FILE_AIM_BYTES,
            unit="bytes",
        ),
    )


class Clock:
    """A clock that the measurement advances."""

    def __init__(self) -> None:
        self.sec = float(START_SEC)

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.sec


def measure(directory: Path, count: int, minutes: int) -> Recording:
    """Record simulated control groups."""
    pods = make_pods(count)
    groups = Groups(directory / "cgroup", pods)
    clock = Clock()
    config = Config(usage_history=str(directory / "usage"))
    recorder = UsageRecorder(groups.context(config), wall=clock, monotonic=clock)
    groups.advance()  # pathlib keeps the names of files
    gc.collect()
    before = resident_mib()
    sample_ms, write_ms = [], []
    for minute in range(minutes):
        groups.advance()
        clock.sec += 60
        sample_ms.append(cpu_ms_of(recorder.sample))
        if minute % SAVE_MINUTES == SAVE_MINUTES - 1:
            write_ms.append(cpu_ms_of(recorder.save))
    gc.collect()
    files = (path for path in (directory / "usage/pods").rglob("*") if path.is_file())
    return Recording(
        pods=count,
        sample_ms=sample_ms,
        write_ms=write_ms,
        memory_mib=resident_mib() - before,
        file_bytes=max(path.stat().st_size for path in files),
    )


def make_pods(count: int) -> tuple[PodDecision, ...]:
    """Return the decisions on ordinary pods."""
    text = make_manifests(count)
    pods = load_pods(("-",), stdin=text.encode).pods
    return tuple(decide(pod, NODE, Config()) for pod in pods)


class Groups:
    """The control groups of pods and of one container of each, as files."""

    def __init__(self, mount: Path, pods: tuple[PodDecision, ...]) -> None:
        self.mount = mount
        self.pods = pods
        self._random = random.Random(len(pods))
        self._usec = {group: 0 for pod in pods for group in (self.of_pod(pod), self.of_scope(pod))}
        mount.mkdir()
        (mount / "cgroup.controllers").write_text("cpu memory\n")
        for group in self._usec:
            path = mount / group.lstrip("/")
            path.mkdir(parents=True, exist_ok=True)
            for name, text in _FILES.items():
                (path / name).write_text(text)

    @staticmethod
    def of_pod(pod: PodDecision) -> str:
        """Return the control group of a pod."""
        return pod.control_group

    @staticmethod
    def of_scope(pod: PodDecision) -> str:
        """Return that of its first container."""
        return f"{pod.control_group}/{pod.containers[0].scope}"

    def advance(self) -> None:
        """Let a minute pass, in which every group uses a CPU for a part of it."""
        for group in self._usec:
            self._usec[group] += self._random.randrange(MOST_MILLI) * 60_000
            path = self.mount / group.lstrip("/") / "cpu.stat"
            path.write_text(f"usage_usec {self._usec[group]}\nuser_usec 0\nsystem_usec 0\n")

    def context(self, config: Config) -> Any:
        """Return the context of an agent that has these pods."""
        units = {pod.slice: SimpleNamespace(control_group=self.of_pod(pod)) for pod in self.pods}
        scopes = {
            pod.containers[0].scope: SimpleNamespace(control_group=self.of_scope(pod))
            for pod in self.pods
        }
        return SimpleNamespace(
            world=SimpleNamespace(
                config=config,
                cgroups=CgroupFs(mount=self.mount),
                manager=SimpleNamespace(is_user=False),
            ),
            assessment=SimpleNamespace(
                desired=SimpleNamespace(pods=self.pods),
                observed=SimpleNamespace(units=units | cast("dict[Any, Any]", scopes)),
            ),
            events=SimpleNamespace(note=sys.stderr.write),
            recommended={},
        )


def cpu_ms_of(work: Any) -> float:
    """Run work, and return its CPU time."""
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def resident_mib() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
