"""The output of `doctor`, on hosts made of files."""

import json

import pytest
import yaml

from podslice.cli.views.text_width import width_of
from podslice.model.node_state import Kubelet
from podslice.reconcile import world as guard
from podslice.systemd import bus
from tests.unit.cli.test_widths import STYLE, WIDTHS
from tests.unit.features.doctor.hosts import PLAIN, USER_GROUP, program

DRIVER = {"etc/docker/daemon.json": '{"exec-opts": ["native.cgroupdriver=cgroupfs"]}'}


def test_a_host_without_findings_in_full(podslice, memory, machine):
    machine()
    assert podslice("doctor") == (
        0,
        """\
ok  systemd      the service manager is systemd 257
ok  rights       root may change everything
ok  cgroup       cgroup v2
ok  controllers  cpu, memory and pids are available
ok  hugepages    huge pages can be limited; none are allocated on this host
ok  kernel       Linux 6.12.9-amd64
ok  pressure     pressure (PSI) is measured
ok  swap         no swap: a pod at its memory limit releases its caches, or processes are OOM-killed

all checks passed
""",
        "",
    )


def test_findings_that_need_attention_exit_with_3(podslice, memory, machine):
    machine(program("dockerd"), DRIVER, {"proc/pressure/memory": None})
    ended = podslice("doctor")
    assert (ended.code, ended.err) == (3, "")
    assert ended.out.endswith(
        """\
attention  docker       control groups are created by cgroupfs, not by systemd (/etc/docker/daemon.json)
    effect: its containers do not run in pods: a slice as --cgroup-parent is rejected, or taken \
for a directory of that name
    fix: write "exec-opts": ["native.cgroupdriver=systemd"] into /etc/docker/daemon.json, then: \
systemctl restart docker
ok         kernel       Linux 6.12.9-amd64
info       pressure     the kernel does not measure pressure (PSI)
    effect: how long pods wait for CPU, memory and I/O cannot be shown; limits work
    fix: boot with psi=1
ok         swap         no swap: a pod at its memory limit releases its caches, or processes are OOM-killed

need attention: docker
"""
    )


def test_the_machine_interface(podslice, memory, machine):
    machine(program("dockerd"), DRIVER)
    ended = podslice("doctor", "-o", "json")
    assert ended.code == 3
    document = json.loads(ended.out)
    assert list(document) == ["version", "passed", "findings"]
    assert (document["version"], document["passed"]) == (1, False)
    assert document["findings"][0] == {
        "check": "systemd",
        "state": "ok",
        "what": "the service manager is systemd 257",
        "effect": "",
        "fix": "",
    }
    assert [each["check"] for each in document["findings"] if each["state"] != "ok"] == ["docker"]
    assert yaml.safe_load(podslice("doctor", "-o", "yaml").out) == document
    assert podslice("doctor", "-o", "name").out == "docker\n"


def test_infos_do_not_need_attention(podslice, memory, machine):
    machine({"proc/pressure/memory": None})
    ended = podslice("doctor", "-o", "json")
    assert (ended.code, json.loads(ended.out)["passed"]) == (0, True)


def test_a_host_without_systemd_is_a_finding(podslice, no_systemd, machine):
    machine({"proc/1/comm": "init\n"})
    ended = podslice("doctor")
    assert (ended.code, ended.err) == (3, "")
    assert ended.out.startswith("attention  systemd      process 1 is init, not systemd\n")


def test_a_systemd_that_does_not_answer_is_a_finding(podslice, machine, here, monkeypatch):
    class Mute:
        def __init__(self, manager):
            pass

        async def __aenter__(self):
            raise TimeoutError

        async def __aexit__(self, *_):
            pass

    monkeypatch.setattr(bus, "Bus", Mute)
    machine()
    assert "systemd does not answer: no answer within 10 s\n" in podslice("doctor").out


