"""Small hosts, each with one peculiarity, and the findings of doctor."""

import pytest

from podslice.errors import HostError, warning
from podslice.features.doctor.facts import SystemdReply
from podslice.features.doctor.findings import FindingState
from podslice.model.node_state import Foreign, Kubelet
from podslice.model.unit import user_manager
from tests.cases.tables import cases
from tests.unit.features.doctor.hosts import LEGACY, PLAIN, ROOT, USER, facts, findings, host


def reply(*, version=257, is_down=False, foreign=None, kubelets=(), claims=()):
    if is_down:
        return SystemdReply(version=None, error="/run/dbus: no such file")
    return SystemdReply(
        version=version,
        foreign=Foreign(**foreign) if foreign else None,
        kubelets=tuple(Kubelet(**each) for each in kubelets),
        claims=tuple(warning(*each) for each in claims),
    )


@cases
def test_finding(case, tmp_path):
    check, state, what, effect, fix = case["finds"]
    subject = USER if "is_user" in case else ROOT
    if "environment" in case:
        subject = subject._replace(manager=user_manager(4711, case["environment"]))
    more = {key: case[key] for key in ("uid", "control_group") if key in case}
    changed = case.get("files", {}) | dict.fromkeys(case.get("missing", ()))
    systemd = reply(**case.get("systemd", {}))
    found = findings(host(tmp_path, changed), subject, systemd, **more)[check]
    assert found.state == state
    assert what in found.what
    assert effect in found.effect
    assert fix in found.fix
    if found.state is not FindingState.OK:
        assert all((found.what, found.effect, found.fix))
        assert not found.fix.endswith(".")


LINGERS = {"var/lib/systemd/linger/4711": ""}


def test_a_plain_host_has_no_problem(tmp_path):
    found = findings(host(tmp_path))
    assert list(found) == [
        "systemd",
        "rights",
        "cgroup",
        "controllers",
        "hugepages",
        "kernel",
        "pressure",
        "swap",
    ]
    assert {each.state for each in found.values()} == {FindingState.OK}
    assert not any(each.effect or each.fix for each in found.values())


def test_a_user_with_all_delegations_has_no_problem(tmp_path):
    found = findings(host(tmp_path, LINGERS), USER)
    grave = {name: each.state for name, each in found.items() if each.state is not FindingState.OK}
    assert grave == dict.fromkeys(("hugepages", "oom-score", "volumes"), FindingState.INFO)


@cases
def test_cgroup_v1_and_hybrid(tmp_path, change, layout):
    found = findings(host(tmp_path, change, base=LEGACY))
    assert (found["cgroup"].state, found["cgroup"].what) == (
        "attention",
        f"{layout}, not cgroup v2",
    )
    assert "MemoryLow, MemoryMin and MemoryHigh do not" in found["cgroup"].effect
    assert "systemd 258 and later require" in found["cgroup"].effect
    assert "systemd.unified_cgroup_hierarchy=1" in found["cgroup"].fix
    assert found["controllers"].state == "ok"
    assert found["hugepages"].state == "info"
    assert (
        "systemd 258" not in findings(tmp_path, systemd=SystemdReply(version=258))["cgroup"].effect
    )


def test_users_have_no_controllers_with_cgroup_v1(tmp_path):
    found = findings(host(tmp_path, base=LEGACY), USER)["controllers"]
    assert (found.state, found.effect) == ("attention", "pods are created without limits")


def test_limits_of_a_user_are_findings(tmp_path):
    found = findings(host(tmp_path), USER)
    assert found["oom-score"].what == "oom_score_adj cannot be below that of the session, 100"
    assert "directories below XDG_RUNTIME_DIR" in found["volumes"].effect


@pytest.mark.parametrize(
    "name", ["proc/meminfo", "proc/sys/kernel/osrelease", "proc/self/oom_score_adj"]
)
def test_a_host_that_can_not_be_read_is_an_error(tmp_path, name):
    root = host(tmp_path, {name: None})
    with pytest.raises(HostError, match=r"this host cannot be read: .*; is /proc mounted\?"):
        facts(root)


def test_a_host_without_a_swap_line_has_no_swap(tmp_path):
    assert facts(host(tmp_path, {"proc/meminfo": "MemTotal: 1 kB\n"})).swap_bytes == 0


def test_the_session_has_the_users_name(tmp_path):
    session = facts(host(tmp_path), USER, manager=user_manager(0, {})).session
    assert session.name == "root"


def test_facts_are_of_the_system_or_of_a_user(tmp_path):
    root = host(tmp_path)
    assert not facts(root, ROOT).manager.is_user
    assert facts(root, USER).manager.is_user
    assert PLAIN["proc/1/comm"].strip() == facts(root).first_process
