"""`delete`."""

import asyncio
import json

import pytest

from podslice.errors import Refused
from tests.unit.cli.pods import POD, lines


def test_delete_reports_stopped_units(podslice, web, memory):
    podslice("apply", "-f", web)
    assert podslice("delete", "shop/web") == (
        0,
        lines(
            f"stopped {POD}: pod shop/web is removed",
            "stopped kubepods-besteffort.slice: no pods remain",
            "stopped kubepods-burstable.slice: no pods remain",
            "stopped kubepods.slice: no pods remain",
            "4 done",
        ),
        "",
    )


@pytest.mark.parametrize(
    "arguments", [["web", "-n", "shop"], ["-f", "web.yaml"], ["--all"], ["shop/web", "--all"]]
)
def test_pods_are_named_in_several_ways(podslice, web, memory, arguments, here):
    podslice("apply", "-f", web)
    assert podslice("delete", *arguments).code == 0
    assert podslice("status").out == "no pods\n"
    assert not (here / "run-False").exists()


def test_delete_of_what_is_not_applied(podslice, web, memory):
    podslice("apply", "-f", web)
    assert podslice("delete", "nope", "shop/web", "\x1b[31m") == (
        1,
        stopped_everything(),
        (
            "error: pod default/\\x1b[31m is not applied; see: podslice status\n"
            "error: pod default/nope is not applied; see: podslice status\n"
        ),
    )


def stopped_everything():
    tiers = ("kubepods-besteffort.slice", "kubepods-burstable.slice", "kubepods.slice")
    return lines(
        f"stopped {POD}: pod shop/web is removed",
        *(f"stopped {name}: no pods remain" for name in tiers),
        "4 done",
    )


def test_delete_needs_pods(podslice, memory):
    message = "error: no pod specified; specify pods, -f FILE or --all\n"
    assert podslice("delete") == (2, "", message)
    assert not memory.calls


def test_delete_all_of_nothing(podslice, memory):
    assert podslice("delete", "--all") == (0, "nothing to do\n", "")


def test_delete_states_whether_it_changed_something(podslice, web, memory):
    podslice("apply", "-f", web)

    def changed():
        return json.loads(podslice("delete", "--all", "-o", "json").out)["changed"]

    units = (POD, "kubepods-besteffort.slice")
    for unit in units:
        memory.refuse(unit, Refused("access denied"))
    assert changed() is False
    for unit in units:
        memory.refuse(unit, None)
    assert [changed(), changed()] == [True, False]


def test_a_removed_record_is_a_change(podslice, web, memory):
    podslice("apply", "-f", web)
    asyncio.run(memory.stop("kubepods.slice"))
    document = json.loads(podslice("delete", "shop/web", "-o", "json").out)
    assert (document["changed"], document["steps"]) == (True, [])


def test_delete_reports_running_tasks(podslice, web, memory):
    podslice("apply", "-f", web)
    memory.set_tasks(POD, 2)
    assert f"stopped {POD} with its processes (2 tasks)" in podslice("delete", "--all").out


@pytest.mark.parametrize(
    ("arguments", "sec"),
    [((), ", up to 30 s"), (("--grace-period", "5"), ", up to 5 s"), (("--grace-period=0",), "")],
)
def test_waiting_for_processes_is_noted_beforehand(podslice, web, memory, arguments, sec):
    podslice("apply", "-f", web)
    memory.set_tasks(POD, 2)
    ended = podslice("delete", "shop/web", *arguments)
    assert (ended.code, ended.err) == (0, f"stopping 2 processes of pod shop/web{sec}\n")


@pytest.mark.parametrize("seconds", ["-1", "x", "1.5", "10000000"])
def test_a_grace_period_is_a_number_of_seconds(podslice, web, memory, seconds):
    ended = podslice("delete", "--all", f"--grace-period={seconds}")
    assert (ended.code, ended.out) == (2, "")
    assert "--grace-period" in ended.err
    assert not memory.calls


def test_delete_of_a_file_that_cannot_be_read_deletes_nothing(podslice, web, memory):
    podslice("apply", "-f", web)
    ended = podslice("delete", "-f", web, "-f", "gone.yaml")
    assert ended == (2, "", "error: gone.yaml: no such file or directory\n")
    assert POD in [unit.name for unit in asyncio.run(memory.observe(["kubepods*"]))]
