"""Work in steps: the length of steps, and the turns of other tasks."""

import asyncio
import gc
import json
import sys
from contextlib import suppress
from importlib import import_module
from itertools import pairwise

import pytest

from podslice.agent.manifest_files import ManifestDirectories
from podslice.agent.wanted_pods import WantedPodsReader
from podslice.inputs import budget as budget_module
from podslice.inputs.budget import LIMITS, Budget, Exhausted
from podslice.inputs.limits import POD_PROBLEMS_MAX
from podslice.inputs.manifest import release as release_module
from podslice.inputs.manifest.json_builder import JsonReader
from podslice.inputs.manifest.load import load_pods, load_text
from podslice.model.event import Kind
from podslice.model.unit import Caps, Observed
from podslice.pausable import finish, paced
from podslice.plan import make_plan, planning
from podslice.policy.desire import desire, desiring
from podslice.policy.replicas import decide_each
from podslice.reconcile import pace as pace_module
from podslice.reconcile.pace import Pace, in_turns
from tests.unit import builders
from tests.unit.agent.reconciled import Node


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

    def most_between_pauses(self, steps):
        """Take all steps; return the most calls in one step, and the result."""
        most = 0
        while True:
            before = self.calls
            try:
                next(steps)
            except StopIteration as end:
                return max(most, self.calls - before), end.value
            most = max(most, self.calls - before)


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
    decide = Counted(monkeypatch, "podslice.policy.replicas.decide")
    shared = list(decide_each(pods, node, config))
    assert decide.calls == 1
    alone = [decide.really(pod, node, config) for pod in pods]
    assert shared == alone
    assert [each.units for each in shared] == [each.units for each in alone]
    assert [each.elsewhere for each in shared] == [each.elsewhere for each in alone]
    assert len({id(each.properties) for each in shared}) == 1


def test_desire_pauses_after_each_pod_that_it_decides(monkeypatch):
    pods, node, config = replicas(30), builders.node(), builders.config()
    decide = Counted(monkeypatch, "podslice.policy.desire.decide")
    most, desired = decide.most_between_pauses(desiring((), node, config, current=pods))
    assert (most, decide.calls) == (1, 30)
    assert desired == desire((), node, config, current=pods)


def test_the_plan_pauses_after_so_many_units(monkeypatch):
    node, config = builders.node(), builders.config(admission=False)
    desired = desire(decide_each(replicas(400), node, config), node, config)
    unit = Counted(monkeypatch, "podslice.plan.make._steps_for")  # once for each unit
    observed = Observed(caps=Caps(systemd_version=257))
    most, plan = unit.most_between_pauses(planning(desired, observed))
    assert unit.calls > 1000
    assert most <= 200
    assert plan == make_plan(desired, observed)


def test_directories_are_read_with_a_pause_for_each_file(tmp_path, monkeypatch):
    for number in range(20):
        (tmp_path / f"{number}.yaml").write_text(builders.manifest(f"web-{number}"))
    read = Counted(monkeypatch, "podslice.agent.manifest_files.read_manifest")
    most, contents = read.most_between_pauses(ManifestDirectories([str(tmp_path)]).read())
    assert (most, read.calls, len(contents.pods)) == (1, 20, 20)


async def test_pods_are_judged_and_records_are_read_one_by_one(tmp_path, monkeypatch):
    node = Node(tmp_path)
    for number in range(20):
        node.put(f"web-{number}")
    reader = WantedPodsReader(lambda: node.context.world, node.manifests())
    decide = Counted(monkeypatch, "podslice.policy.replicas.decide")
    most, wanted = decide.most_between_pauses(reader.read())
    assert (most, len(wanted.candidates)) == (1, 20)
    await node.settle()
    parse = Counted(monkeypatch, "podslice.store.records.parse")
    store = builders.world(tmp_path, node.client).store
    most, records = parse.most_between_pauses(store.loading())
    assert (most, len(records.pods)) == (1, 20)


