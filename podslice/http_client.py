"""One request to an HTTP server, with a deadline, a limit of bytes, and no redirection.

The servers are not trusted: h11 parses the reply, so that every wait is a call of this module, with
the time that remains until the deadline.
"""

from __future__ import annotations

import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from podslice.errors import invalid, printable

_READ_BYTES = 64 * 1024
_HEAD_BYTES = 64 * 1024
"""Bytes of a reply that may be other than its content, besides as many as its content may have."""
_INFORMATIONAL_MAX = 5
"""Replies such as `100 Continue` before the final one. Source: Go, net/http/transport.go, readResponse."""
_REASON_MAX = 200
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PATH = re.compile(r"[!-~]*")
_OTHER_NAME = frozenset({62, 64})
"""The reasons of OpenSSL for a certificate of another host: its name, or its address.

Source: OpenSSL, include/openssl/x509_vfy.h, X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH.
"""


class ServerUrl(NamedTuple):
    """The address of a server."""

    scheme: str
    host: str
    """A name in ASCII, or an address without brackets."""
    port: int
    path: str = ""
    """What precedes the path of each request; it has no slash at its end."""

    @property
    def is_secure(self) -> bool:
        """Return whether the server is reached over HTTPS."""
        return self.scheme == "https"

    @property
    def is_loopback(self) -> bool:
        """Return whether only this host has the address."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def authority(self) -> str:
        """Return the host and the port: `[::1]:10250`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        """Return the URL."""
        return f"{self.scheme}://{self.authority}{self.path}"


class Reply(NamedTuple):
    """The reply to a request."""

    status: int
    content: bytes


class BadReply(OSError):
    """A reply is not valid HTTP, or is too large."""


def parse_url(
    text: str, ports: Mapping[str, int], *, where: str, what: str, hint: str, credentials_hint: str
) -> ServerUrl:
    """Parse the URL of a server.

    Args:
        text: the URL; a query and a fragment are not supported.
        ports: the port of each scheme that a URL may have, where the URL states none.
        where: the option that states it, for messages.
        what: the name of such a URL: `the URL of a kubelet`.
        hint: the remedy for a text that is not such a URL.
        credentials_hint: the remedy for a URL with a user or a password.

    Raises:
        InputError: it is not such a URL.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
        host = _read_host(parts.hostname or "")
    except UnicodeError as error:
        message = f"{text!a:.80} has an invalid host name: a label has 1 to 63 characters"
        raise invalid(message, hint, where=where) from error
    except ValueError as error:
        raise invalid(f"{text!a:.80} is not a URL", hint, where=where) from error
    is_plain = not (parts.query or parts.fragment) and _PATH.fullmatch(parts.path)
    if parts.scheme not in ports or not host or not is_plain:
        raise invalid(f"{text!a:.80} is not {what}", hint, where=where)
    if parts.username is not None:
        raise invalid("credentials in a URL are not supported", credentials_hint, where=where)
    port = ports[parts.scheme] if port is None else port
    return ServerUrl(scheme=parts.scheme, host=host, port=port, path=parts.path.rstrip("/"))


def _read_host(text: str) -> str:
    """Return a host in ASCII, as the Domain Name System and certificates have it."""
    if ":" in text:
        return str(IPv6Address(text))
    name = text.encode("idna").decode()
    if name and not _NAME.fullmatch(name):
        raise ValueError(name)
    return name


def make_tls(authority: str = "", *, checks_name: bool = True) -> ssl.SSLContext:
    """Return a context for TLS that verifies the server.

    Args:
        authority: the only certificates to trust, in PEM; without any, those of the host.
        checks_name: whether the certificate must have the name of the server.

    Raises:
        ssl.SSLError, ValueError: the certificates are not valid.
    """
    if not authority:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # the server's own certificate may be the authority
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=authority)
    # required by Python 3.13 only: extensions that certificates of clusters often lack
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = checks_name
    return context


def get(
    server: ServerUrl,
    path: str,
    *,
    tls: ssl.SSLContext | None,
    headers: Mapping[str, str],
    limit_bytes: int,
    within_sec: float,
) -> Reply:
    """Request a document, and return the reply with any status.

    Args:
        server: the server.
        path: the path of the document, with its query.
        tls: the context of TLS; None without TLS.
        headers: headers of the request, besides `Host` and `Connection`.
        limit_bytes: the largest content.
        within_sec: the time for the whole exchange: names, connection, TLS, request and reply.

    Raises:
        OSError: the server cannot be reached, the time is over (`TimeoutError`), or the reply is not
            accepted (`BadReply`).
    """
    deadline = _Deadline(within_sec)
    fields = [("Host", server.authority), ("Connection", "close"), *headers.items()]
    request = h11.Request(method="GET", target=f"{server.path}{path}", headers=fields)
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(_connect(server, deadline))
            if tls is not None:
                connection.settimeout(deadline.left_sec())
                name = server.host
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=name))
            return _exchange(connection, request, limit_bytes, deadline)
    except TimeoutError as error:
        raise TimeoutError(f"there is no complete reply within {within_sec:g} s") from error


def describe_error(error: Exception) -> str:
    """Return the reason for an error of `get` or of `make_tls`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the port does not use TLS"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return printable(text[:1].lower() + text[1:_REASON_MAX])


