"""Deletion of pods with running processes, on a real systemd."""

import pytest

from tests.host.scenario import BIG, apply, control_groups, records, show, units
from tests.lab.machine import START_SERVICE

SLICE = "kubepods-burstable-podshop.slice"
GROUP = f"/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/{SLICE}"
OURS = "podslice-podshop-app.scope"
LIBPOD = f"libpod-{'0123456789' * 6}.scope"
GRACE_SEC = 1

SHOP = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: shop, uid: shop}}
spec:
  terminationGracePeriodSeconds: {GRACE_SEC}
  containers:
  - {{name: app, resources: {{requests: {{memory: 4Mi}}}}}}
"""

# each writes the process ID and the name of the process that it ends up with
SLEEPS = "echo $$ sleep > /tmp/up; exec sleep 1000"
STUBBORN = f"trap '' TERM; {SLEEPS}"
# ends by itself once a reader opens the pipe that it opens after SIGTERM
POLITE = """\
mkfifo /tmp/asked
trap ': > /tmp/asked; : > /tmp/ended; exit 0' TERM
sleep 1000 &
echo $! sleep > /tmp/up
while :; do wait; done
"""
# takes longer than the pod's grace period; without children, which systemd would signal as well
SLOW = f"""\
exec python3 -c '
import os, signal, sys, time

def end(*_):
    time.sleep({GRACE_SEC + 1})
    open("/tmp/ended", "w").close()
    sys.exit()

signal.signal(signal.SIGTERM, end)
with open("/tmp/up", "w") as up:
    print(os.getpid(), "python3", file=up)
signal.pause()
'
"""


@pytest.fixture
def shop(clean_machine):
    """A machine with the pod `shop`, and a neighbour outside of it."""
    machine = clean_machine
    machine.put("/tmp/shop.yaml", SHOP)
    apply(machine, "-f", "/tmp/shop.yaml", *BIG)
    machine.run(*START_SERVICE, "--unit=podlab-neighbour", "sleep", "1000")
    yield machine
    machine.run("systemctl", "stop", "podlab-neighbour.service")
    machine.run("sh", "-c", "rm -f /tmp/script /tmp/up /tmp/asked /tmp/ended")


# between fork and exec a process has the name of its parent, and may lose a signal
UNTIL_UP = """\
until read -r pid name < /tmp/up && read -r is < /proc/$pid/comm && [ $is = $name ]
do sleep 0.1
done 2>&-
"""


def wait_until_up(machine):
    machine.run("sh", "-c", UNTIL_UP)


def run(machine, unit, script, grace_sec=GRACE_SEC):
    """Run a script in a scope of the pod's slice, until the process that it names runs."""
    machine.run("rm", "-f", "/tmp/up")
    machine.put("/tmp/script", script)  # systemd-run of some versions expands $$ in arguments
    process = machine.spawn(
        *("systemd-run", "--quiet", "--scope", f"--unit={unit}", f"--slice={SLICE}"),
        *("-p", "Delegate=yes", "-p", f"TimeoutStopSec={grace_sec}", "sh", "/tmp/script"),
    )
    wait_until_up(machine)
    return process


def neighbour(machine):
    return machine.run("systemctl", "show", "podlab-neighbour", "-P", "MainPID,ActiveState").stdout


def has_ended_by_itself(machine):
    return machine.run("test", "-e", "/tmp/ended", check=False).exit_code == 0


def assert_nothing_is_left(machine):
    assert units(machine) == []
    assert control_groups(machine) == []
    assert records(machine) == []


@pytest.mark.namespace
@pytest.mark.newest
def test_a_process_that_ignores_sigterm_is_killed_and_all_are_named(shop):
    before = neighbour(shop)
    processes = [run(shop, OURS, STUBBORN, grace_sec=90), run(shop, LIBPOD, STUBBORN)]
    result = shop.podslice("delete", "shop", "--grace-period", "1", *BIG)
    assert result.stderr == "stopping 2 processes of pod default/shop, up to 1 s\n"
    assert result.stdout.splitlines()[0] == (
        f"stopped {SLICE} with libpod-012345678….scope: 1 process (sleep),"
        " container app: 1 process (sleep): pod default/shop is removed"
    )
    assert [process.wait().exit_code for process in processes] == [137, 137]
    assert_nothing_is_left(shop)
    assert neighbour(shop) == before


