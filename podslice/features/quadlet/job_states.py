"""The state of Jobs and CronJobs for `podslice status`: from their marks, services and timers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from podslice.errors import printable
from podslice.features.quadlet.files import VolumeData, installed
from podslice.kernel.programs import NoAnswerError
from podslice.model.naming import JOB_PREFIX, data_directory, podman_pod
from podslice.model.node_state import JobState
from podslice.reconcile.assess import Assessment
from podslice.reconcile.world import LiveWorld
from podslice.usage.runtimes import run
from podslice.usage.unit_status import FAILED

_SHOWN = "Id,ActiveState,ExecMainStartTimestamp,NextElapseUSecRealtime"
_USEC = 1_000_000
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?= UTC)", re.ASCII)
_MARK = re.compile(rb"([^\n]*)\n(\d{1,12})\n", re.ASCII)
"""The result of a job, and its time."""


async def find_jobs(world: LiveWorld, assessment: Assessment) -> tuple[JobState, ...]:
    """Return the jobs among the applied pods."""
    directories = installed(world.manager)
    keys = {f"{JOB_PREFIX}{podman_pod(pod.key)}": pod.key for pod in assessment.current}
    paths = [each for each in directories.units.glob(f"{JOB_PREFIX}*") if each.stem in keys]
    if not paths:
        return ()
    try:
        command = ("env", "TZ=UTC", "systemctl", *world.manager.options, "show")
        text = await run(*command, f"--property={_SHOWN}", *(each.name for each in paths))
    except NoAnswerError as error:
        world.on_note(f"the states of jobs are not known: systemctl: {error}")
        text = ""
    units = {each.get("Id", ""): each for each in map(_read_block, text.split("\n\n"))}
    return tuple(
        _state_of(keys[each.stem], each, units, directories.data)
        for each in sorted(paths)
        if each.suffix == ".service"
    )


def _read_block(text: str) -> dict[str, str]:
    return {key: value for key, _, value in (line.partition("=") for line in text.split("\n"))}


def _state_of(
    key: str, path: Path, units: Mapping[str, Mapping[str, str]], data: VolumeData
) -> JobState:
    service, timer = (units.get(f"{path.stem}{each}", {}) for each in (".service", ".timer"))
    begin = f"{data_directory(key)}/job_"
    marks = (text for name, text in data.read(key).files.items() if name.startswith(begin))
    mark = _MARK.fullmatch(next(marks, b""))
    result = printable(mark[1].decode(errors="replace")) if mark else ""
    links = path.parent.glob(f"*.wants/{path.stem}.*")
    state = result or ("waiting" if any(links) else "suspended")
    if service.get("ActiveState") == FAILED:
        state = result or FAILED
    elif service.get("ActiveState", "inactive") != "inactive":
        state = "running"
    return JobState(
        pod=key,
        state=state,
        # not the timer's last trigger, which is its first start before it has elapsed
        started_usec=_read_time(service.get("ExecMainStartTimestamp", "")),
        ended_usec=int(mark[2]) * _USEC if mark else None,
        next_usec=_read_time(timer.get("NextElapseUSecRealtime", "")),
    )


def _read_time(text: str) -> int | None:
    """Return a time that is stated as `Fri 2025-11-28 12:00:00 UTC`; None for another text."""
    found = _TIME.search(text)
    return int(datetime.fromisoformat(f"{found[0]}+00:00").timestamp()) * _USEC if found else None
