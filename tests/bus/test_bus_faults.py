"""What goes wrong on a bus: on a scripted one where that can't be provoked otherwise, else for real."""

import asyncio
import contextlib
import gc
import io
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import pytest
from dbus_next._private.marshaller import Marshaller
from dbus_next._private.unmarshaller import Unmarshaller
from dbus_next.signature import Variant

from podslice.errors import (
    BadProperty,
    BusUnavailable,
    CallTimeout,
    JobFailed,
    NoSuchUnit,
    Refused,
    SystemdError,
    UnitExists,
)
from podslice.model.manager import Manager
from podslice.model.properties import PROPERTIES, Property
from podslice.model.unit import TransientUnit, UnitName
from podslice.systemd.bus import Bus
from podslice.systemd.bus_errors import error_of
from podslice.systemd.dbus import connection, wire
from podslice.systemd.dbus.connection import Connection, Peer
from podslice.systemd.manager_calls import is_as_requested
from tests.lab.machine import Machine
from tests.lab.paths import source_dir

METHOD_RETURN = 2
BUS = "org.freedesktop.DBus"
OWNER = ":1.1"
NAME = UnitName("podslicetest.slice")
SCOPE = UnitName("a.scope")
JOB = "/org/freedesktop/systemd1/job/7"
UNIT = TransientUnit(name=NAME, properties={"CPUWeight": 5})
TIMER = (
    TransientUnit(name=UnitName("a.timer"), properties={"TimersMonotonic": (("OnActiveSec", 5),)}),
    TransientUnit(
        name=UnitName("a.service"),
        properties={"Type": "oneshot", "ExecStart": (("/bin/true", ("true",), False),)},
    ),
)

TRANSIENT = {
    "LoadState": Variant("s", "loaded"),
    "ActiveState": Variant("s", "active"),
    "FragmentPath": Variant("s", f"/run/systemd/transient/{NAME}"),
    "Transient": Variant("b", True),
    "Perpetual": Variant("b", False),
}
"""What every transient unit answers."""

# the head of the field that tells how many descriptors a message has
UNIX_FDS = b"\x09\x01u\0"

FIELDS = {"path": (1, "o"), "interface": (2, "s"), "member": (3, "s"), "error_name": (4, "s")}
FIELDS |= {"reply_serial": (5, "u"), "sender": (7, "s"), "signature": (8, "g")}


def encode(kind: int, signature: str = "", body: tuple[Any, ...] = (), **header: Any) -> bytes:
    """A message as a bus delivers it: with its sender."""
    content = Marshaller(signature, list(body)).marshall()
    header["signature"] = signature
    fields = [[FIELDS[key][0], Variant(FIELDS[key][1], value)] for key, value in header.items()]
    prefix = Marshaller("yyyyuua(yv)", [ord("l"), kind, 0, 1, len(content), 1, fields])
    start = prefix.marshall()
    return bytes(start + bytes(-len(start) % 8) + content)


class Caller:
    """One client of the scripted bus, as a script sees it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    def reply(self, call: wire.Received, signature: str = "", *body: Any, **header: Any) -> None:
        """Answer a call, as the owner of systemd's name unless `sender` says otherwise."""
        header = {"sender": OWNER, "reply_serial": serial_of(call), **header}
        self.writer.write(encode(METHOD_RETURN, signature, body, **header))

    def refuse(
        self, call: wire.Received, error_name: str, text: str = "words", *, sender: str = OWNER
    ) -> None:
        header = {"error_name": error_name, "reply_serial": serial_of(call), "sender": sender}
        self.writer.write(encode(wire.ERROR, "s", (text,), **header))

    def job_removed(self, result: str, *, sender: str = OWNER, job: str = JOB) -> None:
        self.manager_signal("JobRemoved", "uoss", 7, job, NAME, result, sender=sender)

    def manager_signal(self, member: str, signature: str, *body: Any, sender: str = OWNER) -> None:
        header = {"path": "/org/freedesktop/systemd1", "member": member, "sender": sender}
        header["interface"] = "org.freedesktop.systemd1.Manager"
        self.writer.write(encode(wire.SIGNAL, signature, body, **header))

    def owner_changed(self, before: str, after: str) -> None:
        header = {"path": "/org/freedesktop/DBus", "member": "NameOwnerChanged", "sender": BUS}
        body = ("org.freedesktop.systemd1", before, after)
        self.writer.write(encode(wire.SIGNAL, "sss", body, interface=BUS, **header))


Script = Callable[[Caller, wire.Received], Awaitable[None]]


def serial_of(call: wire.Received) -> int:
    return int.from_bytes(call.frame[8:12], "little")


async def until(is_so: Callable[[], bool]) -> None:
    """Let the loop run until something is so."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - nobody sets an event
            await asyncio.sleep(0)


async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The server's part of a handshake that goes well."""
    assert (await reader.readline()).startswith(b"\0AUTH EXTERNAL ")
    assert await reader.readline() == b"NEGOTIATE_UNIX_FD\r\n"
    writer.write(b"OK 0123456789abcdef0123456789abcdef\r\n")
    writer.write(b"AGREE_UNIX_FD\r\n")
    assert await reader.readline() == b"BEGIN\r\n"


