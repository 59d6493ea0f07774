"""A process that joins the network of a container, and gives up its rights."""

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from podslice.features.quadlet.prober import find_process, give_up_rights, in_child, join_network
from podslice.kernel.proc import children

pytestmark = pytest.mark.usefixtures("allow_effects")
NOBODY = 65534
GROUP = "/kubepods.slice/podslice-pod1-app.service"
WAIT = "echo; read -r _"
"""A script that writes a line when it runs, and ends with its input."""


@contextmanager
def running(*command, **options):
    """Run a command that writes a line when it runs."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
    ) as started:
        assert started.stdout.read(1)
        yield started.pid
        started.stdin.close()


def group_of(root, *pids):
    """Write the control group of a container with processes, and return its directory."""
    payload = root / f"sys/fs/cgroup{GROUP}/libpod-payload-1"
    payload.mkdir(parents=True)
    (payload / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return payload


def status_of_a_program():
    """Return the status of a program that this process executes."""
    shown = subprocess.run(
        ["/usr/bin/cat", "/proc/self/status"], capture_output=True, text=True, check=True
    )
    lines = (line.partition(":") for line in shown.stdout.splitlines())
    return {key: value.strip() for key, _, value in lines}


def joins(pid, user):
    """Return whether a process of this user joins a network, and has no rights then."""

    def work():
        if user != os.geteuid():
            os.setresuid(user, user, user)
        own, theirs = Path("/proc/self/ns/net"), Path(f"/proc/{pid}/ns/net")
        assert not own.samefile(theirs)
        join_network(pid)
        assert own.samefile(theirs)
        give_up_rights()
        status = status_of_a_program()
        assert status["NoNewPrivs"] == "1"
        assert {int(status[f"Cap{each}"], 16) for each in ("Prm", "Eff", "Amb")} == {0}
        return True

    return in_child(work, 60)


@pytest.mark.parametrize(
    "user", sorted({os.geteuid(), NOBODY} if os.geteuid() == 0 else {os.geteuid()})
)
def test_a_process_joins_a_network_and_has_no_rights_then(user):
    """The owner of a user namespace has all capabilities in it, and root those of the host."""
    target = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c", WAIT)
    with running(*target, user=user) as pid:
        assert joins(pid, user)


def test_the_network_of_the_host_is_not_joined():
    assert in_child(lambda: join_network(os.getppid()) is None, 60)


def test_a_process_that_has_exited_is_not_joined():
    with pytest.raises(FileNotFoundError):
        join_network(2**22 + 1)


def test_the_process_of_a_container_is_that_of_its_runtime(tmp_path):
    """Its own children may be in other namespaces, or in control groups below that of the container."""
    with running("sh", "-c", f"({WAIT}); :") as pid:
        (child,) = children(pid)
        payload = group_of(tmp_path, child)
        assert find_process(GROUP, tmp_path) == child
        (payload / "init.scope").mkdir()
        (payload / "init.scope/cgroup.procs").write_text(f"{pid}\n")
        assert find_process(GROUP, tmp_path) == pid


def test_a_container_without_processes_has_none(tmp_path):
    assert find_process(GROUP, tmp_path) is None
    group_of(tmp_path, 2**22 + 1)
    assert find_process(GROUP, tmp_path) is None
