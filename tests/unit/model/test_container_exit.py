"""How a container ended, and what is known of its starts."""

import pytest

from podslice.model.container_exit import (
    ATTENDED,
    ContainerExit,
    ContainerHistory,
    exit_of_runtime,
    exit_of_variables,
    signal_name,
)

START, END = 1_000, 4_000


def exit_(result, *, started_usec=START, ended_usec=END, **fields):
    return ContainerExit(result=result, started_usec=started_usec, ended_usec=ended_usec, **fields)


@pytest.mark.parametrize(
    ("end", "duration"), [(None, None), (END, 3_000), (START + 1, 1), (START, 0), (START - 1, 0)]
)
def test_the_duration_is_never_negative(end, duration):
    assert exit_("success", ended_usec=end).duration_usec == duration


@pytest.mark.parametrize("result", ["", "Success", "a b", "x" * 41, "\x1b[31m"])
def test_results_are_words_of_systemd(result):
    with pytest.raises(ValueError, match="is not the result"):
        exit_(result)


@pytest.mark.parametrize("signal", ["", "KILL", "SIG", "SIGkill", "SIG" + "A" * 21, "SIGA B"])
def test_signals_have_names(signal):
    with pytest.raises(ValueError, match="is not the name"):
        exit_("signal", signal=signal)


@pytest.mark.parametrize(
    ("result", "code", "status", "kills", "expected"),
    [
        ("success", "exited", "0", 0, exit_("success", exit_code=0)),
        ("success", "exited", "0", 1, exit_("success", exit_code=0)),
        ("exit-code", "exited", "7", 0, exit_("exit-code", exit_code=7)),
        ("exit-code", "exited", "1", 1, exit_("exit-code", exit_code=1, is_oom=True)),
        ("signal", "killed", "TERM", 0, exit_("signal", signal="SIGTERM")),
        ("signal", "killed", "KILL", 2, exit_("signal", signal="SIGKILL", is_oom=True)),
        ("core-dump", "dumped", "SEGV", 0, exit_("core-dump", signal="SIGSEGV")),
        ("oom-kill", "killed", "KILL", 0, exit_("oom-kill", signal="SIGKILL", is_oom=True)),
        ("signal", "killed", "RTMIN+3", 0, exit_("signal", signal="SIGRTMIN+3")),
    ],
)
def test_an_end_as_systemd_reports_it(result, code, status, kills, expected):
    variables = {"SERVICE_RESULT": result, "EXIT_CODE": code, "EXIT_STATUS": status}
    times = {"started_usec": START, "ended_usec": END}
    assert exit_of_variables(variables, oom_kills=kills, **times) == expected


def test_an_end_before_the_command_has_no_status():
    times = {"oom_kills": 0, "started_usec": START, "ended_usec": END}
    assert exit_of_variables({"SERVICE_RESULT": "resources"}, **times) == exit_("resources")
    with pytest.raises(KeyError):
        exit_of_variables({"EXIT_CODE": "exited", "EXIT_STATUS": "0"}, **times)
    with pytest.raises(ValueError, match="invalid literal"):
        exit_of_variables({"SERVICE_RESULT": "success", "EXIT_CODE": "exited"}, **times)


def test_a_container_without_processes_has_an_end():
    never = ContainerHistory(started_usec=START)
    assert (never.restarts, never.has_ended, never.exit_of(is_running=True)) == (0, False, None)
    assert never.exit_of(is_running=False) == exit_("unknown", ended_usec=None)
    earlier = exit_("success", started_usec=START - 1)
    again = ContainerHistory(started_usec=START, restarts=1, last_exit=earlier)
    assert (again.has_ended, again.exit_of(is_running=True)) == (False, earlier)
    assert again.exit_of(is_running=False) == exit_("unknown", ended_usec=None)
    ended = ContainerHistory(started_usec=START, last_exit=exit_("success"))
    assert ended.has_ended
    for is_running in (True, False):
        assert ended.exit_of(is_running=is_running) == exit_("success")


@pytest.mark.parametrize(
    ("end", "is_failure", "cause"),
    [
        (exit_("success", exit_code=0), False, "exit code 0"),
        (exit_("unknown"), False, ""),
        (exit_("exit-code", exit_code=7), True, "exit code 7"),
        (exit_("exit-code", exit_code=7, is_attended=True), False, "exit code 7"),
        (exit_("signal", signal="SIGSEGV"), True, "SIGSEGV"),
        (exit_("success", exit_code=0, is_oom=True), True, "an OOM kill"),
        (exit_("oom-kill", signal="SIGKILL", is_oom=True), True, "an OOM kill"),
        (exit_("oomd-kill", signal="SIGKILL"), True, "a kill by systemd-oomd"),
        (exit_("oomd-kill", is_attended=True), False, "a kill by systemd-oomd"),
    ],
)
def test_a_failure_and_its_cause(end, is_failure, cause):
    assert (end.is_failure, end.cause, end.is_oomd) == (
        is_failure,
        cause,
        end.result == "oomd-kill",
    )


@pytest.mark.parametrize(
    ("code", "is_oom", "expected"),
    [
        (None, False, None),
        (None, True, ("oom-kill", None)),
        (0, False, ("success", 0)),
        (137, False, ("success", 137)),
        (143, False, ("success", 143)),
        (137, True, ("oom-kill", 137)),
        (1, False, ("exit-code", 1)),
    ],
)
def test_an_end_as_a_runtime_reports_it(code, is_oom, expected):
    end = exit_of_runtime(code, is_oom=is_oom)
    if expected is None:
        assert end is None
    else:
        result, exit_code = expected
        made = ContainerExit(result=result, exit_code=exit_code, is_oom=is_oom, started_usec=0)
        assert end == made


def test_the_exit_of_a_command_in_the_foreground_has_a_caller():
    variables = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "1"}
    times = {"oom_kills": 0, "started_usec": START, "ended_usec": END}
    assert exit_of_variables({**variables, ATTENDED: "1"}, **times).is_attended
    assert not exit_of_variables(variables, **times).is_attended


@pytest.mark.parametrize(("number", "name"), [(15, "SIGTERM"), (37, "SIGRTMIN+3")])
def test_every_signal_has_a_name(number, name):
    assert signal_name(number) == name
