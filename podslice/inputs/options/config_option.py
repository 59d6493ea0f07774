"""What the table of options states of each."""

from __future__ import annotations

from typing import NamedTuple

from podslice.inputs.options.values import Reader, read_boolean


class ConfigOption(NamedTuple):
    """One option: a key of the file, a flag of the command line, and a field of `Config`."""

    key: str
    """The name of the kubelet's flag, if it has one of the same meaning."""
    field: str | None
    """The field of `Config`; None for an option that is only checked."""
    read: Reader
    help: str
    metavar: str = ""
    """The placeholder of the value in help texts; empty for a boolean."""
    aliases: tuple[str, ...] = ()
    is_agent_only: bool = False
    """Only the agent uses it, so that no other verb has the flag."""

    @property
    def is_boolean(self) -> bool:
        """Return whether the value is a boolean."""
        return self.read is read_boolean
