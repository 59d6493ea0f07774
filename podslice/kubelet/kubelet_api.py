"""Read documents from the API of a kubelet on this host, over HTTPS or the read-only port.

Nothing else is requested, and no redirection is followed, so that credentials reach only the
address that the caller states.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import time
from contextlib import ExitStack
from ipaddress import ip_address
from urllib.parse import urlsplit

from podslice.dataclass import dataclass
from podslice.errors import HostError, invalid
from podslice.model.kubelet_node import Credentials

TIMEOUT_SEC = 10.0
"""The time for a connection, and for each part of a reply."""
WHOLE_SEC = 60.0
"""The time for the whole content of a reply."""
_CHUNK = 2**18
_PORTS = {"https": 10250, "http": 10255}
"""Source: Kubernetes, pkg/cluster/ports/ports.go, KubeletPort and KubeletReadOnlyPort."""
_OK, _BAD_REQUEST, _UNAUTHORIZED, _FORBIDDEN = 200, 400, 401, 403
_OTHER_NAME = frozenset({62, 64})
"""The reasons of OpenSSL for a certificate of another host: its name, or its address.

Source: OpenSSL, include/openssl/x509_vfy.h, X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH.
"""
_METRICS = "/metrics"
_PROXY = "nodes/proxy"
_RESOURCES = {
    _METRICS: "nodes/metrics",
    "/pods": f"nodes/pods, or for {_PROXY} with kubelets before 1.33",
    "/configz": f"nodes/configz, or for {_PROXY} with kubelets before 1.33",
}
"""What a user needs to read a document.

Source: Kubernetes, pkg/kubelet/server/auth.go, GetRequestAttributes; pkg/features/kube_features.go,
KubeletFineGrainedAuthz: on by default since 1.33.
"""
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
        self._has_credentials = bool(credentials.token or credentials.certificate)
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
            with connection.getresponse() as reply:
                data = _read(reply, self._limit_bytes + 1)
        except (OSError, http.client.HTTPException) as error:
            raise HostError(f"{self._address}{path}: {_reason(error)}{_hint(error)}") from error
        finally:
            connection.close()
        if reply.status != _OK:
            raise HostError(f"{self._address}{path}: {self._refusal(reply.status, path)}")
        if len(data) > self._limit_bytes:
            limit = f"{self._limit_bytes // 1024:,} KiB"
            raise HostError(f"{self._address}{path}: the reply is larger than the limit of {limit}")
        return data

    def version(self) -> str:
        """Return the version that the kubelet's metrics state.

        Raises:
            HostError: as `get`, or they do not state it.
        """
        found = _VERSION.search(self.get(_METRICS))
        if found is None:
            message = "it does not have the version of the kubelet; state it with --kubelet-version"
            raise HostError(f"{self._address}{_METRICS}: {message}")
        return found[1].decode(errors="replace")

    def _refusal(self, status: int, path: str) -> str:
        """Return the meaning of a status, with the way out."""
        if status == _UNAUTHORIZED and self._has_credentials:
            return (
                "the kubelet does not accept the credentials; check the token or the client"
                " certificate of --kubeconfig"
            )
        if status == _UNAUTHORIZED:
            return "the kubelet requires credentials; state them with --kubeconfig"
        if status == _FORBIDDEN:
            return f"the user may not read it; it needs the verb get for {_RESOURCES.get(path, _PROXY)}"
        if status == _BAD_REQUEST and not self.is_secure:
            return f"the kubelet replies with status {status}; its port may require https://"
        return f"the kubelet replies with status {status}"

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
    interface the name is therefore not compared if the authority is stated. With the authorities of
    the host it is: they sign certificates for everyone.
    """
    if not address.is_secure:
        if credentials.token or credentials.certificate:
            raise HostError(f"{address}: credentials are not sent without encryption; use https://")
        return None
    context = ssl.create_default_context()
    # required by Python 3.13 only: extensions that certificates of clusters often lack
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not is_verified or (address.is_loopback and credentials.authority):
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


def _read(reply: http.client.HTTPResponse, limit_bytes: int) -> bytes:
    """Return the content of a reply, up to a limit.

    Raises:
        OSError, http.client.HTTPException: it cannot be read, or takes too long.
    """
    ends = time.monotonic() + WHOLE_SEC
    parts: list[bytes] = []
    left = limit_bytes
    while left and (part := reply.read1(min(left, _CHUNK))):
        parts.append(part)
        left -= len(part)
        if time.monotonic() > ends:
            raise TimeoutError(f"the reply did not end within {WHOLE_SEC:g} s")
    return b"".join(parts)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the port does not use TLS"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]


def _hint(error: Exception) -> str:
    if not isinstance(error, ssl.SSLCertVerificationError):
        return ""
    if error.verify_code in _OTHER_NAME:
        return "; use the name or the address that is in the certificate, or 127.0.0.1 on the node"
    return "; state its authority with --kubelet-ca, or use --insecure-skip-tls-verify"
