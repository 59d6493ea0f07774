"""Where a verb works, and what one look at it shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config, Origin, Source
from podslice.model.desired import Desired
from podslice.model.naming import Tree
from podslice.model.node import Node
from podslice.model.node_state import AgentState, Eviction
from podslice.model.owner import Foreign
from podslice.model.pod import InitProgress, Pod
from podslice.model.reserved import Reserved
from podslice.model.unit import Observed, UnitName
from podslice.plan import Plan
from podslice.reconcile.guard import Guard
from podslice.store import Store
from podslice.systemd.client import Client

_NOTHING = Reserved()


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
    user: bool = False
    """Whether the client is a user's service manager."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One look at everything: what was applied, what should be, what is, and the difference."""

    current: tuple[Pod, ...]
    desired: Desired
    observed: Observed
    plan: Plan
    broken_records: tuple[str, ...] = ()
    """Files in the place of records that hold none."""
    orphans: tuple[UnitName, ...] = ()
    """Slices below the root that no pod accounts for."""
    progress: Mapping[str, InitProgress] = field(default_factory=dict)
    """How far init containers have come, by the uids of their pods, where they have anywhere."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The manifest files of applied pods by their uids, where an agent has them from a directory."""
    recorded: frozenset[str] = frozenset()
    """The uids of the applied pods that have records."""
    evicted: tuple[Eviction, ...] = ()
    """The pods that stay away."""
    recorded_values: Reserved = _NOTHING
    """What podslice has set outside the root, as it is recorded."""
    held: Reserved = _NOTHING
    """The same without what is not podslice's any more."""
    foreign: Foreign | None = None
    """Why nothing may be changed; None where the root is podslice's own."""
    agent: AgentState | None = None
    """What the agent lets others know, where one runs."""
