"""The uids of static pods, which the kubelet computes, from the names of its directories of logs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from podslice.model.pod import Pod, is_uid

LOGS = Path("/var/log/pods")
"""Source: Kubernetes, pkg/kubelet/apis/config/v1beta1/defaults.go, PodLogsDir."""


def find_static_uids(pods: Sequence[Pod], logs: Path = LOGS) -> Mapping[str, str]:
    """Return the uids of static pods by their keys; of pods without a directory none.

    A directory is `NAMESPACE_NAME-NODE_UID`. A pod has a new one after each change of its manifest:
    the newest counts. Of two pods whose names begin a directory's name, the longer name does.

    Source: Kubernetes, pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory;
    pkg/kubelet/config/common.go, applyDefaults and generatePodName.
    """
    names = sorted(((pod.namespace, pod.name, pod.key) for pod in pods), key=_by_length)
    found: dict[str, tuple[float, str]] = {}
    for changed, namespace, name, uid in _directories(logs):
        for pod_namespace, pod_name, key in names:
            if namespace == pod_namespace and name.startswith(f"{pod_name}-"):
                found[key] = max(found.get(key, (changed, uid)), (changed, uid))
                break
    return {key: uid for key, (_, uid) in found.items()}


def _by_length(names: tuple[str, str, str]) -> int:
    return -len(names[1])


def _directories(logs: Path) -> Iterator[tuple[float, str, str, str]]:
    """Yield the time of the last change, namespace, name and uid of each directory."""
    with suppress(OSError), os.scandir(logs) as entries:
        for entry in entries:
            parts = entry.name.split("_")
            if len(parts) == 3 and is_uid(parts[2]):
                yield entry.stat().st_mtime, parts[0], parts[1], parts[2]
