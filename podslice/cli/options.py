"""The options of every verb that plans: the kubelet's flags and ours, from the table of settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from podslice.inputs.config import SETTINGS, load_config
from podslice.model.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """What the operator said beside the manifests."""

    config_file: Path | None = None
    flags: dict[str, object] = field(default_factory=dict)
    user: bool = False

    def load_config(self) -> Config:
        """The configuration from files and flags.

        Raises:
            InputError: a file or a flag is wrong; it has every problem.
        """
        return load_config(self.flags, file=self.config_file)


_CONFIG = typer.Option(
    "--config", metavar="FILE", help="Read this instead of /etc/podslice/podslice.toml."
)
_USER = typer.Option("--user", help="Talk to the user's service manager; needs no root.")
_NO_ADMISSION = typer.Option("--no-admission", help="Take pods even if they do not fit.")


def planning_options(verb: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options of every setting; it gets them as its first argument, `Planning`."""
    signature = inspect.signature(verb, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name != "planning"]
    names = {_parameter(row.key): row.key for row in SETTINGS}

    @wraps(verb)
    def with_options(**given: Any) -> int:  # noqa: ANN401 - typer passes what it parsed
        stated = {key: given.pop(name) for name, key in names.items()}
        planning = Planning(
            config_file=given.pop("config"),
            user=given.pop("user"),
            flags={key: value for key, value in stated.items() if value is not None},
        )
        return verb(planning, **given)

    parameters = [*own, *_common(), *map(_option, SETTINGS)]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    del with_options.__wrapped__  # type: ignore[attr-defined]
    return with_options
