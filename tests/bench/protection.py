"""The protection of a Guaranteed pod's memory from BestEffort pods by each reservation.

    python3 -m tests.bench memory [--quick]

In a virtual machine of the lab with cgroup v2. A Guaranteed pod reads a file of 128 MiB repeatedly,
and touches as much anonymous memory; it requests 320 MiB. Beside it a BestEffort pod reads a
file of 600 MiB and allocates anonymous memory, more than available. kubepods.slice is limited to the
memory of the machine less 200 MiB for the system, so that the pods are short of memory and the system
is not. The reservations are

- `nothing`: `memory-protection = "none"`;
- `MemoryLow`: the requests as protection, which is the default;
- `MemoryMin`: the same, unconditionally (`memory-protection = "min"`);
- `qos-reserved`: no protection, and `qos-reserved = "memory=100%"`, which limits the BestEffort tier
  to what the requests of the others leave.

Each is measured with a swap file, where anonymous memory can be reclaimed, and without one, where
the BestEffort pod grows until the kernel kills it; and once with an idle Guaranteed pod, for the
memory that other pods can use then. No agent runs, so there is no eviction. Refaults are pages of
the Guaranteed pod that were reclaimed and read again. The machine is emulated and its disk is a file
in this host's memory: times are comparable with each other only, and refaults are quick.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from podslice.inputs.manifest.load import load_pods
from podslice.model.config import Config
from podslice.model.node import Node
from podslice.policy.decide import decide
from tests.bench.load import watch_load
from tests.bench.result import Plot, Result, Table, spread
from tests.bench.result import Round as Figures
from tests.lab.vm import Vm

NAME = "memory"
TITLE = "Memory: what a reservation saves of a Guaranteed pod under pressure from BestEffort"
MACHINE = "vm"
ROUNDS = 4
QUICK_PRESSURE_SEC = 1.0
PRESSURE_SEC = 5.0
QUIET_PASSES = 6
LIMIT_SEC = 600.0
"""For what never happens: an emulated machine on a busy host needs minutes for what takes seconds."""
MIB = 2**20
WORKING_SET_MIB, REQUEST_MIB = 128, 160
"""Of each of the Guaranteed pod's two containers."""
STREAM_MIB, SWAP_MIB, SYSTEM_MIB = 600, 512, 200
HELD_MIB, GROWING_MIB, STEP = 304, 704, "16"
"""Anonymous memory of the BestEffort pod: with swap, without, and by how much it grows."""
GUARD_PAUSE_SEC, HOG_PAUSE_SEC = 0.2, 0.02
POLL_SEC = 0.1
PROGRAM = ("python3", "/src/tests/bench/guest/memory.py")
CONFIG_FILE, LOGS = "/etc/podslice/podslice.toml", "/run/bench"
GUARD_FILE, HOG_FILE, SWAP_FILE = "/var/lib/guard.bin", "/var/lib/hog.bin", "/var/lib/bench.swap"
CGROUPS = "/sys/fs/cgroup"
ROOT, TIER = "kubepods.slice", "kubepods.slice/kubepods-besteffort.slice"
COUNTERS = ("workingset_refault_file", "workingset_refault_anon", "pgmajfault")
EVENTS = ("low", "max", "oom_kill")
CONTAINERS = ("file", "anon")
PAGES_PER_MIB = 256

