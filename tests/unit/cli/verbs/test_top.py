"""`top`: rates from two measurements and their format; tests/host has the page itself."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from podslice.cli.arguments import Sort
from podslice.cli.pods import PodFilter
from podslice.cli.report import part
from podslice.cli.terminal import is_interactive
from podslice.cli.verbs import top
from podslice.cli.views import usage_table
from podslice.cli.views.style import Display
from podslice.cli.views.usage_table import NODE, NodeSummary, measure
from podslice.errors import BusUnavailable, HostError, Problem
from podslice.kernel.cgroup import Pressure, Sample, Waited
from podslice.kernel.host import Availability
from podslice.model.node_state import AgentState, Condition, Eviction
from podslice.model.resources import UsedAmounts
from podslice.model.unit import UnitName
from podslice.usage import stats
from podslice.usage.stats import ContainerStats, GroupStats, PodStats
from tests.unit.agent import sample_node
from tests.unit.builders import burstable, decisions, guaranteed, manifest, world

MI = 2**20
A, B = decisions(burstable("a"), guaranteed("b"))
SCOPE = UnitName("podslice-poda-main.scope")
ABOUT = NodeSummary(cpus_milli=8000)
DISK = sample_node.FileSystem(
    capacity_bytes=100 * 2**30,
    available_bytes=40 * 2**30,
    used_bytes=60 * 2**30,
    inodes=100,
    inodes_free=50,
)


def sample(cpu=0, memory=0, periods=None, throttled=None, tasks=1, **more):
    waits, io = more.get("waits", ()), more.get("io")
    return Sample(
        cpu_usec=cpu,
        working_set_bytes=memory,
        memory_bytes=memory + MI,
        periods=periods,
        throttled_periods=throttled,
        tasks=tasks,
        oom_kills=2,
        read_bytes={} if io is None else {"8:0": io},
        written_bytes={} if io is None else {"8:0": 512},
        pressure={
            name: Pressure(some=Waited(avg10_milli=milli)) for name, milli in dict(waits).items()
        },
    )


def node(uptime_sec, *pods, of_node=None, groups=()):
    boot_usec = 1_795_302_032_000_000
    return sample_node.node_stats(
        *pods,
        time_usec=boot_usec + uptime_sec * 1_000_000,
        uptime_usec=uptime_sec * 1_000_000,
        boot_time_usec=boot_usec,
        sample=of_node or Sample(),
        memory=Availability(capacity=1024 * MI, available=256 * MI),
        file_system=DISK,
        pids=120,
        groups=groups,
    )


def pod(decision, used, *containers):
    return PodStats(
        decision=decision,
        sample=used,
        started_usec=0,
        containers=tuple(
            ContainerStats(name=name, unit=unit, sample=each) for name, unit, each in containers
        ),
    )


def group(name, used):
    return GroupStats(name=name, unit=UnitName(f"{name}.slice"), sample=used)


BEFORE = node(
    10,
    pod(
        A,
        sample(cpu=1_000_000, periods=10, throttled=0, io=96),
        ("main", SCOPE, sample(cpu=500_000)),
    ),
    pod(B, sample(cpu=7_000_000)),
    of_node=sample(cpu=20_000_000),
    groups=(group("kubepods", sample()),),
)
IN_A = sample(cpu=1_000_000)
NOW = node(
    12,
    pod(
        A,
        sample(2_000_000, 64 * MI, periods=30, throttled=5, waits={"cpu": 0, "io": 900}, io=4192),
        ("main", SCOPE, IN_A),
    ),
    pod(B, sample(7_020_000, 512 * MI, waits={"cpu": 3_200, "memory": 12_500, "io": 0})),
    of_node=sample(23_000_000, 768 * MI, tasks=120),
    groups=(group("kubepods", sample(memory=576 * MI)),),
)
LIMITS = {A.slice: 128 * MI, SCOPE: 64 * MI}
CPU_LIMITS = {NODE: 8000, A.slice: 1000, SCOPE: 500}
USAGE = measure(NOW, BEFORE, LIMITS, cpu_limits=CPU_LIMITS)


def text(lines):
    return "".join(f"{line}\n" for line in lines)


ALLOWED = {A.slice: "2-4", SCOPE: "2", B.slice: ""}
ON_CPUS = measure(NOW, BEFORE, LIMITS, cpu_limits=CPU_LIMITS, allowed_cpus=ALLOWED)
RECORDED = {A.pod.key: UsedAmounts(cpu_milli=1000, memory_bytes=32 * MI), B.pod.key: None}
COMPARED = measure(NOW, BEFORE, LIMITS, RECORDED, cpu_limits=CPU_LIMITS)
TROUBLED = NodeSummary(
    cpus_milli=8000,
    conditions=("MemoryPressure",),
    evicted=("default/c", "default/d"),
    problems=("units as of the last update: no bus",),
)
MANY_EVICTED = NodeSummary(evicted=[f"default/{n}" for n in range(63)])


def table(usage, **display):
    return text(usage_table.table(usage, Display(**display)))


def head(about=ABOUT, **display):
    return text(usage_table.head(USAGE, about, Display(**display)))


PAGES = {
    "in a pipe": head() + table(USAGE),
    "problems are above the table": head(TROUBLED),
    "a few evicted pods are named": head(MANY_EVICTED),
    "wide": table(USAGE, wide=True),
    "wide, with the CPUs of units that are limited to some": table(ON_CPUS, wide=True),
    "50 columns": table(USAGE, width=50),
    "60 columns": head(width=60) + table(USAGE, width=60),
    "80 columns": head(width=80) + table(COMPARED, width=80),
    "100 columns: the bar of the CPU gives way first": table(COMPARED, width=100),
    "120 columns: use, requests and recorded usage": table(COMPARED, width=120),
    "120 columns: without a limit a bar ends at the largest amount": table(
        measure(NOW, BEFORE, {}, RECORDED), width=120
    ),
    "200 columns": head(width=200),
    "colors": table(USAGE, is_colored=True, wide=True).replace("\x1b", "ESC"),
}


def test_pages_and_documents(golden):
    golden("top.txt", "\n".join(f"=== {title}\n{page}" for title, page in PAGES.items()))
    golden("top.json", json.dumps(part(usage_table.report(ON_CPUS, ABOUT)), indent=1) + "\n")
    assert table(ON_CPUS) == table(COMPARED) == table(USAGE)


@pytest.mark.parametrize(
    ("by", "names"),
    [("cpu", "ab"), ("memory", "ba"), ("throttled", "ab"), ("pressure", "ba"), ("name", "ab")],
)
def test_pods_are_sorted_the_most_first(by, names):
    rows = USAGE.sorted(Sort(by)).pods
    assert "".join(row.name.removeprefix("default/") for row in rows) == names


def test_containers_are_sorted_as_pods_are():
    used = [("x", 1), ("y", 5), ("z", 3)]
    containers = [(name, UnitName(f"{name}.scope"), sample(memory=mem)) for name, mem in used]
    now = node(12, pod(A, sample(), *containers))
    (row,) = measure(now, now, {}).sorted(Sort.MEMORY).pods
    assert [each.name for each in row.containers] == ["y", "z", "x"]


def test_the_first_sample_alone_has_no_rates():
    first = measure(NOW, NOW, {})
    assert first.node.cpu_milli is None
    assert next(usage_table.head(first, ABOUT, Display())).startswith("cpu - / 8, ")


@pytest.mark.parametrize(
    ("then", "now", "cpu", "throttled"),
    [
        (sample(9_000_000, periods=9, throttled=9), sample(1, periods=1, throttled=1), None, None),
        (Sample(), sample(1, periods=1, throttled=1), None, None),
        (sample(1), Sample(), None, None),
        (sample(0, periods=5, throttled=5), sample(0, periods=5, throttled=5), 0, 0),
        (sample(0, periods=0, throttled=0), sample(0, periods=0, throttled=0), 0, None),
        (sample(0, periods=1), sample(0, periods=5), 0, None),
    ],
    ids=["reset", "new", "not counted", "idle", "no quota", "v1"],
)
def test_there_is_a_rate_only_where_two_samples_have_one(then, now, cpu, throttled):
    (row,) = measure(node(2, pod(A, now)), node(1, pod(A, then)), {}).pods
    assert (row.cpu_milli, row.throttled_percent) == (cpu, throttled)


def test_a_unit_that_has_two_parts_to_play_has_one_row():
    twice = node(1, groups=(group("system", sample()), group("system", sample())))
    assert len(measure(twice, twice, {}).groups) == 1


def test_hostile_names_reach_no_terminal():
    evil = node(1, groups=(group("\x1b[31m", sample()),))
    assert "\x1b" not in text(usage_table.table(measure(evil, evil, {}), Display(wide=True)))


# the verb


@pytest.fixture
def seen(podslice, memory, files, monkeypatch):
    """A machine with a pod; what it uses is as above, and `asked` how often it was looked at."""
    files({"a.json": manifest("a")})
    assert podslice("apply", "-f", "a.json").code == 0
    asked = []

    def gather(*_, **more):
        asked.append(more["agent_group"])
        return BEFORE if len(asked) == 1 else NOW

    monkeypatch.setattr(stats, "read_stats", gather)
    return asked


def test_printing_once_takes_two_measurements(podslice, seen):
    ended = podslice("top", "--interval=100ms")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(head() + "\nNAME ")
    assert len(seen) == 2
    assert podslice("top", "--interval=100ms", "-o", "name").out == "default/a\ndefault/b\n"


def test_some_pods_are_shown(podslice, seen, memory):
    once = ("top", "--interval=100ms", "-o", "name")
    assert podslice(*once, "pod/a").out == "default/a\n"
    assert podslice(*once, "-n", "default").out == "default/a\ndefault/b\n"
    assert podslice(*once, "-n", "shop") == (0, "", "")
    assert podslice(*once, "--problems").out == ""
    (slice_,) = (name for name in podslice("status", "-o", "name").out.split() if "-pod" in name)
    asyncio.run(memory.stop(slice_))
    assert podslice(*once, "--problems").out == "default/a\n"
    message = "error: shop/a: no such pod; did you mean default/a?\n"
    assert podslice(*once, "a", "-n", "shop") == (2, "", message)


def test_a_snapshot_as_json_in_the_order_that_is_asked_for(podslice, seen):
    document = json.loads(
        podslice("top", "-b", "--interval=100ms", "--sort=memory", "-o", "json").out
    )
    assert document["version"] == 1
    assert [each["pod"] for each in document["pods"]] == ["default/b", "default/a"]


def test_each_measurement_is_a_line_until_the_reader_has_gone(podslice, seen, monkeypatch):
    printed = []

    def write(text):
        if len(printed) == 2:
            raise BrokenPipeError
        printed.append(json.loads(text))

    monkeypatch.setattr(top.sys, "stdout", SimpleNamespace(write=write, flush=lambda: None))
    assert podslice("top", "--follow", "--interval=100ms", "-o", "json").code == 0
    first, second = printed
    # the first one has no rates yet
    assert "cpu_milli" not in first["node"]
    assert second["node"]["cpu_milli"] == 1500
    assert [each["pod"] for each in second["pods"]] == ["default/a", "default/b"]


def test_a_missing_systemd_is_an_error(podslice, no_systemd):
    ended = podslice("top")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)


@pytest.fixture
def eyes(seen, tmp_path, here, memory):
    """What looks, in the machine of `seen`."""
    return lambda **more: top.UsageObserver(world(tmp_path / "none", memory, **more), PodFilter())


# not coroutines: the fixtures have run verbs, which leaves no event loop where pytest-asyncio is old
def test_a_lost_bus_is_reported_and_usage_is_still_shown(eyes, memory, monkeypatch):
    looking = eyes()
    first = asyncio.run(looking.observe())
    assert first.summary.problems == []

    async def refuse(*_):
        raise BusUnavailable("the bus is gone")

    monkeypatch.setattr(memory, "list_units", refuse)
    monkeypatch.setattr(memory, "observe", refuse)
    again = asyncio.run(looking.observe())
    assert again.summary.problems == ["units as of the last update: the bus is gone"]
    assert again.usage.node.cpu_milli == 1500


def test_a_bus_that_was_never_there_is_an_error(eyes, memory, monkeypatch):
    async def refuse(*_):
        raise HostError("no")

    monkeypatch.setattr(memory, "list_units", refuse)
    monkeypatch.setattr(memory, "observe", refuse)
    with pytest.raises(HostError):
        asyncio.run(eyes().observe())


def test_conditions_and_problems_of_the_agent_are_shown():
    agent = AgentState(
        pid=1,
        started_ticks=1,
        conditions=(Condition.MEMORY,),
        problems=(Problem(where="a.yaml", message="no"),),
    )
    gone = Eviction(pod="default/c", uid="c", digest="", signal="", message="", at_usec=0)
    allocation = SimpleNamespace(capacity={"cpu": 4000})
    state = SimpleNamespace(
        agent=agent, evicted=(gone,), desired=SimpleNamespace(allocation=allocation)
    )
    assert top.summarize_node(state, []) == NodeSummary(
        cpus_milli=4000,
        conditions=(Condition.MEMORY,),
        evicted=["default/c"],
        problems=["the agent has problems, see: podslice status"],
    )


def test_without_a_terminal_there_is_no_page(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert not is_interactive()
