"""What a play stops, refuses and reports: the module `pods` and the role, on single hosts."""

import json

import pytest

from tests.fleet.hosts import ADMIN
from tests.fleet.test_site import slice_of

MANIFEST = "/etc/podslice/manifests/fleet.yaml"
# refuses logins while system.slice has a limit, as one does that is too low
GATE = "/usr/local/sbin/gate"
PAM = "/etc/pam.d/sshd"
GATE_SCRIPT = """\
#!/bin/sh
[ "$(systemctl show --value --property=MemoryMax system.slice)" != infinity ] || exit 0
echo refused >>/run/refused
exit 1
"""
RESERVED = {
    "system-reserved": {"cpu": "500m", "memory": "1Gi"},
    "system-reserved-cgroup": "/system.slice",
    "enforce-node-allocatable": ["pods", "system-reserved"],
}
CONFIRM_SEC = 30


def pod(name):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "64Mi"}}}]},
    }


def play(*tasks, hosts="web1", become=True, **more):
    """Return a play with tasks: pairs of a module of the collection and its options."""
    listed = [{f"podslice.host.{name}": options} for name, options in tasks]
    return {"hosts": hosts, "become": become, "gather_facts": False, "tasks": listed, **more}


@pytest.fixture(scope="module")
def web1(controller, fleet):
    controller.take_example()
    rows = {"web": {"web1": {}}, "build": {"build1": {}}, "gone": {"gone1": {}}}
    controller.inventory(rows)
    return fleet["web1"]


def kept(*names, **more):
    return ("pods", {"definition": [pod(name) for name in names], "file": "fleet", **more})


@pytest.fixture(scope="module")
def busy(web1, controller):
    """A host with two pods, of which one has a process; and the result of the play."""
    ran = controller.play([play(kept("a", "b"))])
    assert ran.code == 0, ran.output
    web1.sh("podslice run b -c main --detach -- sleep inf")
    return web1


def test_prune_names_the_processes_and_stops_none(busy, controller):
    before = busy.observe()
    ran = controller.play([play(kept("a", prune=True))])
    assert ran.code == 2, ran.output
    (result,) = ran.results("web1")
    assert "set 'allow_stop: true'" in result["msg"]
    assert "(pod default/b" in result["msg"]
    assert "sleep" in result["msg"]
    assert busy.observe() == before
    busy.sh("pgrep -x sleep")


def test_allow_stop_stops_and_reports_them(busy, controller):
    ran = controller.play([play(kept("a", prune=True, allow_stop=True))])
    assert ran.code == 0, ran.output
    (result,) = ran.results("web1")
    assert result["changed"]
    (stop,) = result["stopped"]
    assert "sleep" in stop["processes"][0]
    assert set(result["slices"]) == {"default/a"}
    assert "  name: b" not in busy.sh(f"cat {MANIFEST}")
    assert busy.run("pgrep", "-x", "sleep", check=False).exit_code == 1


def test_an_unreachable_host_does_not_stop_the_others(busy, controller):
    ran = controller.play([play(kept("a", "c"), hosts="web:gone")])
    assert ran.code == 4, ran.output
    assert ran.stats["gone1"]["unreachable"] == 1
    assert ran.changed()["web1"] == 1
    assert slice_of(busy, "c")


def test_an_old_command_line_is_reported(busy, controller):
    busy.machine.put("/usr/local/bin/old", "#!/bin/sh\necho podslice 0.0.9\n", mode=0o755)
    ran = controller.play([play(kept("d", executable="/usr/local/bin/old"))])
    assert ran.code == 2, ran.output
    (result,) = ran.results("web1")
    assert result["msg"].startswith("podslice 0.0.9 (/usr/local/bin/old) is too old")
    assert result["podslice_version"] == "0.0.9"


def test_pods_of_a_user(web1, controller):
    web1.run("loginctl", "enable-linger", ADMIN)
    task = ("pods", {"definition": pod("own")})
    info = ("info", {"gather": ["pods", "status"]})
    defaults = {"group/podslice.host.podslice": {"scope": "user"}}
    ran = controller.play([play(task, task, info, become=False, module_defaults=defaults)])
    assert ran.code == 0, ran.output
    first, second, found = ran.results("web1")
    assert (first["changed"], second["changed"]) == (True, False)
    assert first["file"] == f"/home/{ADMIN}/.config/podslice/manifests/own.yaml"
    unit = first["slices"]["default/own"]
    assert found["pods"]["default/own"]["slice"] == unit
    # below the user's manager, and not among those of the system
    uid = web1.sh(f"id -u {ADMIN}").strip()
    shown = web1.sh(f"systemctl --user -M {ADMIN}@ show -P ControlGroup {unit}").strip()
    assert f"/user@{uid}.service/" in shown
    assert web1.show(unit, "ActiveState") == "inactive"


@pytest.fixture
def gated(web1):
    """A host that refuses logins while system.slice has a limit."""
    web1.reset()
    old = web1.machine.get(PAM)
    web1.machine.put(GATE, GATE_SCRIPT, mode=0o755)
    web1.machine.put(PAM, f"account required pam_exec.so {GATE}\n".encode() + old)
    yield web1
    web1.machine.put(PAM, old)


def test_values_that_prevent_a_login_return_by_themselves(gated, controller):
    controller.inventory({"web": {"web1": {}}})
    variables = {
        "podslice_install": "none",
        "podslice_settings": RESERVED,
        "podslice_confirm_seconds": CONFIRM_SEC,
    }
    ran = controller.play("site.yml", "--extra-vars", json.dumps(variables))
    assert ran.code == 2, ran.output
    (result,) = ran.results("web1", "Reserve resources")
    assert (result["confirmed"], result["reverted"]) == (False, True), result["msg"]
    assert "system.slice" in result["msg"]
    # a login was tried while the values were set
    assert "refused" in gated.sh("cat /run/refused")
    assert gated.show("system.slice", "MemoryMax") == "infinity"
    # neither the next boot nor the next run of podslice sets them again
    assert "50-ansible" not in gated.sh("ls /etc/podslice/podslice.toml.d")
    assert not ran.results("web1", "Apply pods")
