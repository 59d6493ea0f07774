"""`podslice simulate`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import typer

from podslice.cli.arguments import (
    DONE,
    FAILED,
    Namespace,
    Output,
    files_option,
)
from podslice.cli.extensions import cpu_stage
from podslice.cli.host import applied_pods, load_node, recorded_pods, tolerate
from podslice.cli.manifests import choose_candidates, load_all
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.pods import key_of, nearest_pod
from podslice.cli.report import document
from podslice.errors import InputError, Problem
from podslice.features.simulate.sharing import Assumptions, CpuGroup, simulate_units
from podslice.features.simulate.view import (
    simulation_lines,
    simulation_report,
    writer_of,
)
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.text import read_value_or_empty
from podslice.model.desired import Desired
from podslice.model.naming import HOST_SLICES
from podslice.model.node import Cpus, Node, parse_cpus
from podslice.model.pod import InitProgress
from podslice.model.resources import CPU
from podslice.model.unit import Manager, is_unit_name
from podslice.policy.convert import DEFAULT_WEIGHT
from podslice.policy.desire import desire
from podslice.reconcile.report import describe_refusal

Threads = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=NUMBER",
        help="Busy threads of each container.",
    ),
]


@planning_options
def simulate(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    filename: Annotated[
        list[str] | None,
        files_option("Add these pods; - for stdin."),
    ] = None,
    namespace: Namespace = None,
    idle: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A pod or slice that is idle.",
        ),
    ] = None,
    threads: Threads = None,
    allowed_cpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LIST",
            help="Only these CPUs, as web=0-3,8.",
        ),
    ] = None,
    output: Output = OutputFormat.TABLE,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the CPUs: .svg or .png.",
        ),
    ] = None,
) -> int:
    """Run `podslice simulate`.

    Nothing is run or changed: the result follows from the values of units, and from threads.

    Examples:
        podslice simulate -f manifests/
        podslice simulate --capacity=cpu=16,memory=64Gi --idle batch
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
    slices = [*(each.name for each in host), *(u.name for u in desired.units if not u.owned)]
    pods = [pod.pod.key for pod in desired.pods]
    options = _Options(pods, dict.fromkeys(slices), namespace, problems=[])
    unused = [*options.find("--idle", idle or ())]
    wrong = (f"is not NAME=NUMBER with a number from 1 to {_THREADS_MAX}", "as web=2")
    busy = dict(options.pairs("--threads", threads or (), _parse_threads, wrong))
    last = cpu_count - 1
    wrong = (f"is not NAME=LIST with CPUs from 0 to {last}", f"as web=0-{last}")
    present = partial(_parse_cpus, count=cpu_count)
    cpus = dict(options.pairs("--allowed-cpus", allowed_cpus or (), present, wrong))
    if options.problems:
        raise InputError(options.problems)
    assumed = Assumptions(threads={**busy, **dict.fromkeys(unused, 0)}, cpus=cpus)
    found = simulate_units(desired, host, assumed, cpu_count=cpu_count, swap_bytes=node.swap_bytes)
    if draw is not None:
        draw(found)
    emit(
        output,
        document=lambda: document(simulation_report(found)),
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


_THREADS_MAX = 100_000

T = TypeVar("T")


class _Options(NamedTuple):
    """Reads options that name pods and slices; collects every problem."""

    pods: Collection[str]
    slices: Collection[str]
    namespace: str | None
    problems: list[Problem]

    def find(self, option: str, names: Iterable[str]) -> Iterator[str]:
        """Yield the keys of pods and the slices that are known."""
        for name in names:
            key = name if name in self.slices else key_of(name, self.namespace)
            if key in self.slices or key in self.pods:
                yield key
                continue
            slices = f"slices: {', '.join(self.slices)}" if self.slices else ""
            hint = slices or "NAME is a pod, or a slice outside of the pods"
            hint = nearest_pod(key, self.pods) or hint
            self.problems.append(Problem(where=option, message=f"{name!r} is unknown", hint=hint))

    def pairs(
        self, option: str, texts: Iterable[str], parse: Callable[[str], T], wrong: tuple[str, str]
    ) -> Iterator[tuple[str, T]]:
        """Yield the names with the values after `=`; `wrong` is the message and hint for others."""
        for text in texts:
            name, _, value = text.partition("=")
            try:
                parsed = parse(value)
            except ValueError:
                message, hint = wrong
                shown = f"{text[:64]!r} {message}"
                self.problems.append(Problem(where=option, message=shown, hint=hint))
            else:
                yield from ((key, parsed) for key in self.find(option, (name,)))


def _parse_threads(text: str) -> int:
    """Parse a number of threads.

    Raises:
        ValueError: it is not a number in the range.
    """
    number = int(text) if len(text) <= len(str(_THREADS_MAX)) else 0
    if not 0 < number <= _THREADS_MAX:
        raise ValueError(text)
    return number


def _parse_cpus(text: str, count: int) -> Cpus:
    """Parse a list of some of the first CPUs.

    Raises:
        ValueError: it is not such a list.
    """
    numbers = parse_cpus(text)
    if not numbers or max(numbers) >= count:
        raise ValueError(text)
    return frozenset(numbers)


def usual_slices(manager: Manager) -> tuple[CpuGroup, ...]:
    """Return the slices of every system manager; of a user's manager there are none.

    Source: systemd.special(7), system.slice, user.slice.
    """
    return () if manager.is_user else tuple(CpuGroup(name=name) for name in HOST_SLICES)


def read_host_slices(cgroups: CgroupFs, manager: Manager) -> tuple[CpuGroup, ...]:
    """Return the slices in the control group of a manager that have processes, by name.

    Without cgroup v2 it returns the usual ones.
    """
    top = cgroups.mount / manager.control_group.lstrip("/")
    if not cgroups.is_v2 or not top.is_dir():
        return usual_slices(manager)
    paths = sorted(path for path in top.glob("*.slice") if is_unit_name(path.name))
    return tuple(
        _read_slice(path)
        for path in paths
        if "populated 1" in read_value_or_empty(path / "cgroup.events")
    )


def _read_slice(path: Path) -> CpuGroup:
    """Return a slice; a file that does not exist has the default.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpu.weight, cpu.max, cpuset.cpus.
    """
    weight = read_value_or_empty(path / "cpu.weight")
    quota_usec, _, period_usec = read_value_or_empty(path / "cpu.max").partition(" ")
    cpus = read_value_or_empty(path / "cpuset.cpus")
    return CpuGroup(
        name=path.name,
        weight=int(weight) if weight.isdigit() else DEFAULT_WEIGHT,
        quota_milli=1000 * int(quota_usec) // int(period_usec) if quota_usec.isdigit() else None,
        cpus=frozenset(parse_cpus(cpus)) or None,
    )
