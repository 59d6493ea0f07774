"""Jobs and CronJobs: their fields, and the service and timer that run their pods.

The service of a job starts the containers, waits until they have ended, and tries again as often as
`backoffLimit` states. It records how the job has ended, so that a Job does not run again at boot.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from zoneinfo import ZoneInfo

from podslice.errors import InputError, quote
from podslice.features.quadlet.cron import calendar_events
from podslice.features.quadlet.result import File, Options, PodSource, stem
from podslice.features.quadlet.unit_text import Section, double, section, shell, unit_file, words
from podslice.features.quadlet.workload import Job, PodWorkload, Restart
from podslice.features.quadlet.workload_containers import Refusals
from podslice.inputs.manifest.reading import Fields, unstated
from podslice.model.naming import SCOPE_PREFIX
from podslice.model.pod import ContainerKind
from podslice.model.unit import UnitName

_BACKOFF_LIMIT = 6
"""Source: Kubernetes, pkg/apis/batch/v1/defaults.go, SetDefaults_Job."""
_DELAY_SEC, _DELAY_MAX_SEC = 10, 360
"""Between two tries; each is twice the one before.

Source: Kubernetes, "Jobs", "Pod backoff failure policy".
"""
_ONE_POD = "each pod of a Job runs to its own completion, and once"
_LIMITS = {"resources", "overhead", "priority", "priorityClassName"}
"""What may change without another run."""


def read_job(fields: Fields, path: str, spec: Fields, spec_path: str, refusals: Refusals) -> Job:
    """Read a Job or CronJob from its `spec`, and the `spec` of its pods."""
    is_cron = "schedule" in fields
    of_job, at = fields, path
    if is_cron:
        template = fields["jobTemplate"] or unstated("JobTemplateSpec")
        of_job, at = template["spec"] or unstated("JobSpec"), f"{path}.jobTemplate.spec"
    if spec["restartPolicy"] not in (Restart.NEVER, Restart.ON_FAILURE):
        message = f"a {'CronJob' if is_cron else 'Job'} has no containers that always restart"
        refusals.error(f"{spec_path}.restartPolicy", message, "write OnFailure or Never")
    if of_job["completionMode"] not in (None, "NonIndexed"):
        refusals.refuse(f"{at}.completionMode", f"{_ONE_POD}: it has no index")
    most = 1 if is_cron or (of_job["parallelism"] or 1) == 1 else 0
    if (completions := of_job["completions"]) is not None and completions != most:
        hint = "write 1, without parallelism"
        refusals.refuse(f"{at}.completions", _ONE_POD, hint)
    if is_cron and of_job["parallelism"] not in (None, 1):
        refusals.refuse(f"{at}.parallelism", "a CronJob of podslice has one pod", "write 1")
    if of_job["activeDeadlineSeconds"] == 0:
        message = "0 would end each run at once"
        refusals.error(f"{at}.activeDeadlineSeconds", message, "write 1 or more")
    limit = of_job["backoffLimit"]
    return Job(
        digest=_digest(spec),
        backoff_limit=_BACKOFF_LIMIT if limit is None else limit,
        deadline_sec=of_job["activeDeadlineSeconds"],
        is_suspended=bool(fields["suspend"]),
        events=_read_schedule(fields, path, refusals) if is_cron else None,
        policy=_read_policy(fields, path, refusals) if is_cron else "",
        is_made_up=is_cron and fields["startingDeadlineSeconds"] is None,
    )


def _digest(spec: Fields) -> str:
    """Return what identifies the work of a job: what its pods state, without their limits."""
    text = json.dumps(_stated(spec), sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _stated(value: object) -> object:
    if isinstance(value, Mapping):
        kept = {key: _stated(each) for key, each in value.items() if key not in _LIMITS}
        return {key: each for key, each in kept.items() if each is not None}
    return [_stated(each) for each in value] if isinstance(value, list) else value


def _read_schedule(fields: Fields, path: str, refusals: Refusals) -> tuple[str, ...]:
    zone = fields["timeZone"]
    if zone is not None and not _has_zone(zone):
        message = f"this host has no time zone {quote(zone)}"
        refusals.error(f"{path}.timeZone", message, "write Europe/Berlin, for example")
        zone = None
    try:
        return calendar_events(fields["schedule"] or "", zone or "")
    except InputError as error:
        refusals.add(f"{path}.schedule", *error.problems)
        return ()


def _has_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        return False
    return name.isascii() and name != "Local"


def _read_policy(fields: Fields, path: str, refusals: Refusals) -> str:
    """Read what happens if a run is due while another one continues: `Forbid` or `Replace`."""
    policy: str = fields["concurrencyPolicy"] or ""
    if policy == "Allow":
        reason = "a pod has one set of containers, which cannot run twice at a time"
        refusals.refuse(f"{path}.concurrencyPolicy", reason, "write Forbid or Replace")
    else:
        refusals.check(f"{path}.concurrencyPolicy", policy or None, ("Forbid", "Replace"))
    return policy


_RUN = (
    f"mark=$1 pod=$2 limit=$3 policy=$4 inits=$5; shift 5; tries=0 delay={_DELAY_SEC}; "
    'end() { umask 077; mkdir -p "${mark%/*}"; { echo "$1"; date +%s; } >"$mark"; }; '
    'while :; do systemctl stop "$pod"; '
    'systemctl reset-failed "$pod" $inits "$@" 2>/dev/null; systemctl start --wait "$@"; code=$?; '
    'while systemctl is-active "$@" | grep -qx "active\\|activating\\|deactivating"; do sleep 5; done; '
    'systemctl show --property=NRestarts "$@" | grep -q "=[1-9]" && code=0; '
    '[ "$(systemctl is-active "$pod") $(systemctl list-jobs --no-legend "$pod")" = "active " ] || '
    "code=1; "
    'systemctl is-failed --quiet $inits "$@" && code=1 && [ $policy != Never ] && tries=$limit; '
    "[ $code -ne 0 ] || { end completed; exit 0; }; "
    "[ $tries -lt $limit ] || break; tries=$((tries + 1)); "
    'echo "failed; try $tries of $limit in $delay s"; '
    f"sleep $delay; delay=$((delay * 2)); [ $delay -lt {_DELAY_MAX_SEC} ] || delay={_DELAY_MAX_SEC}; "
    "done; end failed; exit 1"
)
"""Runs the containers of a pod until all have ended with 0, in a new pod each time.

