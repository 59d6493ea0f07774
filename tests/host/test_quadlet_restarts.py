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
PREPARE, CRASHES, MISSING, PROBED, WAITS, RUNS = (
    f"podslice-{POD_ID}-{name}.service"
    for name in ("prepare", "crashes", "missing", "probed", "waits", "runs")
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
  - {name: probed, image: app, livenessProbe: {tcpSocket: {port: 80}}}
  - {name: waits, image: app, livenessProbe: {tcpSocket: {port: 80}}}
  - {name: runs, image: app}
"""
FASTER = "[Service]\nRestartSec=10ms\nRestartMaxDelaySec=1s\n"
SLOWER = "[Service]\nRestartSec=1h\nRestartMaxDelaySec=1h\n"
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
    f"{WORK}/web_prepare": "#!/bin/sh\n",
    f"{WORK}/web_crashes": "#!/bin/sh\nexit 1\n",
    f"{WORK}/web_probed": "#!/bin/sh\nexit 1\n",
    f"{WORK}/web_waits": "#!/bin/sh\nexit 1\n",
    f"{WORK}/web_runs": "#!/bin/sh\nexec sleep 100000\n",
    "/etc/podslice/podslice.toml": "capacity = 'cpu=8,memory=32Gi'\n",
    # not of the probing services, which start the containers that they are bound to
    f"/run/systemd/system/podslice-{POD_ID}-.service.d/faster.conf": FASTER,
    f"/run/systemd/system/{POD}.d/faster.conf": FASTER,
    f"/run/systemd/system/{WAITS}.d/slower.conf": SLOWER,
    "/run/systemd/system/boot.target": f"[Unit]\nWants={POD}\n",
    "/web.yaml": MANIFEST,
}
JOB = f"/run/systemd/system/{POD}.d/job.conf"
# As in the quadlets, the job times out in the middle of a delay.
LATER = """
[Unit]
JobRunningTimeoutSec=4s
[Service]
RestartSec=8s
RestartSteps=0
RestartMaxDelaySec=infinity
"""
GENERATOR = "/usr/lib/systemd/system-generators/podman-system-generator"
REMOVE = f"""
rm -rf /run/systemd/system/boot.target /run/systemd/system/podslice-{POD_ID}-.service.d /run/systemd/system/{POD}.d /run/systemd/system/{WAITS}.d /etc/containers {WORK}
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


def messages(box, kind):
    """Return the problems of a kind; a service is one while it waits, and not while it runs."""
    found = json.loads(box.podslice("status", "-o", "json", check=False).stdout)
    return {each["message"].partition(":")[0] for each in found["problems"] if each["kind"] == kind}


def wait_for_delay(box, unit):
    """Wait until a service waits for its start as long as it can, and through such a delay."""
    slowest = {"SubState": "auto-restart", "RestartUSecNext": "1s"}
    agent.until(lambda: show(box, unit, *slowest) == slowest)
    began, before = time.monotonic(), restarts(box, unit)
    agent.until(lambda: restarts(box, unit) >= before + 2)
    assert time.monotonic() - began > 1


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
        for each in (PREPARE, CRASHES, MISSING, PROBED, WAITS, RUNS)
    ]

    # the containers that wait for the pod do not start it before its time
    wait_for_delay(box, POD)
    (message,) = agent.until(lambda: messages(box, "pod-restarting"))
    assert message == "podman cannot keep it active"
    box.run("rm", f"{WORK}/in-use")
    first = until_running(box)

    box.run(
        "systemd-analyze", "security", "--threshold=20", f"podslice-probe-{POD_ID}-probed.service"
    )

    # with a failing process, where podman itself fails, and with a service that probes it
    for unit in (CRASHES, MISSING, PROBED):
        wait_for_delay(box, unit)
        assert restarts(box, unit) > LIMIT
    # none of these restarts ends the delay of another one
    waits = {"SubState": "auto-restart", "NRestarts": "0"}
    assert show(box, WAITS, *waits) == waits
    seen = set()
    agent.until(lambda: (seen.update(messages(box, "container-restarting")), len(seen) == 3)[-1])
    assert {each.split(" ")[1] for each in seen} == {"crashes", "missing", "probed"}

    # a pod that ends takes its containers along, and they return with it
    before = restarts(box, POD)
    box.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", POD)
    agent.until(lambda: restarts(box, POD) > before)
    assert until_running(box) != first

    # a pod that fails delays a target that wants it, and not for ever
    box.run("systemctl", "stop", POD)
    box.put(f"{WORK}/in-use", "")
    box.put(JOB, LATER)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", "boot.target")
    assert agent.is_active(box, "boot.target")
    before = restarts(box, POD)
    agent.until(lambda: restarts(box, POD) > before)
    box.run("rm", f"{WORK}/in-use")
    until_running(box)
