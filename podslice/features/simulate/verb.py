"""`podslice simulate`, with its tables, its document and its picture in SVG."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
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
from podslice.cli.extensions import cpu_stage
from podslice.cli.host import applied_pods, load_node, recorded_pods, tolerate
from podslice.cli.manifests import choose_candidates, load_all
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.views import documents
from podslice.cli.views.documents import Document
from podslice.cli.views.layout import Align, Column, Shorten, fold, table
from podslice.cli.views.style import Cell, Display, Role, Styled, bar
from podslice.cli.views.tables import human_bytes, list_first
from podslice.errors import HostError, InputError, Problem, invalid
from podslice.features.simulate.cpu_sharing import Assumptions, cpu_tree, share_cpu
from podslice.features.simulate.memory_sharing import MemorySharing, PodMemory, share_memory
from podslice.kernel.cgroup import CgroupFs, read_host_slices, usual_slices
from podslice.model.desired import Desired, PodDecision
from podslice.model.node import CpuGroup, Node, parse_cpus
from podslice.model.pod import InitProgress
from podslice.model.quantity import format_bytes, format_milli
from podslice.model.resources import CPU, memory_bytes
from podslice.policy.desire import desire
from podslice.reconcile.report import describe_refusal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Threads = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=NUMBER",
        help="Assume so many busy threads in each container of a pod, or in a slice; may be repeated. Otherwise one for each CPU.",
    ),
]


@planning_options
def simulate(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    filename: Annotated[
        list[str] | None,
        files_option(
            "Add the pods of this file or directory, or - for stdin, to those that are applied; may be repeated."
        ),
    ] = None,
    namespace: Namespace = None,
    idle: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Assume that this pod, or slice outside of the pods, uses no CPU; may be repeated.",
        ),
    ] = None,
    threads: Threads = None,
    allowed_cpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LIST",
            help="Assume that a pod or slice may use only these CPUs, as 0-3,8; may be repeated.",
        ),
    ] = None,
    output: Output = OutputFormat.TABLE,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the CPU of each pod in this file, which ends in .svg, or in .png if matplotlib is installed; it is replaced.",
        ),
    ] = None,
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
    found = make_simulation(tree, used, desired, cpu_count=cpu_count, swap_bytes=node.swap_bytes)
    if draw is not None:
        draw(chart_of(found))
    emit(
        output,
        document=lambda: documents.document(**simulation_document(found)),
        lines=lambda display: simulation_lines(found, display),
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
        stage=cpu_stage(planning.config),
        mounts=False,
    )


def writer_of(path: Path) -> Callable[[BarChart], object]:
    """Return the function that writes a chart to a file, by the ending of its name.

    Raises:
        InputError: the ending is unknown.
        HostError: it is PNG, and matplotlib is not installed.
    """
    if path.suffix == ".svg":
        return lambda chart: path.write_text(svg(chart), encoding="utf-8")
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


def _write_png(chart: BarChart, path: Path, figure: Figure) -> None:
    """Draw the same bars with matplotlib."""
    figure.set_layout_engine("tight")
    axes = figure.add_subplot()
    places = range(len(chart.bars))
    drawn = axes.barh(places, [each.value for each in chart.bars], color=BAR_COLOR)
    axes.bar_label(drawn, [each.text for each in chart.bars], padding=4)
    for place, each in zip(places, chart.bars, strict=True):
        if each.mark is not None:
            axes.plot([each.mark, each.mark], [place - 0.4, place + 0.4], color=MARK_COLOR)
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


_BAR_WIDTH = 20
_NUMBER = Align.RIGHT
_COLUMNS = (
    Column(title="NAME", min_width=20, shorten=Shorten.MIDDLE),
    Column(title="WEIGHT", align=_NUMBER, drop=2),
    Column(title="REQUEST", align=_NUMBER),
    Column(title="LIMIT", align=_NUMBER, drop=3),
    Column(title="CPU", align=_NUMBER),
    Column(title="", drop=1),
)
_TOLERANCE_MILLI = 10
"""The rounding of weights."""


class SimulatedUnit(NamedTuple):
    """A unit with its use of CPUs."""

    name: str
    label: str
    depth: int
    group: CpuGroup
    cpu_milli: int
    parent: str = ""
    pod: PodDecision | None = None
    """The pod whose slice it is."""
    is_container: bool = False

    @property
    def requested_milli(self) -> int | None:
        """Return the request of the pod."""
        return self.pod.requests.get(CPU) if self.pod else None


class Simulation(NamedTuple):
    """The use of CPUs by all units, parents before children, and the memory of pods."""

    cpu_count: int
    units: tuple[SimulatedUnit, ...]
    memory: MemorySharing


def make_simulation(
    tree: Iterable[CpuGroup],
    used: Mapping[str, float],
    desired: Desired,
    *,
    cpu_count: int,
    swap_bytes: int,
) -> Simulation:
    """Return the units of a tree with the CPUs that they use, by name, and the pods' memory."""
    pods = {str(pod.slice): pod for pod in desired.pods}
    containers = {str(each.scope): each.name for pod in desired.pods for each in pod.scopes}

    def walk(groups: Iterable[CpuGroup], parent: str, depth: int) -> Iterator[SimulatedUnit]:
        for group in groups:
            pod = pods.get(group.name)
            label = pod.pod.key if pod else containers.get(group.name, group.name)
            yield SimulatedUnit(
                name=group.name,
                label=label,
                depth=depth,
                group=group,
                cpu_milli=round(1000 * used.get(group.name, 0.0)),
                parent=parent,
                pod=pod,
                is_container=group.name in containers,
            )
            yield from walk(group.children, group.name, depth + 1)

    units = tuple(walk(tree, "", 0))
    memory = share_memory(desired, swap_bytes)
    return Simulation(cpu_count=cpu_count, units=units, memory=memory)


