"""`podslice run`."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, ContainerName, Namespace, Output, PodName
from podslice.cli.host import applied_pod
from podslice.cli.manual_log import ManualLog, manual_log
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.report import document
from podslice.cli.session import in_world, locked
from podslice.cli.views.problem_lines import problem_line
from podslice.errors import HostError, InputError, PodsliceError, Problem
from podslice.features.run.foreground import (
    Child,
    OomKills,
    exit_like,
    fork,
    is_followed,
    variables_of,
)
from podslice.features.run.phase import INIT_DONE, SUCCESS, record_init_end
from podslice.features.run.start import (
    Started,
    has_arrived,
    start_scope,
    start_service,
    volume_variables,
)
from podslice.features.run.target import Place
from podslice.kernel.programs import (
    Invocation,
    become,
    find_command,
    given_environment,
    set_oom_score_adj,
    stated_variables,
)
from podslice.model.event import Kind
from podslice.model.pod import ContainerKind
from podslice.model.unit import UnitName
from podslice.reconcile.world import LiveWorld
from podslice.store.histories import save_end


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """A command that systemd runs, with `--detach`."""

    pod: str
    container: str
    unit: UnitName


@configured
def run(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: PodName,
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="The command, after --.")],
    container: ContainerName = None,
    detach: Annotated[  # noqa: FBT002
        bool, typer.Option("--detach", help="Run CMD as a service, and return.")
    ] = False,
    exec_: Annotated[  # noqa: FBT002
        bool,
        typer.Option(
            "--exec",
            help="Become CMD; its exit is not recorded.",
        ),
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME[=VALUE]",
            help="Set a variable, or pass the present one.",
        ),
    ] = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice run`.

    Examples:
        podslice run web -- nginx -g "daemon off;"
        podslice run shop -c worker --detach -- /usr/bin/shop-worker
    """
    variables = stated_variables(env or (), os.environ)
    file = find_command(command[0], variables.get("PATH", os.environ.get("PATH")))
    key = applied_pod(planning, pod, namespace)
    if detach:
        # systemd gives services a PATH of its own; the command was found with this one.
        kept = {"PATH": os.environ["PATH"]} if "PATH" in os.environ else {}
        wanted = Invocation(
            file=str(Path(file).absolute()),
            arguments=tuple(command),
            environment={**kept, **variables},
        )
        return _detach(planning, key, container, wanted, output)
    wanted = Invocation(file=file, arguments=tuple(command), environment=variables)
    becomes = exec_ or is_followed(os.environ)
    return _run_in_place(planning, key, container, wanted, becomes=becomes)


def _run_in_place(
    planning: Planning, key: str, container: str | None, wanted: Invocation, *, becomes: bool
) -> int:
    """Become the command, or its parent, which records its end; always that of init containers."""
    child: Child | None = None

    async def work(world: LiveWorld) -> tuple[Started, Invocation, OomKills]:
        def join(place: Place) -> int:
            nonlocal child
            if becomes and place.container.kind is not ContainerKind.INIT:
                return os.getpid()
            child = fork(lambda: _be_child(place, _with_environment(world, place, wanted)))
            return child.pid

        with locked(world.store), manual_log("run", world.store, world.manager) as log:
            interrupts.begin("the command was not started")
            started = await start_scope(world, key, container, join, has_terminal=os.isatty(0))
            _log_start(log, started.place, started.place.container.scope, wanted)
        place = started.place
        kills = OomKills.of(world.cgroups, place.slice_group, place.container.scope)
        return started, _with_environment(world, place, wanted), kills

    try:
        started, command, kills = in_world(planning, work)
    except BaseException:
        if child is not None:
            child.abandon()
        raise
    if child is None:
        _enter(started.place, command)
    interrupts.begin("the end of the command may not be recorded")
    child.start()
    status = child.watch()
    try:
        save_end(started.end, variables_of(status, kills.result(status)))
    except HostError as error:
        note(str(error))  # the exit status remains the command's
    is_init = started.place.container.kind is ContainerKind.INIT
    if status != 0 or not is_init:
        return exit_like(status)
    return record_init_end(planning, key, started.place.container.name)


