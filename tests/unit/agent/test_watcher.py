import asyncio
import contextlib
import os

import pytest

from podslice.agent.watcher import Watcher, WatchEvents
from podslice.kernel.watch import Inotify
from podslice.model.unit import SYSTEM, UnitName, user_manager
from tests.unit.builders import make_files
from tests.unit.recorder import open_files

A, B = UnitName("kubepods-poda.slice"), UnitName("kubepods-podb.slice")
GROUPS = {A: f"/kubepods.slice/{A}", B: f"/kubepods.slice/{B}"}
CGROUP = "sys/fs/cgroup"
TRANSIENT = "run/systemd/transient"
GROUP_FILES = {"cpu.weight": "100\n", "memory.max": "max\n", "memory.events": "oom_kill 0\n"}


@pytest.fixture
def root(tmp_path):
    groups = {
        f"{CGROUP}{group}/{name}": text
        for group in GROUPS.values()
        for name, text in GROUP_FILES.items()
    }
    make_files(tmp_path, {f"{CGROUP}/cgroup.controllers": "cpu memory\n", **groups})
    for place in (TRANSIENT, "etc/podslice"):
        (tmp_path / place).mkdir(parents=True)
    return tmp_path


def open_watcher(calls, root, *, removed="manifests", complete="manifests"):
    """Watch; `removed` and `complete` are the reports about manifests."""
    return Watcher(
        ["/etc/podslice/manifests"],
        WatchEvents(
            on_manifests=calls.callback(removed),
            on_complete_manifests=calls.callback(complete),
            on_unit=calls.callback("unit"),
            on_memory_event=calls.callback("memory"),
            on_pressure=calls.callback("pressure"),
            on_exit_file=calls.callback("exit"),
        ),
        manager=SYSTEM,
        root=root,
    )


@pytest.fixture
async def watch(calls, root):
    with contextlib.closing(open_watcher(calls, root)) as opened:
        yield opened


async def so_far(calls, root):
    """Return the calls for units, once all events are handled."""
    calls.clear()
    (root / "etc/podslice/manifests").mkdir()
    await calls.until(lambda calls: ("manifests",) in calls)
    return [each for each in calls if each != ("manifests",)]


async def lose_events(monkeypatch):
    """Read the waiting events, and drop them."""
    read, is_read = os.read, asyncio.Event()

    def drop(descriptor, size):
        read(descriptor, size)
        is_read.set()
        return b""

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", drop)
        async with asyncio.timeout(10):
            await is_read.wait()


# Manifests.


@pytest.fixture
def manifests(root):
    path = root / "etc/podslice/manifests"
    path.mkdir()
    return path


def write(path):
    path.write_text("x")


def link(path):
    path.symlink_to("/etc/hostname")


def hard_link(path):
    path.hardlink_to(path.parent / "old.yaml")


def arrive(path):
    (path.parent.parent / "draft").write_text("x")
    (path.parent.parent / "draft").rename(path)


def remove(path):
    path.unlink()


def leave(path):
    path.rename(path.parent.parent / "away")


def close_to_all(path):
    path.chmod(0)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        *(("new.yaml", each) for each in (write, link, hard_link, arrive)),
        *(("old.yaml", each) for each in (remove, leave, close_to_all, write)),
    ],
)
async def test_a_changed_manifest_is_reported(manifests, watch, calls, file, change):
    (manifests / "old.yaml").write_text("x")
    await calls.until(len)
    calls.clear()
    change(manifests / file)
    await calls.until(len)
    assert set(calls) == {("manifests",)}


@pytest.fixture
async def watch_completeness(calls, root):
    """Watch, and distinguish the two reports about manifests."""
    with contextlib.closing(
        open_watcher(calls, root, removed="removed", complete="complete")
    ) as opened:
        yield opened


def replace(path):
    path.with_suffix(".yaml.new").write_text("y")
    path.with_suffix(".yaml.new").rename(path)


@pytest.mark.parametrize(
    ("change", "report"),
    [
        (write, "complete"),
        (replace, "complete"),
        (close_to_all, "complete"),
        (remove, "removed"),
        (leave, "removed"),
    ],
)
async def test_a_removal_may_be_a_part_of_a_replacement(
    manifests, watch_completeness, calls, change, report
):
    (manifests / "old.yaml").write_text("x")
    await calls.until(len)
    calls.clear()
    change(manifests / "old.yaml")
    await calls.until(len)
    assert set(calls) == {(report,)}


async def test_a_manifest_that_is_being_written_is_not_reported(manifests, watch, calls):
    with (manifests / "new.yaml").open("w") as file:
        file.write("half")
        file.flush()
        (manifests.parent.parent.parent / "run/systemd/transient/kubepods-poda.slice.d").mkdir()
        watch.follow(GROUPS)
        (manifests.parent.parent.parent / CGROUP / f"kubepods.slice/{A}/cpu.weight").write_text("5")
        await calls.until(len)
        assert calls == [("unit", A)]
    await calls.until(lambda calls: ("manifests",) in calls)


