"""`podslice audit`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import DIFFERENCES, DONE, Files
from podslice.cli.manifests import read_stdin
from podslice.cli.output import OutputFormat, emit, write
from podslice.cli.session import load_node
from podslice.cli.views import audit_views, documents
from podslice.errors import InputError, Problem, printable
from podslice.inputs.limits import BYTES_MAX
from podslice.inputs.source import read_bytes
from podslice.kernel.cgroup import CgroupFs
from podslice.model.kubelet_node import KUBELET_VERSION
from podslice.model.manager import SYSTEM
from podslice.policy.kubelet_values import expect_node
from podslice.usage.kubelet_units import audit_units, unit_patterns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from podslice.model.kubelet_node import KubeletSettings
    from podslice.model.unit import ObservedUnit, UnitName

CONFIG_FILE = Path("/var/lib/kubelet/config.yaml")
"""Where kubeadm and most distributions have the kubelet's configuration."""


_VERSION = ".".join(map(str, KUBELET_VERSION))


class AuditFormat(StrEnum):
    """Values of `-o` of `audit`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    PROMETHEUS = "prometheus"


KubeletConfig = Annotated[
    Path,
    typer.Option(
        "--kubelet-config", metavar="FILE", help="The kubelet's configuration, or its /configz."
    ),
]
KubeletVersion = Annotated[
    str, typer.Option("--kubelet-version", metavar="VERSION", help="The kubelet's version.")
]
Format = Annotated[AuditFormat, typer.Option("--output", "-o", help="Output format.")]


def audit(
    filename: Files,
    kubelet_config: KubeletConfig = CONFIG_FILE,
    kubelet_version: KubeletVersion = _VERSION,
    output: Format = AuditFormat.TABLE,
) -> int:
    """Compare a kubelet's units with the values that its pods give.

    Nothing is changed. The exit status is 3 if there is a problem.
    """
    from podslice.inputs.kubelet.pod_list import read_pod_list

    settings = _read_settings(kubelet_config, kubelet_version)
    pods = read_pod_list(filename, read_stdin)
    node = load_node(settings.config)
    expected = expect_node(pods, node, settings)
    found = audit_units(
        expected,
        interrupts.run(_observe(unit_patterns(expected))),
        CgroupFs(),
        settings,
        page_size=node.page_size_bytes,
    )
    if output is AuditFormat.PROMETHEUS:
        write(audit_views.metrics(found))
    else:
        emit(
            OutputFormat(output),
            document=lambda: documents.document(**audit_views.document(found)),
            lines=lambda display: audit_views.lines(found, display),
            names=lambda: dict.fromkeys(each.object for each in found.problems),
        )
    return DIFFERENCES if found.problems else DONE


def _read_settings(path: Path, version: str) -> KubeletSettings:
    """Return the kubelet's configuration.

    Raises:
        InputError: it cannot be read, or is invalid.
    """
    from podslice.inputs.kubelet.kubelet_config import read_settings, read_version

    name = printable(str(path))
    try:
        data = read_bytes(path, limit_bytes=BYTES_MAX)
        changed_sec = int(path.stat().st_mtime)
    except OSError as error:
        hint = "state the file with --kubelet-config"
        message = (error.strerror or str(error)).lower()
        raise InputError(Problem(where=name, message=message, hint=hint)) from error
    stated = read_version(version)
    return read_settings(data, name, changed_sec=changed_sec, version=stated)


async def _observe(patterns: Sequence[str]) -> Mapping[UnitName, ObservedUnit]:
    """Return the loaded units of the kubelet."""
    from podslice.systemd.bus import Bus

    async with Bus(SYSTEM) as client:
        return {unit.name: unit for unit in await client.observe(patterns)}
