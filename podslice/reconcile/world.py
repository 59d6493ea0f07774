"""Where a verb works."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config, Origin, Source
from podslice.model.manager import SYSTEM, Manager
from podslice.model.naming import Tree
from podslice.model.node import Node
from podslice.reconcile.guard import Guard
from podslice.store import Store
from podslice.systemd.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Somebody is there who asks what an apply would do, or for one."""

    confirm_sec: int | None = None
    """After so many seconds the old values of reserved slices return, unless that is confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The pods, by their uids, that something else in this process ends; it may add and remove."""

    under_way: Collection[str] = ()
    """They stay as they are, and nothing is done about them."""
    over: Collection[str] = ()
    """They have had their time: where they still have to go, what is left of them is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where a verb works: the node, its configuration, and the edges."""

    node: Node
    config: Config
    store: Store
    client: Client | None
    """None where there is no service manager; then only the plan can be made."""
    origin: Origin = field(default_factory=Origin)
    """Where the configuration comes from."""
    manager: Manager = SYSTEM
    """The service manager that the client is connected to."""
    cgroups: CgroupFs = field(default_factory=CgroupFs)
    asked: Asked | None = None
    """Without it reserved slices are left alone while new values of theirs are not confirmed."""
    ends: Ends = Ends()
    guard: Guard = field(default_factory=Guard)
    """Says who owns the root."""
    on_note: Callable[[str], None] = lambda _: None
    """Told what the operator should know, in a sentence."""

    @property
    def may_set_values(self) -> bool:
        """Whether units may get values of this configuration: not where it is only assumed."""
        return self.origin.source is not Source.DEFAULT

    @property
    def tree(self) -> Tree:
        """The names below the configured root."""
        return Tree(cgroup_root=self.config.cgroup_root)