def _with_environment(world: LiveWorld, place: Place, wanted: Invocation) -> Invocation:
    return Invocation(
        file=wanted.file,
        arguments=wanted.arguments,
        environment={
            **given_environment(),
            **volume_variables(world, place.pod),
            **wanted.environment,
        },
    )


def _enter(place: Place, command: Invocation) -> NoReturn:
    """Become the command in the scope.

    Raises:
        HostError: this process is not in the scope, or the kernel refuses the command.
    """
    if not has_arrived(place):
        raise HostError(
            f"{place.container.scope} is active, but this process is not in it; another program"
            " may have moved it"
        )
    if refused := set_oom_score_adj(place.container.oom_score_adj):
        note(refused)
    become(command)


def _be_child(place: Place, command: Invocation) -> NoReturn:
    try:
        _enter(place, command)
    except PodsliceError as error:
        note(problem_line(Problem(where="", message=str(error))))
        sys.stderr.flush()
        os._exit(error.exit_code)


def _detach(
    planning: Planning, key: str, container: str | None, wanted: Invocation, output: OutputFormat
) -> int:
    try:
        directory = str(Path.cwd())
    except FileNotFoundError as error:
        raise HostError("the current directory no longer exists; change to another one") from error
    _check_encoding(directory, *wanted.arguments, *wanted.environment.values())

    async def work(world: LiveWorld) -> Place:
        with locked(world.store), manual_log("run", world.store, world.manager) as log:
            interrupts.begin("the command may have been started; see: podslice status")
            place = await start_service(
                world,
                key,
                container,
                wanted,
                directory,
                lambda place: _record_command(planning, place),
            )
            _log_start(log, place, place.service, wanted)
        return place

    place = in_world(planning, work)
    report = RunReport(pod=key, container=place.container.name, unit=place.service)
    logs = f"podslice logs{planning.manager.flag} {key} -c {report.container}"
    emit(
        output,
        document=lambda: document(report),
        lines=lambda _: [f"started {report.unit}; for its output: {logs}"],
        names=lambda: [report.unit],
    )
    return DONE


def _log_start(log: ManualLog, place: Place, unit: UnitName, wanted: Invocation) -> None:
    """Log the start of a container, without the arguments: they may contain secrets."""
    name = place.container.name
    log.report(
        Kind.CONTAINER_STARTED,
        f"container {name} of pod {place.pod.pod.key} runs {wanted.file}",
        pod=place.pod.pod.key,
        unit=unit,
        fields={"CONTAINER": name, "COMMAND": wanted.file},
    )


def _check_encoding(*given: str) -> None:
    """Check that texts for systemd are UTF-8.

    Raises:
        InputError: one is not.
    """
    for each in given:
        try:
            each.encode()
        except UnicodeEncodeError as error:
            problem = Problem(where="--detach", message=f"{each!r} is not UTF-8")
            raise InputError(problem) from error


def _record_command(planning: Planning, place: Place) -> tuple[str, ...]:
    """Return the command that a detached init container's service runs at its end; else nothing.

    It starts podslice in a service of its own to record the result: Python does not fit in every
    container's limits, and must not wait there for a lock whose holder stops the container.
    """
    if place.container.kind is not ContainerKind.INIT:
        return ()
    runner = shutil.which("systemd-run")
    if runner is None:
        raise HostError("systemd-run not found; init containers need it with --detach")
    search = os.environ.get("PYTHONPATH")
    path = [] if search is None else [f"--setenv=PYTHONPATH={search}"]
    passed = [f"--setenv={name}" for name in SUCCESS]
    what = f"--description=End of {place.full_name}"
    # an installed podslice knows where its libraries are
    is_installed = Path(sys.argv[0]).name == "podslice" and Path(sys.argv[0]).is_absolute()
    # With either, a module in the working directory cannot take the place of podslice's.
    isolated = "-I" if sys.flags.isolated else "-P"
    program = [sys.argv[0]] if is_installed else [sys.executable, isolated, "-m", "podslice"]
    return (
        *(
            runner,
            *planning.manager.options,
            "--quiet",
            "--collect",
            "--no-block",
            what,
            *passed,
            *path,
            "--",
        ),
        *(
            *program,
            INIT_DONE,
            *planning.arguments,
            place.pod.pod.key,
            place.container.name,
        ),
    )
