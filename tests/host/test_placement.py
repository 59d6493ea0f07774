"""The placement check on a real systemd: processes inside, empty containers, processes elsewhere."""

import json

import pytest

from tests.host import crowd
from tests.host.scenario import BIG, apply
from tests.lab import fixtures
from tests.lab.machine import START_SERVICE

SITE = """\
apiVersion: v1
kind: Pod
metadata: {name: site, namespace: shop, uid: site}
spec:
  containers:
  - {name: web, resources: {requests: {cpu: 100m}}}
  - {name: log}
"""
SLICE = "kubepods-burstable-podsite.slice"
GROUP = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}"
WEB = "podslice-podsite-web.scope"
# reports when it is up
ELSEWHERE = f"systemd-run --scope --unit={WEB} sh -c 'echo >/tmp/up; exec sleep 1000'"


def prepare(machine):
    machine.put("/tmp/site.yaml", SITE)
    apply(machine, "-f", "/tmp/site.yaml", *BIG)
    return machine


@pytest.fixture
def site(clean_machine):
    """A machine with a pod of two containers."""
    return prepare(clean_machine)


def status(machine, *arguments):
    """Return the document and the exit code."""
    done = machine.podslice("status", "-o", "json", *arguments, *BIG, check=False)
    return json.loads(done.stdout), done.exit_code


@pytest.fixture
def site_in_namespace(namespace):
    """The same, for tests in which only names and locations matter."""
    for machine in fixtures.keep_clean(namespace):
        yield prepare(machine)


@pytest.mark.namespace
@pytest.mark.newest
def test_processes_inside_and_empty_containers_are_shown(site):
    inside, deep = crowd.start(site, 1000, 1000)
    site.podslice("adopt", "shop/site", "-c", "web", f"{inside}", f"{deep}", *BIG)
    # as crun does with containers that it starts
    below = "/sys/fs/cgroup/systemd" if site.cgroup_version == 1 else "/sys/fs/cgroup"
    below = f"{below}{GROUP}/{WEB}/container"
    site.run("sh", "-c", f"mkdir {below} && echo {deep} > {below}/cgroup.procs")
    site.run(*START_SERVICE, f"--slice={SLICE}", "--unit=helper", "sleep", "1000")

    seen, code = status(site)
    assert code == 0
    held = {unit["container"]: unit for unit in seen["units"] if "container" in unit}
    assert held["web"]["processes"] == [
        {"pid": pid, "name": "sleep"} for pid in sorted((inside, deep))
    ]
    assert held["web"]["state"] == "active"
    assert (held["log"]["processes"], held["log"]["state"]) == ([], "not started")
    (other,) = seen["others"]
    assert (other["unit"], other["pod"]) == ("helper.service", "shop/site")
    assert [process["name"] for process in other["processes"]] == ["sleep"]
    assert seen["strays"] == []

    head, *lines = site.podslice("tree", *BIG).stdout.splitlines()
    tree = [line[: head.index("USED")].rstrip() for line in lines]
    first, last = sorted((inside, deep))
    assert tree[2:] == [
        "│  └─ shop/site Burstable",
        "│     ├─ web",
        f"│     │  ├─ {first} sleep",
        f"│     │  └─ {last} sleep",
        "│     ├─ log",
        "│     └─ helper.service",
        f"│        └─ {other['processes'][0]['pid']} sleep",
        "└─ kubepods-besteffort.slice",
    ]

    (outside,) = crowd.start(site, 1000)
    asked = [f"--pid={pid}" for pid in (inside, outside, 2**22)]
    seen, code = status(site, *asked)
    assert code == 3
    assert [each["pod"] for each in seen["processes"]] == ["shop/site", None, None]
    seen, code = status(site, asked[0])
    assert code == 0
    assert seen["processes"] == [
        {
            "pid": inside,
            "name": "sleep",
            "pod": "shop/site",
            "container": "web",
            "unit": WEB,
            "control_group": f"{GROUP}/{WEB}",
            "hint": "",
        }
    ]
    crowd.end(site, [outside])


# how the unprivileged process of a service with a delegated group moves itself below a group whose
# name contains a line break for Python, followed by a line with the name of the pod
FORGE = f"""\
line=$(printf 'x\\f0::')
mkdir -p "$1/$line{GROUP}/{WEB}"
echo $$ > "$1/$line{GROUP}/{WEB}/cgroup.procs"
echo > /tmp/up
exec sleep 1000
"""


@pytest.mark.namespace
@pytest.mark.newest
def test_a_user_cannot_forge_the_location_of_a_process(site):
    site.put("/tmp/forge", FORGE)
    mount = "/sys/fs/cgroup/systemd" if site.cgroup_version == 1 else "/sys/fs/cgroup"
    service = ("systemd-run", "--unit=eve", "--uid=nobody", "--property=Delegate=yes")
    site.run("sh", "-c", "rm -f /tmp/up; mkfifo -m 666 /tmp/up")
    site.run(*service, "sh", "/tmp/forge", f"{mount}/system.slice/eve.service")
    site.run("sh", "-c", "read _ </tmp/up; rm /tmp/up")
    pid = int(site.run("systemctl", "show", "--property=MainPID", "--value", "eve").stdout)

    seen, code = status(site, f"--pid={pid}")
    (process,) = seen["processes"]
    assert (code, process["pod"], process["container"]) == (3, None, None)
    assert process["control_group"] == f"/system.slice/eve.service/x\\x0c0::{GROUP}/{WEB}"

    site.podslice("adopt", "shop/site", "-c", "web", f"{pid}", *BIG)
    seen, code = status(site, f"--pid={pid}")
    (process,) = seen["processes"]
    assert (code, process["pod"], process["container"]) == (0, "shop/site", "web")
    assert process["control_group"] == f"{GROUP}/{WEB}"
    crowd.end(site, [pid])


def test_processes_elsewhere_are_shown(site_in_namespace):
    site = site_in_namespace
    quietly = f"{ELSEWHERE} </dev/null >/dev/null 2>&1"
    site.run("sh", "-c", f"rm -f /tmp/up; mkfifo /tmp/up; {quietly} & read _ </tmp/up; rm /tmp/up")
    seen, code = status(site)
    assert code == 3
    held = {unit["container"]: unit for unit in seen["units"] if "container" in unit}
    assert (held["web"]["state"], held["web"]["differs"]) == ("elsewhere", True)
    (stray,) = seen["strays"]
    pid = stray.pop("pid")
    assert crowd.look(site, [pid])[pid][0] == f"/system.slice/{WEB}"
    assert stray == {
        "pod": "shop/site",
        "container": "web",
        "what": WEB,
        "found_by": "unit name",
        "name": "sleep",
        "control_group": f"/system.slice/{WEB}",
        "hint": f"to stop it: systemctl stop {WEB}; then start it again: podslice run shop/site -c web"
        " -- COMMAND",
    }
    line = site.podslice("status", *BIG, check=False).stdout.splitlines()[-4]
    assert line.startswith(f"pod shop/site: container web: {WEB} (")
    assert "runs in /system.slice, outside of the pod" in line

    # no process joins it there, and once it is removed as the hint advises, nothing is reported
    said = site.podslice("adopt", "shop/site", "-c", "web", "1", *BIG, check=False)
    assert (said.exit_code, said.stdout) == (1, "")
    assert f"stop it first: systemctl stop {WEB}" in said.stderr
    site.run("systemctl", "stop", WEB)
    assert status(site)[1] == 0