def choose_hint(error: OSError, *, other_name: str, unknown: str, otherwise: str = "") -> str:
    """Return the remedy for an error of `get`.

    Args:
        error: the error.
        other_name: the remedy for a certificate of another host.
        unknown: the remedy for any other certificate that is not accepted.
        otherwise: the remedy for any other error.
    """
    if not isinstance(error, ssl.SSLCertVerificationError):
        return otherwise
    return other_name if error.verify_code in _OTHER_NAME else unknown


class _Deadline:
    """The end of an exchange."""

    def __init__(self, within_sec: float) -> None:
        self._ends = time.monotonic() + within_sec

    def left_sec(self) -> float:
        """Return the time that remains, which is positive.

        Raises:
            TimeoutError: none remains.
        """
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _connect(server: ServerUrl, deadline: _Deadline) -> socket.socket:
    """Connect to the first address that accepts; each has a share of the time.

    Source: Go, net/dial.go, partialDeadline.
    """
    addresses = _resolve(server, deadline)
    failed = OSError("the name has no address")
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(deadline.left_sec() / (len(addresses) - number))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failed = error
        else:
            return connection
    raise failed


_Addresses = Sequence[tuple[int, int, int, str, tuple[object, ...]]]
"""Family, kind, protocol, canonical name and address of each, as `getaddrinfo` returns them."""


def _resolve(server: ServerUrl, deadline: _Deadline) -> _Addresses:
    """Return the addresses of a host.

    `getaddrinfo` has no timeout but those of `resolv.conf`: a thread waits for it.
    """
    found: queue.SimpleQueue[_Addresses | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found.put(socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM))
        except OSError as error:
            found.put(error)

    threading.Thread(target=ask, name="getaddrinfo", daemon=True).start()
    try:
        result = found.get(timeout=deadline.left_sec())
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(result, OSError):
        raise result
    return result


def _exchange(
    connection: socket.socket, request: h11.Request, limit_bytes: int, deadline: _Deadline
) -> Reply:
    """Send a request, and return the reply."""
    protocol = h11.Connection(h11.CLIENT)
    unsent = (protocol.send(request) or b"") + (protocol.send(h11.EndOfMessage()) or b"")
    while unsent:
        connection.settimeout(deadline.left_sec())
        unsent = unsent[connection.send(unsent) :]
    status = informational = received_bytes = 0
    content = bytearray()
    while not isinstance(event := _next_event(protocol), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            connection.settimeout(deadline.left_sec())
            data = connection.recv(_READ_BYTES)
            if not data and not status:
                raise ConnectionError("the server closes the connection without a reply")
            received_bytes += len(data)
            protocol.receive_data(data)
        elif isinstance(event, h11.InformationalResponse):
            informational += 1
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            content += event.data
        if informational > _INFORMATIONAL_MAX:
            raise BadReply("the server sends informational replies without an end")
        # chunks and trailers have bytes besides the content
        if len(content) > limit_bytes or received_bytes > 2 * limit_bytes + _HEAD_BYTES:
            limit = f"{limit_bytes // 1024:,} KiB"
            raise BadReply(f"the reply is larger than the limit of {limit}")
    return Reply(status=status, content=bytes(content))


def _next_event(protocol: h11.Connection) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
    """Return what h11 has read next.

    Raises:
        BadReply: it is not valid; h11 converts a length of any number of digits (`ValueError`).
    """
    try:
        return protocol.next_event()
    except (h11.RemoteProtocolError, ValueError) as error:
        raise BadReply(f"the reply is not valid HTTP: {error}") from error
