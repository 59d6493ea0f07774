"""The `.container` file of one container, the file with its secret variables, and the order of starts.

Init containers start one after the other, then the other containers.

Source: podman 5.4, podman-systemd.unit(5); pkg/systemd/quadlet/quadlet.go, ConvertContainer; Kubernetes, "Init Containers" and "Sidecar Containers": each init container ends with 0 before
the next one starts; a sidecar has started, and its startup probe has succeeded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from podslice.features.quadlet.probes import add_health, needs_prober, start_line
from podslice.features.quadlet.result import (
    PODMAN,
    SECRET_MODE,
    UNIT_MODE,
    File,
    Options,
    PodSource,
    stem,
)
from podslice.features.quadlet.unit_text import (
    EMPTY_VARIABLE,
    Section,
    argument,
    arguments,
    double,
    json_words,
    later_in,
    needs_empty_variable,
    section,
    shell,
    unit_file,
    word,
    words,
)
from podslice.features.quadlet.volume_units import commands_before, mount_line
from podslice.features.quadlet.workload import (
    SECCOMP_ROOT,
    ContainerWorkload,
    Exec,
    ProbeKind,
    Pull,
    Restart,
    Security,
    Sleep,
    Variable,
    Volume,
)
from podslice.inputs.manifest.fields import checked
from podslice.model.grammar import full_image
from podslice.model.naming import CONTAINER_LABEL, POD_LABEL
from podslice.model.pod import ContainerKind
from podslice.model.properties import PROPERTIES
from podslice.model.unit import INFINITY

_BACK_OFF_SEC = 1
_BACK_OFF_MAX_SEC = 300
_BACK_OFF_STEPS = 6
"""From 1 s to 300 s, which the seventh restart waits, as in the kubelet.

The first restart of the kubelet is immediate; the others begin at 10 s, each twice the one before.
systemd multiplies by the same factor in each step, so the steps begin near zero and grow faster.

Source: Kubernetes, "Pod Lifecycle", "How Pods handle problems with containers"; systemd.service(5),
RestartSteps=.
"""
_CONSTANT_SEC = 10
"""The delay where systemd has no steps, so that a container that fails at once uses little CPU."""
_JOB_SEC = 300
"""How long a pod that cannot be created delays the boot; it is created later, too.

