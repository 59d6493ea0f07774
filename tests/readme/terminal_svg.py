"""The output of a command as a picture of a terminal: text with colors in, SVG out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

_CELL, _LINE, _MARGIN = 8.4, 19, 16
_COLORS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea"}
_PLAIN, _DIM, _BACKGROUND, _PROMPT = "#e6edf3", "#8b949e", "#0d1117", "#7ee787"
_ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
# other sequences move the cursor or switch modes; the text is what is printed once
_OTHER = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b[()][A-Z0-9]|\x1b[=>]|\r")
Style = tuple[str, bool]
"""Color, and whether it is bold."""


def draw(command: str, output: str, *, columns: int) -> str:
    """Return the picture of a terminal with a command and what it printed."""
    lines = _OTHER.sub("", output).rstrip("\n").split("\n")
    width = columns * _CELL + 2 * _MARGIN
    height = (len(lines) + 1) * _LINE + 2 * _MARGIN
    rows = [_span(0, "$", (_PROMPT, True)) + _span(2, command, (_PLAIN, True))]
    rows += ["".join(_spans(line)) for line in lines]
    texts = "\n".join(
        f'<text y="{_MARGIN + (number + 0.75) * _LINE:.1f}">{row}</text>'
        for number, row in enumerate(rows)
        if row
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" \
viewBox="0 0 {width:.0f} {height}" role="img">
<title>{escape(command)}</title>
<rect width="100%" height="100%" rx="8" fill="{_BACKGROUND}"/>
<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">
{texts}
</g>
</svg>
"""


def _spans(line: str) -> Iterator[str]:
    """Yield the parts of a line, each at its column, so that the width of a font does not matter."""
    style: Style = (_PLAIN, False)
    column = 0
    for index, part in enumerate(_ESCAPE.split(line)):
        if index % 2:
            style = _styled(style, part)
            continue
        for word in re.finditer(r"\S+(?: \S+)*", part):
            yield _span(column + word.start(), word[0], style)
        column += len(part)


def _styled(style: Style, codes: str) -> Style:
    """Return the style after an escape sequence."""
    color, is_bold = style
    for code in map(int, codes.split(";") if codes else ["0"]):
        if code == 0:
            color, is_bold = _PLAIN, False
        elif code == 1:
            is_bold = True
        elif code == 2:
            color = _DIM
        elif code == 22:
            is_bold = False
        elif code == 39:
            color = _PLAIN
        else:
            color = _COLORS.get(code - 60 if code >= 90 else code, color)
    return color, is_bold


def _span(column: int, text: str, style: Style) -> str:
    color, is_bold = style
    weight = ' font-weight="bold"' if is_bold else ""
    length = f' textLength="{len(text) * _CELL:.1f}"' if len(text) > 1 else ""
    x = _MARGIN + column * _CELL
    return f'<tspan x="{x:.1f}"{length} fill="{color}"{weight}>{escape(text)}</tspan>'
