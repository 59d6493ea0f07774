"""Verbs beside an agent, and verbs that are interrupted, on a real systemd."""

import json

import pytest

from tests.host import agent
from tests.host.agent import WEB, is_active
from tests.host.scenario import records, show
from tests.host.test_run import at_a_terminal
from tests.lab.machine import START_SERVICE

SUDO = {"SUDO_USER": "alice", "SUDO_UID": "1000", "PYTHONPATH": "/src"}
INIT = {"initContainers": [{"name": "init"}]}
STUBBORN = "trap '' TERM; : > /tmp/up; exec sleep 1000"


@pytest.fixture
def node(clean_namespace):
    """A namespace whose agent is removed at the end."""
    agent.begin(clean_namespace)
    yield clean_namespace
    agent.remove(clean_namespace)
    clean_namespace.podslice("delete", "--all", "--grace-period", "0", check=False)


def by_sudo(machine, *arguments):
    return machine.run("python3", "-m", "podslice", *arguments, env=SUDO)


def changes(machine):
    """Return the records of changes that the agent has not read."""
    return machine.run("sh", "-c", "ls /run/podslice/changes 2>/dev/null || true").stdout


def test_verbs_are_events_of_their_caller_and_not_drift(node):
    agent.put(node, "web", agent.manifest("web", **INIT))
    agent.start(node)
    by_sudo(node, "run", "web", "-c", "init", "--", "true")
    by_sudo(node, "run", "web", "-c", "main", "--detach", "--", "sleep", "1000")
    node.run(*START_SERVICE, "--unit=alone", "--collect", "sleep", "1000")
    pid = show(node, "alone.service", "MainPID")["MainPID"]
    by_sudo(node, "adopt", "web", "-c", "main", pid)
    node.put("/tmp/other.json", agent.manifest("web", cpu="100m", **INIT))
    by_sudo(node, "apply", "-f", "/tmp/other.json")
    agent.until(lambda: show(node, WEB, "CPUWeight") == {"CPUWeight": "1"})
    by_sudo(node, "phase", "web", "init")
    by_sudo(node, "phase", "web", "running")
    by_sudo(node, "delete", "web", "--grace-period=0")
    agent.until(lambda: is_active(node, WEB), what="the pod of the manifest")
    agent.until(lambda: not changes(node), what="the record of the change is read")
    found = [each for each in agent.all_events(node) if "PODSLICE_VERB" in each]
    assert [(each["PODSLICE_VERB"], each["PODSLICE_EVENT"]) for each in found] == [
        ("run", "container-started"),
        ("run", "phase-changed"),
        ("run", "container-started"),
        ("adopt", "processes-adopted"),
        ("apply", "pod-changed"),
        ("phase", "phase-changed"),
        ("phase", "phase-changed"),
        ("delete", "pod-terminating"),
        ("delete", "pod-removed"),
    ]
    assert {each["PODSLICE_SUDO_USER"] for each in found} == {"alice"}
    assert {each["PODSLICE_POD"] for each in found} == {"default/web"}
    assert all("SUDO_USER=alice" in each["MESSAGE"] for each in found)
    # the slice is active before the event
    agent.until(lambda: len(agent.events(node, "pod-applied")) == 2)
    assert not agent.events(node, "drift-repaired", "drift-contested")
    shown = json.loads(node.podslice("events", "web", "--lines=1", "-o", "json").stdout)
    assert shown["events"][0]["kind"] == "pod-applied"
    # the same without a verb is an external change
    node.run("systemctl", "stop", WEB)
    agent.until(lambda: agent.events(node, "drift-repaired"), what="drift")


@pytest.fixture
def stubborn(clean_namespace):
    """A pod whose process ignores SIGTERM for its grace period of a minute."""
    clean_namespace.put("/tmp/web.json", agent.manifest("web", terminationGracePeriodSeconds=60))
    clean_namespace.podslice("apply", "-f", "/tmp/web.json")
    command = ("sh", "-c", STUBBORN)
    clean_namespace.run("rm", "-f", "/tmp/up")
    clean_namespace.podslice("run", "web", "--detach", "--", *command)
    agent.until(lambda: clean_namespace.run("test", "-e", "/tmp/up", check=False).exit_code == 0)
    yield clean_namespace
    clean_namespace.podslice("delete", "--all", "--grace-period", "0", check=False)


@pytest.mark.parametrize(
    ("act", "code", "word"),
    [(["type", "\x03"], 130, "interrupted"), (["signal", 15], 143, "terminated")],
)
def test_an_interrupted_delete_states_what_is_terminating(stubborn, act, code, word):
    """On a terminal its progress is a line that is redrawn; the next verb continues."""
    argv = ["python3", "-m", "podslice", "delete", "web"]
    acts = [["see", "up to 60 s"], ["see", "terminating: default/web (1 of 60 s)"], act]
    ended = at_a_terminal(stubborn, argv, *acts, TERM="xterm")
    assert ended["exit_code"] == code
    *_, line, end = ended["screen"].split("\n")
    assert end == ""
    assert line.rpartition("\x1b[K")[2].startswith(f"{word}: 0 of ")
    assert line.endswith(" s); to continue, run the same command again")
    assert "Traceback" not in ended["screen"]
    assert len(records(stubborn)) == 1
    stubborn.podslice("delete", "web", "--grace-period=0")
    assert not records(stubborn)
    assert stubborn.podslice("status").stdout == "no pods\n"


def test_a_reader_that_leaves_is_not_a_failure(stubborn):
    command = "python3 -m podslice tree | true; echo ${PIPESTATUS[0]}"
    done = stubborn.run("bash", "-c", command, env={"PYTHONPATH": "/src"})
    assert (done.stdout, done.stderr) == ("0\n", "")
    # without any event: the closed pipe is noticed by itself
    follow = "python3 -m podslice events -f --lines=0 | head -n1; echo ${PIPESTATUS[0]}"
    done = stubborn.run("bash", "-c", follow, env={"PYTHONPATH": "/src"})
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""
