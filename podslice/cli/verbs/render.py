"""`podslice render`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import Files, Namespace, Output, code_of
from podslice.cli.extensions import cpu_stage, extended
from podslice.cli.generated_files import FileEntry, FilesReport, emit_files, write_generated
from podslice.cli.host import load_node
from podslice.cli.manifests import all_problems, decide_all, load_all
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note, note_problems
from podslice.cli.report import Setting, document, hugetlb_bytes
from podslice.cli.views.layout import Column, Shorten, table
from podslice.cli.views.style import Display
from podslice.errors import InputError
from podslice.model.desired import Desired
from podslice.model.pod import InitProgress
from podslice.model.properties import PROPERTIES, format_value
from podslice.model.unit import GENERATED, DesiredUnit, UnitKind, UnitName
from podslice.policy.allocatable import validate_node
from podslice.policy.desire import desire
from podslice.reconcile.report import describe_refusal


@dataclass(frozen=True, kw_only=True)
class UnitEntry:
    """A unit that should exist, with its values."""

    name: UnitName
    kind: UnitKind
    parent: UnitName
    control_group: str
    properties: dict[str, Setting]
    structure: dict[str, Setting] = field(default_factory=dict)
    """Further properties for its start, such as a mount's type and options."""
    hugetlb_bytes: dict[str, int] | None = None
    """Limits by the size of a page in bytes."""


@dataclass(frozen=True, kw_only=True)
class UnitsReport:
    """The units that should exist."""

    units: tuple[UnitEntry, ...]


Report = UnitsReport | FilesReport


def unit_report(desired: Desired) -> UnitsReport:
    """Return the units that should exist."""
    units = (
        UnitEntry(
            name=unit.name,
            kind=unit.kind,
            parent=unit.parent,
            control_group=unit.control_group,
            properties=dict(unit.values),
            structure=dict(unit.structure),
            hugetlb_bytes=hugetlb_bytes(unit.hugepages),
        )
        for unit in desired.lasting
    )
    return UnitsReport(units=tuple(units))


@planning_options
@extended("render")
def render(
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
    output_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write unit files to this directory.")
    ] = None,
) -> int:
    """Run `podslice render`.

    Examples:
        podslice render -f web.yaml
        podslice render -f web.yaml --output-dir units/
    """
    config, loaded = load_all(planning, filename, namespace)
    node = load_node(config, manager=planning.manager)
    decisions = decide_all(loaded, node, config)
    problems = [*all_problems(loaded, decisions), *validate_node(node, config)]
    if output_dir is not None and code_of(problems):
        raise InputError(problems)
    valid = [each for each in decisions if each.is_valid]
    # the final values: a file cannot represent the progress of init containers
    over = {each.pod.uid: InitProgress(over=True) for each in valid}
    desired = desire(
        valid,
        node,
        config,
        progress=over,
        stage=cpu_stage(config),
        mounts=not planning.manager.is_user,
    )
    note_problems(problems)
    for refusal in desired.refused:
        note(describe_refusal(refusal))
    if output_dir is not None:
        interrupts.begin(f"not all files are in {output_dir}")
        paths = write_generated(unit_files(desired), output_dir, GENERATED)
        emit_files((FileEntry(path=each) for each in paths), output)
    else:
        report = unit_report(desired)
        emit(
            output,
            document=lambda: document(report),
            lines=lambda display: lines(report, display),
            names=lambda: [unit.name for unit in report.units],
        )
    return code_of(problems) or int(bool(desired.refused))


_COLUMNS = (
    Column(title="UNIT", min_width=24, shorten=Shorten.MIDDLE),
    Column(title="PROPERTIES", min_width=30, shorten=Shorten.FOLD),
)


def lines(report: UnitsReport, display: Display) -> Iterator[str]:
    """Return a table of the units; units other than slices are in it only with `-o wide`."""
    rows = []
    for unit in report.units:
        if unit.kind is UnitKind.SLICE or display.wide:
            shown = [f"{name}={PROPERTIES[name].format(v)}" for name, v in unit.structure.items()]
            shown += [
                f"{PROPERTIES[name].key}={format_value(name, value)}"
                for name, value in unit.properties.items()
            ]
            rows.append((unit.name, " ".join(shown)))
    return table(_COLUMNS, rows, display)


# The desired units as unit files: the same tree without podslice running.

# without CPUAccounting=, which is always on with cgroup v2, and which systemd 258 warns of
_ACCOUNTING = ("IOAccounting", "MemoryAccounting", "TasksAccounting")


def unit_files(desired: Desired) -> dict[str, str]:
    """Return file name → text: unit files of podslice's slices, drop-ins of other slices.

    Scopes hold running processes and cannot be files, and mounts of volumes would exist before and
    after their pods; `explain` shows their values.
    """
    return {
        (unit.name if unit.owned else f"{unit.name}.d/50-podslice.conf"): _unit_text(unit)
        for unit in desired.lasting
        if unit.kind is UnitKind.SLICE
    }


def _unit_text(unit: DesiredUnit) -> str:
    sections = [_resource_section(unit)]
    if unit.owned:
        # if enabled, the slices start at boot; otherwise with the first unit in them
        sections = [_unit_section(unit), *sections, ["[Install]", "WantedBy=slices.target"]]
    return "\n\n".join("\n".join(lines) for lines in ([GENERATED], *sections)) + "\n"


def _unit_section(unit: DesiredUnit) -> list[str]:
    description = unit.description.replace("%", "%%")
    lines = ["[Unit]", f"Description={description}", "DefaultDependencies=no"]
    return [*lines, f"Wants={unit.parent}"] if unit.parent != "-.slice" else lines


def _resource_section(unit: DesiredUnit) -> list[str]:
    lines = ["[Slice]"]
    if unit.owned:
        lines += [f"{name}=yes" for name in _ACCOUNTING]
    for property_ in unit.properties:
        row = PROPERTIES[property_.name]
        lines += [f"# {property_.why}"] if property_.why else []
        lines += [f"{row.key}={text}" for text in row.texts(property_.value)]
    return lines