def test_controllers_not_delegated_to_a_user_are_findings(podslice, memory, machine):
    group = USER_GROUP.replace("4711", "0")
    machine({f"{group}/cgroup.controllers": "memory pids\n"})
    ended = podslice("doctor", "--user")
    assert ended.code == 3
    assert "attention  controllers  cpu is not delegated to the user's manager\n" in ended.out
    assert "Delegate=cpu cpuset io memory pids" in ended.out


def test_the_root_of_the_tree_is_the_configured_one(podslice, memory, machine):
    machine({"proc/77/comm": "kubelet\n", "proc/77/status": "Uid:\t0\t0\t0\t0\n"})
    assert podslice("doctor").code == 3
    elsewhere = ("--set", "cgroup-root=/podslice")
    assert podslice("doctor", *elsewhere).code == 3  # both claim all of the memory
    assert podslice("doctor", *elsewhere, "--set=system-reserved=memory=1Gi").code == 0


def test_a_host_that_can_not_be_read_ends_with_1(podslice, memory, machine):
    root = machine()
    (root / "proc/meminfo").unlink()
    ended = podslice("doctor")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: this host cannot be read: ")
    assert ended.err.count("\n") == 1


def test_nothing_is_written(podslice, memory, machine):
    root = machine()
    podslice("doctor")
    podslice("doctor", "--user")
    assert {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} == set(PLAIN)


@pytest.fixture
def beside(here, machine, monkeypatch):
    """A kubelet that has all of the memory; podslice's slice has the weight of any other."""
    machine()
    kubelet = Kubelet(pid=77, name="kubelet")
    monkeypatch.setattr(guard, "find_kubelets", lambda _: iter((kubelet,)))
    for group, values in {
        "kubepods.slice": {"memory.max": "34359738368", "cpu.weight": "313"},
        "podslice.slice": {"cpu.weight": "100"},
        "": {"cgroup.controllers": "cpu memory"},
    }.items():
        (here / "cgroup" / group).mkdir(parents=True, exist_ok=True)
        for name, text in values.items():
            (here / "cgroup" / group / name).write_text(f"{text}\n")


@pytest.mark.usefixtures("beside", "memory")
@pytest.mark.parametrize("root", ["/podslice", "/"])
def test_a_kubelet_that_claims_the_same_node(podslice, web, root):
    claims = [
        "podslice's pods may use 32 GiB of memory, and those of the kubelet 32 GiB",
        "CPUWeight of podslice-kubepods.slice has no effect against the kubelet's pods",
    ]
    remedies = ["systemReserved of the kubelet", "systemctl set-property podslice.slice CPUWeight="]
    option, is_beside = f"--set=cgroup-root={root}", root != "/"
    for verb in (("node", option), ("apply", "-f", web, option)):
        ended = podslice(*verb)
        assert ended.code == (0 if is_beside or verb[0] == "node" else 1)
        for text in (*claims, *remedies):
            assert (text in ended.err) is is_beside
    document = json.loads(podslice("doctor", option, "-o", "json").out)
    found = [each for each in document["findings"] if each["check"] == "kubelet"]
    if is_beside:
        assert [each["state"] for each in found] == ["ok", "attention", "attention"]
        assert all(
            each["what"].startswith(text) for each, text in zip(found[1:], claims, strict=True)
        )
    else:
        assert [each["state"] for each in found] == ["attention"]


def test_findings_are_folded_at_the_terminal_s_width(at_terminal, memory, machine):
    driver = '{"exec-opts": ["native.cgroupdriver=cgroupfs"]}'
    machine(program("dockerd"), {"etc/docker/daemon.json": driver})
    for width in WIDTHS:
        lines = [STYLE.sub("", line) for line in at_terminal(width, "doctor")]
        assert "".join(lines).count("control groups are created by") == 1
        assert max(map(width_of, lines)) <= width


def test_doctor_reports_the_configuration(applied, podslice, machine):
    machine()
    ended = podslice("doctor", "-o", "json")
    found = json.loads(ended.out)
    (finding,) = (each for each in found["findings"] if each["check"] == "configuration")
    assert (ended.code, finding["state"]) == (3, "attention")
    assert finding["what"] == "3 problems in the configuration files"
    assert len(found["configuration"]["problems"]) == 3
