"""`podslice doctor`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from podslice.cli import coroutines
from podslice.cli.arguments import DIFFERENCES, DONE, Output
from podslice.cli.host import load_node, open_store, tolerate
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, emit
from podslice.cli.report import ConfigurationEntry, configuration_entry, document
from podslice.cli.views.layout import Column, Shorten, blocks, fold
from podslice.cli.views.style import Display, Role, Styled
from podslice.errors import HostError, SystemdError
from podslice.features.doctor.facts import Subject, SystemdReply, read_facts
from podslice.features.doctor.findings import Finding, FindingState, check_host
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Origin, Source
from podslice.model.naming import Tree
from podslice.model.pod import Pod
from podslice.model.unit import ObservedUnit, control_group_of
from podslice.reconcile.world import Guard, claims_beside_kubelet, list_evidence, recorded_pods
from podslice.systemd import bus

HOST_ROOT = Path("/")
ANSWER_SEC = 10.0
"""The time that the service manager has to answer."""


@dataclass(frozen=True, kw_only=True)
class DoctorReport:
    """The findings about the host."""

    configuration: ConfigurationEntry | None = None
    passed: bool
    """Whether no finding needs attention."""
    findings: tuple[Finding, ...]


@configured
def doctor(planning: Planning, output: Output = OutputFormat.TABLE) -> int:
    """Run `podslice doctor`.

    Each finding has its effect and its fix. Nothing is changed, and no privileges are needed.

    Examples:
        podslice doctor
        podslice doctor --user
    """
    planning = tolerate(planning)
    root = control_group_of(Tree(cgroup_root=planning.config.cgroup_root).root)
    subject = Subject(uid=os.getuid(), manager=planning.manager, control_group=root)
    facts = read_facts(coroutines.run(_ask(planning)), subject, HOST_ROOT)
    found = (*_configuration(planning.origin), *check_host(facts))
    grave = [finding for finding in found if finding.state is FindingState.ATTENTION]
    report = DoctorReport(
        configuration=configuration_entry(planning.origin), passed=not grave, findings=found
    )
    emit(
        output,
        document=lambda: document(report),
        lines=lambda display: _lines(report.findings, display),
        names=lambda: [finding.check for finding in grave],
    )
    return DIFFERENCES if grave else DONE


def _configuration(origin: Origin) -> Iterator[Finding]:
    """Report configuration files that are invalid."""
    if origin.source is Source.FILES:
        return
    count = len(origin.problems)
    yield Finding(
        check="configuration",
        state=FindingState.ATTENTION,
        what=f"{count} problem{'' if count == 1 else 's'} in the configuration files",
        effect="plan, apply, run and adopt fail, and the agent does not start; a running agent keeps"
        " its configuration",
        fix="correct the files, check them with podslice check, then: systemctl reload"
        " podslice-agent.service",
    )


async def _ask(planning: Planning) -> SystemdReply:
    """Return the reply of the service manager, or the reason why there is none."""
    tree, guard = Tree(cgroup_root=planning.config.cgroup_root), Guard(HOST_ROOT)
    recorded: Collection[Pod] = ()
    with suppress(HostError):  # a missing session is a separate finding
        recorded = recorded_pods(open_store(planning))
    kubelets = await guard.kubelets()
    units: Sequence[ObservedUnit] = ()
    version, error = None, ""
    try:
        async with asyncio.timeout(ANSWER_SEC), bus.Bus(planning.manager) as client:
            version = (await client.caps()).systemd_version
            units = await list_evidence(client, tree, planning.manager)
    except SystemdError as reason:
        error = str(reason)
    except TimeoutError:
        error = f"no answer within {ANSWER_SEC:.0f} s"
    return SystemdReply(
        version=version,
        error=error,
        foreign=await guard.judge(tree, units, recorded, planning.manager),
        kubelets=kubelets,
        claims=await claims_beside_kubelet(
            guard,
            CgroupFs(),
            load_node(planning.config, lenient=True, manager=planning.manager),
            planning.config,
            planning.manager,
        ),
    )


_COLUMNS = (
    Column(title=""),
    Column(title=""),
    Column(title="", min_width=24, shorten=Shorten.FOLD),
)
_ROLES = {
    FindingState.OK: Role.GOOD,
    FindingState.INFO: Role.DIM,
    FindingState.ATTENTION: Role.ERROR,
}


def _lines(found: Sequence[Finding], display: Display) -> Iterator[str]:
    """Yield a line for each finding, with its effect and fix below it."""
    rows = ((Styled(each.state, _ROLES[each.state]), each.check, each.what) for each in found)
    heads = blocks(_COLUMNS, rows, display, has_head=False)
    for head, finding in zip(heads, found, strict=True):
        yield from head
        if not display.wide and finding.state is FindingState.OK:
            continue
        for label, text in (("effect", finding.effect), ("fix", finding.fix)):
            if text:
                yield from fold(f"{label}: {text}", display, indent="    ", hanging="      ")
    grave = [finding.check for finding in found if finding.state is FindingState.ATTENTION]
    yield ""
    if grave:
        text = f"need attention: {', '.join(grave)}"
        yield from fold(text, display, hanging="    ", role=Role.ERROR)
    else:
        yield display.paint("all checks passed", Role.GOOD)
