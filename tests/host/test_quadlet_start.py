"""`apply --start`, a change, a failure and `delete`, with podman in a virtual machine."""

import json

import pytest

from podslice.model.pod import default_uid
from podslice.model.unit import control_group_of
from tests.host import podman
from tests.host.podman import IMAGE, LONG_SEC, WAIT
from tests.host.scenario import kernel, show

MI = 2**20
POD_ID = f"pod{default_uid('default', 'web').replace('-', '_')}"
SLICE = f"kubepods-burstable-{POD_ID}.slice"
GROUP = control_group_of(SLICE)
APP, PREPARE, BROKEN = (
    f"podslice-{POD_ID}-{name}.service" for name in ("app", "prepare", "broken")
)
DATA = "/var/lib/containers/storage/volumes/web-data/_data"
MANIFEST = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data: {{mode: fast}}
---
apiVersion: v1
kind: Secret
metadata: {{name: login}}
stringData: {{password: 's3"cr $et%'}}
---
apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  terminationGracePeriodSeconds: 60
  resources: {{limits: {{memory: 256Mi}}}}
  initContainers:
  - name: prepare
    image: {IMAGE}
    command: [sh, -c, 'for each; do echo "<$each>"; done >/data/arguments; env >/data/variables']
    args: [sh, "", ";", a b, "%n", $HOME, $$, $(MODE), quo"te, 'back\\slash', "two\\nlines"]
    env:
    - {{name: MODE, valueFrom: {{configMapKeyRef: {{name: settings, key: mode}}}}}}
    - {{name: PASSWORD, valueFrom: {{secretKeyRef: {{name: login, key: password}}}}}}
    securityContext: {{runAsUser: 1234}}
    volumeMounts: [{{name: data, mountPath: /data}}]
  containers:
  - name: app
    image: {IMAGE}
    command: [sh, -c, 'cat /data/arguments; {WAIT}']
    resources: {{limits: {{memory: 64Mi}}}}
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, emptyDir: {{}}}}]
"""
BROKEN_CONTAINER = """
  - {name: broken, image: "localhost/none:1", imagePullPolicy: Never}
"""


@pytest.fixture
def box(podman_vm):
    yield podman_vm
    podman.clean(podman_vm)


def apply(box, text, *, check=True):
    box.put("/web.yaml", text)
    command = ("apply", "-f", "/web.yaml", "--start")
    return box.podslice(*command, check=check, timeout_sec=LONG_SEC)


def rows(box):
    """The containers and other units of the pod, with their states."""
    found = json.loads(box.podslice("status", "-o", "json").stdout)
    others = {each["unit"]: each["runtime"] for each in found["others"]}
    return others | {
        each["container"]: each["state"] for each in found["units"] if each.get("container")
    }


def test_a_pod_starts_changes_and_is_deleted(box):
    done = apply(box, MANIFEST).stdout.splitlines()
    assert done[-3:-1] == [f"started {each} (default/web)" for each in (PREPARE, APP)]
    assert kernel(box, GROUP, "memory.max") == str(256 * MI)
    assert kernel(box, f"{GROUP}/{APP}", "memory.max") == str(64 * MI)
    assert box.get(f"{DATA}/arguments").decode() == (
        '<>\n<;>\n<a b>\n<%n>\n<$HOME>\n<$>\n<fast>\n<quo"te>\n<back\\slash>\n<two\nlines>\n'
    )
    assert b'PASSWORD=s3"cr $et%\n' in box.get(f"{DATA}/variables")
    assert rows(box) == {"web-pod.service": "podman", "prepare": "exited", "app": "active"}
    started = show(box, APP, "InvocationID"), show(box, "web-pod.service", "InvocationID")

    # new limits restart nothing, and a container that fails prevents no other
    text = MANIFEST.replace("64Mi", "80Mi").replace(
        "  volumes: [{name: d", f"{BROKEN_CONTAINER}  volumes: [{{name: d"
    )
    failed = apply(box, text, check=False)
    assert failed.exit_code == 1
    (line,) = [each for each in failed.stdout.splitlines() if each.startswith("failed to start")]
    assert line.startswith(f"failed to start {BROKEN} (default/web): ")
    assert line.endswith("localhost/none:1: image not known")
    assert kernel(box, f"{GROUP}/{APP}", "memory.max") == str(80 * MI)
    assert started == (
        show(box, APP, "InvocationID"),
        show(box, "web-pod.service", "InvocationID"),
    )

    # what changed restarts, what was removed from the manifest is stopped
    done = apply(box, MANIFEST.replace("cat /data", "test -e /data")).stdout.splitlines()
    assert f"stopped {BROKEN} (default/web): the pod no longer has it" in done
    assert f"stopped {APP} (default/web): its files change" in done
    assert started[0] != show(box, APP, "InvocationID")
    assert started[1] == show(box, "web-pod.service", "InvocationID")

    box.podslice("delete", "web", timeout_sec=LONG_SEC)
    assert box.run("podman", "ps", "--all", "--quiet").stdout == ""
    assert box.run("podman", "volume", "ls", "--quiet").stdout == ""
    listed = box.run(
        "systemctl", "list-units", "--all", "--plain", "--no-legend", "web*", "podslice-*"
    )
    assert listed.stdout == ""
    assert box.podslice("status").stdout == "no pods\n"
