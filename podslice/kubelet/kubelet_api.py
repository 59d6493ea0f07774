"""Read documents from the API of a kubelet on this host, over HTTPS or the read-only port.

Nothing else is requested, and no redirection is followed, so that credentials reach only the
address that the caller states.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
from contextlib import ExitStack
from ipaddress import ip_address
from urllib.parse import urlsplit

from podslice.dataclass import dataclass
from podslice.errors import HostError, invalid
from podslice.model.kubelet_node import Credentials

TIMEOUT_SEC = 10.0
"""The time for a connection, and for each part of a reply."""
_PORTS = {"https": 10250, "http": 10255}
"""Source: Kubernetes, pkg/cluster/ports/ports.go, KubeletPort and KubeletReadOnlyPort."""
_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403
_VERSION = re.compile(
    rb'^kubernetes_build_info\{[^}]*git_version="(v[0-9][^"]{0,60})"', re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletAddress:
    """The address of a kubelet."""

    scheme: str
    host: str
    port: int

    @property
    def is_secure(self) -> bool:
        """Whether it is reached over HTTPS."""
        return self.scheme == "https"

    @property
    def is_loopback(self) -> bool:
        """Whether only this host has the address."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        """Return the URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_address(text: str) -> KubeletAddress:
    """Parse the URL of a kubelet: `https://127.0.0.1:10250`; the port may be left out.

    Raises:
        InputError: it is not such a URL.
    """
    hint = "write https://127.0.0.1:10250, or http://127.0.0.1:10255"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise invalid(f"{text!a:.80} is not a URL", hint, where="--kubelet") from error
    is_plain = parts.path in {"", "/"} and not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in _PORTS or not parts.hostname or not is_plain:
        raise invalid(f"{text!a:.80} is not the URL of a kubelet", hint, where="--kubelet")
    return KubeletAddress(
        scheme=parts.scheme, host=parts.hostname, port=port or _PORTS[parts.scheme]
    )


class KubeletApi:
    """The API of one kubelet."""

    def __init__(
        self,
        address: KubeletAddress,
        credentials: Credentials,
        *,
        limit_bytes: int,
        is_verified: bool = True,
    ) -> None:
        """Without `is_verified` any certificate of the kubelet is accepted.

        Raises:
            HostError: the credentials are not valid, or would be sent without encryption.
        """
        self._address = address
        self._token = credentials.token
        self._limit_bytes = limit_bytes
        self._context = _tls(address, credentials, is_verified=is_verified)

    @property
    def is_secure(self) -> bool:
        """Whether it is reached over HTTPS."""
        return self._address.is_secure

    def get(self, path: str) -> bytes:
        """Return a document: `/pods`, `/configz`.

        Raises:
            HostError: the kubelet cannot be reached, refuses, or sends more than the limit.
        """
        connection = self._connect()
        headers = {"Accept": "application/json, text/plain"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            data = reply.read(self._limit_bytes + 1)
        except (OSError, http.client.HTTPException) as error:
            raise HostError(f"{self._address}{path}: {_reason(error)}{_hint(error)}") from error
        finally:
            connection.close()
        if reply.status != _OK:
            raise HostError(f"{self._address}{path}: {_refusal(reply.status)}")
        if len(data) > self._limit_bytes:
            limit = f"{self._limit_bytes // 1024:,} KiB"
            raise HostError(f"{self._address}{path}: the reply is larger than the limit of {limit}")
        return data

    def version(self) -> str:
        """Return the version that the kubelet's metrics state; empty if they do not state it.

        Raises:
            HostError: as `get`.
        """
        found = _VERSION.search(self.get("/metrics"))
        return found[1].decode(errors="replace") if found else ""

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SEC)
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SEC, context=self._context)


def _tls(
    address: KubeletAddress, credentials: Credentials, *, is_verified: bool
) -> ssl.SSLContext | None:
    """Return the context of TLS; None without TLS.

    The certificate that a kubelet makes for itself has the name of the node. On the loopback
    interface the name is therefore not compared, and only the authority counts.
    """
    if not address.is_secure:
        if credentials.token or credentials.certificate:
            raise HostError(f"{address}: credentials are not sent without encryption; use https://")
        return None
    context = ssl.create_default_context()
    if not is_verified or address.is_loopback:
        context.check_hostname = False
    if not is_verified:
        context.verify_mode = ssl.CERT_NONE
    try:
        if credentials.authority:
            context = _trusting_only(credentials.authority, context)
        if credentials.certificate:
            _load_certificate(context, credentials)
    except (ssl.SSLError, ValueError) as error:
        raise HostError(f"{address}: the certificates are not valid: {_reason(error)}") from error
    return context


def _trusting_only(authority: str, like: ssl.SSLContext) -> ssl.SSLContext:
    """Return a context that trusts one authority, and none of the host's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = like.check_hostname
    context.verify_mode = like.verify_mode
    # a kubelet's own certificate may be the authority
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authority)
    return context


def _load_certificate(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Load a client certificate from memory: Python reads it from files only."""
    with ExitStack() as stack:
        paths = []
        for text in (credentials.certificate, credentials.key or credentials.certificate):
            handle = os.memfd_create("podslice", os.MFD_CLOEXEC)
            stack.callback(os.close, handle)
            os.write(handle, text.encode())
            paths.append(f"/proc/self/fd/{handle}")
        certificate, key = paths
        # without a password OpenSSL would ask for that of an encrypted key on the terminal
        context.load_cert_chain(certificate, key, password="")


def _refusal(status: int) -> str:
    if status == _UNAUTHORIZED:
        return "the kubelet requires credentials; state them with --kubeconfig"
    if status == _FORBIDDEN:
        return "the user may not read it; it needs the verb get for nodes/proxy"
    return f"the kubelet replies with status {status}"


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]


def _hint(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "; state its authority with --kubelet-ca, or use --insecure-skip-tls-verify"
    return ""
