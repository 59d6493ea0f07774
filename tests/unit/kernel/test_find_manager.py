"""The manager that the environment leads to."""

import pwd
from pathlib import Path

import pytest

from podslice.kernel.proc import find_manager
from podslice.model.unit import SYSTEM


@pytest.fixture(autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path_factory.getbasetemp()  # with the real user id, which pytest compares with the owner
    for name in ("DBUS_SYSTEM_BUS_ADDRESS", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 77)


def test_the_system_bus_is_the_usual_one_unless_the_environment_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find_manager() == SYSTEM
    assert find_manager().bus_address == "unix:path=/run/dbus/system_bus_socket"
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/x")
    assert find_manager().bus_address == "unix:path=/x"


def test_the_users_bus_is_the_managers_own_before_that_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_manager(user=True).bus_address == "unix:path=/run/user/77/bus"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:abstract=/tmp/dbus-x")
    assert find_manager(user=True).bus_address == "unix:abstract=/tmp/dbus-x"
    (tmp_path / "bus").touch()
    assert find_manager(user=True).bus_address == f"unix:path={tmp_path}/bus"


@pytest.mark.parametrize(
    ("home", "directory"),
    [("/home/me", "/home/me/.config"), ("", "/var/me/.config"), ("me", "/var/me/.config")],
)
def test_the_home_directory_is_in_the_user_database_unless_the_environment_has_it(
    monkeypatch: pytest.MonkeyPatch, home: str, directory: str
) -> None:
    entry = pwd.struct_passwd(("me", "x", 77, 77, "", "/var/me", "/bin/sh"))
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {77: entry}[uid])
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    assert find_manager(user=True).config_directory == directory


def test_a_user_without_an_entry_has_no_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    assert find_manager(user=True).config_directory == "/.config"