@pytest.mark.namespace
@pytest.mark.newest
def test_a_process_that_ends_by_itself_gets_its_grace_period(shop):
    process = run(shop, OURS, POLITE)
    opener = shop.spawn("sh", "-c", "read -r _ < /tmp/asked")
    result = shop.podslice("delete", "shop", "--grace-period", "60", *BIG)
    assert opener.wait().exit_code == 1  # there was nothing to read
    assert process.wait().exit_code == 0
    assert has_ended_by_itself(shop)
    assert "container app: 2 processes (sh, sleep)" in result.stdout
    assert_nothing_is_left(shop)


@pytest.mark.unified
def test_a_longer_grace_period_than_the_pod_states_is_granted(shop):
    processes = [run(shop, OURS, SLOW), run(shop, LIBPOD, SLEEPS)]
    shop.podslice("delete", "shop", "--grace-period", "60", *BIG)
    assert [process.wait().exit_code for process in processes] == [0, 143]
    assert has_ended_by_itself(shop)
    assert_nothing_is_left(shop)


@pytest.mark.unified
def test_processes_outside_of_units_are_stopped_too(shop):
    run(shop, OURS, SLOW)
    by_hand(shop)
    result = shop.podslice("delete", "shop", *BIG)
    assert "control group by-hand: 1 process (sleep)" in result.stdout
    assert_nothing_is_left(shop)


def by_hand(machine):
    """Put a process into a control group without a unit."""
    put = f"sleep 1000 >&- 2>&- & mkdir {GROUP}/by-hand; echo $! > {GROUP}/by-hand/cgroup.procs"
    machine.run("sh", "-c", f"{put}; echo $! sleep > /tmp/up")
    wait_until_up(machine)


@pytest.mark.unified
def test_a_pod_with_only_a_record_and_processes_can_be_deleted(shop):
    by_hand(shop)
    shop.run("systemctl", "stop", "kubepods.slice")
    assert control_groups(shop)
    result = shop.podslice("delete", "shop", *BIG)
    assert f"stopped {SLICE} with control group by-hand: 1 process (sleep)" in result.stdout
    assert_nothing_is_left(shop)


@pytest.mark.namespace
def test_a_failed_unit_in_a_pod_does_not_block(shop):
    """It keeps the slice loaded in systemd, with its properties."""
    shop.run("systemctl", "set-property", "--runtime", SLICE, "TasksMax=77")
    failing = ("systemd-run", "--wait", "--quiet", "--unit=podlab-fails", f"--slice={SLICE}")
    shop.run(*failing, "false", check=False)
    shop.podslice("delete", "shop", *BIG)
    assert records(shop) == control_groups(shop) == []
    assert SLICE in units(shop)
    result = apply(shop, "-f", "/tmp/shop.yaml", *BIG)
    assert result.stdout.endswith("4 done\n")
    assert show(shop, SLICE, "ActiveState", "MemoryLow", "TasksMax") == {
        "ActiveState": "active",
        "MemoryLow": str(4 * 2**20),
        "TasksMax": "infinity",
    }
    shop.run("systemctl", "reset-failed", "podlab-fails")
    shop.podslice("delete", "shop", *BIG)
    assert_nothing_is_left(shop)


@pytest.mark.namespace
def test_a_pod_keeps_its_record_while_its_volumes_are_mounted(shop):
    volume = "/run/podslice/pods/shop/volumes/cache"
    shop.run("mkdir", "-p", volume)
    shop.run("mount", "-t", "tmpfs", "tmpfs", volume)
    result = shop.podslice("delete", "shop", *BIG, check=False)
    assert result.exit_code == 1
    assert (
        f"pod default/shop could not be removed: something is still mounted at {volume}"
        in result.stdout
    )
    assert "shop.json" in records(shop)
    shop.run("umount", volume)
    shop.podslice("delete", "shop", *BIG)
    assert_nothing_is_left(shop)
