"""`run` and `phase` on a real systemd: terminals, ends, services, the init phase."""

import json
import signal

import pytest

from tests.host import users
from tests.host.scenario import BIG, apply, explained, kernel, show
from tests.lab import fixtures

MIB = 2**20
LIMIT = 24 * MIB
SHOP = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: shop, uid: shop}}
spec:
  resources: {{limits: {{memory: {LIMIT}}}}}
  initContainers:
  - {{name: fetch, resources: {{requests: {{memory: 1Mi}}, limits: {{memory: 64Mi}}}}}}
  - {{name: build, resources: {{requests: {{memory: 1Mi}}}}}}
  - {{name: proxy, restartPolicy: Always}}
  containers:
  - {{name: app, resources: {{requests: {{cpu: 250m, memory: 8Mi}}}}}}
  - {{name: web, resources: {{limits: {{memory: 16Mi}}}}}}
"""
SLICE = "kubepods-burstable-podshop.slice"
GROUP = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}"
RUN = "python3 -m podslice run shop"
OUTSIDE = {"PYTHONPATH": "/src", "PYTHONDONTWRITEBYTECODE": "1"}

# reports when it has been continued, and exits with 3 once it has printed the new size of the window
WINDOW = """\
trap 'echo continued' CONT
trap 'stty size; kill $!; exit 3' WINCH
sleep 1000 &
echo started
while :; do wait; done
"""


def with_shop(machine):
    machine.put("/tmp/shop.yaml", SHOP)
    apply(machine, "-f", "/tmp/shop.yaml", *BIG)
    return machine


@pytest.fixture
def shop(clean_machine):
    """A machine with the pod `shop`, whose init containers have not run yet."""
    return with_shop(clean_machine)


@pytest.fixture
def fast_shop(namespace):
    """The same as a namespace; for tests in which control groups are not involved."""
    yield from map(with_shop, fixtures.keep_clean(namespace))


def at_a_terminal(machine, argv, *acts, **env):
    """Execute these acts at a terminal that runs a command; return its result, see terminal.py."""
    play = {"argv": argv, "env": {**OUTSIDE, **env}, "acts": acts}
    done = machine.run("python3", "/src/tests/host/terminal.py", input=json.dumps(play))
    return json.loads(done.stdout)


def in_a_shell(machine, *acts, **env):
    """The same in a shell with job control."""
    shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    acts = [["see", "shop> "], *acts, ["type", "exit 0\n"]]
    return at_a_terminal(machine, shell, *acts, PS1="shop> ", RUN=RUN, **env)


def exits_with(code):
    """Return the act that waits for the prompt of the shell and this exit code."""
    return [["see", "shop> "], ["type", "echo code=$?\n"], ["see", f"code={code}\n"], ["see", "> "]]


def phase(machine):
    return json.loads(machine.podslice("phase", "shop", "-o", "json").stdout)


@pytest.mark.namespace
@pytest.mark.newest
@pytest.mark.parametrize("container", ["app", "fetch"])
def test_at_a_terminal_run_is_the_command(shop, container):
    is_init = container == "fetch"
    if not is_init:
        shop.podslice("phase", "shop", "running")
    run = f"$RUN -c {container} -- sh -c"
    job_control = [
        ["type", f'{run} "$WINDOW"\n'],
        ["see", "started"],
        ["type", "\x1a"],
        ["see", "Stopped"],
        ["see", "shop> "],
        ["type", "fg\n"],
        ["see", "continued"],
        ["resize", 40, 132],
        ["see", "40 132"],
        *exits_with(3),
    ]
    interrupted = [
        ["type", f'{run} "echo beg""un; exec sleep 1000"\n'],
        ["see", "begun"],
        ["type", "\x03"],
        *exits_with(130),
    ]
    killed = [["type", f"{run} 'kill -KILL $$'\n"], *exits_with(137)]
    terminated = [["type", f"{run} 'kill -TERM $$'\n"], *exits_with(143)]
    well = [["type", f"{run} 'exit 0'\n"], *exits_with(0)]
    acts = [*job_control, *interrupted, *killed, *terminated, *well]
    in_a_shell(shop, *acts, WINDOW=WINDOW)
    assert phase(shop)["init_containers"][0] == {"name": "fetch", "done": is_init}


@pytest.mark.parametrize("container", ["proxy", "fetch"])
def test_its_parent_sees_the_signal_that_ended_it(fast_shop, container):
    run = [*RUN.split(), "-c", container, "--", "sh", "-c", "echo ready; exec sleep 1000"]
    assert at_a_terminal(fast_shop, run, ["see", "ready"], ["signal", 15])["exit_code"] == -15


# what a process has from its parent, except the control group and the score
# the masks are those of grep, which inherits them: a shell blocks signals while it forks
FACTS = """echo $$ $(cut -d' ' -f5-8,19 /proc/$$/stat) $(umask) $(ulimit -n) $PWD
for file in /proc/$$/fd/*; do readlink $file; done
grep Sig[BI] /proc/self/status; env | grep -v ^_= | sort
"""


@pytest.mark.parametrize("becomes", [True, False])
def test_in_the_foreground_only_the_control_group_and_the_score_change(fast_shop, becomes):
    """And without --exec the process ID."""
    machine = fast_shop
    how = "--exec" if becomes else ""
    script = f"""\
umask 027; ulimit -n 77; renice -n 5 $$ >/dev/null; cd /usr; exec 7</etc/passwd
echo -1000 > /proc/$$/oom_score_adj; eval "$FACTS"; echo ----
exec {RUN} {how} -c proxy -- sh -c '
eval "$FACTS"; echo ----; cat /proc/self/oom_score_adj /proc/self/cgroup'
"""
    done = machine.run("sh", "-c", script, env={**OUTSIDE, "FACTS": FACTS, "LANG": "C"})
    before, after, where = done.stdout.split("----\n")
    assert after.partition(" ")[2] == before.partition(" ")[2]
    assert (after == before) is becomes
    assert "\n/etc/passwd\n" in before
    score, *groups = where.splitlines()
    containers = explained(machine, "-f", "/tmp/shop.yaml")["shop"]["containers"]
    assert score in [str(each["oom_score_adj"]) for each in containers if each["name"] == "proxy"]
    assert any(each.endswith(f":{GROUP}/podslice-podshop-proxy.scope") for each in groups)


# uses 48 MiB for a moment, then prints the peak of its container
EAT = f"""\
head -c {48 * MIB} /dev/zero | tail -c {48 * MIB} | wc -c
cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/memory.peak
"""


@pytest.mark.cgroup2
def test_limits_of_the_pod_apply_once_its_init_containers_have_ended(shop):
    def eat(container):
        done = shop.podslice("run", "shop", "-c", container, "--", "sh", "-c", EAT)
        return [int(line) for line in done.stdout.split()]

    assert eat("fetch")[0] == 48 * MIB
    assert kernel(shop, GROUP, "memory.max") == "max"
    eaten, peak = eat("build")
    assert eaten == 48 * MIB
    assert peak > 48 * MIB - MIB
    assert kernel(shop, GROUP, "memory.max") == str(LIMIT)
    assert phase(shop)["phase"] == "running"
    done = shop.podslice("run", "shop", "-c", "app", "--", "sh", "-c", EAT, check=False)
    assert done.exit_code == 128 + signal.SIGKILL  # all processes of the container
    events = dict(map(str.split, kernel(shop, GROUP, "memory.events").splitlines()))
    assert events["oom_group_kill"] == "1"


def last_exit(machine, container, podslice=None):
    """Return the last exit of a container."""
    shown = json.loads((podslice or machine.podslice)("status", "-o", "json", check=False).stdout)
    (unit,) = [unit for unit in shown["units"] if unit.get("container") == container]
    return unit["last_exit"]


# the end is recorded before systemd unloads the service
UNTIL_UNLOADED = (
    "while [ $(systemctl {user} show -P LoadState {unit}) = loaded ]; do sleep 0.1; done"
)


def test_the_end_of_a_service_is_recorded_also_after_a_reload(fast_shop):
    """And its messages are found."""
    machine = fast_shop
    for script, stop, expected in (
        ("echo the first; exit 7", False, ("exit-code", 7, None)),
        ("exec sleep 1000", True, ("success", None, "SIGTERM")),
    ):
        run = ("run", "shop", "-c", "proxy", "--detach", "-o", "name", "--", "sh", "-c", script)
        unit = machine.podslice(*run).stdout.strip()
        if stop:
            machine.run("systemctl", "daemon-reload")
            machine.run("systemctl", "stop", unit)
        until = UNTIL_UNLOADED.format(user="", unit=unit)
        machine.run("sh", "-c", until)
        last = last_exit(machine, "proxy")
        assert (last["result"], last["exit_code"], last["signal"]) == expected
        assert last["duration_usec"] == last["ended_usec"] - last["started_usec"]
    machine.run("journalctl", "--sync")
    for container in ((), ("-c", "proxy")):
        output = machine.podslice("logs", "shop", *container, "-o", "cat").stdout.splitlines()
        assert "the first" in output
        every = machine.podslice("logs", "shop", *container, "--all", "-o", "cat").stdout
        failed = f"{unit}: Failed with result 'exit-code'."
        assert failed in every.splitlines()
        assert failed not in output
    assert "the first" not in machine.podslice("logs", "shop", "-c", "app").stdout


# as a quadlet of the container; systemd starts it twice
OWN_UNIT = f"""\
[Unit]
StartLimitBurst=2
StartLimitIntervalSec=1h
[Service]
Slice={SLICE}
Restart=on-failure
RestartSec=1ms
ExecStart=sh -c 'exit 7'
"""


def test_the_last_exit_of_a_service_with_a_unit_file_is_that_of_systemd(fast_shop):
    machine, unit = fast_shop, "podslice-podshop-proxy.service"
    machine.put(f"/run/systemd/system/{unit}", OWN_UNIT)
    machine.run("systemctl", "daemon-reload")
    try:
        machine.run("systemctl", "start", unit)
        until = f"while ! systemctl -q is-failed {unit}; do sleep 0.1; done"
        machine.run("sh", "-c", until)
        last = last_exit(machine, "proxy")
        assert (last["exit_code"], last["oom_killed"]) == (7, False)
        assert last["ended_usec"] >= last["started_usec"]
        assert "RESTARTS" in machine.podslice("status", "shop", check=False).stdout
    finally:
        machine.run("rm", f"/run/systemd/system/{unit}")
        machine.run("systemctl", "reset-failed", unit)
        machine.run("systemctl", "daemon-reload")


@pytest.mark.namespace
@pytest.mark.newest
def test_detached_it_is_a_service_with_its_output_in_the_journal(shop):
    machine = shop
    machine.podslice("phase", "shop", "running")
    machine.run("mkfifo", "/tmp/reported")
    script = (
        "echo $GREETING from $PWD; cat /proc/self/oom_score_adj; echo > /tmp/reported; sleep 1000"
    )
    run = ("run", "shop", "-c", "web", "--detach", "--env", "GREETING=a $b  c", "-o", "name")
    unit = machine.podslice(*run, "--", "sh", "-c", script).stdout.strip()
    try:
        assert unit == "podslice-podshop-web.service"
        machine.run("cat", "/tmp/reported")
        machine.run("journalctl", "--sync")
        said = machine.run("journalctl", "-o", "cat", "-u", unit).stdout.splitlines()
        score = show(machine, unit, "OOMScoreAdjust")["OOMScoreAdjust"]
        assert {"a $b c from /src", score} <= set(said)
    finally:
        machine.run("rm", "/tmp/reported")
    assert show(machine, unit, "ControlGroup", "MemoryMax", "ActiveState", "Delegate") == {
        "ControlGroup": f"{GROUP}/{unit}",
        "MemoryMax": str(16 * MIB),
        "ActiveState": "active",
        "Delegate": "yes",
    }
    again = machine.podslice("run", "shop", "-c", "web", "--", "true", check=False)
    assert again.exit_code == 1
    assert again.stderr.startswith(f"error: container web of pod default/shop is running: {unit}")
    assert again.stderr.count("\n") == 1


# the shell survives the kill of its child, unless it is killed as well
SWAP = "/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/memory.swap.max"
OOM = """\
sleep 100000 &
python3 -c 'bytearray(100 * 2**20)'
sleep 100000
"""


@pytest.mark.cgroup2
def test_a_container_is_killed_as_a_whole_when_it_is_out_of_memory(shop):
    """In the foreground, adopted, and as a service; a real kernel kills."""
    in_place = shop.podslice("run", "shop", "-c", "fetch", "--", "sh", "-c", OOM, check=False)
    assert in_place.exit_code == 137
    assert last_exit(shop, "fetch")["oom_killed"]
    assert phase(shop)["init_containers"][0] == {"name": "fetch", "done": False}
    shop.podslice("phase", "shop", "running")

    outside = shop.spawn("sh", "-c", f"read go; {OOM}")
    shop.podslice("adopt", "shop", "-c", "web", str(outside.pid))
    outside.write("go\n")
    assert outside.wait().exit_code == 137

    run = ("run", "shop", "-c", "web", "--detach", "-o", "name", "--", "sh", "-c", OOM)
    unit = shop.podslice(*run).stdout.strip()
    shop.run("sh", "-c", UNTIL_UNLOADED.format(user="", unit=unit))
    assert show(shop, SLICE, "TasksCurrent") == {"TasksCurrent": "0"}
    last = last_exit(shop, "web")
    assert (last["result"], last["oom_killed"]) == ("oom-kill", True)


# counts and kills as systemd-oomd does, which requires a kernel that measures pressure
OOMD = """\
import os
import sys
from podslice.kernel.cgroup import CgroupFs
os.setxattr(CgroupFs().directory(sys.argv[1]), "user.oomd_ooms", b"1")
os.kill(os.getpid(), 9)
"""


@pytest.mark.namespace
@pytest.mark.newest
def test_a_kill_by_systemd_oomd_is_the_last_exit(shop):
    """In the foreground, and of a service with a unit file."""
    group = f"{GROUP}/podslice-podshop-fetch.scope"
    command = ("python3", "-c", OOMD)
    killed = shop.podslice("run", "shop", "-c", "fetch", "--", *command, group, check=False)
    assert killed.exit_code == 137
    last = last_exit(shop, "fetch")
    assert (last["result"], last["signal"], last["oom_killed"]) == ("oomd-kill", "SIGKILL", False)
    assert "killed by systemd-oomd" in shop.podslice("status", "shop", check=False).stdout

    unit = "podslice-podshop-proxy.service"
    shop.put("/tmp/oomd.py", OOMD)
    start = f"[Service]\nSlice={SLICE}\nEnvironment=PYTHONPATH=/src\n"
    start += f"ExecStart=python3 /tmp/oomd.py {GROUP}/{unit}\n"
    shop.put(f"/run/systemd/system/{unit}", start)
    shop.run("systemctl", "daemon-reload")
    try:
        shop.run("systemctl", "start", unit)
        until = f"while ! systemctl -q is-failed {unit}; do sleep 0.1; done"
        shop.run("sh", "-c", until)
        counts = show(shop, unit, "ManagedOOMKills")  # since 259
        assert counts in ({}, {"ManagedOOMKills": "1"})
        assert last_exit(shop, "proxy")["result"] == ("oomd-kill" if counts else "signal")
    finally:
        shop.run("rm", f"/run/systemd/system/{unit}", "/tmp/oomd.py")
        shop.run("systemctl", "reset-failed", unit)
        shop.run("systemctl", "daemon-reload")


@pytest.mark.cgroup2
def test_only_one_process_is_killed_where_that_is_configured(shop):
    shop.podslice("phase", "shop", "running")
    options = 'oom-policy = "process"\nmemory-swap-behavior = "NoSwap"\n'
    shop.put("/etc/podslice/podslice.toml", options)
    try:
        script = f"cat {SWAP}; " + OOM.replace("sleep 100000\n", "echo ended with $?\n")
        ended = shop.podslice("run", "shop", "-c", "web", "--", "sh", "-c", f"{script}kill $!")
    finally:
        shop.run("rm", "-r", "/etc/podslice")
    assert ended.stdout.splitlines() == ["0", "ended with 137"]


@pytest.mark.namespace
@pytest.mark.newest
def test_a_detached_init_container_counts_when_it_succeeds(shop):
    machine = shop
    machine.podslice("run", "shop", "-c", "fetch", "--", "true")
    assert phase(machine)["phase"] == "init"
    machine.podslice("run", "shop", "-c", "build", "--detach", "--", "true")
    machine.run("python3", "-c", UNTIL_OVER)
    # recorded first, and bound under the same lock
    machine.podslice("phase", "shop", "running")
    assert show(machine, SLICE, "MemoryMax") == {"MemoryMax": str(LIMIT)}


UNTIL_OVER = """\
import json
def progress():
    with open("/run/podslice/pods/shop.json") as file:
        return json.load(file)["progress"]
while not progress()["over"]:
    pass
"""


def test_a_detached_init_container_of_a_user_counts_as_well(namespace):
    namespace.put("/tmp/shop.yaml", SHOP)
    with users.user_manager(namespace) as podslice:
        podslice("apply", "-f", "/tmp/shop.yaml", *BIG)
        podslice("run", "shop", "-c", "fetch", "--", "true")
        podslice("run", "shop", "-c", "build", "--detach", "--", "true")
        until = UNTIL_OVER.replace("/run/", f"{users.RUNTIME_DIR}/")
        namespace.run("python3", "-c", until)
        assert podslice("phase", "shop", "-o", "name").stdout == "running\n"
