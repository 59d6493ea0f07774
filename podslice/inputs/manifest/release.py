"""Release of large values in steps.

Freeing hundreds of thousands of values at once takes tens of milliseconds, in which nothing else
runs. So a value that is no longer needed is emptied step by step first.
"""

from __future__ import annotations

from typing import Any

from podslice.pausable import Steps

RELEASED_PER_STEP = 5_000
"""Values between two pauses: a millisecond."""


def release(value: object) -> Steps[None]:
    """Empty a list or a mapping and all nested ones; the caller must not use them afterwards."""
    filled: list[Any] = [value] if isinstance(value, dict | list) else []
    count = 0
    while filled:
        last = filled[-1]
        if not last:
            filled.pop()
            continue
        part = last.pop() if isinstance(last, list) else last.popitem()[1]
        if isinstance(part, dict | list):
            filled.append(part)
        count += 1
        if count % RELEASED_PER_STEP == 0:
            yield
