"""Processes of a test: started outside of every pod, and observed in /proc."""

import json

# seconds that each sleeps; they outlive the shell
_START = 'for seconds; do sleep "$seconds" </dev/null >/dev/null 2>&1 & echo $!; done'

# id → the unit that systemd reports, and its oom_score_adj, of running processes
_LOOK = """
import json, sys
from pathlib import Path
found = {}
# in a namespace with cgroup v2, a process also has the groups of the host's other hierarchies
is_unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
for pid in sys.argv[1:]:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        score = int(Path(f"/proc/{pid}/oom_score_adj").read_text())
    except OSError:
        continue
    groups = dict(line.split(":", 2)[1:] for line in lines)
    found[pid] = groups["" if is_unified else "name=systemd"], score
print(json.dumps(found))
"""

_AWAIT_END = """
import os, select, sys
for pid in sys.argv[1:]:
    try:
        handle = os.pidfd_open(int(pid))
    except ProcessLookupError:
        continue
    select.select([handle], [], [])
    os.close(handle)
    while os.path.exists(f"/proc/{pid}"):  # until its parent has taken notice
        os.sched_yield()
"""


def start(machine, *seconds):
    """Start processes that run for a number of seconds; return their ids."""
    out = machine.run("sh", "-c", _START, "sh", *map(str, seconds)).stdout
    return [int(line) for line in out.split()]


def look(machine, pids):
    """Return the units of running processes, and their oom_score_adj."""
    out = machine.run("python3", "-c", _LOOK, *map(str, pids)).stdout
    return {int(pid): tuple(seen) for pid, seen in json.loads(out).items()}


def await_end(machine, pids):
    """Wait until processes have ended."""
    machine.run("python3", "-c", _AWAIT_END, *map(str, pids))


def end(machine, pids):
    """Kill processes."""
    machine.run("sh", "-c", 'kill -9 "$@" 2>/dev/null; true', "sh", *map(str, pids))
