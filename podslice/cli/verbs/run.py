"""Verbs that start containers, and say how far a pod's start has come: run, phase."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from podslice.cli import configuration
from podslice.cli.arguments import DONE, ContainerName, Namespace, Output, PodName, key_of
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import Format, emit, note
from podslice.cli.session import in_world, on_wait
from podslice.cli.verbs.changing import emit_report
from podslice.cli.views import documents, tables
from podslice.errors import HostError, InputError, PodsliceError, Problem
from podslice.model.config import Rules
from podslice.model.pod import ContainerKind
from podslice.model.unit import Setting
from podslice.processes.foreground import Child, end_like, fork
from podslice.processes.launch import (
    Command,
    become,
    find_command,
    given_environment,
    set_oom_score_adj,
    stated_variables,
)
from podslice.processes.run import (
    Phase,
    finish_container,
    has_arrived,
    read_phase,
    set_phase,
    start_scope,
    start_service,
    volume_variables,
    why_no_phase,
)
from podslice.processes.target import Place
from podslice.reconcile.report import Outcome, Report, told
from podslice.reconcile.world import World

INIT_DONE = "__init_done"
"""The verb that systemd runs after a detached init container; not for people."""


class PhaseName(StrEnum):
    """What `--set` takes."""

    INIT = "init"
    RUNNING = "running"


@planning_options
def run(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: PodName,
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="What to run; after --.")],
    container: ContainerName = None,
    detach: Annotated[  # noqa: FBT002
        bool, typer.Option("--detach", help="Let systemd run it as a service, and return.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME[=VALUE]",
            help="Set a variable of its environment; without a value, the one that it has here.",
        ),
    ] = None,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
) -> int:
    """Run a command as a container of an applied pod: in its place, with its settings."""
    variables = stated_variables(env or (), os.environ)
    file = find_command(command[0], variables.get("PATH", os.environ.get("PATH")))
    key = key_of(pod, namespace)
    if detach:
        kept = {"PATH": os.environ["PATH"]} if "PATH" in os.environ else {}
        wanted = Command(
            file=str(Path(file).absolute()),
            arguments=tuple(command),
            environment={**kept, **variables},
        )
        return _detach(planning, key, container, wanted, output)
    wanted = Command(file=file, arguments=tuple(command), environment=variables)
    return _run_in_place(planning, key, container, wanted)


def _run_in_place(planning: Planning, key: str, container: str | None, wanted: Command) -> int:
    """Be the command, or for an init container its parent, which has to see how it ends."""
    child: Child | None = None

    async def work(world: World) -> tuple[Place, Command]:
        def join(place: Place) -> int:
            nonlocal child
            if place.container.kind is not ContainerKind.INIT:
                return os.getpid()
            child = fork(lambda: _be_child(place, _with_environment(world, place, wanted)))
            return child.pid

        with world.store.lock(on_wait):
            place = await start_scope(world, key, container, join, has_terminal=os.isatty(0))
        return place, _with_environment(world, place, wanted)

    try:
        place, command = in_world(planning, work)
    except BaseException:
        if child is not None:
            child.abandon()
        raise
    if child is None:
        _enter(place, command)
    return _follow(planning, key, place, child)


def _follow(planning: Planning, key: str, place: Place, child: Child) -> int:
    """Let the child run, and end as it does; when it ends with 0, the container is done."""
    child.start()
    status = child.watch()
    if status != 0:
        return end_like(status)
    return _finish(planning, key, place.container.name)


def _finish(planning: Planning, key: str, container: str) -> int:
    async def work(world: World) -> Report:
        with world.store.lock(on_wait):
            return await finish_container(world, key, container)

    report = in_world(planning, work)
    for result in report.results:
        if result.outcome is not Outcome.DONE:
            note(told(result))
    return report.exit_code


def _with_environment(world: World, place: Place, wanted: Command) -> Command:
    return Command(
        file=wanted.file,
        arguments=wanted.arguments,
        environment={
            **given_environment(),
            **volume_variables(world, place.pod),
            **wanted.environment,
        },
    )


def _enter(place: Place, command: Command) -> NoReturn:
    """Be the command, inside.

    Raises:
        HostError: this process is not inside, or the kernel refuses the command.
    """
    if not has_arrived(place):
        raise HostError(
            f"{place.container.scope} is up, and this process is not in it; is somebody else"
            " moving processes?"
        )
    if refused := set_oom_score_adj(place.container.oom_score_adj):
        note(refused)
    become(command)


def _be_child(place: Place, command: Command) -> NoReturn:
    try:
        _enter(place, command)
    except PodsliceError as error:
        note(tables.problem(Problem(where="", message=str(error))))
        sys.stderr.flush()
        os._exit(error.exit_code)


def _detach(
    planning: Planning, key: str, container: str | None, wanted: Command, output: Format
) -> int:
    directory = _current_directory()
    _refuse_bytes(directory, *wanted.arguments, *wanted.environment.values())

    async def work(world: World) -> Place:
        with world.store.lock(on_wait):
            return await start_service(
                world,
                key,
                container,
                wanted,
                directory,
                lambda place: _report_end(planning, place),
            )

    place = in_world(planning, work)
    journal = "journalctl --user" if planning.user else "journalctl"
    emit(
        output,
        document=lambda: documents.document(
            pod=key, container=place.container.name, unit=place.service
        ),
        lines=lambda _: [f"started {place.service}; its output: {journal} -u {place.service}"],
        names=lambda: [place.service],
    )
    return DONE


def _current_directory() -> str:
    """Return the directory that a detached command starts in.

    Raises:
        HostError: it was removed.
    """
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise HostError(
            "the current directory does not exist any more; change to another one"
        ) from error


def _refuse_bytes(*given: str) -> None:
    """What is handed to systemd has to be text.

    Raises:
        InputError: it is not.
    """
    for each in given:
        try:
            each.encode()
        except UnicodeEncodeError as error:
            problem = Problem(where="--detach", message=f"{each!r} is not UTF-8")
            raise InputError(problem) from error


def _report_end(planning: Planning, place: Place) -> tuple[str, ...]:
    """What a detached init container's service runs at its end, to have the result recorded.

    It has podslice run in a service of its own: Python would not fit into every container, and
    must not wait for the lock there while somebody who has it stops the container.
    """
    runner = shutil.which("systemd-run")
    if runner is None:
        raise HostError("there is no systemd-run, which init containers need with --detach")
    user = ["--user"] if planning.user else []
    search = os.environ.get("PYTHONPATH")
    path = [] if search is None else [f"--setenv=PYTHONPATH={search}"]
    python = [sys.executable, "-I" if sys.flags.isolated else "-P", "-m", "podslice"]
    told = [f"--setenv={name}" for name in _RESULT]
    what = f"--description=End of {place.full_name}"
    return (
        *(runner, *user, "--quiet", "--collect", "--no-block", what, *told, *path, "--"),
        *(*python, INIT_DONE, *planning.arguments, place.pod.pod.key, place.container.name),
    )


_RESULT = {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"}
"""How systemd says that a command ended with 0. Source: systemd.exec(5), Environment Variables."""


@planning_options
def init_done(
    planning: Planning, pod: PodName, container: Annotated[str, typer.Argument(metavar="CONTAINER")]
) -> int:
    """Record how a detached init container has ended, as systemd tells it."""
    if any(os.environ.get(name) != value for name, value in _RESULT.items()):
        return DONE
    return _finish(configuration.tolerate(planning), pod, container)


@planning_options
def phase(
    planning: Planning,
    pod: PodName,
    wanted: Annotated[
        PhaseName | None,
        typer.Option("--set", help="End the init phase, or begin it anew."),
    ] = None,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
) -> int:
    """Show whether a pod is in its init phase, or end that: until then its own limits do not bind."""
    key = key_of(pod, namespace)
    if wanted is None:
        planning = configuration.tolerate(planning)
        found = in_world(planning, lambda world: read_phase(world, key))
        emit(
            output,
            document=lambda: documents.document(
                **configuration.document(planning.origin), **_document(found)
            ),
            lines=lambda _: _lines(found, planning.config.rules),
            names=lambda: [_name(found)],
        )
        return DONE

    async def work(world: World) -> Report:
        with world.store.lock(on_wait):
            return await set_phase(world, key, initializing=wanted is PhaseName.INIT)

    return emit_report(in_world(planning, work), output)


def _name(found: Phase) -> PhaseName:
    return PhaseName.INIT if found.initializing else PhaseName.RUNNING


def _document(found: Phase) -> documents.Document:
    return {
        "pod": found.pod.pod.key,
        "phase": _name(found).value,
        "init_containers": [{"name": name, "done": done} for name, done in found.init_containers],
    }


def _lines(found: Phase, rules: Rules) -> Iterator[str]:
    yield f"pod {found.pod.pod.key}  {_name(found)}"
    if why := why_no_phase(found, rules):
        yield f"  {why}"
    rows = [
        (f"init container {name}", "done" if done else "pending")
        for name, done in found.init_containers
    ]
    later = found.pod.settings
    now = found.pod.init_settings if found.initializing else None
    rows.append(("binds now", _settings(later if now is None else now)))
    if now is not None:
        rows.append(("binds later", _settings(later)))
    yield from tables.columns(rows, indent="  ")


def _settings(settings: tuple[Setting, ...]) -> str:
    return " ".join(map(tables.setting, settings)) or "nothing"