`systemctl start --wait` ends as soon as one cannot be started, or is about to restart. A container
that exits because the pod ends, or is stopped, has not completed the job.
"""
_END = (
    'systemctl --no-block stop "$2"; [ "$SERVICE_RESULT" != timeout ] || '
    '{ umask 077; mkdir -p "${1%/*}"; { echo "failed: deadline exceeded"; date +%s; } >"$1"; }'
)


def job_files(pod: PodSource, job: Job, conditions: Section) -> Iterator[File]:
    """Yield the service that runs the pod, and the units that start it on a schedule.

    Args:
        pod: the pod.
        job: its job.
        conditions: the lines of `[Unit]` without which no process of a pod starts.
    """
    services = [(each.kind, pod.service(each.name)) for each in pod.workload.containers]
    apps, inits = (
        [service for kind, service in services if kind is wanted]
        for wanted in (ContainerKind.APP, ContainerKind.INIT)
    )
    mark = f"{pod.options.manager.own_state_directory}/{pod.mark}"
    head, body, install = section("Unit"), section("Service"), section("Install")
    head.add("Description", f"Job of pod {double(pod.key)}")
    head.lines += conditions.lines
    # at shutdown it ends first, and takes no stop for the end of the job
    head.add("After", pod.pod_service, *(service for _, service in services))
    body.add("Type", "exec")
    body.add("Slice", *pod.options.service_slices)
    stated = (str(job.backoff_limit), pod.workload.restart, " ".join(inits))
    run = (mark, pod.pod_service, *stated, *apps)
    body.add("ExecStart", _script(_RUN, pod.options, run))
    body.add("ExecStopPost", _script(_END, pod.options, (mark, pod.pod_service)))
    if job.deadline_sec is not None:
        body.add("RuntimeMaxSec", f"{job.deadline_sec}s")
    if job.events is None:
        head.add("ConditionPathExists", "!" + mark.replace("%", "%%"))
        if not job.is_suspended:
            install.add("WantedBy", boot_target(pod.options))
    yield unit_file(pod.job_service, head, body, install)
    if job.events and not job.is_suspended:
        yield from _schedule_files(pod, job, job.events)


def boot_target(options: Options) -> str:
    """Return the target that starts what runs from the boot on."""
    return "default.target" if options.manager.is_user else "multi-user.target"


def notes_on_job(workload: PodWorkload) -> Iterator[str]:
    """Yield what differs from the controllers of Kubernetes, where no field is lost."""
    job = workload.job
    if job is None:
        return
    kinds = [each.kind for each in workload.containers if each.kind is not ContainerKind.SIDECAR]
    if workload.restart is Restart.ON_FAILURE and len(kinds) > 1:
        yield "systemd counts restarts per container: backoffLimit applies to each container"
    if job.events and not job.policy:
        yield "a run that is due while another one continues is left out, as with Forbid"
    if job.events and not job.is_made_up:
        yield "startingDeadlineSeconds: a run that is due while the host is off is left out"


def _schedule_files(pod: PodSource, job: Job, events: Iterable[str]) -> Iterator[File]:
    """Yield the timer, and with `Replace` the service that it starts instead."""
    key, started = double(pod.key), pod.job_service
    if job.policy == "Replace":
        started = UnitName(f"{SCOPE_PREFIX}-replace-{pod.name}.service")
        head, service = section("Unit"), section("Service")
        head.add("Description", f"Next run of pod {key}")
        service.add("Type", "oneshot")
        restart = ("/usr/bin/systemctl", *pod.options.manager.options, "restart", pod.job_service)
        service.add("ExecStart", words(restart))
        yield unit_file(started, head, service)
    head, timer, install = section("Unit"), section("Timer"), section("Install")
    head.add("Description", f"Schedule of pod {key}")
    timer.add("OnCalendar", *events)
    timer.add("AccuracySec", "1s")
    if job.is_made_up:
        timer.add("Persistent", "true")
    timer.add("Unit", started)
    install.add("WantedBy", "timers.target")
    yield unit_file(f"{stem(pod.job_service)}.timer", head, timer, install)


def _script(text: str, options: Options, arguments: Iterable[str]) -> str:
    script = text.replace("systemctl ", f"systemctl{options.manager.flag} ")
    return shell(script, *arguments)
