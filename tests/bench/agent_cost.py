"""What the agent costs while nothing happens, and how soon a new manifest is in force.

    python3 -m tests.bench.agent_cost [--pods 0,110,250,500] [--minutes N] [--sync-period 60s]
                                      [--suite trixie] [--json FILE]

As root, in a namespace machine of the lab: a systemd of its own at this host's speed. Every size
gets a machine and an agent of its own, which makes all the pods and is then left alone. Rounds are
as far apart as by default, so that a minute here is a minute of a node; with a shorter period the
figures are those of more rounds, and the column `rounds` says how many there were.

On a host with cgroup v1 the machine's control groups can't be watched, so that the figures are
without the watches of cgroup v2, which cost nothing while nobody writes.

README: the aim is at most 0.5 % of a core (300 ms in a minute) and 60 MiB with 500 pods, growing
linearly.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.host import agent
from tests.lab.namespace import Namespace
from tests.lab.paths import require_host, source_dir
from tests.lab.recipe import DEFAULT_SUITE, SUITES

TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")
SETTLE_SEC = 5.0
LATENCIES = 9
PAUSE_SEC = 1.0
LIMIT_SEC = 300.0
ROUNDS = "podslice_reconcile_duration_seconds_count"
# where memory limits are: version 2, and version 1
LIMIT_FILES = (
    "kubepods.slice/kubepods-burstable.slice/{slice}/memory.max",
    "memory/kubepods.slice/kubepods-burstable.slice/{slice}/memory.limit_in_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has used so far, and what it has now."""

    cpu_ms: float
    wakeups: int
    rss_mib: float
    anon_mib: float
    peak_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One row of the table."""

    pods: int
    cpu_ms_per_minute: float
    core_percent: float
    rounds_per_minute: float
    wakeups_per_minute: float
    rss_mib: float
    anon_mib: float
    peak_mib: float
    latency_ms: float
    latency_max_ms: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure each size, print its row and write the figures."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.agent_cost")
    parser.add_argument("--pods", default="0,110,250,500", metavar="N,N", help="how many pods")
    parser.add_argument("--minutes", default=3.0, type=float, metavar="N", help="of idling")
    parser.add_argument("--sync-period", default="60s", metavar="TIME", help="of the agent")
    parser.add_argument("--suite", default=DEFAULT_SUITE, choices=SUITES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args(argv)
    require_host()
    say(f"{arguments.suite}, {arguments.minutes:g} min, --sync-period={arguments.sync_period}\n")
    say(" pods  CPU ms/min  % of a core  rounds/min  wake-ups/min  RSS MiB  (anon, peak)")
    say("  new manifest → limit ms (max)\n")
    costs = []
    for pods in map(int, arguments.pods.split(",")):
        with Namespace(arguments.suite) as machine:
            # as a package has it: with its bytecode, which else is made anew in memory
            machine.push(source_dir(), "/src")
            machine.run("python3", "-m", "compileall", "-q", "/src/podslice")
            cost = measure(machine, pods, arguments.minutes, arguments.sync_period)
        costs.append(cost)
        say(
            f"{pods:5}{cost.cpu_ms_per_minute:12.0f}{cost.core_percent:13.2f}"
            f"{cost.rounds_per_minute:12.1f}{cost.wakeups_per_minute:14.0f}{cost.rss_mib:9.1f}"
            f"  ({cost.anon_mib:.1f}, {cost.peak_mib:.1f})"
            f"{cost.latency_ms:24.0f} ({cost.latency_max_ms:.0f})\n"
        )
    if arguments.json:
        document = {
            "version": 1,
            "suite": arguments.suite,
            "costs": [asdict(each) for each in costs],
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def measure(machine: Namespace, pods: int, minutes: float, sync_period: str) -> Cost:
    """Start an agent with so many pods, leave it alone, and then ask for one pod after another."""
    directory = machine.root / agent.MANIFESTS.lstrip("/")
    directory.mkdir(parents=True)
    names = {f"pod-{number}": number for number in range(pods)}
    for name, number in names.items():
        (directory / f"{name}.yaml").write_text(make_manifest(name, number))
    agent.start(machine, f"--sync-period={sync_period}")
    agent.until(lambda: all(is_in_force(machine, *pod) for pod in names.items()), LIMIT_SEC)
    time.sleep(SETTLE_SEC)
    process = machine.root / "proc" / str(agent.pid(machine))
    rounds, before, began = count_rounds(machine), read_usage(process), time.monotonic()
    time.sleep(60 * minutes)
    after, passed_min = read_usage(process), (time.monotonic() - began) / 60
    # asking has a cost, too: it is not within what was measured
    rounds = count_rounds(machine) - rounds
    latencies = [take_latency(machine, directory, number) for number in range(LATENCIES)]
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
        latency_ms=statistics.median(latencies),
        latency_max_ms=max(latencies),
    )


def make_manifest(name: str, number: int) -> str:
    """An ordinary pod with two containers and a limit that only it has."""
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


def limit_of(machine: Namespace, name: str) -> str:
    """A pod's memory limit as the kernel has it; empty while there is none."""
    slice_ = f"kubepods-burstable-pod{name.replace('-', '_')}.slice"
    for each in LIMIT_FILES:
        path = machine.root / "sys/fs/cgroup" / each.format(slice=slice_)
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            continue
    return ""


def is_in_force(machine: Namespace, name: str, number: int) -> bool:
    """Whether the kernel holds a pod to what its manifest says."""
    return limit_of(machine, name) == str(2 * 1024 * kibibytes(number))


def kibibytes(number: int) -> int:
    """The limit of each container: every pod has another one."""
    return 64 * 1024 + 4 * number


def take_latency(machine: Namespace, directory: Path, number: int) -> float:
    """Milliseconds from a manifest's coming to its limit in the kernel."""
    name = f"late-{number}"
    path = directory / f"{name}.yaml"
    path.with_suffix(".new").write_text(make_manifest(name, number))
    began = time.monotonic()
    path.with_suffix(".new").replace(path)
    while not is_in_force(machine, name, number):
        if time.monotonic() - began > LIMIT_SEC:
            raise RuntimeError(f"{path} is not in force after {LIMIT_SEC:.0f} s")
        time.sleep(0.001)
    passed_ms = 1000 * (time.monotonic() - began)
    time.sleep(PAUSE_SEC)
    return passed_ms


def read_usage(process: Path) -> Usage:
    """Look at a process by its directory in /proc."""
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
    """How many rounds the agent has taken."""
    found = re.search(rf"^{ROUNDS} (\S+)$", agent.ask(machine, "/metrics"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the agent has no metric {ROUNDS}")
    return int(float(found[1]))


def say(text: str) -> None:
    """Print at once; a size takes minutes."""
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
