"""Standard streams that are closed, full or without a reader: one message and an exit code."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from podslice.cli.app import VERBS
from podslice.cli.arguments import BAD_INPUT, DIFFERENCES, DONE, FAILED
from podslice.cli.verbs import node
from podslice.model.unit import UnitName
from podslice.systemd import journal
from podslice.systemd.journal import Entry
from tests.unit.builders import manifest
from tests.unit.cli.pods import of_present_verbs

FULL = "error: standard output: no space left on device\n"
CLOSED = "error: standard output: it is closed\n"
NO_STDIN = "error: stdin: cannot be read: bad file descriptor\n"
ROOT = Path(__file__).resolve().parents[3]
ENTRY = Entry(
    time_usec=0,
    kind="pod-applied",
    level="info",
    pod="a/b",
    unit=None,
    message="done",
    fields={},
)

# each has something to print on a machine where web.json is applied
PRINTING = of_present_verbs(
    [
        ["--version"],
        ["--help"],
        ["check", "-f", "web.json"],
        ["check", "-f", "web.json", "-o", "json"],
        ["check", "-f", "web.json", "-o", "yaml"],
        ["check", "-f", "web.json", "-o", "name"],
        ["explain", "-f", "web.json"],
        ["explain", "-f", "web.json", "--diff-rules", "-o", "json"],
        ["render", "-f", "web.json"],
        ["render", "-f", "web.json", "--output-dir", "out"],
        ["node"],
        ["node", "init", "--dry-run"],
        ["plan", "-f", "web.json"],
        ["apply", "-f", "web.json"],
        ["status"],
        ["tree"],
        ["top", "--once", "--interval", "100ms"],
        ["events"],
        ["delete", "web"],
        ["cgroup-parent", "web"],
        ["import", "shop"],
        ["phase", "web"],
        ["doctor"],
    ]
)


@pytest.fixture
def web(podslice, files, memory, monkeypatch):
    files({"web.json": manifest("web", {"cpu": "1"})})
    assert podslice("apply", "-f", "web.json").code == DONE
    memory.provide_file(UnitName("shop.service"))
    monkeypatch.setattr(journal, "read_events", lambda *_, **__: iter([ENTRY]))


@pytest.fixture
def ended(main, capsys, monkeypatch):
    """Run the whole program with its output going to a descriptor; the exit code and stderr."""

    def call(file, *arguments):
        with os.fdopen(file, "w") as opened, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", opened)
            with pytest.raises(SystemExit) as done:
                main(*arguments)
        return done.value.code, capsys.readouterr().err

    return call


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_output_to_a_full_device_is_an_error(web, ended, arguments):
    code, message = ended(os.open("/dev/full", os.O_WRONLY), *arguments)
    assert (code, message[-len(FULL) :]) == (FAILED, FULL)
    assert "Traceback" not in message


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_closed_pipe_is_not_a_failure(web, ended, arguments):
    """The exit code is that of the verb: a failed apply has failed with any reader."""
    reader, writer = os.pipe()
    os.close(reader)
    code, message = ended(writer, *arguments)
    assert code in ((DONE, DIFFERENCES) if arguments == ["doctor"] else (DONE,))
    assert "rror" not in message


@pytest.mark.parametrize("format_", ["table", "json", "yaml"])
def test_a_pipe_closed_in_between_leaves_the_code_of_the_verb(ended, files, format_):
    """The output is larger than the buffer, so that it fails before the verb ends."""
    files({f"{number}.json": manifest(f"pod-{number}", {"cpu": "x"}) for number in range(99)})
    reader, writer = os.pipe()
    os.close(reader)
    assert ended(writer, "check", "-f", ".", "-o", format_)[0] == BAD_INPUT


def test_following_with_a_closed_pipe_is_not_a_failure(web, ended):
    reader, writer = os.pipe()
    os.close(reader)
    assert ended(writer, "events", "--follow") == (DONE, "")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if not verb.startswith("_")])
def test_help_to_a_full_device_is_an_error(ended, verb):
    assert ended(os.open("/dev/full", os.O_WRONLY), *verb.split(" "), "--help") == (FAILED, FULL)


def test_a_result_that_cannot_be_written_does_not_undo_it(web, ended, podslice):
    assert ended(os.open("/dev/full", os.O_WRONLY), "delete", "web") == (FAILED, FULL)
    assert podslice("status").out == "no pods\n"


def test_notes_to_a_full_device_change_nothing(main, monkeypatch, capsys):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        with pytest.raises(SystemExit) as done:
            main("plan", "-f", "nowhere.yaml")
        monkeypatch.undo()
    assert (done.value.code, capsys.readouterr().out) == (BAD_INPUT, "")


def test_a_pipe_that_does_not_block_gets_everything(ended, files):
    """A pipe of one page, which some parents share with a loop of their own."""
    files({f"{number}.json": manifest(f"pod-{number}") for number in range(100)})
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    parts = []

    def read():
        with os.fdopen(reader, "rb") as opened:
            parts.append(opened.read())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        code, message = ended(writer, "check", "-f", ".", "-o", "json")
    finally:
        thread.join()
    assert (code, message) == (DONE, "")
    assert parts[0].count(b'"valid": true') == 100


# Descriptors that are closed are those of a process.


def run_closed(redirections, *arguments):
    """Run an interpreter with what a shell does to its descriptors; return code, output and errors."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" {redirections}', sys.executable, "-P", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("limit", "redirections", "expect"),
    [
        (3, "<&-", (FAILED, "", "error: too many open files\n")),
        (2, "<&- 2>&-", (FAILED, "", "")),
    ],
)
def test_a_closed_stream_without_a_free_descriptor_is_an_error(
    allow_effects, limit, redirections, expect
):
    """The wrong end of a pipe takes the place of a closed stream, and a pipe has two ends."""
    script = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))"
    script += "; import podslice.__main__ as program; program.main()"
    assert run_closed(redirections, "-c", script, "--version") == expect


