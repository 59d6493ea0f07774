"""A converter from Markdown to man(7) for the subset in the templates; anything else is an error.

Headings (`#`, `##`), paragraphs, `- ` lists, `term` lines with `:   ` definitions, fenced blocks,
tables, and **bold**, *italic*, `code` within a line.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise

_INLINE = re.compile(
    r"\*\*(?P<bold>.+?)\*\*|(?<!\w)\*(?P<italic>[^*\s].*?)\*(?!\w)|`(?P<code>[^`]+)`"
)
_DEFINITION = ":   "
_LONG = 40


def page(title: str, section: str, *, date: str, version: str, body: str) -> str:
    """Return a manual page."""
    head = f'.TH "{title.upper()}" "{section}" "{date}" "podslice {version}" "podslice"'
    # left-justified without hyphenation, so that a search finds options and paths. groff takes
    # the adjustment from a string after each heading
    lines = ["'\\\" t", head, ".nh", ".ds AD l", ".ad l", *_blocks(body.strip().split("\n"))]
    # a heading begins a paragraph by itself
    kept = [line for last, line in pairwise(["", *lines]) if not _is_idle(last, line)]
    return "\n".join(kept) + "\n"


def _is_idle(last: str, line: str) -> bool:
    return line == ".PP" and last.startswith((".SH", ".SS"))


def _blocks(lines: list[str]) -> Iterator[str]:
    index = 0
    while index < len(lines):
        line = lines[index]
        end = _end_of_block(lines, index)
        block = lines[index:end]
        index = end
        if not line.strip():
            continue
        if line.startswith("```"):
            yield from _literal(block[1:-1])
        elif line.startswith("# "):
            yield f".SH {_heading(line[2:])}"
        elif line.startswith("## "):
            yield f".SS {_heading(line[3:])}"
        elif line.startswith("|"):
            yield from _table(block)
        elif line.startswith("- "):
            yield from _list(block)
        elif any(each.startswith(_DEFINITION) for each in block):
            yield from _definition(block)
        else:
            yield from (".PP", *_text(block))


def _end_of_block(lines: list[str], start: int) -> int:
    """Return the end of a block: one line of a heading, a closing fence, or an empty line."""
    if lines[start].startswith("#") or not lines[start].strip():
        return start + 1
    stop = "```" if lines[start].startswith("```") else ""
    end = start + 1
    while end < len(lines) and lines[end].strip() != stop:
        end += 1
    return end + 1 if stop else end


def _literal(lines: list[str]) -> Iterator[str]:
    yield from (".PP", ".RS 4", ".nf")
    yield from (_guarded(_escape(line, is_code=True)) for line in lines)
    yield from (".fi", ".RE")


def _list(block: list[str]) -> Iterator[str]:
    items: list[list[str]] = []
    for line in block:
        if line.startswith("- "):
            items.append([line[2:]])
        else:
            items[-1].append(line)
    for item in items:
        yield from (".IP \\(bu 2", *_text(item))


def _definition(block: list[str]) -> Iterator[str]:
    """Yield terms with their definitions; further lines of that form are separate paragraphs."""
    first = next(i for i, line in enumerate(block) if line.startswith(_DEFINITION))
    for number, term in enumerate(block[:first]):
        yield from (".TP" if number == 0 else ".TQ", _guarded(_inline(term.strip())))
    paragraphs: list[list[str]] = []
    for line in block[first:]:
        if line.startswith(_DEFINITION):
            paragraphs.append([line.removeprefix(_DEFINITION)])
        else:
            paragraphs[-1].append(line)
    for number, lines in enumerate(paragraphs):
        if number:
            yield ".IP"
        yield from _text(lines)


def _table(block: list[str]) -> Iterator[str]:
    rows = [[_cell(c) for c in line.strip("|").split("|")] for line in block]
    head, rule, *rest = rows
    if not all(set(cell) <= {"-", ":", "\\"} for cell in rule):
        raise ValueError(f"a table without a line below its head: {block[0]}")
    wide = "l" * (len(head) - 1)
    yield from (".PP", ".TS", " ".join(f"{each}b" for each in "l" * len(head)))
    yield " ".join(wide) + " lx."
    yield "\t".join(head)
    for row in rest:
        # the last column is text that may take several lines
        yield "\t".join(row[:-1]) + "\tT{"
        yield from (*map(_breakable, _wrapped(row[-1])), "T}")
    yield ".TE"


def _breakable(text: str) -> str:
    """Let a long name break before a capital letter, in a column that is too narrow for it."""
    return re.sub(
        r"(?<![A-Za-z\\])[A-Za-z]{16,}",
        lambda name: re.sub(r"(?<=[a-z])(?=[A-Z])", r"\\:", name[0]),
        text,
    )


def _cell(text: str) -> str:
    return _inline(text.strip()).replace("\t", " ")


def _text(lines: list[str]) -> list[str]:
    return _wrapped(_inline(" ".join(line.strip() for line in lines)))


def _wrapped(text: str) -> list[str]:
    """Wrap lines of the source, without breaking words."""
    wrapped = textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False)
    return [_guarded(line) for line in wrapped]


def _heading(text: str) -> str:
    return f'"{_escape(text.strip())}"'


def _inline(text: str) -> str:
    result, at = [], 0
    for match in _INLINE.finditer(text):
        result.append(_escape(text[at : match.start()]))
        if match["italic"]:
            result.append(f"\\fI{_escape(match['italic'])}\\fR")
        else:
            code = _escape(match["code"] or match["bold"], is_code=True)
            # a long list may be broken behind its commas
            code = code.replace(",", ",\\:") if len(code) > _LONG else code
            result.append(f"\\fB{code}\\fR")
        at = match.end()
    return "".join([*result, _escape(text[at:])])


def _escape(text: str, *, is_code: bool = False) -> str:
    """Escape text for roff; literal text keeps its minus signs and quotes."""
    text = text.replace("\\", "\\e")
    text = text.replace('"', "\\(dq")
    text = re.sub(r"(?<!\w)-|-(?!\w)", r"\\-", text)
    if is_code:
        text = re.sub(r"(?<!\\)-", r"\\-", text)
        text = text.replace("'", "\\(aq").replace("^", "\\(ha").replace("~", "\\(ti")
    return "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)


def _guarded(line: str) -> str:
    """Protect a line that begins with a control character of roff."""
    return f"\\&{line}" if line.startswith((".", "'")) else line
