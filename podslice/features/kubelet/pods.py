"""The pods of a kubelet: the document of its `/pods`, or of `kubectl get pods -o json`.

The status is written by the kubelet. A field of an unexpected type counts as not stated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from podslice.errors import InputError, Problem, Severity, invalid, quote
from podslice.features.kubelet.config import mapping_of
from podslice.features.kubelet.model import KubeletPod
from podslice.inputs.budget import OBJECT_BYTES_MAX, Budget, Exhausted
from podslice.inputs.manifest.load import Extent, LoadedPods, load_pods, load_text
from podslice.inputs.scalars import extend_path
from podslice.model.pod import Pod, Qos, is_uid
from podslice.model.properties import PREFIX
from podslice.model.unit import UnitName, is_unit_name

_MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod: the uid of the static pod that it shows.

API servers list mirror pods, and accept the annotation from every author of pods; kubelets list the
static pods themselves. Source: Kubernetes, pkg/kubelet/types/pod_update.go,
ConfigMirrorAnnotationKey; pkg/kubelet/pod/pod_manager.go, GetPods.
"""
_PREFIXES = {"containerd": "cri-containerd", "cri-o": "crio", "docker": "docker"}
"""The beginning of the names of scopes, by the scheme of a container's id.

Source: containerd, internal/cri/server/podsandbox/helpers.go, getCgroupsPath; CRI-O,
internal/config/cgmgr/cgmgr.go, CrioPrefix; moby, daemon/oci_linux.go, withCgroups.
"""
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_RESIZES = ("PodResizePending", "PodResizeInProgress")
_CLASSES = {each.value: each for each in Qos}
_TERMINAL = ("Succeeded", "Failed")
_LISTS = ("PodList", "List")
_NODES_SHOWN = 3
_SAVE = "kubectl get pods -A -o json --field-selector spec.nodeName=NODE"
LOGS = Path("/var/log/pods")
"""Source: Kubernetes, pkg/kubelet/apis/config/v1beta1/defaults.go, PodLogsDir."""


def read_pod_list(
    sources: Sequence[str], stdin: Callable[[], bytes], *, logs: Path = LOGS
) -> tuple[KubeletPod, ...]:
    """Read the pods of a kubelet from files, directories or standard input.

    Manifests of static pods have no uid; `logs` has the directories that name it.

    Raises:
        InputError: there is an error in them, or a pod whose uid is not known; it has every problem.
    """
    budget = Budget(text_bytes=OBJECT_BYTES_MAX)
    loaded = load_pods(sources, stdin=stdin, budget=budget, validate=None, extent=Extent.DOCUMENTS)
    return _read_pods(loaded, logs, has_mirrors=True)


def parse_pod_list(
    data: bytes, name: str, *, logs: Path = LOGS, keeps_invalid: bool = False
) -> tuple[KubeletPod, ...]:
    """Read the pods of a kubelet from the document of its `/pods`, which has no mirror pods.

    Args:
        data: the document.
        name: its name in messages.
        logs: as in `read_pod_list`.
        keeps_invalid: whether a pod with an error is returned, with the error among its problems, and
            one whose uid is not known is left out. Otherwise they are errors of the document.

    Raises:
        InputError: as `read_pod_list`, or it is not a list of pods as a whole.
    """
    if data.startswith(b"{") and not data.rstrip().endswith(b"}"):
        hint = "the kubelet may have been stopped meanwhile"
        raise invalid("the list of pods is not complete", hint, where=name)
    budget = Budget(text_bytes=OBJECT_BYTES_MAX)
    try:
        loaded = load_text(data, name, budget, validate=None, extent=Extent.DOCUMENTS)
    except Exhausted as error:
        raise InputError(error.at(name)) from error
    if not _is_list(loaded):
        raise InputError(loaded.problems or [Problem(where=name, message="it has no list of pods")])
    if not keeps_invalid:
        return _read_pods(loaded, logs, has_mirrors=False)
    return tuple(_read_pod(pod, value) for pod, value in _stated(loaded) if _has_uid(value))


def _is_list(loaded: LoadedPods) -> bool:
    """Return whether the only document is a list, whatever its items are."""
    (*others, found) = loaded.documents.values() or (None,)
    if others or not isinstance(found, dict) or found.get("kind") not in _LISTS:
        return False
    return isinstance(found.get("items"), list | None)


def _read_pods(loaded: LoadedPods, logs: Path, *, has_mirrors: bool) -> tuple[KubeletPod, ...]:
    problems = list(filter(_is_of_kubernetes, loaded.all_problems))
    stated = _stated(loaded)
    problems += _of_several_nodes(stated)
    without = {pod.key: pod for pod, value in stated if not _has_uid(value)}
    uids = find_static_uids(tuple(without.values()), logs) if without else {}
    problems += [
        Problem(
            where=pod.where,
            message=f"pod {pod.key} has no uid, which names its slice, and no directory of logs",
            hint=f"use the pods as the kubelet knows them: {_SAVE}",
        )
        for key, pod in without.items()
        if key not in uids
    ]
    if problems:
        raise InputError(problems)
    if has_mirrors:
        uids = {**uids, **{pod.key: uid for pod, value in stated if (uid := _mirrored_uid(value))}}
    return tuple(
        _read_pod(replace(pod, uid=uids.get(pod.key, pod.uid)), value) for pod, value in stated
    )


