"""A connection to a message bus, for calls and signals of one service on it.

dbus-next marshals the outgoing messages; its own `MessageBus` is not used, because its writer loses
the connection on EAGAIN, its authentication spins on EOF, its calls never return on a dead bus, and
its sockets and handlers leak. An asyncio transport has none of these defects. A replacement of
dbus-next is dbus-fast, which has the same `Message`.

Incoming method calls are not answered: this process exports no object.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, cast
from urllib.parse import unquote

from podslice.errors import BadMessage, BadProperty, BusUnavailable, CallTimeout
from podslice.systemd.dbus import wire

if TYPE_CHECKING:
    from dbus_next.constants import MessageFlag
    from dbus_next.message import Message
    from dbus_next.signature import Variant
else:
    from podslice.systemd.dbus.library.constants import MessageFlag
    from podslice.systemd.dbus.library.message import Message
    from podslice.systemd.dbus.library.signature import Variant

__all__ = ["Connection", "ConnectionLost", "Peer", "SignalListener", "Variant", "in_time"]

log = logging.getLogger(__name__)

_BUS = "org.freedesktop.DBus"
_BUS_PATH = "/org/freedesktop/DBus"
_INTERRUPTIONS = frozenset(
    f"{_BUS}.Error.{name}"
    for name in (
        "NoReply",  # the service left the bus
        "Disconnected",
        "ServiceUnknown",  # between leaving and returning
        "NameHasNoOwner",
    )
)

# a service may be absent from the bus for so long while it executes itself again: that takes 0.2 s
# for one that has some hundred objects
ABSENCE_SEC = 2


class ConnectionLost(BusUnavailable):
    """The connection or the service was lost before the reply; the call may have taken effect."""


class SignalListener(Protocol):
    """Receives signals, and the loss of the connection."""

    def on_signal(self, signal: wire.Received) -> None:
        """Handle a signal that the service itself sent."""

    def on_interruption(self, error: ConnectionLost) -> None:
        """Handle the loss of the connection or the service: expected signals may never arrive."""


class Peer(NamedTuple):
    """The service to connect to, and the limits of a connection."""

    address: str
    """A D-Bus address; only unix sockets."""
    service: str
    """The well-known name of the only service that is called."""
    error_of: Callable[[wire.Received, str], Exception]
    """Returns the error to raise for an error reply and the subject of the call."""
    title: str = "the bus"
    """The name of the service in messages."""
    matches: tuple[str, ...] = ()
    """Match rules for the signals to receive."""
    hint: str = ""
    """The remedy where there is no bus."""
    timeout_sec: float = 30
    """For connecting, and for every reply."""
    in_flight: int = 32
    """Calls without a reply at any time. dbus-daemon allows 128; above 32 nothing gets faster."""

    def describe(self, error: BaseException) -> str:
        """Describe in one line why there is no connection."""
        is_late = isinstance(error, TimeoutError)
        reason = f"no reply within {self.timeout_sec:g} s" if is_late else error
        text = f"no connection to {self.title} at {self.address!r:.128}: {reason}; {self.hint}"
        return text.rstrip("; ")


class Connection(asyncio.Protocol):
    """An open connection, as returned by `Connection.open`.

    Messages of other senders than the service itself and the bus driver are ignored: every process
    on the bus may send a signal or a reply to this one.
    """

    def __init__(self, peer: Peer, listeners: Sequence[SignalListener]) -> None:
        self._peer = peer
        self._listeners = listeners
        self._slots = asyncio.Semaphore(peer.in_flight)
        self._serials = itertools.count(1)
        self.replies: dict[int, asyncio.Future[wire.Received]] = {}
        """The calls that wait for a reply, by serial number."""
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
            BusUnavailable: there is no bus, it refuses the connection, or lacks the service.
        """
        connection = cls(peer, listeners)
        try:
            async with asyncio.timeout(peer.timeout_sec):
                await connection._connect()
        except BaseException as error:
            await connection.close()
            if isinstance(error, OSError | ValueError | EOFError | ConnectionLost):
                raise BusUnavailable(peer.describe(error)) from error
            raise
        return connection

    @property
    def lost(self) -> bool:
        """Return whether the connection is closed."""
        return self._transport is None or self._transport.is_closing()

    async def close(self) -> None:
        """Close the socket; calls in flight raise `ConnectionLost`."""
        if self._transport is not None:
            self.abort()
            await self._closed.wait()

    def abort(self) -> None:
        """Begin to close the socket; unsent data is discarded."""
        if self._transport is not None:
            self._transport.abort()

    async def call(  # noqa: PLR0913 - the fields of a message
        self,
        member: str,
        signature: str = "",
        body: Sequence[object] = (),
        *,
        path: str,
        interface: str,
        about: str,
        descriptors: Sequence[int] = (),
        timeout_sec: float | None = None,
    ) -> wire.Received:
        """Call a method of the service and return its reply.

        `descriptors` are sent with it, and stay the caller's; the body has their positions.
        `timeout_sec` replaces the usual limit.

        Raises:
            BadProperty: this bus does not pass descriptors.
            ConnectionLost: the connection or the service was lost before the reply.
            CallTimeout: no reply in time; `about` is the subject of the message.
            Exception: an error reply, as `Peer.error_of` translates it.
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
        limit_sec = self._peer.timeout_sec if timeout_sec is None else timeout_sec
        # The limit begins with a free slot, so that it does not depend on other calls; it includes
        # an absence of the service while that executes itself again.
        async with self._slots, in_time(limit_sec, about):
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
        await self.introduce()

    async def introduce(self) -> None:
        """Subscribe to the service's signals, and find the service."""
        await self._call_bus("Hello")
        # before GetNameOwner, so that no change is missed in between
        owner_changes = (
            f"type='signal',sender='{_BUS}',path='{_BUS_PATH}',interface='{_BUS}',"
            f"member='NameOwnerChanged',arg0='{self._peer.service}'"
        )
        for match in (owner_changes, *self._peer.matches):
            await self._call_bus("AddMatch", match)
        try:
            owner = await self._call_bus("GetNameOwner", self._peer.service)
            self.follow(str(owner.body("s")[0]))
        except ConnectionLost:
            try:  # it may be executing itself again
                async with asyncio.timeout(ABSENCE_SEC):
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
            raise ConnectionLost(f"{about}: the connection to the bus was lost")
        message.serial = next(self._serials)
        future: asyncio.Future[wire.Received] = asyncio.get_running_loop().create_future()
        self.replies[message.serial] = future
        try:
            frame = message._marshall(negotiate_unix_fd=True)  # noqa: SLF001 - no public way
            if message.unix_fds:
                await self._send_with(message.unix_fds, frame, transport)
            else:
                transport.write(frame)
            reply = await future
        finally:
            del self.replies[message.serial]
        if reply.kind == wire.ERROR:
            if reply.error_name in _INTERRUPTIONS:
                raise ConnectionLost(f"{about}: {reply.reason}")
            raise self._peer.error_of(reply, about)
        return reply

    async def _send_with(
        self, descriptors: Sequence[int], frame: bytes, transport: asyncio.Transport
    ) -> None:
        """Send a message with descriptors, which a transport cannot.

        They are sent with its first byte, so nothing may be queued before it; the rest is written
        as usual. If the connection is lost, the caller stops waiting for the reply.
        """
        while self._socket is not None and not transport.is_closing():
            if not transport.get_write_buffer_size():
                try:
                    sent = socket.send_fds(self._socket, [frame], descriptors)
                except BlockingIOError:
                    pass  # the socket's buffer is full
                except ConnectionError:
                    transport.abort()
                else:
                    transport.write(frame[sent:])
                    break
            await asyncio.sleep(0.01)

    # asyncio.Protocol

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
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        log.debug("connection to %s is closed: %s", self._peer.address, exc)
        why = f"the connection to the bus at {self._peer.address!r} was lost"
        for future in self.replies.values():
            if not future.done():
                future.set_exception(ConnectionLost(why))
        self._present.set()  # callers that wait for the service find the connection closed
        self._notify_interruption(why)
        self._closed.set()

    # Incoming messages

    def _take(self, message: wire.Received) -> None:
        if not message.sender or message.sender not in {_BUS, self._owner}:
            log.debug("ignoring %s of %s", message.member or "reply", message.sender)
        elif message.reply_serial:
            future = self.replies.get(message.reply_serial)
            if future is not None and not future.done():
                future.set_result(message)
        elif message.kind == wire.SIGNAL and message.sender != _BUS:
            for listener in self._listeners:
                listener.on_signal(message)
        elif message.kind == wire.SIGNAL and message.member == "NameOwnerChanged":
            name, _before, owner = message.body("sss")
            if name == self._peer.service:
                self.follow(owner)

    def follow(self, owner: str) -> None:
        before, self._owner = self._owner, owner
        if owner:
            self._present.set()
        else:
            self._present.clear()
        if before and before != owner:
            # the bus replies to its unanswered calls with NoReply
            self._notify_interruption(f"{self._peer.service} left the bus")

    def _notify_interruption(self, why: str) -> None:
        for listener in self._listeners:
            listener.on_interruption(ConnectionLost(why))


