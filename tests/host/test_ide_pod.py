"""The pod of "Pod-Level Resource Limits", Story 1, as four real processes in one budget."""

import re
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest

from tests.host.scenario import ROOT, apply, explained, kernel

# A machine with 2 CPUs and 1 GiB is too small: an eighth of its memory, a quarter of its CPUs.
MEMORY = re.compile(r"\b(\d+)M\b")
CPU = {"4": "1", "2": "500m", "1": "250m", "0.5": "125m"}

MB = 10**6
POD_LIMIT, IDE_LIMIT = 128 * MB, 32 * MB
POD_CPUS, IDE_CPUS = 1, 0.25
WINDOW_SEC, WINDOWS = 10, 6

# executes one line after the other, and reports when it is done
WORKER = 'exec 0<>"/tmp/ide-$0"; while read -r line; do eval "$line"; : >"/tmp/ide-$0.out"; done'
BURN = "while :; do :; done & burner=$!"
REST = "kill $burner; wait"


def scaled(manifest):
    """Return the example, on the scale of the machine."""
    smaller = MEMORY.sub(lambda found: f"{int(found[1]) // 8}M", manifest)
    return re.sub(r'cpu: "(.*)"', lambda found: f'cpu: "{CPU[found[1]]}"', smaller)


def eat(name, megabytes):
    """Return a line that allocates memory until its output is read."""
    return f"exec dd if=/dev/zero bs={megabytes}MB count=1 1<>/tmp/ide-{name}.out"


class Pods:
    """The IDE and its neighbour, and the processes that `podslice run` became."""

    def __init__(self, machine, executor):
        self.machine = machine
        self.executor = executor
        machine.put("/tmp/ide.yaml", scaled((ROOT / "examples/seeds/ide.yaml").read_text()))
        apply(machine, "-f", "/tmp/ide.yaml")
        self.made = explained(machine, "-f", "/tmp/ide.yaml")
        self.groups = {name: pod["control_group"] for name, pod in self.made.items()}
        self.running = {}

    def run(self, pod, *names):
        """Start a worker in each of these containers."""
        for each in self.made[pod]["containers"]:
            if (name := each["name"]) in names:
                self.groups[name] = f"{self.groups[pod]}/{each['scope']}"
                self.machine.run("mkfifo", f"/tmp/ide-{name}", f"/tmp/ide-{name}.out")
                command = ("run", pod, "-c", name, "--", "sh", "-c", WORKER, name)
                future = self.executor.submit(self.machine.podslice, *command, check=False)
                self.running[name] = future

    def send(self, line, *names):
        """Send a line to workers; wait until they have executed it."""
        script = 'line=$1; shift; for name; do echo "$line" >"$name"; : <"$name.out"; done'
        self.machine.run("sh", "-c", script, "send", line, *(f"/tmp/ide-{name}" for name in names))

    def end(self, name, line):
        """Send a worker its last line."""
        self.machine.run("sh", "-c", f'echo "$1" >/tmp/ide-{name}', "end", line)

    def await_eaten(self, name):
        """Wait until a worker has allocated its memory."""
        self.machine.run("head", "-c", "1", f"/tmp/ide-{name}.out")

    def seconds(self, *groups):
        """Return the uptime and the CPU time of these groups, read by one process."""
        files = [f"/sys/fs/cgroup{group}/cpu.stat" for group in groups]
        text = self.machine.run("cat", "/proc/uptime", *files).stdout
        usage = re.findall(r"^usage_usec (\d+)$", text, re.MULTILINE)
        return [float(text.split()[0]), *(int(usec) / 1e6 for usec in usage)]

    def averages(self, *groups):
        """Yield the CPUs that these groups used on average, over longer and longer windows."""
        first = self.seconds(*groups)
        for _ in range(WINDOWS):
            time.sleep(WINDOW_SEC)
            elapsed, *spent = (
                after - before for before, after in zip(first, self.seconds(*groups), strict=True)
            )
            yield [seconds / elapsed for seconds in spent]

    def events(self, group, file="memory.events"):
        lines = kernel(self.machine, group, file).splitlines()
        return {name: int(count) for name, count in map(str.split, lines)}


@pytest.mark.cgroup2
def test_four_processes_share_the_budget_of_the_ide(clean_vm):
    with ThreadPoolExecutor(5) as executor:
        pods = Pods(clean_vm, executor)
        try:
            share_the_budget(pods)
        finally:
            clean_vm.run("systemctl", "kill", "--signal=KILL", "kubepods.slice")
            clean_vm.run("sh", "-c", "rm /tmp/ide*")


def share_the_cpus(pods, pod, *, ide, **others):
    """All four compute."""
    # The kernel takes what a group used beyond its quota, because a tick was late, from the next
    # periods: the average of a short window can exceed the limit, that of a long one cannot.
    for average in pods.averages(pod, ide, *others.values()):
        whole, one, *rest = average
        if whole <= POD_CPUS * 1.03 and one <= IDE_CPUS * 1.03:
            break
    else:
        pytest.fail(f"the pod used {whole} CPUs, the IDE {one}")
    assert whole > POD_CPUS * 0.5
    assert sum(rest) > whole / 2
    assert min(rest) > 0.05


def share_the_budget(pods):
    four = ("shell", "tool1", "tool2", "ide")
    pods.run("myide", *four)
    pods.run("nginx", "proxy")
    pod, neighbour = pods.groups["myide"], pods.groups["nginx"]
    scopes = {name: pods.groups[name] for name in four}
    pods.send(":", *four, "proxy")  # all of them are running
    pods.send(BURN, *four)
    assert kernel(pods.machine, pod, "cpu.max") == "100000 100000"
    assert kernel(pods.machine, scopes["ide"], "cpu.max") == "25000 100000"
    for name, group in scopes.items():
        assert (
            len(kernel(pods.machine, group, "cgroup.procs").split()) == 2
        )  # the worker and its loop
        if name != "ide":
            assert kernel(pods.machine, group, "cpu.max").startswith("max")
            assert kernel(pods.machine, group, "memory.max") == "max"

    share_the_cpus(pods, pod, **scopes)
    pods.send(REST, *four)

    # the one with a limit is limited, with room left in the pod
    pods.end("ide", eat("ide", 64))
    assert pods.running["ide"].result().exit_code == 137
    # not oom_kill, which counts a member of the group twice unless it has ended in between
    assert pods.events(pod)["oom_group_kill"] == 1
    assert pods.events(pod, "memory.events.local")["oom"] == 0
    assert int(kernel(pods.machine, pod, "memory.peak")) < POD_LIMIT

    # the others have more than that, and what the pod's limit leaves
    pods.end("tool1", eat("tool1", 70))
    pods.await_eaten("tool1")
    assert int(kernel(pods.machine, scopes["tool1"], "memory.current")) > 2 * IDE_LIMIT
    pods.end("tool2", eat("tool2", 100))
    ended, _ = wait(
        [pods.running[name] for name in ("tool1", "tool2")], return_when=FIRST_COMPLETED
    )
    assert {future.result().exit_code for future in ended} == {137}
    assert pods.events(pod, "memory.events.local")["oom"] >= 1
    assert pods.events(pod)["oom_group_kill"] >= 2
    assert int(kernel(pods.machine, pod, "memory.peak")) <= POD_LIMIT

    # and no other container is affected
    assert not pods.running["shell"].done()
    assert not pods.running["proxy"].done()
    assert pods.events(neighbour)["oom_kill"] == 0
    assert pods.events("/kubepods.slice", "memory.events.local")["oom"] == 0
    pods.end("proxy", "exit 7")
    assert pods.running["proxy"].result().exit_code == 7
