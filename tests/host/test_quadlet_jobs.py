"""Jobs and CronJobs: retries, the end, the next boot, and schedules, mostly without podman.

The units are those of podslice and of podman's generator, with a program in place of podman.
"""

import json

import pytest

from tests.host import agent, podman
from tests.host.scenario import show
from tests.host.test_quadlet_restarts import FAKE_PODMAN, GENERATOR, WORK
from tests.lab.demo import PROGRAM

ONCE, AGAIN, CRON, NEXT = (
    f"podslice-job-{name}"
    for name in ("once-0.service", "again-0.service", "tick.service", "tick.timer")
)
REPLACE, TICK = "podslice-replace-tick.service", "podslice-podtick.default-app.service"
MARKS = "/var/lib/podslice/volumes"
MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  backoffLimit: 2
  template:
    spec:
      restartPolicy: Never
      initContainers:
      - {name: prepare, image: app}
      - {name: side, image: app, restartPolicy: Always}
      containers:
      - {name: app, image: app}
      - {name: quick, image: app}
---
apiVersion: batch/v1
kind: Job
metadata: {name: again}
spec:
  backoffLimit: 2
  template:
    spec: {restartPolicy: OnFailure, containers: [{name: app, image: app}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: slow}
spec:
  activeDeadlineSeconds: 1
  template:
    spec: {restartPolicy: Never, containers: [{name: app, image: app}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "0 0 29 2 *"
  concurrencyPolicy: POLICY
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: app, image: app}]}
"""
COUNT = f"#!/bin/sh\necho run >>{WORK}/runs-$(basename $0)\n"
FILES = {
    "/usr/bin/podman": FAKE_PODMAN,
    "/usr/bin/podslice": PROGRAM,
    # without the delays between tries
    "/usr/local/bin/sleep": '#!/bin/sh\n[ "$1" -gt 360 ] && exec /usr/bin/sleep "$@" || exit 0\n',
    f"{WORK}/once-0_prepare": "#!/bin/sh\n",
    f"{WORK}/once-0_side": "#!/bin/sh\nexec sleep 100000\n",
    f"{WORK}/once-0_app": f"{COUNT}[ $(wc -l <{WORK}/runs-once-0_app) -eq 3 ]\n",
    f"{WORK}/once-0_quick": "#!/bin/sh\n",
    f"{WORK}/again-0_app": f"{COUNT}exit 1\n",
    f"{WORK}/slow-0_app": f"{COUNT}exec sleep 100000\n",
    f"{WORK}/tick_app": f"{COUNT}[ ! -e {WORK}/slow ] || exec sleep 100000\n",
    "/etc/podslice/podslice.toml": "capacity = 'cpu=8,memory=32Gi'\n",
    "/run/systemd/system/podslice-podagain_0.default-.service.d/faster.conf": (
        "[Service]\nRestartSec=10ms\nRestartMaxDelaySec=20ms\n"
    ),
}
# in place of the schedule, which systemd does not wait for here
SOON = f"/run/systemd/system/{NEXT}.d/soon.conf"
EACH_SECOND = "[Timer]\nOnCalendar=\nOnCalendar=*-*-* *:*:*\nAccuracySec=1us\n"
LEFT = f"""
find /etc/containers/systemd {MARKS} -type f 2>/dev/null || :
find /etc/systemd/system -name 'podslice-job-*' -o -name 'podslice-replace-*'
"""
REMOVE = f"""
rm -rf /run/systemd/system/podslice-* /etc/containers {WORK} /jobs.yaml
rm {GENERATOR} {" ".join(path for path in FILES if path.startswith(("/usr", "/etc")))}
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
    clean_namespace.run("sh", "-ec", REMOVE)


def apply(box, policy="Forbid"):
    box.put("/jobs.yaml", MANIFEST.replace("POLICY", policy))
    return box.podslice("apply", "-f", "/jobs.yaml", "--start").stdout


def runs(box, container):
    """Return how often a container has started."""
    try:
        return len(box.get(f"{WORK}/runs-{container}").splitlines())
    except FileNotFoundError:
        return 0


def jobs(box):
    """Return the state of each job."""
    found = json.loads(box.podslice("status", "-o", "json", check=False).stdout)
    return {each["pod"].partition("/")[2]: each for each in found["jobs"]}


def states(box):
    return {name: each["state"] for name, each in jobs(box).items()}


def until_slow(box):
    """Let the CronJob take long; wait for a slow run, since a run that began before may be about to end."""
    box.put(f"{WORK}/slow", "")
    before = runs(box, "tick_app")
    agent.until(lambda: runs(box, "tick_app") > before)
    agent.until(lambda: states(box)["tick"] == "running")


