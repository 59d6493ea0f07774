"""`podslice top`: what it measures, what a key changes, and the lines to draw."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import typer

from podslice.cli import interrupts, overview, terminal
from podslice.cli.arguments import DONE, Names, OnlyNamespace, OnlyProblems, Output, Sort
from podslice.cli.extensions import recorded_usage
from podslice.cli.host import tolerate
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, display_on_terminal, emit
from podslice.cli.overview import PodPage, read_page
from podslice.cli.pods import PodFilter, pod_filter
from podslice.cli.report import Document, configuration_entry, document
from podslice.cli.session import in_world
from podslice.cli.terminal import Key
from podslice.cli.views import status_view, usage_table
from podslice.cli.views.layout import fold
from podslice.cli.views.pod_page import pod_page
from podslice.cli.views.style import Display, Role
from podslice.cli.views.text_width import shorten_end, width_of
from podslice.cli.views.usage_table import NODE, NodeSummary, NodeUsage
from podslice.errors import InputError, PodsliceError, invalid, printable
from podslice.inputs.options.values import read_duration
from podslice.kernel.proc import read_process
from podslice.model.properties import ALLOWED_CPUS, CPU_QUOTA, MEMORY_MAX
from podslice.model.resources import CPU
from podslice.model.unit import INFINITY, UnitName
from podslice.reconcile.assess import Assessment, assess
from podslice.reconcile.world import LiveWorld
from podslice.systemd.caching_client import CachingClient
from podslice.usage import stats
from podslice.usage.health import problematic_pods
from podslice.usage.location import PodService, observe_services
from podslice.usage.stats import NodeStats

_INTERVALS_SEC = (0.1, 3600)


@configured
def top(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: Names = None,
    namespace: OnlyNamespace = None,
    problems: OnlyProblems = False,  # noqa: FBT002
    sort: Annotated[Sort, typer.Option("--sort", help="Sort pods by this column.")] = Sort.CPU,
    interval: Annotated[
        str, typer.Option("--interval", metavar="DURATION", help="Time between two measurements.")
    ] = "2s",
    once: Annotated[  # noqa: FBT002
        bool, typer.Option("--once", "-b", help="Print the usage once, also on a terminal.")
    ] = False,
    follow: Annotated[  # noqa: FBT002
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="With -o json: print each measurement as a line, until Ctrl-C.",
        ),
    ] = False,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice top`.

    Without a terminal the usage is printed once. Rates are averages between two measurements.

    Examples:
        podslice top
        podslice top --once --sort memory -n shop
    """
    interval_sec = _interval_sec(interval)
    shown = pod_filter(pod, namespace, only_problems=problems)
    planning = tolerate(planning)
    if follow:
        return _follow(planning, shown, sort, interval_sec, output)
    wide = output is OutputFormat.WIDE
    if not once and output.has_lines and terminal.is_interactive():
        gc.enable()  # it may run for days
        return in_world(
            planning, lambda world: LivePage(world, shown, sort, interval_sec, wide=wide).run()
        )
    return _print_once(planning, shown, sort, interval_sec, output)


def _print_once(
    planning: Planning, pods: PodFilter, sort: Sort, interval_sec: float, output: OutputFormat
) -> int:
    usage, summary = in_world(planning, lambda world: observe_interval(world, pods, interval_sec))
    shown = usage.sorted(sort)

    def lines(display: Display) -> list[str]:
        head = usage_table.head(shown, summary, display)
        return [*head, "", *usage_table.table(shown, display)]

    emit(
        output,
        document=lambda: _document(planning, shown, summary),
        lines=lines,
        names=lambda: [row.name for row in shown.pods],
    )
    return DONE


def _document(planning: Planning, usage: NodeUsage, summary: NodeSummary) -> Document:
    return document(usage_table.report(usage, summary, configuration_entry(planning.origin)))


def _follow(
    planning: Planning, pods: PodFilter, sort: Sort, interval_sec: float, output: OutputFormat
) -> int:
    """Print a document for each measurement, until a signal or the end of the reader.

    Raises:
        InputError: the format is not JSON, or a pod is not applied.
    """
    if output is not OutputFormat.JSON:
        raise invalid("it prints JSON", "add -o json", where="--follow")
    gc.enable()  # it may run for days

    async def work(world: LiveWorld) -> int:
        observer, pause_sec = UsageObserver(world, pods), min(_FIRST_SEC, interval_sec)
        while True:
            usage, summary = await observer.observe()
            made = _document(planning, usage.sorted(sort), summary)
            try:
                sys.stdout.write(json.dumps(made, ensure_ascii=False) + "\n")
                sys.stdout.flush()
            except BrokenPipeError:
                return DONE
            await asyncio.sleep(pause_sec)
            pause_sec = interval_sec

    try:
        return in_world(planning, work)
    except interrupts.Interrupted as error:
        if error.number != signal.SIGINT:
            raise
        return DONE