@asynccontextmanager
async def in_time(timeout_sec: float, about: str) -> AsyncIterator[None]:
    """Limit the time of what is awaited inside.

    Raises:
        CallTimeout: the limit is exceeded.
    """
    try:
        async with asyncio.timeout(timeout_sec):
            yield
    except TimeoutError as error:
        message = f"{about}: no reply within {timeout_sec:g} s; the call may still take effect"
        raise CallTimeout(message) from error


def variant(signature: str, value: object) -> object:
    """Return a value with its type, for the body of a message; structs and arrays are tuples."""
    return Variant(signature, _as_lists(value))


def _as_lists(value: object) -> object:
    """Return the value with lists for tuples, as dbus-next takes structs and arrays."""
    return [_as_lists(one) for one in value] if isinstance(value, tuple) else value


_ANSWER_MAX = 64 * 1024
"""The limit of a reply in bytes. Source: systemd, src/libsystemd/sd-bus/bus-internal.h, BUS_AUTH_SIZE_MAX."""
_REFUSAL_MAX = 100
"""Characters of a rejection that messages show."""

# the keys of a unix socket in an address: `unix:path=/run/dbus/system_bus_socket,guid=…`, `unix:abstract=…`
_SOCKET_KEYS = {"path": "", "abstract": "\0"}


