"""Existing services in pods: adopted, released, and what becomes of them when the pod is deleted."""

import json

import pytest

from tests.host import users
from tests.host.scenario import BIG, apply, show

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: lg}
spec:
  containers:
  - name: main
    resources: {requests: {cpu: 100m}, limits: {memory: 64Mi}}
"""
SERVICE = "[Service]\nExecStart=sleep infinity\n"
DIRECTORY = "/etc/systemd/system"
DROP_IN = f"{DIRECTORY}/lg.service.d/50-podslice.conf"
SLICE = "kubepods-burstable-podlg.default.slice"
USER_CONFIG = f"/home/{users.NAME}/.config"
INSIDE = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}"

pytestmark = pytest.mark.namespace


@pytest.fixture
def host(clean_machine):
    """A machine with a pod, a service that runs, and a template."""
    machine = clean_machine
    for name in ("lg.service", "job@.service", "own.service"):
        machine.put(f"{DIRECTORY}/{name}", SERVICE)
    machine.put("/tmp/lg.yaml", POD)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "lg.service")
    apply(machine, "-f", "/tmp/lg.yaml", *BIG)
    yield machine
    machine.run("systemctl", "stop", "lg.service", "job@a.service", "own.service")
    stop = f"rm -rf {DIRECTORY}/lg.service* {DIRECTORY}/job@* {DIRECTORY}/own.service*"
    machine.run("sh", "-c", f"{stop}; systemctl daemon-reload")


def place(machine, unit="lg.service"):
    """Return where a service runs."""
    return show(machine, unit, "ControlGroup")["ControlGroup"]


def test_a_service_is_adopted_and_released(host):
    adopted = host.podslice("adopt", "lg", "lg", "job@a", *BIG)
    assert "lg.service runs in /system.slice until it is restarted" in adopted.stdout
    assert place(host) == "/system.slice/lg.service"
    host.run("systemctl", "start", "job@a.service")
    host.podslice("adopt", "lg", "lg", "--restart", *BIG)
    assert place(host) == f"{INSIDE}/lg.service"
    assert place(host, "job@a.service") == f"{INSIDE}/job@a.service"

    # a second apply changes nothing, and the service starts in the pod each time
    assert apply(host, "-f", "/tmp/lg.yaml", *BIG).stdout == "nothing to do\n"
    host.run("systemctl", "restart", "lg.service")
    assert place(host) == f"{INSIDE}/lg.service"

    released = host.podslice("release", "lg", *BIG)
    assert f"lg.service runs in {INSIDE} until it is restarted" in released.stdout
    host.podslice("release", "job@a", "--restart", *BIG)
    assert place(host, "job@a.service").startswith("/system.slice/")
    host.run("systemctl", "restart", "lg.service")
    assert place(host) == "/system.slice/lg.service"

    # a released service that still runs in the pod is stopped with it
    host.podslice("adopt", "lg", "lg", "--restart", *BIG)
    host.podslice("release", "lg", *BIG)
    host.podslice("delete", "lg", "--grace-period=1", *BIG)
    assert show(host, "lg.service", "ActiveState") == {"ActiveState": "inactive"}


def test_a_drop_in_that_has_no_effect_is_refused(host):
    later = f"{DIRECTORY}/lg.service.d/90-own.conf"
    host.put(later, "[Service]\nSlice=own.slice\n")
    host.run("systemctl", "daemon-reload")
    done = host.podslice("adopt", "lg", "lg", *BIG, check=False)
    assert (done.exit_code, f"{later} states Slice=own.slice" in done.stderr) == (2, True)
    with pytest.raises(FileNotFoundError):
        host.get(DROP_IN)
    assert show(host, "lg.service", "Slice") == {"Slice": "own.slice"}


def test_units_that_cannot_be_in_a_pod(host):
    host.run("systemctl", "mask", "--runtime", "masked.service")
    host.run("systemd-run", "--quiet", "--unit=transient", "sleep", "infinity")
    names = ("lg", "nope", "masked", "transient", "job@", "x.timer", "x.slice")
    done = host.podslice("adopt", "lg", *names, *BIG, check=False)
    host.run("systemctl", "unmask", "--runtime", "masked.service")
    host.run("systemctl", "stop", "transient.service")
    assert (done.exit_code, done.stdout) == (2, "")
    said = [line.split(": ")[1:3] for line in done.stderr.splitlines()]
    assert [(unit, text.split(";")[0]) for unit, text in said] == [
        ("nope.service", "there is no such unit"),
        ("masked.service", "it is masked"),
        ("transient.service", "it has no unit file, and its settings end with it"),
        ("job@.service", "it is a template"),
        ("x.timer", "a timer has no processes"),
        ("x.slice", "a slice contains units"),
    ]
    with pytest.raises(FileNotFoundError):
        host.get(DROP_IN)


def test_after_delete_every_service_can_start(host):
    host.podslice("adopt", "lg", "lg", "--restart", *BIG)
    host.put(f"{DIRECTORY}/own.service.d/own.conf", f"[Service]\nSlice={SLICE}\n")
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", "own.service")

    refused = host.podslice("delete", "lg", *BIG, check=False)
    assert (refused.exit_code, place(host)) == (1, f"{INSIDE}/lg.service")
    assert "podslice delete default/lg --restart" in refused.stderr
    assert "podslice release lg.service && systemctl stop lg.service" in refused.stderr

    deleted = host.podslice("delete", "lg", "--restart", "--grace-period=1", *BIG)
    assert "restarted lg.service" in deleted.stdout
    assert f"own.service has Slice={SLICE} from a file" in deleted.stderr
    assert place(host) == "/system.slice/lg.service"
    for unit in ("lg.service", "own.service"):
        host.run("systemctl", "restart", unit)
        assert show(host, unit, "ActiveState") == {"ActiveState": "active"}


def test_a_service_follows_the_class_of_its_pod(host):
    host.podslice("adopt", "lg", "lg", "--restart", *BIG)
    host.put("/tmp/lg.yaml", POD.replace("requests: {cpu: 100m}, limits: {", "limits: {cpu: 1, "))
    refused = apply(host, "-f", "/tmp/lg.yaml", *BIG, check=False)
    assert refused.exit_code == 1
    host.run("systemctl", "stop", "lg.service")
    document = json.loads(apply(host, "-f", "/tmp/lg.yaml", "-o", "json", *BIG).stdout)
    (service,) = document["services"]
    assert (service["action"], service["slice"]) == ("written", "kubepods-podlg.default.slice")
    host.run("systemctl", "start", "lg.service")
    assert place(host) == "/kubepods.slice/kubepods-podlg.default.slice/lg.service"


def test_a_user_adopts_and_releases_a_service(clean_machine):
    machine = clean_machine
    directory = f"{USER_CONFIG}/systemd/user"
    # it starts more often than the limit of starts permits
    machine.put(f"{directory}/lg.service", f"[Unit]\nStartLimitIntervalSec=0\n{SERVICE}")
    machine.put(f"{USER_CONFIG}/podslice/manifests/lg.yaml", POD)
    machine.run("chown", "-R", users.NAME, USER_CONFIG)

    def systemctl(*arguments):
        return users.command(machine, "systemctl", "--user", *arguments).stdout

    def group():
        return systemctl("show", "-P", "ControlGroup", "lg").partition(f"{users.MANAGER}/")[2]

    inside = f"{INSIDE.lstrip('/')}/lg.service\n"
    with users.user_manager(machine) as podslice:
        systemctl("start", "lg")
        podslice("apply", *BIG)
        adopted = podslice("adopt", "lg", "lg", *BIG)
        assert f"{directory}/lg.service.d/50-podslice.conf" in adopted.stdout
        assert "until it is restarted: systemctl --user restart lg.service" in adopted.stdout
        assert group() == "app.slice/lg.service\n"
        systemctl("restart", "lg")
        assert group() == inside
        systemctl("daemon-reload")
        systemctl("restart", "lg")
        assert group() == inside

        refused = podslice("delete", "lg", *BIG, check=False)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "podslice delete --user default/lg --restart" in refused.stderr
        assert "applies it again" not in refused.stderr
        podslice("release", "lg", "--restart", *BIG)
        assert group() == "app.slice/lg.service\n"
        podslice("adopt", "lg", "lg", "--restart", *BIG)
        assert group() == inside
        deleted = podslice("delete", "lg", "--restart", *BIG)
        assert "restarted lg.service" in deleted.stdout
        assert "lg.yaml contains default/lg: the agent applies it again" in deleted.stderr
        assert group() == "app.slice/lg.service\n"
        systemctl("stop", "lg")
    machine.run("rm", "-r", USER_CONFIG)
