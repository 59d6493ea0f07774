"""Problems of a node: what the situations of `podslice status` do not contain."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from podslice.errors import Problem, Severity
from podslice.model.container_exit import ContainerExit
from podslice.model.desired import Desired
from podslice.model.node_state import AgentState, ContainerFailure, Foreign
from podslice.model.properties import PARTITION
from podslice.model.unit import Caps, Observed, UnitKind, UnitName, slice_unit
from podslice.plan import Plan, SetHugepages, Skipped, StartUnit
from podslice.reconcile.assess import Assessment
from podslice.usage.health import HealthFacts, HealthKind, problematic_pods, problems_of
from podslice.usage.unit_status import (
    ACTIVATING,
    EXITED,
    FAILED,
    MISSING,
    PropertyStatus,
    UnitStatus,
)
from tests.cases.tables import cases
from tests.unit.builders import besteffort

WEB, APP = UnitName("kubepods-podweb.slice"), UnitName("podslice-podweb-app.service")
UNIT = UnitStatus(
    name=WEB,
    kind=UnitKind.SLICE,
    pod="default/web",
    qos="Guaranteed",
    label="default/web",
    depth=1,
    state=MISSING,
    control_group="",
)
WEB_UNIT = replace(slice_unit(WEB, ""), pod="default/web")
START = StartUnit(unit=WEB_UNIT, changes=())
PAGES = SetHugepages(unit=replace(WEB_UNIT, name=UnitName("a.scope")), changes=())
ERROR = Problem(where="a.toml", message="bad")


STATE = Assessment(
    current=(),
    desired=Desired(root=UnitName("kubepods.slice")),
    observed=Observed(caps=Caps(systemd_version=257)),
    plan=Plan(),
)


def problems_with(**facts):
    """Return the problems with these facts; those that the assessment has are in it."""
    state = {name: facts.pop(name) for name in [*facts] if name in Assessment.__slots__}
    return problems_of(HealthFacts(state=replace(STATE, **state), **facts))


def found(**facts):
    problems = problems_with(**facts)
    return [(each.kind.value, each.object, each.pod) for each in problems]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, []),
        ({"units": (UNIT,), "plan": Plan(steps=(START,))}, [("unit-missing", WEB, "default/web")]),
        ({"plan": Plan(steps=(PAGES,))}, [("unit-differs", "a.scope", "default/web")]),
        # the agent stops the pod
        (
            {
                "units": (UNIT,),
                "plan": Plan(steps=(START, PAGES)),
                "agent": AgentState(pid=1, started_ticks=1, terminating=("default/web",)),
            },
            [],
        ),
        # the kubelet's units are not podslice's
        (
            {"units": (UNIT,), "foreign": Foreign(reason="a kubelet", way_out="another root")},
            [("foreign-root", "node", None)],
        ),
        (
            {
                "plan": Plan(
                    skipped=(Skipped("system.slice", "start", "5Gi are in use", blocks=True),)
                )
            },
            [("reservation-not-enforced", "system.slice", None)],
        ),
        ({"configuration": (ERROR, ERROR)}, [("invalid-configuration", "a.toml", None)]),
        ({"manifests": (Problem(where="a", message="odd", severity=Severity.WARNING),)}, []),
    ],
)
def test_a_problem_has_a_kind_an_object_and_perhaps_a_pod(facts, expected):
    assert found(**facts) == expected


def restarting(restarts, state=ACTIVATING, **last):
    last = ContainerExit(result="exit-code", started_usec=1, **last) if last else None
    return UnitStatus(
        name=APP,
        kind=UnitKind.SERVICE,
        pod="default/web",
        qos="",
        label="app",
        depth=2,
        state=state,
        control_group="",
        restarts=restarts,
        last_exit=last,
    )


def ended(result="exit-code", restarts=0, **fields):
    last = ContainerExit(result=result, started_usec=1, ended_usec=2, **fields)
    return replace(restarting(restarts, EXITED), last_exit=last)


@cases
def test_a_container_that_restarts_again_and_again(unit, message):
    found = problems_with(units=(restarting(**unit),))
    problems = [(str(each), each.hint) for each in found]
    text = f"pod default/web: container app does not stay active: {message}"
    hint = "to see its output: podslice logs default/web -c app"
    assert problems == ([(text, hint)] if message else [])


@cases
def test_a_container_that_has_failed(has_ended, failed, kind, message):
    unit = ended(**has_ended) if has_ended else restarting(state=FAILED, **failed)
    run = "podslice run --detach default/web -c app -- COMMAND"
    start = run if has_ended else f"systemctl restart {APP}"
    (problem,) = problems_with(units=(unit,))
    assert (problem.kind, str(problem)) == (
        HealthKind[kind],
        f"pod default/web: container app {message}",
    )
    assert problem.hint == (
        f"to see its output: podslice logs default/web -c app; to start it again: {start}"
    )


@pytest.mark.parametrize("flag", ["", " --user"])
def test_remedies_name_the_service_manager(flag):
    (problem,) = problems_with(units=(ended(exit_code=1),), flag=flag)
    assert f"podslice logs{flag} default/web" in problem.hint
    assert f"podslice run{flag} --detach" in problem.hint


def test_a_container_whose_start_has_failed_is_reported_once():
    failure = ContainerFailure(message="failed to start", hint="see", pod="default/web", unit=APP)
    assert found(units=(restarting(3),), containers=(failure,)) == [
        ("containers-failed", "default/web", "default/web")
    ]


@pytest.mark.parametrize(
    ("kernel", "count"), [("isolated", 0), (None, 0), ("isolated invalid (Parent is member)", 1)]
)
def test_a_partition_that_the_kernel_refuses(kernel, count):
    partition = PropertyStatus(
        name=PARTITION, desired="isolated", systemd="isolated", kernel=kernel
    )
    unit = replace(UNIT, state="active", properties=(partition,))
    problems = problems_with(units=(unit,))
    text = (
        "kubepods-podweb.slice: the kernel does not isolate its CPUs: isolated invalid (Parent is"
    )
    assert [(each.kind, str(each), each.pod) for each in problems] == [
        (HealthKind.PARTITION, f"{text} member)", "default/web")
    ] * count


def test_a_pod_is_named_as_one():
    problems = problems_with(units=(UNIT,), current=(besteffort("shop"),))
    assert [str(each) for each in problems] == [
        (
            "pod default/shop: it has no record; its values are those of its slice, without its"
            " containers"
        ),
        f"{WEB}: it is missing",
    ]
    assert problematic_pods(problems) == {"default/shop", "default/web"}


def test_the_manual_has_every_kind():
    manual = (Path(__file__).resolve().parents[3] / "packaging/man/podslice-pods.1.md").read_text()
    listed = re.findall(r"^\| `([a-z-]+)` \| ", manual, re.MULTILINE)
    assert [kind for kind in HealthKind if kind.value not in listed] == []