WAYS = {
    "nothing": ('memory-protection = "none"',),
    "MemoryLow": ('memory-protection = "low"',),
    "MemoryMin": ('memory-protection = "min"',),
    "qos-reserved": ('memory-protection = "none"', 'qos-reserved = "memory=100%"'),
}
# with swap other memory can always be reclaimed, so that MemoryMin has the effect of MemoryLow
MEASURED = (
    *((way, True) for way in WAYS if way != "MemoryMin"),
    *((way, False) for way in WAYS),
)
"""Each reservation with swap or without."""
QUICK_MEASURED, QUICK_IDLE = (("MemoryLow", True),), ("qos-reserved",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The kernel's counters of a pod, and the passes of its programs."""

    counters: dict[str, int]
    passes: dict[str, list[tuple[float, int]]]
    """By container: seconds and MiB of every pass."""

    def since(self, before: Usage) -> Usage:
        """Return the difference to an earlier measurement."""
        return Usage(
            counters={name: self.counters[name] - before.counters[name] for name in self.counters},
            passes={
                name: passes[len(before.passes[name]) :] for name, passes in self.passes.items()
            },
        )

    def ms(self, container: str) -> list[float]:
        """Return the durations of passes."""
        return [1000 * seconds for seconds, _ in self.passes[container]]

    @property
    def held_mib(self) -> int:
        """Return the most anonymous memory of one pass."""
        return max((size for _, size in self.passes["anon"]), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One reservation, once, with or without swap."""

    number: int
    way: str
    swap: bool
    quiet: Usage
    """The Guaranteed pod's, alone."""
    guard: Usage
    """The same, under pressure."""
    hog: Usage
    pressed_sec: float
    disturbed: bool

    def refaults_mib(self, kind: str) -> float:
        return self.guard.counters[f"workingset_refault_{kind}"] / PAGES_PER_MIB

    def quiet_ms(self, container: str) -> float:
        """The median; the first pass differs from the others."""
        return statistics.median(self.quiet.ms(container)[1:])

    def median_ms(self, container: str) -> float:
        return statistics.median(self.guard.ms(container))

    def worst_ms(self, container: str) -> float:
        return max(self.guard.ms(container))

    @property
    def read_mib_per_sec(self) -> float:
        """The speed at which the BestEffort pod reads."""
        return sum(size for _, size in self.hog.passes["file"]) / self.pressed_sec


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The memory of the BestEffort pod while the Guaranteed one is idle."""

    way: str
    held_mib: int
    killed: bool
    disturbed: bool


def prepare(machine: Vm) -> None:
    """The machine and state of all rounds."""
    machine.run(*PROGRAM, "make", GUARD_FILE, f"{WORKING_SET_MIB}")
    machine.run(*PROGRAM, "make", HOG_FILE, f"{STREAM_MIB}")
    machine.run("dd", "if=/dev/zero", f"of={SWAP_FILE}", "bs=1M", f"count={SWAP_MIB}")
    machine.run("chmod", "600", SWAP_FILE)
    machine.run("mkswap", SWAP_FILE)


def manifests() -> str:
    """Return both pods."""
    amounts = {"cpu": "500m", "memory": f"{REQUEST_MIB}Mi"}
    resources = {"guard": {"requests": amounts, "limits": amounts}, "hog": {}}
    return "---\n".join(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": pod},
                "spec": {
                    "containers": [
                        {"name": name, "resources": resources[pod]} for name in CONTAINERS
                    ]
                },
            }
        )
        + "\n"
        for pod in resources
    )


def control_groups() -> dict[str, str]:
    """Return the control groups of the pods."""
    loaded = load_pods(("-",), stdin=manifests().encode)
    node = Node(capacity={"cpu": 2000, "memory": 2**30 * 1000})
    found = [decide(pod, node, Config()) for pod in loaded.pods]
    return {each.pod.name: each.control_group[1:] for each in found}


def begin(machine: Vm, way: str, *, swap: bool) -> dict[str, str]:
    """Apply both pods; return their control groups."""
    machine.run("rm", "-rf", LOGS)
    machine.run("mkdir", LOGS)
    lines = (f'system-reserved = "memory={SYSTEM_MIB}Mi"', "cpu-cfs-quota = false", *WAYS[way])
    machine.put(CONFIG_FILE, "\n".join(lines) + "\n")
    machine.run(*PROGRAM, "forget", GUARD_FILE, HOG_FILE)
    if swap:
        machine.run("swapon", SWAP_FILE)
    machine.podslice("apply", "-f", "-", input=manifests())
    groups = control_groups()
    check_properties(machine, way, groups["guard"], swap=swap)
    return groups


def end(machine: Vm, *, swap: bool) -> None:
    """Delete both pods."""
    machine.podslice("delete", "--all", "--grace-period", "0")
    if swap:
        machine.run("swapoff", SWAP_FILE)


def measure_idle(machine: Vm, way: str, *, seconds: float = PRESSURE_SEC) -> Idle:
    """Let the BestEffort pod grow while the Guaranteed one is idle; without swap."""
    groups = begin(machine, way, swap=False)
    with watch_load() as load:
        start(machine, "hog", "anon", "touch", f"{GROWING_MIB}", STEP, f"{HOG_PAUSE_SEC}")
        time.sleep(seconds)
        hog = look_at(machine, "hog", groups["hog"])
    end(machine, swap=False)
    killed = bool(hog.counters["oom_kill"])
    return Idle(way=way, held_mib=hog.held_mib, killed=killed, disturbed=load.is_disturbed)


def measure(
    machine: Vm, way: str, number: int, *, swap: bool, seconds: float = PRESSURE_SEC
) -> Round:
    """Start the Guaranteed pod, wait until it has reached its pace, and add pressure."""
    groups = begin(machine, way, swap=swap)
    whole = f"{WORKING_SET_MIB}"
    start(machine, "guard", "file", "read", GUARD_FILE, whole, whole, f"{GUARD_PAUSE_SEC}")
    start(machine, "guard", "anon", "touch", whole, whole, f"{GUARD_PAUSE_SEC}")
    quiet = settled(machine, groups["guard"])
    held_mib = HELD_MIB if swap else GROWING_MIB
    with watch_load() as load:
        began = time.monotonic()
        start(machine, "hog", "anon", "touch", f"{held_mib}", STEP, f"{HOG_PAUSE_SEC}")
        start(machine, "hog", "file", "read", HOG_FILE, f"{STREAM_MIB}", STEP, "0")
        await_pressure(machine)
        time.sleep(seconds)
        hog = look_at(machine, "hog", groups["hog"])
        guard = after_this_pass(machine, groups["guard"])
        pressed_sec = time.monotonic() - began
    end(machine, swap=swap)
    return Round(
        number=number,
        way=way,
        swap=swap,
        quiet=quiet,
        guard=guard.since(quiet),
        hog=hog,
        pressed_sec=pressed_sec,
        disturbed=load.is_disturbed,
    )


def start(machine: Vm, pod: str, container: str, *what: str) -> None:
    """Start one of the programs in a container."""
    log = f"{LOGS}/{pod}-{container}"
    machine.podslice("run", "--detach", pod, "-c", container, "--", *PROGRAM, *what, log)


def settled(machine: Vm, group: str) -> Usage:
    """Return the use of the Guaranteed pod once both of its programs have reached their pace.

    Raises:
        RuntimeError: they do not reach it, or use less memory than they should.
    """
    usage = await_passes(machine, group, dict.fromkeys(CONTAINERS, QUIET_PASSES))
    held = numbers(machine, f"{group}/memory.stat")
    for kind in CONTAINERS:
        if held[kind] < WORKING_SET_MIB * MIB:
            raise RuntimeError(f"the Guaranteed pod holds {held[kind]} bytes of {kind} memory")
    return usage


def after_this_pass(machine: Vm, group: str) -> Usage:
    """Return the use of the Guaranteed pod once the current passes are over."""
    now = look_at(machine, "guard", group)
    return await_passes(machine, group, {name: len(each) + 1 for name, each in now.passes.items()})


def await_passes(machine: Vm, group: str, least: dict[str, int]) -> Usage:
    """Return the use of the Guaranteed pod once it has made a number of passes, or was killed.

    Raises:
        RuntimeError: it does not reach that.
    """
    deadline = time.monotonic() + LIMIT_SEC
    while True:
        usage = look_at(machine, "guard", group)
        if usage.counters["oom_kill"] or all(
            len(passes) >= least[name] for name, passes in usage.passes.items()
        ):
            return usage
        if time.monotonic() > deadline:
            raise RuntimeError(f"the Guaranteed pod does not come to {least} passes: {usage}")
        time.sleep(POLL_SEC)


def look_at(machine: Vm, pod: str, group: str) -> Usage:
    """Return the use of a pod so far."""
    stat = numbers(machine, f"{group}/memory.stat")
    events = numbers(machine, f"{group}/memory.events")
    counters = {name: stat[name] for name in COUNTERS} | {name: events[name] for name in EVENTS}
    return Usage(
        counters=counters,
        passes={name: read_log(machine, f"{LOGS}/{pod}-{name}") for name in CONTAINERS},
    )


def numbers(machine: Vm, path: str) -> dict[str, int]:
    """Return a file of a control group with a name and a number in each line."""
    lines = machine.get(f"{CGROUPS}/{path}").decode().splitlines()
    return {name: int(number) for name, number in map(str.split, lines)}


def read_log(machine: Vm, path: str) -> list[tuple[float, int]]:
    """Return the passes of a program."""
    try:
        return parse_log(machine.get(path).decode())
    except FileNotFoundError:
        return []


def parse_log(text: str) -> list[tuple[float, int]]:
    """Return seconds and MiB of each line."""
    return [(float(sec), int(mib)) for sec, mib in map(str.split, text.splitlines())]


def check_properties(machine: Vm, way: str, guard: str, *, swap: bool) -> None:
    """Check that the kernel has the limits of this reservation.

    Raises:
        RuntimeError: it has others.
    """
    root_max = machine.get(f"{CGROUPS}/{ROOT}/memory.max").decode().strip()
    wanted = expected(way, guard, root_max)
    found = {path: machine.get(f"{CGROUPS}/{path}").decode().strip() for path in wanted}
    if found != wanted:
        raise RuntimeError(f"{way}: the kernel should have {wanted}, and has {found}")
    swaps = machine.get("/proc/swaps").decode().splitlines()[1:]
    if bool(swaps) != swap:
        raise RuntimeError(f"{way}: there should be {'a' if swap else 'no'} swap file: {swaps}")


def expected(way: str, guard: str, root_max: str) -> dict[str, str]:
    """Return the expected limits of control groups."""
    request = len(CONTAINERS) * REQUEST_MIB * MIB
    low, least = (f"{request}" if way == name else "0" for name in ("MemoryLow", "MemoryMin"))
    of_tier = f"{int(root_max) - request}"
    return {
        **{f"{group}/memory.low": low for group in (ROOT, guard)},
        **{f"{group}/memory.min": least for group in (ROOT, guard)},
        f"{guard}/memory.max": f"{request}",
        f"{TIER}/memory.max": of_tier if way == "qos-reserved" else "max",
    }


def await_pressure(machine: Vm) -> None:
    """Wait until memory is short.

    Raises:
        RuntimeError: there is enough.
    """
    deadline = time.monotonic() + LIMIT_SEC
    while not any(numbers(machine, f"{group}/memory.events")["max"] for group in (ROOT, TIER)):
        if time.monotonic() > deadline:
            raise RuntimeError("neither the pods nor the BestEffort tier come to their limit")
        time.sleep(POLL_SEC)


def run(machine: Vm, *, quick: bool = False) -> Result:
    """Measure every reservation in one machine, in turn."""
    measured, ways, count, seconds = (
        (QUICK_MEASURED, QUICK_IDLE, 1, QUICK_PRESSURE_SEC)
        if quick
        else (MEASURED, tuple(WAYS), ROUNDS, PRESSURE_SEC)
    )
    rounds: list[Round] = []
    prepare(machine)
    for number in range(1, count + 1):
        sys.stderr.write(f"memory, round {number}\n")
        turn = (number - 1) * len(measured) // count
        rounds += [
            measure(machine, way, number, swap=swap, seconds=seconds)
            for way, swap in measured[turn:] + measured[:turn]
        ]
    # only the amount, not the speed: one round is enough
    idle = [measure_idle(machine, way, seconds=seconds) for way in ways]
    return make_result(rounds, idle)


def make_result(rounds: list[Round], idle: list[Idle]) -> Result:
    """Return the tables and the plot of the rounds."""
    with_swap = [swap for swap in (True, False) if any(each.swap == swap for each in rounds)]
    return Result(
        name=NAME,
        title=TITLE,
        tables=(
            *(guard_table(rounds, swap=swap) for swap in with_swap),
            cost_table(rounds),
            idle_table(idle),
        ),
        plots=(file_plot(rounds),),
        rounds=[*map(plain, rounds), *({"idle": True, **asdict(each)} for each in idle)],
    )


def guard_table(rounds: list[Round], *, swap: bool) -> Table:
    """Return the effect on the Guaranteed pod."""
    chosen = [each for each in rounds if each.swap == swap]
    return Table(
        title=f"The Guaranteed pod under pressure, {_with(swap=swap)}",
        columns=(
            *("reservation", "file refaults, MiB", "anonymous, MiB", "file pass, ms", "worst"),
            *("anonymous pass, ms", "worst", "low events", "kills"),
        ),
        rows=(
            _quiet_row(chosen),
            *((way, *_guard_row(each)) for way, each in by_way(chosen).items()),
        ),
        note=(
            f"`low events`: how often the kernel took memory although the pod had less than what"
            f" MemoryLow protects. A pass is {WORKING_SET_MIB} MiB; the first row is without"
            " BestEffort."
        ),
    )


def _quiet_row(rounds: list[Round]) -> tuple[str, ...]:
    times = []
    for name in CONTAINERS:
        times += [spread(one.quiet_ms(name) for one in rounds).show(1)]
        times += [f"{max(max(one.quiet.ms(name)[1:]) for one in rounds):.1f}"]
    return ("alone", "-", "-", *times, "-", "-")


def _guard_row(rounds: list[Round]) -> tuple[str, ...]:
    times = []
    for name in CONTAINERS:
        times += [spread(one.median_ms(name) for one in rounds).show(1)]
        times += [f"{max(one.worst_ms(name) for one in rounds):.1f}"]
    return (
        *(spread(one.refaults_mib(kind) for one in rounds).show() for kind in CONTAINERS),
        *times,
        spread(one.guard.counters["low"] for one in rounds).show(),
        f"{sum(one.guard.counters['oom_kill'] for one in rounds)}",
    )


def cost_table(rounds: list[Round]) -> Table:
    """Return the cost for other pods."""
    rows = [
        (
            f"{way}, {_with(swap=swap)}",
            spread(one.hog.held_mib for one in each).show(),
            spread(one.read_mib_per_sec for one in each).show(),
            spread(
                one.hog.counters["workingset_refault_anon"] / PAGES_PER_MIB for one in each
            ).show(),
            f"{sum(bool(one.hog.counters['oom_kill']) for one in each)} of {len(each)}",
        )
        for swap in (True, False)
        for way, each in by_way([one for one in rounds if one.swap == swap]).items()
    ]
    return Table(
        title="The BestEffort pod beside it",
        columns=(
            *("reservation", "anonymous held, MiB", "file read, MiB/s", "anonymous refaults, MiB"),
            "killed in rounds",
        ),
        rows=tuple(rows),
        note=(
            f"It allocates {HELD_MIB} MiB of anonymous memory with swap, and"
            f" {GROWING_MIB} MiB where there is none. Held is the most that it has gone through"
            " in one pass."
        ),
    )


def idle_table(idle: list[Idle]) -> Table:
    """Return the memory that an unused reservation withholds from other pods."""
    requested_mib = len(CONTAINERS) * REQUEST_MIB
    return Table(
        title="Memory of the BestEffort pod while the Guaranteed one is idle, without swap",
        columns=("reservation", "anonymous held, MiB", "killed"),
        rows=tuple((each.way, f"{each.held_mib}", "yes" if each.killed else "no") for each in idle),
        note=f"It allocates {GROWING_MIB} MiB; the Guaranteed pod requests {requested_mib} MiB.",
    )


def by_way(rounds: Iterable[Round]) -> dict[str, list[Round]]:
    """In the order of WAYS."""
    rounds = list(rounds)
    found = {way: [each for each in rounds if each.way == way] for way in WAYS}
    return {way: each for way, each in found.items() if each}


def _with(*, swap: bool) -> str:
    return "with swap" if swap else "without swap"


def file_plot(rounds: list[Round]) -> Plot:
    """Return a plot of the durations of passes over the file."""
    return Plot(
        name="memory-file-latency",
        title=f"Guaranteed pod: a pass through {WORKING_SET_MIB} MiB (file); dashed: alone",
        x="reservation",
        y="ms",
        series={
            f"{name}, {_with(swap=swap)}": {
                way: spread(getattr(one, f"{name}_ms")("file") for one in each)
                for way, each in by_way(one for one in rounds if one.swap == swap).items()
            }
            for swap in (True, False)
            for name in ("median", "worst")
        },
        guide=spread(one.quiet_ms("file") for one in rounds).middle,
    )


def plain(one: Round) -> Figures:
    """Return a round as figures."""
    return {
        "round": one.number,
        "what": one.way,
        "swap": one.swap,
        "pressed_sec": one.pressed_sec,
        "guard": one.guard.counters,
        "guard_ms": {name: one.guard.ms(name) for name in CONTAINERS},
        "guard_quiet_ms": {name: one.quiet.ms(name)[1:] for name in CONTAINERS},
        "best_effort": one.hog.counters,
        "best_effort_held_mib": one.hog.held_mib,
        "best_effort_read_mib_per_sec": one.read_mib_per_sec,
        "disturbed": one.disturbed,
    }
