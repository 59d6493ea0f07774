"""The options of every verb that plans: the kubelet's flags and ours, from the table of settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from podslice.inputs.options.config_files import make_config, read_files
from podslice.inputs.options.table import OPTIONS, ConfigOption
from podslice.model.config import Config, Origin
from podslice.model.manager import SYSTEM, Manager
from podslice.systemd.find_manager import find_manager


@dataclass(frozen=True, kw_only=True)
class Planning:
    """What the operator said beside the manifests."""

    config_file: Path | None = None
    flags: dict[str, object] = field(default_factory=dict)
    manager: Manager = SYSTEM
    substitute: tuple[Config, Origin] | None = None
    """The configuration that takes the place of invalid files."""

    @property
    def config(self) -> Config:
        """The configuration from files and flags.

        Raises:
            InputError: a file or a flag is wrong; it has every problem.
        """
        return self._configuration[0]

    @property
    def origin(self) -> Origin:
        """Where the configuration comes from.

        Raises:
            InputError: as `config`.
        """
        return self._configuration[1]

    @cached_property
    def _configuration(self) -> tuple[Config, Origin]:
        """Read once, so that a verb has one configuration and no other."""
        if self.substitute is not None:
            return self.substitute
        files = read_files(file=self.config_file)
        return make_config(files, self.flags), Origin(settings=files.settings)

    @property
    def arguments(self) -> list[str]:
        """The same as a command line, for a podslice that somebody else starts elsewhere."""
        given = [f"--{key}={value}" for key, value in self.flags.items() if key != "admission"]
        if "admission" in self.flags:
            given.append("--no-admission")
        if self.config_file is not None:
            given.append(f"--config={self.config_file.absolute()}")
        return [*given, "--user"] if self.manager.is_user else given


def planning_options(verb: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options of the settings that decide what should be.

    It gets them as its first argument, `Planning`.
    """
    return _with_options(verb, tuple(row for row in OPTIONS if not row.is_agent_only))


def agent_options(verb: Callable[..., int]) -> Callable[..., int]:
    """As `planning_options`, with the settings of the agent."""
    return _with_options(verb, OPTIONS)


def _with_options(verb: Callable[..., int], rows: tuple[ConfigOption, ...]) -> Callable[..., int]:
    signature = inspect.signature(verb, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "planning"]
    parameters = [*own, *_COMMON, *map(_config_option, rows)]

    def with_options(**given: Any) -> int:  # noqa: ANN401 (typer passes what it has parsed)
        flags = {row.key: given.pop(_name(row.key)) for row in rows}
        if given.pop("no_admission"):
            flags["admission"] = False
        planning = Planning(
            config_file=given.pop("config"),
            manager=find_manager(user=given.pop("user")),
            flags={key: value for key, value in flags.items() if value is not None},
        )
        return verb(planning, **given)

    with_options.__name__ = verb.__name__
    with_options.__doc__ = verb.__doc__
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_options


def _name(key: str) -> str:
    return key.replace("-", "_")


def _config_option(row: ConfigOption) -> inspect.Parameter:
    return _parameter(row.key, _option(row), bool | None if _is_switch(row) else str | None)


def _is_switch(row: ConfigOption) -> bool:
    """The agent's booleans are off by default, so that only the flag is needed."""
    return row.is_agent_only and row.is_boolean


def _parameter(key: str, option: object, kind: object = str | None) -> inspect.Parameter:
    return inspect.Parameter(
        _name(key),
        inspect.Parameter.KEYWORD_ONLY,
        default=False if kind is bool else None,
        annotation=Annotated[kind, option],
    )


def _option(row: ConfigOption) -> object:
    """The option of a setting. A boolean takes a value, as the kubelet's: `--cpu-cfs-quota=false`."""
    flags = [f"--{name}" for name in (row.key, *row.aliases)]
    if _is_switch(row):
        return typer.Option(*flags, help=row.help)
    return typer.Option(*flags, metavar=row.metavar or "true|false", help=row.help)


_COMMON = (
    _parameter(
        "user",
        typer.Option("--user", help="Talk to the user's service manager; needs no root."),
        bool,
    ),
    _parameter(
        "no_admission",
        typer.Option("--no-admission", help="Take pods even if they do not fit."),
        bool,
    ),
    _parameter(
        "config",
        typer.Option(
            "--config",
            metavar="FILE",
            help="Read this instead of the files in /etc/podslice and its like.",
        ),
        Path | None,
    ),
)
