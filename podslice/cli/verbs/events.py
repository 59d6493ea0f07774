"""`podslice events`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, Names, Namespace, Output, lines_option, since_option
from podslice.cli.output import OutputFormat, display_on, emit, write
from podslice.cli.pods import key_of
from podslice.cli.views import documents
from podslice.cli.views.layout import Column, Shorten, blocks, table
from podslice.cli.views.style import Cell, Display, Role, Styled
from podslice.errors import printable
from podslice.kernel.proc import find_manager
from podslice.systemd import journal
from podslice.systemd.journal import Entry, Query

_FOLLOWED = 10
"""The number of past events before new ones, as with journalctl and tail."""
_NONE = "no events; podslice-agent.service logs them, and verbs that change something"
_MESSAGE = Column(title="MESSAGE", min_width=24, shorten=Shorten.FOLD)
_COLUMNS = {
    False: (
        Column(title="TIME", width=19),
        Column(title="KIND", drop=1, width=20),
        Column(title="OBJECT", min_width=10, width=24, shorten=Shorten.MIDDLE),
        _MESSAGE,
    ),
    True: (
        Column(title="TIME", width=29),
        Column(title="LEVEL", width=7),
        Column(title="KIND", width=20),
        Column(title="POD", width=24),
        Column(title="UNIT", width=40),
        _MESSAGE,
    ),
}
_ROLES = {"error": Role.ERROR, "warning": Role.WARNING}
_ANY_WIDTH = 1000
_COMPARED = 200
"""Objects of earlier events, from which the next one looks different."""

Since = Annotated[str | None, since_option("events")]
Lines = Annotated[int | None, lines_option("events")]
Follow = Annotated[
    bool,
    typer.Option("--follow", "-f", help="Show the last 10 events and wait for more, until Ctrl-C."),
]
User = Annotated[bool, typer.Option("--user", help="Show the events of the user manager.")]


def events(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    pods: Names = None,
    since: Since = None,
    lines: Lines = None,
    follow: Follow = False,  # noqa: FBT002
    namespace: Namespace = None,
    user: User = False,  # noqa: FBT002
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice events`.

    They are messages in the journal; journalctl -x adds an explanation to each.
    """
    if follow and lines is None and since is None:
        lines = _FOLLOWED
    keys = [key_of(name, namespace) for name in pods or ()]
    manager = find_manager(user=user)
    entries = journal.read_events(
        Query(pods=keys, since=since, lines=lines, follow=follow, manager=manager),
        reader=_stdout() if follow else None,
    )
    if follow:
        return _follow(entries, output)
    found = tuple(entries)
    emit(
        output,
        document=lambda: documents.document(events=[asdict(each) for each in found]),
        lines=lambda display: _lines(found, display) if found else [_NONE],
        names=lambda: _names(found),
    )
    return DONE


def _lines(entries: Sequence[Entry], display: Display) -> Iterator[str]:
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
        objects: dict[tuple[str | None, str | None], Entry] = {}
        for entry in entries:
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


def _print(entry: Entry, output: OutputFormat, others: Iterable[Entry]) -> None:
    made = documents.document(**asdict(entry))
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


def _row_to_come(entry: Entry, others: Iterable[Entry], display: Display) -> Sequence[str]:
    """Return the row of an event; its object looks different from those of others."""
    shortened = others if display.width is not None else ()
    empty = (replace(each, message="") for each in shortened)
    rows = [_cells(each, wide=display.wide) for each in (*empty, entry)]
    *_, lines = blocks(_columns_to_come(display), rows, display, has_head=False)
    return lines


def _names(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the pods of events."""
    return (printable(entry.pod) for entry in entries if entry.pod)


def _cells(entry: Entry, *, wide: bool) -> Sequence[Cell]:
    at = datetime.fromtimestamp(entry.time_usec / 1e6, UTC).astimezone()
    role = _ROLES.get(entry.level)
    kind = entry.kind if role is None else Styled(entry.kind, role)
    if wide:
        when = at.isoformat(timespec="milliseconds")
        return when, entry.level, kind, entry.pod or "-", entry.unit or "-", entry.message
    return f"{at:%Y-%m-%d %H:%M:%S}", kind, entry.pod or entry.unit or "-", entry.message
