"""Jobs and CronJobs: their scripts with a program in place of systemctl, their steps and their files."""

import asyncio
import os
import subprocess
from datetime import datetime
from types import SimpleNamespace

import pytest

from podslice.cli.views import status_view
from podslice.cli.views.style import Display
from podslice.features.quadlet import status
from podslice.features.quadlet.files import Directories, read_installed, remove_file, write_quadlets
from podslice.features.quadlet.jobs import _END, _RUN
from podslice.features.quadlet.status import find_jobs
from podslice.features.quadlet.transition import steps_to_keep, steps_to_remove
from podslice.kernel.programs import NoAnswerError
from podslice.model.naming import is_reserved
from podslice.model.node_state import JobState
from podslice.model.unit import SYSTEM
from podslice.plan import Action
from tests.cases.quadlets import made_of_text as made

# each start takes the next line of `tries`: its exit code, whether a container has failed and how often
# one has restarted, and the state of the pod; `busy` counts the looks at containers that restart
SYSTEMCTL = """#!/bin/sh
cd "$(dirname "$0")" || exit
echo "$*" >>calls
[ "$1" = start ] && { head -n 1 tries >now; sed -i 1d tries; }
[ ! -e now ] || read -r code failed restarts pod <now
case "$*" in
  start*) exit $code ;;
  "is-active once-0-pod.service") echo $pod ;;
  is-active*) echo inactive; [ ! -s busy ] || { tail -n 1 busy; sed -i '$d' busy; } ;;
  list-jobs*) cat jobs ;;
  show*) echo NRestarts=0; echo NRestarts=$restarts ;;
  is-failed*) [ $failed = yes ] ;;
esac
"""


