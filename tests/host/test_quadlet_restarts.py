"""Containers and pods that fail: systemd's back-off, with a program in place of podman.

The units are those of podman's generator. Their delays are a hundredth of what they are.
"""

import json
import time

import pytest

from podslice.model.pod import default_uid
from tests.host import agent, podman
from tests.host.scenario import show
from tests.lab.demo import PROGRAM

POD_ID = f"pod{default_uid('default', 'web').replace('-', '_')}"
POD = "web-pod.service"
PREPARE, CRASHES, MISSING, RUNS = (
    f"podslice-{POD_ID}-{name}.service" for name in ("prepare", "crashes", "missing", "runs")
)
MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers:
  - {name: prepare, image: app}
  containers:
  - {name: crashes, image: app}
  - {name: missing, image: app}
  - {name: runs, image: app}
"""
FASTER = "[Service]\nRestartSec=10ms\nRestartMaxDelaySec=1s\n"
LIMIT = 5
"""Starts within 10 s, after which systemd by default starts a unit no more."""
WORK = "/run/fake"
# A container is a file with its command; without one there is no image. A pod is a process, and
# cannot be created while there is a file `in-use`. As with conmon, the container's process is known
# to systemd before it can exit.
FAKE_PODMAN = f"""#!/bin/sh
for word; do
  case $word in
    --version) exec echo podman version 5.4.2 ;;
    --infra-conmon-pidfile=*) pid=${{word#*=}} ;;
    --pod-id-file=*) id=${{word#*=}} ;;
    -d) detached=yes ;;
  esac
done
case "$1 $2" in
  "pod create")
    [ ! -e {WORK}/in-use ] || {{ echo address already in use; exit 125; }}
    echo "$pid" >"$id" ;;
  "pod start") sleep 100000 & echo $! >"$(cat "$id")" ;;
  "run --name")
    [ -e {WORK}/$3 ] || {{ echo no such image; exit 125; }}
    [ "$detached" ] || exec {WORK}/$3
    (while [ -d /proc/$$ ]; do sleep 0.01; done; exec {WORK}/$3) &
    systemd-notify --ready --pid=$! ;;
esac
"""
FILES = {
    "/usr/bin/podman": FAKE_PODMAN,
    "/usr/bin/podslice": PROGRAM,
    f"{WORK}/web-prepare": "#!/bin/sh\n",
    f"{WORK}/web-crashes": "#!/bin/sh\nexit 1\n",
    f"{WORK}/web-runs": "#!/bin/sh\nexec sleep 100000\n",
    "/etc/podslice/podslice.toml": "capacity = 'cpu=8,memory=32Gi'\n",
    "/run/systemd/system/podslice-.service.d/faster.conf": FASTER,
    f"/run/systemd/system/{POD}.d/faster.conf": FASTER,
    "/web.yaml": MANIFEST,
}
GENERATOR = "/usr/lib/systemd/system-generators/podman-system-generator"
REMOVE = f"""
rm -rf /run/systemd/system/podslice-.service.d /run/systemd/system/{POD}.d /etc/containers {WORK}
rm {GENERATOR} {" ".join(path for path in FILES if path.startswith(("/usr", "/etc", "/web")))}
systemctl daemon-reload
"""


@pytest.fixture
def box(clean_namespace, tmp_path):
    """A namespace with podman's generator, and without podman."""
    for path, text in FILES.items():
        clean_namespace.put(path, text, mode=0o755)
    generator = podman.extract_generator(tmp_path)
    clean_namespace.put(GENERATOR, generator.read_bytes(), mode=0o755)
    yield clean_namespace
    clean_namespace.run("systemctl", "stop", POD)
    clean_namespace.run("sh", "-ec", REMOVE)


def restarts(box, unit):
    return int(show(box, unit, "NRestarts")["NRestarts"])


def until_running(box):
    """Wait until the container that does not fail runs; return its invocation."""
    names = ("SubState", "InvocationID")
    found = agent.until(lambda: (now := show(box, RUNS, *names))["SubState"] == "running" and now)
    return found["InvocationID"]


def restarting(box):
    """Yield the containers that `status` reports as restarted again and again."""
    found = json.loads(box.podslice("status", "-o", "json", check=False).stdout)
    for each in found["problems"]:
        if each["kind"] == "container-restarting":
            yield each["message"].split(" ")[1]


def is_slowest(box, unit):
    """Return whether a service waits for its start as long as it can."""
    names = ("SubState", "RestartUSecNext")
    return show(box, unit, *names) == {"SubState": "auto-restart", "RestartUSecNext": "1s"}


def test_what_fails_starts_again_and_again(box):
    box.put(f"{WORK}/in-use", "")
    done = box.podslice("apply", "-f", "/web.yaml", "--start", check=False)
    assert done.exit_code == 1
    failures = [line for line in done.stdout.splitlines() if line.startswith("failed to start")]
    why = f"failed to start {POD} (default/web): it has failed "
    assert failures[0].startswith(why)
    assert failures[0].endswith(
        " times, and systemd continues to restart it; its last message: address already in use"
    )
    assert failures[1:] == [
        f"failed to start {each} (default/web): a service that it requires did not start"
        for each in (PREPARE, CRASHES, MISSING, RUNS)
    ]

    # the containers that wait for the pod do not start it before its time
    agent.until(lambda: is_slowest(box, POD))
    before, began = restarts(box, POD), time.monotonic()
    agent.until(lambda: restarts(box, POD) >= before + 2)
    assert time.monotonic() - began > 1
    found = box.podslice("status", "--problems", check=False).stdout
    assert "pod default/web: podman cannot keep it active: " in found
    assert f"to see why: journalctl -u {POD}" in found
    box.run("rm", f"{WORK}/in-use")
    first = until_running(box)

    # with a failing process, and where podman itself fails
    for unit in (CRASHES, MISSING):
        agent.until(lambda unit=unit: is_slowest(box, unit))
        assert restarts(box, unit) > LIMIT

    seen = set()
    agent.until(lambda: (seen.update(restarting(box)), len(seen) == 2)[-1])
    assert seen == {"crashes", "missing"}

    # a pod that ends takes its containers along, and they return with it
    box.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", POD)
    agent.until(lambda: restarts(box, POD) > before + 2)
    assert until_running(box) != first
