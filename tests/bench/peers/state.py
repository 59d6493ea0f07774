"""The state of the pods' slices in systemd and the kernel; prints one JSON object.

    state.py [PROPERTY]...

`units` are the properties of all slices by name, `files` those that systemd has written for them,
and `groups` the limits in the kernel, by control group. None of the compared clients is used.
"""

import json
import subprocess
import sys
from pathlib import Path

PATTERN = "kubepods*"
CGROUPS = Path("/sys/fs/cgroup")
WRITTEN = (Path("/run/systemd/transient"), Path("/run/systemd/system.control"))
LIMITS = (
    # version 1
    "cpu.shares",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "memory.limit_in_bytes",
    "memory.soft_limit_in_bytes",
    # both
    "pids.max",
    # version 2
    "cpu.weight",
    "cpu.max",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
)


def main(properties: list[str]) -> None:
    """Read and print."""
    found = {"units": units(properties), "files": files(), "groups": groups()}
    sys.stdout.write(json.dumps(found))


def units(properties: list[str]) -> dict[str, dict[str, str]]:
    """Return the properties of every unit, from systemctl."""
    named = ",".join(("Id", *properties))
    argv = ("systemctl", "show", "--all", f"--property={named}", PATTERN)
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    blocks = (block.splitlines() for block in shown.split("\n\n") if block.strip())
    found = (dict(line.split("=", 1) for line in block) for block in blocks)
    return {unit.pop("Id"): unit for unit in found}


def files() -> dict[str, str]:
    """Return unit files and drop-ins."""
    return {
        str(path): path.read_text()
        for directory in WRITTEN
        for top in directory.glob(PATTERN)
        for path in ([top] if top.is_file() else sorted(top.iterdir()))
    }


def groups() -> dict[str, dict[str, str]]:
    """Return the limits of every control group."""
    hierarchies = [CGROUPS, *(path for path in CGROUPS.iterdir() if path.is_dir())]
    tops = (top for hierarchy in hierarchies for top in hierarchy.glob(PATTERN))
    found = {}
    for top in tops:
        for group in (top, *(path for path in top.rglob("*") if path.is_dir())):
            present = (group / name for name in LIMITS)
            found[str(group)] = {
                path.name: path.read_text().strip() for path in present if path.exists()
            }
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
