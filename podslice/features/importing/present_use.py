"""The present use of a running unit or process, from which a new pod's amounts are proposed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from podslice.features.importing.present_settings import PresentUse
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.proc import descendants, process_name, read_process, read_process_use
from podslice.kernel.text import read_value, split_words
from podslice.model.unit import ObservedUnit

_TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")


def unit_use(
    unit: ObservedUnit, *, cgroups: CgroupFs | None = None, root: Path = Path("/")
) -> PresentUse | None:
    """Return what a unit uses, by its control group; None if it has no processes."""
    name = unit.name.rpartition(".")[0]
    return group_use(unit.control_group, name, unit.name, cgroups=cgroups, root=root)


def group_use(
    control_group: str,
    name: str,
    what: str,
    *,
    cgroups: CgroupFs | None = None,
    root: Path = Path("/"),
) -> PresentUse | None:
    """Return what a control group and those below use; None if it has no processes."""
    cgroups = cgroups or CgroupFs()
    groups = cgroups.processes(control_group) if control_group else {}
    pids = (pid for group in groups.values() for pid in group)
    started = [found.started_ticks for pid in pids if (found := read_process(pid, root))]
    if not started:
        return None
    sample = cgroups.sample(control_group)
    return PresentUse(
        name=name,
        what=what,
        age_sec=_age_sec(started, root),
        cpu_usec=sample.cpu_usec,
        memory_bytes=sample.working_set_bytes,
        peak_bytes=cgroups.peak_bytes(control_group),
        tasks=sample.tasks,
    )


def process_use(pid: int, root: Path = Path("/")) -> PresentUse | None:
    """Return what a process and those below it use together; None if there is no such program.

    Pages that several of them share are counted for each.
    """
    found = {each: read_process_use(each, root) for each in descendants(pid, root)}
    uses = [use for use in found.values() if use is not None]
    if found[pid] is None:
        return None
    name = process_name(pid, root)
    children = len(uses) - 1
    below = f" and {children} descendant{'s' if children > 1 else ''}" if children else ""
    return PresentUse(
        name=name,
        what=f"process {pid} ({name}){below}",
        age_sec=_age_sec((use.started_ticks for use in uses), root),
        cpu_usec=sum(use.cpu_ticks for use in uses) * 1_000_000 // _TICKS_PER_SEC,
        memory_bytes=sum(use.memory_bytes for use in uses),
        peak_bytes=sum(use.peak_bytes for use in uses),
        tasks=sum(use.threads for use in uses),
    )


def _age_sec(started_ticks: Iterable[int], root: Path) -> int:
    """Return the seconds since the oldest process started, at least 1."""
    uptime = int(split_words(read_value(root / "proc/uptime"))[0].partition(".")[0])
    return max(uptime - min(started_ticks) // _TICKS_PER_SEC, 1)
