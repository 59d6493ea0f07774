"""Faults of a bus that cannot be provoked on a real one: malformed replies, lost connections."""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable

import pytest
from podslice.systemd.dbus.library.signature import Variant

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
from podslice.model.container_exit import ContainerExit
from podslice.model.unit import Manager, TransientUnit
from podslice.systemd.bus import Bus
from podslice.systemd.dbus import connection, wire
from podslice.systemd.dbus.connection import Connection, Peer
from podslice.systemd.manager import error_of
from tests.bus.scripted_bus import (
    BUS,
    JOB,
    METHOD_RETURN,
    NAME,
    OWNER,
    SCOPE,
    TIMER,
    TRANSIENT,
    UNIT,
    UNIX_FDS,
    ScriptedBus,
    accept,
    descriptors,
    encode,
    serial_of,
    until,
)

pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
async def bus(tmp_path):
    async with ScriptedBus(tmp_path / "bus") as bus:
        yield bus


# connecting


async def test_no_bus_at_all(tmp_path):
    client = Bus(Manager(bus_address=f"unix:path={tmp_path}/none"))
    with pytest.raises(BusUnavailable, match=r"none.*No such file.*is systemd running"):
        await client.__aenter__()
    with pytest.raises(BusUnavailable):
        await client.observe(["*"])


@pytest.mark.parametrize("address", ["tcp:host=localhost,port=1", "unix:tmpdir=/tmp", "nonsense"])
async def test_address_without_a_unix_socket(address):
    with pytest.raises(BusUnavailable, match="no unix socket"):
        await Bus(Manager(bus_address=address)).__aenter__()


async def test_socket_without_a_listener(tmp_path):
    path = tmp_path / "bus"
    with socket.socket(socket.AF_UNIX) as listener:  # asyncio's own removes the file (3.13)
        listener.bind(str(path))
    with pytest.raises(BusUnavailable, match="refused"):
        await Bus(Manager(bus_address=f"unix:path={path}")).__aenter__()


async def test_hang_up_during_authentication_does_not_spin(bus):
    async def hang_up(reader, writer):
        await reader.readline()
        raise ConnectionError

    bus.handshake = hang_up
    cpu = time.process_time()
    with pytest.raises(BusUnavailable, match="closed the connection during authentication"):
        await bus.client().__aenter__()
    assert time.process_time() - cpu < 0.5


async def test_refused_authentication(bus):
    async def refuse(reader, writer):
        await reader.readline()
        writer.write(b"REJECTED EXTERNAL\r\n")
        await reader.readline()

    bus.handshake = refuse
    with pytest.raises(BusUnavailable, match="REJECTED"):
        await bus.client().__aenter__()


async def test_silence_during_authentication(bus):
    async def be_silent(reader, writer):
        bus.expire()
        await reader.read()

    bus.handshake = be_silent
    with pytest.raises(BusUnavailable, match="no reply within 5 s"):
        await bus.client().__aenter__()


@pytest.mark.parametrize("start", [b"", b"OK 0\r\n"])
async def test_endless_talk_during_authentication_starves_no_timeout(tmp_path, start):
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


def talk(listening, start):
    """Say something for as long as there is a listener."""
    with contextlib.suppress(OSError), listening.accept()[0] as peer:
        peer.sendall(start)
        while True:
            peer.sendall(b"x" * 4096)


async def test_a_long_refusal_is_shortened(bus):
    async def refuse(reader, writer):
        writer.write(b"REJECTED" + b"x" * 50_000 + b"\r\nERROR\r\n")
        await reader.read()

    bus.handshake = refuse
    with pytest.raises(BusUnavailable) as caught:
        await bus.client().__aenter__()
    assert len(str(caught.value)) < 400
    assert "ERROR" not in str(caught.value)


