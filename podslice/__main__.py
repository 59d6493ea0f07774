"""The command line's entry: run a verb, word what went wrong, and set the exit code."""

from __future__ import annotations

import gc
import io
import os
import sys


def main() -> None:
    """Run `podslice`."""
    if sys.argv[1:] == ["--version"]:
        # before typer and pydantic are imported: scripts ask this often
        from podslice import __version__

        sys.stdout.write(f"podslice {__version__}\n")
        return
    if sys.argv[1:2] == ["__complete"]:
        # the shells ask at every press of a key
        from podslice.cli.complete import main as complete

        complete(sys.argv[2:])
        return
    # a verb is short: looking for cycles among thousands of pods takes longer than they live
    gc.disable()
    from podslice.imports import without

    with without("rich"):  # half of typer's import, and nothing here uses it
        from podslice.cli.app import run
    if isinstance(sys.stdout, io.TextIOWrapper):
        # as stderr does: → and × have no place in some locales, and are not worth a traceback
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has gone (`podslice tree | head`): no complaint, as for any filter
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.stderr.flush()
    # what an interpreter tidies up when it ends takes longer than many a verb
    os._exit(code)


if __name__ == "__main__":
    main()
