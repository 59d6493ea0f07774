"""The options of `podslice agent` that follow a kubelet, and the agent that does."""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import typer
from prometheus_client import Metric

from podslice.agent.context import Counters, EventLog, NodeStatus, TimedClient
from podslice.agent.endpoints import metrics
from podslice.agent.endpoints.http import Response, Route
from podslice.agent.endpoints.metrics import (
    document_response,
    format_family,
    health_response,
    make_family,
    number_families,
)
from podslice.agent.service_process import ServiceProcess, prepare_memory
from podslice.cli.arguments import DONE
from podslice.cli.host import level_directory, load_node
from podslice.cli.options import Planning, declared, parameter
from podslice.errors import HostError
from podslice.features.kubelet.api import KubeletApi
from podslice.features.kubelet.config import read_version
from podslice.features.kubelet.levels import LevelRecord, LevelSlices, PodLevels
from podslice.features.kubelet.model import KubeletNode, KubeletSettings, LeftReason, LevelPlan
from podslice.features.kubelet.pods import parse_pod_list
from podslice.features.kubelet.source import (
    POD_LIST,
    KubeletSource,
    check_options,
    connect,
    kubelet_options,
    read_kubelet_settings,
)
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.event import Kind
from podslice.model.node import Node
from podslice.model.properties import PROPERTIES
from podslice.model.unit import UnitName
from podslice.store.files import release_lock, try_lock
from podslice.systemd import bus
from podslice.systemd.client import Client, OnChange
from podslice.systemd.journal import Journal
from podslice.systemd.notify import Notifier, listen_fds

_Agent = Callable[[Planning, Path | None], int]
_RESTORE = parameter(
    "restore",
    typer.Option("--restore", help="Set the values of the kubelet again before the exit."),
    bool,
)


def with_kubelet(verb: _Agent) -> Callable[..., int]:
    """Return the verb `agent` with the options of a kubelet; with them it applies pod levels only."""

    def agent(
        planning: Planning,
        socket: Path | None,
        *,
        source: KubeletSource,
        restore: bool,
    ) -> int:
        # an invalid configuration is an error before anything is opened
        if not check_options(source, planning.config, planning.manager, restores=restore):
            return verb(planning, socket)
        prepare_memory()
        run_kubelet_agent(source, planning, socket, restores=restore)
        return DONE

    own = inspect.signature(verb, eval_str=True).parameters.values()
    source = inspect.Parameter("source", inspect.Parameter.KEYWORD_ONLY)
    return kubelet_options(declared(agent, verb, [*own, source, _RESTORE]))


SETTINGS_SEC = 60.0
"""How long the configuration and the version of the kubelet, and the credentials, are used."""


