"""Where the files and control groups of the two kinds of managers are."""

import pytest

from podslice.model.unit import SYSTEM, user_manager
from tests.cases.tables import cases


@pytest.mark.parametrize("environment", [{}, {"XDG_RUNTIME_DIR": ""}])
def test_without_a_session_the_runtime_directory_is_the_usual_one(
    environment: dict[str, str],
) -> None:
    manager = user_manager(7, environment)
    assert manager.uid == 7
    assert manager.runtime_directory == "/run/user/7"
    assert manager.bus_address == "unix:path=/run/user/7/bus"
    assert not manager.has_session


def test_the_runtime_directory_of_a_session_has_the_bus() -> None:
    """Source: systemd, src/libsystemd/sd-bus/sd-bus.c, bus_set_address_user."""
    manager = user_manager(7, {"XDG_RUNTIME_DIR": "/srv/runtime"})
    assert manager.has_session
    assert manager.runtime_directory == "/srv/runtime"
    assert manager.bus_address == "unix:path=/srv/runtime/bus"


def test_drop_ins_of_a_user_are_in_directories_of_the_user() -> None:
    environment = {"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/me"}
    assert user_manager(7, environment).drop_in_directories == (
        "/run/user/7/systemd/transient",
        "/run/user/7/systemd/user.control",
        "/home/me/.config/systemd/user.control",
    )
    environment["XDG_CONFIG_HOME"] = "/etc/me"
    assert "/etc/me/systemd/user.control" in user_manager(7, environment).drop_in_directories


@cases
def test_relative_paths_of_configuration_are_ignored(
    environment: dict[str, str], directory: str
) -> None:
    """Source: XDG Base Directory Specification: a relative path is invalid and is ignored."""
    assert user_manager(7, environment).config_directory == directory
    assert SYSTEM.config_directory == "/etc"


def test_the_state_of_a_user_is_in_a_directory_of_the_user() -> None:
    environment = {"HOME": "/home/me"}
    assert user_manager(7, environment).state_directory == "/home/me/.local/state"
    environment["XDG_STATE_HOME"] = "/state"
    assert user_manager(7, environment).state_directory == "/state"
    assert SYSTEM.state_directory == "/var/lib"


def test_control_groups_and_flags_of_both_managers() -> None:
    user = user_manager(7, {})
    assert (SYSTEM.is_user, SYSTEM.flag) == (False, "")
    assert (user.is_user, user.flag) == (True, " --user")
    assert SYSTEM.path_of("/kubepods.slice") == "/kubepods.slice"
    assert user.path_of("/kubepods.slice") == (
        "/user.slice/user-7.slice/user@7.service/kubepods.slice"
    )


def test_podman_has_the_exits_of_its_containers_below_the_runtime_directory() -> None:
    manager = user_manager(7, {"XDG_RUNTIME_DIR": "/run/user/7"})
    assert manager.podman_exits_directory == "/run/user/7/libpod/tmp/exits"
    assert SYSTEM.podman_exits_directory == f"{SYSTEM.runtime_directory}/libpod/exits"
