"""The pods that are wanted and do not run, each with its reason."""

from dataclasses import replace

import pytest

from podslice.model.desired import Refusal
from podslice.model.node_state import Condition, Eviction
from podslice.policy.admit import pending_pods
from tests.unit.builders import besteffort, burstable, decisions

MARK = Eviction(
    pod="default/web", uid="web", digest="12", signal="memory.available", message="50Mi", at_usec=1
)
EVICTED = Refusal(pod="default/web", reason="Evicted", message="50Mi; to readmit it")
SHORT = Refusal(pod="default/web", reason="MemoryPressure", message="short of memory")
LARGE = Refusal(pod="default/web", reason="OutOfcpu", message="requests 9")
WEB = burstable("web")


def pending(*pods, applied=(), refused=(), evicted=()):
    sources = {pod.uid: f"/m/{pod.name}.yaml" for pod in pods}
    return pending_pods(
        candidates=decisions(*pods),
        applied=applied,
        refused=refused,
        evicted=evicted,
        sources=sources,
    )


@pytest.mark.parametrize(
    ("more", "reason", "message", "hint"),
    [
        ({}, "NotApplied", "it is not applied yet", "to apply it: podslice apply -f /m/web.yaml"),
        (
            {"applied": (burstable("web", "cpu=1"),)},
            "NotApplied",
            "its changed manifest is not applied",
            "to apply it: podslice apply -f /m/web.yaml",
        ),
        (
            {"refused": (SHORT,)},
            "MemoryPressure",
            "short of memory",
            "see what uses it: podslice top",
        ),
        (
            {"refused": (LARGE,)},
            "OutOfcpu",
            "requests 9",
            "lower its requests, or delete other pods",
        ),
        (
            {"refused": (EVICTED,), "evicted": (MARK,)},
            "Evicted",
            "50Mi",
            "to readmit it: podslice readmit default/web",
        ),
        # its manifest has changed since, so that the mark does not hold it back
        ({"evicted": (MARK,)}, "NotApplied", "it is not applied yet", "podslice apply"),
        ({"evicted": (MARK,), "refused": (LARGE,)}, "Evicted", "50Mi", "readmit"),
    ],
)
def test_the_reason_of_a_pod(more, reason, message, hint):
    (found,) = pending(WEB, **more)
    assert (found.pod, found.reason, found.message) == ("default/web", reason, message)
    assert hint in found.hint
    assert (found.qos, found.source) == ("Burstable", "/m/web.yaml")
    assert found.is_applied == bool(more.get("applied"))


def test_remedies_name_the_service_manager_and_the_start_of_containers():
    found = pending_pods(
        candidates=decisions(WEB, besteffort("batch"), burstable("db"), burstable("api")),
        refused=(replace(LARGE, pod="default/db"), replace(SHORT, pod="default/api")),
        evicted=(replace(MARK, pod="default/old", uid="old"),),
        sources={"web": "/m/a b.yaml", "batch": "/m/batch.yaml"},
        started={"default/web"},
        flag=" --user",
    )
    assert {each.pod: each.hint.rpartition(": ")[2] for each in found} == {
        "default/api": "podslice top --user",
        "default/batch": "podslice apply --user -f /m/batch.yaml",
        "default/db": "podslice node --user",
        "default/old": "podslice readmit --user default/old",
        "default/web": "podslice apply --user --start -f '/m/a b.yaml'",
    }


def test_an_evicted_pod_without_a_manifest_is_wanted():
    (found,) = pending(evicted=(MARK,))
    assert (found.reason, found.qos, found.source) == ("Evicted", "", None)


def test_pods_are_in_the_order_of_their_names():
    late = Refusal(pod="default/api", reason="NameInUse", message="waits")
    found = pending(WEB, besteffort("batch"), refused=(LARGE, late))
    assert [(each.pod, each.reason) for each in found] == [
        ("default/api", "NameInUse"),
        ("default/batch", "NotApplied"),
        ("default/web", "OutOfcpu"),
    ]


@pytest.mark.parametrize(
    ("refusal", "condition"), [(SHORT, Condition.MEMORY), (LARGE, None), (EVICTED, None)]
)
def test_the_condition_that_holds_a_pod_back(refusal, condition):
    (found,) = pending(WEB, refused=(refusal,))
    assert found.condition is condition


def test_a_reason_whose_message_has_the_remedy_needs_no_hint():
    taken = replace(LARGE, reason="NameInUse")
    (found,) = pending(WEB, refused=(taken,))
    assert found.hint == ""