class ScriptedBus:
    """A bus that knows Hello, AddMatch and GetNameOwner; the rest is what a test makes of it."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix:path={path}"
        self.calls: list[str] = []
        self.clients = 0
        self.matches: list[str] = []
        self.handshake = accept
        self.script: Script = self._answer_nothing
        self._path = path
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        self._server.close()
        await self._server.wait_closed()
        await until(lambda: len(asyncio.all_tasks()) == 1)  # what serves a client ends with it

    def client(self, **options: Any) -> Bus:
        return Bus(Manager(bus_address=self.address), **{"timeout_sec": 5, **options})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.clients += 1
        try:
            await self.handshake(reader, writer)
            while frame := await read_frame(reader):
                await self._take(Caller(writer), wire.parse_frame(frame))
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _take(self, caller: Caller, call: wire.Received) -> None:
        answers = {"Hello": ":1.5", "GetNameOwner": OWNER}
        if call.member in answers:
            caller.reply(call, "s", answers[call.member], sender=BUS)
        elif call.member == "AddMatch":
            self.matches.append(call.body()[0])
            caller.reply(call, sender=BUS)
        else:
            self.calls.append(call.member)
            await self.script(caller, call)

    async def _answer_nothing(self, caller: Caller, call: wire.Received) -> None:
        pass


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    try:
        start = await reader.readexactly(16)
        return start + await reader.readexactly((wire.frame_bytes(start) or 16) - 16)
    except asyncio.IncompleteReadError:
        return b""


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[ScriptedBus]:
    async with ScriptedBus(tmp_path / "bus") as bus:
        yield bus


@pytest.fixture(autouse=True)
async def settled() -> AsyncIterator[None]:
    """No test leaves a task or a descriptor behind."""
    before = descriptors()
    yield
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await until(lambda: descriptors() <= before)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - shorter


# connecting


async def test_no_bus_at_all(tmp_path: Path) -> None:
    client = Bus(Manager(bus_address=f"unix:path={tmp_path}/none"))
    with pytest.raises(BusUnavailable, match=r"none.*No such file.*is systemd running"):
        await client.__aenter__()
    with pytest.raises(BusUnavailable):
        await client.observe(["*"])


@pytest.mark.parametrize("address", ["tcp:host=localhost,port=1", "unix:tmpdir=/tmp", "nonsense"])
async def test_address_without_a_unix_socket(address: str) -> None:
    with pytest.raises(BusUnavailable, match="no unix socket"):
        await Bus(Manager(bus_address=address)).__aenter__()


async def test_socket_that_nobody_listens_on(tmp_path: Path) -> None:
    path = tmp_path / "bus"
    with socket.socket(socket.AF_UNIX) as listener:  # asyncio's own removes the file (3.13)
        listener.bind(str(path))
    with pytest.raises(BusUnavailable, match="refused"):
        await Bus(Manager(bus_address=f"unix:path={path}")).__aenter__()


async def test_hang_up_during_authentication_does_not_spin(bus: ScriptedBus) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        raise ConnectionError

    bus.handshake = hang_up
    cpu = time.process_time()
    with pytest.raises(BusUnavailable, match="closed the connection during authentication"):
        await bus.client().__aenter__()
    assert time.process_time() - cpu < 0.5


async def test_refused_authentication(bus: ScriptedBus) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"REJECTED EXTERNAL\r\n")
        await reader.readline()

    bus.handshake = refuse
    with pytest.raises(BusUnavailable, match="REJECTED"):
        await bus.client().__aenter__()


async def test_silence_during_authentication(bus: ScriptedBus) -> None:
    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    bus.handshake = be_silent
    with pytest.raises(BusUnavailable, match=r"no reply within 0\.1 s"):
        await bus.client(timeout_sec=0.1).__aenter__()


@pytest.mark.parametrize("start", [b"", b"OK 0\r\n"])
async def test_endless_talk_during_authentication_starves_no_timeout(
    tmp_path: Path, start: bytes
) -> None:
    """The kernel has the next bytes before they are asked for, so that nothing else gets a turn."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "bus"))
        listening.listen()
        talking = threading.Thread(target=talk, args=(listening, start))
        talking.start()
        try:
            with pytest.raises(BusUnavailable, match="reply during authentication is too long"):
                await Bus(Manager(bus_address=f"unix:path={tmp_path / 'bus'}")).__aenter__()
        finally:
            talking.join()


def talk(listening: socket.socket, start: bytes) -> None:
    """Say something for as long as there is a listener."""
    with contextlib.suppress(OSError), listening.accept()[0] as peer:
        peer.sendall(start)
        while True:
            peer.sendall(b"x" * 4096)


async def test_a_long_refusal_is_shortened(bus: ScriptedBus) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"REJECTED" + b"x" * 50_000 + b"\r\nERROR\r\n")
        await reader.read()

    bus.handshake = refuse
    with pytest.raises(BusUnavailable) as caught:
        await bus.client().__aenter__()
    assert len(str(caught.value)) < 400
    assert "ERROR" not in str(caught.value)


# malformed answers to each call; none of them may end in a traceback
Work = Callable[[Bus], Awaitable[object]]
READS: dict[str, Work] = {
    "caps": lambda client: client.caps(),
    "list": lambda client: client.list_units(["*"]),
    "observe": lambda client: client.observe(["*"]),
    "start": lambda client: client.start(UNIT),
    "stop": lambda client: client.stop(NAME),
    "set": lambda client: client.set_properties(NAME, {"CPUWeight": 5}),
}
ANSWERS: list[tuple[str, tuple[Any, ...]]] = [
    ("", ()),
    ("u", (7,)),
    ("v", (Variant("a{sv}", {}),)),
    ("v", (Variant("u", 7),)),
    ("v", (Variant("as", [""]),)),
    ("a{sv}", ({"LoadState": Variant("u", 7)},)),
    ("a(ssssssouso)", ([[str(NAME), *["loaded"] * 5, "/", 0, "", "/"]],)),
]


@pytest.mark.parametrize("work", READS.values(), ids=READS.keys())
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: str(answer[0]) or "nothing")
async def test_answers_of_other_types_are_errors_of_ours(
    bus: ScriptedBus, work: Work, answer: tuple[str, tuple[Any, ...]]
) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        if answer[0] != "a(ssssssouso)" or call.member == "ListUnitsByPatterns":
            caller.reply(call, answer[0], *answer[1])
        else:  # further calls are made with what the first one has told
            caller.reply(call, "v", Variant("d", 0.5))

    bus.script = script
    async with bus.client(timeout_sec=0.1) as client:
        with contextlib.suppress(SystemdError):
            await work(client)


@pytest.mark.parametrize("body", [("u", (7,)), ("a{sv}", ({},)), ("uavss", (1, [], "", ""))])
async def test_signals_of_other_types_cost_the_connection_only(
    bus: ScriptedBus, body: tuple[str, tuple[Any, ...]]
) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        if bus.clients == 1:
            caller.manager_signal("JobRemoved", body[0], *body[1])
        else:
            caller.reply(call, "v", Variant("s", "257"))

    bus.script = script
    async with bus.client() as client:
        assert (await client.caps()).systemd_version == 257
    assert bus.clients == 2


