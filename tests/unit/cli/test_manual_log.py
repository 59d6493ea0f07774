"""The journal events of verbs, with their caller, and what the agent reads of them."""

import pytest

from podslice.cli import manual_log
from podslice.cli.manual_log import find_caller
from podslice.features.run import adoption
from podslice.features.run.adoption import Adopted, Adoption, AdoptionOutcome
from podslice.model.event import Kind
from podslice.model.node_state import Account, Caller
from podslice.reconcile import manual_changes
from podslice.store.store import Store
from tests.unit.builders import besteffort, manifest
from tests.unit.cli.pods import mark_evicted, run_agent

SLICE = "kubepods-burstable-pod0a1b_2c.slice"


@pytest.fixture
def store(here):
    return Store(here / "run-False")


@pytest.fixture
def agent(store):
    """A running agent: this process."""
    run_agent(store)


def logged(journal):
    found = [(event.kind.label, event.pod, event.message) for event in journal.all]
    journal.clear()
    return found


def test_apply_and_delete(podslice, memory, web, journal):
    podslice("apply", "-f", web)
    ((kind, pod, message),) = logged(journal)
    assert (kind, pod) == ("pod-applied", "shop/web")
    assert message.startswith(f"started {SLICE} (shop/web) with CPUQuota=")
    assert message.endswith("; podslice apply")
    podslice("apply", "-f", web)
    assert logged(journal) == []
    podslice("run", "shop/web", "-c", "app", "--detach", "--", "/bin/true", "--secret")
    ((kind, pod, message),) = logged(journal)
    assert message == "container app of pod shop/web runs /bin/true; podslice run"
    assert (kind, pod) == ("container-started", "shop/web")
    podslice("delete", "shop/web", "--grace-period=5")
    assert [(kind, message.partition(SLICE)[0]) for kind, _, message in logged(journal)] == [
        ("pod-terminating", "stopping 1 process of pod shop/web, up to 5 s; podslice delete"),
        ("pod-removed", "stopped "),
    ]


def test_adopt(podslice, memory, web, journal, monkeypatch):
    async def adopt(*_, **__):
        outcomes = [AdoptionOutcome.REFUSED, *[AdoptionOutcome.ADOPTED] * 11]
        return Adopted(
            unit="podslice-app.scope",
            control_group="/",
            processes=tuple(
                Adoption(pid=pid, name="sleep", outcome=each, why="")
                for pid, each in enumerate(outcomes)
            ),
        )

    monkeypatch.setattr(adoption, "adopt", adopt)
    podslice("adopt", "shop/web", "-c", "app", "1")
    (event,) = journal.all
    assert event.kind is Kind.PROCESSES_ADOPTED
    assert event.message.startswith("moved 1 (sleep), 2 (sleep), ")
    assert event.message.endswith("10 (sleep) and 1 more into podslice-app.scope; podslice adopt")
    assert event.fields == {"VERB": "adopt", "PIDS": " ".join(map(str, range(1, 12)))}


def test_what_fails_is_logged(podslice, memory, web, files, journal):
    files({"huge.json": manifest("huge", {"memory": "99Ti"})})
    podslice("apply", "-f", "huge.json")
    ((kind, pod, message),) = logged(journal)
    assert (kind, pod) == ("pod-refused", "default/huge")
    assert message.endswith("; podslice apply")


def test_readmit(podslice, memory, store, journal):
    mark_evicted(store, besteffort("web", namespace="shop", uid="0a1b-2c"))
    podslice("readmit", "shop/web", "shop/other")
    assert logged(journal) == [
        ("pod-readmitted", "shop/web", "pod shop/web is readmitted; podslice readmit")
    ]
    assert store.manual_changes.load() == ()


def test_the_mark_of_a_deleted_pod(podslice, memory, store, journal):
    mark_evicted(store, besteffort("web", namespace="shop", uid="0a1b-2c"))
    podslice("delete", "--all")
    assert logged(journal) == [
        (
            "pod-readmitted",
            "shop/web",
            "the eviction mark of pod shop/web is removed; podslice delete",
        )
    ]


def test_the_change_is_recorded_before_units_change(podslice, memory, web, store, monkeypatch):
    seen = []
    start = memory.start

    async def look(unit):
        seen.append(store.manual_changes.load())
        await start(unit)

    monkeypatch.setattr(memory, "start", look)
    assert podslice("apply", "-f", web).code == 0
    for (change,) in seen:
        assert (change.verb, change.pods, change.is_over) == ("apply", ("shop/web",), False)
        assert {SLICE, "kubepods.slice"} < {*change.units}
    assert seen
    assert store.manual_changes.load() == ()
    assert podslice("delete", "--all").code == 0
    assert not store.root.exists()


def test_with_an_agent_the_record_stays_until_it_is_read(podslice, memory, web, store, agent):
    podslice("apply", "-f", web)
    (change,) = manual_changes.take_over(store)
    assert (change.verb, change.is_over) == ("apply", True)
    assert manual_changes.take_over(store) == ()
    assert not store.manual_changes.directory.exists()


def test_the_record_of_a_killed_verb_is_over(store):
    change = manual_changes.record(store, "apply", pods=["a/b"], units=[])
    assert manual_changes.take_over(store) == ()
    path = store.manual_changes.directory / f"{change.pid}-{change.started_ticks}.json"
    path.write_text(
        path.read_text().replace(f'"started_ticks": {change.started_ticks}', '"started_ticks": 1')
    )
    assert [each.pods for each in manual_changes.take_over(store)] == [("a/b",)]


def test_a_damaged_record_is_removed(store):
    manual_changes.record(store, "apply", pods=["a/b"], units=[])
    (path,) = store.manual_changes.directory.iterdir()
    path.write_text('{"verb": 7}')
    assert store.manual_changes.load() == ()
    assert not path.exists()


ALICE = Account(uid=1000, name="alice")


@pytest.mark.parametrize(
    ("environment", "sudo"),
    [
        ({}, None),
        ({"SUDO_USER": "alice", "SUDO_UID": "1000"}, ALICE),
        ({"SUDO_USER": "alice", "SUDO_UID": "-1"}, Account(uid=None, name="alice")),
        ({"SUDO_USER": "alice", "SUDO_UID": "9" * 5000}, Account(uid=None, name="alice")),
        ({"SUDO_USER": "a" * 5000}, Account(uid=None, name="a" * 256)),
        ({"SUDO_UID": "7"}, Account(uid=7)),
    ],
)
def test_the_environment_of_sudo(monkeypatch, environment, sudo):
    monkeypatch.setattr(manual_log, "read_login_uid", lambda: None)
    assert find_caller(environment) == Caller(sudo=sudo)


@pytest.mark.parametrize(("uid", "name"), [(0, "root"), (2**32 - 7, "")])
def test_the_account_of_the_login(monkeypatch, uid, name):
    monkeypatch.setattr(manual_log, "read_login_uid", lambda: uid)
    assert find_caller({}) == Caller(login=Account(uid=uid, name=name))


def test_the_caller_is_in_the_fields(podslice, memory, web, journal, monkeypatch):
    monkeypatch.setattr(manual_log, "read_login_uid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "alice\n")
    podslice("apply", "-f", web)
    (event,) = journal.all
    assert event.journal_fields["PODSLICE_LOGIN_UID"] == "0"
    assert event.journal_fields["PODSLICE_SUDO_USER"] == "alice\n"
    assert event.journal_fields["PODSLICE_VERB"] == "apply"
    assert event.message.endswith("; podslice apply by root (SUDO_USER=alice\\n)")
