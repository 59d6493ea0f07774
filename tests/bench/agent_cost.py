"""The cost of the agent while it is idle, and how soon a new manifest is in force.

    python3 -m tests.bench agent [--quick]

In a namespace. Every size gets its own agent, which applies all the pods and is then left alone.
Rounds are as far apart as by default, so that a minute here is a minute of a node.

Then manifests are added one after another: the time from the write to the limit in the kernel. The
same number of slices is started beside the same pods by the bare call, of a client that is already
connected, while the agent is idle.

On a host with cgroup v1 the machine's control groups cannot be watched, so that the figures do not
include the watches of cgroup v2, which cost nothing while no process writes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from podslice.inputs.manifest.load import load_pods
from podslice.model.unit import Manager, Observed, TransientUnit
from podslice.plan import StartUnit, transient_unit
from podslice.plan.make import make_plan
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from podslice.systemd.bus import Bus
from tests.bench import inside
from tests.bench.load import watch_load
from tests.bench.planning import CAPS, CONFIG, NODE
from tests.bench.result import Aim, Result, Spread, Table, spread
from tests.host import agent
from tests.lab.namespace import Namespace

NAME = "agent"
TITLE = "The agent: what it costs while nothing happens, and how soon a new manifest is in force"
MACHINE = "namespace"
SIZES, SETTLE_SEC, MINUTES, LATENCIES = (0, 110, 250, 500), 5.0, 1.0, 15
QUICK_SIZES, QUICK_SETTLE_SEC, QUICK_MINUTES, QUICK_LATENCIES = (3,), 0.2, 0.02, 1
CORE_AIM_PERCENT, RSS_AIM_MIB, LATENCY_AIM_MS = 0.5, 60.0, 25.0
TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")
PAUSE_SEC = 1.0
POLL_SEC = 0.001
LIMIT_SEC = 300.0
ROUNDS = "podslice_reconcile_duration_seconds_count"
# the files of memory limits: version 2, and version 1
LIMIT_FILES = (
    "kubepods.slice/kubepods-burstable.slice/{slice}/memory.max",
    "memory/kubepods.slice/kubepods-burstable.slice/{slice}/memory.limit_in_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The use of a process so far, and its present memory."""

    cpu_ms: float
    wakeups: int
    rss_mib: float
    anon_mib: float
    peak_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The measurements of one size."""

    pods: int
    cpu_ms_per_minute: float
    core_percent: float
    rounds_per_minute: float
    wakeups_per_minute: float
    rss_mib: float
    anon_mib: float
    peak_mib: float
    latency_ms: list[float]
    """From a new manifest to its limit in the kernel, one for each try."""
    bare_ms: list[float]
    """The same for the bare call."""
    disturbed: bool


def run(machine: Namespace, *, quick: bool = False) -> Result:
    """Measure each size with its own agent."""
    sizes, settle_sec, minutes, tries = (
        (QUICK_SIZES, QUICK_SETTLE_SEC, QUICK_MINUTES, QUICK_LATENCIES)
        if quick
        else (SIZES, SETTLE_SEC, MINUTES, LATENCIES)
    )
    costs = []
    for pods in sizes:
        sys.stderr.write(f"{pods} pods, {minutes:g} min\n")
        costs.append(measure(machine, pods, settle_sec, minutes, tries))
        agent.remove(machine)
        inside.stop_all(machine)
        machine.run("rm", "-rf", "/var/lib/podslice")
    return Result(
        name=NAME,
        title=TITLE,
        tables=(idle_table(costs), latency_table(costs)),
        aims=make_aims(costs[-1]),
        rounds=[asdict(cost) for cost in costs],
    )


def idle_table(costs: list[Cost]) -> Table:
    """Return the cost of each size."""
    return Table(
        title="An idle agent",
        columns=(
            *("pods", "CPU ms/min", "% of a core", "rounds/min", "wake-ups/min", "RSS MiB"),
            *("of it anonymous", "peak"),
        ),
        rows=tuple(
            (
                f"{cost.pods}",
                f"{cost.cpu_ms_per_minute:.0f}",
                f"{cost.core_percent:.2f}",
                f"{cost.rounds_per_minute:.1f}",
                f"{cost.wakeups_per_minute:.0f}",
                f"{cost.rss_mib:.1f}",
                f"{cost.anon_mib:.1f}",
                f"{cost.peak_mib:.1f}",
            )
            for cost in costs
        ),
    )


def latency_table(costs: list[Cost]) -> Table:
    """Return how soon a manifest is in force."""
    return Table(
        title="From a new manifest to its limit in the kernel, ms",
        columns=("existing pods", "agent", "bare D-Bus calls", "difference"),
        rows=tuple(
            (
                f"{cost.pods}",
                spread(cost.latency_ms).show(),
                spread(cost.bare_ms).show(),
                above(cost).show(),
            )
            for cost in costs
        ),
    )


def above(cost: Cost) -> Spread:
    """Return the difference of the agent to the median of the bare calls, in ms."""
    bare = spread(cost.bare_ms).middle
    return spread([ours - bare for ours in cost.latency_ms])


def make_aims(cost: Cost) -> tuple[Aim, ...]:
    """Return the aims for the largest number of pods."""
    return (
        Aim(
            text=f"idle with {cost.pods} pods",
            value=cost.core_percent,
            limit=CORE_AIM_PERCENT,
            unit="% of a core",
        ),
        Aim(
            text=f"resident memory with {cost.pods} pods",
            value=cost.rss_mib,
            limit=RSS_AIM_MIB,
            unit="MiB",
        ),
        Aim(
            text=f"a new manifest beside {cost.pods} pods, above the bare calls, median",
            value=above(cost).middle,
            limit=LATENCY_AIM_MS,
            unit="ms",
        ),
    )


def measure(machine: Namespace, pods: int, settle_sec: float, minutes: float, tries: int) -> Cost:
    """Start an agent with a number of pods, leave it idle, and then add one pod after another."""
    directory = machine.root / agent.MANIFESTS.lstrip("/")
    directory.mkdir(parents=True, exist_ok=True)
    names = {f"pod-{number}": number for number in range(pods)}
    for name, number in names.items():
        (directory / f"{name}.yaml").write_text(make_manifest(name, number))
    agent.start(machine, "--sync-period=1m")  # the default, whose rounds are part of the cost
    agent.until(lambda: all(is_in_force(machine, *pod) for pod in names.items()), LIMIT_SEC)
    time.sleep(settle_sec)
    process = machine.root / "proc" / str(agent.pid(machine))
    rounds, before, began = count_rounds(machine), read_usage(process), time.monotonic()
    with watch_load() as load:
        time.sleep(60 * minutes)
    after, passed_min = read_usage(process), (time.monotonic() - began) / 60
    # queries have a cost, too, which is not part of the measurement
    rounds = count_rounds(machine) - rounds
    latency_ms = [take_latency(machine, directory, number) for number in range(tries)]
    # it would report the slices of bare calls as orphans
    machine.run("systemctl", "stop", agent.UNIT)
    bare_ms = asyncio.run(take_bare(machine, tries))
    cpu_ms = (after.cpu_ms - before.cpu_ms) / passed_min
    return Cost(
        pods=pods,
        cpu_ms_per_minute=cpu_ms,
        core_percent=100 * cpu_ms / 60_000,
        rounds_per_minute=rounds / passed_min,
        wakeups_per_minute=(after.wakeups - before.wakeups) / passed_min,
        rss_mib=after.rss_mib,
        anon_mib=after.anon_mib,
        peak_mib=after.peak_mib,
        latency_ms=latency_ms,
        bare_ms=bare_ms,
        disturbed=load.is_disturbed,
    )


async def take_bare(machine: Namespace, tries: int) -> list[float]:
    """Return the milliseconds of the bare call for a pod's slice, with all properties of podslice."""
    taken = []
    async with Bus(Manager(bus_address=machine.bus_address)) as bus:
        for number in range(tries):
            name = f"bare-{number}"
            unit = make_unit(name, number)
            began = time.monotonic()
            await bus.start(unit)
            taken.append(1000 * (time.monotonic() - began))
            if not is_in_force(machine, name, number):
                raise RuntimeError(f"{unit.name} is up, and its limit is not in the kernel")
            await bus.stop(unit.name)
    return taken


