"""The service manager that podslice works with: the system's, or a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SYSTEM_BUS_ADDRESS = "unix:path=/run/dbus/system_bus_socket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A service manager, and where its bus, files and control groups are; the system's by default.

    Source: systemd.unit(5), "Unit File Load Path"; systemd, src/libsystemd/sd-path/path-lookup.c.
    """

    uid: int | None = None
    """The user whose manager it is; None for the system's."""
    bus_address: str = SYSTEM_BUS_ADDRESS
    runtime_directory: str = "/run"
    has_session: bool = True
    """Whether the environment names the runtime directory; without that it is a guess."""
    control_group: str = "/"
    """The control group that all its units are in."""
    config_directory: str = "/etc"
    """The directory of configuration files, of other programs too."""
    state_directory: str = "/var/lib"
    """The directory of files that outlast a reboot."""
    drop_in_directories: tuple[str, ...] = (
        "/run/systemd/transient",
        "/run/systemd/system.control",
        "/etc/systemd/system.control",
    )
    """The directories that `set-property` writes to, and that of transient units."""

    @property
    def is_user(self) -> bool:
        """Return whether it is a user's own manager."""
        return self.uid is not None

    @property
    def generator_directory(self) -> str:
        """Return the directory that podman's generator reads.

        Source: podman-systemd.unit(5), "Podman rootful unit search path".
        """
        return f"{self.config_directory}/containers/systemd"

    @property
    def podman_exits_directory(self) -> str:
        """Return the default directory of the exit codes of podman's containers.

        Source: containers.conf(5), tmp_dir; podman 5.4, libpod/oci_conmon_common.go, exitsDir.
        """
        return f"{self.runtime_directory}/libpod/{'tmp/' if self.is_user else ''}exits"

    @property
    def own_state_directory(self) -> str:
        """Return the directory of podslice's own files that outlast a reboot."""
        return f"{self.state_directory}/podslice"

    @property
    def unit_directory(self) -> str:
        """Return the directory of the administrator's unit files, or of the user's.

        Source: systemd.unit(5), "Unit File Load Path".
        """
        return f"{self.config_directory}/systemd/{'user' if self.is_user else 'system'}"

    @property
    def flag(self) -> str:
        """Return the option that selects it on a command line, after a space: ` --user`."""
        return " --user" if self.is_user else ""

    def path_of(self, control_group: str) -> str:
        """Return the path of a control group that is named below the manager's own."""
        return f"{self.control_group.rstrip('/')}/{control_group.lstrip('/')}"


SYSTEM = Manager()


def user_manager(uid: int, environment: Mapping[str, str]) -> Manager:
    """Return the manager of a user whose programs have this environment."""
    session = environment.get("XDG_RUNTIME_DIR")
    runtime = session or f"/run/user/{uid}"
    config = _user_directory(environment, "XDG_CONFIG_HOME", ".config")
    return Manager(
        uid=uid,
        bus_address=f"unix:path={runtime}/bus",
        runtime_directory=runtime,
        has_session=bool(session),
        config_directory=config,
        state_directory=_user_directory(environment, "XDG_STATE_HOME", ".local/state"),
        control_group=f"/user.slice/user-{uid}.slice/user@{uid}.service",
        drop_in_directories=(
            f"{runtime}/systemd/transient",
            f"{runtime}/systemd/user.control",
            f"{config}/systemd/user.control",
        ),
    )


def _user_directory(environment: Mapping[str, str], variable: str, default: str) -> str:
    """Return the directory in a variable, or else the default one in HOME; relative paths are ignored.

    Source: XDG Base Directory Specification, "Environment variables"; without HOME it is in `/`.
    """
    stated, home = environment.get(variable, ""), environment.get("HOME", "")
    if stated.startswith("/"):
        return stated
    return f"{home.rstrip('/') if home.startswith('/') else ''}/{default}"
