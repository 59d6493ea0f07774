"""Measure a play on many hosts: namespaces of this machine, which are reached with ssh.

    python -m tests.fleet.large [HOSTS]

Prints for each play the time, the processor time of Ansible and ssh, and that of the hosts, which
includes their sshd, sudo and the module; each for one host. Everything shares the processors of this
machine, so the first of them is an upper bound.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.fleet.controller import Controller, install_collection
from tests.fleet.hosts import SUITE, Keys, boot
from tests.packaging.builds import Packages

HOSTS, FORKS = 50, 25
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "64Mi"}}}]},
}
COMMAND = {"ansible.builtin.command": "true"}
PODS = {"podslice.host.pods": {"definition": POD}}
# the first one opens the connections, which the others use again
PLAYS = (
    ("connect", {"ansible.builtin.raw": "true"}),
    ("command: true", COMMAND),
    ("command: true, again", COMMAND),
    ("pods, first run", PODS),
    ("pods, second run", PODS),
    ("pods, third run", PODS),
)
# on cgroup v2 in microseconds, on v1 in nanoseconds
CPU_TIME = """
if [ -e /sys/fs/cgroup/cpu.stat ]; then
  sed -n 's/^usage_usec //p' /sys/fs/cgroup/cpu.stat
else
  echo $(($(cat /sys/fs/cgroup/cpuacct/cpuacct.usage) / 1000))
fi
"""


def main():
    """Boot the hosts, run the plays, and print their times."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else HOSTS
    with tempfile.TemporaryDirectory(prefix="podslice-fleet.") as name:
        directory = Path(name)
        keys = Keys(directory)
        deb = Packages().get(SUITE).package
        before = available_mib()
        with boot([f"host{number}" for number in range(count)], keys, deb) as hosts:
            used = before - available_mib()
            write(f"{count} hosts, forks {FORKS}: {used} MiB of memory, {used / count:.1f} each")
            controller = Controller(directory, install_collection(directory), keys)
            controller.take_example()
            controller.inventory({"web": {name: {} for name in hosts}})
            shutil.rmtree(directory / "group_vars")
            measure(controller, hosts)


def measure(controller, hosts):
    """Run each play on all hosts."""
    write(f"{'play':22} {'time':>8} {'Ansible':>8} {'host':>8}   of one host")
    for label, task in PLAYS:
        start, own, remote = time.monotonic(), own_sec(), remote_sec(hosts)
        play = {"hosts": "all", "become": True, "gather_facts": False, "tasks": [task]}
        ran = controller.play([play], f"--forks={FORKS}")
        if ran.code:
            raise SystemExit(ran.output)
        times = (time.monotonic() - start, own_sec() - own, remote_sec(hosts) - remote)
        each = " ".join(f"{1000 * sec / len(hosts):5.0f} ms" for sec in times)
        write(f"{label:22} {each}   {sum(bool(n) for n in ran.changed().values())} changed")


def own_sec():
    """Return the processor time of Ansible so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def remote_sec(hosts):
    """Return the processor time of all hosts so far."""
    return sum(int(host.sh(CPU_TIME)) for host in hosts.values()) / 1e6


def available_mib():
    """Return the memory that this machine has left."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable"))


def write(line):
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
