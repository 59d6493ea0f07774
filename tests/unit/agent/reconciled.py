"""A node that is reconciled round by round."""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

from podslice.agent.manifests import ManifestDirectories
from podslice.agent.reconciler import Reconciler
from podslice.agent.terminations import Terminations
from podslice.kernel.cgroup import CgroupFs
from podslice.model.event import Kind
from podslice.model.node_state import Eviction
from podslice.systemd.caching_client import CachingClient
from tests.fake_systemd import FakeSystemd
from tests.unit import builders
from tests.unit.agent.fakes import make_context
from tests.unit.converged import apply_pods

WEB = "kubepods-burstable-podweb.slice"
BATCH = "kubepods-besteffort-podbatch.slice"
POD_STEPS = (Kind.POD_APPLIED, Kind.POD_CHANGED, Kind.POD_REMOVED)


class Round(NamedTuple):
    """The result of a round."""

    acted: bool
    """Whether the agent took the lock to change something."""
    is_settled: bool


class Node:
    """A node with a directory of manifests, and its reconciler."""

    def __init__(self, tmp_path, **fields):
        self.memory = FakeSystemd(systemd_version=262, on_change=self._on_change)
        cgroups = CgroupFs(mount=tmp_path / "cgroup")
        self.client = CachingClient(self.memory, cgroups)
        self.context = make_context(tmp_path, self.client, **fields)
        self.directory = tmp_path / "manifests"
        self.directory.mkdir()
        self.terminations = Terminations(self.context, self.memory, self._on_end)
        self.reconciler = Reconciler(self.context, self.manifests(), self.client, self.terminations)

    def _on_change(self, name):
        self.client.forget(name)

    def _on_end(self, pod, slice_):
        self.reconciler.forget(pod, slice_)

    def manifests(self):
        return ManifestDirectories([str(self.directory)])

    def put(self, name, requests=None, limits=None, *, uid=None, file=None, **spec):
        """Write a manifest; its uid is its name, so that the name of its slice is short."""
        document = json.loads(builders.manifest(name, requests, limits, **spec))
        document["metadata"]["uid"] = uid or name
        self.write(file or name, json.dumps(document))

    def write(self, name, text):
        (self.directory / f"{name}.yaml").write_text(text)

    def drop(self, name):
        (self.directory / f"{name}.yaml").unlink()

    async def apply_by_hand(self, *pods):
        await apply_pods(self.context.world, *pods)

    async def run_round(self):
        store, taken = self.context.world.store, []
        try_lock = store.try_lock
        store.try_lock = lambda: taken.append(True) or try_lock()
        try:
            is_settled = await self.reconciler.reconcile()
        finally:
            store.try_lock = try_lock
        return Round(acted=bool(taken), is_settled=is_settled)

    async def settle(self):
        """Run rounds until the node is settled; drop their events."""
        async with asyncio.timeout(30):
            while not (await self.run_round()).is_settled:
                pass
        self.context.events.journal.clear()

    async def slices(self):
        """Return the slices of pods, with their properties."""
        units = await self.memory.observe(["kubepods*pod*.slice"])
        return {unit.name: unit.properties for unit in units}

    @property
    def records(self):
        return {pod.name for pod in self.context.world.store.load().pods}

    def reported(self, *kinds):
        return [(event.kind.label, event.pod) for event in self.context.events.journal.of(*kinds)]

    def texts(self, *kinds):
        return self.context.events.journal.texts(*kinds)

    async def evict(self, name, unit, signal="memory.available"):
        """Stop and mark a pod, as the evictor does."""
        await self.memory.stop(unit)
        self.mark(name, signal)

    def mark(self, name, signal="memory.available"):
        """Mark a pod as evicted."""
        pod = next(pod for pod in self.context.world.store.load().pods if pod.name == name)
        self.context.marks.write(
            Eviction(
                pod=pod.key,
                uid=pod.uid,
                digest=self.context.world.store.digest(pod),
                signal=signal,
                message=f"{signal} is 1Mi",
                at_usec=1,
            )
        )
