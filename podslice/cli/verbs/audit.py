"""`podslice audit`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli import coroutines
from podslice.cli.arguments import DIFFERENCES, DONE
from podslice.cli.host import level_directory, load_node
from podslice.cli.kubelet_options import (
    Insecure,
    Kubeconfig,
    Kubelet,
    KubeletCa,
    KubeletConfig,
    KubeletSource,
    KubeletVersion,
)
from podslice.cli.kubelet_source import read_kubelet
from podslice.cli.output import OutputFormat, emit, write
from podslice.cli.views import audit_views, documents
from podslice.kernel.cgroup import CgroupFs
from podslice.model.manager import SYSTEM
from podslice.policy.kubelet_values import expect_node
from podslice.store.level_record import LevelRecord
from podslice.systemd import bus
from podslice.usage.kubelet_comparison import KubeletHost
from podslice.usage.kubelet_units import audit_units, unit_patterns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from podslice.model.kubelet_node import KubeletPod, KubeletSettings, NodeAudit
    from podslice.model.node import Node


class AuditFormat(StrEnum):
    """Values of `-o` of `audit`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    PROMETHEUS = "prometheus"


PodFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE",
        help="Read the pods from this file or directory, or - for stdin; may be repeated.",
    ),
]
Format = Annotated[AuditFormat, typer.Option("--output", "-o", help="Output format.")]


def audit(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    filename: PodFiles = None,
    kubelet: Kubelet = None,
    kubeconfig: Kubeconfig = None,
    kubelet_ca: KubeletCa = None,
    insecure_skip_tls_verify: Insecure = False,  # noqa: FBT002
    kubelet_config: KubeletConfig = None,
    kubelet_version: KubeletVersion = None,
    output: Format = AuditFormat.TABLE,
) -> int:
    """Run `podslice audit`.

    Nothing is changed. The exit status is 3 if there is a problem.
    """
    found = _audit(
        KubeletSource(
            files=tuple(filename or ()),
            url=kubelet,
            kubeconfig=kubeconfig,
            authority=kubelet_ca,
            is_verified=not insecure_skip_tls_verify,
            config=kubelet_config,
            version=kubelet_version,
        )
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


def _audit(source: KubeletSource) -> NodeAudit:
    """Return the audit of this node."""
    pods, settings = read_kubelet(source)
    node = load_node(settings.config)
    return coroutines.run(_observe(pods, node, settings))


async def _observe(pods: Sequence[KubeletPod], node: Node, settings: KubeletSettings) -> NodeAudit:
    """Return the audit of the loaded units of the kubelet."""
    cgroups = CgroupFs()
    async with bus.Bus(SYSTEM) as client:
        default = await client.default_tasks_max()
        expected = expect_node(pods, node, settings, default_tasks_max=default)
        observed = await client.observe(unit_patterns(expected, cgroups))
    host = KubeletHost(
        observed={unit.name: unit for unit in observed},
        cgroups=cgroups,
        own=LevelRecord(level_directory(SYSTEM)).read(),
        page_size=node.page_size_bytes,
    )
    return audit_units(expected, host, settings)