async def test_bus_that_passes_no_descriptors(bus: ScriptedBus) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await reader.readline()
        writer.write(b"OK 0123456789abcdef0123456789abcdef\r\nERROR\r\n")
        await reader.readline()

    async def script(caller: Caller, call: wire.Received) -> None:
        caller.reply(call, "v", Variant("s", "257"))

    bus.handshake, bus.script = refuse, script
    async with bus.client() as client:
        assert (await client.caps()).pidfds is False
        with pytest.raises(BadProperty, match=r"^a\.scope: this bus passes no descriptors$"):
            await client.start(TransientUnit(name=SCOPE, properties={"PIDFDs": (0,)}))


@pytest.mark.parametrize(("version", "pidfds"), [("254.1", False), ("255~rc1", True)])
async def test_descriptors_of_processes_are_taken_since_255(
    bus: ScriptedBus, version: str, *, pidfds: bool
) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        caller.reply(call, "v", Variant("s", version))

    bus.script = script
    async with bus.client() as client:
        assert (await client.caps()).pidfds is pidfds


async def test_connecting_can_be_canceled(bus: ScriptedBus) -> None:
    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    bus.handshake = be_silent
    task = asyncio.create_task(bus.client().__aenter__())
    await until(lambda: bool(bus.clients))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_bus_without_systemd(bus: ScriptedBus, monkeypatch: pytest.MonkeyPatch) -> None:
    async def take(caller: Caller, call: wire.Received) -> None:
        if call.member == "GetNameOwner":
            caller.refuse(call, "org.freedesktop.DBus.Error.NameHasNoOwner", sender=BUS)
        else:
            caller.reply(call, "s", ":1.5", sender=BUS)

    monkeypatch.setattr(bus, "_take", take)
    monkeypatch.setattr(connection, "_ABSENCE_SEC", 0.05)
    with pytest.raises(BusUnavailable, match="systemd1 is not on this bus; is systemd running"):
        await bus.client().__aenter__()


async def test_fifty_connections_leave_no_descriptors(bus: ScriptedBus) -> None:
    before = descriptors()
    for _ in range(50):
        async with bus.client():
            pass
    await until(lambda: descriptors() <= before)


# jobs


