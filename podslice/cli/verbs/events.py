"""`podslice events`."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from podslice.cli import host, interrupts
from podslice.cli.arguments import DONE, Names, Namespace, Output, lines_option, since_option
from podslice.cli.output import OutputFormat, display_on, emit, note, write
from podslice.cli.pods import keys_named, unknown_pods
from podslice.cli.report import document
from podslice.cli.views.layout import Column, Shorten, blocks, table
from podslice.cli.views.style import Cell, Display, Role, Styled
from podslice.errors import HostError, printable
from podslice.kernel.proc import find_manager
from podslice.model.quantity import format_age
from podslice.model.unit import Manager
from podslice.store.store import Store
from podslice.systemd import journal
from podslice.systemd.journal import Entry, Query

_FOLLOWED = 10
"""The number of past events before new ones, as with journalctl and tail."""
_SHOWN = 50
"""The number of lines without an option."""
_READ = 2000
"""The number of events that are read for so many lines: one that repeats is a single line."""
_NONE = "no events; podslice-agent.service logs them, and verbs that change something"
_COLUMNS = {
    False: (
        Column(title="TIME", width=14),
        Column(title="POD", min_width=10, width=20, shorten=Shorten.MIDDLE),
        Column(title="MESSAGE", min_width=24),
    ),
    True: (
        Column(title="TIME", width=29),
        Column(title="LEVEL", width=7),
        Column(title="KIND", width=20),
        Column(title="POD", width=24),
        Column(title="UNIT", width=40),
        Column(title="MESSAGE", min_width=24, shorten=Shorten.FOLD),
    ),
}
_ROLES = {"error": Role.ERROR, "warning": Role.WARNING}
_ANY_WIDTH = 1000
_COMPARED = 200
"""Objects of earlier events, from which the next one looks different."""
_NUMBER = re.compile(r"\d+(\.\d+)?")

Since = Annotated[str | None, since_option("events")]
Lines = Annotated[int | None, lines_option("events")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Wait for further events, until Ctrl-C.")
]
Every = Annotated[bool, typer.Option("--all", help="Not only the latest 50.")]
User = Annotated[bool, typer.Option("--user", help="The events of the user manager.")]


@dataclass(frozen=True, kw_only=True)
class EventEntry(Entry):
    """An event, the last one if it happened to the same object several times."""

    count: int = 1
    first_time_usec: int | None = None
    """The time of the first one, where there are several."""


@dataclass(frozen=True, kw_only=True)
class EventsReport:
    """The events, by the time of the last one of each."""

    events: tuple[EventEntry, ...]


def events(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    pods: Names = None,
    since: Since = None,
    lines: Lines = None,
    every: Every = False,  # noqa: FBT002
    follow: Follow = False,  # noqa: FBT002
    namespace: Namespace = None,
    user: User = False,  # noqa: FBT002
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice events`.

    They are messages in the journal; journalctl -x adds an explanation to each. The same event
    of the same object is one line, with the number of times.

    Examples:
        podslice events web --since 1h
        podslice events --follow
    """
    manager = find_manager(user=user)
    known = _known_pods(manager)
    keys = keys_named(pods or (), namespace, known)
    is_limited = lines is None and since is None and not every
    if is_limited:
        lines = _FOLLOWED if follow else _SHOWN
    most = lines if follow or lines is None else max(lines, _READ)
    entries = journal.read_events(
        Query(pods=keys, since=since, lines=most, follow=follow, manager=manager),
        reader=_stdout() if follow else None,
    )
    if follow:
        return _follow(entries, output)
    read = tuple(entries)
    # a pod that exists, or has existed
    known |= {each.pod for each in read if each.pod}
    if missing := [key for key in keys if key not in known]:
        raise unknown_pods(missing, known, "no such pod, and no events about it")
    found = aggregate(read)
    report = EventsReport(events=found if lines is None else found[len(found) - lines :])
    emit(
        output,
        document=lambda: document(report),
        lines=lambda display: _lines(report.events, display) if read else [_NONE],
        names=lambda: _names(report.events),
    )
    if is_limited and (len(found) > _SHOWN or len(read) == _READ) and output.has_lines:
        note(f"these are the latest {_SHOWN} events; to show all: podslice events --all")
    return DONE


def _known_pods(manager: Manager) -> set[str]:
    """Return the applied and the evicted pods; none if the records cannot be read."""
    with suppress(HostError):
        return host.keys_in(Store(host.runtime_directory(manager)))
    return set()


