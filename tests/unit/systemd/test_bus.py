"""Which bus is meant; what is said on it is in tests/bus."""

from pathlib import Path

import pytest

from podslice.systemd.bus import _system_address, _user_address
from podslice.systemd.dbus.handshake import _socket_path


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DBUS_SYSTEM_BUS_ADDRESS", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_system_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _system_address() == "unix:path=/run/dbus/system_bus_socket"
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/x")
    assert _system_address() == "unix:path=/x"


def test_user_bus_is_that_of_the_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 77)
    assert _user_address() == "unix:path=/run/user/77/bus"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:abstract=/tmp/dbus-x")
    assert _user_address() == "unix:abstract=/tmp/dbus-x"
    (tmp_path / "bus").touch()
    assert _user_address() == f"unix:path={tmp_path}/bus"


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
    assert _socket_path(address) == path
