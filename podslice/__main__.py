"""Entry point of the command line: run a verb, report errors, set the exit code."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress

from podslice.cli.streams import guard

INTERRUPTED = 130


def main() -> None:
    """Run `podslice`."""
    try:
        guard()
        code = _run(sys.argv[1:])
    except BrokenPipeError:
        code = 0  # the reader has closed the pipe (`podslice tree | head`)
    except OSError as error:
        of_what = "" if error.filename is None else f"{error.filename}: "
        _write_error(f"error: {of_what}{str(error.strerror).lower()}\n")
        code = 1
    except KeyboardInterrupt:
        _write_error("interrupted: nothing was changed\n")
        code = INTERRUPTED
    _write_error("")
    # the interpreter's cleanup would take longer than many verbs
    os._exit(code)


def _write_error(text: str) -> None:
    """Write to standard error, which is missing if `guard` has failed."""
    with suppress(OSError):  # it cannot be reported
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def _run(arguments: list[str]) -> int:
    """Run a verb, flush its output, and return the exit code."""
    if arguments in (["--version"], ["version"]):
        # before typer and pydantic are imported: scripts ask this often
        from podslice import __version__

        sys.stdout.write(f"podslice {__version__}\n")
        return _flush(0)
    if arguments and arguments[0].startswith("__"):
        from podslice.features import FEATURES
        from podslice.model.feature import load

        for feature in FEATURES:
            if arguments[0] in feature.programs:
                program = load(feature.programs[arguments[0]])
                return _flush(program(arguments[1:]))
    from podslice.cli import interrupts

    try:
        if arguments[:1] != ["agent"]:  # a service, which handles signals itself
            interrupts.install()
        # a verb is short: collecting cycles among thousands of pods would take longer
        gc.disable()
        from podslice.cli.app import run

        return _flush(run())
    except interrupts.Interrupted as error:
        _write_error(f"{error}\n")
        return error.exit_code


def _flush(code: int) -> int:
    """Flush standard output; return the exit code, which a closed pipe does not change."""
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    return code


if __name__ == "__main__":
    main()
