"""Runs of other programs: limits of time and output, and what is left of a program that exceeds one."""

import os
import resource
import select
import sys
import threading

import pytest

from podslice.errors import EXCERPT_MAX, excerpt
from podslice.kernel.programs import ERROR_BYTES_MAX, NoAnswerError, Program, run_program

pytestmark = pytest.mark.usefixtures("allow_effects")  # they start programs

ENDLESS = "import os\nwhile True: os.write({stream}, b'x' * 65536)"
"""A program that prints one line without end."""


def python(text):
    return (sys.executable, "-c", text)


def test_the_exit_code_and_both_outputs():
    ended = run_program(["sh", "-c", "echo out; echo err >&2; exit 3"], limit_sec=60)
    assert ended == (3, b"out\n", b"err\n")


def test_a_program_has_no_input_and_no_terminal():
    script = "read line; echo $?; ps -o sid= -p $$ >/dev/null; echo $$; cut -d' ' -f6 /proc/$$/stat"
    read, pid, session = run_program(["sh", "-c", script], limit_sec=60).out.split()
    assert read == b"1"
    assert pid == session


@pytest.mark.parametrize(
    ("stream", "limit_bytes", "shown"),
    [(1, 2**20, "1,024 KiB"), (2, 2**20, f"{ERROR_BYTES_MAX // 1024:,} KiB")],
    ids=["standard output", "standard error"],
)
def test_a_program_that_prints_without_end_is_killed_at_the_limit(stream, limit_bytes, shown):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(NoAnswerError) as caught:
        run_program(python(ENDLESS.format(stream=stream)), limit_sec=60, limit_bytes=limit_bytes)
    assert str(caught.value) == f"its output is longer than the limit of {shown}"
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 16 * 1024


def test_as_many_bytes_as_the_limit_are_read():
    script = "printf 12345678; printf 1234 >&2"
    assert run_program(["sh", "-c", script], limit_sec=60, limit_bytes=8).out == b"12345678"
    with pytest.raises(NoAnswerError):
        run_program(["sh", "-c", script], limit_sec=60, limit_bytes=7)


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000 & wait",
        "sleep 1000 & while :; do echo; done",
        "sleep 1000 & exit 0",  # a child keeps the output open
        "exec >&- 2>&-; sleep 1000",
    ],
)
def test_a_program_that_does_not_end(script):
    with pytest.raises(NoAnswerError, match=r"no answer in 0 s"):
        run_program(["sh", "-c", script], limit_sec=0.25)


def test_a_program_is_killed_with_its_process_group(tmp_path):
    """Once its result is not needed any longer, which also the interrupt of an async caller means."""
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    until, held = os.pipe()
    started = []

    def follow():
        started.extend(map(os.pidfd_open, map(int, pids.read_text().split())))
        os.close(held)

    thread = threading.Thread(target=follow)
    thread.start()
    script = f"sleep 1000 & echo $$ $! > {pids}; wait"
    with pytest.raises(NoAnswerError, match="interrupted"):
        run_program(["sh", "-c", script], limit_sec=1000, until=until)
    thread.join()
    os.close(until)
    assert len(started) == 2
    for descriptor in started:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(60_000)  # it has exited, or does so
        os.close(descriptor)


def test_a_program_that_is_not_installed():
    with pytest.raises(FileNotFoundError):
        run_program(["/nonexistent/podman"], limit_sec=60)


def test_lines():
    with Program(["printf", "a\\n\\nbc"]) as program:
        assert list(program.lines()) == [b"a", b"", b"bc"]
        assert program.wait() == 0


def test_a_line_without_an_end():
    reason = "a line of its output is longer"
    with (
        Program(python(ENDLESS.format(stream=1))) as program,
        pytest.raises(NoAnswerError, match=reason),
    ):
        list(program.lines(limit_bytes=2**20))


def test_many_messages_beside_the_lines_block_nothing():
    script = "import os\nfor _ in range(9): os.write(2, b'x' * 65536)\nprint('end')"
    with Program(python(script)) as program:
        assert list(program.lines()) == [b"end"]
        assert len(program.err) == 9 * 65536


def test_text_of_another_program_is_short_and_printable():
    assert excerpt("no \x1b right") == "no \\x1b right"
    assert excerpt("a" * EXCERPT_MAX) == "a" * EXCERPT_MAX
    assert excerpt("a" * 10_000_000) == "a" * EXCERPT_MAX + "…"
    assert len(excerpt("\x1b" * EXCERPT_MAX)) == EXCERPT_MAX + 1
