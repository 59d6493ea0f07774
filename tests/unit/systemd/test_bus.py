"""Addresses of a D-Bus bus; what is sent on it is in tests/bus."""

import pytest

from podslice.systemd.dbus.connection import socket_path


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("unix:path=/run/bus", "/run/bus"),
        ("unix:path=/run/bus,guid=0123", "/run/bus"),
        ("unix:guid=0123,path=/a%20b", "/a b"),
        ("unix:abstract=/tmp/dbus-x", "\0/tmp/dbus-x"),
        ("tcp:host=a,port=1;unix:path=/b", "/b"),
    ],
)
def test_socket_of_an_address(address: str, path: str) -> None:
    assert socket_path(address) == path
