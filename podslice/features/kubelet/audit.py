"""`podslice audit`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from podslice.cli import coroutines
from podslice.cli.arguments import DIFFERENCES, DONE, files_option
from podslice.cli.host import level_directory, load_node
from podslice.cli.output import OutputFormat, emit, write
from podslice.cli.report import OptionalSetting, document
from podslice.cli.views.layout import Column, Shorten, remedy_section, table
from podslice.cli.views.style import Cell, Display, Role, Styled
from podslice.features.kubelet.levels import LevelRecord
from podslice.features.kubelet.model import (
    AuditedUnit,
    AuditedValue,
    AuditFinding,
    FindingKind,
    KubeletPod,
    KubeletSettings,
    NodeAudit,
)
from podslice.features.kubelet.source import KubeletSource, kubelet_options, read_kubelet
from podslice.features.kubelet.units import KubeletHost, audit_units, unit_patterns
from podslice.features.kubelet.values import expect_node
from podslice.kernel.cgroup import CgroupFs
from podslice.model.node import Node
from podslice.model.properties import PROPERTIES, format_value
from podslice.model.unit import SYSTEM, Value
from podslice.systemd import bus


class AuditFormat(StrEnum):
    """Values of `-o` of `audit`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    PROMETHEUS = "prometheus"


PodFiles = Annotated[
    list[str] | None,
    files_option("Files with its pods."),
]
Format = Annotated[
    AuditFormat,
    typer.Option(
        "--output", "-o", metavar="FORMAT", help="table, json, prometheus, …", show_default=False
    ),
]


@kubelet_options
def audit(
    filename: PodFiles = None, *, source: KubeletSource, output: Format = AuditFormat.TABLE
) -> int:
    """Run `podslice audit`.

    Nothing is changed. The exit status is 3 if there is a problem.

    Examples:
        podslice audit --kubelet https://127.0.0.1:10250 --kubeconfig reader.conf
        podslice audit -f pods.json --kubelet-config config.json -o wide
    """
    pods, settings = read_kubelet(source, filename or ())
    found = coroutines.run(_observe(pods, load_node(settings.config), settings))
    if output is AuditFormat.PROMETHEUS:
        write(metrics(found))
    else:
        emit(
            OutputFormat(output),
            document=lambda: document(audit_report(found)),
            lines=lambda display: lines(found, display),
            names=lambda: dict.fromkeys(each.object for each in found.problems),
        )
    return DIFFERENCES if found.problems else DONE


async def _observe(pods: Sequence[KubeletPod], node: Node, settings: KubeletSettings) -> NodeAudit:
    """Return the audit of the loaded units of the kubelet."""
    cgroups = CgroupFs()
    async with bus.Bus(SYSTEM) as client:
        default = await client.default_tasks_max()
        expected = expect_node(pods, node, settings, default_tasks_max=default)
        observed = await client.observe(unit_patterns(expected, cgroups))
    host = KubeletHost(
        observed={unit.name: unit for unit in observed},
        cgroups=cgroups,
        own=LevelRecord(level_directory(SYSTEM)).read(),
        page_size=node.page_size_bytes,
    )
    return audit_units(expected, host, settings)


_UNIT = Column(title="UNIT", min_width=28, shorten=Shorten.MIDDLE)
_COLUMNS = (
    _UNIT,
    Column(title="POD", min_width=12, shorten=Shorten.MIDDLE),
    Column(title="CONTAINER", drop=1, min_width=8, shorten=Shorten.MIDDLE),
    Column(title="STATE", min_width=8),
)
_VALUES = (
    _UNIT,
    *(Column(title=title) for title in ("PROPERTY", "EXPECTED", "SYSTEMD", "KERNEL", "WHY")),
)
_AS_EXPECTED, _PENDING, _MISSING = "as expected", "pending", "missing"
_DIFFERENT, _KNOWN = "differs", "known"
_ROLES = {_AS_EXPECTED: Role.GOOD, _KNOWN: Role.GOOD, _PENDING: Role.DIM}


def lines(found: NodeAudit, display: Display) -> Iterator[str]:
    """Yield a line for each unit, then the problems and the known behaviour."""
    yield from table(_COLUMNS, (_unit_cells(each) for each in found.units), display)
    if display.wide:
        yield ""
        cells = (
            _value_cells(unit, each)
            for unit in found.units
            for each in unit.values
            if each.expected.has_source or each.kind
        )
        yield from table(_VALUES, cells, display)
    known = [each for each in found.findings if each.kind.is_known]
    yield from _listed("PROBLEMS", found.problems, display)
    yield from _listed("KNOWN BEHAVIOUR OF THE KUBELET", known, display)
    if not found.problems:
        yield ""
        yield display.paint("no problems found", Role.GOOD)


def _state(unit: AuditedUnit) -> str:
    if not unit.exists:
        return _MISSING if unit.expected.is_required else _PENDING
    kinds = {each.kind for each in unit.values if each.kind}
    if any(not kind.is_known for kind in kinds):
        return _DIFFERENT
    return _KNOWN if kinds else _AS_EXPECTED