def test_jobs_end_and_cron_jobs_run_again_and_again(box):
    apply(box)
    ended = {
        "once-0": "completed",
        "again-0": "failed",
        "slow-0": "failed: deadline exceeded",
        "tick": "waiting",
    }
    agent.until(lambda: states(box) == ended)
    # backoffLimit is 2
    assert [runs(box, f"{each}-0_app") for each in ("once", "again")] == [3, 3]
    assert jobs(box)["tick"]["next_usec"] > jobs(box)["once-0"]["ended_usec"]
    down = {"ActiveState": "inactive"}
    for pod in ("once-0", "again-0", "slow-0", "tick"):
        agent.until(lambda pod=pod: show(box, f"{pod}-pod.service", "ActiveState") == down)

    # neither at boot nor with apply
    box.run("systemctl", "daemon-reload")
    wanted = show(box, "multi-user.target", "Wants")["Wants"].split()
    assert {ONCE, AGAIN} <= set(wanted)
    assert not {"once-0-pod.service", CRON} & set(wanted)
    box.run("systemctl", "start", ONCE, AGAIN)
    assert show(box, ONCE, "ConditionResult") == {"ConditionResult": "no"}
    assert "start" not in apply(box)
    assert [runs(box, f"{each}-0_app") for each in ("once", "again")] == [3, 3]

    # by its schedule, and not while it runs
    box.put(SOON, EACH_SECOND)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "restart", NEXT)
    agent.until(lambda: runs(box, "tick_app") >= 2)
    assert jobs(box)["tick"]["ended_usec"] > 0
    until_slow(box)
    box.run("systemctl", "stop", NEXT)
    running = agent.until(
        lambda: (
            (now := show(box, TICK, "SubState", "InvocationID"))["SubState"] == "running" and now
        )
    )
    box.run("systemctl", "start", CRON)
    assert show(box, TICK, *running) == running

    # a pod that is stopped has not completed
    before = runs(box, "tick_app")
    box.run("systemctl", "stop", "tick-pod.service")
    agent.until(lambda: runs(box, "tick_app") > before)

    # a new run takes the place of the one that continues
    apply(box, "Replace")
    box.run("systemctl", "stop", NEXT)
    box.run("systemctl", "start", CRON)
    agent.until(lambda: states(box)["tick"] == "running")
    before = runs(box, "tick_app")
    box.run("systemctl", "start", REPLACE)
    agent.until(lambda: runs(box, "tick_app") > before)

    box.podslice("delete", "-f", "/jobs.yaml")
    assert box.run("sh", "-ec", LEFT).stdout == ""
    assert not agent.is_active(box, CRON)


RUNS = "/var/tmp/jobs"
OF_PODMAN = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: once}}
spec:
  backoffLimit: 3
  template:
    spec:
      restartPolicy: OnFailure
      hostNetwork: true
      containers:
      - name: app
        image: {podman.IMAGE}
        command: [sh, -c, 'echo run >>/jobs/once; test -e /jobs/failed || {{ touch /jobs/failed; exit 1; }}']
        volumeMounts: [{{name: jobs, mountPath: /jobs}}]
      volumes: [{{name: jobs, hostPath: {{path: {RUNS}}}}}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {{name: tick}}
spec:
  schedule: "0 0 29 2 *"
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          hostNetwork: true
          containers:
          - name: app
            image: {podman.IMAGE}
            command: [sh, -c, 'echo run >>/jobs/tick']
            volumeMounts: [{{name: jobs, mountPath: /jobs}}]
          volumes: [{{name: jobs, hostPath: {{path: {RUNS}}}}}]
"""


@pytest.fixture
def with_podman(clean_podman_namespace):
    yield clean_podman_namespace
    clean_podman_namespace.run("rm", "-rf", RUNS, "/jobs.yaml")


def run_with_podman(box):
    """Let the job fail once and complete, and the CronJob run twice."""
    box.put("/jobs.yaml", OF_PODMAN)
    box.podslice("apply", "-f", "/jobs.yaml", "--start")
    for _ in range(2):
        box.run("systemctl", "start", "--wait", CRON)
    agent.until(lambda: states(box) == {"once-0": "completed", "tick": "completed"})
    assert box.get(f"{RUNS}/once") == box.get(f"{RUNS}/tick") == b"run\n" * 2
    found = json.loads(box.podslice("status", "-o", "json").stdout)
    exits = {each["pod"]: each for each in found["units"] if each.get("container")}
    assert {
        key: (each["state"], each["last_exit"]["exit_code"]) for key, each in exits.items()
    } == {
        "default/once-0": ("exited", 0),
        "default/tick": ("exited", 0),
    }
    assert [each["restarts"] for each in exits.values()] == [1, 0]


def test_jobs_with_podman(with_podman):
    run_with_podman(with_podman)
    with_podman.podslice("delete", "-f", "/jobs.yaml")
    assert with_podman.run("podman", "pod", "ps", "--quiet").stdout == ""
    assert with_podman.run("sh", "-ec", LEFT).stdout == ""