async def test_a_link_that_is_removed_at_once_is_reported_once(manifests, watch, calls):
    (manifests / "new.yaml").symlink_to("/etc/hostname")
    (manifests / "new.yaml").unlink()
    await calls.until(len)
    assert calls == [("manifests",)]


async def test_directories_of_manifests_may_change(manifests, watch, calls, root):
    other = root / "srv/pods"
    other.mkdir(parents=True)
    watch.set_directories(["/srv/pods"])
    (manifests / "a.yaml").write_text("x")
    (other / "b.yaml").write_text("x")
    await calls.until(len)
    assert calls == [("manifests",)]


async def test_an_unwatched_directory_is_noted(watch, root):
    (root / "loop").symlink_to("loop")
    watch.set_directories(["/loop"])
    assert watch.notes[0].startswith(f"cannot watch {root}/loop: Too many levels")


# Drop-ins.


async def test_drop_ins_of_set_property_are_reported(watch, calls, root):
    watch.follow(GROUPS)
    drop_ins = root / TRANSIENT / f"{A}.d"
    drop_ins.mkdir()
    await calls.until(len)
    assert calls == [("unit", A)]
    calls.clear()
    (drop_ins / "50-CPUWeight.conf").write_text("x")
    await calls.until(len)
    assert set(calls) == {("unit", A)}
    calls.clear()
    (drop_ins / "50-CPUWeight.conf").unlink()
    await calls.until(len)
    assert calls == [("unit", A)]


async def test_existing_drop_ins_are_watched(watch, calls, root):
    drop_ins = root / "etc/systemd/system.control" / f"{B}.d"
    drop_ins.mkdir(parents=True)
    watch.follow(GROUPS)
    (drop_ins / "50-CPUWeight.conf").write_text("x")
    await calls.until(len)
    assert set(calls) == {("unit", B)}


async def test_drop_ins_created_again_are_watched_once(watch, calls, root):
    watch.follow(GROUPS)
    drop_ins = root / TRANSIENT / f"{A}.d"
    for seen in (1, 3, 5):
        drop_ins.mkdir()
        await calls.until(lambda calls, seen=seen: len(calls) >= seen)
        drop_ins.rmdir()
        await calls.until(lambda calls, seen=seen: len(calls) >= seen + 1)
    assert set(calls) == {("unit", A)}
    drop_ins.mkdir()
    await calls.until(lambda calls: len(calls) == 7)
    (drop_ins / "50-CPUWeight.conf").write_text("x")
    assert await so_far(calls, root) == [("unit", A)]


async def test_drop_ins_of_other_units_are_ignored(watch, calls, root):
    watch.follow({A: GROUPS[A]})
    for name in (f"{B}.d", "cron.service.d", A):
        (root / TRANSIENT / name).mkdir()
    assert await so_far(calls, root) == []


# Control groups.


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("cpu.weight", "100", "7"),
        ("io.weight", "default 100", "default 7"),
        ("io.weight", "default 100", "default 100\n8:16 200"),
        ("io.max", "", "8:16 rbps=1048576 wbps=max riops=max wiops=max"),
        (
            "io.max",
            "8:16 rbps=1048576 wbps=max riops=max wiops=max",
            "8:16 rbps=1048576 wbps=max riops=max wiops=120",
        ),
        ("memory.zswap.max", "max", "0"),
    ],
)
async def test_an_externally_changed_limit_is_reported(watch, calls, root, file, before, after):
    path = root / CGROUP / f"kubepods.slice/{A}" / file
    path.write_text(f"{before}\n" if before else "")
    watch.follow(GROUPS)
    path.write_text(f"{after}\n")
    await calls.until(len)
    assert calls == [("unit", A)]


async def test_a_limit_written_unchanged_is_not_reported(watch, calls, root):
    """Systemd writes the limits of all siblings when it starts or stops a slice."""
    watch.follow(GROUPS)
    for group in GROUPS.values():
        (root / CGROUP / f"{group[1:]}/cpu.weight").write_text("100\n")
    (root / CGROUP / f"kubepods.slice/{B}/memory.max").write_text("4096\n")
    await calls.until(len)
    assert calls == [("unit", B)]


async def test_counters_of_the_kernel_are_not_changes(watch, calls, root):
    watch.follow(GROUPS)
    group = root / CGROUP / GROUPS[A][1:]
    for name in ("cgroup.procs", "pids.events", "memory.pressure", "memory.peak"):
        (group / name).write_text("1\n")
    (root / CGROUP / f"kubepods.slice/{B}/cpu.weight").write_text("7\n")
    await calls.until(len)
    assert calls == [("unit", B)]


async def test_a_changed_limit_of_huge_pages_is_reported(watch, calls, root):
    watch.follow(GROUPS)
    (root / CGROUP / f"kubepods.slice/{A}/hugetlb.2MB.max").write_text("0\n")
    await calls.until(len)
    assert set(calls) == {("unit", A)}


async def test_memory_events_are_reported_separately(watch, calls, root):
    watch.follow(GROUPS)
    (root / CGROUP / f"kubepods.slice/{A}/memory.events").write_text("oom_kill 1\n")
    await calls.until(len)
    assert calls == [("memory", A)]


