"""`python -m tests.fuzz SECONDS [TARGET]...`: fuzz the readers and keep the findings.

The time is shared among the targets. Each find is minimised and saved in `tests/fuzz/corpus`; the
exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import sys
import time

from tests.fuzz.engine import save, search
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

BATCH = 200
"""Mutations between two checks of the time."""


def main() -> int:
    """Fuzz for the requested time."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("target", nargs="*", choices=[[], *(each.name for each in TARGETS)])
    asked = parser.parse_args()
    chosen = [each for each in TARGETS if each.name in asked.target or not asked.target]
    finds = [_fuzz(target, asked.seconds / len(chosen)) for target in chosen]
    return int(any(finds))


def _fuzz(target: Target, seconds: float) -> bool:
    """Fuzz one target; return whether it has a finding."""
    end = time.monotonic() + seconds
    first = secrets.randbits(32)
    for batch in itertools.count():
        find = search(target, examples=BATCH, number=first + batch)
        if find is not None:
            path = save(target, find)
            sys.stdout.write(f"{target.name}: {find.error!r:.200}\n  kept as {path}\n")
            return True
        if time.monotonic() > end:
            sys.stdout.write(f"{target.name}: nothing in {(batch + 1) * BATCH} inputs\n")
            sys.stdout.flush()
            return False
    return False


if __name__ == "__main__":
    sys.exit(main())
