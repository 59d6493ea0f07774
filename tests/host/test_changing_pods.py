"""Changes of pods with running processes, on cgroup v2."""

import pytest

from tests.host.scenario import BIG, apply, kernel

MI = 2**20
SLICE = "kubepods-burstable-podshop.slice"
GROUP = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}"
SCOPE = "podslice-podshop-app.scope"
NEIGHBOUR = "podslice-podother-app.scope"

# as much anonymous memory as page cache, which stays allocated
HOLD = """\
import os, signal
held = bytearray(40 << 20)
with open("/var/tmp/podslice-pages", "wb") as file:
    for _ in range(40):
        file.write(bytes(1 << 20))
    file.flush()
    os.fsync(file.fileno())
open("/tmp/up", "w").close()
signal.pause()
"""


def write(machine, pod, container):
    """Return a pod and its container with these limits, and another pod."""
    machine.put(
        "/tmp/shop.yaml",
        f"""\
apiVersion: v1
kind: Pod
metadata: {{name: shop, uid: shop}}
spec:
  resources: {{requests: {{memory: 4Mi}}, limits: {{memory: {pod}}}}}
  containers:
  - {{name: app, resources: {{requests: {{memory: 4Mi}}, limits: {{memory: {container}}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: other, uid: other}}
spec:
  containers:
  - {{name: app, resources: {{requests: {{memory: 4Mi}}}}}}
""",
    )


@pytest.fixture
def shop(clean_vm):
    """A machine in which the container `app` uses 40 MiB, and as much of the page cache."""
    write(clean_vm, "256Mi", "256Mi")
    apply(clean_vm, "-f", "/tmp/shop.yaml", *BIG)
    scope = ("systemd-run", "--quiet", "--scope", "-p", "Delegate=yes")
    other = (f"--unit={NEIGHBOUR}", "--slice=kubepods-burstable-podother.slice", "sleep", "1000")
    clean_vm.spawn(*scope, *other)
    app = (f"--unit={SCOPE}", f"--slice={SLICE}", "python3", "-c", HOLD)
    clean_vm.spawn(*scope, *app)
    until = f"until [ -e /tmp/up ] && systemctl -q is-active {NEIGHBOUR}; do sleep 0.1; done"
    clean_vm.run("sh", "-c", until)
    yield clean_vm
    clean_vm.run("rm", "-f", "/tmp/up", "/var/tmp/podslice-pages")


def change(machine, pod, container, *how, verb="apply"):
    write(machine, pod, container)
    return machine.podslice(verb, "-f", "/tmp/shop.yaml", *BIG, *how, check=False)


def limits(machine):
    """Return `memory.max` of the pod and its container, and `memory.high` of the pod."""
    scope = f"{GROUP}/{SCOPE}"
    places = ((GROUP, "memory.max"), (scope, "memory.max"), (GROUP, "memory.high"))
    return tuple(kernel(machine, group, file) for group, file in places)


def names_of(result):
    """Return the changed units of the pod, in order."""
    units = [SLICE, SCOPE]
    lines = result.stdout.splitlines()
    return [unit for line in lines for unit in units if f" on {unit} " in line]


def test_a_running_pod_is_shrunk_and_grown(shop):
    planned = change(shop, "64Mi", "60Mi", verb="plan").stdout
    for unit in (SCOPE, SLICE):
        (line,) = [line for line in planned.splitlines() if f" on {unit} (default/shop)" in line]
        assert line.endswith(" in use, reclaimed first through MemoryHigh")

    # page cache is reclaimed: the limits are set, from the container upwards
    shrunk = change(shop, "64Mi", "60Mi")
    assert (shrunk.exit_code, names_of(shrunk)) == (0, [SCOPE, SLICE])
    assert limits(shop) == (str(64 * MI), str(60 * MI), "max")

    # from the pod downwards
    grown = change(shop, "128Mi", "96Mi")
    assert (grown.exit_code, names_of(grown)) == (0, [SLICE, SCOPE])
    assert limits(shop) == (str(128 * MI), str(96 * MI), "max")

    # anonymous memory cannot be reclaimed: nothing changes
    refused = change(shop, "32Mi", "32Mi")
    assert refused.exit_code == 1
    (line,) = [line for line in refused.stdout.splitlines() if f" on {SLICE} " in line]
    assert line.startswith("failed to set MemoryMax=32Mi (was 128Mi) on ")
    assert "MiB are in use and can't be reclaimed, above the limit of 32 MiB" in line
    assert "--force" in line
    assert limits(shop) == (str(128 * MI), str(96 * MI), "max")
    assert is_active(shop, SCOPE)

    # --force sets the limits nevertheless; the kernel kills in this pod only
    forced = change(shop, "32Mi", "32Mi", "--force")
    assert forced.exit_code == 0
    assert kernel(shop, GROUP, "memory.max") == str(32 * MI)
    assert "oom_kill 1" in kernel(shop, GROUP, "memory.events").splitlines()
    assert is_active(shop, NEIGHBOUR)


def is_active(machine, unit):
    return machine.run("systemctl", "is-active", unit, check=False).stdout == "active\n"
