"""The command line's entry: run a verb, word what went wrong, and set the exit code."""

from __future__ import annotations

import gc
import os
import sys

from podslice.cli.streams import guard

INTERRUPTED = 130


def main() -> None:
    """Run `podslice`."""
    try:
        guard()
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        code = 1  # the reader has gone (`podslice tree | head`): no complaint, as for any filter
    except OSError as error:
        of_what = "" if error.filename is None else f"{error.filename}: "
        _say(f"error: {of_what}{str(error.strerror).lower()}\n")
        code = 1
    except KeyboardInterrupt:
        _say("interrupted\n")
        code = INTERRUPTED
    _say("")
    # what an interpreter tidies up when it ends takes longer than many a verb
    os._exit(code)


def _say(text: str) -> None:
    """Write to standard error, which may be missing: `guard` may have failed before replacing it."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
    except OSError:
        pass  # there is no place to report it


def _run(arguments: list[str]) -> int:
    """Run a verb, with no more imports than it needs; the exit code."""
    if arguments == ["--version"]:
        # before typer and pydantic are imported: scripts ask this often
        from podslice import __version__

        sys.stdout.write(f"podslice {__version__}\n")
        return 0
    if arguments[:1] == ["__complete"]:
        # the shells ask at every press of a key
        from podslice.cli.completion import main as complete

        return complete(arguments[1:])
    # a verb is short: looking for cycles among thousands of pods takes longer than they live
    gc.disable()
    from podslice.imports import without

    with without("rich"):  # half of typer's import, and nothing here uses it
        from podslice.cli.app import run
    return run()


if __name__ == "__main__":
    main()
