"""The path of podslice, for units that call it."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = "/usr/bin/podslice"
"""Where packages install it."""


def own_program() -> str:
    """Return the path of the present process's program, or that of the packages."""
    own = Path(sys.argv[0])
    return str(own) if own.name == "podslice" and own.is_absolute() else PROGRAM