It ends between two restarts, 189 s and 489 s after the first failure: systemd no longer starts a
service whose job times out at the moment at which the delay ends.
"""
_STEPS_SINCE = 254
"""The systemd with RestartSteps=, RestartMaxDelaySec= and RestartMode=. Source: systemd, NEWS."""


def add_order(head: Section, container: ContainerWorkload, pod: PodSource) -> None:
    """Add what starts before a container.

    The end of a sidecar does not stop the others, as that of an init container does. The service of
    the pod starts it: if others wanted it, their restarts would start it before its back-off ends.
    """
    for each in takewhile(lambda other: other.name != container.name, pod.workload.containers):
        if each.kind is ContainerKind.APP:
            continue
        service = pod.service(each.name)
        if each.kind is ContainerKind.INIT:
            head.add("Requires", service)
        head.add("After", service)
        if ProbeKind.STARTUP in each.probes and needs_prober(each, pod.options):
            head.add("After", pod.prober(each.name))


def add_restart(head: Section, body: Section, container: ContainerWorkload, pod: PodSource) -> None:
    """Add when a container starts again, with the back-off of the kubelet.

    An init container that fails starts again unless the policy is Never; those that wait for it
    continue to wait. A sidecar always starts again.
    """
    policy = _policy(container)
    body.add("Restart", policy)
    if policy == "no":
        return
    job = pod.workload.job
    if job is None or container.kind is ContainerKind.SIDECAR:
        head.add("StartLimitIntervalSec", "0")
    else:
        # the service of the job resets the counter
        head.add("StartLimitIntervalSec", "infinity")
        head.add("StartLimitBurst", str(job.backoff_limit + 1))
    _add_back_off(body, pod.options)
    if container.kind is ContainerKind.INIT:
        _add_direct(body, pod.options)


def add_restart_of_pod(head: Section, body: Section, pod: PodSource) -> None:
    """Add the delays with which a pod starts again that has failed: its port is in use, for instance.

    The generator adds Restart=on-failure.
    """
    if pod.options.systemd_version >= _STEPS_SINCE:
        if pod.workload.job is None:
            # the target of the boot waits for the job, which a failure does not end
            head.add("JobRunningTimeoutSec", f"{_JOB_SEC}s")
        head.add("StartLimitIntervalSec", "0")
        _add_back_off(body, pod.options)
        _add_direct(body, pod.options)


def _add_back_off(body: Section, options: Options) -> None:
    if options.systemd_version < _STEPS_SINCE:
        body.add("RestartSec", f"{_CONSTANT_SEC}s")
        return
    body.add("RestartSec", f"{_BACK_OFF_SEC}s")
    body.add("RestartSteps", str(_BACK_OFF_STEPS))
    body.add("RestartMaxDelaySec", f"{_BACK_OFF_MAX_SEC}s")


def _add_direct(body: Section, options: Options) -> None:
    """Let what waits for a service continue to wait when it fails and starts again.

    What the service wants is not started before it, which would start it without its delay.

    Source: systemd, src/core/unit.c, unit_notify, retroactively_start_dependencies.
    """
    if options.systemd_version >= _STEPS_SINCE:
        body.add("RestartMode", "direct")


def _policy(container: ContainerWorkload) -> str:
    if container.restart is Restart.NEVER:
        return "no"
    if container.kind is ContainerKind.INIT or container.restart is Restart.ON_FAILURE:
        return "on-failure"
    return "always"


_WRITE_VALUES = (
    "in_pod() { read -r pid _ </proc/$MAINPID/task/$MAINPID/children; "
    'nsenter $enter --target "$pid" "$@"; }; '
    'address() { for to in 192.0.2.1 2001:db8::1; do "$@" ip -o route get $to; done 2>/dev/null | '
    'sed -n "s/.* src \\([^ ]*\\).*/\\1/p" | head -n 1 | grep . || '
    '{ echo "there is no route and so no address" >&2; exit 1; }; }; '
    "enter=$1; shift; for name; do case $name in "
    "*_NODE_NAME) value=$(uname -n | tr A-Z a-z) ;; "
    "*_HOST_IP) value=$(address) ;; "
    "*_POD_IP) value=$(address in_pod) ;; esac || exit; "
    'echo "$name=$value"; done >"$RUNTIME_DIRECTORY/values"'
)
"""Writes the name of the host, and the address of host and pod from which they reach others.

podman's monitor, which is the main process of the pod's service, has one child, the pod's own
container.

Source: Kubernetes, pkg/util/node/node.go, GetHostname; apimachinery, pkg/util/net/interface.go,
ResolveBindAddress.
"""
_VALUES = "podslice-values-{}"
"""The runtime directory of a pod's service."""


def add_values(body: Section, pod: PodSource) -> None:
    """Add to a pod's service what writes the values to which variables of its containers refer."""
    variables = [each for container in pod.workload.containers for each in container.environment]
    if later := sorted(later_in(each.value for each in variables)):
        body.add("RuntimeDirectory", _VALUES.format(pod.name))
        enter = "--user --preserve-credentials --net" if pod.options.manager.is_user else "--net"
        body.add("ExecStartPost", shell(_WRITE_VALUES, enter, *later))


def notes_on_systemd(pod: PodSource) -> Iterator[str]:
    """Yield what an old systemd cannot keep."""
    version = pod.options.systemd_version
    if version >= _STEPS_SINCE:
        return
    yield f"systemd {version} has no RestartSteps=: containers restart after {_CONSTANT_SEC} s each time"
    yield (
        f"systemd {version} has no RestartMode=: the pod remains failed after five failures within 10 s"
    )
    inits = [each for each in pod.workload.containers if each.kind is ContainerKind.INIT]
    if any(each.restart is not Restart.NEVER for each in inits):
        yield (
            f"systemd {version} has no RestartMode=: the start of the pod fails with an init"
            " container, although that one starts again"
        )


