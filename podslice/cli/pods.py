"""Pods as the command line names them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from podslice.cli.suggestions import closest
from podslice.errors import InputError, Problem, invalid

_PODS = frozenset({"pod", "pods", "po"})
"""What kubectl writes and accepts before the name of a pod."""
_WORKLOADS = frozenset(
    {
        *("deployment", "deployments", "deploy", "replicaset", "replicasets", "rs"),
        *("statefulset", "statefulsets", "sts", "daemonset", "daemonsets", "ds"),
        *("job", "jobs", "cronjob", "cronjobs", "cj"),
    }
)
"""The same before the name of a workload. Source: Kubernetes, kubectl, "Resource types"."""
_LIST = "to list pods: podslice status"
_LISTED_MAX = 5


def key_of(name: str, namespace: str | None) -> str:
    """Return `NAME`, `NAMESPACE/NAME` or `pod/NAME` as the key of a pod.

    The kind of a workload remains in the key where it may be a namespace.
    """
    prefix, slash, rest = name.partition("/")
    is_workload = prefix in _WORKLOADS and (namespace is not None or "/" in rest)
    if slash and (prefix in _PODS or is_workload):
        name = rest
    return name if "/" in name else f"{namespace or 'default'}/{name}"


def without_kind(
    names: Sequence[str], namespace: str | None, known: Collection[str]
) -> Sequence[str]:
    """Return names without a leading kind, as in kubectl's `delete pod web`.

    A pod or a workload of that name is a name.
    """
    is_kind = len(names) > 1 and names[0] in _PODS | _WORKLOADS
    if is_kind and not pods_named(key_of(names[0], namespace), known):
        return names[1:]
    return names


class PodFilter(NamedTuple):
    """The pods that a verb shows."""

    keys: tuple[str, ...] = ()
    """The pods as `namespace/name`; empty for all."""
    namespace: str | None = None
    """The namespace of the pods, where `keys` is empty; None for all."""
    only_problems: bool = False
    """Whether only pods with problems are shown."""

    @property
    def is_total(self) -> bool:
        """Whether all pods are shown."""
        return not self.keys and self.namespace is None and not self.only_problems

    def selects(self, key: str) -> bool:
        """Return whether a pod is requested, with or without problems."""
        if self.keys:
            return key in self.keys
        return self.namespace is None or key.startswith(f"{self.namespace}/")

    def resolve(self, known: Collection[str]) -> PodFilter:
        """Return the filter with the pods of each workload that is named.

        Raises:
            InputError: a name is neither of a pod nor of a workload; its hint is the most similar
                name.
        """
        found = {key: pods_named(key, known) for key in self.keys}
        if unknown := [key for key, pods in found.items() if not pods]:
            raise unknown_pods(unknown, known, "no such pod")
        return self._replace(keys=tuple(dict.fromkeys(chain.from_iterable(found.values()))))


def pod_filter(
    names: Iterable[str] | None, namespace: str | None, *, only_problems: bool = False
) -> PodFilter:
    """Return the filter of `[POD]... -n NAME --problems`."""
    keys = dict.fromkeys(key_of(name, namespace) for name in names or ())
    return PodFilter(
        keys=tuple(keys), namespace=None if keys else namespace, only_problems=only_problems
    )


def pods_named(key: str, known: Collection[str]) -> list[str]:
    """Return the pod of this name, or else the pods of the workload of this name.

    The pods of the workload `default/shop` are `default/shop-0`, `default/shop-1` and so on. Its kind
    may be stated, as in `deployment/shop`, unless that is a namespace with pods.
    """
    kind, _, name = key.partition("/")
    if kind in _WORKLOADS and not any(each.startswith(f"{kind}/") for each in known):
        key = f"default/{name}"
    if key in known:
        return [key]
    numbers = {each: each.removeprefix(f"{key}-") for each in known if each.startswith(f"{key}-")}
    return sorted(
        (each for each, number in numbers.items() if number.isdecimal() and number.isascii()),
        key=lambda each: int(numbers[each]),
    )


def keys_named(names: Iterable[str], namespace: str | None, known: Collection[str]) -> list[str]:
    """Return the keys of the pods and of the pods of workloads that are named, also unknown ones."""
    keys = [key_of(name, namespace) for name in names]
    return [each for key in keys for each in pods_named(key, known) or [key]]


def unknown_pods(keys: Iterable[str], known: Collection[str], message: str) -> InputError:
    """Return the error of pods that do not exist; its hints are the most similar names."""
    return InputError(
        Problem(where=key, message=message, hint=nearest_pod(key, known) or _LIST) for key in keys
    )


def only_pod_named(name: str, namespace: str | None, known: Collection[str]) -> str:
    """Return the key of a pod, also where its workload is named and has no other pod.

    A name that is not known is returned as a key.

    Raises:
        InputError: the workload has several pods.
    """
    key = key_of(name, namespace)
    found = pods_named(key, known)
    if len(found) > 1:
        listed = ", ".join(found[:_LISTED_MAX]) + (", …" if len(found) > _LISTED_MAX else "")
        message = f"{len(found)} pods have this workload"
        raise invalid(message, f"name one: {listed}", where=key)
    return found[0] if found else key


def nearest_pod(key: str, known: Collection[str]) -> str:
    """Return a hint with the most similar known pod; empty if there is none."""
    name = key.rpartition("/")[2]
    elsewhere = sorted(each for each in known if each.rpartition("/")[2] == name)
    near = elsewhere[0] if elsewhere else closest(key, known)
    return f"did you mean {near}?" if near else ""
