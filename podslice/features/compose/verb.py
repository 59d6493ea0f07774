"""`podslice compose`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, Namespace, TextOrJson, code_of, files_option
from podslice.cli.generated_files import write_generated
from podslice.cli.host import load_node
from podslice.cli.manifests import all_problems, decide_all, read_stdin
from podslice.cli.options import Planning, configured
from podslice.cli.output import ReportFormat, note, note_problems, write, write_json
from podslice.cli.report import document
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.views.tables import list_first
from podslice.errors import InputError, excerpt, invalid, printable, warning
from podslice.features.compose import tools
from podslice.features.compose.manifest import PodDraft, format_yaml, make_override, unsupported_by
from podslice.features.compose.project import Project, Settings, parse_budget, read_project
from podslice.features.compose.tools import HEAD, OVERRIDE, ComposeTool, ProjectFiles, up_command
from podslice.features.doctor.facts import SYSTEMD, installed_runtimes
from podslice.inputs.budget import Budget
from podslice.inputs.manifest.load import read_manifest
from podslice.inputs.source import read_sources
from podslice.model.desired import PodDecision
from podslice.model.pod import Qos
from podslice.model.resources import format_amounts

HOST_ROOT = Path("/")
MANIFEST = "pod.podslice.yaml"
"""The name of the manifest."""
_NAMES_MAX = 5
_WARNINGS_SHOWN = 100

ComposeFiles = Annotated[
    list[str] | None,
    files_option("A compose file; may be repeated."),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        metavar="AMOUNTS",
        help="The project's, as cpu=2,memory=4Gi.",
    ),
]
Reserve = Annotated[
    bool,
    typer.Option(
        "--reserve",
        help="Make the limits requests, too.",
    ),
]
ProfileNames = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A profile; may be repeated.")
]
EnvFiles = Annotated[
    list[str] | None, typer.Option(metavar="FILE", help="Use this file instead of .env.")
]
ProjectName = Annotated[
    str | None, typer.Option("--project-name", "-p", metavar="NAME", help="The project's name.")
]
PodName = Annotated[str | None, typer.Option(metavar="NAME", help="The pod's name.")]
Tool = Annotated[
    ComposeTool | None,
    typer.Option(metavar="TOOL", help="docker, docker-compose, podman-compose"),
]
Resolved = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Output of docker compose config.",
    ),
]
WriteOverride = Annotated[
    bool,
    typer.Option(
        "--write-override",
        help="Write what compose reads by itself.",
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write both files here."),
]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The files of a project's pod, and the commands that start it."""

    pod: str
    """`namespace/name`."""
    qos_class: Qos
    slice: str
    manifest: str
    override: str
    apply: tuple[str, ...]
    up: tuple[str, ...]


@configured
def compose(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    filename: ComposeFiles = None,
    budget: BudgetOption = None,
    reserve: Reserve = False,  # noqa: FBT002
    profile: ProfileNames = None,
    env_file: EnvFiles = None,
    project_name: ProjectName = None,
    name: PodName = None,
    namespace: Namespace = None,
    tool: Tool = None,
    resolved: Resolved = None,
    write_override: WriteOverride = False,  # noqa: FBT002
    output_dir: Directory = None,
    output: TextOrJson = ReportFormat.TEXT,
) -> int:
    """Run `podslice compose`.

    The override file starts all services in the pod, so that they share its budget. Nothing is
    started.

    Examples:
        podslice compose --budget cpu=2,memory=4Gi
        podslice compose --write-override
    """
    amounts = {} if budget is None else parse_budget(budget, "--budget")
    options = Settings(name=name, namespace=namespace, budget=amounts, reserve=reserve)
    files = ProjectFiles(
        files=_list_files(filename, has_resolved=resolved is not None),
        profiles=tuple(profile or ()),
        env_files=tuple(env_file or ()),
        project_name=project_name,
    )
    tool = tool or (tools.find_tool() if resolved is None else ComposeTool.DOCKER)
    if tool is ComposeTool.PODMAN_COMPOSE:
        files = tools.with_stated_profiles(files, os.environ)
    project = _load(files, tool, resolved)
    name = _own_override(tool, filename, output_dir) if write_override else OVERRIDE
    override = (output_dir or Path(files.files[0]).parent) / name
    draft = PodDraft(project, options)
    pod = _decide(planning, draft)
    # everything is decided: from here on files are written
    interrupts.begin(f"not all files are in {override.parent}")
    keys = make_override(project, pod, has_oom_scores=options.reserve)
    texts = {MANIFEST: draft.lines(), override.name: format_yaml(keys)}
    content = {name: "\n".join([HEAD, *lines, ""]) for name, lines in texts.items()}
    written = write_generated(content, override.parent, HEAD)
    if write_override:
        up, later = up_command(tool, files._replace(files=()), (), pod.slice), []
    else:
        up = up_command(tool, files, written[1:], pod.slice)
        later = [*_later_starts(tool, files, written[1])]
    report = Report(
        pod=pod.pod.key,
        qos_class=pod.qos,
        slice=pod.slice,
        manifest=written[0],
        override=written[1],
        apply=("podslice", "apply", *planning.manager.options, "-f", written[0]),
        up=tuple(up),
    )
    if output is ReportFormat.JSON:
        write_json(document(report))
    else:
        write(map(printable, [*_lines(report, project, pod), *later]))
    for runtime in installed_runtimes(planning.manager, HOST_ROOT):
        if runtime.name == tool.runtime and runtime.driver not in ("", SYSTEMD):
            message = f"its cgroup driver is {runtime.driver}: containers would be outside the pod"
            note(problem_line(warning(runtime.name, message, runtime.fix)))
    return DONE


