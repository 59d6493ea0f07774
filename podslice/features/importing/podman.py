"""Containers of podman with their settings of resources, as `podman inspect` prints them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from podslice.cli import coroutines
from podslice.errors import FORMAT_ERRORS, HostError, InputError, Problem, printable
from podslice.features.importing.policy import PresentSetting, PresentSettings, SettingKind
from podslice.features.importing.reading import ImportSource, Mover, group_use
from podslice.kernel.programs import NoAnswerError
from podslice.model.naming import POD_LABEL
from podslice.model.properties import QUOTA_PERIOD_USEC
from podslice.model.unit import Manager, UnitName
from podslice.usage.runtimes import RunCommand, run_patiently

_OF_MEMBER = "It is in a podman pod, whose own options are not included: see podman pod inspect"
_INSPECT = ("podman", "inspect", "--type=container", "--format=json", "--")
_SCORE_MAX = 1000
"""Source: proc_pid_oom_score_adj(5)."""
_UNIT_LABEL = "PODMAN_SYSTEMD_UNIT"
"""Source: podman 5.4, pkg/systemd/define/const.go, EnvVariable."""

_FURTHER: Mapping[str, tuple[str, tuple[object, ...]]] = {
    "BlkioWeight": ("--blkio-weight", (0,)),
    "CpuRealtimePeriod": ("--cpu-rt-period", (0,)),
    "CpuRealtimeRuntime": ("--cpu-rt-runtime", (0,)),
    "CpusetCpus": ("--cpuset-cpus", ("",)),
    "CpusetMems": ("--cpuset-mems", ("",)),
    # unlimited is 0, and what the options for a pod state
    "MemorySwap": ("--memory-swap", (0, -1)),
    # -1 where another setting of memory is set
    "MemorySwappiness": ("--memory-swappiness", (0, -1)),
    "OomKillDisable": ("--oom-kill-disable", (False,)),
    # 2048 is the default of containers.conf(5); 0 is unlimited, as -1
    "PidsLimit": ("--pids-limit", (2048,)),
}
"""Key of the host's configuration → option of `podman run`, and the values that mean unset."""
_FURTHER_LISTS: Mapping[str, str] = {
    "BlkioWeightDevice": "--blkio-weight-device",
    "BlkioDeviceReadBps": "--device-read-bps",
    "BlkioDeviceReadIOps": "--device-read-iops",
    "BlkioDeviceWriteBps": "--device-write-bps",
    "BlkioDeviceWriteIOps": "--device-write-iops",
}
_KIND_OF_FILE = {
    "cpu.weight": SettingKind.CPU_WEIGHT,
    "memory.low": SettingKind.MEMORY_LOW,
    "memory.max": SettingKind.MEMORY_MAX,
    "memory.min": SettingKind.MEMORY_MIN,
}
"""File of `--cgroup-conf`, which overrides the option for the same."""


class PodmanContainer(NamedTuple):
    """One container."""

    name: str
    settings: PresentSettings
    oom_score_adj: int | None
    """None where it states none."""
    control_group: str
    """Empty if it has no processes, or is in the control group of the command that started it."""
    unit: str
    """The service that started it; empty if none did."""
    pod_key: str
    """The pod that its label names; empty if it has none."""
    is_infra: bool
    """Whether it only keeps the namespaces of a podman pod."""
    is_member: bool
    """Whether it is in a podman pod, which may have further limits."""


def import_containers(
    names: Sequence[str], root: UnitName, manager: Manager
) -> tuple[ImportSource, ...]:
    """Return the containers of root's podman, or with a user manager of the user's podman.

    `root` is the slice of pods.

    Raises:
        HostError: podman is of another user, not installed, or fails.
        InputError: a container cannot be imported.
    """
    if manager.is_user != bool(os.geteuid()):
        who = "as that user, not as root" if manager.is_user else "as root, or add --user"
        raise HostError(f"podman has containers for each user: run podslice {who}")
    if shutil.which("podman") is None:
        raise HostError("podman is not installed, or not in PATH")
    found = coroutines.run(inspect_podman(names, root))
    return tuple(map(_container_source, found))


def _container_source(container: PodmanContainer) -> ImportSource:
    what, group = f"podman container {container.name}", container.control_group
    # quadlets have --cgroups=split; if it does not run, it is most probably one of them
    is_split = bool(container.unit) and (not group or f"/{container.unit}/" in group)
    return ImportSource(
        name=container.name,
        what=what,
        settings=container.settings,
        oom_score_adj=container.oom_score_adj,
        use=group_use(group, container.name, what),
        mover=Mover.QUADLET if is_split else Mover.PODMAN,
        unit=container.unit,
        caveat=_OF_MEMBER if container.is_member else "",
    )


