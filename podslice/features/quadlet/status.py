"""What `podslice status` shows of containers: the state of jobs, and why containers do not run.

The state of Jobs and CronJobs is that of their marks, services and timers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from podslice.errors import printable
from podslice.features.quadlet.files import VolumeData, installed, may_have_quadlets
from podslice.kernel.programs import NoAnswerError
from podslice.model.config import Containers
from podslice.model.naming import JOB_PREFIX, data_directory, podman_pod, podman_service
from podslice.model.node_state import ContainerFailure, JobState
from podslice.reconcile.assess import Assessment
from podslice.reconcile.world import LiveWorld
from podslice.store.files import ValueFile
from podslice.systemd.journal import reading_command
from podslice.usage.health import RESTARTS_MIN, HealthKind, HealthProblem, pod_problem
from podslice.usage.runtimes import run
from podslice.usage.unit_status import ACTIVATING, FAILED

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


class ContainerFailures:
    """The record of why containers that the agent keeps do not run; without a reason, no file exists."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of the store."""
        kind = dict[str, tuple[ContainerFailure, ...]]
        self._file = ValueFile(root / "container-failures.json", kind)

    def save(self, failures: Sequence[ContainerFailure]) -> None:
        """Replace the record; without any failure, remove it.

        Raises:
            HostError: it can't be written.
        """
        self._file.save({"failures": tuple(failures)} if failures else None)

    def load(self) -> tuple[ContainerFailure, ...]:
        """Return the failures; none where the record is damaged."""
        return (self._file.read() or {}).get("failures", ())


async def find_health(world: LiveWorld, assessment: Assessment) -> Mapping[str, object]:
    """Return why containers do not run that an agent keeps, and pods that systemd restarts."""
    return {
        "containers": await _find_failures(world, assessment),
        "restarting": await _find_restarting_pods(world, assessment),
    }


async def _find_failures(world: LiveWorld, assessment: Assessment) -> tuple[ContainerFailure, ...]:
    """Return the recorded failures, without the failures of services that are active."""
    if assessment.agent is None or world.config.containers is not Containers.QUADLET:
        return ()
    failures = ContainerFailures(world.store.root).load()
    listed = await world.client.list_units([each.unit for each in failures if each.unit])
    active = {each.name for each in listed if each.active_state == "active"}
    return tuple(each for each in failures if each.unit not in active)


async def _find_restarting_pods(
    world: LiveWorld, assessment: Assessment
) -> tuple[HealthProblem, ...]:
    """Return the problems of pods whose services systemd starts again and again."""
    if not may_have_quadlets(world.manager):
        return ()
    services = {podman_service(pod.key): pod.key for pod in assessment.current}
    return tuple(
        pod_problem(
            HealthKind.POD_RESTARTING,
            services[each.name],
            f"podman cannot keep it active: {each.restarts} restarts",
            f"to see why: {reading_command(each.name, world.manager)}",
        )
        for each in await world.client.observe(sorted(services))
        if each.active_state == ACTIVATING and each.restarts >= RESTARTS_MIN
    )
