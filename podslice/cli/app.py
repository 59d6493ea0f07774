"""The command line: its verbs, and how errors end it."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from podslice import __version__
from podslice.cli import (
    adopt,
    agent,
    changing,
    confirm,
    doctor,
    events,
    live,
    reading,
    runtime,
    setup,
    text,
    top,
    uncordon,
)
from podslice.cli import run as running
from podslice.cli.arguments import BAD_INPUT, DONE
from podslice.cli.output import note, write
from podslice.errors import InputError, PodsliceError, Problem

# what typer raises for a wrong command line: it has no public name that every version knows
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])

app = typer.Typer(
    name="podslice",
    help="Kubernetes' node resource model on any systemd host: a slice for every pod.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code; errors are worded on stderr."""
    try:
        code = app(arguments, prog_name="podslice", standalone_mode=False)
    except InputError as error:
        for problem in error.problems:
            note(text.problem(problem))
        return error.exit_code
    except PodsliceError as error:
        note(text.problem(Problem(where="", message=str(error))))
        return error.exit_code
    except _UsageError as error:
        note(text.problem(_usage_problem(error)))
        return BAD_INPUT
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        note("interrupted")
        return 130
    return code if isinstance(code, int) else DONE


def _usage_problem(error: typer.BadParameter) -> Problem:
    """A wrong command line, in the words of the others."""
    said = error.format_message().replace("Value error, ", "").rstrip(".")
    command = error.ctx.command_path if error.ctx else "podslice"
    hint = f"see: {command} --help"
    is_about_command = said.lower().startswith("no such option") or "'CMD'" in said
    if is_about_command and error.ctx and error.ctx.command.name == "run":
        hint = f"what to run stands behind --; {hint}"
    return Problem(where="", message=said[:1].lower() + said[1:], hint=hint)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002
) -> None:
    """Give groups of processes a budget: pods, QoS tiers and reserved slices as systemd slices."""
    if version:
        write([f"podslice {__version__}"])
        raise typer.Exit
    if context.invoked_subcommand is None:
        write([context.get_help()])


nodes = typer.Typer(
    help=reading.node.__doc__,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
nodes.callback(invoke_without_command=True)(reading.node)
nodes.command()(setup.init)
nodes.command()(setup.reset)

for verb in (reading.check, reading.explain, reading.render):
    app.command()(verb)
app.add_typer(nodes, name="node")
for verb in (changing.plan, changing.apply, confirm.confirm):
    app.command()(verb)
for verb in (live.status, live.tree, top.top, events.events, changing.delete):
    app.command()(verb)
app.command()(uncordon.uncordon)
for verb in (running.run, adopt.adopt, runtime.cgroup_parent, running.phase, doctor.doctor):
    app.command()(verb)
app.command()(agent.agent)
app.command(running.INIT_DONE, hidden=True)(running.init_done)
