"""What a person changes with a verb, and who that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from podslice.model.unit import UnitName


class Account(NamedTuple):
    """A user of the host."""

    uid: int | None
    """None where it is not known."""
    name: str = ""
    """Empty where it is not known."""

    def __str__(self) -> str:
        """Return the name, or else the uid."""
        return self.name or f"uid {self.uid}"


class Caller(NamedTuple):
    """The user who has called a verb, from two sources."""

    login: Account | None = None
    """The account of the login, which the kernel keeps through su and sudo; None without a login,
    as in services. Source: proc(5), /proc/PID/loginuid."""
    sudo: Account | None = None
    """The account that the environment names, which any caller can set. Source: sudo(8)."""

    @property
    def fields(self) -> dict[str, str]:
        """Return the known values as fields of an event."""
        found = {}
        for source, account in (("LOGIN", self.login), ("SUDO", self.sudo)):
            if account is not None and account.uid is not None:
                found[f"{source}_UID"] = str(account.uid)
            if account is not None and account.name:
                found[f"{source}_USER"] = account.name
        return found

    def __str__(self) -> str:
        """Return the account of the login; that of the environment where it differs."""
        if self.login is None:
            return "" if self.sudo is None else f"SUDO_USER={self.sudo}"
        if self.sudo is None or str(self.sudo) == str(self.login):
            return str(self.login)
        return f"{self.login} (SUDO_USER={self.sudo})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualChange:
    """What a verb is about to change, recorded before it acts.

    By it the agent distinguishes the change from an external one.
    """

    verb: str
    pods: tuple[str, ...]
    """The pods, as `namespace/name`."""
    units: tuple[UnitName, ...]
    """The units of the plan."""
    pid: int
    started_ticks: int
    """Identifies the process, together with its pid."""
    is_over: bool = False
    """Whether the verb has done all that it will do."""
