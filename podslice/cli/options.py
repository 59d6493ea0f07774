"""The options of every verb that plans, from the table of configuration options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from podslice.errors import InputError, Problem, quote
from podslice.inputs.options.config_files import make_config, read_as, read_files
from podslice.inputs.options.table import OPTIONS, ConfigOption
from podslice.kernel.proc import find_manager
from podslice.model.config import Config, Origin
from podslice.model.unit import SYSTEM, Manager


@dataclass(frozen=True, kw_only=True)
class Planning:
    """The options common to all verbs that plan."""

    config_file: Path | None = None
    place: Path | None = None
    """Where `config_file` is assumed to be, beside the other configuration files."""
    flags: dict[str, object] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)
    """The values of `--set`, which have precedence."""
    manager: Manager = SYSTEM
    substitute: tuple[Config, Origin] | None = None
    """The configuration to use instead of invalid files."""

    @property
    def config(self) -> Config:
        """Return the configuration from files and flags.

        Raises:
            InputError: a file or a flag is invalid; it has every problem.
        """
        return self._configuration[0]

    @property
    def origin(self) -> Origin:
        """Return the source of the configuration.

        Raises:
            InputError: as `config`.
        """
        return self._configuration[1]

    @cached_property
    def _configuration(self) -> tuple[Config, Origin]:
        """Read the configuration once, so that it is the same during the whole call."""
        if self.substitute is not None:
            return self.substitute
        if self.config_file is not None and self.place is not None:
            files = read_as(self.config_file, self.place)
        else:
            files = read_files(file=self.config_file)
        config = make_config(files, self.flags, self.settings, is_user=self.manager.is_user)
        return config, Origin(options=files.options)

    @property
    def arguments(self) -> list[str]:
        """Return the options as arguments of another call of podslice."""
        given = [f"--set={key}={value}" for key, value in {**self.flags, **self.settings}.items()]
        if self.config_file is not None:
            given.append(f"--config={self.config_file.absolute()}")
        return [*given, *self.manager.options]


CONFIG_PANEL = "Configuration options, keys of podslice.toml(5)"
_AGENT_PANEL = "Agent options, keys of podslice.toml(5)"


def configured(verb: Callable[..., int]) -> Callable[..., int]:
    """Add the options that choose the service manager and the configuration to a verb.

    The verb receives them as its first argument, `Planning`.
    """
    return _with_options(verb, ())


def planning_options(verb: Callable[..., int]) -> Callable[..., int]:
    """As `configured`, with an option for each key of the configuration: to ask "what if"."""
    return _with_options(verb, tuple(row for row in OPTIONS if not row.is_agent_only))


def agent_options(verb: Callable[..., int]) -> Callable[..., int]:
    """As `planning_options`, with the keys of the agent."""
    return _with_options(verb, OPTIONS)


_NOT_OPTIONS = ("planning", "load")
"""Parameters of verbs that are passed by podslice itself: the common options, and what loads pods."""


def _with_options(verb: Callable[..., int], rows: tuple[ConfigOption, ...]) -> Callable[..., int]:
    # typer declares options by the signature of a function, and these are rows of a table
    signature = inspect.signature(verb, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name not in _NOT_OPTIONS]
    parameters = [*own, *_COMMON, *chain.from_iterable(map(_row_parameters, rows))]

    def with_options(**given: Any) -> int:  # noqa: ANN401 (typer passes what it has parsed)
        settings = _settings(given.pop("settings") or ())
        flags: dict[str, object] = {}
        for row in rows:
            for name in (row.key, *row.aliases):
                if (value := given.pop(_name(name))) is not None:
                    flags[row.key] = value
        planning = Planning(
            config_file=given.pop("config"),
            manager=find_manager(user=given.pop("user")),
            flags=flags,
            settings=settings,
        )
        return verb(planning, **given)

    return declared(with_options, verb, parameters)


def _settings(stated: Sequence[str]) -> dict[str, object]:
    """Return the values of `--set KEY=VALUE`.

    Raises:
        InputError: one has no `=`; it has every problem.
    """
    wrong = [each for each in stated if "=" not in each]
    if wrong:
        hint = "write KEY=VALUE, such as --set rules=kubernetes"
        raise InputError(
            Problem(where="--set", message=f"{quote(each)} has no value", hint=hint)
            for each in wrong
        )
    return {key: value for key, _, value in (each.partition("=") for each in stated)}


def _name(key: str) -> str:
    return key.replace("-", "_")


def parameter(
    key: str, option: object, kind: object = str | None, *, name: str = ""
) -> inspect.Parameter:
    """Return the parameter of a verb for an option with this name."""
    return inspect.Parameter(
        name or _name(key),
        inspect.Parameter.KEYWORD_ONLY,
        default=False if kind is bool else None,
        annotation=Annotated[kind, option],
    )


def _row_parameters(row: ConfigOption) -> Iterator[inspect.Parameter]:
    """Yield the option, and its former names, which the help does not show.

    A boolean takes a value, as in the kubelet: `--cpu-cfs-quota=false`. For the agent's booleans,
    which are false by default, a flag without a value suffices.
    """
    panel = _AGENT_PANEL if row.is_agent_only else CONFIG_PANEL
    for name in (row.key, *row.aliases):
        shown: dict[str, Any] = {
            "help": row.brief,
            "rich_help_panel": panel,
            "hidden": name != row.key,
        }
        if row.is_agent_only and row.is_boolean:
            yield parameter(name, typer.Option(f"--{name}", **shown), bool | None)
        else:
            yield parameter(name, typer.Option(f"--{name}", metavar="VALUE", **shown))


_COMMON = (
    parameter(
        "user",
        typer.Option("--user", help="Use the user manager."),
        bool,
    ),
    parameter(
        "config",
        typer.Option("--config", metavar="FILE", help="Read the configuration from this file."),
        Path | None,
    ),
    parameter(
        "set",
        typer.Option("--set", metavar="KEY=VALUE", help="Set a key of podslice.toml(5)."),
        list[str] | None,
        name="settings",
    ),
)


def declared(
    made: Callable[..., int], verb: Callable[..., int], parameters: Sequence[inspect.Parameter]
) -> Callable[..., int]:
    """Give a function the name and the help of a verb, and these parameters."""
    made.__name__ = verb.__name__
    made.__doc__ = verb.__doc__
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    made.__annotations__ = {each.name: each.annotation for each in parameters}
    return made