def aggregate(entries: Iterable[Entry]) -> tuple[EventEntry, ...]:
    """Return each event once, with the last message, by the time of the last one.

    Events are the same if they differ in their time and in numbers of their message only.
    """
    found: dict[tuple[object, ...], EventEntry] = {}
    for each in entries:
        same = (each.kind, each.pod, each.unit, _NUMBER.sub("0", each.message))
        earlier = found.pop(same, None)
        made = EventEntry(**asdict(each))
        if earlier is not None:
            first = earlier.first_time_usec or earlier.time_usec
            made = replace(made, count=earlier.count + 1, first_time_usec=first)
        found[same] = made
    return tuple(found.values())


def _lines(entries: Sequence[EventEntry], display: Display) -> Iterator[str]:
    columns = [each._replace(width=0) for each in _COLUMNS[display.wide]]
    return table(columns, (_cells(each, wide=display.wide) for each in entries), display)


def _stdout() -> int | None:
    """Return the descriptor of standard output."""
    try:
        return sys.stdout.fileno()
    except (OSError, ValueError):
        return None


def _follow(entries: Iterable[Entry], output: OutputFormat) -> int:
    """Print each event as it arrives; as JSON and YAML each is a document.

    Ctrl-C, and a reader that closes the pipe, are the intended ends.
    """
    wide = output is OutputFormat.WIDE
    try:
        if output.has_lines:
            display = display_on(sys.stdout, wide=wide)
            write(table(_columns_to_come(display), (), display))
        sys.stdout.flush()
        objects: dict[tuple[str | None, str | None], EventEntry] = {}
        for entry in (EventEntry(**asdict(each)) for each in entries):
            _print(entry, output, objects.values())
            objects[entry.pod, entry.unit] = entry
            if len(objects) > _COMPARED:
                del objects[next(iter(objects))]
            sys.stdout.flush()
    except BrokenPipeError:
        return DONE
    except interrupts.Interrupted as error:
        if error.number != signal.SIGINT:
            raise
        write([""])  # after the ^C
    return DONE


def _print(entry: EventEntry, output: OutputFormat, others: Iterable[EventEntry]) -> None:
    made = document(EventsReport(events=(entry,)))
    if output is OutputFormat.JSON:
        write([json.dumps(made, ensure_ascii=False)])  # on one line, for programs
        return
    if output is OutputFormat.YAML:
        write(["---"])
    emit(
        output,
        document=lambda: made,
        lines=lambda display: _row_to_come(entry, others, display),
        names=lambda: _names([entry]),
    )


def _columns_to_come(display: Display) -> list[Column]:
    """Return columns of fixed widths, since later rows are not known yet."""
    *columns, message = _COLUMNS[display.wide]
    # the message takes all room that is left, whatever its length
    return [*columns, message._replace(width=_ANY_WIDTH)]


def _row_to_come(
    entry: EventEntry, others: Iterable[EventEntry], display: Display
) -> Sequence[str]:
    """Return the row of an event; its object looks different from those of others."""
    shortened = others if display.width is not None else ()
    empty = (replace(each, message="") for each in shortened)
    rows = [_cells(each, wide=display.wide) for each in (*empty, entry)]
    *_, lines = blocks(_columns_to_come(display), rows, display, has_head=False)
    return lines


def _names(entries: Iterable[EventEntry]) -> Iterator[str]:
    """Yield the pods of events, each once."""
    return map(printable, dict.fromkeys(each.pod for each in entries if each.pod))


def _cells(entry: EventEntry, *, wide: bool) -> Sequence[Cell]:
    at = datetime.fromtimestamp(entry.time_usec / 1e6, UTC).astimezone()
    role = _ROLES.get(entry.level)
    text = f"{entry.message}{_times(entry)}"
    if wide:
        when = at.isoformat(timespec="milliseconds")
        kind = entry.kind if role is None else Styled(entry.kind, role)
        return when, entry.level, kind, entry.pod or "-", entry.unit or "-", text
    if entry.pod and entry.unit:
        # the line is about the pod: the name of its slice would fill it
        text = text.replace(f" {entry.unit} ({entry.pod})", "")
    message = text if role is None else Styled(text, role)
    return f"{at:%m-%d %H:%M:%S}", entry.pod or entry.unit or "-", message


def _times(entry: EventEntry) -> str:
    """Return how often an event happened: ` (5 times in 2 min)`."""
    if entry.first_time_usec is None:
        return ""
    age = format_age((entry.time_usec - entry.first_time_usec) // 1_000_000)
    return f" ({entry.count} times in {age})"