_CHECK_USER = (
    f'case $2 in always) false ;; missing) {PODMAN} image exists "$1" ;; esac || '
    f'{PODMAN} pull --quiet "$1" >/dev/null || exit; '
    f'user=$({PODMAN} image inspect --format {{{{.User}}}} "$1") || exit; user=${{user%%:*}}; '
    'case $user in *[!0-9]*) why="whose user $user is not a number" ;; '
    '*) [ "${user:-0}" -eq 0 ] || exit 0; why="whose user is root" ;; esac; '
    'echo "runAsNonRoot does not allow the image, $why; set runAsUser" >&2; exit 1'
)
"""Pulls an image, and fails if its user is root, or may be.

Source: Kubernetes, pkg/kubelet/kuberuntime/security_context_others.go, verifyRunAsNonRoot.
"""
_PULL = {Pull.ALWAYS: "always", Pull.IF_NOT_PRESENT: "missing", Pull.NEVER: "never"}
_STOP_MARGIN_SEC = 15
"""The time in which podman removes a container after its grace period."""


@dataclass(frozen=True, kw_only=True)
class ContainerUnit:
    """Writes the files of one container."""

    container: ContainerWorkload
    pod: PodSource
    volumes: Mapping[str, Volume]
    """All volumes of the pod by name."""

    @cached_property
    def variables(self) -> dict[str, Expanded]:
        """Return the variables by name, expanded."""
        return expand_variables(self.container.environment)

    @cached_property
    def command(self) -> tuple[Expanded, ...]:
        """Return the command, expanded; variables of the image are not known, as in the kubelet."""
        return tuple(
            expand(each, self.variables) for each in self.container.fields["command"] or ()
        )

    @cached_property
    def arguments(self) -> tuple[Expanded, ...]:
        """Return the arguments, expanded."""
        return tuple(expand(each, self.variables) for each in self.container.fields["args"] or ())

    @property
    def is_secret(self) -> bool:
        """Return whether a Secret's value is in the unit itself: an argument, or several lines."""
        inside = [each for each in self.variables.values() if not _fits_file(each)]
        return any(each.is_secret for each in (*self.command, *self.arguments, *inside))

    def files(self) -> Iterator[File]:
        """Yield the unit, and the file with secret variables if there are any."""
        head, service = section("Unit"), self._service()
        key = double(self.pod.key)
        head.add("Description", f"Container {self.container.name} of pod {key}")
        add_order(head, self.container, self.pod)
        add_restart(head, service, self.container, self.pod)
        yield unit_file(
            f"{self.pod.container(self.container.name)}.container",
            head,
            self._container(),
            service,
            mode=SECRET_MODE if self.is_secret else UNIT_MODE,
            is_secret=self.is_secret,
        )
        if secret := self._secret_variables():
            lines = "".join(f"{key}={each.text}\n" for key, each in secret.items())
            path = self.pod.environment(self.container.name)
            yield File(path=path, content=lines.encode(), mode=SECRET_MODE, is_secret=True)

    def _secret_variables(self) -> dict[str, Expanded]:
        return {
            name: each
            for name, each in self.variables.items()
            if each.is_secret and _fits_file(each)
        }

    def _container(self) -> Section:
        body = section("Container")
        container, pod = self.container, self.pod
        body.add("ContainerName", pod.container(container.name))
        body.add("ServiceName", stem(pod.service(container.name)))
        body.add("Pod", pod.pod_file)
        body.add("Label", word(f"{POD_LABEL}={pod.key}"))
        body.add("Label", word(f"{CONTAINER_LABEL}={container.name}"))
        image = full_image(checked("Container.image", container.image))
        body.add_text("Image", "Container.image", image)
        # an image whose user has been checked is not replaced
        is_pulled = container.security.is_image_checked
        body.add("Pull", "never" if is_pulled else _PULL[container.pull])
        self._add_command(body)
        self._add_environment(body)
        for mount in container.mounts:
            body.add(*mount_line(mount, self.volumes[mount.volume], pod))
        add_health(body, container, pod.options)
        _add_security(body, container.security)
        body.add("GroupAdd", *map(str, pod.workload.groups))
        grace_sec = pod.decision.pod.grace_period_sec
        # the time between the signal and the end, where no hook has used some of it
        body.add("StopTimeout", str(max(grace_sec, _GRACE_MIN_SEC)))
        if container.stop_signal:
            body.add_text("StopSignal", "Lifecycle.stopSignal", container.stop_signal)
        # podman's own limit would be 2048, whatever the slice has
        body.add("PidsLimit", "-1")
        adjustment = pod.decided(container.name).oom_score_adj
        body.add("PodmanArgs", f"--oom-score-adj={adjustment}")
        if container.fields["tty"]:
            body.add("PodmanArgs", "--tty")
        if pod.workload.fields["hostIPC"]:
            body.add("PodmanArgs", "--ipc=host")
        return body

    def _add_command(self, body: Section) -> None:
        """Add what runs; podman drops the image's command where the entry point is replaced.

        Source: podman 5.4, pkg/specgen/generate/oci_linux.go, makeCommand.
        """
        if self.command:
            body.add("Entrypoint", json_words(each.text for each in self.command))
        if self.arguments:
            body.add("Exec", arguments(each.text for each in self.arguments))
        if directory := self.container.fields["workingDir"]:
            body.add_text("WorkingDir", "Container.workingDir", directory)

    def _add_environment(self, body: Section) -> None:
        secret = self._secret_variables()
        for name, each in self.variables.items():
            if name not in secret:
                checked("EnvVar.name", name)
                body.add("Environment", argument(f"{name}={each.text}"))
        if secret:
            top = self.pod.options.manager.own_state_directory
            path = f"{top}/{self.pod.environment(self.container.name)}"
            body.add("EnvironmentFile", argument(path))

    def _service(self) -> Section:
        body = section("Service")
        decision = self.pod.decision
        body.add("Slice", decision.slice)
        for each in self.pod.decided(self.container.name).properties:
            if each.value != INFINITY:
                body.comment(each.why)
                row = PROPERTIES[each.name]
                body.add(row.key, *row.texts(each.value))
        if self.container.kind is ContainerKind.INIT:
            body.add("Type", "oneshot")
            body.add("RemainAfterExit", "yes")
        # the pull of an image has no limit of time
        body.add("TimeoutStartSec", "infinity")
        body.add("TimeoutStopSec", f"{decision.pod.grace_period_sec + _STOP_MARGIN_SEC}s")
        if needs_empty_variable(each.text for each in self.arguments):
            body.add("Environment", f"{EMPTY_VARIABLE}=")
        if later_in(variable.value for variable in self.container.environment):
            # it may be gone when the container stops
            body.add("EnvironmentFile", f"-%t/{_VALUES.format(self.pod.name)}/values")
        if self.container.security.is_image_checked:
            image = full_image(self.container.image)
            body.add("ExecStartPre", shell(_CHECK_USER, image, _PULL[self.container.pull]))
        for mount in self.container.mounts:
            volume = self.volumes[mount.volume]
            body.add("ExecStartPre", *commands_before(mount, volume, self.pod))
        self._add_hooks(body)
        return body

    def _add_hooks(self, body: Section) -> None:
        """Add what runs after the start and before the stop, and what ends the init phase."""
        pod, name = self.pod, self.pod.container(self.container.name)
        if self.container.post_start:
            body.add("ExecStartPost", words(_command(self.container.post_start, name)))
        if self.container.pre_stop:
            grace_sec = pod.decision.pod.grace_period_sec
            stop = stop_line(self.container.pre_stop, name, grace_sec)
            body.add("ExecStop", *([stop] if stop else []))
        inits = [each for each in pod.workload.containers if each.kind is ContainerKind.INIT]
        if pod.options.has_init_phase and inits[-1:] == [self.container]:
            options = pod.options.manager.options
            command = (pod.options.program, "phase", *options, pod.key, "running")
            # a pod that podslice has not applied has no init phase
            body.add("ExecStartPost", f"-{words(command)}")
        if needs_prober(self.container, pod.options):
            prober = pod.prober(self.container.name)
            body.add("ExecStartPost", start_line(prober, pod.options))


