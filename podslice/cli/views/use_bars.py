"""Bars of what a pod uses, with marks at what it requests and has used. Pure: values in, cells out."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.cli.views.style import Cell, Role, Styled, bar

MARKS = {"R": "requested", "P": "90th percentile"}
"""The marks of a bar, where there is recorded usage to compare a request with."""


def marks_of(requested: int | None, recorded: int | None) -> dict[str, int]:
    """Return the amounts at the marks; none without recorded usage."""
    if recorded is None:
        return {}
    return {"R": requested, "P": recorded} if requested is not None else {"P": recorded}


def use_bar(used: int, limit: int | None, marks: Mapping[str, int], *, width: int) -> Cell:
    """Return the bar of a limit, or of the largest amount that is marked; empty without both."""
    if limit is not None:
        return bar(used, limit, width=width, marks=marks)
    if not marks:
        return ""
    shown = bar(used, max(used, *marks.values()), width=width, marks=marks)
    return Styled(shown.text, Role.GOOD)
