"""Processes in /proc: invented ones, and this one."""

import os

import pytest

from podslice.kernel.proc import (
    PidFd,
    Process,
    ancestors,
    children,
    parse_control_group,
    printable,
    process_name,
    read_login_uid,
    read_process,
    set_oom_score_adj,
)
from tests.cases.tables import cases
from tests.unit.builders import make_files
from tests.unit.usage.invented import DELEGATED, hostile_groups, processes

KERNEL_THREAD = 0x00200000


def test_a_process_is_read(tmp_path):
    make_files(
        tmp_path,
        processes({"pid": 7, "name": "nginx", "parent": 1, "group": "/a.slice/b.scope", "uid": 33}),
    )
    assert read_process(7, tmp_path) == Process(
        pid=7,
        name="nginx",
        parent=1,
        state="S",
        is_kernel_thread=False,
        started_ticks=107,
        control_group="/a.slice/b.scope",
        leader=7,
        uid=33,
    )


def test_kernel_threads_zombies_and_threads_are_distinguished(tmp_path):
    make_files(
        tmp_path,
        processes(
            {"pid": 2, "name": "kthreadd", "flags": KERNEL_THREAD},
            {"pid": 8, "state": "Z"},
            {"pid": 9, "leader": 7},
        ),
    )
    assert read_process(2, tmp_path).is_kernel_thread
    assert read_process(8, tmp_path).state == "Z"
    assert read_process(9, tmp_path).leader == 7


def test_there_is_no_process_where_there_is_none(tmp_path):
    assert read_process(7, tmp_path) is None
    assert process_name(7, tmp_path) == "?"
    assert children(7, tmp_path) == ()
    assert list(ancestors(7, tmp_path)) == []


@pytest.mark.parametrize("name", ["a) S 1", "((", "", "a b\tc"])
def test_names_may_hold_anything(tmp_path, name):
    make_files(tmp_path, processes({"pid": 7, "name": name, "parent": 4}))
    read = read_process(7, tmp_path)
    assert (read.parent, read.name) == (4, printable(name))


def test_names_can_not_reach_the_terminal_raw(tmp_path):
    make_files(tmp_path, processes({"pid": 7, "name": "\x1b[31m\u202e\n"}))
    assert process_name(7, tmp_path) == read_process(7, tmp_path).name == "\\x1b[31m\\u202e\\n"


def test_a_control_group_that_is_not_text_is_kept_as_it_is(tmp_path):
    make_files(tmp_path, processes({"pid": 7}))
    (tmp_path / "proc/7/cgroup").write_bytes(b"0::/a/\xff\n")
    group = read_process(7, tmp_path).control_group
    assert os.fsencode(group) == b"/a/\xff"
    assert printable(group) == "/a/\\udcff"


@cases
def test_control_groups_are_those_of_systemd(text, group):
    """Source: cgroups(7), "/proc/pid/cgroup"."""
    assert parse_control_group(text) == group


@pytest.mark.parametrize("group", hostile_groups("/kubepods.slice/kubepods-podweb.slice"))
def test_a_control_group_is_read_as_it_is_named(tmp_path, group):
    make_files(tmp_path, processes({"pid": 7, "group": group}))
    assert read_process(7, tmp_path).control_group == group
    assert parse_control_group(f"0::/other\n1:name=systemd:{group}\n") == group


@pytest.mark.parametrize(
    ("state", "group"), [("S", f"{DELEGATED}/x (deleted)"), ("Z", f"{DELEGATED}/x")]
)
def test_only_the_group_of_a_terminated_process_is_marked_as_deleted(tmp_path, state, group):
    """Source: Linux, kernel/cgroup/cgroup.c, proc_cgroup_show."""
    named = f"{DELEGATED}/x (deleted)"
    make_files(tmp_path, processes({"pid": 7, "state": state, "group": named}))
    assert read_process(7, tmp_path).control_group == group


@pytest.mark.parametrize("name", ["\fUid:\t0", "\x1cTgid:\t1", "\x85Uid:"])
def test_a_name_forges_no_line(tmp_path, name):
    make_files(tmp_path, processes({"pid": 7, "name": name, "uid": 1000}))
    # of two lines with one key the last counts
    (tmp_path / "proc/7/status").write_text(f"Uid:\t1000\t0\t0\t0\nTgid:\t7\nName:\t{name}\n")
    read = read_process(7, tmp_path)
    assert (read.uid, read.leader) == (1000, 7)


def test_ancestors_reach_up_to_the_first(tmp_path):
    make_files(
        tmp_path,
        processes(
            {"pid": 1, "parent": 0}, {"pid": 5, "parent": 1}, {"pid": 6, "parent": 5}, {"pid": 7}
        ),
    )
    assert list(ancestors(6, tmp_path)) == [5, 1]
    assert list(ancestors(1, tmp_path)) == []


def test_ancestors_end_where_ids_have_come_around(tmp_path):
    """A parent that has ended may have left its id to a descendant."""
    make_files(tmp_path, processes({"pid": 5, "parent": 6}, {"pid": 6, "parent": 5}))
    assert list(ancestors(5, tmp_path)) == [6]


def test_children_are_those_of_every_thread(tmp_path):
    make_files(tmp_path, processes({"pid": 7}))
    make_files(tmp_path, {"proc/7/task/7/children": "12 9 ", "proc/7/task/8/children": "30"})
    (tmp_path / "proc/7/task/31").mkdir()  # has just ended
    assert children(7, tmp_path) == (9, 12, 30)


def test_the_oom_score_is_written(tmp_path):
    make_files(tmp_path, processes({"pid": 7}))
    set_oom_score_adj(7, -997, tmp_path)
    assert (tmp_path / "proc/7/oom_score_adj").read_text() == "-997"


def test_this_process_is_one():
    me = read_process(os.getpid())
    assert (me.pid, me.leader, me.uid) == (os.getpid(), os.getpid(), os.getuid())
    assert me.parent == os.getppid()
    assert me.parent in {0, *ancestors(os.getpid())}
    assert not me.is_kernel_thread


def test_a_descriptor_reports_that_its_process_has_terminated(allow_effects):
    """Needs a process to end."""
    child = os.fork()
    if not child:
        os._exit(0)
    handle = PidFd(child)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert handle.has_ended  # though its id is still taken
    os.waitpid(child, 0)
    assert handle.has_ended
    handle.close()
    mine = PidFd(os.getpid())
    assert not mine.has_ended
    mine.close()


def test_there_is_no_descriptor_without_a_process():
    with pytest.raises(ProcessLookupError):
        PidFd(2**22 + 1)


@pytest.mark.parametrize(
    ("text", "uid"),
    [("1000\n", 1000), ("0\n", 0), ("4294967295\n", None), ("", None), (None, None)],
)
def test_the_user_of_the_login(tmp_path, text, uid):
    make_files(tmp_path, {} if text is None else {"proc/self/loginuid": text})
    assert read_login_uid(tmp_path) == uid
