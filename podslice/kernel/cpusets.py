"""The CPUs and NUMA nodes that a limit may name at most."""

from __future__ import annotations

from pathlib import Path

from podslice.kernel.text import read_text
from podslice.model.cpu_list import format_cpus, parse_cpus
from podslice.model.properties import PROPERTIES


def read_possible(name: str, root: Path = Path("/")) -> str:
    """Return the value of a property that allows all of them; empty if the property has no such value.

    A kernel without NUMA has no list of nodes.

    Source: Linux, Documentation/ABI/stable/sysfs-devices-node, sysfs-devices-system-cpu.
    """
    path = PROPERTIES[name].possible
    try:
        return format_cpus(parse_cpus(read_text(root / path))) if path else ""
    except (OSError, ValueError):
        return ""
