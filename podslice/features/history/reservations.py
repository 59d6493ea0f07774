"""`podslice node recommend`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from podslice.cli import host
from podslice.cli.arguments import DONE, FAILED, Output
from podslice.cli.host import tolerate
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.report import AmountsEntry, amounts_entry, document
from podslice.cli.views.layout import Column, Shorten, fold, table
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.views.style import Display
from podslice.errors import HostError, Problem, invalid
from podslice.features.history.files import recorded_files, see_agent
from podslice.features.history.model import PodHistory
from podslice.features.history.recommendation import SliceUsage, recommend_reservation, slice_usage
from podslice.features.node.providers import Reservation, by_provider
from podslice.model.naming import USER_SLICE, kube_reserved_slice, system_reserved_slice
from podslice.model.quantity import format_age, format_milli, human_bytes
from podslice.model.resources import CPU, MEMORY, Amounts, human_amounts, rounded_up
from podslice.model.unit import UnitName
from podslice.policy.allocatable import reserved_for_system

_PODS = 30
"""The number of pods that providers reserve for, as in `node init`."""


@configured
def recommend(planning: Planning, output: Output = OutputFormat.TABLE) -> int:
    """Recommend reservations from recorded usage.

    The agent records it. Nothing is changed. The formulas of providers are shown beside it.

    Examples:
        podslice node recommend
        podslice node recommend --set capacity=cpu=64,memory=256Gi
    """
    if planning.manager.is_user:
        raise invalid("a user manager has no reserved slices", "omit --user")
    planning = tolerate(planning)
    kube = [kube_reserved_slice(planning.config.kube_reserved_cgroup)]
    system = [system_reserved_slice(planning.config.system_reserved_cgroup), USER_SLICE]
    capacity = {**host.load_node(planning.config).capacity, **planning.config.capacity}
    usage = _read(planning, [*kube, *system])
    of_kube = tuple(each for each in usage if each.unit in kube)
    of_system = tuple(each for each in usage if each.unit in system)
    config, providers = planning.config, by_provider(capacity, _PODS)
    rows = (
        ("kube-reserved", rounded_up(config.kube_reserved), recommend_reservation(of_kube)),
        (
            "system-reserved",
            rounded_up(reserved_for_system(config)),
            recommend_reservation(of_system),
        ),
    )
    emit(
        output,
        document=lambda: document(_report(usage, rows, providers)),
        lines=lambda display: _lines(usage, rows, providers, display),
        names=lambda: [each.unit for each in usage],
    )
    return DONE if any(each.samples for each in usage) else FAILED


def _read(planning: Planning, units: list[UnitName]) -> list[SliceUsage]:
    """Return what the slices have used, and report which of them have no history.

    Raises:
        InputError: no usage is recorded.
    """
    files, found, now_sec = recorded_files(planning), [], int(time.time())
    for unit in units:
        history = None
        try:
            history = files.read(files.slice_path(unit))
        except HostError as error:
            note(problem_line(Problem(where=unit, message=str(error))))
        found.append(slice_usage(unit, (history or PodHistory()).pod, now_sec))
    if not any(each.samples for each in found):
        hint = f"the agent records it, {see_agent(planning.manager)}"
        note(problem_line(Problem(message="no usage of slices is recorded yet", hint=hint)))
    return found


_USED = (
    Column(title="SLICE", min_width=16, shorten=Shorten.MIDDLE),
    Column(title="HISTORY", drop=1),
    Column(title="CPU P99"),
    Column(title="CPU PEAK", drop=3),
    Column(title="MEM P99", drop=2),
    Column(title="MEM PEAK"),
)
_RESERVED = (Column(title="RESERVATION"), Column(title="CPU"), Column(title="MEMORY"))
_WHY = (
    "CPU: the 99th percentile of minutes, and 15 %; memory: the highest peak of 8 days, and 15 %."
    " Providers reserve for container runtimes and a kubelet only"
)


_Rows = Sequence[tuple[str, Amounts, Reservation | None]]
"""Each reservation with its present and its recommended amounts."""


def _lines(
    usage: Sequence[SliceUsage],
    reservations: _Rows,
    providers: Mapping[str, Reservation],
    display: Display,
) -> Iterator[str]:
    """Yield the tables of slices and of reservations, and the formula."""
    yield from table(_USED, map(_used, usage), display)
    yield ""
    rows = []
    for name, current, recommended in reservations:
        rows.append((f"{name}, now", *_stated(current)))
        rows.append((f"{name}, recommended", *_reservation(recommended)))
    rows += [(f"kube-reserved, as {name}", *_reservation(r)) for name, r in providers.items()]
    yield from table(_RESERVED, rows, display)
    yield ""
    yield from fold(_WHY, display)


@dataclass(frozen=True, kw_only=True)
class SliceEntry:
    """What a slice has used."""

    unit: str
    history_sec: int
    samples: int
    cpu_p99_milli: int | None
    cpu_peak_milli: int | None
    memory_p99_bytes: int | None
    memory_peak_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class ReservationEntry:
    """The present amounts of a reservation, and the recommended ones."""

    current: AmountsEntry
    recommended: Reservation | None


@dataclass(frozen=True, kw_only=True)
class ReservationsReport:
    """The recommended reservations."""

    slices: tuple[SliceEntry, ...]
    reservations: dict[str, ReservationEntry]
    providers: dict[str, Reservation]


def _report(
    usage: Sequence[SliceUsage], reservations: _Rows, providers: Mapping[str, Reservation]
) -> ReservationsReport:
    return ReservationsReport(
        slices=tuple(
            SliceEntry(
                unit=each.unit,
                history_sec=each.age_sec,
                samples=each.samples,
                cpu_p99_milli=each.used.cpu_milli,
                cpu_peak_milli=each.used.cpu_peak_milli,
                memory_p99_bytes=each.used.memory_bytes,
                memory_peak_bytes=each.used.memory_peak_bytes,
            )
            for each in usage
        ),
        reservations={
            name: ReservationEntry(current=amounts_entry(current), recommended=recommended)
            for name, current, recommended in reservations
        },
        providers=dict(providers),
    )


def _used(usage: SliceUsage) -> tuple[str, ...]:
    used = usage.used
    return (
        usage.unit,
        format_age(usage.age_sec) if usage.samples else "-",
        *(
            "-" if each is None else format_milli(each)
            for each in (used.cpu_milli, used.cpu_peak_milli)
        ),
        *(
            "-" if each is None else human_bytes(each)
            for each in (used.memory_bytes, used.memory_peak_bytes)
        ),
    )


def _stated(amounts: Amounts) -> tuple[str, ...]:
    return tuple(
        human_amounts(name, amounts[name])[0] if name in amounts else "-" for name in (CPU, MEMORY)
    )


def _reservation(found: Reservation | None) -> tuple[str, str]:
    if found is None:
        return "-", "-"
    return format_milli(found.cpu_milli), human_bytes(found.memory_bytes)