@pytest.fixture
def run(tmp_path, allow_effects):
    """A function that runs a script; it returns the exit code, the calls, the mark and the delays."""
    programs = {"systemctl": SYSTEMCTL, "date": "#!/bin/sh\necho $1 of now\n"}
    programs |= {"sleep": f"#!/bin/sh\necho $1 >>{tmp_path}/delays\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    mark = tmp_path / "volumes/default_once-0/job_1"

    def read(name):
        file = tmp_path / name
        return file.read_text().splitlines() if file.exists() else []

    def run_script(script, *arguments, tries=(), jobs="", busy="", **environment):
        (tmp_path / "tries").write_text("".join(f"{each}\n" for each in tries))
        for name, text in (("jobs", jobs), ("busy", busy)):
            (tmp_path / name).write_text(text)
        environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = ["/usr/bin/sh", "-c", script, "sh", str(mark), "once-0-pod.service", *arguments]
        ended = subprocess.run(command, check=False, env=environment, capture_output=True)
        text = mark.read_text() if mark.exists() else ""
        return ended.returncode, read("calls"), text, [int(each) for each in read("delays")]

    run_script.directory = mark.parent
    return run_script


NEVER, ON_FAILURE = (
    (policy, "i.service j.service", "a.service", "b.service") for policy in ("Never", "OnFailure")
)
GOOD, BAD, RESTARTED, LIMITED = "0 no 0 active", "1 yes 0 active", "1 no 2 active", "0 yes 2 active"
NOT_STARTED, POD_GONE = "1 no 0 active", "0 no 0 inactive"
COMPLETED, FAILED = "completed\n+%s of now\n", "failed\n+%s of now\n"


@pytest.mark.parametrize(
    ("limit", "policy", "tries", "expected", "delays"),
    [
        (0, NEVER, [GOOD], (0, COMPLETED), []),
        (0, NEVER, [BAD], (1, FAILED), []),
        (2, NEVER, [BAD, "0 yes 0 active", GOOD], (0, COMPLETED), [10, 20]),
        (2, NEVER, [BAD] * 3, (1, FAILED), [10, 20]),
        (7, NEVER, [BAD] * 8, (1, FAILED), [10, 20, 40, 80, 160, 320, 360]),
        # an init container, which the others require
        (1, NEVER, [NOT_STARTED, GOOD], (0, COMPLETED), [10]),
        # the end of the pod, and not of its containers
        (2, NEVER, [POD_GONE, "0 no 0 activating", GOOD], (0, COMPLETED), [10, 20]),
        # a container restarts until it has succeeded, or too often
        (0, ON_FAILURE, [RESTARTED], (0, COMPLETED), []),
        (6, ON_FAILURE, [LIMITED], (1, FAILED), []),
        (1, ON_FAILURE, [POD_GONE, RESTARTED], (0, COMPLETED), [10]),
    ],
)
def test_a_job_is_tried_as_often_as_it_states(run, limit, policy, tries, expected, delays):
    code, called, mark, waited = run(_RUN, str(limit), *policy, tries=tries)
    calls = [
        "stop once-0-pod.service",
        "reset-failed once-0-pod.service i.service j.service a.service b.service",
        "start --wait a.service b.service",
        "is-active a.service b.service",
        "show --property=NRestarts a.service b.service",
        "is-active once-0-pod.service",
        "list-jobs --no-legend once-0-pod.service",
        "is-failed --quiet i.service j.service a.service b.service",
    ]
    assert (called, (code, mark), waited) == (calls * len(tries), expected, delays)
    assert run.directory.stat().st_mode & 0o777 == 0o700


def test_a_pod_that_is_stopped_has_not_completed(run):
    jobs = " 123 once-0-pod.service stop waiting\n"
    code, _, mark, delays = run(_RUN, "1", *NEVER, tries=[GOOD, GOOD], jobs=jobs)
    assert (code, mark, delays) == (1, FAILED, [10])


def test_a_job_continues_while_a_container_restarts(run):
    found = run(
        _RUN, "1", *ON_FAILURE, tries=[RESTARTED], busy="deactivating\nactivating\nactive\n"
    )
    assert (found[0], found[3]) == (0, [5, 5, 5])


@pytest.mark.parametrize(
    ("result", "mark"),
    [("success", ""), ("exit-code", ""), ("timeout", "failed: deadline exceeded\n+%s of now\n")],
)
def test_the_end_of_a_job_stops_the_pod(run, result, mark):
    found = run(_END, SERVICE_RESULT=result)
    assert found == (0, ["--no-block stop once-0-pod.service"], mark, [])


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: app, image: app, resources: {limits: {cpu: 100m}}}]
"""
CRON = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "@daily"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: app, image: app}]}
"""
ONCE, POD, APP = (
    "podslice-job-once-0.service",
    "once-0-pod.service",
    "podslice-podonce_0.default-app.service",
)
TICK, TIMER = "podslice-job-tick.service", "podslice-job-tick.timer"


@pytest.fixture
def directories(tmp_path):
    return Directories(
        generator=tmp_path / "containers",
        units=tmp_path / "units",
        own=tmp_path / "lib/podslice",
    )


@pytest.fixture
def present(directories):
    """A function that writes a job, and returns what exists of it then, with the states of units."""

    def write(text, *up, mark=False):
        pod = made(text)
        directories.generator.mkdir(exist_ok=True)
        write_quadlets([pod], directories)
        if mark:
            file = directories.own / pod.mark
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("completed\n1764374400\n")
        found = read_installed(directories)[pod.pod]
        return found._replace(states=dict.fromkeys(up, "active"))

    return write


def names(steps, action):
    return [each.name for each in steps if each.action is action]


def kept(text, before):
    """The units that stop, and those that start, in this order."""
    steps = steps_to_keep(made(text), before)
    return names(steps, Action.STOP), names(steps, Action.START)


def test_the_service_of_a_job_starts_its_pod(present):
    assert kept(JOB, present(JOB)) == ([], [ONCE])
    assert kept(JOB, present(JOB, ONCE)) == ([], [])
    assert kept(JOB, present(JOB, ONCE, POD, APP)) == ([], [])
    suspended = JOB.replace("spec:\n", "spec:\n  suspend: true\n", 1)
    assert kept(suspended, present(JOB, ONCE, POD, APP)) == ([ONCE, POD, APP], [])