def _unit_cells(unit: AuditedUnit) -> Sequence[Cell]:
    expected, state = unit.expected, _state(unit)
    pod = expected.pod.pod.key if expected.pod else "-"
    cell = Styled(state, _ROLES.get(state, Role.ERROR))
    return expected.name, pod, expected.container or "-", cell


def _value_cells(unit: AuditedUnit, found: AuditedValue) -> Sequence[Cell]:
    expected = found.expected
    is_property = expected.name in PROPERTIES
    return (
        unit.expected.name,
        PROPERTIES[expected.name].key if is_property else expected.name,
        _text(expected.name, expected.value),
        "-" if found.systemd is None else _text(expected.name, found.systemd),
        found.kernel or "-",
        expected.why,
    )


def _text(name: str, value: Value | None) -> str:
    return format_value(name, value) if name in PROPERTIES else str(value)


def _listed(title: str, found: Sequence[AuditFinding], display: Display) -> Iterator[str]:
    """Return findings with their remedies."""
    sentences = []
    for each in found:
        whose = f" ({each.pod})" if each.pod and each.pod != each.object else ""
        sentences.append((f"{each.object}{whose}: {each.message}", each.hint))
    return remedy_section(title, sentences, display, "more; to see all: podslice audit -o json")


@dataclass(frozen=True, kw_only=True)
class ValueEntry:
    """A property or a file of a unit."""

    name: str
    expected: OptionalSetting
    systemd: OptionalSetting
    kernel: str | None
    finding: FindingKind | None
    why: str


@dataclass(frozen=True, kw_only=True)
class UnitEntry:
    """A unit with its values."""

    unit: str
    control_group: str
    pod: str | None
    container: str | None
    exists: bool
    properties: tuple[ValueEntry, ...]


@dataclass(frozen=True, kw_only=True)
class FindingEntry:
    """A problem, or known behaviour of a kubelet."""

    kind: FindingKind
    known: bool
    object: str
    pod: str | None
    property: str | None
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The units with their values, and the findings."""

    units: tuple[UnitEntry, ...]
    findings: tuple[FindingEntry, ...]


def audit_report(found: NodeAudit) -> AuditReport:
    """Return the report for programs."""
    return AuditReport(
        units=tuple(
            UnitEntry(
                unit=each.expected.name,
                control_group=each.expected.control_group,
                pod=each.expected.pod.pod.key if each.expected.pod else None,
                container=each.expected.container,
                exists=each.exists,
                properties=tuple(map(_value_entry, each.values)),
            )
            for each in found.units
        ),
        findings=tuple(
            FindingEntry(
                kind=each.kind,
                known=each.kind.is_known,
                object=each.object,
                pod=each.pod,
                property=each.property,
                message=each.message,
                hint=each.hint,
            )
            for each in found.findings
        ),
    )


def _value_entry(found: AuditedValue) -> ValueEntry:
    return ValueEntry(
        name=found.expected.name,
        expected=found.expected.value,
        systemd=found.systemd,
        kernel=found.kernel,
        finding=found.kind,
        why=found.expected.why,
    )


def metrics(found: NodeAudit) -> Iterator[str]:
    """Yield the findings as metrics in the text format of Prometheus."""
    counts = Counter(each.kind for each in found.findings)
    yield from _family(
        "podslice_audit_findings",
        'Findings of the last audit by kind; those with known="true" are not problems.',
        (
            ({"kind": kind.value, "known": str(kind.is_known).lower()}, counts[kind])
            for kind in FindingKind
        ),
    )
    compared = sum(unit.exists for unit in found.units)
    yield from _family("podslice_audit_units", "Units that were compared.", [({}, compared)])
    yield from _family(
        "podslice_audit_finding",
        "One problem of the last audit; the value is always 1.",
        ((dict(labels), 1) for labels in dict.fromkeys(map(_labels, found.problems))),
    )


def _labels(found: AuditFinding) -> tuple[tuple[str, str], ...]:
    return (
        ("kind", found.kind.value),
        ("object", found.object),
        ("pod", found.pod or ""),
        ("property", found.property or ""),
    )


def _family(name: str, text: str, samples: Iterable[tuple[dict[str, str], int]]) -> Iterator[str]:
    yield format_head(name, "gauge", text)
    for labels, value in samples:
        yield format_sample(name, labels, str(value))


_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def format_head(name: str, kind: str, text: str) -> str:
    """Return the lines before the samples of a metric; `kind` is `gauge`, for example."""
    return f"# HELP {name} {text.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}"


def format_sample(name: str, labels: Mapping[str, str], value: str) -> str:
    """Return the line of a sample, with its labels in the order of their names."""
    pairs = (f'{label}="{labels[label].translate(_LABEL_ESCAPES)}"' for label in sorted(labels))
    return f"{name}{{{','.join(pairs)}}} {value}" if labels else f"{name} {value}"