def _fits_file(variable: Expanded) -> bool:
    """Return whether a variable fits into a file of variables, which has one in each line."""
    return not {"\n", "\r", "\0"}.intersection(variable.text)


def _add_security(body: Section, security: Security) -> None:
    if security.user is not None:
        body.add("User", str(security.user))
    if security.group is not None:
        body.add("Group", str(security.group))
    body.add_text("DropCapability", "Capabilities.drop", *security.dropped)
    body.add_text("AddCapability", "Capabilities.add", *security.added)
    if security.read_only_root:
        body.add("ReadOnly", "true")
        # podman would mount writable directories in memory
        body.add("ReadOnlyTmpfs", "false")
    if security.no_new_privileges:
        body.add("NoNewPrivileges", "true")
    if security.seccomp is not None:
        path = security.seccomp.removeprefix(f"{SECCOMP_ROOT}/")
        checked("SeccompProfile.localhostProfile", path)
        body.add("SeccompProfile", double(security.seccomp))
    if security.unmasked:
        body.add("Unmask", "ALL")
    if security.is_privileged:
        body.add("PodmanArgs", "--privileged")
    if security.apparmor is not None:
        profile = checked("AppArmorProfile.localhostProfile", security.apparmor)
        body.add("PodmanArgs", argument(f"--security-opt=apparmor={profile}"))
    for part, label in security.selinux.items():
        checked(f"SELinuxOptions.{part}", label)
        body.add("PodmanArgs", argument(f"--security-opt=label={part}:{label}"))


