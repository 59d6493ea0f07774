"""`--color`, which every verb has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from podslice.cli.options import declared
from podslice.cli.output import choose_colors
from podslice.cli.views.style import ColorMode

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
