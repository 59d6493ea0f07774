"""`podslice version`."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass

from podslice import __version__
from podslice.cli import coroutines
from podslice.cli.arguments import DONE, TextOrJson
from podslice.cli.output import ReportFormat, write, write_json
from podslice.cli.report import document
from podslice.cli.verb_table import VERBS
from podslice.errors import SystemdError
from podslice.kernel.proc import find_manager
from podslice.model.feature import VerbGroup
from podslice.systemd import bus

ANSWER_SEC = 5.0
"""The time that the service manager has to answer."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What this podslice can do, and the host."""

    podslice: str
    systemd: int | None
    """None if the system manager does not answer."""
    python: str
    kernel: str
    machine: str
    verbs: tuple[str, ...]


def version(output: TextOrJson = ReportFormat.TEXT) -> int:
    """Run `podslice version`.

    The document has what a program needs to find out what this podslice can do, and a report of a
    bug to name the host: the verbs, the versions of systemd, Python and the kernel.

    Examples:
        podslice version
        podslice version -o json
    """
    if output is ReportFormat.TEXT:
        write([f"podslice {__version__}"])
    else:
        host = os.uname()
        report = Report(
            podslice=__version__,
            systemd=coroutines.run(_systemd_version()),
            python=".".join(map(str, sys.version_info[:3])),
            kernel=host.release,
            machine=host.machine,
            verbs=tuple(
                sorted(name for name, row in VERBS.items() if row.group is not VerbGroup.INTERNAL)
            ),
        )
        write_json(document(report))
    return DONE


async def _systemd_version() -> int | None:
    """Return the version of the system manager; None if it does not answer."""
    try:
        async with asyncio.timeout(ANSWER_SEC), bus.Bus(find_manager()) as client:
            return (await client.caps()).systemd_version
    except (SystemdError, TimeoutError):
        return None