def _interval_sec(text: str) -> float:
    least, most = _INTERVALS_SEC
    try:
        seconds = read_duration(text) / 1e6
        if least <= seconds <= most:
            return seconds
        message, hint = f"{text} is not between {least:g}s and 1h", "write 2s, for example"
    except InputError as error:
        raise InputError(each.within("--interval") for each in error.problems) from error
    raise invalid(message, hint, where="--interval")


_FIRST_SEC = 0.5
"""The pause before the second measurement, which gives the first rates."""
_QUIT = "q"


class LivePage:
    """The full-screen page, from start to end."""

    def __init__(
        self, world: LiveWorld, shown: PodFilter, sort: Sort, interval_sec: float, *, wide: bool
    ) -> None:
        # notes would overwrite the page
        self._world = replace(world, on_note=lambda _: None)
        self._observer = UsageObserver(self._world, shown)
        self._state = TopState(sort=sort, wide=wide)
        self._interval_sec = interval_sec
        self._observed: ObservedUsage | None = None
        self._page: PodPage | None = None
        self._has_opened = asyncio.Event()
        self._screen = terminal.Screen(self._on_key, self._draw)

    async def run(self) -> int:
        """Show the page until it is closed, and return the exit code.

        Raises:
            Interrupted: SIGTERM has ended it; Ctrl-C is its intended end.
        """
        with self._screen.full_screen():
            self._draw()
            tasks = [asyncio.create_task(each) for each in (self._refresh(), self._refresh_page())]
            ends: set[asyncio.Future[Any]] = {*tasks, self._screen.ended_by}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        number = self._screen.ended_by.result()
        if number == signal.SIGTERM:
            raise interrupts.Interrupted(number)
        return DONE if number == signal.SIGINT else 128 + number

    async def _refresh(self) -> None:
        pause_sec = min(_FIRST_SEC, self._interval_sec)
        while True:
            self._observed = await self._observer.observe()
            self._draw()
            await asyncio.sleep(pause_sec)
            pause_sec = self._interval_sec

    async def _refresh_page(self) -> None:
        """Observe the pod whose page is open."""
        while True:
            await self._has_opened.wait()
            self._has_opened.clear()
            while pod := self._state.opened:
                self._page = await read_page(self._world, pod)
                self._draw()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval_sec):
                        await self._has_opened.wait()
                self._has_opened.clear()

    def _on_key(self, key: str) -> None:
        if key == _QUIT and not self._state.is_typing:
            self._screen.end(signal.SIGINT)
            return
        pods: Sequence[str] = ()
        if self._observed is not None:
            usage, _ = self._observed
            pods = [each.name for each in select_pods(usage, self._state).pods]
        before = self._state.opened
        self._state = press(self._state, key, pods)
        if self._state.opened != before:
            self._page = None
            self._has_opened.set()
        self._draw()

    def _draw(self) -> None:
        width, height = self._screen.size
        frame = self._frame(display_on_terminal(width, wide=self._state.wide), height)
        self._state = frame.state
        self._screen.draw(frame.lines, marked=frame.marked)

    def _frame(self, display: Display, height: int) -> Frame:
        if self._observed is None:
            return Frame(lines=["loading …"], state=self._state)
        if self._state.shows_help:
            return draw_help(self._state, display, height)
        usage, summary = self._observed
        if self._state.opened:
            return draw_page(self._state, self._page_lines(display), display, height)
        at = datetime.fromtimestamp(usage.stats.time_usec / 1e6, UTC).astimezone()
        title = format_title(self._state, usage, f"{at:%H:%M:%S}", self._interval_sec)
        return draw_list(self._state, usage, summary, title, display, height)

    def _page_lines(self, display: Display) -> list[str]:
        page, pod = self._page, self._state.opened
        if page is None or page.pod != pod:
            return ["loading …"]
        if page.detail is None:
            text = page.error or f"pod {pod} is no longer applied"
            return list(fold(text, display))
        return [*pod_page(page.detail, display), *status_view.problems(page.problems, display)]


_FORGET_SEC = 10.0
"""The maximal age of limits and problems; units are listed each time."""


class ObservedUsage(NamedTuple):
    """The usage between two measurements, with a summary of the node."""

    usage: NodeUsage
    summary: NodeSummary


