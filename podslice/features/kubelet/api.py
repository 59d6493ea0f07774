"""Read documents from the API of a kubelet on this host, over HTTPS or the read-only port.

Nothing else is requested, and no redirection is followed, so that credentials reach only the
address that the caller states.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podslice.errors import HostError, Problem, invalid, printable, quote
from podslice.features.kubelet.config import mapping_of, read_document
from podslice.http_client import ServerUrl, choose_hint, describe_error, get, make_tls, parse_url
from podslice.inputs.budget import TEXT_BYTES_MAX
from podslice.inputs.source import is_pem, read_file

EXCHANGE_SEC = 30.0
"""The time for a document, from the connection to the last byte."""
_PORTS = {"https": 10250, "http": 10255}
"""Source: Kubernetes, pkg/cluster/ports/ports.go, KubeletPort and KubeletReadOnlyPort."""
_OK, _BAD_REQUEST, _UNAUTHORIZED, _FORBIDDEN = 200, 400, 401, 403
_USE_OTHER_NAME = "use the name or the address that is in the certificate, or 127.0.0.1 on the node"
_TRUST = "state its authority with --kubelet-ca, or use --insecure-skip-tls-verify"
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
    rb'^kubernetes_build_info\{[^}\n]*git_version="(v[0-9][^"]{0,60})"', re.MULTILINE
)


def parse_address(text: str) -> ServerUrl:
    """Parse the URL of a kubelet: `https://127.0.0.1:10250`; the port may be left out.

    Raises:
        InputError: it is not such a URL.
    """
    where, what = "--kubelet", "the URL of a kubelet"
    hint = "write https://127.0.0.1:10250, or http://127.0.0.1:10255"
    address = parse_url(
        text,
        _PORTS,
        where=where,
        what=what,
        hint=hint,
        credentials_hint="state the user with --kubeconfig",
    )
    if address.path:
        raise invalid(f"{text!a:.80} is not {what}", hint, where=where)
    return address


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What identifies a user at the API of a kubelet, and the kubelet to the user; PEM."""

    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)
    authority: str = ""
    """The trusted certificates; without any, the host's certificates are trusted."""


_UNSUPPORTED = ("exec", "auth-provider", "username", "password")


def read_kubeconfig(path: Path) -> Credentials:
    """Return the credentials of the current context's user, and the authority of its cluster.

    Raises:
        InputError: the file cannot be read, has no current context, or the user is identified by
            a program or a password.

    Source: Kubernetes, staging/src/k8s.io/client-go/tools/clientcmd/api/v1/types.go.
    """
    where = printable(str(path))
    document = read_document(read_file(path, limit_bytes=TEXT_BYTES_MAX), where)
    if not isinstance(document, dict) or document.get("kind") != "Config":
        raise invalid("there is not exactly one Config in it", where=where)
    name = document.get("current-context")
    context = _named(document, "contexts", "context", name, where)
    user = _named(document, "users", "user", context.get("user"), where)
    cluster = _named(document, "clusters", "cluster", context.get("cluster"), where)
    for key in _UNSUPPORTED:
        if user.get(key):
            message = f"credentials by {key} are not supported"
            raise invalid(message, "use a token or a client certificate", where=f"{where}: users")
    return Credentials(
        token=_token(user, path.parent, where),
        certificate=_data(user, "client-certificate", path.parent, where),
        key=_data(user, "client-key", path.parent, where),
        authority=_data(cluster, "certificate-authority", path.parent, where),
    )


def _named(
    document: Mapping[str, Any], key: str, part: str, name: object, where: str
) -> Mapping[str, Any]:
    """Return the entry of a list with a name."""
    entries = document.get(key)
    for each in entries if isinstance(entries, list) else ():
        if isinstance(each, dict) and name is not None and each.get("name") == name:
            return mapping_of(each, part)
    shown = quote(name) if isinstance(name, str) else "none"
    hint = "set current-context, and the context's cluster and user"
    raise invalid(f"there is no {part} named {shown}", hint, where=f"{where}: {key}")