async def open_socket(address: str) -> tuple[socket.socket, bool]:
    """Connect to the bus at an address and authenticate, without a time limit.

    Return the socket, and whether its messages may carry descriptors.

    Raises:
        OSError, EOFError, ValueError: the bus does not exist, closes the connection, or rejects it.
    """
    path = socket_path(address)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(0)
        await _connect(sock, path)
        takes_descriptors = await authenticate(sock)
    except BaseException:
        sock.close()
        raise
    return sock, takes_descriptors


def socket_path(address: str) -> str:
    """Return the first unix socket in a D-Bus address.

    Raises:
        ValueError: it has none.

    Source: D-Bus Specification, "Server Addresses".
    """
    for part in address.split(";"):
        transport, _, options = part.partition(":")
        for option in options.split(","):
            key, _, value = option.partition("=")
            if transport == "unix" and key in _SOCKET_KEYS:
                return _SOCKET_KEYS[key] + unquote(value)
    raise ValueError("the address has no unix socket; write unix:path=/run/…")


async def _connect(sock: socket.socket, path: str) -> None:
    while True:
        try:
            return sock.connect(path)
        except BlockingIOError:
            # The backlog of the bus is full. loop.sock_connect would take this for a connect in
            # progress, which unix sockets do not have, and continue with an unconnected socket.
            await asyncio.sleep(0.01)


async def authenticate(sock: socket.socket) -> bool:
    """Authenticate as the current user, and negotiate descriptors in messages.

    Raises:
        OSError, EOFError, ValueError: the bus does not exist, closes the connection, or rejects it.

    Source: D-Bus Specification, "Authentication Protocol", EXTERNAL and NEGOTIATE_UNIX_FD.
    """
    loop = asyncio.get_running_loop()
    user = str(os.geteuid()).encode().hex()
    # both at once, as libsystemd does: one round trip less
    await loop.sock_sendall(sock, f"\0AUTH EXTERNAL {user}\r\nNEGOTIATE_UNIX_FD\r\n".encode())
    answer = b""
    while answer.count(b"\r\n") < 2:
        some = await loop.sock_recv(sock, 512)
        if not some:
            raise EOFError("it closed the connection during authentication")
        answer += some
        if b"\r\n" in answer and not answer.startswith(b"OK "):
            refusal = answer.partition(b"\r\n")[0].decode(errors="replace")
            raise ValueError(f"it rejects the authentication: {refusal:.{_REFUSAL_MAX}}")
        if len(answer) > _ANSWER_MAX:
            # a receive that finds data does not yield to the loop, and so to no timeout
            raise ValueError("its reply during authentication is too long")
    await loop.sock_sendall(sock, b"BEGIN\r\n")
    return b"\r\nAGREE_UNIX_FD\r\n" in answer
