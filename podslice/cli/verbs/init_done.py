"""`podslice __init_done`, which systemd runs after a detached init container; not for people."""

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
    """Record how a detached init container has ended, as systemd tells it."""
    if any(os.environ.get(name) != value for name, value in SUCCESS.items()):
        return DONE
    return finish(configuration.tolerate(planning), pod, container)
