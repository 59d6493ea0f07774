"""Lists of CPUs as text: `0-3,8`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_RANGE = re.compile("([0-9]{1,5})(?:-([0-9]{1,5}))?")
CPUS_MAX = 2**13
"""The maximum of any kernel. Source: Linux, arch/x86/Kconfig, NR_CPUS_RANGE_END."""


def parse_cpus(text: str) -> set[int]:
    """Parse a list of CPUs, as the kernel and systemd write it: `0-3,8` → {0, 1, 2, 3, 8}.

    Raises:
        ValueError: it is not in that format.

    Source: Linux, Documentation/admin-guide/cputopology.rst; systemd.resource-control(5),
    AllowedCPUs=, which also accepts spaces.
    """
    mask = 0
    for part in text.removesuffix("\n").replace(" ", ",").split(","):
        if part:
            found = _RANGE.fullmatch(part)
            first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
            if not first <= last < CPUS_MAX:
                raise ValueError(f"{part:.64} is not a range of CPUs")
            mask |= (1 << last + 1) - (1 << first)
    return {cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1}


def format_cpus(cpus: Iterable[int]) -> str:
    """Return CPUs as the kernel writes them: `0-3,8`. No CPU is an empty string.

    Source: cpuset(7), "List format".
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def numbers_of_octets(octets: Sequence[int]) -> Iterator[int]:
    """Yield the numbers of the bits that are set; the first octet has the lowest.

    Source: systemd, src/shared/cpu-set-util.c, cpu_set_to_dbus.
    """
    for index, octet in enumerate(octets):
        yield from (8 * index + bit for bit in range(8) if octet >> bit & 1)


def octets_of_numbers(numbers: Iterable[int]) -> bytes:
    """Return octets in which these bits are set; the inverse of `numbers_of_octets`."""
    mask = sum(1 << number for number in numbers)
    return mask.to_bytes(-(-mask.bit_length() // 8), "little")
