"""`podslice node recommend`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from podslice.cli import configuration, host
from podslice.cli.arguments import DONE, FAILED, Output
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.recorded_usage import recorded_files, see_agent
from podslice.cli.views import documents, reservation_lines
from podslice.cli.views.problem_lines import problem_line
from podslice.errors import HostError, Problem, invalid
from podslice.model.naming import (
    USER_SLICE,
    kube_reserved_slice,
    system_reserved_slice,
)
from podslice.model.usage_history import PodHistory
from podslice.policy.providers import by_provider
from podslice.policy.reservation_recommendation import slice_usage

if TYPE_CHECKING:
    from podslice.model.config import Config
    from podslice.model.unit import UnitName
    from podslice.policy.reservation_recommendation import SliceUsage

_PODS = 30
"""The number of pods that providers reserve for, as in `node init`."""


@planning_options
def recommend(planning: Planning, output: Output = OutputFormat.TABLE) -> int:
    """Recommend reservations from recorded usage.

    The agent records it. Nothing is changed. The formulas of providers are shown beside it.
    """
    if planning.manager.is_user:
        raise invalid("a user manager has no reserved slices", "omit --user")
    planning = configuration.tolerate(planning)
    kube, system = _units_of(planning.config)
    capacity = {**host.load_node(planning.config).capacity, **planning.config.capacity}
    usage = _read(planning, [*kube, *system])
    found = reservation_lines.Reservations(
        usage=tuple(usage),
        kube=tuple(each for each in usage if each.unit in kube),
        system=tuple(each for each in usage if each.unit in system),
        config=planning.config,
        providers=by_provider(capacity, _PODS),
    )
    emit(
        output,
        document=lambda: documents.document(**reservation_lines.document(found)),
        lines=lambda display: reservation_lines.lines(found, display),
        names=lambda: [each.unit for each in usage],
    )
    return DONE if any(each.samples for each in usage) else FAILED


def _units_of(config: Config) -> tuple[list[UnitName], list[UnitName]]:
    """Return the slices of kube-reserved and of system-reserved."""
    return (
        [kube_reserved_slice(config.kube_reserved_cgroup)],
        [system_reserved_slice(config.system_reserved_cgroup), USER_SLICE],
    )


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
