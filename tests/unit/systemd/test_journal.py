"""What the journal gets, and what becomes of events when it does not listen."""

import array
import fcntl
import os
import pty
import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from podslice.model.event import Event, Kind
from podslice.systemd.journal import Journal
from tests.unit.builders import USER

pytestmark = pytest.mark.usefixtures("allow_effects")  # the journal is a socket in tmp_path

EVICTED = Event(
    kind=Kind.POD_EVICTED,
    message="memory.available was 90Mi, below 100Mi",
    pod="default/web",
    unit="kubepods-podweb.slice",
    fields={"SIGNAL": "memory.available"},
)
STARTED = Event(kind=Kind.AGENT_STARTED, message="it runs")


class Listener:
    """A journal: reads the protocol as its specification has it."""

    def __init__(self, path):
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(0)

    def read(self):
        data, rights, _, _ = self.socket.recvmsg(1 << 20, 64)
        for _, _, payload in rights:
            (fd,) = array.array("i", payload)
            assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE
            data += os.pread(fd, 1 << 25, 0)
            os.close(fd)
        return dict(fields(data))


def fields(data):
    while data:
        line, _, data = data.partition(b"\n")
        name, is_short, value = line.partition(b"=")
        if not is_short:
            size = int.from_bytes(data[:8], "little")
            value, end, data = data[8 : 8 + size], data[8 + size : 9 + size], data[9 + size :]
            assert end == b"\n"
        yield name.decode(), value.decode()


@pytest.fixture
def listener(tmp_path):
    made = Listener(tmp_path / "socket")
    yield made
    made.socket.close()


@pytest.fixture
def stderr(tmp_path):
    """A file for stderr: its descriptor, and what is in it."""
    path = tmp_path / "stderr"
    with path.open("wb", buffering=0) as file:
        yield file.fileno(), path.read_text


@pytest.fixture
def make(tmp_path, stderr):
    """Makes journals that talk to tmp_path/socket, and closes them."""
    with ExitStack() as stack:

        def make(**more):
            given = {"path": str(tmp_path / "socket"), "stderr": stderr[0], **more}
            return stack.enter_context(closing(Journal(**given)))

        yield make


@pytest.fixture
def journal(listener, make):
    return make()


def test_an_event_is_a_message_with_fields(journal, listener, stderr):
    journal.log(EVICTED)
    assert listener.read() == {
        "MESSAGE": "memory.available was 90Mi, below 100Mi",
        "MESSAGE_ID": "815db5d7a155f3a6ef60f595a667c234",
        "PRIORITY": "4",
        "PODSLICE_EVENT": "pod-evicted",
        "PODSLICE_SIGNAL": "memory.available",
        "PODSLICE_POD": "default/web",
        "PODSLICE_UNIT": "kubepods-podweb.slice",
        "OBJECT_SYSTEMD_UNIT": "kubepods-podweb.slice",
        "SYSLOG_IDENTIFIER": "podslice",
    }
    assert stderr[1]() == ""


def test_of_a_users_manager_it_is_about_a_users_unit(listener, make):
    make(manager=USER).log(EVICTED)
    assert listener.read()["OBJECT_SYSTEMD_USER_UNIT"] == EVICTED.unit


@pytest.mark.parametrize(
    ("message", "arrives"),
    [
        ("two\nlines", "two\nlines"),
        ("\nMESSAGE_ID=forged\n", "\nMESSAGE_ID=forged\n"),
        ("\0 and \x1b[31m, ä", "\0 and \x1b[31m, ä"),
        ("a name that is not text: \udcff", "a name that is not text: \\udcff"),
        ("", ""),
        ("x" * 5_000_000, "x" * 5_000_000),
    ],
    ids=["lines", "forged", "controls", "surrogate", "empty", "large"],
)
def test_any_value_arrives_complete(journal, listener, message, arrives):
    journal.log(Event(kind=Kind.STEP_FAILED, message=message))
    logged = listener.read()
    assert logged["MESSAGE"] == arrives
    assert logged["MESSAGE_ID"] == Kind.STEP_FAILED.message_id


def descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_no_descriptor_is_left_behind(journal, listener):
    before = descriptors()
    journal.log(Event(kind=Kind.STEP_FAILED, message="x" * 5_000_000))
    listener.read()
    assert descriptors() == before


def test_events_are_counted_by_kind(journal):
    for event in (EVICTED, STARTED, EVICTED):
        journal.log(event)
    assert journal.counts == {Kind.POD_EVICTED: 2, Kind.AGENT_STARTED: 1}


def messages(listener):
    while True:
        try:
            yield listener.read()["MESSAGE"]
        except BlockingIOError:
            return


def test_a_busy_journal_does_not_block_and_gets_all_in_order(journal, listener, stderr):
    names = [str(number) for number in range(900)]
    for name in names:
        journal.log(Event(kind=Kind.POD_CHANGED, message=name))
    heard = []
    while len(heard) < len(names):
        heard += messages(listener)
        journal.log(STARTED)
    assert [name for name in heard if name != STARTED.message] == names
    assert stderr[1]() == ""


def test_of_a_journal_that_hears_nothing_only_the_latest_are_kept(journal, listener):
    for number in range(5000):
        journal.log(Event(kind=Kind.POD_CHANGED, message=str(number)))
    heard = list(messages(listener))
    while heard[-1] != STARTED.message:
        journal.log(STARTED)
        heard += messages(listener)
    assert "4999" in heard
    assert len(heard) < 3000


def test_a_program_with_output_of_its_own_prints_no_events(make, stderr, listener):
    """It waits for a busy journal instead: everything arrives."""
    count = 300
    found = []

    def read():
        listener.socket.settimeout(None)
        found.extend(listener.read()["MESSAGE"] for _ in range(count))

    reader = threading.Thread(target=read)
    journal = make(path=listener.path, patience_sec=5)
    reader.start()
    for number in range(count):
        journal.log(Event(kind=Kind.POD_APPLIED, message=str(number)))
    reader.join()
    assert found == list(map(str, range(count)))
    listener.socket.close()
    journal.log(STARTED)
    assert stderr[1]() == ""


def test_without_a_journal_there_is_a_line_on_stderr(make, stderr):
    journal = make()
    journal.log(EVICTED)
    journal.log(STARTED)
    journal.log(Event(kind=Kind.STEP_FAILED, unit="a.slice", message="\x1b[31m\n" + "x" * 9999))
    first, second, third = stderr[1]().splitlines()
    assert first == "pod-evicted: default/web: memory.available was 90Mi, below 100Mi"
    assert second == "agent-started: it runs"
    assert third.startswith("step-failed: a.slice: \\x1b[31m\\nxxx")
    assert len(third) < 4096


def test_a_line_has_the_name_of_a_pod_once(make, stderr):
    text = "default/web: MemoryMax=64Mi set"
    make().log(Event(kind=Kind.LEVEL_APPLIED, pod="default/web", message=text))
    assert stderr[1]() == f"pod-level-applied: {text}\n"


def test_a_restarted_journal_gets_events_again(make, tmp_path, stderr):
    journal = make()
    journal.log(EVICTED)
    journal.log(STARTED)
    returned = Listener(tmp_path / "socket")
    journal.log(EVICTED)
    assert list(messages(returned)) == [EVICTED.message]
    assert stderr[1]().count("\n") == 2
    returned.socket.close()


def test_on_a_terminal_events_are_printed_too(listener, make):
    terminal, stderr = pty.openpty()
    make(stderr=stderr).log(STARTED)
    assert os.read(terminal, 1000) == b"agent-started: it runs\r\n"
    assert listener.read()["MESSAGE"] == "it runs"
    os.close(terminal)
    os.close(stderr)


def test_a_stopped_terminal_does_not_block(make):
    reader, writer = os.pipe()
    journal = make(stderr=writer)
    for _ in range(10_000):
        journal.log(EVICTED)
    os.close(reader)
    journal.log(EVICTED)
    os.close(writer)
    journal.log(EVICTED)
    assert journal.counts[Kind.POD_EVICTED] == 10_002
