"""The last exit of a service in systemd's properties."""

import pytest

from podslice.model.container_exit import ContainerExit
from podslice.systemd.values import main_exit

TIMES = {"ExecMainStartTimestamp": 1_000, "ExecMainExitTimestamp": 3_000, "NRestarts": 2}


def exit_(**fields):
    return ContainerExit(started_usec=1_000, ended_usec=3_000, **fields)


@pytest.mark.parametrize(
    ("code", "status", "result", "expected"),
    [
        (0, 0, "success", None),
        (1, 0, "success", exit_(result="success", exit_code=0)),
        (1, 7, "exit-code", exit_(result="exit-code", exit_code=7)),
        (2, 15, "success", exit_(result="success", signal="SIGTERM")),
        (2, 9, "oom-kill", exit_(result="oom-kill", signal="SIGKILL", is_oom=True)),
        (3, 11, "core-dump", exit_(result="core-dump", signal="SIGSEGV")),
        (2, 37, "signal", exit_(result="signal", signal="SIGRTMIN+3")),
        (1, 7, "\x1b[2J", None),
    ],
)
def test_how_the_main_process_exited(code, status, result, expected):
    found = {"ExecMainCode": code, "ExecMainStatus": status, "Result": result, **TIMES}
    assert main_exit(found) == expected


INFINITY = 2**64 - 1
SIGKILL, SIGTERM = 9, 15


@pytest.mark.parametrize(
    ("signal", "status", "result", "counts", "expected"),
    [
        (2, SIGKILL, "signal", (0, 1), "oomd-kill"),
        (2, SIGKILL, "oom-kill", (0, 1), "oomd-kill"),
        (2, SIGKILL, "oom-kill", (1, 0), "oom-kill"),
        (2, SIGKILL, "signal", (2, 0), "oom-kill"),
        (2, SIGKILL, "signal", (0, 0), "signal"),
        (2, SIGKILL, "signal", (INFINITY, INFINITY), "signal"),
        (2, SIGKILL, "timeout", (1, 1), "timeout"),
        (2, SIGTERM, "signal", (1, 1), "signal"),
        (1, SIGKILL, "signal", (1, 1), "signal"),
        (1, 0, "oom-kill", (0, 1), "oomd-kill"),
    ],
)
def test_what_killed_a_service_is_known_where_systemd_counts(
    signal, status, result, counts, expected
):
    kills, managed = counts
    found = {"ExecMainCode": signal, "ExecMainStatus": status, "Result": result, **TIMES}
    last = main_exit({**found, "OOMKills": kills, "ManagedOOMKills": managed})
    assert (last.result, last.is_oom) == (expected, expected == "oom-kill")


def test_units_of_other_kinds_have_no_exit():
    assert main_exit({"Result": "success"}) is None
