"""The command line: its verbs, and the exit codes of errors."""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from podslice import __version__
from podslice.cli.arguments import BAD_INPUT, DONE, FAILED
from podslice.cli.command_tree import Verb, format_help, read_app, read_verb
from podslice.cli.options import declared
from podslice.cli.output import choose_colors, note, note_problems, write
from podslice.cli.suggestions import suggest_option, suggest_verb
from podslice.cli.verb_table import VERB_GROUPS, VERBS
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.views.style import ColorMode
from podslice.errors import InputError, PodsliceError, Problem
from podslice.model.feature import VerbGroup, load

_STYLE: dict[str, Any] = {
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def make_app(verbs: Iterable[str] = tuple(VERBS)) -> typer.Typer:
    """Return the command line with these verbs."""
    app = typer.Typer(
        name="podslice", add_completion=False, pretty_exceptions_enable=False, **_STYLE
    )
    group = _group_class(root, help_of_program)
    app.callback(invoke_without_command=True, cls=group)(root)
    for name in verbs:
        row = VERBS[name]
        if " " in name:
            continue  # added with the verb above it
        verb = color_option(load(row.function))
        below = [each for each in VERBS if each.startswith(f"{name} ")]
        if below:
            app.add_typer(_group(name, verb, below), name=name)
        else:
            hidden = row.group is VerbGroup.HIDDEN
            app.command(name, cls=_command_class(verb, name), hidden=hidden)(verb)
    return app


def _group(name: str, verb: Callable[..., int], below: Iterable[str]) -> typer.Typer:
    """Return a verb with the verbs below it."""
    group = typer.Typer(**_STYLE)

    def show_help() -> str:
        return _help(read_app(group, (name,), with_options=False))

    group.callback(invoke_without_command=True, cls=_group_class(verb, show_help))(verb)
    for each in below:
        path = tuple(each.split(" "))
        function = color_option(load(VERBS[each].function))
        group.command(path[-1], cls=_command_class(function, *path))(function)
    return group


def _command_class(verb: Callable[..., int], *path: str) -> type[TyperCommand]:
    """Return a command with the help that the program formats itself."""

    class Command(TyperCommand):
        declares = staticmethod(verb)

        def get_help(self, _: object) -> str:
            return _help(read_verb(verb, path))

    return Command


def _group_class(verb: Callable[..., object], show_help: Callable[[], str]) -> type[TyperGroup]:
    """Return a group of commands with the help that the program formats itself."""

    class Group(TyperGroup):
        declares = staticmethod(verb)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - of typer
            if args[0] not in self.commands:
                verbs = [name for name, each in self.commands.items() if not each.hidden]
                raise _unknown_verb(args[0], verbs, ctx.command_path)
            return super().resolve_command(ctx, args)

        def get_help(self, _: object) -> str:
            return show_help()

    return Group


def _help(verb: Verb, groups: Mapping[str, Sequence[str]] | None = None) -> str:
    return format_help(verb, width=shutil.get_terminal_size().columns, groups=groups)


def help_of_program() -> str:
    """Return the help of the program, for the width of the terminal."""
    shown = chain.from_iterable(VERB_GROUPS.values())
    verbs = tuple(Verb(path=(name,), help=(VERBS[name].summary,), options=()) for name in shown)
    return _help(replace(read_verb(root, ()), verbs=verbs), VERB_GROUPS)


def run(arguments: list[str] | None = None) -> int:
    """Run a verb, report errors on stderr, and return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(given)
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
    try:
        return _execute(given)
    except InputError as error:
        note_problems(error.problems)
        return error.exit_code
    except PodsliceError as error:
        note(problem_line(Problem(where="", message=str(error))))
        return error.exit_code
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        note("interrupted: nothing was changed")
        return 130
    except Exception as error:
        # typer has no public name common to all versions for its errors of wrong command lines
        if not hasattr(error, "format_message"):
            raise
        note(problem_line(_usage_problem(error)))
        return BAD_INPUT


def _execute(given: list[str]) -> int:
    choose_colors(ColorMode.AUTO)
    if given in ([], ["-h"], ["--help"]):
        write([help_of_program()])
        return DONE
    verb = _verb_in(given)
    if verb and verb not in VERBS and not verb.startswith("-"):
        raise _unknown_verb(verb, [*chain.from_iterable(VERB_GROUPS.values())], "podslice")
    app = make_app([verb] if verb in VERBS else [])
    code = app(given, prog_name="podslice", standalone_mode=False)
    return code if isinstance(code, int) else DONE


def _unknown_verb(given: str, verbs: Collection[str], program: str) -> InputError:
    """Return the error for an unknown verb after `program`."""
    hint = suggest_verb(given, verbs, program) or f"see: {program} --help"
    return InputError(Problem(message=f"no such command '{given}'", hint=hint))


def _verb_in(given: list[str]) -> str:
    """Return the first word after the options of the program itself that have values."""
    words = iter(given)
    for word in words:
        if word == "--color":
            next(words, None)
        elif not word.startswith("--color="):
            return word
    return ""


def _usage_problem(error: Any) -> Problem:  # noqa: ANN401 - an error of typer
    """Return the problem of a wrong command line."""
    # current versions of typer prefix the messages of choices
    message = error.format_message().replace("Value error, ", "").rstrip(".")
    command = error.ctx.command_path if error.ctx else "podslice"
    hint = f"see: {command} --help"
    is_option = type(error).__name__ == "NoSuchOption"
    if is_option:
        option = str(getattr(error, "option_name", ""))
        message = f"no such option: {option}"
        hint = _suggest_option(error, option) or hint
    is_about_command = is_option or (
        getattr(getattr(error, "param", None), "name", "") == "command"
    )
    if is_about_command and error.ctx and error.ctx.command.name == "run":
        hint = f"put the command after --; {hint}"
    return Problem(where="", message=message[:1].lower() + message[1:], hint=hint)


def _suggest_option(error: typer.BadParameter, given: str) -> str:
    """Return the hint for an option that the verb does not have."""
    if error.ctx is None:
        return ""
    command = cast("Any", error.ctx.command)  # one of the two classes above
    options = [flag for each in read_verb(command.declares, ()).options for flag in each.flags]
    verb = error.ctx.command_path.partition(" ")[2]
    hint = suggest_option(verb, given, options)
    return f"{hint} see: {error.ctx.command_path} --help" if hint.endswith("?") else hint


def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002
    color: Color = None,
) -> None:
    """Give every pod a slice: Kubernetes' node resource model on any systemd host."""
    choose_colors(color)
    if version:
        write([f"podslice {__version__}"])
        raise typer.Exit
    if context.invoked_subcommand is None:
        write([context.get_help()])


Color = Annotated[
    ColorMode | None,
    typer.Option(
        "--color",
        help="When to color the output; auto: on a terminal, unless NO_COLOR is set or TERM is dumb.",
    ),
]
_PARAMETER = inspect.Parameter(
    "color", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Color
)


def color_option(verb: Callable[..., int]) -> Callable[..., int]:
    """Add `--color`, which every verb has."""
    signature = inspect.signature(verb, eval_str=True)
    parameters = [*signature.parameters.values(), _PARAMETER]

    def with_color(**given: Any) -> int:  # noqa: ANN401 (typer passes what it has parsed)
        choose_colors(given.pop("color", None))
        return verb(**given)

    return declared(with_color, verb, parameters)