async def test_forged_results_are_ignored(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        caller.job_removed("failed", sender=":1.666")
        caller.reply(call, "o", JOB, sender=":1.666")
        caller.reply(call, "o", JOB)
        caller.job_removed("failed", sender=":1.666")
        caller.job_removed("done")

    bus.script = script
    async with bus.client() as client:
        await client.start(UNIT)


async def test_result_before_the_reply(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        caller.job_removed("dependency")
        caller.reply(call, "o", JOB)

    bus.script = script
    async with bus.client() as client:
        with pytest.raises(JobFailed, match=f"{NAME}.*'dependency'") as caught:
            await client.start(UNIT)
        assert caught.value.result == "dependency"
        assert client.jobs.early == {}


async def test_results_of_others_are_not_kept(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        caller.reply(call, "o", JOB)
        for other in range(1000):
            caller.job_removed("done", job=f"{JOB}{other}")
        caller.job_removed("done")

    bus.script = script
    async with bus.client() as client:
        await client.start(UNIT)
        assert (client.jobs.early, client.jobs.waiting) == ({}, {})


async def test_calls_that_share_a_job(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        caller.reply(call, "o", JOB)
        if len(bus.calls) == 2:
            caller.job_removed("done")

    bus.script = script
    async with bus.client() as client:
        await asyncio.gather(client.stop(NAME), client.stop(NAME))


async def test_job_that_does_not_end(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        caller.reply(call, "o", JOB)

    bus.script = script
    async with bus.client(timeout_sec=0.1) as client:
        with pytest.raises(CallTimeout, match=rf"{NAME}: no reply within 0\.4 s"):
            await client.start(UNIT)
        assert client.jobs.waiting == {}


# answers


async def test_call_without_an_answer(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        if len(bus.calls) > 1:
            caller.reply(call, "v", Variant("s", "252"))

    bus.script = script
    async with bus.client(timeout_sec=0.1) as client:
        begin = time.monotonic()
        with pytest.raises(CallTimeout, match="systemd's Version"):
            await client.caps()
        assert time.monotonic() - begin < 2
        assert (await client.caps()).systemd_version == 252
        assert client.connection
        assert client.connection.replies == {}
    assert bus.clients == 1


async def test_late_answer_is_ignored(bus: ScriptedBus) -> None:
    waiting: list[wire.Received] = []

    async def script(caller: Caller, call: wire.Received) -> None:
        waiting.append(call)
        if len(waiting) == 2:
            caller.reply(waiting[0], "v", Variant("s", "1"))
            caller.reply(waiting[1], "v", Variant("s", "2"))

    bus.script = script
    async with bus.client(timeout_sec=0.1) as client:
        with pytest.raises(CallTimeout):
            await client.caps()
        assert (await client.caps()).systemd_version == 2


async def test_answer_in_single_bytes(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        header = {"sender": OWNER, "reply_serial": serial_of(call)}
        body = (Variant("s", "257~rc1"),)
        for byte in encode(METHOD_RETURN, "v", body, **header):
            caller.writer.write(bytes([byte]))
            await caller.writer.drain()
            await asyncio.sleep(0)

    bus.script = script
    async with bus.client() as client:
        assert (await client.caps()).systemd_version == 257


@pytest.mark.parametrize("garbage", [b"x" * 100, b"l" + b"\xff" * 100, b"l\2\0\1" + bytes(12)])
async def test_answer_that_is_not_dbus(bus: ScriptedBus, garbage: bytes) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        caller.writer.write(garbage)
        await caller.writer.drain()
        if garbage.endswith(b"\0"):  # an empty header is no error, but nobody's answer
            caller.writer.close()

    bus.script = script
    async with bus.client() as client:
        with pytest.raises(BusUnavailable):
            await client.caps()
    assert bus.clients == 2


async def test_canceled_calls_leave_nothing(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        if call.member == "StopUnit":
            caller.reply(call, "o", JOB)

    bus.script = script
    async with bus.client() as client:
        works = (client.caps(), client.start(UNIT), client.stop(NAME), client.observe(["*"]))
        tasks = [asyncio.create_task(work) for work in works]
        await until(lambda: len(bus.calls) == 4)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert client.connection
        assert client.connection.replies == {}
        assert client.jobs.waiting == {}


async def test_calls_in_flight_are_bounded(bus: ScriptedBus) -> None:
    waiting: list[wire.Received] = []
    most = 0

    async def script(caller: Caller, call: wire.Received) -> None:
        nonlocal most
        waiting.append(call)
        most = max(most, len(waiting))
        if len(bus.calls) in {32, 64, 96, 100}:
            for one in waiting:
                caller.reply(one, "v", Variant("s", "252"))
            waiting.clear()

    bus.script = script
    async with bus.client() as client:
        await asyncio.gather(*(client.caps() for _ in range(100)))
    assert most == 32


@pytest.mark.parametrize(
    ("error_name", "expected", "message"),
    [
        ("org.freedesktop.systemd1.UnitExists", UnitExists, "words"),
        ("org.freedesktop.systemd1.NoSuchUnit", NoSuchUnit, "words"),
        ("org.freedesktop.DBus.Error.InvalidArgs", BadProperty, "words"),
        ("org.freedesktop.DBus.Error.PropertyReadOnly", BadProperty, "words"),
        ("System.Error.ENXIO", BadProperty, "words"),
        ("org.freedesktop.DBus.Error.AccessDenied", Refused, r"access denied.*root, or use --user"),
        (
            "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
            Refused,
            r"access denied.*root, or use --user",
        ),
        ("org.freedesktop.DBus.Error.LimitsExceeded", BusUnavailable, "words"),
        ("org.freedesktop.DBus.Error.TimedOut", CallTimeout, "words"),
        (
            "org.freedesktop.systemd1.TransactionIsDestructive",
            SystemdError,
            r"words \(org\.freedesktop\.systemd1\.TransactionIsDestructive\)",
        ),
    ],
)
async def test_errors_in_our_words(
    bus: ScriptedBus, error_name: str, expected: type[SystemdError], message: str
) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        if call.member == "StartTransientUnit":
            caller.refuse(call, error_name, "words.")
        else:
            caller.reply(call, "v", Variant("s", "active"))

    bus.script = script
    async with bus.client() as client:
        with pytest.raises(expected, match=f"^{NAME}: {message}$") as caught:
            await client.start(UNIT)
        assert type(caught.value) is expected


# interruptions


async def test_dropped_connection_is_made_anew_once(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        if len(bus.calls) == 1:
            caller.writer.close()
        else:
            caller.reply(call, "v", Variant("s", "252"))

    bus.script = script
    async with bus.client() as client:
        assert (await client.caps()).systemd_version == 252
    assert bus.clients == 2


async def test_connection_that_always_drops(bus: ScriptedBus) -> None:
    async def drop(caller: Caller, call: wire.Received) -> None:
        caller.writer.close()

    async def answer(caller: Caller, call: wire.Received) -> None:
        caller.reply(call, "v", Variant("s", "252"))

    bus.script = drop
    async with bus.client() as client:
        with pytest.raises(BusUnavailable, match=r"connection to the bus .* was lost"):
            await client.caps()
        bus.script = answer
        assert (await client.caps()).systemd_version == 252
    assert bus.clients == 3


async def test_connection_dropped_between_calls(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        caller.reply(call, "v", Variant("s", "252"))
        caller.writer.close()

    bus.script = script
    async with bus.client() as client:
        for _ in range(3):
            assert (await client.caps()).systemd_version == 252


async def test_job_is_asked_for_again_when_systemd_restarts(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        caller.reply(call, "o", JOB)
        if len(bus.calls) == 1:
            caller.owner_changed(OWNER, "")
            caller.owner_changed("", OWNER)
        else:
            caller.job_removed("done")

    bus.script = script
    async with bus.client() as client:
        await client.stop(NAME)
    assert bus.calls == ["StopUnit", "StopUnit"]


async def test_no_call_is_made_while_systemd_is_away(bus: ScriptedBus) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        if len(bus.calls) == 1:
            caller.owner_changed(OWNER, "")
            caller.refuse(call, "org.freedesktop.DBus.Error.NoReply", sender=BUS)
            back.append(caller)
        else:
            caller.reply(call, "v", Variant("s", "252"))

    back: list[Caller] = []
    bus.script = script
    async with bus.client() as client:
        asking = asyncio.create_task(client.caps())
        await until(lambda: bool(back))
        for _ in range(20):
            await asyncio.sleep(0)
        assert bus.calls == ["Get"]
        back[0].owner_changed("", OWNER)
        assert (await asking).systemd_version == 252


@pytest.mark.parametrize(("delay_usec", "is_ours"), [(5, True), (6, False)])
async def test_timer_that_exists_after_an_interruption(
    bus: ScriptedBus, delay_usec: int, *, is_ours: bool
) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        match call.member:
            case "StartTransientUnit" if len(bus.calls) == 1:
                caller.refuse(call, "org.freedesktop.DBus.Error.NoReply", sender=BUS)
            case "StartTransientUnit":
                caller.refuse(call, "org.freedesktop.systemd1.UnitExists")
            case "GetAll" if "timer" in call.path:
                delays = Variant("a(stt)", [["OnActiveUSec", delay_usec, 99]])
                caller.reply(call, "a{sv}", {**TRANSIENT, "TimersMonotonic": delays})
            case "GetAll":
                caller.reply(call, "a{sv}", TRANSIENT)
            case "StartUnit":
                caller.reply(call, "o", JOB)
                caller.job_removed("done")

    bus.script = script
    async with bus.client() as client:
        if is_ours:
            await client.start_timer(*TIMER)
        else:
            with pytest.raises(UnitExists):
                await client.start_timer(*TIMER)
    assert bus.calls.count("StartUnit") == is_ours


@pytest.mark.parametrize(("weight", "is_ours"), [(5, True), (6, False)])
async def test_unit_that_exists_after_an_interruption(
    bus: ScriptedBus, weight: int, *, is_ours: bool
) -> None:
    async def script(caller: Caller, call: wire.Received) -> None:
        match call.member:
            case "StartTransientUnit" if len(bus.calls) == 1:
                caller.refuse(call, "org.freedesktop.DBus.Error.NoReply", sender=BUS)
            case "StartTransientUnit":
                caller.refuse(call, "org.freedesktop.systemd1.UnitExists")
            case "Get":
                caller.reply(call, "v", Variant("s", "active"))
            case "GetAll":
                caller.reply(call, "a{sv}", {**TRANSIENT, "CPUWeight": Variant("t", weight)})
            case "StartUnit":
                caller.reply(call, "o", JOB)
                caller.job_removed("done")

    bus.script = script
    async with bus.client() as client:
        if is_ours:
            await client.start(UNIT)
        else:
            with pytest.raises(UnitExists):
                await client.start(UNIT)
    assert bus.calls.count("StartUnit") == is_ours


async def test_calls_in_flight_end_when_the_client_is_closed(bus: ScriptedBus) -> None:
    async with bus.client() as client:
        asking = asyncio.create_task(client.caps())
        await until(lambda: bool(bus.calls))
    with pytest.raises(BusUnavailable, match="closed"):
        await asking
    assert bus.clients == 1


# being told


class Telling:
    """A script that takes subscriptions and tells systemd's Version; it remembers its callers."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self.told: list[UnitName | None] = []

    async def __call__(self, caller: Caller, call: wire.Received) -> None:
        if call.member == "Subscribe":
            self.callers.append(caller)
            caller.reply(call)
        else:
            caller.reply(call, "v", Variant("s", "252"))

    async def is_told(self, *expected: UnitName | None) -> bool:
        """Whether just this was told since the last time; what could come more has had its time."""
        await until(lambda: len(self.told) >= len(expected))
        for _ in range(20):
            await asyncio.sleep(0)
        told, self.told[:] = list(self.told), []
        return told == list(expected)


async def test_nobody_subscribes_who_does_not_want_to_be_told(bus: ScriptedBus) -> None:
    bus.script = Telling()
    async with bus.client() as client:
        await client.caps()
    assert bus.calls == ["Get"]
    assert len(bus.matches) == 2  # of jobs, and of the name's owner


async def test_signals_of_systemd_are_told_and_no_others(bus: ScriptedBus) -> None:
    bus.script = script = Telling()
    async with bus.client(on_change=script.told.append) as client:
        assert await script.is_told(None)
        (caller,) = script.callers
        caller.manager_signal("UnitRemoved", "so", NAME, "/x", sender=":1.99")
        caller.manager_signal("UnitRemoved", "so", SCOPE, "/x")
        assert await script.is_told(SCOPE)
        caller.manager_signal("Reloading", "b", True)
        caller.manager_signal("UnitRemoved", "so", SCOPE, "/x")
        caller.job_removed("done")
        caller.manager_signal("Reloading", "b", False)
        caller.job_removed("done")
        assert await script.is_told(None, NAME)
        await client.caps()
        assert await script.is_told()
    assert await script.is_told()  # that it was closed is no news
    assert bus.calls == ["Subscribe", "Get"]


async def test_lost_connection_is_told_once_and_the_new_one_is_subscribed(bus: ScriptedBus) -> None:
    bus.script = script = Telling()
    async with bus.client(on_change=script.told.append) as client:
        assert await script.is_told(None)
        matches, bus.matches[:] = list(bus.matches), []
        for connections in (1, 2, 3):
            assert (bus.clients, len(script.callers)) == (connections, connections)
            script.callers[-1].writer.close()
            assert await script.is_told(None)
            for _ in range(2):
                await client.caps()
            assert await script.is_told(None)
            assert bus.matches == matches
            bus.matches.clear()


async def test_systemd_that_went_away_is_asked_to_tell_on_a_connection_of_its_own(
    bus: ScriptedBus,
) -> None:
    """Whether it has kept the subscription over its restart nobody knows."""
    bus.script = script = Telling()
    async with bus.client(on_change=script.told.append) as client:
        assert await script.is_told(None)
        script.callers[0].owner_changed(OWNER, "")
        script.callers[0].owner_changed("", ":1.2")
        assert await script.is_told(None)
        assert bus.clients == 1
        await asyncio.gather(*(client.caps() for _ in range(5)))
        assert await script.is_told(None)
    assert bus.clients == 2
    assert bus.calls.count("Subscribe") == 2


async def test_bus_that_stays_away_is_told_once(
    bus: ScriptedBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who makes a call whenever something is told would never come to rest."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise ConnectionError

    bus.script = script = Telling()
    async with bus.client(on_change=script.told.append) as client:
        assert await script.is_told(None)
        bus.handshake = hang_up
        script.callers[0].writer.close()
        assert await script.is_told(None)
        for _ in range(3):
            with pytest.raises(BusUnavailable):
                await client.caps()
        assert await script.is_told()
        bus.handshake = accept
        await client.caps()
        assert await script.is_told(None)


async def test_subscription_that_is_refused_is_tried_again(bus: ScriptedBus) -> None:
    script = Telling()

    async def refuse(caller: Caller, call: wire.Received) -> None:
        caller.refuse(call, "org.freedesktop.DBus.Error.AccessDenied")

    bus.script = refuse
    client = bus.client(on_change=script.told.append)
    with pytest.raises(Refused):
        await client.__aenter__()
    assert script.told == []
    bus.script = script
    await client.caps()
    assert await script.is_told(None)
    await client.__aexit__(None, None, None)


# descriptors


class Other:
    """The other end of a connection that is open and has been introduced."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.seen = b""
        self.files: list[int] = []
        """The inodes of what came."""

    def read(self) -> None:
        """Read what is there."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data, descriptors, _, _ = socket.recv_fds(self.end, 4096, 32)
                for descriptor in descriptors:
                    self.files.append(os.fstat(descriptor).st_ino)
                    os.close(descriptor)
                self.seen += data
                if not data:
                    return

    def frames(self) -> list[wire.Received]:
        """The whole messages read so far."""
        found, rest = [], self.seen
        while (size := wire.frame_bytes(rest)) and size <= len(rest):
            found.append(wire.parse_frame(rest[:size]))
            rest = rest[size:]
        return found


class Deaf:
    """Hears nothing."""

    def on_signal(self, signal: wire.Received) -> None:
        pass

    def on_interruption(self, error: connection.Interrupted) -> None:
        pass


@pytest.fixture
async def other(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Connection, Other]]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    for end in (ours, theirs):
        end.setblocking(False)

    async def open_socket(address: str) -> tuple[socket.socket, bool]:
        return ours, True

    async def introduce(self: Connection) -> None:
        self.follow(OWNER)

    monkeypatch.setattr(connection, "open_socket", open_socket)
    monkeypatch.setattr(Connection, "_introduce", introduce)
    made = await Connection.open(
        Peer(address="", service=BUS, error_of=error_of, timeout_sec=5), Deaf()
    )
    yield made, Other(theirs)
    await made.close()
    theirs.close()


def call_with(made: Connection, text: str, *descriptors: int) -> asyncio.Task[wire.Received]:
    call = made.call(
        "Do", "s", [text], path="/", interface="a.b", about="it", descriptors=descriptors
    )
    return asyncio.create_task(call)


async def test_descriptors_come_with_their_message(other: tuple[Connection, Other]) -> None:
    """However full the socket is: before, between and after calls without any."""
    made, there = other
    sizes = {"a": 50_000, "b": 3, "c": 60_000, "d": 5, "e": 70_000, "f": 90_000}
    calls = [
        call_with(made, letter * size, *([0, 0] if letter in "bdf" else []))
        for letter, size in sizes.items()
    ]

    def has_all() -> bool:
        there.read()
        return len(there.frames()) == len(calls)

    await until(has_all)
    texts = [(frame.body()[0], UNIX_FDS in frame.frame[:200]) for frame in there.frames()]
    assert sorted(texts) == [(letter * size, letter in "bdf") for letter, size in sizes.items()]
    assert there.files == [os.fstat(0).st_ino] * 6
    await made.close()
    for call in calls:
        with pytest.raises(BusUnavailable):
            await call


async def test_connection_lost_while_a_descriptor_waits(other: tuple[Connection, Other]) -> None:
    made, there = other
    calls = [call_with(made, "x" * 200_000), call_with(made, "y", 0)]
    await asyncio.sleep(0)
    there.end.close()
    for call in calls:
        with pytest.raises(BusUnavailable):
            await call


async def test_descriptors_stay_the_caller_s(other: tuple[Connection, Other]) -> None:
    made, there = other
    ours = os.dup(0)
    call = call_with(made, "x", ours)

    def has_it() -> bool:
        there.read()
        return bool(there.files)

    await until(has_it)
    call.cancel()
    os.close(ours)


# a real systemd


def slices(count: int, *, parent: str = "podslicetest") -> list[TransientUnit]:
    properties = {"DefaultDependencies": False, "MemoryMax": 1 << 30, "CPUWeight": 5}
    return [
        TransientUnit(name=UnitName(f"{parent}-p{n}.slice"), properties=properties)
        for n in range(count)
    ]


@pytest.fixture
async def client(machine: Machine) -> AsyncIterator[Bus]:
    async with Bus(Manager(bus_address=machine.bus_address)) as client:
        yield client
        await client.stop(NAME)
        assert await client.observe(["podslice*"]) == ()


async def count(client: Bus) -> int:
    return len(await client.observe(["podslicetest-*"]))


@pytest.fixture(scope="session", params=["machine", "old_machine"])
def either_machine(request: pytest.FixtureRequest) -> Machine:
    machine: Machine = request.getfixturevalue(request.param)
    return machine


async def test_units_of_ours_are_known_again(either_machine: Machine) -> None:
    """After an interruption: with every property that a unit of its kind can be started with."""
    machine = either_machine
    process = machine.spawn("sleep", "1000")
    shared: dict[str, Any] = {
        "Slice": NAME,
        "Description": "it",
        "CollectMode": "inactive-or-failed",
    }
    container = {
        "Delegate": True,
        "TimeoutStopUSec": 10_000_000,
        "KillMode": "mixed",
        "SendSIGHUP": True,
    }
    command = (("/bin/sh", ("sh", "-c", ": $$A; exec sleep 1000"), False),)
    kinds: dict[str, dict[str, Any]] = {
        "podslicetest-a.scope": {**container, "PIDs": (process.pid,), "MemoryMax": 1 << 30},
        "podslicetest-a.service": {
            **container,
            "Type": "exec",
            "ExecStart": command,
            "ExecStopPost": (("/bin/true", ("true",), True),),
            "Environment": ("A=b c", 'D="$x"%'),
            "WorkingDirectory": "/tmp",
            "OOMScoreAdjust": 5,
            "RemainAfterExit": False,
            "CPUWeight": 7,
        },
        "run-podslicetest.mount": {
            "What": "tmpfs",
            "Type": "tmpfs",
            "Options": "mode=0777,size=1048576",
            "DirectoryMode": 0o700,
            "LazyUnmount": True,
        },
    }
    units = [
        TransientUnit(name=UnitName(name), properties={**shared, **more})
        for name, more in kinds.items()
    ]
    async with Bus(Manager(bus_address=machine.bus_address)) as client:
        for unit in units:
            await client.start(unit)
        manager = await client.calls()
        for unit in units:
            assert is_as_requested(unit, await manager.properties(unit.name))
            other = TransientUnit(name=unit.name, properties={**unit.properties, "Description": ""})
            assert not is_as_requested(other, await manager.properties(unit.name))
        mounts = machine.get("/proc/self/mountinfo").decode()
        assert "/run/podslicetest " in mounts
        await client.stop(NAME)
        assert "/run/podslicetest " not in machine.get("/proc/self/mountinfo").decode()
        assert await client.observe(["podslice*", "run-podslice*"]) == ()
    machine.run("rmdir", "/run/podslicetest")
    process.wait()


async def test_mount_that_somebody_has_unmounted(either_machine: Machine) -> None:
    """It stays loaded, and down, while another unit refers to it."""
    machine = either_machine
    volume = TransientUnit(
        name=UnitName("run-podslicetest.mount"),
        properties={"What": "tmpfs", "Type": "tmpfs", "Slice": NAME},
    )
    later = UnitName("podslicetest-later.slice")
    after = TransientUnit(name=later, properties={"After": (volume.name,)})
    async with Bus(Manager(bus_address=machine.bus_address)) as client:
        for unit in (after, volume):
            await client.start(unit)
        machine.run("umount", "/run/podslicetest")
        async with asyncio.timeout(10):
            while any(
                unit.active_state == "active" for unit in await client.observe([volume.name])
            ):
                pass
        await client.start(volume)
        (found,) = await client.observe([volume.name])
        assert (found.active_state, found.properties["Slice"]) == ("active", NAME)
        await client.stop(NAME)
        assert await client.observe(["podslice*", "run-podslice*"]) == ()
    machine.run("rmdir", "/run/podslicetest")


async def test_descriptor_of_a_process_that_has_ended(client: Bus, machine: Machine) -> None:
    assert (await client.caps()).pidfds
    child = await asyncio.create_subprocess_exec("sleep", "1000")
    descriptor = os.pidfd_open(child.pid)
    child.kill()
    await child.wait()
    unit = TransientUnit(name=SCOPE, properties={"PIDFDs": (descriptor,)})
    with pytest.raises(BadProperty, match=r"^a\.scope: a process has exited"):
        await client.start(unit)
    os.close(descriptor)


async def test_five_hundred_at_once(client: Bus) -> None:
    units = slices(500)
    await asyncio.gather(*(client.start(unit) for unit in units))
    assert await count(client) == 500
    await asyncio.gather(*(client.set_properties(unit.name, {"CPUWeight": 6}) for unit in units))
    found = await client.observe(["podslicetest-*"])
    assert {unit.properties["CPUWeight"] for unit in found} == {6}
    await asyncio.gather(*(client.stop(unit.name) for unit in units))
    assert await count(client) == 0


async def test_five_hundred_in_batches_at_once(client: Bus) -> None:
    units = slices(500)
    batches = [units[start : start + 64] for start in range(0, 500, 64)]
    await asyncio.gather(*(client.start_batch(batch) for batch in batches))
    assert await count(client) == 500
    await asyncio.gather(*(client.stop_batch([unit.name for unit in batch]) for batch in batches))
    assert await count(client) == 0


@pytest.mark.parametrize("in_batches", [False, True])
async def test_systemd_restarts_in_the_middle(client: Bus, *, in_batches: bool) -> None:
    units = slices(200)
    size = 20 if in_batches else 1
    batches = [units[start : start + size] for start in range(0, 200, size)]

    async def start(batch: list[TransientUnit]) -> None:
        await (client.start_batch(batch) if in_batches else client.start(batch[0]))

    async def stop(batch: list[TransientUnit]) -> None:
        names = [unit.name for unit in batch]
        await (client.stop_batch(names) if in_batches else client.stop(names[0]))

    async def restart() -> None:
        manager = await client.calls()
        with pytest.raises(BusUnavailable):  # it can't answer this one
            await manager.call("Reexecute", "", about="systemd")

    for work, expected in ((start, 200), (stop, 0)):
        works = [work(batch) for batch in batches]
        works.insert(len(works) // 2, restart())
        await asyncio.gather(*works)
        assert await count(client) == expected


async def test_reload_in_the_middle(client: Bus, machine: Machine) -> None:
    tasks = [asyncio.create_task(client.start(unit)) for unit in slices(100)]
    await until(lambda: any(task.done() for task in tasks))
    reload = machine.spawn("systemctl", "daemon-reload")
    await asyncio.gather(*tasks)
    reload.wait()
    assert await count(client) == 100


async def test_connection_cut_in_the_middle(client: Bus) -> None:
    tasks = [asyncio.create_task(client.start(unit)) for unit in slices(100)]
    await until(lambda: any(task.done() for task in tasks))
    assert client.connection
    client.connection.abort()
    await asyncio.gather(*tasks)
    assert await count(client) == 100


@pytest.mark.parametrize("how", ["reexec", "cut"])
async def test_changes_are_told_after_an_interruption(either_machine: Machine, how: str) -> None:
    told: list[UnitName | None] = []
    async with (
        Bus(Manager(bus_address=either_machine.bus_address)) as other,
        Bus(Manager(bus_address=either_machine.bus_address), on_change=told.append) as client,
    ):
        for _ in range(2):
            assert told.count(None) == 1
            if how == "reexec":
                await asyncio.to_thread(either_machine.run, "systemctl", "daemon-reexec")
            else:
                assert client.connection
                client.connection.abort()
            await until(lambda: told.count(None) == 2)
            await client.caps()
            assert told.count(None) == 3
            await other.start(UNIT)
            await until(lambda: NAME in told)
            await other.stop(NAME)
            told[:] = [None]


async def test_timer_of_ours_is_known_again(either_machine: Machine) -> None:
    when, what = TIMER
    delays = {"TimersMonotonic": (("OnActiveSec", 10**9), ("OnBootSec", 10**10))}
    more = {"AccuracyUSec": 1000, "RemainAfterElapse": False, "Description": "it"}
    when = TransientUnit(name=when.name, properties={**delays, **more})
    async with Bus(Manager(bus_address=either_machine.bus_address)) as client:
        await client.start_timer(when, what)
        manager = await client.calls()
        found = await manager.properties(when.name)
        assert is_as_requested(when, found)
        assert is_as_requested(what, await manager.properties(what.name))
        for key, value in (("TimersMonotonic", (("OnActiveSec", 1),)), ("AccuracyUSec", 1)):
            other = TransientUnit(name=when.name, properties={**when.properties, key: value})
            assert not is_as_requested(other, found)
        await client.stop(when.name)
        assert await client.list_units([when.name, what.name]) == ()


async def test_canceled_starts_leave_a_client_that_works(client: Bus) -> None:
    tasks = [asyncio.create_task(client.start(unit)) for unit in slices(100)]
    await until(lambda: any(task.done() for task in tasks))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.stop(NAME)
    assert await count(client) == 0


KILLED = """
import asyncio, sys
from podslice.model.manager import Manager
from podslice.model.unit import TransientUnit
from podslice.systemd.bus import Bus

async def main():
    async with Bus(Manager(bus_address=sys.argv[1])) as client:
        print("ready", flush=True)
        for n in range(1000):
            names = [f"podslicetest-{n}x{m}.slice" for m in range(20)]
            units = [TransientUnit(name=name, properties={"CPUWeight": 5}) for name in names]
            await client.start_batch(units)
            await client.stop_batch(names)

asyncio.run(main())
"""


@pytest.mark.parametrize("delay_msec", [3, 10, 20, 33])
async def test_killed_client_leaves_no_throw_away_units(
    client: Bus, machine: Machine, delay_msec: int
) -> None:
    address = machine.bus_address or "unix:path=/run/dbus/system_bus_socket"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, address),
        cwd=source_dir(),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    await process.stdout.readline()
    await asyncio.sleep(delay_msec / 1000)  # some place in the middle, the more the better
    process.kill()
    await process.wait()
    async with asyncio.timeout(10):
        while await client.observe(["podslicebatch*"]):
            pass


async def test_descriptors_over_fifty_real_connections(machine: Machine) -> None:
    before = descriptors()
    for _ in range(50):
        async with Bus(Manager(bus_address=machine.bus_address)) as client:
            await client.caps()
    assert descriptors() == before


UNPRIVILEGED = """
import asyncio, sys
from podslice.errors import Refused
from podslice.model.unit import TransientUnit
from podslice.model.manager import SYSTEM
from podslice.systemd.bus import Bus

async def main():
    unit = TransientUnit(name="podslicetest.slice", properties={"CPUWeight": 5})
    async with Bus(SYSTEM) as client:
        assert await client.observe(["system.slice"])
        for call in (client.start(unit), client.stop("podslicetest.slice"),
                     client.set_properties("system.slice", {"CPUWeight": 5})):
            try:
                await call
            except Refused as error:
                print(error)

asyncio.run(main())
"""

USER = """
import asyncio, sys
from podslice.model.unit import TransientUnit
from podslice.systemd.bus import Bus
from podslice.systemd.find_manager import find_manager

async def main():
    unit = TransientUnit(name="podslicetest.slice", properties={"CPUWeight": 5})
    async with Bus(find_manager(user=True)) as client:
        await client.start(unit)
        print((await client.caps()).manager.is_user, *(u.name for u in await client.observe(["pods*"])))
        await client.stop("podslicetest.slice")
        print(*await client.observe(["pods*"]))

asyncio.run(main())
"""


TOLD = """
import asyncio, sys
from podslice.model.unit import TransientUnit
from podslice.model.manager import SYSTEM
from podslice.systemd.bus import Bus
from podslice.systemd.find_manager import find_manager

async def main():
    told = []
    unit = TransientUnit(name="podslicetest.slice", properties={"CPUWeight": 5})
    async with Bus(SYSTEM, on_change=told.append) as system, Bus(find_manager(user=True), on_change=told.append) as user:
        await system.caps()
        await user.start(unit)
        await user.stop(unit.name)
        async with asyncio.timeout(10):
            while told.count(unit.name) < 2:
                await asyncio.sleep(0)
        print(told.count(None))

asyncio.run(main())
"""


def run_as_user(machine: Machine, script: str) -> str:
    environment = {"PYTHONPATH": "/src", "XDG_RUNTIME_DIR": "/run/user/1000"}
    command = ("runuser", "-u", "lab", "--", "python3", "-c", script)
    return machine.run(*command, env=environment).stdout


def test_writes_without_rights_are_refused_with_a_hint(machine: Machine) -> None:
    lines = run_as_user(machine, UNPRIVILEGED).splitlines()
    assert len(lines) == 3
    assert all("access denied" in line and "run as root, or use --user" in line for line in lines)
    assert [line.partition(":")[0] for line in lines] == [NAME, NAME, "system.slice"]


def test_user_manager(machine: Machine) -> None:
    machine.run("loginctl", "enable-linger", "lab")
    try:
        machine.run("systemctl", "start", "user@1000.service")
        assert run_as_user(machine, USER) == "True podslicetest.slice\n\n"
        assert run_as_user(machine, TOLD) == "2\n"
    finally:
        machine.run("loginctl", "disable-linger", "lab")


RANGES = [row for row in PROPERTIES.values() if row.unset is not None and row.minimum]


@pytest.mark.parametrize("row", RANGES, ids=lambda row: row.name)
async def test_ranges_are_those_of_systemd(client: Bus, row: Property) -> None:
    """Values that the checks in front refuse are refused by systemd itself; but see the period."""
    manager = await client.calls()
    unit = TransientUnit(name=NAME, properties={row.name: row.minimum - 1})
    if row.name == "CPUQuotaPeriodUSec":
        await manager.start_transient(unit)  # taken, and clamped when it is written to the kernel
    else:
        with pytest.raises(BadProperty):
            await manager.start_transient(unit)


async def test_decoder_agrees_with_dbus_next_on_every_unit(client: Bus) -> None:
    manager = await client.calls()
    reply = await manager.call("ListUnits", "", about="units")
    (rows,) = reply.body()
    assert reply.body() == decode_with_dbus_next(reply)
    assert len(rows) > 50
    for row in rows:
        reply = await manager.read("GetAll", "s", row[0], "")
        (expected,) = decode_with_dbus_next(reply)
        assert reply.body() == (expected,)
        assert reply.properties(expected) == expected
        some = set(list(expected)[::7])
        assert reply.properties(some) == {key: expected[key] for key in some}


def decode_with_dbus_next(message: wire.Received) -> tuple[Any, ...]:
    return plain(Unmarshaller(io.BytesIO(message.frame)).unmarshall().body)


def plain(value: Any) -> Any:
    """A value of dbus-next as ours: tuples, and no Variants."""
    match value:
        case Variant():
            return plain(value.value)
        case list() | bytes():
            return tuple(map(plain, value))
        case dict():
            return {key: plain(one) for key, one in value.items()}
    return value
