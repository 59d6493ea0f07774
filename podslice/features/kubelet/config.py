"""The configuration of a kubelet: its file, or the document of its `/configz`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from podslice.errors import InputError, Problem, invalid, quote
from podslice.features.kubelet.model import KUBELET_VERSION, KubeletSettings
from podslice.inputs.budget import Budget, Exhausted
from podslice.inputs.manifest.parse import read_documents
from podslice.inputs.options.config_files import make_config, restore
from podslice.inputs.options.values import read_boolean
from podslice.inputs.scalars import read_int
from podslice.model.config import DEFAULT_EVICTION_HARD, Config, OomPolicy, SwapBehavior
from podslice.model.resources import CPU

_KIND = "KubeletConfiguration"
_WRAPPER = "kubeletconfig"
"""The key under which `/configz` has the configuration."""
_OPTIONS = {
    "cgroupRoot": "cgroup-root",
    "cgroupsPerQOS": "cgroups-per-qos",
    "cpuCFSQuota": "cpu-cfs-quota",
    "cpuCFSQuotaPeriod": "cpu-cfs-quota-period",
    "enforceNodeAllocatable": "enforce-node-allocatable",
    "evictionHard": "eviction-hard",
    "kubeReserved": "kube-reserved",
    "kubeReservedCgroup": "kube-reserved-cgroup",
    "qosReserved": "qos-reserved",
    "reservedSystemCPUs": "reserved-cpus",
    "systemReserved": "system-reserved",
    "systemReservedCgroup": "system-reserved-cgroup",
}
"""Field of the kubelet's configuration → option of podslice with the same meaning."""
_AMOUNTS = frozenset({"kubeReserved", "systemReserved"})
_SWAP = {each.value: each for each in SwapBehavior}
_CGROUPFS = "cgroupfs"
_RUNTIME_STATES_DRIVER_SINCE = (1, 31)
"""Since then the driver that the runtime states counts, and `/configz` does not show it.

Source: Kubernetes, pkg/features/kube_features.go, KubeletCgroupDriverFromCRI;
cmd/kubelet/app/server.go, run: `/configz` gets its copy before the runtime is asked.
"""
_IGNORED = ("0%", "100%")
"""Source: Kubernetes, pkg/kubelet/eviction/helpers.go, parseThresholdStatement."""
_OF_CONTROL_GROUPS = ("memory.available", "pid.available")
T = TypeVar("T")


