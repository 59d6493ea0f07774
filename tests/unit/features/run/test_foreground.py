"""The parent of a command, tested with real processes and signals."""

import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases.tables import cases

pytestmark = pytest.mark.usefixtures("allow_effects")

SOURCE = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
PARENT = """\
import os, sys
from podslice.features.run.foreground import exit_like, fork
child = fork(lambda: os.execvp(sys.argv[1], sys.argv[1:]))
child.start()
sys.exit(exit_like(child.watch()))
"""


@pytest.fixture
def parent(tmp_path):
    """Start a parent with a shell as its child, in its own process group like a job."""
    started = []

    def start(script):
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT, "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
            cwd=tmp_path,
            env=SOURCE,
            preexec_fn=regard_signals,  # noqa: PLW1509 - there are no threads here
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def regard_signals():
    """Restore signals that are ignored where the tests run in the background."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def stopped_by(process):
    """Wait until the process stops; return the signal."""
    return os.waitid(os.P_PID, process.pid, os.WSTOPPED).si_status


@cases
def test_it_ends_as_its_child_does(parent, script, status):
    assert parent(script).wait() == status


def test_no_core_is_left(parent):
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    before = resource.prlimit(0, resource.RLIMIT_CORE, (most, most))
    try:
        process = parent("ulimit -c 0; kill -ABRT $$")
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    result = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert (result.si_code, result.si_status) == (os.CLD_KILLED, signal.SIGABRT)


def test_a_signal_reaches_the_child(parent):
    process = parent("trap 'echo stopped; exit 7' TERM; echo ready; read line")
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.stdout.readline() == "stopped\n"
    assert process.wait() == 7


def test_a_signal_to_the_parent_ends_the_child(parent):
    process = parent("echo ready; exec sleep 1000")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGTSTP])
def test_it_stops_with_its_child_and_continues_it(parent, number):
    process = parent("echo $$; read line; exit 5")
    child = int(process.stdout.readline())
    os.kill(child, number)
    assert stopped_by(process) == number
    process.send_signal(signal.SIGCONT)
    process.stdin.write("on\n")
    process.stdin.flush()
    assert process.wait() == 5


def test_a_child_that_is_not_to_start_does_nothing(tmp_path):
    script = f"""\
import os, signal
from podslice.features.run.foreground import fork
before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
fork(lambda: open({str(tmp_path / "made")!r}, "w")).abandon()
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=SOURCE)
    assert list(tmp_path.iterdir()) == []


def test_the_child_has_the_signals_as_they_were():
    """An ignored signal stays ignored, as with `nohup`; none is blocked."""
    script = """\
import os, signal
from podslice.features.run.foreground import fork
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
shown = "/^Sig(Blk|Ign|Cgt)/ {print $1, $2}"
child = fork(lambda: os.execvp("awk", ["awk", shown, "/proc/self/status"]))
child.start()
assert child.watch() == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, text=True, env=SOURCE
    )
    shown = dict(line.split(": ") for line in done.stdout.splitlines())
    ignored = {signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ}
    # more of them may be ignored where the tests run
    status = Path("/proc/self/status").read_text()
    own = dict(re.findall(r"^(Sig\w+):\s*(\w+)$", status, re.MULTILINE))
    expected = int(own["SigIgn"], 16) | sum(1 << (number - 1) for number in ignored)
    assert shown["SigBlk"] == own["SigBlk"]
    assert int(shown["SigIgn"], 16) == expected
