"""Arguments that several verbs share, and exit codes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from itertools import chain
from typing import Annotated, NamedTuple

import typer

from podslice.cli.output import OutputFormat, ReportFormat
from podslice.cli.suggestions import closest
from podslice.errors import InputError, Problem, Severity, invalid
from podslice.model.grammar import check_label

DONE, FAILED, BAD_INPUT, DIFFERENCES = 0, 1, 2, 3
"""Exit codes."""


def files_option(text: str) -> object:
    """Return `-f FILE` with this help."""
    return typer.Option("--filename", "-f", metavar="FILE", help=text)


_READ = "Read this file or directory, or - for stdin; may be repeated."
Files = Annotated[list[str], files_option(_READ)]
FilesOrDefault = Annotated[
    list[str] | None, files_option(f"{_READ} Without it, the manifest directories.")
]


def check_namespace(name: str | None) -> str | None:
    """Return the value of `--namespace`.

    Raises:
        InputError: it is not a valid name.
    """
    if name is None:
        return None

    problem = check_label(name, "namespace")
    if problem is not None:
        raise InputError(problem.within("--namespace"))
    return name


def _namespace_option(text: str) -> object:
    return typer.Option("--namespace", "-n", metavar="NAME", callback=check_namespace, help=text)


Namespace = Annotated[str | None, _namespace_option("Namespace of pods without one.")]
OnlyNamespace = Annotated[
    str | None,
    _namespace_option(
        "Show only pods of this namespace; with POD, the namespace of pods without one."
    ),
]
NamespaceOfNew = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace of the pod.")
]
TextOrJson = Annotated[ReportFormat, typer.Option("--output", "-o", help="Output format.")]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[POD]...", help="Only these pods, as NAME or NAMESPACE/NAME."),
]
ShownPods = Annotated[
    list[str] | None,
    typer.Argument(metavar="[POD]...", help="Show only these pods, as NAME or NAMESPACE/NAME."),
]
OnlyProblems = Annotated[
    bool, typer.Option("--problems", help="Show only pods and slices with problems.")
]
PodName = Annotated[str, typer.Argument(metavar="POD", help="The pod, as NAME or NAMESPACE/NAME.")]


def container_option(text: str) -> object:
    """Return `-c CONTAINER` with this help."""
    return typer.Option("--container", "-c", metavar="CONTAINER", help=text)


ContainerName = Annotated[
    str | None, container_option("Container of the pod; required if it has several.")
]
Prune = Annotated[
    bool, typer.Option("--prune", help="Remove applied pods that are not in the manifests.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Set memory limits even below current usage; the kernel may OOM-kill processes.",
    ),
]

RestartService = Annotated[
    bool,
    typer.Option("--restart", help="Restart services that run, so that they change their slice."),
]


def since_option(what: str) -> object:
    """Return `--since TIME`, for what is shown."""
    text = f"Show only later {what}: 2h (ago), yesterday, '2026-01-31 12:00'; see systemd.time(7)."
    return typer.Option("--since", metavar="TIME", help=text)


def lines_option(what: str) -> object:
    """Return `--lines NUMBER`, for what is shown."""
    text = f"Show at most this many {what}, the latest."
    return typer.Option("--lines", metavar="NUMBER", min=0, help=text)


class Sort(StrEnum):
    """Columns to sort by: names ascending, numbers descending."""

    CPU = "cpu"
    MEMORY = "memory"
    THROTTLED = "throttled"
    PRESSURE = "pressure"
    NAME = "name"


def code_of(problems: Iterable[Problem]) -> int:
    """Return the exit code of problems: 2 if one is an error."""
    return BAD_INPUT if any(found.severity is Severity.ERROR for found in problems) else DONE


_PREFIXES = ("pod/", "pods/", "po/")
"""What kubectl writes and accepts before the name of a pod."""
_LIST = "to list pods: podslice status"
_LISTED_MAX = 5


def key_of(name: str, namespace: str | None) -> str:
    """Return `NAME`, `NAMESPACE/NAME` or `pod/NAME` as the key of a pod."""
    prefix = next((each for each in _PREFIXES if name.startswith(each)), "")
    name = name.removeprefix(prefix)
    return name if "/" in name else f"{namespace or 'default'}/{name}"


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
        unknown = [
            Problem(where=key, message="no such pod", hint=nearest_pod(key, known) or _LIST)
            for key, pods in found.items()
            if not pods
        ]
        if unknown:
            raise InputError(unknown)
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

    The pods of the workload `default/shop` are `default/shop-0`, `default/shop-1` and so on.
    """
    if key in known:
        return [key]
    numbers = {each: each.removeprefix(f"{key}-") for each in known if each.startswith(f"{key}-")}
    return sorted(
        (each for each, number in numbers.items() if number.isdecimal() and number.isascii()),
        key=lambda each: int(numbers[each]),
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
