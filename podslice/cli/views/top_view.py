"""The screen of `top`: what a key changes, and the lines to draw. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from podslice.cli.arguments import Sort
from podslice.cli.terminal import Key
from podslice.cli.views import usage_table
from podslice.cli.views.style import Display, Role
from podslice.cli.views.text_width import shorten_end, width_of
from podslice.cli.views.usage_table import NodeSummary, NodeUsage
from podslice.errors import printable

SORT_KEYS = {
    "c": Sort.CPU,
    "m": Sort.MEMORY,
    "t": Sort.THROTTLED,
    "p": Sort.PRESSURE,
    "n": Sort.NAME,
}
_LIST_HELP = (
    "q quit",
    "? help",
    "/ filter",
    "Enter open",
    "w containers",
    "sort: c cpu, m memory, t throttled, p pressure, n name",
)
_PAGE_HELP = ("q quit", "Esc back", "↑ ↓ PgUp PgDn scroll")
_FILTER_HELP = ("Enter keep", "Esc clear")
_HELP = (
    "↑ ↓            select a pod",
    "PgUp PgDn      select a pod one page up or down",
    "Home End       select the first or the last pod",
    "Enter          show the page of the selected pod",
    "Esc            back; clear the filter",
    "/              filter: show only pods whose name contains a text",
    "c m t p n      sort by cpu, memory, throttled, pressure or name",
    "w              show containers, OOM kills and the QoS class",
    "? h            this help",
    "Ctrl-Z         suspend",
    "q Ctrl-C       quit",
)


class TopState(NamedTuple):
    """What the user has chosen."""

    sort: Sort = Sort.CPU
    wide: bool = False
    pattern: str = ""
    """Only pods whose name contains it are shown."""
    is_typing: bool = False
    """Whether keys are added to the pattern."""
    selected: str = ""
    """The selected pod; empty for the first, whichever that is."""
    opened: str = ""
    """The pod whose page is shown; empty for the list."""
    offset: int = 0
    """The first row of the list that is shown."""
    page_offset: int = 0
    """The first line of the page that is shown."""
    room: int = 1
    """The rows that were drawn last, the distance of one page."""
    shows_help: bool = False


class Frame(NamedTuple):
    """The lines of a screen."""

    lines: Sequence[str]
    state: TopState
    """The state with the rows that are shown."""
    marked: int | None = None
    """The number of the line that is highlighted."""


def select(usage: NodeUsage, state: TopState) -> NodeUsage:
    """Return the usage sorted, with the pods that the pattern selects."""
    pods = tuple(pod for pod in usage.sorted(state.sort).pods if state.pattern in pod.name)
    return usage._replace(pods=pods)


def press(state: TopState, key: str, pods: Sequence[str]) -> TopState:
    """Return the state after a key; `pods` are the names in the list, in its order."""
    if state.shows_help:
        return state._replace(shows_help=False)
    if state.is_typing and (len(key) == 1 or key in _TYPED):
        return _type(state, key)
    if key in ("?", "h"):
        return state._replace(shows_help=True)
    if state.opened:
        return _press_on_page(state, key)
    return _press_in_list(state, key, pods)


def _press_in_list(state: TopState, key: str, pods: Sequence[str]) -> TopState:
    if key in _steps(state.room):
        return _move(state, key, pods)
    if key == Key.ENTER:
        opened = _selected(state, pods)
        return state._replace(opened=opened, selected=opened, page_offset=0)
    changes: dict[str, TopState] = {
        **{each: state._replace(sort=sort) for each, sort in SORT_KEYS.items()},
        "/": state._replace(is_typing=True),
        "w": state._replace(wide=not state.wide),
        Key.ESCAPE: state._replace(pattern=""),
    }
    return changes.get(key, state)


_TYPED = (Key.BACKSPACE, Key.ENTER, Key.ESCAPE)


def _type(state: TopState, key: str) -> TopState:
    match key:
        case Key.ENTER:
            return state._replace(is_typing=False)
        case Key.ESCAPE:
            return state._replace(is_typing=False, pattern="")
        case Key.BACKSPACE:
            return state._replace(pattern=state.pattern[:-1])
        case _:
            return state._replace(pattern=state.pattern + key)


def _press_on_page(state: TopState, key: str) -> TopState:
    if key in (Key.ESCAPE, Key.BACKSPACE):
        return state._replace(opened="")
    steps = _steps(state.room)
    if key not in steps:
        return state
    # the frame keeps it within the page
    return state._replace(page_offset=max(0, state.page_offset + steps[key]))


_ALL = 1_000_000


def _steps(room: int) -> dict[str, int]:
    page = max(1, room - 1)
    return {
        Key.UP: -1,
        Key.DOWN: 1,
        Key.PAGE_UP: -page,
        Key.PAGE_DOWN: page,
        Key.HOME: -_ALL,
        Key.END: _ALL,
    }


def _move(state: TopState, key: str, pods: Sequence[str]) -> TopState:
    if not pods:
        return state
    at = pods.index(_selected(state, pods)) + _steps(state.room)[key]
    at = min(max(at, 0), len(pods) - 1)
    # the first place is kept, not the pod that happens to be there
    return state._replace(selected=pods[at] if at else "")


def _selected(state: TopState, pods: Sequence[str]) -> str:
    """Return the selected pod; the first if it is gone or filtered out."""
    if state.selected in pods:
        return state.selected
    return pods[0] if pods else ""


def draw_list(
    state: TopState,
    usage: NodeUsage,
    summary: NodeSummary,
    title: str,
    display: Display,
    height: int,
) -> Frame:
    """Return the screen with the list of pods."""
    shown = select(usage, state)
    width = display.width or 0
    head = [shorten_end(title, width), *usage_table.head(shown, summary, display), ""]
    pod = _selected(state, [each.name for each in shown.pods])
    (_, titles), *rows = usage_table.rows(shown, display, plain=pod)
    if not shown.pods:
        rows.append(
            ("", f"no pod contains '{printable(state.pattern)}'" if usage.pods else "no pods")
        )
    # the numbers of the node are of less use than one row of the list
    head = head[: max(1, height - 3)]
    room = max(1, height - len(head) - 2)
    offset = _scroll(state.offset, [name for name, _ in rows], pod, room)
    lines = [line for _, line in rows[offset : offset + room]]
    marked = next((i for i, (name, _) in enumerate(rows) if name == pod and pod), None)
    padding = [""] * (room - len(lines))
    foot = _foot(state, _position(offset, len(lines), len(rows)), display)
    return Frame(
        lines=[*head, titles, *lines, *padding, foot],
        marked=None if marked is None else len(head) + 1 + marked - offset,
        state=state._replace(offset=offset, room=room),
    )


def _scroll(offset: int, names: Sequence[str], pod: str, room: int) -> int:
    """Return the first row to show, such that the rows of a pod are visible."""
    offset = min(offset, max(0, len(names) - room))
    at = [index for index, name in enumerate(names) if name == pod and pod]
    if not at:
        return offset
    first, last = at[0], at[-1]
    if not any(names[:first]):
        first = 0  # with the node and its slices above the first pod
    offset = max(offset, min(last - room + 1, at[0]))
    return min(offset, first)


def _position(offset: int, count: int, total: int) -> str:
    return f"{offset + 1}-{offset + count} of {total} rows" if count < total else ""


def _foot(state: TopState, position: str, display: Display) -> str:
    """Return the last line: the pattern that is typed, the position, and as many keys as fit."""
    width = display.width or 0
    keys: Sequence[str]
    if state.is_typing:
        first, keys = f"/{printable(state.pattern)}▏", _FILTER_HELP
    else:
        first, keys = position, _PAGE_HELP if state.opened else _LIST_HELP
    parts = [first] if first else []
    for key in keys:
        if width_of("  ".join([*parts, key])) > width:
            break
        parts.append(key)
    return display.paint(shorten_end("  ".join(parts), width), Role.DIM)


def draw_page(state: TopState, page: Sequence[str], display: Display, height: int) -> Frame:
    """Return the screen with the page of a pod."""
    room = max(1, height - 1)
    offset = min(state.page_offset, max(0, len(page) - room))
    lines = page[offset : offset + room]
    foot = _foot(state, _position(offset, len(lines), len(page)), display)
    padding = [""] * (room - len(lines))
    state = state._replace(page_offset=offset, room=room)
    return Frame(lines=[*lines, *padding, foot], state=state)


def draw_help(state: TopState, display: Display, height: int) -> Frame:
    """Return the screen with the keys."""
    width = display.width or 0
    lines = [shorten_end(line, width) for line in _HELP]
    foot = display.paint(shorten_end("any key: back", width), Role.DIM)
    room = max(0, height - 3)
    title = display.paint("Keys", Role.HEADING)
    return Frame(lines=[title, "", *lines[:room], foot], state=state)


def format_title(state: TopState, usage: NodeUsage, at: str, interval_sec: float) -> str:
    """Return the first line: `12:00:00  3 of 63 pods by cpu, every 2 s, filter: web`."""
    count, total = len(select(usage, state).pods), len(usage.pods)
    pods = f"{count} of {total} pods" if state.pattern else f"{total} pods"
    title = f"{at}  {pods} by {state.sort}, every {interval_sec:g} s"
    return f"{title}, filter: {printable(state.pattern)}" if state.pattern else title