def make_unit(name: str, number: int) -> TransientUnit:
    """Return the slice of a pod from the plan."""
    loaded = load_pods(("-",), stdin=make_manifest(name, number).encode)
    desired = desire([decide(pod, NODE, CONFIG) for pod in loaded.pods], NODE, CONFIG)
    plan = make_plan(desired, Observed(caps=CAPS))
    step = next(s for s in plan.steps if isinstance(s, StartUnit) and slice_of(name) == s.name)
    return transient_unit(step.unit, {change.name: change.new for change in step.changes})


def make_manifest(name: str, number: int) -> str:
    """Return an ordinary pod with two containers and a unique limit."""
    containers = [
        {
            "name": container,
            "image": f"registry.example.com/team/{container}:1.{number}",
            "resources": {
                "requests": {"cpu": "1m", "memory": f"{1 + number % 7}Mi"},
                "limits": {"cpu": "100m", "memory": f"{kibibytes(number)}Ki"},
            },
        }
        for container in ("main", "log")
    ]
    metadata = {"name": name, "uid": name, "namespace": f"team-{number % 12}"}
    spec = {"containers": containers, "priority": number % 3}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def slice_of(name: str) -> str:
    """Return the slice of a pod whose uid is its name."""
    return f"kubepods-burstable-pod{name.replace('-', '_')}.slice"


