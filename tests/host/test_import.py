"""`import` on a real systemd: services with settings move into a pod and keep their properties."""

import json

import pytest

from tests.host.scenario import BIG, apply, show
from tests.lab import fixtures

STEM = "podlabimport"
WEB, NIGHT, ONE = f"{STEM}-web.service", f"{STEM}-night.service", f"{STEM}@one.service"
SHOP = f"{STEM}.slice"
FILES = {
    WEB: """\
[Service]
ExecStart=sleep 1000
CPUWeight=50
CPUQuota=60%
MemoryMax=64M
MemoryHigh=48M
TasksMax=100
IOWeight=50
""",
    # never started
    NIGHT: f"[Service]\nType=oneshot\nExecStart=true\nSlice={SHOP}\nMemoryMax=32M\n",
    f"{STEM}@.service": f"[Service]\nExecStart=sleep 1000\nSlice={SHOP}\nMemoryLow=1M\n",
    SHOP: "[Slice]\nCPUWeight=200\nMemoryMax=128M\nIOWeight=50\n",
}
TAKEN = ("CPUWeight", "CPUQuotaPerSecUSec", "MemoryMax")
KEPT = ("MemoryHigh", "TasksMax", "IOWeight")


@pytest.fixture
def services(namespace):
    """A machine with services that have settings, two of them started."""
    for machine in fixtures.keep_clean(namespace):
        for name, text in FILES.items():
            machine.put(f"/etc/systemd/system/{name}", text)
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", WEB, ONE)
        yield machine
        machine.run("sh", "-c", f"systemctl stop '{STEM}*.service' {SHOP}")
        machine.run("sh", "-c", f"rm -r /etc/systemd/system/{STEM}*")
        machine.run("systemctl", "daemon-reload")


def imported(machine, *arguments):
    """Return the document of an import, and apply its manifest."""
    (pod,) = json.loads(machine.podslice("import", *arguments, "-o", "json", *BIG).stdout)["pods"]
    text = machine.podslice("import", *arguments, *BIG).stdout
    machine.put("/tmp/imported.yaml", text)
    checked = machine.podslice("check", "-f", "/tmp/imported.yaml", *BIG)
    assert checked.stdout == "1 pod, 0 errors, 0 warnings\n"
    apply(machine, "-f", "/tmp/imported.yaml", *BIG)
    return pod


def place(machine, container):
    """Write a container's drop-in, and restart the service."""
    unit = container["from"]
    lines = "\n".join(container["lines"])
    machine.put(f"/etc/systemd/system/{unit}.d/podslice.conf", f"{lines}\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", unit)


def test_a_service_keeps_its_settings_in_the_pod(services):
    before = show(services, WEB, *TAKEN, *KEPT)
    pod = imported(services, WEB)
    (container,) = pod["containers"]
    assert (container["from"], container["mover"]) == (WEB, "drop-in")
    assert container["not_imported"] == ["IOWeight=50", "MemoryHigh=48Mi", "TasksMax=100"]
    place(services, container)
    assert show(services, WEB, *TAKEN, *KEPT) == before
    after = show(services, WEB, "Slice", "ActiveState")
    assert after == {"Slice": pod["slice"], "ActiveState": "active"}
    # the pod has one container, so that its slice has the same limits
    taken = {name: before[name] for name in TAKEN}
    assert show(services, pod["slice"], *TAKEN) == taken
    ended = services.podslice("import", WEB, *BIG, check=False)
    assert (ended.exit_code, ended.stderr) == (
        2,
        f"error: {WEB}: it is in a pod; see: podslice status\n",
    )


def test_a_slice_becomes_a_pod_with_its_units(services):
    # loaded by a reference only
    services.run("systemctl", "show", NIGHT)
    pod = imported(services, "--slice", SHOP, NIGHT)
    found = {each["from"]: each for each in pod["containers"]}
    assert found.keys() == {NIGHT, ONE}
    assert pod["not_imported"] == ["IOWeight=50"]
    for container in found.values():
        place(services, container)
    assert show(services, ONE, "Slice", "MemoryLow") == {
        "Slice": pod["slice"],
        "MemoryLow": "1048576",
    }
    assert show(services, NIGHT, "Slice", "MemoryMax") == {
        "Slice": pod["slice"],
        "MemoryMax": str(32 * 2**20),
    }
    assert show(services, pod["slice"], "CPUWeight", "MemoryMax") == {
        "CPUWeight": "200",
        "MemoryMax": str(128 * 2**20),
    }