async def test_a_group_created_again_is_watched_again(watch, calls, root):
    assert watch.follow(GROUPS) == {A, B}
    assert watch.follow(GROUPS) == frozenset()
    group = root / CGROUP / GROUPS[A][1:]
    for path in group.iterdir():
        path.unlink()
    group.rmdir()
    await calls.until(len)
    assert set(calls) == {("unit", A)}
    assert watch.follow(GROUPS) == frozenset(), "it is not there"
    make_files(group, GROUP_FILES)
    assert watch.follow(GROUPS) == {A}
    calls.clear()
    (group / "cpu.weight").write_text("7\n")
    (group / "memory.events").write_text("oom_kill 1\n")
    await calls.until(lambda calls: len(calls) == 2)
    assert set(calls) == {("unit", A), ("memory", A)}


async def test_a_unit_no_longer_followed_is_not_reported(watch, calls, root):
    watch.follow(GROUPS)
    (root / CGROUP / f"kubepods.slice/{A}/cpu.weight").write_text("7\n")
    watch.follow({B: GROUPS[B]})
    (root / TRANSIENT / f"{A}.d").mkdir()
    (root / CGROUP / f"kubepods.slice/{A}/memory.events").write_text("x")
    (root / CGROUP / f"kubepods.slice/{B}/cpu.weight").write_text("7\n")
    await calls.until(len)
    assert calls == [("unit", B)]


async def test_with_cgroup_v1_only_drop_ins_are_watched(watch, calls, root):
    (root / CGROUP / "cgroup.controllers").unlink()
    assert watch.follow(GROUPS) == {A, B}
    assert watch.follow(GROUPS) == frozenset()
    (root / CGROUP / f"kubepods.slice/{A}/cpu.weight").write_text("7\n")
    (root / TRANSIENT / f"{B}.d").mkdir()
    await calls.until(len)
    assert calls == [("unit", B)]


async def test_after_lost_events_everything_is_reported(watch, calls, root):
    watch.follow(GROUPS)
    watch.rescan()
    assert set(calls) == {("manifests",), ("unit", None), ("memory", A), ("memory", B)}


async def test_a_group_that_was_replaced_while_events_were_lost_is_watched(watch, calls, root):
    watch.follow(GROUPS)
    group = root / CGROUP / GROUPS[A].lstrip("/")
    group.rename(group.with_name("old"))
    make_files(group, GROUP_FILES)
    watch.rescan()
    calls.clear()
    (group / "memory.events").write_text("oom_kill 1\n")
    await calls.until(lambda calls: ("memory", A) in calls)


async def test_a_directory_of_manifests_that_was_mounted_over_is_read(
    watch, manifests, calls, monkeypatch
):
    await calls.until(len)
    manifests.rename(manifests.with_name("old"))
    manifests.mkdir()
    await lose_events(monkeypatch)  # mounts are not events of the directory
    calls.clear()
    watch.check_mounts()
    assert calls == [("manifests",)]
    (manifests / "a.yaml").write_text("x")
    watch.check_mounts()
    await calls.until(lambda calls: len(calls) > 1)
    assert set(calls) == {("manifests",)}


async def test_too_many_groups_are_noted(watch, root, monkeypatch):
    def refuse(_inotify, path, _mask, _on_event):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Inotify, "watch", refuse)
    assert watch.follow(GROUPS) == frozenset()
    assert (
        "cannot watch every control group: the limit of the kernel is reached"
        " (sysctl fs.inotify.max_user_watches)"
    ) in watch.notes


async def test_without_pressure_files_there_is_a_note(watch):
    assert watch.notes == (
        "the kernel does not report memory pressure: No such file or directory",
        "cannot watch mounts over manifest directories: No such file or directory",
    )


async def test_exits_of_containers_are_reported(calls, root, watch):
    make_files(root, {"run/libpod/exits/a1": "7"})
    await calls.until(lambda calls: calls)
    (root / "run/libpod/exits/new").write_text("8")
    (root / "run/libpod/exits/new").rename(root / "run/libpod/exits/b2")
    await calls.until(lambda calls: ("exit", "b2") in calls)


async def test_closing_leaves_no_open_files(calls, root):
    for path in (root / "proc/pressure/memory", root / "proc/self/mountinfo"):
        path.parent.mkdir(parents=True)
        os.mkfifo(path)
    before = open_files()
    opened = Watcher(
        ["/etc/podslice/manifests"],
        WatchEvents(
            on_manifests=calls.callback("manifests"),
            on_complete_manifests=calls.callback("manifests"),
            on_unit=calls.callback("unit"),
            on_memory_event=calls.callback("memory"),
            on_pressure=calls.callback("pressure"),
            on_exit_file=calls.callback("exit"),
        ),
        manager=user_manager(7, {}),
        root=root,
    )
    assert opened.notes == ()
    opened.follow(GROUPS)
    opened.rescan()
    (root / CGROUP / f"kubepods.slice/{A}/cpu.weight").write_text("7\n")
    await calls.until(lambda calls: ("unit", None) in calls)
    opened.close()
    assert open_files() == before