class FollowedKubelet:
    """A kubelet whose configuration may change with each of its restarts."""

    def __init__(
        self, source: KubeletSource, url: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`now` is a monotonic clock."""
        self._source = source
        self._url = url
        self._now = now
        self._known: tuple[float, KubeletApi, KubeletSettings, Node] | None = None

    def check(self) -> None:
        """Check the options, without a connection.

        Raises:
            InputError: the address, the version or a file is invalid.
            HostError: the credentials are not valid.
        """
        connect(self._source, self._url)
        if self._source.kubelet_version is not None:
            read_version(self._source.kubelet_version)

    def refresh(self) -> None:
        """Read everything again next time."""
        self._known = None

    def read(self) -> KubeletNode:
        """Return the pods and the configuration; after a failure everything is read again.

        Raises:
            HostError: the kubelet does not reply as expected.
            InputError: a file or a document is invalid.
        """
        # forgotten until the pods are read, too: a kubelet that fails may have been restarted
        known, self._known = self._known, None
        if known is None or self._now() - known[0] >= SETTINGS_SEC:
            known = self._read_settings()
        _, api, settings, node = known
        name = f"{self._url}{POD_LIST}"
        pods = parse_pod_list(api.get(POD_LIST), name, keeps_invalid=True)
        self._known = known
        return KubeletNode(pods=pods, settings=settings, node=node)

    def _read_settings(self) -> tuple[float, KubeletApi, KubeletSettings, Node]:
        at = self._now()
        api = connect(self._source, self._url)
        settings = read_kubelet_settings(self._source, self._url, api, assumes_version=False)
        return at, api, settings, load_node(settings.config)


def run_kubelet_agent(
    source: KubeletSource, planning: Planning, socket: Path | None, *, restores: bool
) -> None:
    """Run the agent that applies pod levels on the slices of a kubelet.

    Raises:
        InputError: the address or a file of the options is invalid.
        HostError: another agent runs, or a socket cannot be opened.
    """
    kubelet = FollowedKubelet(source, source.kubelet or "")
    kubelet.check()
    environment = dict(os.environ)
    directory = level_directory(planning.manager)
    setup = KubeletSetup(
        read=kubelet.read,
        refresh=kubelet.refresh,
        connect=lambda on_change: bus.Bus(planning.manager, on_change=on_change),
        config=planning.config,
        directory=directory,
        journal=Journal(manager=planning.manager),
        notifier=Notifier(environment),
        cgroups=CgroupFs(),
        sockets=listen_fds(environment),
        socket_path=socket or directory / "agent.sock",
        restores=restores,
    )

    async def serve() -> None:
        await KubeletDaemon(setup).run()

    asyncio.run(serve())


QUIET_SEC = 1.0
"""Delay before a round after a signal: a pod and its containers start together."""

OVERDUE_SEC = 120.0
"""A read ends before: the kubelet has 30 s for each of three documents, and they are parsed."""


class KubeletSetup(NamedTuple):
    """The arguments of the agent."""

    read: Callable[[], KubeletNode]
    """Reads the kubelet; raises `HostError` or `InputError`. It may take seconds."""
    refresh: Callable[[], None]
    """Has the next reading ask for the configuration of the kubelet again."""
    connect: Callable[[OnChange], Client]
    """Returns a client that reports changes."""
    config: Config
    directory: Path
    """Of the record of what was set, and of the lock of all such agents."""
    journal: Journal
    notifier: Notifier
    cgroups: CgroupFs
    sockets: Sequence[socket.socket] = ()
    """The sockets that systemd passed."""
    socket_path: Path | None = None
    """The socket file to serve without those."""
    restores: bool = False
    """Whether to remove what was set before the agent exits."""


class KubeletDaemon:
    """The agent process."""

    def __init__(self, setup: KubeletSetup) -> None:
        """Connect nothing yet."""
        self._setup = setup
        self._counters = Counters()
        self._events = EventLog(setup.journal)
        self._status = NodeStatus(self._events, lambda: None)
        self._client = TimedClient(setup.connect(self._on_signal), self._counters)
        self._levels = PodLevels(
            LevelSlices(self._client, setup.cgroups),
            setup.read,
            LevelRecord(setup.directory),
            events=self._events,
            status=self._status,
            counters=self._counters,
        )
        self._process = ServiceProcess(
            setup.notifier, self._events, lambda: setup.config.sync_period_usec / 1e6
        )

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        Raises:
            HostError: another agent runs, or a socket cannot be opened.
        """
        setup, process = self._setup, self._process
        held = try_lock(setup.directory)
        if held is None:
            raise HostError(
                "an agent that applies pod levels is already running on this host, perhaps in a"
                f" container; stop it first; to find it: fuser -v {setup.directory}/lock"
            )
        async with AsyncExitStack() as stack:
            stack.callback(
                lambda: release_lock(setup.directory, held, is_needed=bool(self._levels.plan.own))
            )
            await process.start(stack, self._client, self._on_hangup)
            await process.serve(
                stack,
                level_routes(self.snapshot),
                sockets=setup.sockets,
                path=setup.socket_path,
                listen=setup.config.listen,
            )
            self._events.report(
                Kind.AGENT_STARTED, "the agent applies pod levels on the slices of a kubelet"
            )
            await process.run(self._run_round)
            if setup.restores:
                await self._levels.remove()
            count = len(self._levels.plan.own)
            remaining = f"values remain on {count} slice{'' if count == 1 else 's'}"
            text = f"the agent stops; {remaining if count else 'no values remain'}"
            self._events.report(Kind.AGENT_STOPPED, text)

    async def _run_round(self) -> bool:
        """Run a round; notify the service manager of what is applied, and of the first problem."""
        is_settled = await self._levels.run_round()
        plan, problems = self._levels.plan, self._status.problems
        left = len({each.pod for each in plan.left})
        text = f"pod levels: {len(plan.own)} applied, {left} left alone"
        self._process.notify(f"{text}; {problems[0]}" if problems else text)
        return is_settled

    def snapshot(self) -> LevelSnapshot:
        """Return the state that the endpoints publish."""
        reading_sec = self._levels.reading_sec
        overdue = f"the kubelet: a read has not ended after {reading_sec:.0f} s"
        return LevelSnapshot(
            plan=self._levels.plan,
            counters=self._counters,
            events=self._events.journal.counts,
            failures=tuple(map(str, self._status.failures)),
            overdue=overdue if reading_sec >= OVERDUE_SEC else "",
        )

    # What requests a round.

    def _on_hangup(self) -> None:
        self._setup.refresh()
        self._process.scheduler.request()

    def _on_signal(self, name: UnitName | None) -> None:
        """Run a round after a change of a slice of the kubelet; None: of any unit."""
        if name is None or self._levels.concerns(name):
            self._process.scheduler.request(QUIET_SEC)


_KINDS = (
    *(Kind.AGENT_STARTED, Kind.AGENT_STOPPED, Kind.AGENT_FAILED, Kind.AGENT_NOTED),
    *(Kind.LEVEL_APPLIED, Kind.LEVEL_REMOVED, Kind.LEVEL_LEFT),
)
"""The kinds of events of this agent."""


class LevelSnapshot(NamedTuple):
    """The state that the endpoints publish."""

    plan: LevelPlan
    counters: Counters
    events: Mapping[Kind, int]
    failures: tuple[str, ...] = ()
    """Sentences on what has failed."""
    overdue: str = ""
    """A sentence on a read of the kubelet that should have ended; empty otherwise."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what keeps the agent from its work; without any, it is healthy."""
        return (*self.failures, self.overdue) if self.overdue else self.failures


def level_routes(snapshot: Callable[[], LevelSnapshot]) -> Mapping[str, Route]:
    """Return the routes by path; `snapshot` returns the current state."""

    async def health() -> Response:
        return health_response(snapshot().problems)

    async def alive() -> Response:
        # a restart does not help against anything else
        overdue = snapshot().overdue
        return health_response((overdue,) if overdue else ())

    async def scrape() -> Response:
        body = map(format_family, collect(snapshot()))
        return Response(body=body, content_type=metrics.CONTENT_TYPE)

    async def levels() -> Response:
        return document_response(document(snapshot().plan), fresh_sec=0.0)

    return {"/healthz": health, "/livez": alive, "/metrics": scrape, "/pod-levels": levels}


def document(plan: LevelPlan) -> dict[str, object]:
    """Return the pods with values of podslice, and what is left alone, with the reasons."""
    return {
        "applied": [
            {"pod": plan.pods.get(unit), "unit": unit, "properties": dict(values)}
            for unit, values in sorted(plan.own.items())
        ],
        "left": [
            {
                "pod": each.pod,
                "unit": each.unit,
                "property": each.property,
                "reason": each.reason.value,
                "message": each.message,
            }
            for each in plan.left
        ],
    }


def collect(snapshot: LevelSnapshot) -> Iterator[Metric]:
    """Yield all metric families."""
    plan = snapshot.plan
    left = Counter(each.reason for each in plan.left)
    text = "Pods of the kubelet that have values of podslice"
    yield from number_families(("podslice_pod_levels_applied", text, len(plan.own)))
    yield make_family(
        "podslice_pod_level_value",
        "Value that podslice has set on the slice of a pod, in the unit of systemd's property",
        ("pod", "property"),
        (
            ((plan.pods.get(unit, ""), PROPERTIES[name].key), int(value))
            for unit, values in sorted(plan.own.items())
            for name, value in values.items()
        ),
    )
    yield make_family(
        "podslice_pod_levels_left",
        "Pod levels, or values of them, that are not applied",
        ("reason",),
        (((reason.value,), left[reason]) for reason in LeftReason),
    )
    yield from metrics.collect_agent(
        snapshot.counters,
        snapshot.events,
        _KINDS,
        len(snapshot.problems),
        rounds="the kubelet is read",
    )