@pytest.mark.parametrize(
    ("redirections", "arguments", "expect"),
    [
        (">&-", ["--version"], (FAILED, "", CLOSED)),
        (">&-", ["check", "--help"], (FAILED, "", CLOSED)),
        ("<&- >&- 2>&-", ["--version"], (FAILED, "", "")),
        ("<&- 2>&-", ["bogus"], (BAD_INPUT, "", "")),
        ("<&-", ["delete", "-f", "-"], (BAD_INPUT, "", NO_STDIN)),
    ],
)
def test_closed_streams(allow_effects, redirections, arguments, expect):
    assert run_closed(redirections, "-m", "podslice", *arguments) == expect


def test_a_closed_stream_is_not_handed_to_the_next_file(allow_effects, tmp_path):
    """The lock or a socket as standard output would get the output, or be broken by it."""
    script = (
        "import os; from podslice.cli.streams import guard; guard();"
        f"number = os.open({str(tmp_path / 'lock')!r}, os.O_RDWR | os.O_CREAT);"
        "os.write(2, f'{number > 2} {os.get_inheritable(1)}'.encode())"
    )
    assert run_closed("<&- >&-", "-c", script) == (0, "", "True False")


# What the host is out of.


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(24, "Too many open files"), "error: too many open files\n"),
        (OSError(2, "No such file", "/gone"), "error: /gone: no such file\n"),
        (MemoryError(), "error: out of memory\n"),
    ],
)
def test_exhausted_resources_of_the_host_are_errors(podslice, monkeypatch, error, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(node, "load_node", fail)
    assert podslice("node") == (FAILED, "", message)


def test_a_removed_directory_is_an_error(podslice, web, monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ended = podslice("run", "web", "--detach", "--", "/bin/true")
    assert ended == (
        FAILED,
        "",
        "error: the current directory no longer exists; change to another one\n",
    )
