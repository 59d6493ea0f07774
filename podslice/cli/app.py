"""The command line: its verbs, and how errors end it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Annotated, Any, cast

import typer

from podslice import __version__
from podslice.cli.arguments import BAD_INPUT, DONE, FAILED
from podslice.cli.output import note, write
from podslice.cli.views import tables
from podslice.errors import InputError, PodsliceError, Problem

VERBS = (
    "check",
    "explain",
    "render",
    "node",
    "plan",
    "apply",
    "confirm",
    "status",
    "tree",
    "top",
    "events",
    "delete",
    "readmit",
    "run",
    "adopt",
    "cgroup-parent",
    "phase",
    "doctor",
    "agent",
    "__init_done",
    "__restore_reserved",
)
"""Each verb, in the order of the help. A verb is the function of its name in a module of its name.

Only the module of the requested verb is imported: the others would be half of a short verb's time,
and some MiB of the agent's memory.
"""

# what typer raises for a wrong command line: it has no public name that every version knows
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])

_STYLE: dict[str, Any] = {
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def make_app(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """The command line with these verbs."""
    app = typer.Typer(
        name="podslice",
        help="Kubernetes' node resource model on any systemd host: a slice for every pod.",
        add_completion=False,
        pretty_exceptions_enable=False,
        **_STYLE,
    )
    app.callback(invoke_without_command=True)(root)
    for name in verbs:
        plain = name.strip("_").replace("-", "_")
        verb = getattr(import_module(f"podslice.cli.verbs.{plain}"), plain)
        if name == "node":
            app.add_typer(_node(verb), name=name)
        else:
            app.command(name, hidden=name.startswith("_"))(verb)
    return app


def _node(verb: Callable[..., int]) -> typer.Typer:
    """`node` with the verbs below it."""
    from podslice.cli.verbs import node_init

    nodes = typer.Typer(help=verb.__doc__, **_STYLE)
    nodes.callback(invoke_without_command=True)(verb)
    nodes.command()(node_init.init)
    nodes.command()(node_init.reset)
    return nodes


def run(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code; errors are worded on stderr."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(given)
    except BrokenPipeError:
        raise
    except OSError as error:
        # verbs translate what they expect; this is the host out of space, descriptors or processes
        where = "" if error.filename is None else str(error.filename)
        found = Problem(where=where, message=(error.strerror or str(error)).lower())
    except MemoryError:
        found = Problem(where="", message="there is not enough memory")
    note(tables.problem(found))
    return FAILED


def _run(given: list[str]) -> int:
    """Run a verb; errors of podslice and of the command line end here."""
    # whatever is no verb in the first place needs all of them, for the help and its hints
    app = make_app(given[:1] if given[:1] and given[0] in VERBS else VERBS)
    try:
        code = app(given, prog_name="podslice", standalone_mode=False)
    except InputError as error:
        for line in tables.problem_lines(error.problems):
            note(line)
        return error.exit_code
    except PodsliceError as error:
        note(tables.problem(Problem(where="", message=str(error))))
        return error.exit_code
    except _UsageError as error:
        note(tables.problem(_usage_problem(error)))
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
