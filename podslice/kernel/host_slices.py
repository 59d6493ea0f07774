"""The slices of a service manager beside those of pods, as the kernel has them."""

from __future__ import annotations

from pathlib import Path

from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.text import read_value_or_empty
from podslice.model.cpu_group import DEFAULT_WEIGHT, CpuGroup
from podslice.model.cpu_list import parse_cpus
from podslice.model.manager import Manager
from podslice.model.unit import is_unit_name

_USUAL = (CpuGroup(name="system.slice"), CpuGroup(name="user.slice"))


def usual_slices(manager: Manager) -> tuple[CpuGroup, ...]:
    """Return the slices of every system manager; of a user's manager there are none.

    Source: systemd.special(7), system.slice, user.slice.
    """
    return () if manager.is_user else _USUAL


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
