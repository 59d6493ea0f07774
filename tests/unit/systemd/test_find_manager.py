"""The manager that the environment leads to, and where its files are."""

from pathlib import Path

import pytest

from podslice.model.manager import SYSTEM, user_manager
from podslice.systemd.find_manager import find_manager


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("environment", [{}, {"XDG_RUNTIME_DIR": ""}])
def test_without_a_session_the_runtime_directory_is_the_usual_one(
    environment: dict[str, str],
) -> None:
    manager = user_manager(7, environment)
    assert manager.runtime_directory == "/run/user/7"
    assert not manager.has_session


def test_drop_ins_of_a_user_are_in_directories_of_the_user() -> None:
    environment = {"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/me"}
    assert user_manager(7, environment).drop_in_directories == (
        "/run/user/7/systemd/transient",
        "/run/user/7/systemd/user.control",
        "/home/me/.config/systemd/user.control",
    )
    environment["XDG_CONFIG_HOME"] = "/etc/me"
    assert "/etc/me/systemd/user.control" in user_manager(7, environment).drop_in_directories


def test_control_groups_and_flags_of_both_managers() -> None:
    user = user_manager(7, {})
    assert (SYSTEM.is_user, SYSTEM.flag) == (False, "")
    assert (user.is_user, user.flag) == (True, " --user")
    assert SYSTEM.path_of("/kubepods.slice") == "/kubepods.slice"
    assert user.path_of("/kubepods.slice") == (
        "/user.slice/user-7.slice/user@7.service/kubepods.slice"
    )
