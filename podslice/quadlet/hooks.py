"""Hooks after the start of a container and before its stop, which share its grace period.

Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container.go, killContainer.
"""

from __future__ import annotations

from podslice.model.workload import Exec, Sleep
from podslice.quadlet.result import PODMAN
from podslice.quadlet.unit_text import words

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


def stop_timeout_sec(grace_sec: int) -> int:
    """Return the time between a container's signal and its end, where no hook has used some of it."""
    return max(grace_sec, _GRACE_MIN_SEC)


def hook_line(action: Exec | Sleep, container: str) -> str:
    """Return the command line of a hook, with podman's name of its container."""
    return words(_command(action, container))


def stop_line(action: Exec | Sleep, container: str, grace_sec: int) -> str | None:
    """Return the command line that runs a hook and then stops the container; None without any time.

    What the hook leaves of the grace period is between the signal and the end. A hook that fails, or
    that takes the whole period, does not keep the container from its stop.
    """
    if grace_sec == 0:
        return None
    script = ("/usr/bin/sh", "-c", _STOP, "sh", str(grace_sec), container)
    return f"-{words((*script, *_command(action, container)))}"


def _command(action: Exec | Sleep, container: str) -> tuple[str, ...]:
    if isinstance(action, Sleep):
        return ("/usr/bin/sleep", str(action.seconds))
    return (PODMAN, "exec", container, *action.command)
