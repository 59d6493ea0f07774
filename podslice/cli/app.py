"""The command line: its verbs, and the exit codes of errors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from podslice import __version__
from podslice.cli.arguments import BAD_INPUT, DONE, FAILED, check_namespace
from podslice.cli.options import declared
from podslice.cli.output import (
    OutputFormat,
    choose_colors,
    note,
    note_problems,
    write,
    write_document,
)
from podslice.cli.report import ProblemsReport, document
from podslice.cli.suggestions import suggest_argument, suggest_option, suggest_verb
from podslice.cli.verb_table import VERBS
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.views.style import ColorMode
from podslice.errors import InputError, PodsliceError, Problem
from podslice.model.feature import VerbGroup, VerbRow, load

_STYLE: dict[str, Any] = {
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


_ABOUT = """\
podslice gives each group of programs on a systemd host a budget of CPU and memory: a share that no \
other group can take, and a limit that it cannot exceed.

Start here: podslice new, podslice apply, podslice status.
"""


class LazyGroup(TyperGroup):
    """Verbs that are imported when they run: typer would import all of them for each.

    That takes half a second, and some MiB of the agent's memory. Their list needs the table only.
    """

    above: tuple[str, ...] = ()
    """The verbs before the last word: `node` for `node init`."""

    @property
    def rows(self) -> Mapping[str, VerbRow]:
        """Return the verbs of the group by their last words."""
        start = "".join(f"{each} " for each in self.above)
        names = {name.removeprefix(start): name for name in VERBS if name.startswith(start)}
        return {last: VERBS[name] for last, name in names.items() if last and " " not in last}

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - the context of typer
        return list(self.rows)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        row = self.rows.get(cmd_name)
        if row is None:
            return None
        hidden = row.is_hidden or row.group is VerbGroup.INTERNAL
        panel = row.group.value or None
        return TyperCommand(cmd_name, help=row.summary, hidden=hidden, rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - of typer
        name, *rest = args
        if name in self.rows:
            return name, command_of(*self.above, name), rest
        if ctx.resilient_parsing:  # the shell completes an unknown verb
            return None, None, rest
        shown = [each for each in self.rows if not self.get_command(ctx, each).hidden]
        hint = suggest_verb(name, shown, ctx.command_path) or f"see: {ctx.command_path} --help"
        raise InputError(Problem(message=f"no such command '{name}'", hint=hint))


class Verb(TyperCommand):
    """A verb, which reports an argument too many with what it may have been meant to be."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - the context of typer
        if ctx.args:
            flags = [flag for each in self.params for flag in each.opts]
            message = f"{ctx.command_path} does not take the argument {ctx.args[0]!r}"
            hint = suggest_argument(ctx.args[0], flags, ctx.command_path)
            raise InputError(Problem(message=message, hint=hint))
        return super().invoke(ctx)


def command_of(*path: str) -> TyperCommand:
    """Return a verb, which is imported, with the options that all verbs have."""
    row = VERBS[" ".join(path)]
    verb = color_option(load(row.function))
    text, examples = _describe(verb)
    given: dict[str, Any] = {"help": "\n\n".join((row.summary, *text))}
    given["epilog"] = "\n\n".join(examples) or None
    app = typer.Typer(add_completion=False, **_STYLE)
    if any(name.startswith(f"{' '.join(path)} ") for name in VERBS):
        group = type("Group", (LazyGroup,), {"above": path})
        app.callback(cls=group, invoke_without_command=True, **given)(verb)
    else:
        kept = {**_STYLE["context_settings"], "allow_extra_args": True}
        app.command(path[-1], cls=Verb, context_settings=kept, **given)(verb)
    command = _made(app)
    command.name = path[-1]
    return cast("TyperCommand", command)


def _made(app: typer.Typer) -> Any:  # noqa: ANN401 - typer has no public name for it
    command: Any = get_command(app)
    for each in command.params:
        if each.default is None:  # which some versions of typer show
            each.show_default = False
    return command


def _describe(verb: Callable[..., int]) -> tuple[list[str], list[str]]:
    """Return the paragraphs and the examples of a verb's docstring.

    Its first line is the same for all verbs, whose summaries are in the table.
    """
    text, _, examples = (inspect.getdoc(verb) or "").partition("\nExamples:\n")
    paragraphs = [" ".join(each.split("\n")) for each in text.strip().split("\n\n")[1:]]
    shown = [each for each in paragraphs if not each.startswith("Raises:")]
    lines = [line.strip() for line in examples.split("\n") if line.strip()]
    return shown, [*(["Examples:"] if lines else []), *lines]


