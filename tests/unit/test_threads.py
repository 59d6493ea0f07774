"""Long work beside the event loop: what it costs at most, and what runs meanwhile."""

import asyncio
import gc
import threading
from contextlib import AsyncExitStack
from importlib import import_module

import pytest

from podslice.agent.context import EventLog
from podslice.agent.service_process import ServiceProcess
from podslice.inputs.budget import POD_PROBLEMS_MAX, Budget
from podslice.inputs.manifest.load import load_pods, load_text
from podslice.model.event import Kind
from podslice.policy.decide import decide_each
from podslice.reconcile.assess import in_thread
from tests.fake_systemd import FakeSystemd
from tests.unit import builders
from tests.unit.agent.fakes import Events
from tests.unit.agent.reconciled import Node


async def test_the_loop_runs_while_the_work_does():
    """The work ends only after a task of the loop has run."""
    has_run = threading.Event()
    work = asyncio.create_task(in_thread(has_run.wait, 60))
    await asyncio.sleep(0)
    has_run.set()
    assert await work is True


@pytest.mark.parametrize("collects", [True, False])
async def test_the_collector_of_cycles_rests_meanwhile(collects):
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert (await in_thread(gc.isenabled), gc.isenabled()) == (False, collects)
    finally:
        (gc.enable if was else gc.disable)()


async def test_an_agent_has_two_more_threads_at_most():
    """Its unit permits eight tasks, and asyncio alone would use up to 32."""
    process = ServiceProcess(None, EventLog(Events()), lambda: 1.0)
    async with AsyncExitStack() as stack:
        await process.start(stack, FakeSystemd(), lambda: None)
        assert len({await in_thread(threading.get_ident) for _ in range(50)}) <= 2


async def test_an_error_of_the_work_is_raised():
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 1, 0)


class Counted:
    """Counts the calls of a function of a module."""

    def __init__(self, monkeypatch, name):
        owner, _, attribute = name.rpartition(".")
        self.calls = 0
        module = import_module(owner)
        self.really = getattr(module, attribute)
        monkeypatch.setattr(module, attribute, self)

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.really(*args, **kwargs)


def replicas(count):
    text = (
        "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: web}\n"
        f"spec: {{replicas: {count}, template: {{spec: {{containers: [{{name: a,"
        " resources: {limits: {cpu: 1m, memory: 1Mi}}}, {name: b}],"
        " volumes: [{name: v, emptyDir: {medium: Memory}}]}}}"
    )
    return load_pods(["-"], stdin=text.encode).pods


def test_replicas_are_decided_once_and_as_if_alone(monkeypatch):
    # web-10 to web-49: names of one length
    pods, node, config = replicas(50)[10:], builders.node(), builders.config()
    decide = Counted(monkeypatch, "podslice.policy.decide.decide")
    shared = list(decide_each(pods, node, config))
    assert decide.calls == 1
    alone = [decide.really(pod, node, config) for pod in pods]
    assert shared == alone
    assert [each.units for each in shared] == [each.units for each in alone]
    assert [each.elsewhere for each in shared] == [each.elsewhere for each in alone]
    assert len({id(each.properties) for each in shared}) == 1


async def test_a_bomb_is_reported_once_and_other_pods_are_unaffected(tmp_path):
    node = Node(tmp_path)
    node.put("web")
    await node.settle()
    spec = "{containers: [" + ",".join(f"{{name: c{n}}}" for n in range(256)) + "]}"
    node.write(
        "bomb",
        "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: d}\n"
        f"spec: {{replicas: 1000, template: {{spec: {spec}}}}}\n",
    )
    node.put("shop")
    for _ in range(3):
        await node.run_round()
    assert node.records == {"web", "shop"}
    (reported,) = node.texts(Kind.MANIFEST_BROKEN)
    assert "bomb.yaml: there are more than 20,000 containers" in reported


FIELDS = [f"f{number}: a" for number in range(4_000)]
CONTAINERS = ",".join(f"{{name: c{number}, {','.join(FIELDS[:90])}}}" for number in range(200))


@pytest.mark.parametrize(
    "text",
    [
        f"{{apiVersion: v1, kind: Pod, {','.join(FIELDS)}}}",
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {{containers: [{CONTAINERS}]}}}}",
    ],
    ids=["of one mapping", "of many"],
)
def test_so_many_unknown_fields_are_compared_with_the_known_ones(monkeypatch, text):
    """Each of those that are shown is compared with the fields of its object and of those below."""
    nearest = Counted(monkeypatch, "podslice.inputs.manifest.unknown_fields.nearest")
    load_text(text.encode(), "a.yaml", Budget())
    assert nearest.calls == 2 * POD_PROBLEMS_MAX