async def test_others_have_their_turn_once_one_is_over(monkeypatch):
    seconds = iter(range(10**6))
    turns = []

    def steps():
        for number in range(5):
            turns.append(number)
            yield

    async def other():
        while True:
            turns.append("other")
            await asyncio.sleep(0)

    others = asyncio.create_task(other())
    await asyncio.sleep(0)
    turns.clear()
    await in_turns(steps(), Pace(now=lambda: float(next(seconds))))
    assert turns == [0, "other", 1, "other", 2, "other", 3, "other", 4, "other"]
    turns.clear()
    await in_turns(steps(), Pace(now=lambda: 0.0))
    assert turns == [0, 1, 2, 3, 4]
    others.cancel()


@pytest.mark.parametrize("collects", [True, False])
async def test_the_collector_of_cycles_rests_meanwhile(collects):
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    seen = []

    def steps():
        seen.append(gc.isenabled())
        yield

    try:
        await in_turns(steps())
        assert (seen, gc.isenabled()) == ([False], collects)
    finally:
        (gc.enable if was else gc.disable)()


async def test_records_are_written_with_turns_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(pace_module, "TURN_SEC", 0.0)
    node = Node(tmp_path)
    for number in range(20):
        node.put(f"web-{number}")
    saved, most = [0], [0]
    save = node.context.world.store.save

    def counted(*args):
        saved[0] += 1
        return save(*args)

    async def other():
        before = 0
        while True:
            most[0] = max(most[0], saved[0] - before)
            before = saved[0]
            await asyncio.sleep(0)

    monkeypatch.setattr(node.context.world.store, "save", counted)
    others = asyncio.create_task(other())
    await node.settle()
    others.cancel()
    assert (saved[0], most[0]) == (20, 1)


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


MAPPINGS = b"- {a: 1}\n"
OBJECTS = b'{"a": [' + b'{"a":1},' * 14_000
LARGE = {
    "yaml": ("a.yaml", MAPPINGS * 9_000),
    "yaml that exceeds the limit": ("a.yaml", MAPPINGS * 20_000),
    "yaml with an error": ("a.yaml", MAPPINGS * 9_000 + b"]"),
    "yaml with a control character": ("a.yaml", MAPPINGS * 9_000 + b"\x01"),
    "json": ("a.json", OBJECTS + b"{}]}"),
    "json with an error": ("a.json", OBJECTS + b"]"),
    "json with a large mapping": (
        "a.json",
        b'{"a": {' + b",".join(b'"%d": {}' % number for number in range(14_000)) + b"}}",
    ),
    "json documents in what may be yaml": ("a.yaml", (b"[" + b"{}," * 49 + b"{}]\n") * 300 + b"]"),
}


@pytest.mark.parametrize("name", LARGE)
def test_values_are_released_with_pauses(monkeypatch, name):
    """Releasing hundreds of thousands at once takes 30 ms, as does a garbage collection."""
    monkeypatch.setattr(release_module, "RELEASED_PER_STEP", 500)
    file, data = LARGE[name]
    budget = Budget(limits={**LIMITS, budget_module.BudgetItem.VALUES: 40_000})
    gc.collect()
    gc.disable()
    try:
        blocks = [sys.getallocatedblocks()]
        with suppress(Exhausted):
            blocks.extend(sys.getallocatedblocks() for _ in load_text(data, file, budget))
        blocks.append(sys.getallocatedblocks())
        collected = gc.collect()
    finally:
        gc.enable()
    assert max(blocks) - blocks[0] > 12_000
    assert max(before - after for before, after in pairwise(blocks)) < 6_000
    assert collected < 500


def test_json_pauses_after_so_many_values(monkeypatch):
    calls = [0]
    really = json.JSONDecoder.raw_decode

    def counted(*args):
        calls[0] += 1
        return really(*args)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counted)
    reader = JsonReader("[" + "1," * 40_000 + "1]", Budget())
    seen = [0, *(calls[0] for _ in reader.documents())]
    assert calls[0] > 40_000
    assert max(after - before for before, after in pairwise(seen)) < 1_000


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
    calls = [0, *(nearest.calls for _ in load_text(text.encode(), "a.yaml", Budget()))]
    assert nearest.calls == 2 * POD_PROBLEMS_MAX
    assert max(after - before for before, after in pairwise(calls)) == 2


def test_paced():
    assert list(paced("abcde", 2)) == ["a", "b", None, "c", "d", None, "e"]
    assert finish(iter_nothing()) == 7


def iter_nothing():
    yield
    return 7
