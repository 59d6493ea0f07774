"""`podslice simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli import configuration
from podslice.cli.arguments import DONE, FAILED, Namespace, Output
from podslice.cli.assumptions import AssumptionOptions, Known, read_assumptions
from podslice.cli.host import applied_pods, load_node, recorded_pods
from podslice.cli.manifests import load_candidates
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.picture_files import writer_of
from podslice.cli.views import documents
from podslice.cli.views.bar_chart import chart_of
from podslice.cli.views.simulation import (
    Simulation,
    make_simulation,
    simulation_document,
    simulation_lines,
)
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.host_slices import read_host_slices, usual_slices
from podslice.model.pod import InitProgress
from podslice.model.resources import CPU
from podslice.policy.cpu_sharing import share_cpu
from podslice.policy.cpu_tree import cpu_tree
from podslice.policy.desire import desire
from podslice.reconcile.report import describe_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from podslice.model.cpu_group import CpuGroup
    from podslice.model.desired import Desired
    from podslice.model.node import Node

ManifestFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE",
        help="Add the pods of this file or directory, or - for stdin, to those that are applied; may be repeated.",
    ),
]
Idle = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Assume that this pod, or slice outside of the pods, uses no CPU; may be repeated.",
    ),
]
Threads = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=NUMBER",
        help="Assume so many busy threads in each container of a pod, or in a slice; may be repeated. Otherwise one for each CPU.",
    ),
]
PlotFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draw the CPU of each pod in this file, which ends in .svg, or in .png if matplotlib is installed; it is replaced.",
    ),
]
AllowedCpus = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=LIST",
        help="Assume that a pod or slice may use only these CPUs, as 0-3,8; may be repeated.",
    ),
]


@planning_options
def simulate(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    filename: ManifestFiles = None,
    namespace: Namespace = None,
    idle: Idle = None,
    threads: Threads = None,
    allowed_cpus: AllowedCpus = None,
    output: Output = OutputFormat.TABLE,
    plot: PlotFile = None,
) -> int:
    """Run `podslice simulate`.

    Nothing is run or changed: the result follows from the values of units, and from threads.
    """
    draw = _drawing_to(plot)
    if not filename:
        planning = configuration.tolerate(planning)
    node = load_node(planning.config)
    desired = _desired(planning, node, filename, namespace)
    host = _host_slices(planning)
    cpu_count = max(1, -(-desired.allocation.capacity.get(CPU, 0) // 1000))
    known = Known(
        pods=[pod.pod.key for pod in desired.pods],
        slices=dict.fromkeys(
            [*(each.name for each in host), *(u.name for u in desired.units if not u.owned)]
        ),
        namespace=namespace,
        cpu_count=cpu_count,
    )
    stated = AssumptionOptions(
        idle=tuple(idle or ()), threads=tuple(threads or ()), cpus=tuple(allowed_cpus or ())
    )
    tree = cpu_tree(desired, host, read_assumptions(stated, known))
    used = share_cpu(tree, cpu_count)
    found = make_simulation(tree, used, desired, cpu_count=cpu_count, swap_bytes=node.swap_bytes)
    draw(found)
    _emit(found, output)
    return _report_refused(desired)


def _drawing_to(file: Path | None) -> Callable[[Simulation], None]:
    """Return the function that draws a simulation, which may be none.

    Raises:
        InputError: the name of the file has another ending.
        HostError: it is PNG, and matplotlib is not installed.
    """
    if file is None:
        return lambda _: None
    write = writer_of(file)
    return lambda found: write(chart_of(found))


def _report_refused(desired: Desired) -> int:
    """Report the pods that do not fit, and return the exit code."""
    if not desired.refused:
        return DONE

    for refusal in desired.refused:
        note(describe_refusal(refusal))
    return FAILED


def _desired(
    planning: Planning, node: Node, filename: list[str] | None, namespace: str | None
) -> Desired:
    """Return the units of the applied pods and those of the files, after their init containers.

    Raises:
        InputError: a file or the configuration is invalid.
        HostError: without files, the records of the applied pods cannot be read.
    """
    if filename:
        candidates = load_candidates(planning, filename, namespace)
        current = recorded_pods(planning)
    else:
        candidates, current = (), applied_pods(planning)
    uids = [pod.uid for pod in (*current, *(each.pod for each in candidates))]
    return desire(
        candidates,
        node,
        planning.config,
        current=current,
        progress=dict.fromkeys(uids, InitProgress(over=True)),
        mounts=False,
    )


def _host_slices(planning: Planning) -> tuple[CpuGroup, ...]:
    """Return the slices beside those of pods: of this host, or those that another one has."""
    if CPU in planning.config.capacity:
        return usual_slices(planning.manager)
    return read_host_slices(CgroupFs(), planning.manager)


def _emit(found: Simulation, output: OutputFormat) -> None:
    emit(
        output,
        document=lambda: documents.document(**simulation_document(found)),
        lines=lambda display: simulation_lines(found, display),
        names=lambda: [unit.pod.pod.key for unit in found.units if unit.pod],
    )
