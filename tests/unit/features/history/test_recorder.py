"""The recorder of usage, on a simulated clock and simulated control groups."""

import asyncio
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from podslice.features.history import recorder as usage_recorder
from podslice.features.history.files import UsageFiles
from podslice.features.history.recommendation import only_amounts, recommend_pod, used_amounts
from podslice.features.history.recorder import UsageRecorder
from podslice.model.event import Kind
from podslice.model.resources import CPU, MEMORY
from podslice.model.unit import TransientUnit, UnitName, control_group_of
from podslice.reconcile.assess import Request
from tests.fake_systemd import FakeSystemd
from tests.unit import builders
from tests.unit.agent.fakes import end, make_context, reassess, until
from tests.unit.builders import burstable, config, decisions, make_files
from tests.unit.converged import apply

MI = 2**20
START_SEC = 1_700_006_400
DAY_MIN = 1440
STEP_MIN = 5
"""The time between two samples of a long run: that of each costs as much."""
POD, SCOPE = "kubepods-burstable-podweb.slice", "podslice-podweb-main.scope"
SYSTEM = UnitName("system.slice")


class Node:
    """A pod with one container, whose counters a test sets, and the recorder."""

    def __init__(self, tmp_path, **options):
        self.memory = FakeSystemd()
        self.directory = tmp_path / "usage"
        by = config(**{"usage_history": str(self.directory), **options})
        self.context = make_context(tmp_path, self.memory, by=by)
        self.files = UsageFiles(self.directory)
        self.mount = self.context.world.cgroups.mount
        self.now_sec = float(START_SEC)
        self.counters = {}
        self.written = {}
        make_files(self.mount, {"cgroup.controllers": "cpu memory\n"})
        self.restart()

    async def begin(self, *pods):
        world = self.context.world
        await apply(world, Request(candidates=decisions(*(pods or (burstable("web"),)))))
        await reassess(self.context)

    async def start_container(self):
        properties = {"PIDs": (7,), "Slice": POD}
        await self.memory.start(TransientUnit(name=SCOPE, properties=properties))
        await reassess(self.context)

    def restart(self):
        """Begin with another recorder, as after a restart of the agent."""
        self.recorder = UsageRecorder(
            self.context, wall=lambda: self.now_sec, monotonic=lambda: self.now_sec - START_SEC
        )

    def group_of(self, name):
        return f"{control_group_of(POD)}/{SCOPE}" if name == SCOPE else control_group_of(name)

    def use(self, name, **counters):
        """Set counters of a group, and write all of them."""
        known = self.counters.setdefault(
            name, {"usec": 0, "peak": 0, "used": 0, "cache": 0, "kills": 0}
        )
        known.update(counters)
        known["peak"] = max(known["peak"], known["used"] + known["cache"])
        waits = known.get("waits", (0, 0))
        line = "some avg10=0.00 avg60=0.00 avg300=0.00 total="
        files = {
            "cpu.stat": f"usage_usec {known['usec']}",
            "memory.current": f"{known['used'] + known['cache']}",
            "memory.peak": f"{known['peak']}",
            "memory.stat": f"anon 1\ninactive_file {known['cache']}",
            "memory.events": f"oom_kill {known['kills']}",
            "cpu.pressure": f"{line}{waits[0]}",
            "memory.pressure": f"{line}{waits[1]}",
        }
        group = self.mount / self.group_of(name).lstrip("/")
        group.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            if self.written.get((name, file)) != text:
                self.written[name, file] = text
                (group / file).write_text(f"{text}\n")

    def work(self, name, milli, minutes=1, **counters):
        """Use CPU for some minutes, with a sample after each."""
        for _ in range(minutes):
            usec = self.counters.get(name, {}).get("usec", 0)
            self.use(name, usec=usec + milli * 60_000, **counters)
            self.pass_minute()

    def pass_minute(self, minutes=1):
        self.now_sec += 60 * minutes
        self.sample()

    def sample(self):
        self.recorder.sample()

    def save(self):
        self.recorder.save()

    def history(self, key="default/web"):
        self.save()
        return self.files.read(self.files.pod_path(key))

    def memory_of(self, name=None):
        history = self.history()
        return (history.containers[name] if name else history.pod).memory

    def notes(self):
        return self.context.events.journal.texts(Kind.AGENT_NOTED)


@pytest.fixture
async def here(tmp_path):
    node = Node(tmp_path)
    await node.begin()
    return node