def simulation_lines(found: Simulation, display: Display) -> Iterator[str]:
    """Yield a table of CPUs and one of memory.

    The first has a line for each slice, and with all details for each container.
    """
    shown = [unit for unit in found.units if display.wide or not unit.is_container]
    yield from table(_COLUMNS, [_cells(unit, found, display) for unit in shown], display)
    if found.memory.pods:
        yield ""
        yield from memory_lines(found.memory, display)


def _cells(unit: SimulatedUnit, found: Simulation, display: Display) -> Sequence[Cell]:
    request = unit.requested_milli
    quota = unit.group.quota_milli
    is_less = request is not None and unit.cpu_milli + _TOLERANCE_MILLI < request
    role = Role.WARNING if is_less else Role.GOOD
    cpu = f"{unit.cpu_milli / 1000:.2f}"
    return [
        "  " * unit.depth + (unit.name if display.wide else unit.label),
        str(unit.group.weight),
        "-" if request is None else format_milli(request),
        "-" if quota is None else format_milli(quota),
        Styled(cpu, role) if is_less else cpu,
        Styled(bar(unit.cpu_milli, 1000 * found.cpu_count, width=_BAR_WIDTH).text, role),
    ]


def simulation_document(found: Simulation) -> Document:
    """Return the parts of the document."""
    memory = {
        each.pod.pod.key: {
            "requested_memory_bytes": memory_bytes(each.pod.requests),
            "limit_memory_bytes": each.limit_bytes if each.is_limited else None,
            "protected_memory_bytes": each.protected_bytes,
            "reclaimable_memory_bytes": each.reclaimable_bytes,
            "oom_score": each.oom_score,
            "eviction_rank": each.eviction_rank,
        }
        for each in found.memory.pods
    }
    return {
        "cpus": found.cpu_count,
        "memory": {
            "available_bytes": found.memory.available_bytes,
            "limit_bytes": found.memory.limit_bytes,
            "overcommitted_bytes": found.memory.overcommitted_bytes,
        },
        "units": [_unit(unit) for unit in found.units],
        "pods": [
            {
                "namespace": unit.pod.pod.namespace,
                "name": unit.pod.pod.name,
                "qos": unit.pod.qos.value,
                "requested_cpu_milli": unit.pod.requests.get(CPU),
                "limit_cpu_milli": unit.group.quota_milli,
                "cpu_milli": unit.cpu_milli,
                **memory[unit.pod.pod.key],
            }
            for unit in found.units
            if unit.pod
        ],
    }


def _unit(unit: SimulatedUnit) -> Document:
    cpus = unit.group.cpus
    return {
        "name": unit.name,
        "parent": unit.parent or None,
        "weight": unit.group.weight,
        "quota_cpu_milli": unit.group.quota_milli,
        "threads": None if unit.group.children else unit.group.threads,
        "allowed_cpus": None if cpus is None else sorted(cpus),
        "cpu_milli": unit.cpu_milli,
    }


_MEMORY_COLUMNS = (
    Column(title="NAME", min_width=20, shorten=Shorten.MIDDLE),
    Column(title="REQUEST", align=_NUMBER, drop=1),
    Column(title="LIMIT", align=_NUMBER),
    Column(title="PROTECTED", align=_NUMBER),
    Column(title="RECLAIMABLE", align=_NUMBER, drop=2),
    Column(title="OOM SCORE", align=_NUMBER),
    Column(title="EVICTED", align=_NUMBER, drop=3),
)
_NAMED = 5
"""Pods without a limit that are named; the others are counted."""


