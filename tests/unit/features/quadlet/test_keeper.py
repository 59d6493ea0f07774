import os

from podslice.errors import Refused
from podslice.features.quadlet.keeper import ContainerKeeper
from podslice.model.config import Containers
from podslice.reconcile.assess import Request
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import make_context, reassess
from tests.unit.builders import burstable, config, decisions
from tests.unit.converged import apply

NAME = f"podslice-containers-{os.getpid()}-{{}}.service"


class Node:
    """A node with an agent that keeps containers."""

    def __init__(self, tmp_path, containers=Containers.QUADLET):
        self.memory = FakeSystemd()
        self.context = make_context(tmp_path, self.memory, by=config(containers=containers))
        self.keeper = ContainerKeeper(self.context, "/usr/bin/podslice")
        self.manifest = tmp_path / "web.yaml"
        self.manifest.write_text("one")

    async def apply(self, *names):
        candidates = decisions(*map(burstable, names))
        sources = {each.pod.uid: str(self.manifest) for each in candidates}
        await apply(self.context.world, Request(candidates=candidates), sources=sources)

    async def follow(self):
        await reassess(self.context)
        await self.keeper.follow()
        units = await self.memory.list_units(["podslice-containers-*"])
        return [each.name for each in units]


async def test_a_service_is_started_when_pods_or_manifests_change(tmp_path):
    here = Node(tmp_path)
    await here.keeper.follow()  # nothing is known yet
    assert await here.follow() == [NAME.format(1)]
    assert await here.follow() == [NAME.format(1)]
    await here.apply("web")
    assert len(await here.follow()) == 2
    assert len(await here.follow()) == 2
    here.manifest.write_text("another image")
    assert await here.follow() == [NAME.format(each) for each in (1, 2, 3)]
    here.manifest.chmod(0o600)
    assert len(await here.follow()) == 4
    here.manifest.unlink()
    assert len(await here.follow()) == 5
    (unit,) = await here.memory.observe([NAME.format(1)])
    assert unit.properties["Slice"] == "podruntime.slice"


async def test_no_containers_are_kept_by_default(tmp_path):
    here = Node(tmp_path, Containers.NONE)
    await here.apply("web")
    assert await here.follow() == []


async def test_a_service_that_does_not_start_is_tried_again(tmp_path):
    here = Node(tmp_path)
    here.memory.refuse(NAME.format(1), Refused("access denied"))
    assert await here.follow() == []
    (failure,) = here.context.status.failures
    assert failure.message == "the containers of pods are not updated: access denied"
    assert await here.follow() == [NAME.format(2)]
    assert here.context.status.failures == ()


async def test_the_service_calls_the_internal_verb(tmp_path):
    here = Node(tmp_path)
    unit = here.keeper._unit()
    assert unit.properties["ExecStart"] == (
        ("/usr/bin/podslice", ("/usr/bin/podslice", "__containers"), False),
    )