# malformed answers to each call; none of them may end in a traceback
Work = Callable[[Bus], Awaitable[object]]
READS = {
    "caps": lambda client: client.caps(),
    "list": lambda client: client.list_units(["*"]),
    "observe": lambda client: client.observe(["*"]),
    "inspect": lambda client: client.inspect(NAME),
    "read start": lambda client: client.read_start(NAME),
    "start": lambda client: client.start(UNIT),
    "stop": lambda client: client.stop(NAME),
    "set": lambda client: client.set_properties(NAME, {"CPUWeight": 5}),
}
ANSWERS = [
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
async def test_replies_of_other_types_are_podslice_errors(bus, work, answer):
    async def script(caller, call):
        if answer[0] != "a(ssssssouso)" or call.member == "ListUnitsByPatterns":
            caller.reply(call, answer[0], *answer[1])
        else:  # further calls use values of the first reply
            caller.reply(call, "v", Variant("d", 0.5))

    bus.script = script
    async with bus.client() as client:
        with contextlib.suppress(SystemdError):
            await bus.settle(work(client))


@pytest.mark.parametrize("body", [("u", (7,)), ("a{sv}", ({},)), ("uavss", (1, [], "", ""))])
async def test_signals_of_other_types_cost_the_connection_only(bus, body):
    async def script(caller, call):
        if bus.clients == 1:
            caller.manager_signal("JobRemoved", body[0], *body[1])
        else:
            caller.reply(call, "v", Variant("s", "257"))

    bus.script = script
    async with bus.client() as client:
        assert (await client.caps()).systemd_version == 257
    assert bus.clients == 2


async def test_bus_that_passes_no_descriptors(bus):
    async def refuse(reader, writer):
        await reader.readline()
        await reader.readline()
        writer.write(b"OK 0123456789abcdef0123456789abcdef\r\nERROR\r\n")
        await reader.readline()

    async def script(caller, call):
        caller.reply(call, "v", Variant("s", "257"))

    bus.handshake, bus.script = refuse, script
    async with bus.client() as client:
        assert (await client.caps()).pidfds is False
        with pytest.raises(BadProperty, match=r"^a\.scope: this bus passes no descriptors$"):
            await client.start(TransientUnit(name=SCOPE, properties={"PIDFDs": (0,)}))


@pytest.mark.parametrize(("version", "pidfds"), [("254.1", False), ("255~rc1", True)])
async def test_descriptors_of_processes_are_taken_since_255(bus, version, *, pidfds):
    async def script(caller, call):
        caller.reply(call, "v", Variant("s", version))

    bus.script = script
    async with bus.client() as client:
        assert (await client.caps()).pidfds is pidfds


async def test_connecting_can_be_canceled(bus):
    async def be_silent(reader, writer):
        await reader.read()

    bus.handshake = be_silent
    task = asyncio.create_task(bus.client().__aenter__())
    await until(lambda: bool(bus.clients))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_bus_without_systemd(bus, monkeypatch):
    async def take(caller, call):
        if call.member == "GetNameOwner":
            caller.refuse(call, "org.freedesktop.DBus.Error.NameHasNoOwner", sender=BUS)
        else:
            caller.reply(call, "s", ":1.5", sender=BUS)

    monkeypatch.setattr(bus, "take", take)
    monkeypatch.setattr(connection, "ABSENCE_SEC", 0.05)
    with pytest.raises(BusUnavailable, match="systemd1 is not on this bus; is systemd running"):
        await bus.client().__aenter__()


async def test_fifty_connections_leave_no_descriptors(bus):
    before = descriptors()
    for _ in range(50):
        async with bus.client():
            pass
    await until(lambda: descriptors() <= before)


# jobs


async def test_forged_results_are_ignored(bus):
    async def script(caller, call):
        caller.job_removed("failed", sender=":1.666")
        caller.reply(call, "o", JOB, sender=":1.666")
        caller.reply(call, "o", JOB)
        caller.job_removed("failed", sender=":1.666")
        caller.job_removed("done")

    bus.script = script
    async with bus.client() as client:
        await client.start(UNIT)


async def test_result_before_the_reply(bus):
    async def script(caller, call):
        caller.job_removed("dependency")
        caller.reply(call, "o", JOB)

    bus.script = script
    async with bus.client() as client:
        with pytest.raises(JobFailed, match=f"{NAME}.*'dependency'") as caught:
            await client.start(UNIT)
        assert caught.value.result == "dependency"
        assert client.systemd.jobs.early == {}


async def test_results_of_other_jobs_are_not_kept(bus):
    async def script(caller, call):
        caller.reply(call, "o", JOB)
        for other in range(1000):
            caller.job_removed("done", job=f"{JOB}{other}")
        caller.job_removed("done")

    bus.script = script
    async with bus.client() as client:
        await client.start(UNIT)
        assert (client.systemd.jobs.early, client.systemd.jobs.waiting) == ({}, {})


async def test_calls_that_share_a_job(bus):
    async def script(caller, call):
        caller.reply(call, "o", JOB)
        if len(bus.calls) == 2:
            caller.job_removed("done")

    bus.script = script
    async with bus.client() as client:
        await asyncio.gather(client.stop(NAME), client.stop(NAME))


async def test_job_that_does_not_end(bus):
    async def script(caller, call):
        caller.reply(call, "o", JOB)

    bus.script = script
    async with bus.client() as client:
        with pytest.raises(CallTimeout, match=f"{NAME}: no reply within 20 s"):
            await bus.settle(client.start(UNIT))
        assert client.systemd.jobs.waiting == {}


# answers


async def test_call_without_an_answer(bus):
    async def script(caller, call):
        if len(bus.calls) == 1:
            bus.expire()
        else:
            caller.reply(call, "v", Variant("s", "252"))

    bus.script = script
    async with bus.client() as client:
        with pytest.raises(CallTimeout, match="systemd's Version"):
            await client.caps()
        assert (await client.caps()).systemd_version == 252
        assert client.systemd.connection
        assert client.systemd.connection.replies == {}
    assert bus.clients == 1


async def test_late_answer_is_ignored(bus):
    waiting = []

    async def script(caller, call):
        waiting.append(call)
        if len(waiting) == 1:
            bus.expire()
        else:
            caller.reply(waiting[0], "v", Variant("s", "1"))
            caller.reply(waiting[1], "v", Variant("s", "2"))

    bus.script = script
    async with bus.client() as client:
        with pytest.raises(CallTimeout):
            await client.caps()
        assert (await client.caps()).systemd_version == 2


async def test_answer_in_single_bytes(bus):
    async def script(caller, call):
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
async def test_answer_that_is_not_dbus(bus, garbage):
    async def script(caller, call):
        caller.writer.write(garbage)
        await caller.writer.drain()
        if garbage.endswith(b"\0"):  # an empty header is valid, but not a reply to a call
            caller.writer.close()

    bus.script = script
    async with bus.client() as client:
        with pytest.raises(BusUnavailable):
            await client.caps()
    assert bus.clients == 2


async def test_canceled_calls_leave_nothing(bus):
    async def script(caller, call):
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
        assert client.systemd.connection
        assert client.systemd.connection.replies == {}
        assert client.systemd.jobs.waiting == {}


async def test_calls_in_flight_are_bounded(bus):
    waiting = []
    most = 0

    async def script(caller, call):
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
async def test_errors_in_our_words(bus, error_name, expected, message):
    async def script(caller, call):
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


async def test_a_lost_connection_is_opened_again_once(bus):
    async def script(caller, call):
        if len(bus.calls) == 1:
            caller.writer.close()
        else:
            caller.reply(call, "v", Variant("s", "252"))

    bus.script = script
    async with bus.client() as client:
        assert (await client.caps()).systemd_version == 252
    assert bus.clients == 2


async def test_connection_that_always_drops(bus):
    async def drop(caller, call):
        caller.writer.close()

    async def answer(caller, call):
        caller.reply(call, "v", Variant("s", "252"))

    bus.script = drop
    async with bus.client() as client:
        with pytest.raises(BusUnavailable, match=r"connection to the bus .* was lost"):
            await client.caps()
        bus.script = answer
        assert (await client.caps()).systemd_version == 252
    assert bus.clients == 3


async def test_connection_dropped_between_calls(bus):
    async def script(caller, call):
        caller.reply(call, "v", Variant("s", "252"))
        caller.writer.close()

    bus.script = script
    async with bus.client() as client:
        for _ in range(3):
            assert (await client.caps()).systemd_version == 252


async def test_job_is_asked_for_again_when_systemd_restarts(bus):
    async def script(caller, call):
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


@pytest.mark.parametrize("verb", ["start_batch", "stop_batch"])
async def test_the_slice_of_a_batch_is_unloaded_when_systemd_restarts(bus, verb):
    async def script(caller, call):
        if call.member == "StartTransientUnit":
            caller.reply(call, "o", JOB)
            caller.job_removed("done")
        elif call.member == "StopUnit" and bus.calls.count("StopUnit") == 1:
            caller.owner_changed(OWNER, "")
            caller.refuse(call, "org.freedesktop.DBus.Error.NoReply", sender=BUS)
            caller.owner_changed("", OWNER)
        else:
            caller.refuse(call, "org.freedesktop.systemd1.NoSuchUnit", "not loaded.")

    bus.script = script
    async with bus.client() as client:
        await getattr(client, verb)([UNIT] if verb == "start_batch" else [NAME])
    assert bus.calls[:3] == ["StartTransientUnit", "StopUnit", "StopUnit"]


async def test_no_call_is_sent_while_systemd_is_off_the_bus(bus):
    async def script(caller, call):
        if len(bus.calls) == 1:
            caller.owner_changed(OWNER, "")
            caller.refuse(call, "org.freedesktop.DBus.Error.NoReply", sender=BUS)
            back.append(caller)
        else:
            caller.reply(call, "v", Variant("s", "252"))

    back = []
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
async def test_timer_that_exists_after_an_interruption(bus, delay_usec, *, is_ours):
    async def script(caller, call):
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
async def test_unit_that_exists_after_an_interruption(bus, weight, *, is_ours):
    async def script(caller, call):
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


async def test_calls_in_flight_end_when_the_client_is_closed(bus):
    async with bus.client() as client:
        asking = asyncio.create_task(client.caps())
        await until(lambda: bool(bus.calls))
    with pytest.raises(BusUnavailable, match="closed"):
        await asking
    assert bus.clients == 1


# changes


class SubscribingScript:
    """A script that accepts subscriptions, replies with systemd's version, and keeps its callers."""

    def __init__(self):
        self.callers = []
        self.changes = []

    async def __call__(self, caller, call):
        if call.member == "Subscribe":
            self.callers.append(caller)
            caller.reply(call)
        else:
            caller.reply(call, "v", Variant("s", "252"))

    async def is_reported(self, *expected):
        """Return whether exactly these changes were reported since the last call."""
        await until(lambda: len(self.changes) >= len(expected))
        for _ in range(20):
            await asyncio.sleep(0)
        changes, self.changes[:] = list(self.changes), []
        return changes == list(expected)


async def test_a_client_without_on_change_does_not_subscribe(bus):
    bus.script = SubscribingScript()
    async with bus.client() as client:
        await client.caps()
    assert bus.calls == ["Get"]
    assert len(bus.matches) == 2  # of jobs, and of the name's owner


async def test_signals_of_systemd_are_reported_and_no_others(bus):
    bus.script = script = SubscribingScript()
    async with bus.client(on_change=script.changes.append) as client:
        assert await script.is_reported(None)
        (caller,) = script.callers
        caller.manager_signal("UnitRemoved", "so", NAME, "/x", sender=":1.99")
        caller.manager_signal("UnitRemoved", "so", SCOPE, "/x")
        assert await script.is_reported(SCOPE)
        caller.manager_signal("Reloading", "b", True)
        caller.manager_signal("UnitRemoved", "so", SCOPE, "/x")
        caller.job_removed("done")
        caller.manager_signal("Reloading", "b", False)
        caller.job_removed("done")
        assert await script.is_reported(None, NAME)
        await client.caps()
        assert await script.is_reported()
    assert await script.is_reported()  # the close itself is not reported again
    assert bus.calls == ["Subscribe", "Get"]


async def test_exits_of_services_are_reported_before_their_changes(bus):
    """A service that runs again no longer has its exit."""
    bus.script = script = SubscribingScript()
    reports = []
    values = {
        "StatusText": Variant("s", "x"),
        "ExecMainCode": Variant("i", 1),
        "ExecMainStatus": Variant("i", 5),
        "ExecMainStartTimestamp": Variant("t", 10),
        "ExecMainExitTimestamp": Variant("t", 30),
        "Result": Variant("s", "exit-code"),
    }
    running = {**values, "ExecMainCode": Variant("i", 0)}
    async with bus.client(
        on_change=script.changes.append,
        on_exit=lambda name, last: reports.extend((name, last, *script.changes)),
    ):
        assert await script.is_reported(None)
        (caller,) = script.callers
        caller.properties_changed(NAME, running)
        for wrong in ({"ExecMainCode": Variant("i", 1)}, {**values, "Result": Variant("u", 1)}):
            caller.properties_changed(NAME, wrong)
        caller.properties_changed(NAME, values)
        assert await script.is_reported(NAME, NAME, NAME, NAME)
    last = ContainerExit(result="exit-code", exit_code=5, started_usec=10, ended_usec=30)
    assert reports == [NAME, last, NAME, NAME, NAME]


async def test_lost_connection_is_reported_once_and_the_new_one_is_subscribed(bus):
    bus.script = script = SubscribingScript()
    async with bus.client(on_change=script.changes.append) as client:
        assert await script.is_reported(None)
        matches, bus.matches[:] = list(bus.matches), []
        for connections in (1, 2, 3):
            assert (bus.clients, len(script.callers)) == (connections, connections)
            script.callers[-1].writer.close()
            assert await script.is_reported(None)
            for _ in range(2):
                await client.caps()
            assert await script.is_reported(None)
            assert bus.matches == matches
            bus.matches.clear()


async def test_the_subscription_is_renewed_on_a_new_connection_after_systemd_left(bus):
    """It may or may not have kept the subscription over its restart."""
    bus.script = script = SubscribingScript()
    async with bus.client(on_change=script.changes.append) as client:
        assert await script.is_reported(None)
        script.callers[0].owner_changed(OWNER, "")
        script.callers[0].owner_changed("", ":1.2")
        assert await script.is_reported(None)
        assert bus.clients == 1
        await asyncio.gather(*(client.caps() for _ in range(5)))
        assert await script.is_reported(None)
    assert bus.clients == 2
    assert bus.calls.count("Subscribe") == 2


async def test_bus_that_stays_away_is_reported_once(bus, monkeypatch):
    """A client that makes a call on every change would never come to rest."""

    async def hang_up(reader, writer):
        raise ConnectionError

    bus.script = script = SubscribingScript()
    async with bus.client(on_change=script.changes.append) as client:
        assert await script.is_reported(None)
        bus.handshake = hang_up
        script.callers[0].writer.close()
        assert await script.is_reported(None)
        for _ in range(3):
            with pytest.raises(BusUnavailable):
                await client.caps()
        assert await script.is_reported()
        bus.handshake = accept
        await client.caps()
        assert await script.is_reported(None)


async def test_subscription_that_is_refused_is_tried_again(bus):
    script = SubscribingScript()

    async def refuse(caller, call):
        caller.refuse(call, "org.freedesktop.DBus.Error.AccessDenied")

    bus.script = refuse
    client = bus.client(on_change=script.changes.append)
    with pytest.raises(Refused):
        await client.__aenter__()
    assert script.changes == []
    bus.script = script
    await client.caps()
    assert await script.is_reported(None)
    await client.__aexit__(None, None, None)


# descriptors


class Other:
    """The other end of a connection that is open and has been introduced."""

    def __init__(self, end):
        self.end = end
        self.seen = b""
        self.files = []
        """The inodes of what came."""

    def read(self):
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

    def frames(self):
        """The whole messages read so far."""
        found, rest = [], self.seen
        while (size := wire.frame_bytes(rest)) and size <= len(rest):
            found.append(wire.parse_frame(rest[:size]))
            rest = rest[size:]
        return found


class Deaf:
    """Ignores all signals."""

    def on_signal(self, signal):
        pass

    def on_interruption(self, error):
        pass


@pytest.fixture
async def other(monkeypatch):
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    for end in (ours, theirs):
        end.setblocking(False)

    async def open_socket(address):
        return ours, True

    async def introduce(self):
        self.follow(OWNER)

    monkeypatch.setattr(connection, "open_socket", open_socket)
    monkeypatch.setattr(Connection, "introduce", introduce)
    made = await Connection.open(
        Peer(address="", service=BUS, error_of=error_of, timeout_sec=5), Deaf()
    )
    yield made, Other(theirs)
    await made.close()
    theirs.close()


def call_with(made, text, *descriptors):
    call = made.call(
        "Do", "s", [text], path="/", interface="a.b", about="it", descriptors=descriptors
    )
    return asyncio.create_task(call)


async def test_descriptors_come_with_their_message(other):
    """However full the socket is: before, between and after calls without any."""
    made, there = other
    sizes = {"a": 50_000, "b": 3, "c": 60_000, "d": 5, "e": 70_000, "f": 90_000}
    calls = [
        call_with(made, letter * size, *([0, 0] if letter in "bdf" else []))
        for letter, size in sizes.items()
    ]

    def has_all():
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


async def test_connection_lost_while_a_descriptor_waits(other):
    made, there = other
    calls = [call_with(made, "x" * 200_000), call_with(made, "y", 0)]
    await asyncio.sleep(0)
    there.end.close()
    for call in calls:
        with pytest.raises(BusUnavailable):
            await call


async def test_descriptors_stay_the_caller_s(other):
    made, there = other
    ours = os.dup(0)
    call = call_with(made, "x", ours)

    def has_it():
        there.read()
        return bool(there.files)

    await until(has_it)
    call.cancel()
    os.close(ours)
