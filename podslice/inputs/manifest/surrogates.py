"""Unpaired surrogates: an escape such as U+D800 is half of a character, which UTF-8 cannot have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from podslice.errors import Problem, quote
from podslice.inputs.limits import POD_PROBLEMS_MAX
from podslice.inputs.scalars import extend_path

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\[uU](?:0000)?[dD][89a-fA-F]")
_REPLACEMENT = "\ufffd"


def may_have_surrogates(text: str) -> bool:
    """Return whether a text of JSON or YAML may have values with unpaired surrogates."""
    return _ESCAPE.search(text) is not None


def replace_surrogates(value: object) -> tuple[object, tuple[Problem, ...]]:
    """Replace unpaired surrogates in the keys and texts of a document.

    Return the document, which is changed, and the problems with the paths of the first texts.
    """
    problems: list[Problem] = []
    top: list[Any] = [value]
    stack: list[tuple[Any, str]] = [(top, "")]
    seen = {id(top)}
    while stack:
        items, path = stack.pop()
        below: list[tuple[Any, str]] = []
        for key, each in list(enumerate(items) if isinstance(items, list) else items.items()):
            is_new = isinstance(each, dict | list) and id(each) not in seen
            if is_new or _has_surrogate(key) or _has_surrogate(each):
                place = path if items is top else extend_path(path, key)
                problems += _replace(items, key, place)
                if is_new:
                    seen.add(id(each))
                    below.append((each, place))
                del problems[POD_PROBLEMS_MAX:]
        stack += reversed(below)
    return top[0], tuple(problems)


def _has_surrogate(value: object) -> bool:
    return isinstance(value, str) and _SURROGATE.search(value) is not None


def _replace(items: Any, key: Any, place: str) -> Iterator[Problem]:  # noqa: ANN401
    """Replace the surrogates of an entry and of its key, which moves to the end; yield the problems."""
    for text in filter(_has_surrogate, (key, items[key])):
        message = f"{quote(text)} has an unpaired surrogate, which is not a character"
        yield Problem(where=place, message=message, hint="write the whole character")
    if _has_surrogate(items[key]):
        items[key] = type(items[key])(_SURROGATE.sub(_REPLACEMENT, items[key]))
    if _has_surrogate(key):
        items[_SURROGATE.sub(_REPLACEMENT, key)] = items.pop(key)