def limit_of(machine: Namespace, name: str) -> str:
    """Return a pod's memory limit in the kernel; empty if it has none."""
    for each in LIMIT_FILES:
        path = machine.root / "sys/fs/cgroup" / each.format(slice=slice_of(name))
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            continue
    return ""


def is_in_force(machine: Namespace, name: str, number: int) -> bool:
    """Return whether the kernel enforces the limit of a pod's manifest."""
    return limit_of(machine, name) == str(2 * 1024 * kibibytes(number))


def kibibytes(number: int) -> int:
    """Return the limit of each container: every pod has another one."""
    return 64 * 1024 + 4 * number


def take_latency(machine: Namespace, directory: Path, number: int) -> float:
    """Return the milliseconds from a new manifest to its limit in the kernel."""
    name = f"late-{number}"
    path = directory / f"{name}.yaml"
    path.with_suffix(".new").write_text(make_manifest(name, number))
    began = time.monotonic()
    path.with_suffix(".new").replace(path)
    while not is_in_force(machine, name, number):
        if time.monotonic() - began > LIMIT_SEC:
            raise RuntimeError(f"{path} is not in force after {LIMIT_SEC:.0f} s")
        time.sleep(POLL_SEC)
    passed_ms = 1000 * (time.monotonic() - began)
    time.sleep(PAUSE_SEC)
    return passed_ms


def read_usage(process: Path) -> Usage:
    """Observe a process by its directory in /proc."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    status = dict(re.findall(r"(\w+):\s+(\d+)", (process / "status").read_text()))
    return Usage(
        cpu_ms=1000 * (int(fields[11]) + int(fields[12])) / TICKS_PER_SEC,
        wakeups=int(status["voluntary_ctxt_switches"]),
        rss_mib=int(status["VmRSS"]) / 1024,
        anon_mib=int(status["RssAnon"]) / 1024,
        peak_mib=int(status["VmHWM"]) / 1024,
    )


def count_rounds(machine: Namespace) -> int:
    """Return the number of rounds of the agent."""
    found = re.search(rf"^{ROUNDS} (\S+)$", agent.ask(machine, "/metrics"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the agent has no metric {ROUNDS}")
    return int(float(found[1]))
