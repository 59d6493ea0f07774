"""`adopt` on a real systemd: the reported outcome of every process is true."""

import json
import random

import pytest

from tests.host import crowd, users
from tests.host.scenario import BIG, apply, pods, show
from tests.lab.machine import START_SERVICE

POD, OTHER = "default/many-0", "default/many-1"
FOREVER = 1000


@pytest.fixture
def many(clean_machine):
    """A machine with two pods of one container each."""
    clean_machine.put("/tmp/many.yaml", pods(2))
    apply(clean_machine, "-f", "/tmp/many.yaml", *BIG)
    return clean_machine


def adopt(machine, pod, *pids):
    """Return the report, with the outcomes by id; check the exit code against them."""
    done = machine.podslice("adopt", pod, *map(str, pids), "-o", "json", *BIG, check=False)
    report = json.loads(done.stdout)
    outcomes = {each["pid"]: each["outcome"] for each in report["processes"]}
    assert list(outcomes) == list(dict.fromkeys(pids))
    assert done.exit_code == int(not set(outcomes.values()) <= {"adopted", "already there"})
    return report, outcomes, done


@pytest.mark.namespace
@pytest.mark.newest
def test_each_of_many_processes_is_where_the_report_places_it(many):
    chance = random.Random(200)
    living_count, dying_count, span_sec = 140, 60, 1.0
    delays = [chance.uniform(0, span_sec) for _ in range(dying_count)]
    kinds = [*(f"{delay:.3f}" for delay in delays), *[FOREVER] * living_count]
    chance.shuffle(kinds)
    pids = crowd.start(many, *kinds)
    living = {pid for pid, kind in zip(pids, kinds, strict=True) if kind == FOREVER}
    dying = set(pids) - living

    report, outcomes, done = adopt(many, POD, *pids, *pids[:3])

    crowd.await_end(many, dying)
    seen = crowd.look(many, pids)
    assert seen.keys() == living
    # a process that ended right after the move was adopted nevertheless
    assert {outcomes[pid] for pid in dying} <= {"adopted", "ended", "refused"}
    for each in report["processes"]:
        if each["pid"] in living:
            assert each["outcome"] == "adopted", each
            assert seen[each["pid"]][0] == report["control_group"]
        elif each["outcome"] == "refused":  # before podslice had opened it
            assert each["why"].startswith(("no such process", "it is a zombie"))
    scores = {score for _, score in seen.values()}
    assert len(scores) == 1
    assert 2 < min(scores) < 1000
    expected = {
        "ControlGroup": report["control_group"],
        "Delegate": "yes",
        "CPUQuotaPerSecUSec": "100ms",
        "TasksCurrent": str(living_count) if many.has_controllers else "[not set]",
    }
    assert show(many, report["unit"], *expected) == expected
    assert "podlab-agent.service starts further processes" in done.stderr

    # the second time the scope exists, and no process is moved twice
    (late,) = crowd.start(many, FOREVER)
    again, outcomes, done = adopt(many, POD, late, min(living))
    assert outcomes == {late: "adopted", min(living): "already there"}
    assert crowd.look(many, [late])[late][0] == again["control_group"] == report["control_group"]


@pytest.mark.namespace
@pytest.mark.newest
def test_some_processes_are_not_moved(many):
    here, there = crowd.start(many, FOREVER, FOREVER)
    adopt(many, OTHER, there)
    before = crowd.look(many, [1, there])
    agent = int(many.run("sh", "-c", "echo $PPID").stdout)
    stay = [1, there, agent, 2**22]
    report, outcomes, done = adopt(many, POD, *stay, here)
    why = {each["pid"]: each["why"] for each in report["processes"]}
    assert outcomes == {**dict.fromkeys(stay, "refused"), here: "adopted"}
    assert "it is a service manager" in why[1]
    assert f"it is in container main of pod {OTHER}" in why[there]
    assert "it is podslice itself or an ancestor of it" in why[agent]
    assert why[2**22] == "no such process"
    assert crowd.look(many, [1, there]) == before
    assert done.stderr.count("\n") <= 2


@pytest.mark.cgroup2
def test_a_kernel_thread_is_not_moved(many):
    """A PID namespace contains none."""
    (here,) = crowd.start(many, FOREVER)
    report, outcomes, _ = adopt(many, POD, 2, here)
    assert outcomes == {2: "refused", here: "adopted"}
    (why,) = (each["why"] for each in report["processes"] if each["pid"] == 2)
    assert "it is a kernel thread" in why
    assert crowd.look(many, [here])[here][0] == report["control_group"]


@pytest.mark.namespace
@pytest.mark.newest
def test_a_user_moves_processes_of_the_same_user(machine):
    with users.user_manager(machine) as podslice:
        machine.put("/tmp/many.yaml", pods(1))
        podslice("apply", "-f", "/tmp/many.yaml", *BIG)
        users.command(machine, *START_SERVICE, "--user", "--unit=own1", "sleep", str(FOREVER))
        users.command(machine, *START_SERVICE, "--user", "--unit=own2", "sleep", str(FOREVER))
        one, two = (
            int(users.command(machine, "systemctl", "--user", "show", unit, "-PMainPID").stdout)
            for unit in ("own1", "own2")
        )
        manager = int(machine.run("systemctl", "show", users.MANAGER, "-PMainPID").stdout)
        (foreign,) = crowd.start(machine, FOREVER)
        names = ("-o", "json", *BIG)
        report = json.loads(podslice("adopt", POD, str(one), *names).stdout)
        stay = (1, manager, foreign)
        done = podslice("adopt", POD, *map(str, (two, *stay)), *names, check=False)
        found = {each["pid"]: each for each in json.loads(done.stdout)["processes"]}
        outcomes = {pid: each["outcome"] for pid, each in found.items()}
        assert outcomes == {two: "adopted", **dict.fromkeys(stay, "refused")}
        assert done.exit_code == 1
        said = "it runs as user 0; with --user only your own processes can be moved"
        assert found[foreign]["why"] == said
        prefix = f"/user.slice/user-{users.UID}.slice/{users.MANAGER}/kubepods.slice/"
        assert report["control_group"].startswith(prefix)
        seen = crowd.look(machine, [one, two])
        assert {group for group, _ in seen.values()} == {report["control_group"]}
        crowd.end(machine, [foreign])
