"""Run a verb of podslice, and measure its parts.

    python3 stages.py FILE VERB [ARGUMENT]...

Writes the milliseconds of each part to FILE, as JSON. Nested parts are not counted
twice. The instrumentation costs a few milliseconds; such a run is not among those measured.
"""
# imports are measured, too
# ruff: noqa: PLC0415

import sys
import time

BEGAN = time.perf_counter()

READING = frozenset({"observe", "list_units", "caps"})
CONNECTING = frozenset({"__aenter__", "__aexit__"})


class Clock:
    """Charges time to the part that began last."""

    def __init__(self, *, began: float) -> None:
        self.parts: dict[str, float] = {}
        self._stack = ["rest"]
        self._since = began

    def begin(self, name: str) -> None:
        """Begin a part."""
        self._charge()
        self._stack.append(name)

    def end(self) -> None:
        """End a part."""
        self._charge()
        self._stack.pop()

    def _charge(self) -> None:
        now = time.perf_counter()
        name = self._stack[-1]
        self.parts[name] = self.parts.get(name, 0.0) + 1000 * (now - self._since)
        self._since = now


CLOCK = Clock(began=BEGAN)


def timed(name, function):
    """Return the function, charged; also if it runs several times at once."""
    running = 0

    def call(*arguments, **options):
        nonlocal running
        running += 1
        if running == 1:
            CLOCK.begin(name)
        try:
            return function(*arguments, **options)
        finally:
            running -= 1
            if not running:
                CLOCK.end()

    return call


def timed_async(name, function):
    """Return an awaitable, charged as in `timed`; parts of one name may overlap, of two may not."""
    running = 0

    async def call(*arguments, **options):
        nonlocal running
        running += 1
        if running == 1:
            CLOCK.begin(name)
        try:
            return await function(*arguments, **options)
        finally:
            running -= 1
            if not running:
                CLOCK.end()

    return call


def watch() -> None:
    """Charge the parts."""
    import builtins
    import importlib
    import inspect

    builtins.__import__ = timed("imports", builtins.__import__)
    importlib.import_module = timed("imports", importlib.import_module)
    from podslice.inputs.manifest import load
    from podslice.systemd.bus import Bus

    load.load_pods = timed("manifests", load.load_pods)
    for name, function in list(vars(Bus).items()):
        if inspect.iscoroutinefunction(function) and (name in CONNECTING or name[0] != "_"):
            part = "read" if name in READING else "write"
            part = "connect" if name in CONNECTING else part
            setattr(Bus, name, timed_async(part, function))


def main(path: str) -> None:
    """Run the verb, and write the figures at its end."""
    import json
    import os
    from pathlib import Path

    end_now = os._exit

    def end(code: int) -> None:
        CLOCK.begin("end")
        total = {"total": 1000 * (time.perf_counter() - BEGAN)}
        Path(path).write_text(json.dumps(CLOCK.parts | total))
        end_now(code)

    os._exit = end
    watch()
    from podslice.__main__ import main as run

    sys.argv[1:] = sys.argv[2:]
    try:
        run()
    except SystemExit as error:
        end(error.code or 0)


if __name__ == "__main__":
    main(sys.argv[1])