def test_a_job_that_has_ended_does_not_run_again(present):
    before = present(JOB, mark=True)
    assert steps_to_keep(made(JOB), before) == ()
    # other limits are not another job
    for old, new in (("100m", "200m"), ("template:", "backoffLimit: 1\n  template:")):
        other = JOB.replace(old, new)
        steps = steps_to_keep(made(other), before)
        assert {each.action for each in steps} == {Action.WRITE}


def test_another_job_of_the_name_runs(present):
    other = JOB.replace("image: app", "image: other")
    before = present(JOB, mark=True)
    steps = steps_to_keep(made(other), before)
    assert names(steps, Action.START) == [ONCE]
    assert names(steps, Action.REMOVE) == ["volumes/default_once-0"]
    # beside other data only the mark is removed
    data = """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {key: value}
"""
    volumes = "restartPolicy: Never\n      volumes: [{name: c, configMap: {name: c}}]"
    with_data = JOB.replace("restartPolicy: Never", volumes) + data
    before = present(with_data, mark=True)
    assert steps_to_keep(made(with_data), before) == ()
    steps = steps_to_keep(made(with_data.replace("image: app", "image: other")), before)
    assert names(steps, Action.REMOVE) == [made(with_data).mark]


def test_a_job_that_changes_while_it_runs_begins_again(present):
    other = JOB.replace("image: app", "image: other")
    assert kept(other, present(JOB, ONCE, POD, APP)) == ([ONCE, POD, APP], [ONCE])


def test_the_timer_of_a_cron_job_is_started_and_nothing_else(present):
    assert kept(CRON, present(CRON)) == ([], [TIMER])
    assert kept(CRON, present(CRON, TIMER)) == ([], [])
    assert kept(CRON, present(CRON, TIMER, TICK, mark=True)) == ([], [])
    other = CRON.replace("@daily", "@hourly")
    assert kept(other, present(CRON, TIMER)) == ([TIMER], [TIMER])
    suspended = CRON.replace("spec:\n", "spec:\n  suspend: true\n", 1)
    assert kept(suspended, present(CRON, TIMER)) == ([TIMER], [])
    assert kept(CRON, present(suspended)) == ([], [TIMER])


def test_what_starts_others_stops_first(present):
    running = (TIMER, TICK, "tick-pod.service", "podslice-podtick.default-app.service")
    steps = steps_to_remove("default/tick", present(CRON, *running, mark=True))
    assert names(steps, Action.STOP) == list(running)
    assert "volumes/default_tick" in names(steps, Action.REMOVE)
    # podman's pod is removed when nothing else is left
    assert names(steps, Action.REMOVE)[-1] == "tick.pod"
    killed = {each.name: each.is_killed for each in steps if each.action is Action.STOP}
    assert killed == dict(zip(running, (False, True, False, True), strict=True))


def links(directories):
    return {str(each.relative_to(directories.units)) for each in directories.units.glob("*/*")}


def test_jobs_and_timers_are_enabled_while_they_are_wanted(present, directories):
    present(JOB)
    present(CRON)
    boot, timers = f"multi-user.target.wants/{ONCE}", f"timers.target.wants/{TIMER}"
    assert links(directories) == {boot, timers}
    assert (directories.units / boot).resolve() == directories.units / ONCE
    assert read_installed(directories).keys() == {"default/once-0", "default/tick"}
    present(JOB.replace("spec:\n", "spec:\n  suspend: true\n", 1))
    present(CRON.replace("spec:\n", "spec:\n  suspend: true\n", 1))
    assert links(directories) == set()
    present(CRON)
    stamp = directories.own.parent / f"systemd/timers/stamp-{TIMER}"
    stamp.parent.mkdir(parents=True)
    stamp.touch()
    remove_file(TIMER, directories)
    assert not stamp.exists()
    assert links(directories) == set()


def test_files_for_another_host_are_not_enabled(directories):
    write_quadlets([made(JOB)], directories._replace(own=None, generator=directories.units))
    assert links(directories) == set()


def test_no_pod_has_the_service_of_a_job():
    assert is_reserved("default/podslice-job-web")
    assert not is_reserved("default/podslice-jobs")


