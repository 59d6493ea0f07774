"""One connection to a message bus, to talk to one service on it: messages, no knowledge of systemd.

dbus-next makes the outgoing messages; its own `MessageBus` is not used, because its writer loses
the connection on EAGAIN, its authentication spins on EOF, its calls never end on a dead bus, and
its sockets and handlers leak. An asyncio transport has none of these. Should dbus-next have to go
(its import fails from Python 3.15 on), dbus-fast has the same `Message`.

Calls to us are not answered: nobody has a reason to make any.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, Self, cast

from podslice.errors import (
    BadMessage,
    BadProperty,
    BusUnavailable,
    CallTimeout,
    NoSuchUnit,
    Refused,
    SystemdError,
    UnitExists,
)
from podslice.imports import without
from podslice.systemd.dbus import wire
from podslice.systemd.dbus.handshake import open_socket

with without("gi"):  # GLib's loop, several MiB, and this one is asyncio's
    from dbus_next.constants import MessageFlag
    from dbus_next.message import Message
    from dbus_next.signature import Variant

__all__ = ["Connection", "Interrupted", "Peer", "SignalListener", "Variant", "in_time"]

log = logging.getLogger(__name__)

_BUS = "org.freedesktop.DBus"
_BUS_PATH = "/org/freedesktop/DBus"
_DBUS_ERROR = "org.freedesktop.DBus.Error."
_SYSTEMD_ERROR = "org.freedesktop.systemd1."

# how long a service may be absent from the bus before it counts as not there: daemon-reexec takes
# 0.2 s on a host with some hundred units
_ABSENCE_SEC = 2

_AS_ROOT = "run as root, or use --user"


class Interrupted(BusUnavailable):
    """The connection or the service went away with the call unanswered; it may have had its effect."""


# Everything else stays a SystemdError that has the name of the error in its message.
_ERRORS: dict[str, type[SystemdError]] = {
    _SYSTEMD_ERROR + "UnitExists": UnitExists,
    _SYSTEMD_ERROR + "NoSuchUnit": NoSuchUnit,
    _SYSTEMD_ERROR + "BadUnitSetting": BadProperty,  # something that it needs is missing
    _DBUS_ERROR + "InvalidArgs": BadProperty,
    _DBUS_ERROR + "PropertyReadOnly": BadProperty,  # systemd's word for an unknown property, too
    _DBUS_ERROR + "UnknownProperty": BadProperty,
    _DBUS_ERROR + "FileNotFound": BadProperty,  # a scope without processes
    _DBUS_ERROR + "UnixProcessIdUnknown": BadProperty,  # a process that has ended
    "System.Error.ENXIO": BadProperty,  # a value of the wrong type
    "System.Error.ESRCH": BadProperty,  # as UnixProcessIdUnknown, from 255 on
    _DBUS_ERROR + "AccessDenied": Refused,
    _DBUS_ERROR + "AuthFailed": Refused,
    _DBUS_ERROR + "InteractiveAuthorizationRequired": Refused,
    "System.Error.EACCES": Refused,
    "System.Error.EPERM": Refused,
    _DBUS_ERROR + "Timeout": CallTimeout,
    _DBUS_ERROR + "TimedOut": CallTimeout,
    _DBUS_ERROR + "NoReply": Interrupted,  # the service left the bus: daemon-reexec
    _DBUS_ERROR + "Disconnected": Interrupted,
    _DBUS_ERROR + "ServiceUnknown": Interrupted,  # between leaving and coming back
    _DBUS_ERROR + "NameHasNoOwner": Interrupted,
    _DBUS_ERROR + "LimitsExceeded": BusUnavailable,
}


_ENDED = {_DBUS_ERROR + "UnixProcessIdUnknown", "System.Error.ESRCH"}


def error_of(reply: wire.Received, about: str) -> SystemdError:
    """Our error for an error reply, about a unit or whatever the call was about."""
    values = reply.body()
    words = str(values[0]).rstrip(".") if values else "no reason given"
    if reply.error_name in _ENDED:
        words = f"a process has ended ({words})"
    kind = _ERRORS.get(reply.error_name, SystemdError)
    if kind is Refused:
        return Refused(f"{about}: access denied ({words}); {_AS_ROOT}")
    if kind is SystemdError:
        return SystemdError(f"{about}: {words} ({reply.error_name})")
    return kind(f"{about}: {words}")


class SignalListener(Protocol):
    """Who wants to hear what comes unasked."""

    def on_signal(self, signal: wire.Received) -> None:
        """A signal that the service itself has sent."""

    def on_interruption(self, error: Interrupted) -> None:
        """The connection or the service went away; what was expected from it may never come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Whom to connect to, and with what patience."""

    address: str
    """A D-Bus address; only unix sockets."""
    service: str
    """The well-known name of the one service that is talked to."""
    matches: tuple[str, ...] = ()
    """Match rules for the signals that are wanted."""
    hint: str = ""
    """What to do when there is no bus."""
    timeout_sec: float = 30
    """For connecting, and for every answer."""
    in_flight: int = 32
    """Calls without an answer at any time. dbus-daemon takes 128; above 32 nothing gets faster."""

    def describe(self, error: BaseException) -> str:
        """Why there is no connection, in one line."""
        reason = (
            f"no answer in {self.timeout_sec:g} s" if isinstance(error, TimeoutError) else error
        )
        return f"no connection to systemd at {self.address!r:.128}: {reason}; {self.hint}".rstrip(
            "; "
        )


class Connection(asyncio.Protocol):
    """An open connection; made by `Connection.open`.

    Only what the service itself or the bus driver has sent is believed: anybody on the bus may
    send us a signal or a reply.
    """

    def __init__(self, peer: Peer, listeners: Sequence[SignalListener]) -> None:
        self._peer = peer
        self._listeners = listeners
        self._slots = asyncio.Semaphore(peer.in_flight)
        self._serials = itertools.count(1)
        self._replies: dict[int, asyncio.Future[wire.Received]] = {}
        self._buffer = bytearray()
        self._owner = ""
        self._present = asyncio.Event()
        self._closed = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self.takes_descriptors = False
        """Whether messages may carry descriptors."""

    @classmethod
    async def open(cls, peer: Peer, *listeners: SignalListener) -> Self:
        """Connect, authenticate, and find the service.

        Raises:
            BusUnavailable: there is no bus, it refuses us, or the service is not on it.
        """
        connection = cls(peer, listeners)
        try:
            async with asyncio.timeout(peer.timeout_sec):
                await connection._connect()
        except BaseException as error:
            await connection.close()
            if isinstance(error, OSError | ValueError | EOFError | Interrupted):
                raise BusUnavailable(peer.describe(error)) from error
            raise
        return connection

    @property
    def lost(self) -> bool:
        """Whether this connection is of no use any more."""
        return self._transport is None or self._transport.is_closing()

    async def close(self) -> None:
        """Close the socket; calls in flight end as `Interrupted`."""
        if self._transport is not None:
            self._transport.abort()
            await self._closed.wait()

    async def call(  # noqa: PLR0913 - what a message has
        self,
        member: str,
        signature: str = "",
        body: Sequence[object] = (),
        *,
        path: str,
        interface: str,
        about: str,
        descriptors: Sequence[int] = (),
    ) -> wire.Received:
        """Call a method of the service and return its reply.

        `descriptors` go with it, and stay the caller's; the body has their positions.

        Raises:
            BadProperty: this bus takes no descriptors.
            Interrupted: connection or service were lost before the answer.
            CallTimeout, SystemdError: no answer in time, or an error as answer; `about` says
                in the message what the call was about.
        """
        if descriptors and not self.takes_descriptors:
            raise BadProperty(f"{about}: this bus passes no descriptors")
        message = Message(
            destination=self._peer.service,
            path=path,
            interface=interface,
            member=member,
            flags=MessageFlag.NO_AUTOSTART,
            signature=signature,
            body=list(body),
            unix_fds=list(descriptors),
        )
        async with self._slots, in_time(self._peer.timeout_sec, about):
            await self._present.wait()
            return await self._exchange(message, about)

    async def _connect(self) -> None:
        sock, self.takes_descriptors = await open_socket(self._peer.address)
        self._socket = sock
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)
        except BaseException:
            sock.close()
            raise
        await self._introduce()

    async def _introduce(self) -> None:
        await self._call_bus("Hello")
        # before the owner is asked for: no change can get lost in between
        await self._call_bus("AddMatch", _owner_changes(self._peer.service))
        for match in self._peer.matches:
            await self._call_bus("AddMatch", match)
        try:
            owner = await self._call_bus("GetNameOwner", self._peer.service)
            self._follow(str(owner.body("s")[0]))
        except Interrupted:
            await self._await_service()

    async def _await_service(self) -> None:
        """Give a service that may just be re-executing itself the time to come back."""
        try:
            async with asyncio.timeout(_ABSENCE_SEC):
                await self._present.wait()
        except TimeoutError as error:
            raise EOFError(f"{self._peer.service} is not on this bus") from error

    async def _call_bus(self, member: str, *arguments: str) -> wire.Received:
        message = Message(
            destination=_BUS,
            path=_BUS_PATH,
            interface=_BUS,
            member=member,
            signature="s" * len(arguments),
            body=list(arguments),
        )
        return await self._exchange(message, self._peer.service)

    async def _exchange(self, message: Message, about: str) -> wire.Received:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise Interrupted(f"{about}: the connection to the bus was lost")
        message.serial = next(self._serials)
        future: asyncio.Future[wire.Received] = asyncio.get_running_loop().create_future()
        self._replies[message.serial] = future
        try:
            frame = message._marshall(negotiate_unix_fd=True)  # noqa: SLF001 - no public way
            if message.unix_fds:
                await self._send_with(message.unix_fds, frame, transport)
            else:
                transport.write(frame)
            reply = await future
        finally:
            del self._replies[message.serial]
        if reply.kind == wire.ERROR:
            raise error_of(reply, about)
        return reply

    async def _send_with(
        self, descriptors: Sequence[int], frame: bytes, transport: asyncio.Transport
    ) -> None:
        """Send a message with descriptors, which a transport can't.

        They go with its first byte, so nothing may be queued before it; what does not fit follows
        in the usual manner. When the connection is lost, the waiting for the reply ends.
        """
        while self._socket is not None and not transport.is_closing():
            if not transport.get_write_buffer_size():
                try:
                    sent = socket.send_fds(self._socket, [frame], descriptors)
                except BlockingIOError:
                    pass  # the bus has its hands full
                except ConnectionError:
                    transport.abort()
                else:
                    transport.write(frame[sent:])
                    break
            await asyncio.sleep(0.01)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            while (size := wire.frame_bytes(self._buffer)) and size <= len(self._buffer):
                frame = bytes(self._buffer[:size])
                del self._buffer[:size]
                self._take(wire.parse_frame(frame))
        except BadMessage as error:
            log.debug("%s", error)
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        log.debug("connection to %s is closed: %s", self._peer.address, exc)
        self._interrupt(f"the connection to the bus at {self._peer.address!r} was lost")
        self._closed.set()

    # What comes in.

    def _take(self, message: wire.Received) -> None:
        if not message.sender or message.sender not in {_BUS, self._owner}:
            log.debug("ignoring %s of %s", message.member or "reply", message.sender)
        elif message.reply_serial:
            future = self._replies.get(message.reply_serial)
            if future is not None and not future.done():
                future.set_result(message)
        elif message.kind == wire.SIGNAL:
            self._take_signal(message)

    def _take_signal(self, signal: wire.Received) -> None:
        if signal.sender != _BUS:
            for listener in self._listeners:
                listener.on_signal(signal)
        elif signal.member == "NameOwnerChanged":
            name, _before, owner = signal.body("sss")
            if name == self._peer.service:
                self._follow(owner)

    def _follow(self, owner: str) -> None:
        before, self._owner = self._owner, owner
        if owner:
            self._present.set()
        else:
            self._present.clear()
        if before and before != owner:
            # its unanswered calls get NoReply from the bus
            self._tell_interruption(f"{self._peer.service} left the bus")

    def _interrupt(self, why: str) -> None:
        for future in self._replies.values():
            if not future.done():
                future.set_exception(Interrupted(why))
        self._present.set()  # whoever waits for the service finds out that the bus is gone
        self._tell_interruption(why)

    def _tell_interruption(self, why: str) -> None:
        for listener in self._listeners:
            listener.on_interruption(Interrupted(why))


@asynccontextmanager
async def in_time(timeout_sec: float, about: str) -> AsyncIterator[None]:
    """Bound what is awaited inside.

    Raises:
        CallTimeout: the time is over.
    """
    try:
        async with asyncio.timeout(timeout_sec):
            yield
    except TimeoutError as error:
        message = f"{about}: no answer within {timeout_sec:g} s; the call may still have its effect"
        raise CallTimeout(message) from error


def _owner_changes(service: str) -> str:
    return (
        f"type='signal',sender='{_BUS}',path='{_BUS_PATH}',interface='{_BUS}',"
        f"member='NameOwnerChanged',arg0='{service}'"
    )
