"""The same without root: the user's own service manager."""

import json

import pytest

from tests.host.scenario import BIG, GI, SEED

UID = 1000


@pytest.fixture
def as_user(machine):
    """Runs commands as the user `lab`, whose service manager is up for the test."""
    machine.run("systemctl", "start", f"user@{UID}.service")
    runtime = f"/run/user/{UID}"

    def run(*argv, check=True):
        return machine.run(
            *("runuser", "-u", "lab", "--", "env", f"XDG_RUNTIME_DIR={runtime}"),
            *("PYTHONPATH=/src", "PYTHONDONTWRITEBYTECODE=1", *argv),
            check=check,
        )

    yield run
    run("sh", "-c", "systemctl --user stop 'kubepods*.slice'; rm -rf $XDG_RUNTIME_DIR/podslice")
    machine.run("systemctl", "stop", f"user@{UID}.service")


def podslice(as_user, verb, *arguments, check=True):
    command = ("python3", "-m", "podslice", verb, "--user", *arguments, *BIG)
    return as_user(*command, check=check)


def test_a_user_has_the_same_tree_in_the_own_manager(machine, as_user):
    podslice(as_user, "apply", "-f", SEED)
    assert podslice(as_user, "plan", "-f", SEED).stdout == "nothing to do\n"
    status = json.loads(podslice(as_user, "status", "-o", "json").stdout)
    assert status["in_sync"]
    assert len(status["units"]) == 8
    pod1 = next(unit for unit in status["units"] if unit["pod"] == "default/pod1")
    shown = as_user("systemctl", "--user", "show", pod1["name"], "-p", "MemoryMax").stdout
    assert shown == f"MemoryMax={3 * GI}\n"
    assert pod1["control_group"].startswith(f"/user.slice/user-{UID}.slice/user@{UID}.service/")
    if machine.cgroup_version == 2:
        group = f"/sys/fs/cgroup{pod1['control_group']}"
        assert machine.get(f"{group}/memory.max").decode().strip() == str(3 * GI)
    assert not machine.run("sh", "-c", "systemctl list-units --plain --no-legend 'kube*'").stdout
    podslice(as_user, "delete", "--all")
    assert podslice(as_user, "status").stdout == "no pods\n"
    left = as_user("sh", "-c", "ls -d $XDG_RUNTIME_DIR/podslice 2>/dev/null || true")
    assert left.stdout == ""


def test_without_a_session_there_is_one_clear_line(machine):
    result = machine.run(
        *("runuser", "-u", "lab", "--", "env", "-u", "XDG_RUNTIME_DIR", "PYTHONPATH=/src"),
        *("python3", "-m", "podslice", "status", "--user"),
        check=False,
    )
    assert result.exit_code == 1
    assert result.stderr.startswith("error: there is no user session")
    assert result.stderr.count("\n") == 1