_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


class Expanded(NamedTuple):
    """A text after expansion."""

    text: str
    is_secret: bool = False
    """Whether a Secret's value is in the text."""


def expand(text: str, known: Mapping[str, Expanded]) -> Expanded:
    """Replace `$(NAME)` of known variables; `$$` is a dollar sign, and the rest remains.

    Source: Kubernetes, third_party/forked/golang/expansion/expand.go.
    """
    is_secret = False

    def replace(match: re.Match[str]) -> str:
        nonlocal is_secret
        name = match[1]
        if name is None:
            return "$"
        if name not in known:
            return match[0]
        is_secret = is_secret or known[name].is_secret
        return known[name].text

    expanded = _REFERENCE.sub(replace, text)
    return Expanded(text=expanded, is_secret=is_secret)


def expand_variables(variables: Iterable[Variable]) -> dict[str, Expanded]:
    """Return the variables of a container by name; each may refer to earlier ones."""
    known: dict[str, Expanded] = {}
    for each in variables:
        literal = Expanded(text=each.value, is_secret=each.is_secret)
        known[each.name] = literal if each.is_literal else expand(each.value, known)
    return known


_GRACE_MIN_SEC = 2
"""The time that a container always has between its signal and the end.

Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go, minimumGracePeriodInSeconds.
"""
# A container that has exited by itself has no hook: systemd states no main process then.
# The time is that since boot, which no change of the clock affects.
_STOP = (
    '[ -n "$MAINPID" ] || exit 0; grace=$1 name=$2; shift 2; '
    'read -r start _ </proc/uptime; timeout --kill-after=1 "$grace" "$@"; '
    "read -r end _ </proc/uptime; left=$((grace + ${start%.*} - ${end%.*})); "
    f"[ $left -gt {_GRACE_MIN_SEC} ] || left={_GRACE_MIN_SEC}; "
    f'exec {PODMAN} stop --ignore --time=$left "$name"'
)


def stop_line(action: Exec | Sleep, container: str, grace_sec: int) -> str | None:
    """Return the command line that runs a hook and then stops the container; None without any time.

    What the hook leaves of the grace period is between the signal and the end. A hook that fails, or
    that takes the whole period, does not keep the container from its stop.
    """
    if grace_sec == 0:
        return None
    return f"-{shell(_STOP, str(grace_sec), container, *_command(action, container))}"


def _command(action: Exec | Sleep, container: str) -> tuple[str, ...]:
    """Return the command of a hook, with podman's name of its container."""
    if isinstance(action, Sleep):
        return ("/usr/bin/sleep", str(action.seconds))
    return (PODMAN, "exec", container, *action.command)
