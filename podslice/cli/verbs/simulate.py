"""`podslice simulate`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from podslice.cli.arguments import (
    DONE,
    FAILED,
    Namespace,
    Output,
    files_option,
    key_of,
    nearest_pod,
)
from podslice.cli.host import (
    applied_pods,
    load_node,
    recorded_pods,
    tolerate,
)
from podslice.cli.manifests import choose_candidates, load_all
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.views import documents, simulation
from podslice.errors import HostError, InputError, Problem, invalid
from podslice.kernel.cgroup import CgroupFs, read_host_slices, usual_slices
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.cgroup import read_host_slices, usual_slices
from podslice.model.cpu_list import parse_cpus
from podslice.model.desired import Desired
from podslice.model.node import Node
from podslice.model.pod import InitProgress
from podslice.model.resources import CPU
from podslice.policy.cpu_sharing import Assumptions, cpu_tree, share_cpu
from podslice.policy.desire import desire
from podslice.reconcile.report import describe_refusal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ManifestFiles = Annotated[
    list[str] | None,
    files_option(
        "Add the pods of this file or directory, or - for stdin, to those that are applied; may be repeated."
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
    # a wrong name is an error before anything is read
    draw = None if plot is None else writer_of(plot)
    if not filename:
        planning = tolerate(planning)
    node = load_node(planning.config)
    desired = _desired(planning, node, filename, namespace)
    if CPU in planning.config.capacity:  # of another host
        host = usual_slices(planning.manager)
    else:
        host = read_host_slices(CgroupFs(), planning.manager)
    cpu_count = max(1, -(-desired.allocation.capacity.get(CPU, 0) // 1000))
    known = Known(
        pods=[pod.pod.key for pod in desired.pods],
        slices=dict.fromkeys(
            [*(each.name for each in host), *(u.name for u in desired.units if not u.owned)]
        ),
        namespace=namespace,
        cpu_count=cpu_count,
    )
    stated = read_assumptions(idle or (), threads or (), allowed_cpus or (), known)
    tree = cpu_tree(desired, host, stated)
    used = share_cpu(tree, cpu_count)
    found = simulation.make_simulation(
        tree, used, desired, cpu_count=cpu_count, swap_bytes=node.swap_bytes
    )
    if draw is not None:
        draw(simulation.chart_of(found))
    emit(
        output,
        document=lambda: documents.document(**simulation.simulation_document(found)),
        lines=lambda display: simulation.simulation_lines(found, display),
        names=lambda: [unit.pod.pod.key for unit in found.units if unit.pod],
    )
    for refusal in desired.refused:
        note(describe_refusal(refusal))
    return FAILED if desired.refused else DONE


def _desired(
    planning: Planning, node: Node, filename: list[str] | None, namespace: str | None
) -> Desired:
    """Return the units of the applied pods and those of the files, after their init containers.

    Raises:
        InputError: a file or the configuration is invalid.
        HostError: without files, the records of the applied pods cannot be read.
    """
    if filename:
        _, loaded = load_all(planning, filename, namespace)
        candidates = choose_candidates(planning, loaded)
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


def writer_of(path: Path) -> Callable[[simulation.BarChart], object]:
    """Return the function that writes a chart to a file, by the ending of its name.

    Raises:
        InputError: the ending is unknown.
        HostError: it is PNG, and matplotlib is not installed.
    """
    if path.suffix == ".svg":
        return lambda chart: path.write_text(simulation.svg(chart), encoding="utf-8")
    if path.suffix != ".png":
        raise invalid(f"{path.name!r} does not end in .svg or .png", where="--plot")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HostError(
            "--plot: PNG requires matplotlib, which is not installed; write a file that ends in"
            " .svg, or install python3-matplotlib"
        ) from error
    return lambda chart: _write_png(chart, path, Figure(figsize=(9, 1 + len(chart.bars) / 4)))


def _write_png(chart: simulation.BarChart, path: Path, figure: Figure) -> None:
    """Draw the same bars with matplotlib."""
    figure.set_layout_engine("tight")
    axes = figure.add_subplot()
    places = range(len(chart.bars))
    drawn = axes.barh(places, [each.value for each in chart.bars], color=simulation.BAR_COLOR)
    axes.bar_label(drawn, [each.text for each in chart.bars], padding=4)
    for place, each in zip(places, chart.bars, strict=True):
        if each.mark is not None:
            axes.plot(
                [each.mark, each.mark], [place - 0.4, place + 0.4], color=simulation.MARK_COLOR
            )
    axes.set_yticks(places, [each.label for each in chart.bars])
    axes.set_xlim(0, chart.whole)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.set_title(chart.title)
    figure.savefig(path, metadata={"Software": None})


_NAME = "NAME is a pod, or a slice outside of the pods"
_THREADS_MAX = 100_000
_THREADS = (f"is not NAME=NUMBER with a number from 1 to {_THREADS_MAX}", "as web=2")
_SHOWN = 64
"""Characters of a wrong value."""

T = TypeVar("T")


class Known(NamedTuple):
    """What the options can name, and the CPUs that there are."""

    pods: Collection[str]
    slices: Collection[str]
    namespace: str | None
    cpu_count: int


def read_assumptions(
    idle: Iterable[str], threads: Iterable[str], allowed_cpus: Iterable[str], known: Known
) -> Assumptions:
    """Return what the options assume, by pod (`namespace/name`) or slice.

    Threads are stated as `NAME=NUMBER`, and CPUs as `NAME=LIST`.

    Raises:
        InputError: options are wrong; it has every problem.
    """
    problems: list[Problem] = []
    last = known.cpu_count - 1
    cpus = (f"is not NAME=LIST with CPUs from 0 to {last}", f"as web=0-{last}")

    def parse_present(text: str) -> frozenset[int]:
        numbers = parse_cpus(text)
        if not numbers or max(numbers) > last:
            raise ValueError(text)
        return frozenset(numbers)

    found = Assumptions(
        idle=frozenset(_find("--idle", idle, known, problems)),
        threads=dict(_pairs("--threads", threads, _parse_threads, _THREADS, known, problems)),
        cpus=dict(_pairs("--allowed-cpus", allowed_cpus, parse_present, cpus, known, problems)),
    )
    if problems:
        raise InputError(problems)
    return found


def _parse_threads(text: str) -> int:
    """Parse a number of threads.

    Raises:
        ValueError: it is not a number in the range.
    """
    number = int(text) if len(text) <= len(str(_THREADS_MAX)) else 0
    if not 0 < number <= _THREADS_MAX:
        raise ValueError(text)
    return number


def _pairs(
    option: str,
    texts: Iterable[str],
    parse: Callable[[str], T],
    wrong: tuple[str, str],
    known: Known,
    problems: list[Problem],
) -> Iterator[tuple[str, T]]:
    """Yield the names with their values; `wrong` is the message and the hint for others."""
    for text in texts:
        name, _, value = text.partition("=")
        try:
            parsed = parse(value)
        except ValueError:
            message, hint = wrong
            problems.append(
                Problem(where=option, message=f"{text[:_SHOWN]!r} {message}", hint=hint)
            )
        else:
            for key in _find(option, (name,), known, problems):
                yield key, parsed


def _find(
    option: str, names: Iterable[str], known: Known, problems: list[Problem]
) -> Iterator[str]:
    """Yield the keys of pods and the slices that are known; the others are problems."""
    for name in names:
        if name in known.slices:
            yield name
        elif (key := key_of(name, known.namespace)) in known.pods:
            yield key
        else:
            slices = f"slices: {', '.join(known.slices)}" if known.slices else ""
            hint = nearest_pod(key, known.pods) or slices or _NAME
            problems.append(Problem(where=option, message=f"{name!r} is unknown", hint=hint))
