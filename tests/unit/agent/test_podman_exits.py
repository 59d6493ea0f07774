"""Containers of podman that fail, by the files of conmon."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from podslice.agent.container_ends import ContainerEnds, PodmanExits
from podslice.agent.oom_kills import OomdMonitor
from podslice.model.event import Kind
from podslice.reconcile.manual_changes import record
from podslice.usage.runtimes import podman_storage
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import make_context, put
from tests.unit.builders import burstable, make_files

WEB = "kubepods-burstable-podweb.slice"
ONE, TWO = "a1" * 32, "b2" * 32
STORAGE = podman_storage(Path("/")).relative_to("/") / "overlay-containers"


class Node:
    """A pod, and the files of podman on its host."""

    def __init__(self, root):
        self.root = root
        self.requests = 0
        self.context = make_context(root, FakeSystemd())
        ends = ContainerEnds(self.context, OomdMonitor(self.context), SimpleNamespace(services=()))
        self.exits = PodmanExits(self.context, ends, self._on_exit, root)
        names = [{"id": ONE, "names": ["one"]}, {"id": TWO, "names": []}]
        make_files(root, {f"{STORAGE}/containers.json": "[]"})
        make_files(root, {f"{STORAGE}/volatile-containers.json": json.dumps(names)})
        self.place(ONE, f"{WEB}:libpod:{ONE}")

    def _on_exit(self):
        self.requests += 1

    def place(self, id_, path):
        text = json.dumps({"linux": {"cgroupsPath": path}})
        make_files(self.root, {f"{STORAGE}/{id_}/userdata/config.json": text})

    async def end(self, text, id_=ONE):
        make_files(self.root, {f"run/libpod/exits/{id_}": text})
        self.exits.notice(id_)
        await self.exits.follow()

    @property
    def reported(self):
        kinds = (Kind.CONTAINER_FAILED, Kind.CONTAINER_OOM_KILLED)
        events = self.context.events.journal.of(*kinds)
        return [(each.kind, each.message, each.unit, each.fields) for each in events]


@pytest.fixture
async def node(tmp_path):
    made = Node(tmp_path)
    await put(made.context, burstable("web"))
    return made


async def test_a_crash_is_reported_with_its_exit_code(node):
    await node.end("7")
    await node.exits.follow()
    text = "container one of pod default/web has failed: exit code 7"
    fields = {"CONTAINER": "one", "RESULT": "exit-code", "EXIT_STATUS": "7"}
    assert node.reported == [(Kind.CONTAINER_FAILED, text, f"libpod-{ONE}.scope", fields)]
    assert node.requests == 1


@pytest.mark.parametrize("place", [f"run/libpod/persist/{ONE}", f"{STORAGE}/{ONE}/userdata"])
async def test_an_oom_kill_is_reported(node, place):
    make_files(node.root, {f"{place}/oom": ""})
    await node.end("137")
    text = "container one of pod default/web was killed for lack of memory: an OOM kill"
    fields = {"CONTAINER": "one", "RESULT": "oom-kill", "EXIT_STATUS": "137"}
    assert node.reported == [(Kind.CONTAINER_OOM_KILLED, text, f"libpod-{ONE}.scope", fields)]


@pytest.mark.parametrize("code", ["0", "130", "137", "143", "", "x"])
async def test_an_end_and_a_stop_are_not_failures(node, code):
    await node.end(code)
    assert (node.reported, node.requests) == ([], 0)


@pytest.mark.parametrize(
    ("path", "is_reported"),
    [
        (f"kubepods-burstable-podweb-libpod_pod_c3.slice:libpod:{TWO}", True),
        (f"machine.slice:libpod:{TWO}", False),
        (f"-.slice:libpod:{TWO}", False),
        # in a service, which is followed itself
        (f"/kubepods.slice/{WEB}/web.service/libpod-payload-{TWO}", False),
        (7, False),
    ],
)
async def test_containers_in_slices_of_pods_are_reported(node, path, is_reported):
    node.place(TWO, path)
    await node.end("7", TWO)
    texts = [f"container {TWO[:12]} of pod default/web has failed: exit code 7"]
    assert [each[1] for each in node.reported] == texts * is_reported


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", '{"linux": 7}'])
async def test_what_is_not_known_is_not_reported(node, text):
    make_files(node.root, {f"{STORAGE}/{ONE}/userdata/config.json": text})
    await node.end("7")
    await node.end("7", "c3" * 32)
    node.exits.notice("../exits")
    assert node.reported == []


async def test_a_pod_that_is_deleted_has_no_failures(node):
    record(node.context.world.store, "delete", pods=["default/web"], units=[])
    await node.end("7")
    assert node.reported == []
