"""The findings of doctor on real machines, and the effect of its fixes."""

import json

import pytest

from tests.host import users
from tests.host.scenario import BIG, apply
from tests.lab.recipe import USER_ID

DROP_IN = "/etc/systemd/system/user@.service.d/podslice.conf"
POOL = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
ROOT_GROUP = "/sys/fs/cgroup/cgroup.subtree_control"


def findings_by_check(result):
    """Return the findings of `-o json` by their check, and check the rest of the document."""
    assert result.stderr == ""
    document = json.loads(result.stdout)
    found = {each["check"]: each for each in document["findings"]}
    grave = [name for name, each in found.items() if each["state"] == "attention"]
    assert (document["version"], document["passed"]) == (1, not grave)
    assert result.exit_code == (3 if grave else 0)
    return found


def examined(machine):
    return findings_by_check(machine.podslice("doctor", "-o", "json", check=False))


def test_findings_match_the_machine(clean_machine):
    machine = clean_machine
    found = examined(machine)
    assert found["systemd"]["what"] == f"the service manager is systemd {machine.systemd_version}"
    assert found["rights"]["state"] == "ok"
    is_v2 = machine.cgroup_version == 2
    assert found["cgroup"]["state"] == ("ok" if is_v2 else "attention")
    assert found["controllers"]["state"] == "ok"
    kernel = machine.run("uname", "-r").stdout.strip()
    assert found["kernel"]["what"] == f"Linux {kernel}"
    assert "kubelet" not in found
    assert all(each["effect"] and each["fix"] for each in found.values() if each["state"] != "ok")
    if is_v2:
        assert not [name for name, each in found.items() if each["state"] == "attention"]
        apply(machine, "-f", "/src/examples/seeds/ide.yaml", *BIG)
        what = examined(machine)["controllers"]["what"]
        assert what == "cpu, memory and pids are available, also in kubepods.slice"


@pytest.mark.namespace
def test_drivers_other_than_systemd_are_found(clean_machine):
    machine = clean_machine
    files = {
        "/usr/local/bin/podman": "#!/bin/sh\n",
        "/usr/local/sbin/dockerd": "#!/bin/sh\n",
        "/usr/local/bin/crio": "#!/bin/sh\n",
        "/etc/containers/containers.conf.d/99-test.conf": '[engine]\ncgroup_manager = "cgroupfs"\n',
        "/etc/docker/daemon.json": '{"exec-opts": ["native.cgroupdriver=cgroupfs"]}',
    }
    try:
        for path, text in files.items():
            machine.put(path, text, 0o755)
        found = examined(machine)
    finally:
        machine.run("rm", "-f", *files)
    assert found["docker"]["state"] == found["podman"]["state"] == "attention"
    assert "(/etc/docker/daemon.json)" in found["docker"]["what"]
    assert "(/etc/containers/containers.conf.d/99-test.conf)" in found["podman"]["what"]
    assert found["cri-o"]["state"] == "ok"
    assert "docker" not in examined(machine)


@pytest.mark.cgroup2
def test_the_fix_for_huge_pages_works(clean_machine):
    machine = clean_machine
    machine.run("sh", "-c", f"echo 4 > {POOL}; echo -hugetlb > {ROOT_GROUP}")
    try:
        found = examined(machine)["hugepages"]
        assert (found["state"], found["what"]) == (
            "attention",
            "the hugetlb controller is not enabled below /; 4 are allocated on this host",
        )
        now, _, at_boot = found["fix"].partition("; and for every boot: ")
        machine.run("sh", "-c", now)
        assert examined(machine)["hugepages"]["state"] == "ok"
        # the fix at boot works as well
        machine.run("sh", "-c", f"{at_boot}; echo -hugetlb > {ROOT_GROUP}")
        machine.run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/hugetlb.conf")
        assert examined(machine)["hugepages"]["state"] == "ok"
    finally:
        machine.run("rm", "-f", "/etc/tmpfiles.d/hugetlb.conf")
        machine.run("sh", "-c", f"echo 0 > {POOL}; echo -hugetlb > {ROOT_GROUP}")


@pytest.mark.cgroup2
def test_the_fix_for_delegation_works(machine):
    less = "[Service]\nDelegate=\nDelegate=pids\n"
    machine.put(DROP_IN.replace("podslice.conf", "00-less.conf"), less)
    machine.run("systemctl", "daemon-reload")
    try:
        with users.user_manager(machine) as podslice:
            found = findings_by_check(podslice("doctor", "-o", "json", check=False))["controllers"]
            assert found["what"] == "cpu is not delegated to the user's manager"
            command, _, login = found["fix"].removeprefix("as root: ").partition("; then ")
            assert "log in" in login
            machine.run("sh", "-c", command)
            machine.run("systemctl", "restart", users.MANAGER)
            found = findings_by_check(podslice("doctor", "-o", "json"))
            assert found["controllers"]["state"] == "ok"
            assert "cpuset and io are delegated" in found["controllers"]["what"]
            assert found["session"]["state"] == "info"
            assert found["systemd"]["what"] == (
                f"the user's manager is systemd {machine.systemd_version}"
            )
    finally:
        machine.run("rm", "-rf", DROP_IN.rpartition("/")[0])
        machine.run("systemctl", "daemon-reload")


@pytest.mark.namespace
def test_a_user_without_a_session_is_reported(machine):
    found = findings_by_check(
        users.podslice(machine, "doctor", "--user", "-o", "json", check=False)
    )
    assert found["session"]["state"] == found["systemd"]["state"] == "attention"
    assert "loginctl enable-linger lab" in found["session"]["fix"]


@pytest.mark.namespace
def test_any_user_may_run_it_and_nothing_is_written(clean_machine):
    machine = clean_machine
    mark = "/run/before-doctor"
    machine.run("touch", mark)
    found = findings_by_check(users.podslice(machine, "doctor", "-o", "json", check=False))
    written = machine.run("find", "/run", "/etc", "/var", "/tmp", "-xdev", "-newer", mark)
    machine.run("rm", mark)
    assert found["rights"] == {
        "check": "rights",
        "state": "info",
        "what": "user 1000 is not root",
        "effect": "verbs that read work; those that change something fail",
        "fix": "run these as root, or use --user",
    }
    # not /run/user itself, which changes when logind ends the session of a previous test
    places = ("podslice", f"/run/user/{USER_ID}/")
    ours = [path for path in written.stdout.split() if any(place in path for place in places)]
    assert ours == []