SERVICE = """
Id={}
ActiveState={}
ExecMainStartTimestamp={}
"""
OF_TIMER = """
Id={}
ActiveState=active
NextElapseUSecRealtime=Sun 2025-11-30 00:00:00 UTC
"""
STARTED, ENDED, NEXT = 1764374000 * 10**6, 1764374400 * 10**6, 1764460800 * 10**6


@pytest.fixture
def states(present, directories, monkeypatch):
    """A function that returns the jobs by pod, where `systemctl show` prints this."""
    monkeypatch.setattr(status, "installed", lambda _: directories)
    notes = []

    def read(*shown, error=None):
        async def show(*arguments):
            assert arguments[:4] == ("env", "TZ=UTC", "systemctl", "show")
            assert {ONCE, TICK, TIMER} >= set(arguments[5:])
            if error:
                raise NoAnswerError(error)
            return "\n".join(shown)

        monkeypatch.setattr(status, "run", show)
        pods = [
            SimpleNamespace(key=each) for each in ("default/once-0", "default/tick", "default/a")
        ]
        world = SimpleNamespace(manager=SYSTEM, on_note=notes.append)
        found = asyncio.run(find_jobs(world, SimpleNamespace(current=pods)))
        return {
            each.pod.partition("/")[2]: (
                each.state,
                each.started_usec,
                each.ended_usec,
                each.next_usec,
            )
            for each in found
        }

    read.notes = notes
    return read


def test_status_has_the_last_and_the_next_run(present, states):
    assert states() == {}
    present(JOB)
    assert states(SERVICE.format(ONCE, "inactive", "")) == {"once-0": ("waiting", None, None, None)}
    running = SERVICE.format(ONCE, "active", "Fri 2025-11-28 23:53:20 UTC")
    assert states(running) == {"once-0": ("running", STARTED, None, None)}
    present(JOB, mark=True)
    ended = SERVICE.format(ONCE, "inactive", "Fri 2025-11-28 23:53:20 UTC")
    assert states(ended) == {"once-0": ("completed", STARTED, ENDED, None)}

    present(CRON)
    failed = SERVICE.format(TICK, "failed", "Fri 2025-11-28 23:53:20 UTC")
    both = (failed, OF_TIMER.format(TIMER))
    assert states(*both)["tick"] == ("failed", STARTED, None, NEXT)
    # a schedule that has not elapsed yet
    both = (SERVICE.format(TICK, "inactive", ""), OF_TIMER.format(TIMER))
    assert states(*both)["tick"] == ("waiting", None, None, NEXT)
    assert states(error="no bus") == {
        "once-0": ("completed", None, ENDED, None),
        "tick": ("waiting", None, None, None),
    }
    assert states.notes == ["the states of jobs are not known: systemctl: no bus"]


def test_the_table_of_jobs():
    times = {"started_usec": None, "ended_usec": None, "next_usec": None}
    found = [
        JobState(pod="default/tick", state="completed", **(times | {"next_usec": NEXT})),
        JobState(pod="default/a", state="failed", **(times | {"ended_usec": ENDED})),
        JobState(
            pod="default/b", state="running", **times | {"started_usec": 1, "ended_usec": ENDED}
        ),
    ]
    head, *rows = [line.split() for line in status_view.jobs(found, Display()) if line]
    assert head == ["JOB", "STATE", "LAST", "RUN", "NEXT", "RUN"]
    shown = [f"{datetime.fromtimestamp(at // 10**6):%Y-%m-%d %H:%M:%S}" for at in (NEXT, ENDED, 0)]  # noqa: DTZ006
    assert [" ".join(each) for each in rows] == [
        f"default/tick completed - {shown[0]}",
        f"default/a failed {shown[1]} -",
        f"default/b running {shown[2]} -",
    ]
    assert list(status_view.jobs([], Display())) == []


def test_a_job_without_a_start_is_suspended(present, states):
    present(JOB.replace("spec:\n", "spec:\n  suspend: true\n", 1))
    assert states() == {"once-0": ("suspended", None, None, None)}