async def test_a_day_in_fast_motion(here):
    """A pod uses a CPU in 20 of 24 hours and half of one in the others, and more memory once."""
    await here.start_container()
    for name in (POD, SCOPE):
        here.use(name, used=50 * MI)
    here.sample()
    for minute in range(0, DAY_MIN, STEP_MIN):
        milli = 1000 if minute < 20 * 60 else 500
        for name in (POD, SCOPE):
            usec = here.counters[name]["usec"]
            here.use(
                name,
                usec=usec + milli * 60_000 * STEP_MIN,
                used=(100 if minute == 600 else 50) * MI,
            )
        here.pass_minute(STEP_MIN)
        if minute == 700:  # a restart loses one sample of the CPU
            here.recorder.save()
            here.restart()
    history = here.history()
    (decision,) = here.context.assessment.desired.pods
    found = recommend_pod("default/web", history, int(here.now_sec), decision=decision)
    assert history.pod.samples == DAY_MIN // STEP_MIN - 1
    for amounts in (found.amounts, *found.containers.values()):
        assert amounts.cpu_request.recommended == 1169
        assert amounts.memory_request.recommended == amounts.memory_limit.recommended
        assert amounts.memory_limit.recommended == 121 * MI * 1000
    assert here.context.recommended["default/web"] == only_amounts(found.amounts)
    assert found.sum_of_requests == {CPU: 1169, MEMORY: 121 * MI * 1000}
    # the first sample has no rate, and the last one begins the next quarter of an hour
    points = history.day.points
    assert [point.start_sec for point in points] == [
        START_SEC + 900 * number for number in range(1, 97)
    ]
    assert {point.cpu_milli for point in points} == {1000, 500}
    (most,) = (point for point in points if point.memory_bytes == 100 * MI)
    assert most.start_sec == START_SEC + 600 * 60


async def test_reserved_slices_have_a_history(here):
    here.use(SYSTEM, used=50 * MI)
    here.sample()
    here.work(SYSTEM, 1000, minutes=2)
    here.save()
    found = here.files.read(here.files.slice_path(SYSTEM))
    used = used_amounts(found.pod, int(here.now_sec), 0.99)
    assert (used.cpu_milli, used.cpu_peak_milli) == (1016, 1016)
    assert used.memory_bytes == used.memory_peak_bytes == 55256313


async def test_a_peak_between_two_samples_counts_without_cached_files(here):
    here.use(POD, used=50 * MI)
    here.sample()
    here.use(POD, used=50 * MI, cache=20 * MI, peak=320 * MI)
    here.pass_minute()
    assert here.memory_of().observed_bytes == 300 * MI
    here.use(POD, used=60 * MI, cache=300 * MI)  # reading files is not a peak
    here.pass_minute()
    assert here.memory_of().observed_bytes == 300 * MI


async def test_a_peak_counts_on_its_own_day_only(here):
    here.use(POD, used=200 * MI)
    here.sample()
    here.now_sec += 86_400
    here.use(POD, used=50 * MI)
    here.sample()
    assert here.memory_of().observed_bytes == 50 * MI


async def test_after_a_restart_the_earlier_peak_and_kills_are_known(here):
    here.use(POD, used=200 * MI, kills=2)
    here.sample()
    assert here.history().pod.oom_kills == 2
    here.now_sec += 86_400
    here.restart()
    here.context.recommended = {}
    here.use(POD, used=50 * MI)
    here.sample()
    # without waiting until histories are written
    assert here.context.recommended["default/web"].memory_request
    assert here.memory_of().observed_bytes == 50 * MI
    assert here.history().pod.oom_kills == 2


async def test_an_oom_kill_counts_as_more_than_the_peak(here):
    here.use(POD, used=300 * MI)
    here.sample()
    here.now_sec += 86_400
    here.use(POD, used=10 * MI, kills=1)
    here.sample()
    memory = here.memory_of()
    assert (memory.observed_bytes, memory.oom_bytes) == (300 * MI, 400 * MI)
    assert here.history().pod.oom_kills == 1


async def test_the_request_counts_after_an_oom_kill(here):
    here.use(POD, used=10 * MI, kills=1)
    here.sample()
    assert here.memory_of().oom_bytes == 356 * MI  # 256Mi and 100 MiB


async def test_a_new_group_of_the_same_name_begins_at_0(here):
    here.use(POD, usec=9_000_000, used=300 * MI, kills=3)
    here.sample()
    here.counters[POD]["peak"] = 0
    here.use(POD, usec=1_000_000, used=20 * MI, kills=1)
    here.pass_minute()
    history = here.history().pod
    assert (history.samples, history.oom_kills) == (0, 4)


async def test_a_container_keeps_its_history_while_it_does_not_run(here):
    await here.start_container()
    for name in (POD, SCOPE):
        here.use(name, used=50 * MI)
    here.sample()
    here.work(SCOPE, 100, minutes=2)
    shutil.rmtree(here.mount / here.group_of(SCOPE).lstrip("/"))
    here.written.clear()
    here.pass_minute()
    here.work(SCOPE, 100, minutes=2)
    assert here.history().containers["main"].samples == 3