def _token(user: Mapping[str, Any], base: Path, where: str) -> str:
    """Return the token of a user; the file of a token comes before the token itself."""
    file = user.get("tokenFile")
    text = user.get("token")
    if isinstance(file, str):
        try:
            text = read_file(base / file, limit_bytes=TEXT_BYTES_MAX).decode().strip(" \t\r\n")
        except UnicodeDecodeError:
            # Refused below, as every other character that is not printable.
            text = "\0"
        if not text:
            raise invalid("there is no token in it", where=printable(str(base / file)))
    token = text if isinstance(text, str) else ""
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise invalid("the token contains invalid characters", where=f"{where}: users")
    return token


def _data(fields: Mapping[str, Any], key: str, base: Path, where: str) -> str:
    """Return a certificate or a key as PEM, from the kubeconfig itself or from the file that it names.

    Empty if neither is stated.
    """
    inline, file = fields.get(f"{key}-data"), fields.get(key)
    try:
        if isinstance(inline, str) and inline:
            text = base64.b64decode(inline, validate=True).decode("ascii")
        elif isinstance(file, str) and file:
            where = printable(str(base / file))
            text = read_file(base / file, limit_bytes=TEXT_BYTES_MAX).decode("ascii")
        else:
            return ""
    except (binascii.Error, UnicodeDecodeError) as error:
        raise invalid(f"{key} is not PEM", where=where) from error
    if not is_pem(text):
        raise invalid(f"{key} is not PEM", where=where)
    return text


class KubeletApi:
    """The API of one kubelet."""

    def __init__(
        self,
        address: ServerUrl,
        credentials: Credentials,
        *,
        limit_bytes: int,
        is_verified: bool = True,
        within_sec: float = EXCHANGE_SEC,
    ) -> None:
        """Connect nothing yet.

        Args:
            address: the address.
            credentials: the user, and the authority to trust.
            limit_bytes: the largest document.
            is_verified: whether the certificate of the kubelet is verified.
            within_sec: the time for each document.

        Raises:
            HostError: the credentials are not valid, or would be sent without encryption.
        """
        self._address = address
        self._token = credentials.token
        self._has_credentials = bool(credentials.token or credentials.certificate)
        self._limit_bytes = limit_bytes
        self._within_sec = within_sec
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
        headers = {"Accept": "application/json, text/plain"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            reply = get(
                self._address,
                path,
                tls=self._context,
                headers=headers,
                limit_bytes=self._limit_bytes,
                within_sec=self._within_sec,
            )
        except OSError as error:
            hint = choose_hint(error, other_name=_USE_OTHER_NAME, unknown=_TRUST)
            where = f"{self._address}{path}"
            found = Problem(where=where, message=describe_error(error), hint=hint)
            raise HostError(str(found)) from error
        if reply.status != _OK:
            raise HostError(f"{self._address}{path}: {self._refusal(reply.status, path)}")
        return reply.content

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


def _tls(
    address: ServerUrl, credentials: Credentials, *, is_verified: bool
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
    is_local = address.is_loopback and bool(credentials.authority)
    try:
        context = make_tls(credentials.authority, checks_name=is_verified and not is_local)
        if not is_verified:
            context.verify_mode = ssl.CERT_NONE
        if credentials.certificate:
            _load_certificate(context, credentials)
    except (ssl.SSLError, ValueError) as error:
        reason = describe_error(error)
        raise HostError(f"{address}: the certificates are not valid: {reason}") from error
    return context


def _load_certificate(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Load a client certificate from memory: Python reads it from files only."""
    with ExitStack() as stack:
        paths = []
        for text in (credentials.certificate, credentials.key or credentials.certificate):
            # the key never reaches a file system
            handle = os.memfd_create("podslice", os.MFD_CLOEXEC)
            stack.callback(os.close, handle)
            os.write(handle, text.encode())
            paths.append(f"/proc/self/fd/{handle}")
        certificate, key = paths
        # without a password OpenSSL would ask for the one of an encrypted key on the terminal
        context.load_cert_chain(certificate, key, password="")
