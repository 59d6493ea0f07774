"""`podslice __init_done`, run by systemd after a detached init container."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from podslice.cli import configuration
from podslice.cli.arguments import DONE, PodName
from podslice.cli.init_containers import SUCCESS, finish
from podslice.cli.options import Planning, planning_options


@planning_options
def init_done(
    planning: Planning, pod: PodName, container: Annotated[str, typer.Argument(metavar="CONTAINER")]
) -> int:
    """Record the result of a detached init container that systemd reports."""
    if any(os.environ.get(name) != value for name, value in SUCCESS.items()):
        return DONE
    return finish(configuration.tolerate(planning), pod, container)