def memory_lines(found: MemorySharing, display: Display) -> Iterator[str]:
    """Yield a line for each pod, those that are killed first at the top, and a summary."""
    cells = (_memory_cells(each, display) for each in found.pods)
    yield from table(_MEMORY_COLUMNS, cells, display)
    yield ""
    for text in _summary(found, display):
        yield from fold(text, display)


def _memory_cells(each: PodMemory, display: Display) -> Sequence[str]:
    request = memory_bytes(each.pod.requests)
    return [
        each.pod.pod.key,
        "-" if request is None else _amount(request, display),
        _amount(each.limit_bytes, display) if each.is_limited else "-",
        _amount(each.protected_bytes, display),
        _amount(each.reclaimable_bytes, display),
        str(each.oom_score),
        "-" if each.eviction_rank is None else str(each.eviction_rank),
    ]


def _summary(found: MemorySharing, display: Display) -> Iterator[str]:
    limits, available, over = (
        _amount(number, display)
        for number in (found.limit_bytes, found.available_bytes, found.overcommitted_bytes)
    )
    text = f"The pods can use {limits} of {available} together"
    yield f"{text}: {over} is overcommitted." if found.overcommitted_bytes else f"{text}."
    if unlimited := [each.pod.pod.key for each in found.pods if not each.is_limited]:
        yield f"Without a memory limit: {list_first(unlimited, _NAMED)}."


def _amount(number: int, display: Display) -> str:
    return format_bytes(number) if display.is_exact else human_bytes(number)


_LABEL_SIZE, _CHART_SIZE, _NUMBER_SIZE, _ROW_SIZE, _BAR_SIZE, _MARGIN = 360, 400, 70, 24, 14, 20
"""Widths and heights in pixels."""
_SVG_TEXT = 'font-family="sans-serif" font-size="12"'
BAR_COLOR, MARK_COLOR = "#4c78a8", "#d62728"
_GRAY = "#e8e8e8"


class Bar(NamedTuple):
    """One bar: a part of the whole."""

    label: str
    depth: int
    value: float
    text: str
    mark: float | None = None
    """A line across the bar."""


class BarChart(NamedTuple):
    """Bars below each other."""

    title: str
    whole: float
    """The value of the longest possible bar."""
    bars: tuple[Bar, ...]


def chart_of(found: Simulation) -> BarChart:
    """Return the use of CPUs by each slice, with the request of a pod as a mark."""
    return BarChart(
        title=f"Simulated use of {found.cpu_count} CPUs; requests in red",
        whole=1000 * found.cpu_count,
        bars=tuple(
            Bar(
                label=unit.label,
                depth=unit.depth,
                value=unit.cpu_milli,
                mark=unit.requested_milli,
                text=f"{unit.cpu_milli / 1000:.2f}",
            )
            for unit in found.units
            if not unit.is_container
        ),
    )


def svg(chart: BarChart) -> str:
    """Return a chart as an SVG document."""
    width = _LABEL_SIZE + _CHART_SIZE + _NUMBER_SIZE
    height = _ROW_SIZE * (len(chart.bars) + 1) + 2 * _MARGIN
    rows = (line for at, each in enumerate(chart.bars) for line in _row(each, at, chart.whole))
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{_MARGIN}" y="{_MARGIN}" {_SVG_TEXT} font-weight="bold">{escape(chart.title)}</text>',
            *rows,
            "</svg>\n",
        )
    )


def _row(bar: Bar, at: int, whole: float) -> Iterator[str]:
    """Yield the elements of one bar."""
    top = _MARGIN + _ROW_SIZE * (at + 1) - _BAR_SIZE
    base = top + _BAR_SIZE - 3
    yield f'<text x="{_MARGIN * (1 + bar.depth)}" y="{base}" {_SVG_TEXT}>{escape(bar.label)}</text>'
    yield _rect(_LABEL_SIZE, top, _CHART_SIZE, _GRAY)
    yield _rect(_LABEL_SIZE, top, _CHART_SIZE * bar.value / whole, BAR_COLOR)
    if bar.mark is not None:
        yield _rect(_LABEL_SIZE + _CHART_SIZE * min(bar.mark / whole, 1.0) - 1, top, 2, MARK_COLOR)
    yield f'<text x="{_LABEL_SIZE + _CHART_SIZE + 8}" y="{base}" {_SVG_TEXT}>{escape(bar.text)}</text>'


def _rect(left: float, top: float, width: float, color: str) -> str:
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_BAR_SIZE}" fill="{color}"/>'
