"""Find a command, prepare its environment, and execute it."""

import os
import re
import signal
import sys

import pytest

from podslice.errors import InputError
from podslice.kernel import programs
from podslice.kernel.programs import (
    Invocation,
    NotRunnable,
    become,
    find_command,
    given_environment,
    set_oom_score_adj,
    stated_variables,
)
from tests.cases.tables import cases


def make_file(path, *, executable=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755 if executable else 0o644)
    return path


def test_a_command_is_found_in_path_and_files_that_are_not_executable_are_ignored(tmp_path):
    make_file(tmp_path / "a/tool", executable=False)
    found = make_file(tmp_path / "b/tool")
    make_file(tmp_path / "c/tool")
    search = ":".join(str(tmp_path / name) for name in ("none", "a", "b", "c"))
    assert find_command("tool", search) == str(found)


def test_a_name_with_a_slash_is_a_file_of_the_current_directory(tmp_path, monkeypatch):
    make_file(tmp_path / "b/tool")
    monkeypatch.chdir(tmp_path)
    assert find_command("b/tool", "/nowhere") == "b/tool"
    assert find_command("tool", f":{tmp_path}/b") == f"{tmp_path}/b/tool"


def test_an_empty_part_of_path_is_the_current_directory(tmp_path, monkeypatch):
    make_file(tmp_path / "tool")
    monkeypatch.chdir(tmp_path)
    assert find_command("tool", "/nowhere:") == "tool"


@cases
def test_commands_that_can_not_run_have_the_exit_codes_of_shells(
    tmp_path, monkeypatch, name, code, message
):
    make_file(tmp_path / "plain", executable=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotRunnable, match=re.escape(message)) as raised:
        find_command(name, str(tmp_path))
    assert raised.value.exit_code == code


def test_variables_are_stated_or_taken_from_here():
    stated = stated_variables(["A=1", "B=x=y", "C=", "HOME"], {"HOME": "/root", "A": "2"})
    assert stated == {"A": "1", "B": "x=y", "C": "", "HOME": "/root"}


def test_all_variables_without_a_name_or_a_value_are_reported():
    with pytest.raises(InputError) as raised:
        stated_variables(["=1", "NONE", "A=1"], {})
    assert [str(problem) for problem in raised.value.problems] == [
        "--env: '=1' has no name; write NAME=VALUE",
        "--env: NONE is not set here; write NONE=VALUE",
    ]


def test_the_locale_that_python_sets_for_itself_is_not_handed_on(monkeypatch):
    monkeypatch.delenv("LC_CTYPE", raising=False)
    monkeypatch.setenv("SOMETHING", "else")
    before = given_environment()
    assert before["SOMETHING"] == "else"
    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")  # not in what this process was started with
    assert given_environment() == before


def test_the_oom_score_is_set_or_the_error_returned(tmp_path):
    file = tmp_path / "oom_score_adj"
    file.write_text("-1000\n")
    assert set_oom_score_adj(-997, file) == ""
    assert file.read_text() == "-997"
    assert set_oom_score_adj(3, tmp_path) == (
        "oom_score_adj remains unchanged instead of 3: Is a directory"
    )


@pytest.fixture
def dispositions():
    before = {number: signal.getsignal(number) for number in programs.CHANGED_BY_PYTHON}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@cases
def test_refusals_of_the_kernel_are_errors(
    tmp_path, allow_effects, dispositions, text, code, message
):  # nothing but a real exec finds this
    file = make_file(tmp_path / "tool")
    file.write_text(text)
    command = Invocation(file=str(file), arguments=("tool",), environment={})
    with pytest.raises(NotRunnable, match=re.escape(f"{file}: {message}")) as raised:
        become(command)
    assert raised.value.exit_code == code


def test_signals_that_python_ignores_are_as_they_were_for_the_command(monkeypatch, dispositions):
    seen = {}

    def execve(file, arguments, environment):
        seen.update({number: signal.getsignal(number) for number in programs.CHANGED_BY_PYTHON})
        seen["call"] = (file, arguments, environment)
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(os, "execve", execve)
    with pytest.raises(NotRunnable):
        become(Invocation(file=sys.executable, arguments=("python", "-V"), environment={"A": "1"}))
    assert seen == {
        signal.SIGPIPE: signal.SIG_DFL,
        signal.SIGXFSZ: signal.SIG_DFL,
        "call": (sys.executable, ("python", "-V"), {"A": "1"}),
    }
