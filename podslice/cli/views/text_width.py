"""The columns that text occupies on a terminal, and text shortened to a number of them.

The width of characters is from the standard library: text is escaped before, so that of the
subtleties of Unicode only wide and combining characters remain.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from os.path import commonprefix

ELLIPSIS = "…"
_INDENTS = " │├└─"
"""Spaces, and the branches of a tree."""


def width_of(text: str) -> int:
    """Return the columns that printable text occupies."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


@lru_cache(maxsize=1024)
def _char_width(char: str) -> int:
    """Return 2 for wide characters, 0 for combining ones.

    Source: Unicode, annex 11 (East Asian Width): wide and fullwidth characters occupy two columns.
    """
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def ljust(text: str, width: int) -> str:
    """Pad on the right to this width."""
    return text + " " * (width - width_of(text))


def rjust(text: str, width: int) -> str:
    """Pad on the left to this width."""
    return " " * (width - width_of(text)) + text


def _first(text: str, width: int) -> str:
    """Return the longest beginning of this width."""
    if text.isascii():
        return text[: max(0, width)]
    used = 0
    for index, char in enumerate(text):
        used += _char_width(char)
        if used > width:
            return text[:index]
    return text


def _last(text: str, width: int) -> str:
    """Return the longest end of this width; it does not begin with a combining character."""
    if text.isascii():
        return text[max(0, len(text) - width) :] if width > 0 else ""
    used, begin = 0, len(text)
    for index in range(len(text) - 1, -1, -1):
        char_width = _char_width(text[index])
        used += char_width
        if used > width:
            break
        begin = index if char_width else begin
    return text[begin:]


def shorten_end(text: str, width: int) -> str:
    """Shorten to this width: `default/we…`."""
    return text if width_of(text) <= width else _cut(text, width, 0)


def _cut(text: str, width: int, tail: int) -> str:
    """Shorten to this width, with an end of the width `tail`; shorter text is unchanged.

    What indents it remains, if there is room.
    """
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    indent = len(text) - len(text.lstrip(_INDENTS))
    end = _last(text, max(0, min(tail, width - 1 - indent)))
    return _first(text, width - 1 - width_of(end)) + ELLIPSIS + end


def folded(text: str, width: int) -> list[str]:
    """Break a text between words into lines of at most this width; longer words stay whole."""
    lines = [""]
    for number, word in enumerate(text.split(" ")):
        line = f"{lines[-1]} {word}" if number else word
        if number and width_of(line) > width:
            lines.append(word)
        else:
            lines[-1] = line
    return lines


def shorten_middle(texts: Iterable[str], width: int) -> list[str]:
    """Shorten to this width such that different texts remain different: `default/web-…-7`.

    All are cut at the same place, which is in the middle if that suffices, and such that their ends
    begin with a word if one begins nearby: `…-42`, not `…2`. Texts that are then still equal are
    cut around their first difference, or finally numbered.
    """
    texts = list(texts)
    distinct = list(dict.fromkeys(texts))
    if max(map(width_of, distinct), default=0) <= width:
        return texts
    tail = _best_tail(distinct, width)
    best = _at(distinct, width, tail)
    for more in range(tail, min(tail + width // 4, width)):
        wider = _at(distinct, width, more)
        if _count_equal(wider) == _count_equal(best) and all(
            width_of(text) <= width or _begins_word(text, more) for text in distinct
        ):
            best = wider
            break
    shown = dict(zip(distinct, best, strict=True))
    if _count_equal(best):
        _separate(shown, width)
    return [shown[text] for text in texts]


def _best_tail(distinct: Sequence[str], width: int) -> int:
    """Return the first width of the end with which the fewest texts are equal."""
    best, fewest = 0, len(distinct) + 1
    for tail in _tails(width):
        equal = _count_equal(_at(distinct, width, tail))
        if equal < fewest:
            best, fewest = tail, equal
        if not equal:
            break
    return best


def _tails(width: int) -> Iterator[int]:
    """Yield widths of the end: half of the text, then more and more uneven parts."""
    middle = (width - 1) // 2
    yield max(0, middle)
    for step in range(1, width):
        yield from (tail for tail in (middle + step, middle - step) if 0 <= tail < width)


def _begins_word(text: str, tail: int) -> bool:
    """Return whether the end of this width begins with a word, or with the character before it."""
    begin = len(text) - len(_last(text, tail))
    return not (text[max(0, begin - 1) : begin].isalnum() and text[begin : begin + 1].isalnum())


def _at(texts: Iterable[str], width: int, tail: int) -> list[str]:
    return [_cut(text, width, tail) for text in texts]


def _count_equal(shown: list[str]) -> int:
    return len(shown) - len(set(shown))


def _separate(shown: dict[str, str], width: int) -> None:
    """Make equal texts different: cut around the first difference, or number them."""
    equal = defaultdict(list)
    for text, short in shown.items():
        equal[short].append(text)
    for texts in equal.values():
        begin = len(commonprefix(texts)) if len(texts) > 1 else 0  # noqa: RUF071 - of characters
        shown.update((text, _around(text, begin, width)) for text in texts if len(texts) > 1)
    counts = Counter(shown.values())
    taken = set(counts)
    for text, short in shown.items():
        if counts[short] > 1:
            shown[text] = _numbered(short, width, taken)
            taken.add(shown[text])


def _around(text: str, begin: int, width: int) -> str:
    """Shorten on both sides of a place: `…web-7-bl…`."""
    indent = len(text) - len(text.lstrip(_INDENTS))
    kept = max(indent, begin - width // 4)
    if kept == indent or indent > width // 2:
        return shorten_end(text, width)
    return shorten_end(text[:indent] + ELLIPSIS + text[kept:], width)


def _numbered(text: str, width: int, taken: set[str]) -> str:
    number = 1
    while True:
        suffix = f"{ELLIPSIS}{number}"
        if len(suffix) > width:
            return text
        if (found := _first(text, width - len(suffix)) + suffix) not in taken:
            return found
        number += 1