async def inspect_podman(
    names: Sequence[str], root: UnitName, *, run_command: RunCommand = run_patiently
) -> tuple[PodmanContainer, ...]:
    """Return containers by name or id; `root` is the slice of pods.

    Raises:
        HostError: podman is not installed, fails, or its output has an unknown format.
        InputError: a container only keeps namespaces, or is in a pod already.
    """
    try:
        found = parse_inspect(await run_command(*_INSPECT, *names))
    except NoAnswerError as error:
        reason = str(error).removeprefix("Error: ")
        raise HostError(f"podman inspect: {reason}") from error
    except FORMAT_ERRORS as error:
        raise HostError("podman inspect: its output has an unknown format") from error
    problems = []
    for each in found:
        if each.is_infra:
            message = (
                "it only keeps the namespaces of a podman pod; name the pod's other containers"
            )
        elif each.pod_key:
            message = f"it is in pod {each.pod_key} already"
        elif root in each.control_group.split("/"):
            message = "it is in a pod already"
        else:
            continue
        problems.append(Problem(where=each.name, message=message))
    if problems:
        raise InputError(problems)
    return found


def parse_inspect(text: str) -> tuple[PodmanContainer, ...]:
    """Return the containers of the JSON document of `podman inspect`.

    Raises:
        one of FORMAT_ERRORS: it has another form.
    """
    return tuple(_container(entry) for entry in json.loads(text))


def _container(entry: Mapping[str, Any]) -> PodmanContainer:
    state, labels = entry["State"], entry["Config"].get("Labels") or {}
    return PodmanContainer(
        name=printable(str(entry["Name"]).removeprefix("/")),
        settings=_settings(entry["HostConfig"]),
        oom_score_adj=_score(entry["HostConfig"].get("OomScoreAdj")),
        control_group=str(state.get("CgroupPath") or ""),
        unit=printable(str(labels.get(_UNIT_LABEL, ""))),
        pod_key=printable(str(labels.get(POD_LABEL, ""))),
        is_infra=bool(entry.get("IsInfra")),
        is_member=bool(entry.get("Pod")),
    )


def _settings(host: Mapping[str, Any]) -> PresentSettings:
    taken = dict(_taken(host))
    further = [*_further(host)]
    for file, text in sorted((host.get("CgroupConf") or {}).items()):
        option = f"--cgroup-conf={printable(f'{file}={text}')}"
        kind = _KIND_OF_FILE.get(file)
        if kind and text.isdecimal() and (value := _whole(int(text))):
            taken[kind] = PresentSetting(value=value, text=option)
        else:
            further.append(option)
    return PresentSettings(taken=taken, further=tuple(further))


def _taken(host: Mapping[str, Any]) -> Iterator[tuple[SettingKind, PresentSetting]]:
    """Yield the settings that manifests have."""
    options = {
        SettingKind.CPU_SHARES: ("CpuShares", "--cpu-shares"),
        SettingKind.MEMORY_MAX: ("Memory", "--memory"),
        SettingKind.MEMORY_LOW: ("MemoryReservation", "--memory-reservation"),
    }
    for kind, (key, option) in options.items():
        value = _whole(host.get(key))
        if value > 0:
            yield kind, PresentSetting(value=value, text=f"{option}={value}")
    quota, period = _whole(host.get("CpuQuota")), _whole(host.get("CpuPeriod"))
    # with --cpus a quota and a period are reported, too
    nano = _whole(host.get("NanoCpus"))
    if nano > 0:
        text = f"--cpus={nano / 10**9:g}"
        yield SettingKind.CPU_QUOTA, PresentSetting(value=nano // 1000, text=text)
    elif quota > 0:
        # systemd's property is the quota of a second
        usec = quota * 1_000_000 // (period or QUOTA_PERIOD_USEC)
        text = f"--cpu-quota={quota}" + (f" --cpu-period={period}" if period else "")
        yield SettingKind.CPU_QUOTA, PresentSetting(value=usec, text=text)


def _further(host: Mapping[str, Any]) -> Iterator[str]:
    """Yield options that are set and have no field in a manifest."""
    for key, (option, unset) in _FURTHER.items():
        value = host.get(key)
        if value is not None and value not in unset and not _is_chosen_by_podman(key, host):
            yield f"{option}={printable(str(value))}"
    yield from (option for key, option in _FURTHER_LISTS.items() if host.get(key))


def _is_chosen_by_podman(key: str, host: Mapping[str, Any]) -> bool:
    """Return whether an option was not stated, although it differs from the default."""
    if key == "MemorySwap":  # as much as memory
        return bool(host[key] == 2 * _whole(host.get("Memory")))
    return key == "PidsLimit" and host.get("Cgroups") == "disabled"


def _score(value: Any) -> int | None:  # noqa: ANN401 (JSON)
    if value is not None and (not isinstance(value, int) or abs(value) > _SCORE_MAX):
        raise ValueError(value)
    return value


def _whole(value: Any) -> int:  # noqa: ANN401 (JSON)
    """Return a number of podman's, which is an integer of 64 bits; 0 for a key that is missing."""
    if value is None:
        return 0
    if not isinstance(value, int) or not -(2**63) <= value < 2**64:
        raise ValueError(value)
    return value
