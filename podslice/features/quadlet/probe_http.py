"""Requests over HTTP of probes, from the network namespace of this process."""

from __future__ import annotations

import ssl
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urljoin, urlsplit

from podslice.features.quadlet.prober import own_address
from podslice.features.quadlet.workload import HttpGet

_SUCCESS = range(200, 400)
"""Source: Kubernetes, pkg/probe/http/http.go, DoHTTPProbe."""
_REDIRECTIONS = frozenset({301, 302, 303, 307, 308})
_REQUESTS_MAX = 10
"""Source: Kubernetes, pkg/probe/http/http.go, RedirectChecker; Go, net/http, Client."""
_HEADERS = (("User-Agent", "kube-probe/podslice"), ("Accept", "*/*"))
"""Source: Kubernetes, pkg/probe/http/request.go, newProbeRequest."""
_PORTS = {"HTTP": 80, "HTTPS": 443}


def get(action: HttpGet, timeout_sec: int) -> bool:
    """Request a page; a certificate is not verified, and a redirection to another host succeeds.

    Raises:
        OSError: there are too many redirections.
        http.client.HTTPException: the answer is not one of HTTP.
    """
    for _ in range(_REQUESTS_MAX):
        status, place = _answer(action, timeout_sec)
        further = _redirected(action, place) if place and status in _REDIRECTIONS else None
        if further is None:
            return status in _SUCCESS
        action = further
    raise OSError(f"{_REQUESTS_MAX} redirections follow each other")


def _answer(action: HttpGet, timeout_sec: int) -> tuple[int, str]:
    """Make one request; return its status, and where it is redirected to."""
    stated = {name.lower() for name, _ in action.headers}
    with closing(_connection(action, timeout_sec)) as connection:
        own = {"skip_host": "host" in stated, "skip_accept_encoding": "accept-encoding" in stated}
        connection.putrequest("GET", action.path, **own)
        for name, value in (*_HEADERS, *action.headers):
            if (name, value) in action.headers or name.lower() not in stated:
                connection.putheader(name, value)
        connection.endheaders()
        with connection.getresponse() as response:
            return response.status, response.getheader("Location") or ""


def _redirected(action: HttpGet, place: str) -> HttpGet | None:
    """Return the request that follows; None if it is of another host.

    Raises:
        OSError: the place is not an address.
    """
    host = action.host or own_address()
    base = f"{action.scheme.lower()}://{f'[{host}]' if ':' in host else host}:{action.port}"
    try:
        found = urlsplit(urljoin(f"{base}{action.path}", place))
        port = found.port
    except ValueError as error:
        raise OSError(f"a redirection to {place!r}") from error
    scheme = found.scheme.upper()
    if found.hostname != host.lower() or scheme not in ("HTTP", "HTTPS"):
        return None
    path = (found.path or "/") + (f"?{found.query}" if found.query else "")
    return replace(action, scheme=scheme, port=port or _PORTS[scheme], path=path)


def _connection(action: HttpGet, timeout_sec: int) -> HTTPConnection:
    host = action.host or own_address()
    if action.scheme != "HTTPS":
        return HTTPConnection(host, action.port, timeout=timeout_sec)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(host, action.port, timeout=timeout_sec, context=context)