class UsageObserver:
    """Observes the usage of a world repeatedly, and keeps the last measurement."""

    def __init__(self, world: LiveWorld, shown: PodFilter) -> None:
        """`shown` selects pods; the node and its slices are always measured as a whole."""
        self._shown = shown
        self._client = CachingClient(world.client, world.cgroups)
        self._world = replace(world, client=self._client)
        self._recorded = recorded_usage(world)
        self._assessment: Assessment | None = None
        self._services: tuple[PodService, ...] = ()
        self._before: NodeStats | None = None
        self._forget_at = 0.0
        self._affected: frozenset[str] = frozenset()
        """The pods with problems, where only these are shown."""

    async def observe(self) -> ObservedUsage:
        """Return the usage since the last measurement.

        Raises:
            InputError: a requested pod is not applied.
            PodsliceError: systemd has not answered yet, or /proc cannot be read.
        """
        problems = []
        now = asyncio.get_running_loop().time()
        is_due = now >= self._forget_at
        if is_due:
            self._client.forget(None)
            self._forget_at = now + _FORGET_SEC
        try:
            assessment = self._assessment = await assess(self._world)
            keys = [pod.key for pod in assessment.current]
            self._services = await observe_services(self._world, keys)
            if is_due and self._shown.only_problems:
                self._affected = problematic_pods((await overview.observe(self._world)).problems)
        except PodsliceError as error:
            if self._assessment is None:
                raise
            # the units have most likely not changed, and usage is needed most under such pressure
            problems.append(f"units as of the last update: {error}")
            assessment = self._assessment
        if not self._before:
            self._shown = self._shown.resolve({pod.key for pod in assessment.current})
        found = self._measure(assessment, self._services)
        before, self._before = self._before or found, found
        if self._world.origin.problems:
            problems.append("the configuration files are invalid, see: podslice status")
        keys = [pod.decision.pod.key for pod in found.pods]
        recorded = {key: self._recorded(key) for key in keys if self._is_shown(key)}
        units = assessment.observed.units.items()
        allowed = {name: str(unit.properties.get(ALLOWED_CPUS, "")) for name, unit in units}
        cpus_milli = assessment.desired.allocation.capacity.get(CPU, 0)
        cpu_limits = {NODE: cpus_milli} | {
            name: quota // 1000 for name, quota in _limits(assessment, CPU_QUOTA).items()
        }
        usage = usage_table.measure(
            found,
            before,
            _limits(assessment, MEMORY_MAX),
            recorded,
            cpu_limits=cpu_limits,
            allowed_cpus=allowed,
        )
        pods = tuple(pod for pod in usage.pods if self._is_shown(pod.name))
        summary = summarize_node(assessment, problems)
        return ObservedUsage(usage=usage._replace(pods=pods), summary=summary)

    def _is_shown(self, pod: str) -> bool:
        is_affected = not self._shown.only_problems or pod in self._affected
        return is_affected and self._shown.selects(pod)

    def _measure(self, assessment: Assessment, services: Sequence[PodService]) -> NodeStats:
        agent = read_process(assessment.agent.pid) if assessment.agent else None
        return stats.read_stats(
            assessment.desired.pods,
            assessment.observed,
            self._world.config,
            cgroups=self._world.cgroups,
            agent_group=agent.control_group if agent else "",
            services=services,
        )


def _limits(assessment: Assessment, name: str) -> dict[UnitName, int]:
    """Return the values of a property that systemd reports, by unit, without infinite ones."""
    return {
        unit: value
        for unit, observed in assessment.observed.units.items()
        if isinstance(value := observed.properties.get(name), int) and value < INFINITY
    }


def summarize_node(assessment: Assessment, problems: list[str]) -> NodeSummary:
    """Return the node's capacity, conditions and evicted pods, with these and the agent's problems."""
    if assessment.agent and (assessment.agent.problems or assessment.agent.failures):
        problems.append("the agent has problems, see: podslice status")
    return NodeSummary(
        cpus_milli=assessment.desired.allocation.capacity.get(CPU, 0),
        conditions=assessment.agent.conditions if assessment.agent else (),
        evicted=[each.pod for each in assessment.evicted],
        problems=problems,
    )


async def observe_interval(
    world: LiveWorld, shown: PodFilter, interval_sec: float
) -> ObservedUsage:
    """Return the usage during an interval that begins now.

    Raises:
        InputError, PodsliceError: as `UsageObserver.observe`.
    """
    observer = UsageObserver(world, shown)
    await observer.observe()
    await asyncio.sleep(interval_sec)
    return await observer.observe()


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
    "w              show containers, I/O, OOM kills and the QoS class",
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


def select_pods(usage: NodeUsage, state: TopState) -> NodeUsage:
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
    shown = select_pods(usage, state)
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
    count, total = len(select_pods(usage, state).pods), len(usage.pods)
    pods = f"{count} of {total} pods" if state.pattern else f"{total} pods"
    title = f"{at}  {pods} by {state.sort}, every {interval_sec:g} s"
    return f"{title}, filter: {printable(state.pattern)}" if state.pattern else title
