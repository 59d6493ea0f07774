"""A bus whose replies and signals a test scripts, and which counts what it receives."""

import asyncio
import os

from podslice.systemd.dbus.library._private.marshaller import Marshaller
from podslice.systemd.dbus.library.signature import Variant

from podslice.model.unit import Manager, TransientUnit, UnitName
from podslice.systemd.bus import Bus
from podslice.systemd.dbus import wire
from podslice.systemd.manager import path_of

METHOD_RETURN = 2
BUS = "org.freedesktop.DBus"
OWNER = ":1.1"
NAME = UnitName("podslicetest.slice")
SCOPE = UnitName("a.scope")
TIMEOUT_SEC = 5
QUIET_TURNS = 50
"""Turns of the loop, in which both ends run, after which nothing more is under way."""
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

# the head of the field with the number of descriptors
UNIX_FDS = b"\x09\x01u\0"

FIELDS = {"path": (1, "o"), "interface": (2, "s"), "member": (3, "s"), "error_name": (4, "s")}
FIELDS |= {"reply_serial": (5, "u"), "sender": (7, "s"), "signature": (8, "g")}


def encode(kind, signature="", body=(), **header):
    """Return a message as a bus delivers it, with its sender."""
    content = Marshaller(signature, list(body)).marshall()
    header["signature"] = signature
    fields = [[FIELDS[key][0], Variant(FIELDS[key][1], value)] for key, value in header.items()]
    prefix = Marshaller("yyyyuua(yv)", [ord("l"), kind, 0, 1, len(content), 1, fields])
    start = prefix.marshall()
    return bytes(start + bytes(-len(start) % 8) + content)


class Caller:
    """One client of the scripted bus, as scripts receive it."""

    def __init__(self, writer):
        self.writer = writer

    def reply(self, call, signature="", *body, **header):
        """Reply to a call, by default as the owner of systemd's name."""
        header = {"sender": OWNER, "reply_serial": serial_of(call), **header}
        self.writer.write(encode(METHOD_RETURN, signature, body, **header))

    def refuse(self, call, error_name, text="words", *, sender=OWNER):
        header = {"error_name": error_name, "reply_serial": serial_of(call), "sender": sender}
        self.writer.write(encode(wire.ERROR, "s", (text,), **header))

    def job_removed(self, result, *, sender=OWNER, job=JOB):
        self.manager_signal("JobRemoved", "uoss", 7, job, NAME, result, sender=sender)

    def manager_signal(self, member, signature, *body, sender=OWNER):
        header = {"path": "/org/freedesktop/systemd1", "member": member, "sender": sender}
        header["interface"] = "org.freedesktop.systemd1.Manager"
        self.writer.write(encode(wire.SIGNAL, signature, body, **header))

    def properties_changed(self, name, changed):
        """Send the signal of changed properties of a service."""
        header = {"path": path_of(name), "member": "PropertiesChanged", "sender": OWNER}
        header["interface"] = "org.freedesktop.DBus.Properties"
        body = ("org.freedesktop.systemd1.Service", changed, ["ExecStart"])
        self.writer.write(encode(wire.SIGNAL, "sa{sv}as", body, **header))

    def owner_changed(self, before, after):
        header = {"path": "/org/freedesktop/DBus", "member": "NameOwnerChanged", "sender": BUS}
        body = ("org.freedesktop.systemd1", before, after)
        self.writer.write(encode(wire.SIGNAL, "sss", body, interface=BUS, **header))


def serial_of(call):
    return int.from_bytes(call.frame[8:12], "little")


async def until(condition):
    """Run the loop until a condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - no event is set
            await asyncio.sleep(0)


async def accept(reader, writer):
    """Accept a client, as a server does."""
    assert (await reader.readline()).startswith(b"\0AUTH EXTERNAL ")
    assert await reader.readline() == b"NEGOTIATE_UNIX_FD\r\n"
    writer.write(b"OK 0123456789abcdef0123456789abcdef\r\n")
    writer.write(b"AGREE_UNIX_FD\r\n")
    assert await reader.readline() == b"BEGIN\r\n"


class ScriptedBus:
    """A bus with Hello, AddMatch and GetNameOwner; the script of a test handles other calls."""

    def __init__(self, path):
        self.address = f"unix:path={path}"
        self.calls = []
        self.clients = 0
        self.matches = []
        self.handshake = accept
        self.script = self._answer_nothing
        self._path = path
        self._server = None
        self._skipped_sec = 0.0

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        loop.time = lambda: type(loop).time(loop) + self._skipped_sec  # type: ignore[method-assign]
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(self, *_):
        assert self._server
        self._server.close()
        await self._server.wait_closed()
        await until(lambda: len(asyncio.all_tasks()) == 1)  # the task of each client has finished

    def client(self, **options):
        return Bus(Manager(bus_address=self.address), timeout_sec=TIMEOUT_SEC, **options)

    def expire(self):
        """Let every call that waits for a reply or a job time out now, without waiting."""
        self._skipped_sec += 10 * TIMEOUT_SEC

    async def settle(self, work):
        """Return the result of calls; those that still wait when the bus is quiet time out."""
        task = asyncio.ensure_future(work)
        while not task.done():
            for _ in range(QUIET_TURNS):
                await asyncio.sleep(0)
            self.expire()
        return await task

    async def _serve(self, reader, writer):
        self.clients += 1
        try:
            await self.handshake(reader, writer)
            while frame := await read_frame(reader):
                await self.take(Caller(writer), wire.parse_frame(frame))
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def take(self, caller, call):
        answers = {"Hello": ":1.5", "GetNameOwner": OWNER}
        if call.member in answers:
            caller.reply(call, "s", answers[call.member], sender=BUS)
        elif call.member == "AddMatch":
            self.matches.append(call.body()[0])
            caller.reply(call, sender=BUS)
        else:
            self.calls.append(call.member)
            await self.script(caller, call)

    async def _answer_nothing(self, caller, call):
        pass


async def read_frame(reader):
    try:
        start = await reader.readexactly(16)
        return start + await reader.readexactly((wire.frame_bytes(start) or 16) - 16)
    except asyncio.IncompleteReadError:
        return b""


def descriptors():
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - shorter
