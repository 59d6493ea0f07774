"""The node, its configuration and its records; with a service manager, a live world."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from podslice.errors import ForeignRoot, HostError, Problem
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.proc import find_kubelets
from podslice.model.config import Config, Origin, Source
from podslice.model.naming import Tree
from podslice.model.node import Node
from podslice.model.node_state import Foreign, Kubelet, Neighbour
from podslice.model.pod import Pod
from podslice.model.properties import CPU_WEIGHT, MEMORY_MAX
from podslice.model.unit import SYSTEM, Manager, ObservedUnit, UnitKind, control_group_of
from podslice.policy.exclusive import CpuStage
from podslice.policy.ownership import (
    CRI_SCOPES,
    beside_kubelet,
    check_claims,
    find_foreign,
    is_kubelets_root,
)
from podslice.store.store import Store
from podslice.systemd.client import Change, Client, ClientAround

_HOLDS_SEC = 1.0
"""How long a judgment is valid, so that the calls of one plan share it."""
_AT_ONCE = 100
"""Processes read between two pauses; each takes about 0.1 ms."""


class Guard:
    """Determines who owns the root, and caches that briefly."""

    def __init__(
        self, root: Path = Path("/"), *, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`root` is the host whose processes count; `now` is a monotonic clock."""
        self._root = root
        self._now = now
        self._judged: tuple[float, Foreign | None] | None = None
        self._kubelets: tuple[float, tuple[Kubelet, ...]] | None = None
        self._judging = asyncio.Lock()

    async def judge(
        self, tree: Tree, units: Iterable[ObservedUnit], pods: Collection[Pod], manager: Manager
    ) -> Foreign | None:
        """Return why podslice does not own the root, None where it does, by observed units."""
        kubelets = await self.kubelets() if is_kubelets_root(tree, manager) else ()
        foreign = find_foreign(tree, units, pods, kubelets, manager=manager)
        self._judged = (self._now(), foreign)
        return foreign

    async def kubelets(self) -> tuple[Kubelet, ...]:
        """Return the kubelets that run on the host."""
        if self._kubelets is None or self._now() - self._kubelets[0] >= _HOLDS_SEC:
            found = []
            for number, kubelet in enumerate(find_kubelets(self._root), 1):
                found += [kubelet] if kubelet else []
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._kubelets = (self._now(), tuple(found))
        return self._kubelets[1]

    async def claim(self, client: Client, tree: Tree, manager: Manager, store: Store) -> None:
        """Refuse changes where podslice does not own the root, which the client observes.

        Raises:
            ForeignRoot: it belongs to a kubelet.
        """
        # The concurrent steps of a plan wait for one judgment instead of each listing the units.
        async with self._judging:
            if self._judged is None or self._now() - self._judged[0] >= _HOLDS_SEC:
                units = await list_evidence(client, tree, manager)
                await self.judge(tree, units, recorded_pods(store), manager)
        if self._judged is not None and (foreign := self._judged[1]) is not None:
            raise ForeignRoot(str(foreign))


async def claims_beside_kubelet(
    guard: Guard, cgroups: CgroupFs, node: Node, config: Config, manager: Manager
) -> tuple[Problem, ...]:
    """Return a warning for each resource that both podslice and a running kubelet claim."""
    tree = Tree(cgroup_root=config.cgroup_root)
    if manager.is_user or is_kubelets_root(tree, manager) or not await guard.kubelets():
        return ()
    kubelets = cgroups.limits(control_group_of(Tree().root))
    own = cgroups.limits(control_group_of(beside_kubelet(tree)))
    neighbour = Neighbour(
        memory_max_bytes=_number(kubelets.get(MEMORY_MAX)),
        # the shares of cgroup v1 are other numbers
        cpu_weight=_number(kubelets.get(CPU_WEIGHT)) if cgroups.is_v2 else None,
        own_weight=_number(own.get(CPU_WEIGHT)) if cgroups.is_v2 else None,
    )
    return tuple(check_claims(tree, node, config, neighbour))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def scope_patterns(tree: Tree, manager: Manager) -> tuple[str, ...]:
    """Return the patterns of a kubelet's containers; none where the root is not a kubelet's."""
    # A kubelet that has been stopped leaves its containers running: their scopes still show it.
    return CRI_SCOPES if is_kubelets_root(tree, manager) else ()


async def list_evidence(client: Client, tree: Tree, manager: Manager) -> Sequence[ObservedUnit]:
    """Return the units that show who owns the root, as cheaply as possible."""
    slices = [each for each in tree.patterns if each.endswith(f".{UnitKind.SLICE}")]
    listed = await client.list_units((*slices, *scope_patterns(tree, manager)))
    there = [each for each in listed if each.active_state != "inactive"]
    scopes = [each.name for each in there if each.name.endswith(f".{UnitKind.SCOPE}")]
    slices_there = [
        ObservedUnit(name=each.name, description=each.description)
        for each in there
        if each.name.endswith(f".{UnitKind.SLICE}")
    ]
    return (*slices_there, *(await client.observe(scopes) if scopes else ()))


def recorded_pods(store: Store) -> Collection[Pod]:
    """Return the recorded pods; none where the records can't be read."""
    with suppress(HostError):
        return store.load().pods
    return ()


def refuse(foreign: Foreign | None) -> None:
    """Refuse changes where podslice does not own the root.

    Raises:
        ForeignRoot: it belongs to a kubelet.
    """
    if foreign is not None:
        raise ForeignRoot(str(foreign))


class Guarded(ClientAround):
    """A client that refuses changes with `ForeignRoot` while podslice does not own the root."""

    def __init__(self, client: Client, claim: Callable[[Client], Awaitable[None]]) -> None:
        """`claim` raises `ForeignRoot` where podslice does not own the root, which it observes."""
        super().__init__(client)
        self._claim = claim

    async def submit(self, change: Change) -> None:
        await self._claim(self._client)
        await self._client.submit(change)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The node, its configuration and its records: enough for a plan of an empty host."""

    node: Node
    config: Config
    store: Store
    origin: Origin = field(default_factory=Origin)
    """Where the configuration comes from."""
    manager: Manager = SYSTEM
    """The service manager of the slices."""
    cgroups: CgroupFs = field(default_factory=CgroupFs)
    cpu_stage: CpuStage | None = None
    """Assigns exclusive CPUs; without it nothing is exclusive."""
    guard: Guard = field(default_factory=Guard)
    """Determines who owns the root."""
    on_note: Callable[[str], None] = lambda _: None
    """Receives notes for the operator, one sentence each."""

    @property
    def may_set_values(self) -> bool:
        """Whether units may get values of this configuration: not where it is only assumed."""
        return self.origin.source is not Source.DEFAULT

    @property
    def tree(self) -> Tree:
        """The names below the configured root."""
        return Tree(cgroup_root=self.config.cgroup_root)

    async def claim(self, client: Client) -> None:
        """Refuse changes where podslice does not own the root, which the client observes.

        Raises:
            ForeignRoot: it belongs to a kubelet.
        """
        await self.guard.claim(client, self.tree, self.manager, self.store)

    def with_client(self, client: Client) -> LiveWorld:
        """Return the same world with a connection to the service manager."""
        values = {each.name: getattr(self, each.name) for each in fields(World)}
        return LiveWorld(client=client, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorld(World):
    """A world with a connection to the service manager: required by every change."""

    client: Client
