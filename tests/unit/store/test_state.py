"""The published state of an agent, and the values outside the root."""

import json

import pytest

from podslice.features.quadlet.status import ContainerFailures
from podslice.model.desired import ReservedValues
from podslice.model.node_state import AgentState, ContainerFailure
from podslice.model.unit import UnitName
from podslice.store import files as store_files
from podslice.store.store import Store
from tests.cases.tables import cases
from tests.unit.store.files import STATE, TRIED


@pytest.mark.parametrize("value", [STATE, AgentState(pid=1, started_ticks=2)])
def test_saved_states_are_read(store, value):
    assert store.agent.read() is None
    store.agent.save(None)
    store.agent.save(value)
    assert Store(store.root).agent.read() == value
    path = store.root / "agent.json"
    for damaged in (
        "",
        "[]",
        "{}",
        path.read_text()[:-3],
        path.read_text().replace(": ", ": [", 1),
    ):
        path.write_text(damaged)
        assert store.agent.read() is None
    store.agent.save(value)
    assert store.agent.read() == value
    store.agent.save(None)
    assert not path.exists()


@cases
def test_an_agent_s_state_that_is_wrong_anywhere_is_none(store, change):
    store.agent.save(STATE)
    path = store.root / "agent.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert store.agent.read() is None


def test_failures_of_containers_are_kept_until_there_are_none(store):
    failures = (
        ContainerFailure(where="web.yaml", message="m", hint="h"),
        ContainerFailure(pod="default/web", message="m", unit=UnitName("a.service")),
    )
    record, path = ContainerFailures(store.root), store.root / "container-failures.json"
    assert record.load() == ()
    record.save(())
    record.save(failures)
    assert record.load() == failures
    text = path.read_text()
    for damaged in ("", "[]", "{}", text.replace('"m"', "5", 1), text.replace("null", "5")):
        path.write_text(damaged)
        assert record.load() == ()
    record.save(())
    assert not path.exists()


def held(**change):
    return {"a.slice": {"MemoryMax": {"before": 1, "ours": [2], "trial": None, **change}}}


def test_the_record_of_values_is_removed_with_the_last_value(store):
    assert store.reserved() == ReservedValues()
    store.save_reserved(ReservedValues())
    assert not store.root.exists()
    store.save_reserved(TRIED)
    assert Store(store.root).reserved() == TRIED
    store.save_reserved(ReservedValues(units={"system.slice": {}}))
    assert not store.reserved_path.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"units": 5},
        {"units": {"a.slice": 5}},
        {"units": {"a.slice": {"MemoryMax": [1]}}},
        {"units": {"a.slice": {"Unknown": {"before": 1, "ours": [2], "trial": None}}}},
        {"units": held(before=None)},
        {"units": held(ours=[])},
        {"units": held(ours=[[1]])},
        {"units": held(trial={"old": 1})},
        {"units": held(trial={"old": None, "new": 1})},
        {"until_usec": None},
        {"cgroup_root": 5},
    ],
)
def test_a_record_of_values_that_is_wrong_anywhere_is_none(store, change):
    store.save_reserved(TRIED)
    path = store.root / "reserved.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert store.reserved() is None


def test_states_that_can_not_be_read_are_none(store, no_permission):
    store.agent.save(STATE)
    store.save_reserved(TRIED)
    no_permission(store_files, "read_regular")
    assert (store.agent.read(), store.reserved()) == (None, None)