async def test_after_eight_days_without_samples_a_history_begins_again(here):
    here.use(POD, used=200 * MI)
    here.sample()
    here.work(POD, 1000, minutes=2)
    here.now_sec += 8 * 86_400
    here.use(POD, used=50 * MI)
    here.work(POD, 100)
    history = here.history().pod
    assert (history.first_sec, history.samples) == (int(here.now_sec), 1)
    assert history.memory.finished.weights == {}


async def test_waits_are_sampled_every_ten_minutes(here):
    here.use(POD)
    here.sample()
    here.use(POD, waits=(60_000_000, 30_000_000))
    for _ in range(9):
        here.pass_minute()
    assert here.history().pod.waits.observed_sec == 0
    here.pass_minute()
    waits = here.history().pod.waits
    assert (waits.observed_sec, waits.cpu_sec, waits.memory_sec) == (600, 60, 30)


async def test_a_user_has_no_reserved_slices(here):
    here.context.world = replace(here.context.world, manager=builders.USER)
    here.use(SYSTEM)
    here.sample()
    here.save()
    assert not (here.directory / "slices").exists()


async def test_the_slices_are_those_of_the_configuration(tmp_path):
    node = Node(tmp_path, system_reserved_cgroup="/daemons.slice")
    await node.begin()
    node.use("daemons.slice")
    node.sample()
    node.save()
    assert {path.name for path in (node.directory / "slices").iterdir()} == {
        "daemons.slice",
        "podruntime.slice",
        "user.slice",
    }


async def test_a_damaged_file_is_reported_and_begun_again(here):
    path = here.files.pod_path("default/web")
    make_files(path.parent, {path.name: "{"})
    here.use(POD)
    here.sample()
    here.work(POD, 100)
    (note,) = here.notes()
    assert "pods/default/web: not a history of usage: " in note
    assert note.endswith("; a new history is begun")
    assert here.history().pod.samples == 1


async def test_a_failure_to_write_is_reported_once(here):
    here.use(POD)
    here.sample()
    here.directory.write_text("")
    here.save()
    here.save()
    (note,) = here.notes()
    assert note.startswith("the history of usage is not written: ")


async def test_the_history_of_a_removed_pod_is_kept_for_eight_days(here):
    here.use(POD)
    here.sample()
    here.save()
    assessment = here.context.assessment
    desired = replace(assessment.desired, pods=())
    here.context.assessment = replace(assessment, desired=desired)
    here.pass_minute()
    here.save()
    assert here.files.pods() == ("default/web",)
    before = here.files.pod_path("default/web").stat().st_mtime
    here.now_sec = before + 8 * 86_400
    here.save()
    assert here.files.pods() == ("default/web",)
    here.now_sec += 2
    here.save()
    assert here.files.pods() == ()


async def test_without_a_directory_nothing_is_recorded(tmp_path):
    node = Node(tmp_path, usage_history="")
    await node.begin()
    node.sample()
    node.save()
    assert not node.directory.exists()


async def test_a_reload_may_change_the_directory(here):
    here.use(POD)
    here.sample()
    other = here.directory.parent / "other"
    by = replace(here.context.world.config, usage_history=str(other))
    here.context.world = replace(here.context.world, config=by)
    here.sample()
    here.save()
    assert here.files.pods() == ("default/web",)
    assert UsageFiles(other).pods() == ("default/web",)


async def test_the_kills_that_another_directory_has_do_not_count_again(here):
    here.use(POD, used=50 * MI, kills=2)
    here.sample()
    here.save()
    config_here = here.context.world.config
    for directory in ("", str(here.directory)):
        by = replace(config_here, usage_history=directory)
        here.context.world = replace(here.context.world, config=by)
        here.sample()
        assert here.context.recommended.keys() == ({"default/web"} if directory else set())
    assert here.history().pod.oom_kills == 2


async def test_it_waits_for_the_first_round_and_then_samples_each_minute(here, monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        here.now_sec += seconds
        await asyncio.sleep(0)

    monkeypatch.setattr(usage_recorder, "asyncio", SimpleNamespace(sleep=sleep))
    assessment, here.context.assessment = here.context.assessment, None
    here.use(POD)
    task = asyncio.create_task(here.recorder.run())
    await until(lambda: slept[:2] == [1.0, 1.0])
    here.context.assessment = assessment
    await until(lambda: slept[-15:].count(60.0) > 10 and here.files.pods())
    await end(task)
    assert set(slept) == {1.0, 60.0}


async def test_an_agent_that_records_nothing_wakes_up_once_a_minute(tmp_path, monkeypatch):
    node, slept = Node(tmp_path, usage_history=""), []
    await node.begin()

    async def sleep(seconds):
        slept.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(usage_recorder, "asyncio", SimpleNamespace(sleep=sleep))
    task = asyncio.create_task(node.recorder.run())
    await until(lambda: len(slept) > 2)
    await end(task)
    assert set(slept) == {60.0}