def _is_of_kubernetes(problem: Problem) -> bool:
    """Return whether a problem is an error outside of podslice's annotations.

    A kubelet does not read these, and an error of one author must not prevent an audit of the node.
    """
    return problem.severity is Severity.ERROR and f"[{PREFIX}" not in problem.where


def _of_several_nodes(
    stated: Sequence[tuple[Pod, Mapping[str, Any]]],
) -> Iterator[Problem]:
    """Yield the problem of a list with the pods of more than one node."""
    stated_names = (mapping_of(value, "spec").get("nodeName") for _, value in stated)
    names = sorted({each for each in stated_names if isinstance(each, str) and each})
    if len(names) > 1:
        shown = ", ".join(map(quote, names[:_NODES_SHOWN]))
        more = ", …" if len(names) > _NODES_SHOWN else ""
        yield Problem(
            where=stated[0][0].where,
            message=f"the pods are of {len(names)} nodes: {shown}{more}",
            hint=f"save those of one node: {_SAVE}",
        )


def _stated(loaded: LoadedPods) -> list[tuple[Pod, Mapping[str, Any]]]:
    """Return the pods with their objects in the documents."""
    objects = {
        (where, extend_path(path, "spec")): value
        for where, document in loaded.documents.items()
        for path, value in _items(document, "")
    }
    return [(pod, objects.get((pod.where, pod.spec_where), {})) for pod in loaded.pods]


def _has_uid(value: Mapping[str, Any]) -> bool:
    return bool(mapping_of(value, "metadata").get("uid"))


def _items(value: object, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if not isinstance(items, list):
        yield path, value
        return
    for index, item in enumerate(items):
        yield from _items(item, extend_path(extend_path(path, "items"), index))


def _entries(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = value.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _read_pod(pod: Pod, stated: Mapping[str, Any]) -> KubeletPod:
    status, metadata = mapping_of(stated, "status"), mapping_of(stated, "metadata")
    phase = status.get("phase")
    conditions = _entries(status, "conditions")
    return KubeletPod(
        pod=pod,
        has_own_level=bool(pod.resources) and not mapping_of(stated, "spec").get("resources"),
        has_runtime_class=bool(mapping_of(stated, "spec").get("runtimeClassName")),
        qos=_CLASSES.get(str(status.get("qosClass"))),
        is_running=phase in {None, "Running"} and not metadata.get("deletionTimestamp"),
        is_terminal=phase in _TERMINAL,
        is_resizing=any(
            each.get("type") in _RESIZES and each.get("status") == "True" for each in conditions
        ),
        started_sec=_read_time(status.get("startTime")),
        scopes=dict(_scopes(status)),
    )


def _mirrored_uid(stated: Mapping[str, Any]) -> str | None:
    """Return the uid of the static pod that a pod shows; None if it shows none."""
    found = mapping_of(mapping_of(stated, "metadata"), "annotations").get(_MIRROR)
    return found if isinstance(found, str) and is_uid(found) else None


def _scopes(status: Mapping[str, Any]) -> Iterator[tuple[str, UnitName]]:
    """Yield the running containers with their scopes."""
    for key in _STATUSES:
        for each in _entries(status, key):
            scheme, _, id_ = str(each.get("containerID", "")).partition("://")
            name = UnitName(f"{_PREFIXES.get(scheme, scheme)}-{id_}.scope")
            is_running = "running" in mapping_of(each, "state")
            if is_running and scheme in _PREFIXES and is_unit_name(name):
                yield str(each.get("name", "")), name


def _read_time(value: object) -> int | None:
    """Return a time such as `2026-01-02T03:04:05Z` in seconds since the epoch."""
    try:
        return int(datetime.fromisoformat(str(value)).timestamp())
    except (ValueError, OverflowError):
        return None


def find_static_uids(pods: Sequence[Pod], logs: Path = LOGS) -> Mapping[str, str]:
    """Return the uids of static pods by their keys; of pods without a directory none.

    A directory is `NAMESPACE_NAME-NODE_UID`. A pod has a new one after each change of its manifest:
    the newest counts. Of two pods whose names begin a directory's name, the longer name does.

    Source: Kubernetes, pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory;
    pkg/kubelet/config/common.go, applyDefaults and generatePodName.
    """
    names = sorted(
        ((pod.namespace, pod.name, pod.key) for pod in pods), key=lambda each: -len(each[1])
    )
    found: dict[str, tuple[float, str]] = {}
    for changed, namespace, name, uid in _directories(logs):
        for pod_namespace, pod_name, key in names:
            if namespace == pod_namespace and name.startswith(f"{pod_name}-"):
                found[key] = max(found.get(key, (changed, uid)), (changed, uid))
                break
    return {key: uid for key, (_, uid) in found.items()}


def _directories(logs: Path) -> Iterator[tuple[float, str, str, str]]:
    """Yield the time of the last change, namespace, name and uid of each directory."""
    with suppress(OSError), os.scandir(logs) as entries:
        for entry in entries:
            parts = entry.name.split("_")
            if len(parts) == 3 and is_uid(parts[2]):
                yield entry.stat().st_mtime, parts[0], parts[1], parts[2]
