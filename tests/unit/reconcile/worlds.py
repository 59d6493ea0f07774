"""Apply, delete and inspect pods in a world on the fake systemd."""

from podslice.model.pod import MemoryVolume
from podslice.reconcile.assess import Request, assess
from tests.unit.builders import (
    besteffort,
    burstable,
    decisions,
    guaranteed,
)
from tests.unit.converged import apply_pods, delete

WEB = "kubepods-burstable-podweb.slice"
BATCH = "kubepods-besteffort-podbatch.slice"
THREE = (besteffort("batch"), burstable("web"), guaranteed("database"))
SCOPE = "podslice-podweb-main.scope"
CACHE = (MemoryVolume(name="cache", size_bytes=2**20),)
put = apply_pods
WRITES = {"start", "start_batch", "set_properties", "stop", "stop_batch", "reset_failed"}


async def remove(here, *names):
    return await delete(here, {f"default/{name}" for name in names} if names else None)


async def slices(memory):
    """Return the properties of the loaded slices and scopes below the root."""
    units = await memory.observe(["kubepods*", "podslice-*"])
    return {unit.name: unit.properties for unit in units}


def recorded(here):
    records = here.store.load()
    assert not records.broken
    return {pod.name: pod for pod in records.pods}


def written(memory):
    return {name: count for name, count in memory.calls.items() if name in WRITES}


async def assert_settled(here, *pods):
    """Assert that a new assessment plans nothing, and that the records are those of the pods."""
    state = await assess(here, Request(candidates=decisions(*pods, on=here.node, by=here.config)))
    assert state.plan.steps == ()
    assert recorded(here).keys() == {pod.name for pod in pods}
    assert [pod.name for pod in state.current] == sorted(pod.name for pod in pods)
    assert not state.orphans