def mapping_of(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping in a field; one of another type counts as not stated."""
    found = fields.get(key)
    return found if isinstance(found, dict) else {}


def read_document(data: bytes, where: str) -> object:
    """Return the only document of a text; None if there is not exactly one.

    Raises:
        InputError: it is not YAML, or exceeds the limits.
    """
    try:
        found = list(read_documents(data, where, Budget()))
    except InputError as error:
        raise InputError(each.within(where) for each in error.problems) from error
    except Exhausted as error:
        raise InputError(error.at(where)) from error
    if problems := [each.within(where) for one in found for each in one.invalid_texts]:
        raise InputError(problems)
    return found[0].value if len(found) == 1 else None


def read_settings(
    data: bytes,
    where: str,
    *,
    changed_sec: int | None = None,
    version: tuple[int, int] = KUBELET_VERSION,
) -> KubeletSettings:
    """Read the configuration of a kubelet, as YAML or JSON.

    Args:
        data: the text.
        where: its name in messages.
        changed_sec: when it was changed last, in seconds since the epoch; None if unknown.
        version: of the kubelet, major and minor.

    Raises:
        InputError: it is not a configuration, or invalid; it has every problem.
    """
    fields, is_served = _read_document(data, where)
    problems: list[Problem] = []
    config = _read_config(fields, where, problems)
    gates = mapping_of(fields, "featureGates")
    pids = _read(fields, "podPidsLimit", read_int, where, problems)
    kills_one = _read(fields, "singleProcessOOMKill", read_boolean, where, problems)
    swap = mapping_of(fields, "memorySwap").get("swapBehavior")
    if problems:
        raise InputError(problems)
    return KubeletSettings(
        config=replace(
            config,
            oom_policy=OomPolicy.PROCESS if kills_one else config.oom_policy,
            memory_swap_behavior=_SWAP.get(
                str(swap or SwapBehavior.NO_SWAP), SwapBehavior.UNLIMITED
            ),
        ),
        version=version,
        pod_pids_limit=pids if pids and pids > 0 else None,
        feature_gates={name: str(value).lower() == "true" for name, value in gates.items()},
        configures_memory_qos=fields.get("memoryThrottlingFactor") is not None
        or fields.get("memoryReservationPolicy") not in {None, "", "None"},
        has_static_cpus=fields.get("cpuManagerPolicy") == "static",
        has_static_memory=fields.get("memoryManagerPolicy") == "Static",
        has_cgroupfs=fields.get("cgroupDriver") == _CGROUPFS
        and (not is_served or version < _RUNTIME_STATES_DRIVER_SINCE),
        ignored_thresholds=tuple(
            sorted(
                signal
                for signal, value in mapping_of(fields, "evictionHard").items()
                if value in _IGNORED and signal in _OF_CONTROL_GROUPS
            )
        ),
        changed_sec=changed_sec,
    )


def read_version(text: str) -> tuple[int, int]:
    """Return major and minor of `1.36`, `v1.36.2` or `v1.31.4+k3s1`.

    Raises:
        InputError: it is not a version.
    """
    parts = text.removeprefix("v").split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdigit() for part in parts[:2]):
        raise invalid(f"{quote(text)} is not a version of the kubelet", "write 1.36, for example")
    return int(parts[0]), int(parts[1])


def _read_document(data: bytes, where: str) -> tuple[Mapping[str, Any], bool]:
    """Return the fields of the only document, and whether `/configz` has returned the document."""
    document = read_document(data, where)
    if isinstance(document, dict) and isinstance(document.get(_WRAPPER), dict):
        return dict(document[_WRAPPER]), True
    if not isinstance(document, dict) or document.get("kind") != _KIND:
        hint = "give the file of the kubelet's --config, or the document of its /configz"
        raise invalid(f"there is not exactly one {_KIND} in it", hint, where=where)
    return document, False


def _read_config(fields: Mapping[str, Any], where: str, problems: list[Problem]) -> Config:
    """Return the options that the configuration states; empty values are not stated."""
    stated = {
        option: _merged(fields, key)
        for key, option in _OPTIONS.items()
        if fields.get(key) is not None and fields[key] != ""
    }
    names = {option: key for key, option in _OPTIONS.items()}
    try:
        return make_config(restore(stated), {})
    except InputError as error:
        for found in error.problems:
            option, _, rest = found.where.partition(".")
            at = names.get(option, option) + (f".{rest}" if rest else "")
            problems.append(replace(found, where=f"{where}: {at}"))
    return Config()


def _merged(fields: Mapping[str, Any], key: str) -> object:
    """Return the value of a field; thresholds with the defaults, if the configuration merges them.

    Reserved CPUs replace amounts of CPU that are reserved.

    Source: Kubernetes, staging/src/k8s.io/kubelet/config/v1beta1/types.go,
    MergeDefaultEvictionSettings; cmd/kubelet/app/server.go, ReservedSystemCPUs.
    """
    value: object = fields[key]
    if key in _AMOUNTS and isinstance(value, dict) and fields.get("reservedSystemCPUs"):
        return {name: amount for name, amount in value.items() if name != CPU}
    # without this option thresholds that are stated replace all defaults
    merges = str(fields.get("mergeDefaultEvictionSettings")).lower() == "true"
    if key == "evictionHard" and isinstance(value, dict) and merges:
        defaults = {
            signal: f"{(each.percent_milli or 0) // 1000}%"
            if each.amount is None
            else str(each.amount // 1000)
            for signal, each in DEFAULT_EVICTION_HARD.items()
        }
        return {**defaults, **value}
    return value


def _read(
    fields: Mapping[str, Any],
    key: str,
    read: Callable[[object], T],
    where: str,
    problems: list[Problem],
) -> T | None:
    """Return the value of a field; None if it is not stated, or invalid."""
    value = fields.get(key)
    try:
        return None if value is None else read(value)
    except InputError as error:
        problems += [each.within(f"{where}: {key}") for each in error.problems]
        return None