def _list_files(filename: list[str] | None, *, has_resolved: bool) -> tuple[str, ...]:
    """Return the compose files, without one that this verb has written.

    Raises:
        InputError: there are none, or one is standard input.
    """
    if "-" in (filename or ()):
        hint = "pass a resolved project instead: --resolved -"
        raise invalid("compose files cannot be read from standard input", hint, where="-f")
    given = tuple(each for each in filename or () if Path(each).name != OVERRIDE)
    if given:
        return given
    return ("compose.yaml",) if has_resolved else tools.find_files(Path(), os.environ)


def _load(files: ProjectFiles, tool: ComposeTool, resolved: str | None) -> Project:
    """Return the project with its name.

    Source: compose-spec, 04-version-and-name.md; docs.docker.com, "Specify a project name".

    Raises:
        InputError: the project cannot be read, is not one document, or its tool refuses it.
        HostError: the tool cannot resolve it.
    """
    if resolved is None:
        project = _resolve(tool, files)
        directory = Path(files.files[0]).absolute().parent.name
    else:
        (text,) = read_sources((resolved,), read_stdin, Budget())
        if text.problem is not None:
            raise InputError(text.problem)
        if text.exhausted is not None:
            raise InputError(text.exhausted.at(text.name))
        project, directory = read_project(tools.parse_resolved(text.data, text.name)), ""
    names = (files.project_name, project.name, os.environ.get("COMPOSE_PROJECT_NAME"), directory)
    problems = (*project.problems, *unsupported_by(tool, project))
    return project._replace(name=next(filter(None, names), None), problems=problems)


def _resolve(tool: ComposeTool, files: ProjectFiles) -> Project:
    """Return the project with all its services, and report the warnings of the tool."""
    data, said = tools.resolve(tool, files)
    lines = [line for line in said.split("\n") if line]
    for line in lines[:_WARNINGS_SHOWN]:
        note(f"{tool}: {excerpt(line)}")
    if len(lines) > _WARNINGS_SHOWN:
        note(f"{tool}: there are {len(lines) - _WARNINGS_SHOWN:,} more lines")
    name = f"{' '.join(tool.words)} config"
    every, _ = tools.resolve(tool, tools.with_every_profile(files))
    return read_project(tools.parse_resolved(data, name), tools.parse_resolved(every, name))


def _own_override(tool: ComposeTool, filename: list[str] | None, output_dir: Path | None) -> str:
    """Return the name of the override file that a tool reads by itself.

    Raises:
        InputError: the tool would not read it here.
    """
    where, other = "--write-override", f"state {OVERRIDE} in COMPOSE_FILE instead"
    if not tool.own_override:
        hint = "state --podman-run-args=--cgroup-parent=SLICE in every command"
        raise invalid(f"{tool} ignores cgroup_parent", hint, where=where)
    if filename or output_dir or os.environ.get("COMPOSE_FILE"):
        message = f"{tool} reads {tool.own_override} only where no files are stated"
        raise invalid(message, other, where=where)
    if found := tools.foreign_overrides(Path()):
        raise invalid(f"{found[0]} exists", other, where=where)
    return tool.own_override


def _decide(planning: Planning, draft: PodDraft) -> PodDecision:
    """Return the decision on the pod, and report everything that was not taken over.

    Raises:
        InputError: the project, the budget or the configuration is invalid; it has every problem.
    """
    loaded = read_manifest(draft.document, "")
    try:
        config = planning.config
        node = load_node(config, lenient=True, manager=planning.manager)
        decisions = decide_all(loaded, node, config)
    except InputError as error:
        raise InputError((*error.problems, *draft.problems(loaded.all_problems))) from error
    problems = draft.problems(all_problems(loaded, decisions))
    if code_of(problems):
        raise InputError(problems)
    note_problems(problems)
    return decisions[0]


def _lines(report: Report, project: Project, pod: PodDecision) -> Iterator[str]:
    """Yield what was written, and what to run next."""
    count = len(pod.containers)
    limits = format_amounts(pod.pod.resources.limits)
    budget = f"budget {limits}" if limits else "no budget"
    containers = "1 container" if count == 1 else f"{count} containers"
    yield f"wrote {report.manifest}: pod {report.pod}, {report.qos_class}, {containers}, {budget}"
    yield f"wrote {report.override}: {report.slice} for every service"
    others, built = (
        list_first([*map(printable, names)], _NAMES_MAX)
        for names in (project.others, project.built)
    )
    if others:
        verb = "has" if len(project.others) == 1 else "have"
        yield f"  {others} {verb} no containers now (a profile, or scale 0)"
    if built:
        yield f"  images are built outside the pod: {built}"
    yield "to start the project in its pod:"
    yield f"  {shlex.join(report.apply)}"
    yield f"  {shlex.join(report.up)}"


def _later_starts(tool: ComposeTool, files: ProjectFiles, override: str) -> Iterator[str]:
    """Yield how later starts are in the pod, too: people type `docker compose up`."""
    command = f"{' '.join(tool.words)} up"
    if not tool.own_override:
        yield f"{command} without this option starts the services outside the pod"
        return
    yield f"{command} without these files starts the services outside the pod; to avoid that:"
    yield "  podslice compose --write-override"
    names = ":".join((*files.files, override))
    yield f"  or in .env: COMPOSE_FILE={shlex.quote(names)}"
