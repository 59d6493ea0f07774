"""Entry point of the command line: run a verb, report errors, set the exit code."""

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
        code = 1  # the reader has closed the pipe (`podslice tree | head`): silent, as any filter
    except OSError as error:
        of_what = "" if error.filename is None else f"{error.filename}: "
        _write_error(f"error: {of_what}{str(error.strerror).lower()}\n")
        code = 1
    except KeyboardInterrupt:
        _write_error("interrupted\n")
        code = INTERRUPTED
    _write_error("")
    # the interpreter's cleanup would take longer than many verbs
    os._exit(code)


def _write_error(text: str) -> None:
    """Write to standard error, which is missing if `guard` has failed."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
    except OSError:
        pass  # it cannot be reported


def _run(arguments: list[str]) -> int:
    """Run a verb with only the imports that it needs, and return the exit code."""
    if arguments == ["--version"]:
        # before typer and pydantic are imported: scripts ask this often
        from podslice import __version__

        sys.stdout.write(f"podslice {__version__}\n")
        return 0
    if arguments[:1] == ["__complete"]:
        # called at every press of the completion key
        from podslice.cli.completion import main as complete

        return complete(arguments[1:])
    # a verb is short: collecting cycles among thousands of pods would take longer
    gc.disable()
    from podslice.imports import without

    with without("rich"):  # not used here; half the time of typer's import before version 0.17
        from podslice.cli.app import run
    return run()


if __name__ == "__main__":
    main()
