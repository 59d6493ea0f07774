"""The node, its configuration and its records; with a service manager, a live world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config, Origin, Source
from podslice.model.naming import Tree
from podslice.model.node import Node
from podslice.model.unit import SYSTEM, Manager
from podslice.policy.exclusive import CpuStage
from podslice.reconcile.guard import Guard
from podslice.store.store import Store
from podslice.systemd.client import Client


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
