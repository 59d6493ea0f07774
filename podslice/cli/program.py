"""The program itself as values, and its help.

The help is printed without typer and the modules of the verbs, whose import would take most of the
time. A test compares it with the declarations of the verbs.
"""

from __future__ import annotations

import shutil

from podslice.cli.command_line import HELP, Option, OptionGroup, Verb
from podslice.cli.verb_table import COLOR_HELP, SUMMARIES, VERB_GROUPS, VERSION_HELP
from podslice.cli.views.help import format_help

COLOR_MODES = ("auto", "always", "never")
PROGRAM = Verb(
    path=(),
    help=("Give every pod a slice: Kubernetes' node resource model on any systemd host.",),
    options=(
        Option(flags=("--version",), metavar="", help=VERSION_HELP),
        Option(
            flags=("--color",),
            metavar="|".join(COLOR_MODES),
            help=COLOR_HELP,
            choices=COLOR_MODES,
            group=OptionGroup.COMMON,
        ),
        HELP,
    ),
    verbs=tuple(
        Verb(path=(name,), help=(summary,), options=())
        for verbs in SUMMARIES.values()
        for name, summary in verbs.items()
    ),
)


def help_of_program() -> str:
    """Return the help of the program, for the width of the terminal."""
    width = shutil.get_terminal_size().columns
    return format_help(PROGRAM, width=width, groups=VERB_GROUPS)
