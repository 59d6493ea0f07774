"""The command line: its verbs, and how errors end it."""

from __future__ import annotations

from typing import Annotated

import typer

from podslice import __version__
from podslice.cli import changing, live, reading, text
from podslice.cli.arguments import DONE
from podslice.cli.output import note, write
from podslice.errors import InputError, PodsliceError

app = typer.Typer(
    name="podslice",
    help="Kubernetes' node resource model on any systemd host: a slice for every pod.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code; errors are worded on stderr."""
    try:
        code = app(arguments, standalone_mode=False)
    except InputError as error:
        for problem in error.problems:
            note(text.problem(problem))
        return error.exit_code
    except PodsliceError as error:
        note(f"error: {error}")
        return error.exit_code
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        note("interrupted")
        return 130
    return code if isinstance(code, int) else DONE


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002
) -> None:
    """Give groups of processes a budget: pods, QoS tiers and reserved slices as systemd slices."""
    if version:
        write([f"podslice {__version__}"])
        raise typer.Exit


for verb in (
    reading.check,
    reading.explain,
    reading.render,
    reading.node,
    changing.plan,
    changing.apply,
    live.status,
    live.tree,
    changing.delete,
):
    app.command()(verb)
