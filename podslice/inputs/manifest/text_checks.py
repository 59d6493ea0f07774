"""The texts and ports of a pod, checked as the API server does, whether a verb uses them or not.

A field of another type than a text or a number is reported by the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podslice.errors import InputError, quote
from podslice.inputs.budget import PROBLEMS_MAX, WORKLOAD_ENTRIES_MAX
from podslice.inputs.manifest.problems import Problems
from podslice.inputs.scalars import extend_path, read_int, read_port, read_text
from podslice.model.grammar import PORT_NAME
from podslice.model.pod_texts import POD_TEXTS, PodText

_PORT_MAX = 2**16 - 1
_LIST = "[]"
_CLAIMS = "volumeClaimTemplates[]"
# read by `podspec`, `memory_volumes` and `collect`, since units have them without a workload
_READ_ELSEWHERE = ("metadata.", "containers[].name", "volumes[].name", _CLAIMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Port:
    """A field with the number of a port, or else its name."""

    is_required: bool = True
    may_be_name: bool = False


_PORTS = {
    "containers[].ports[].containerPort": _Port(),
    "containers[].ports[].hostPort": _Port(is_required=False),
    **{
        f"containers[].{probe}.{action}.port": _Port(may_be_name=True)
        for probe in ("livenessProbe", "readinessProbe", "startupProbe")
        for action in ("httpGet", "tcpSocket")
    },
}


@dataclass(slots=True)
class _Node:
    """A mapping or a list: the rows of its fields, and the nodes below it."""

    fields: dict[str, PodText | _Port | _Node] = field(default_factory=dict)
    """`[]` stands for each entry of a list."""
    required: list[str] = field(default_factory=list)


def _grow(rows: Mapping[str, PodText | _Port]) -> _Node:
    top = _Node()
    for path, row in rows.items():
        *names, last = path.replace(_LIST, f".{_LIST}").split(".")
        node = top
        for name in names:
            below = node.fields.setdefault(name, _Node())
            assert isinstance(below, _Node)  # noqa: S101 (no row is above another)
            node = below
        node.fields[last] = row
        if row.is_required:
            node.required.append(last)
    return top


_TEXTS = {key: row for key, row in POD_TEXTS.items() if not key.startswith(_READ_ELSEWHERE)}
_POD = _grow({**_TEXTS, **_PORTS})
_POD.fields["initContainers"] = _POD.fields["containers"]
_STATEFUL_SET = _grow({key: row for key, row in POD_TEXTS.items() if key.startswith(_CLAIMS)})


def check_texts(
    spec: Mapping[str, Any], problems: Problems, path: str, *, of_claims: bool = False
) -> None:
    """Report the texts and ports of a pod's `spec` that are not valid, or of a StatefulSet's claims."""
    _check(_STATEFUL_SET if of_claims else _POD, spec, problems, path)


def _check(
    row: PodText | _Port | _Node,
    value: object,
    problems: Problems,
    path: str,
    *,
    is_entry: bool = False,
) -> None:
    """Check a value; the models report one of another type than a text or a number."""
    if not isinstance(row, _Node):
        if value is not None or is_entry:
            _check_scalar(row, value, problems, path, is_entry=is_entry)
    elif isinstance(value, list) and _LIST in row.fields:
        _check_entries(row.fields[_LIST], value, problems, path)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in row.fields:
                _check(row.fields[key], each, problems, extend_path(path, key))
        for key in row.required:
            if value.get(key) is None:
                problems.error(extend_path(path, key), "is missing", _form(row.fields[key]))


def _check_entries(
    row: PodText | _Port | _Node, value: list[object], problems: Problems, path: str
) -> None:
    """Check the entries of a list, within the limits."""
    if len(value) > WORKLOAD_ENTRIES_MAX:
        if not problems.has_error(path):
            hint = f"the maximum is {WORKLOAD_ENTRIES_MAX}"
            problems.error(path, f"has {len(value)} entries", hint)
        return
    for index, each in enumerate(value):
        if len(problems.found) > PROBLEMS_MAX:
            return
        _check(row, each, problems, f"{path}[{index}]", is_entry=True)


def _check_scalar(
    row: PodText | _Port, value: object, problems: Problems, path: str, *, is_entry: bool
) -> None:
    try:
        if isinstance(row, _Port):
            _check_port(row, value, problems, path)
            return
        text = read_text(value)
    except InputError as error:
        problems.add(path, *error.problems)
        return
    if (text or row.is_required or is_entry) and not row.grammar.matches(text):
        problems.error(path, f"{quote(text)} is not {row.grammar.name}", row.grammar.form)


def _check_port(port: _Port, value: object, problems: Problems, path: str) -> None:
    """Check a port; 0 stands for none where none is required.

    Raises:
        InputError: it is of another type.
    """
    found = read_port(value) if port.may_be_name else read_int(value)
    if isinstance(found, str):
        if not PORT_NAME.matches(found):
            problems.error(path, f"{quote(found)} is not {PORT_NAME.name}", PORT_NAME.form)
    elif not (0 < found <= _PORT_MAX or (found == 0 and not port.is_required)):
        problems.error(path, f"{found} is not a port", _form(port))


def _form(row: PodText | _Port | _Node) -> str:
    """Return the remedy for a field."""
    return row.grammar.form if isinstance(row, PodText) else f"write 1 to {_PORT_MAX}"