def root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    user: Annotated[bool, typer.Option("--user", hidden=True)] = False,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", hidden=True, callback=check_namespace),
    ] = None,
    color: Color = None,
) -> None:
    """Print the version or the help, and pass on options that are given before the verb."""
    choose_colors(color)
    if version:
        write([f"podslice {__version__}"])
        raise typer.Exit
    verb = context.invoked_subcommand
    if verb is None:
        write([context.get_help()])
        return
    # options before the verb, as kubectl and systemctl accept them
    given = {"user": user or None, "namespace": namespace}
    given = {name: value for name, value in given.items() if value is not None}
    known = {each.name for each in command_of(verb).params} if given else set()
    for name in given:
        if name not in known:
            raise InputError(
                Problem(where=f"--{name}", message=f"podslice {verb} does not have this option")
            )
    context.default_map = {verb: given}


Color = Annotated[
    ColorMode | None,
    typer.Option(
        "--color",
        metavar="WHEN",
        help="auto, always or never.",
    ),
]
_COLOR = inspect.Parameter("color", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Color)


def color_option(verb: Callable[..., int]) -> Callable[..., int]:
    """Add `--color`, which every verb has."""
    parameters = [*inspect.signature(verb, eval_str=True).parameters.values(), _COLOR]

    def with_color(**given: Any) -> int:  # noqa: ANN401 (typer passes what it has parsed)
        choose_colors(given.pop("color", None))
        return verb(**given)

    return declared(with_color, verb, parameters)


def make_app() -> Any:  # noqa: ANN401 - typer has no public name for it
    """Return the program as typer's command."""
    app = typer.Typer(name="podslice", **_STYLE)
    app.callback(invoke_without_command=True, cls=LazyGroup, help=_ABOUT)(root)
    return _made(app)


def run(arguments: list[str] | None = None) -> int:
    """Run a verb, report errors on stderr, and return the exit code."""
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except BrokenPipeError:
        raise  # standard output has no reader
    except OSError as error:
        # verbs handle the errors they expect; here the host is out of space, descriptors or processes
        where = "" if error.filename is None else str(error.filename)
        found = Problem(where=where, message=(error.strerror or str(error)).lower())
    except MemoryError:
        found = Problem(where="", message="out of memory")
    note(problem_line(found))
    return FAILED


def _run(given: list[str]) -> int:
    """Run a verb, and report errors of podslice and of the command line."""
    choose_colors(ColorMode.AUTO)
    try:
        code = make_app().main(given, prog_name="podslice", standalone_mode=False)
    except InputError as error:
        return _fail(error.problems, error.exit_code, given)
    except PodsliceError as error:
        return _fail([Problem(message=str(error))], error.exit_code, given)
    except typer.Exit as done:
        return done.exit_code
    except SystemExit as error:  # typer leaves when the reader of its help has closed the pipe
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    except typer.Abort:
        note("interrupted: nothing was changed")
        return 130
    except Exception as error:
        # typer has no public name for its usage errors that all versions share
        if not hasattr(error, "format_message"):
            raise
        return _fail([_usage_problem(error, given)], BAD_INPUT, given)
    return code if isinstance(code, int) else DONE


def _fail(problems: Sequence[Problem], code: int, given: Sequence[str]) -> int:
    """Report why a verb has no result: on stderr, and as a document if it was to print one."""
    note_problems(problems)
    asked = _output_in(given[: given.index("--")] if "--" in given else given)
    if asked in (OutputFormat.JSON, OutputFormat.YAML):
        report = ProblemsReport(problems=tuple(problems))
        write_document(document(report), OutputFormat(asked))
    return code


def _output_in(given: Sequence[str]) -> str:
    """Return the output format on a command line, which may be wrong: typer has parsed nothing then."""
    for word, following in zip(given, [*given[1:], ""], strict=True):
        if word in ("--output", "-o"):
            return following
        if word.startswith("--output="):
            return word.partition("=")[2]
        if word.startswith("-o"):  # -ojson
            return word.removeprefix("-o").removeprefix("=")
    return ""


def _usage_problem(error: Any, given: Sequence[str]) -> Problem:  # noqa: ANN401 - an error of typer
    """Return the problem of a wrong command line."""
    # an option without its value is found before its context is known
    given_verb = next((f" {each}" for each in given if each in VERBS), "")
    command = error.ctx.command_path if error.ctx else f"podslice{given_verb}"
    verb = command.partition(" ")[2]
    flags = [flag for each in error.ctx.command.params for flag in each.opts] if error.ctx else []
    # an unknown option has names that are similar; another error of an option has none
    option = str(error.option_name) if hasattr(error, "possibilities") else ""
    message = f"no such option: {option}" if option else error.format_message()
    # some versions of typer prefix the messages of choices, and all end with a full stop
    message = message.replace("Value error, ", "").rstrip(".")
    hint = suggest_option(verb, option, flags, command) if option else f"see: {command} --help"
    if verb == "run" and (
        option or getattr(getattr(error, "param", None), "name", "") == "command"
    ):
        hint = f"put the command after --; see: {command} --help"
    return Problem(where="", message=message[:1].lower() + message[1:], hint=hint)
