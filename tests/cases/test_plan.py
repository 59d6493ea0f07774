"""Whole trees: one folder for each case, with the exact output of `podslice plan`.

    pods.yaml       the manifests that plan is given; none where there is no such file
    config.toml     the configuration
    node.toml       capacity, and page_size_bytes where it is not 4096
    before.yaml     pods that were applied before, on a systemd that did all it was asked
    observed.toml   what has happened to the host since, and how plan is called:
                    systemd_version, prune, used_bytes by tier, and [[unit]] with a name and
                    tasks, set (properties), absent, provide (a unit with a file), scope_of (a slice)
    expect.txt      what plan prints; --update-cases rewrites it

The folder is named after what the case shows. Every case is also checked for the invariants that
the assertions below state.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import tomllib
from pathlib import Path

import pytest

from podslice.cli.views.changes import plan_lines
from podslice.cli.views.style import Display
from podslice.inputs.manifest.load import load_pods
from podslice.kernel.cgroup import CgroupFs
from podslice.model.naming import TIERS, slice_of_cgroup
from podslice.model.node import Node
from podslice.model.pod import Qos
from podslice.model.properties import PROPERTIES
from podslice.model.resources import PIDS
from podslice.model.unit import INFINITY, TransientUnit, UnitName, control_group_of, parent_slice
from podslice.plan import SetProperties, StartUnit, StopUnit
from podslice.policy.decide import decide
from podslice.reconcile.assess import Request, assess
from podslice.reconcile.world import Guard, LiveWorld
from podslice.store.store import Store
from tests.cases.rows import to_amounts
from tests.configuration import load_config
from tests.fake_systemd import FakeSystemd
from tests.unit.converged import apply

PLANS = Path(__file__).parent / "plan"
CASES = sorted(path.name for path in PLANS.iterdir() if path.is_dir())
GUARANTEES = ("MemoryLow", "MemoryMin")


@dataclasses.dataclass(kw_only=True)
class Case:
    """One folder, read."""

    path: Path
    config: object
    node: Node
    state: dict
    world: LiveWorld
    client: FakeSystemd

    def decide(self, file):
        path = self.path / file
        if not path.exists():
            return ()
        loaded = load_pods([str(path)], stdin=lambda: b"")
        problems = [str(problem) for problem in loaded.all_problems]
        assert not problems
        return tuple(decide(pod, self.node, self.config) for pod in loaded.pods)

    @property
    def candidates(self):
        return self.decide("pods.yaml")

    async def assess(self, candidates=None):
        wanted = self.candidates if candidates is None else candidates
        return await assess(
            self.world, Request(candidates=wanted, prune=self.state.get("prune", False))
        )


@pytest.fixture(params=CASES)
async def case(request, tmp_path):
    # whether a kubelet runs where the tests run is none of the cases' business
    path = PLANS / request.param
    observed = path / "observed.toml"
    state = tomllib.loads(observed.read_text()) if observed.exists() else {}
    fields = tomllib.loads((path / "node.toml").read_text())
    node = Node(capacity=to_amounts(fields.pop("capacity")), **fields)
    config = load_config({}, file=path / "config.toml")
    client = FakeSystemd(systemd_version=state.get("systemd_version", 257))
    world = LiveWorld(
        node=node,
        config=config,
        store=Store(tmp_path / "run"),
        client=client,
        cgroups=CgroupFs(mount=tmp_path / "cgroup"),
        guard=Guard(tmp_path / "host"),
    )
    made = Case(path=path, config=config, node=node, state=state, world=world, client=client)
    await set_up(made, tmp_path / "cgroup")
    return made


async def set_up(case, cgroups):
    """Apply the pods of before, then let happen what has happened since."""
    for unit in case.state.get("unit", []):
        if "provide" in unit:
            case.client.provide(UnitName(unit["name"]), **unit["provide"])
    before = case.decide("before.yaml")
    if before:
        report = await apply(case.world, Request(candidates=before))
        assert report.exit_code == 0, report
    for unit in case.state.get("unit", []):
        await change(case.client, unit)
    for tier, used in case.state.get("used_bytes", {}).items():
        directory = cgroups / control_group_of(UnitName(tier)).lstrip("/")
        directory.mkdir(parents=True)
        (directory / "memory.stat").write_text(f"anon {used}\nfile 123456789\n")
        (cgroups / "cgroup.controllers").write_text("cpu memory pids\n")


async def change(client, unit):
    name = UnitName(unit["name"])
    if "scope_of" in unit:
        properties = {"Slice": unit["scope_of"], "PIDs": (4711,)}
        await client.start(TransientUnit(name=name, properties=properties))
    if unit.get("start"):
        await client.start(TransientUnit(name=name, properties={"Description": "foreign"}))
    if unit.get("absent"):
        await client.stop(name)
    if "set" in unit:
        values = {
            key: INFINITY if value == "unset" else value for key, value in unit["set"].items()
        }
        await client.set_properties(name, values)
    if "tasks" in unit:
        client.set_tasks(name, unit["tasks"])


async def test_plan_prints_this(case, update_cases):
    state = await case.assess()
    text = "".join(f"{line}\n" for line in plan_lines(state.plan, Display()))
    expected = case.path / "expect.txt"
    if update_cases:
        expected.write_text(text)
    assert text == expected.read_text()


async def test_the_order_of_pods_does_not_matter(case):
    expected = (await case.assess()).plan
    for seed in range(5):
        shuffled = list(case.candidates)
        random.Random(seed).shuffle(shuffled)
        assert (await case.assess(shuffled)).plan == expected


async def test_after_applying_there_is_nothing_left_to_do(case):
    refused = (await case.assess()).plan.refused
    report = await apply(
        case.world, Request(candidates=case.candidates, prune=case.state.get("prune", False))
    )
    assert not report.remaining.steps
    again = await case.assess()
    assert again.plan.steps == ()
    assert again.plan.refused == refused


async def test_parents_start_before_children_and_stop_after_them(case):
    steps = (await case.assess()).plan.steps
    for earlier, later in itertools.combinations(steps, 2):
        if isinstance(earlier, StartUnit) and isinstance(later, StartUnit):
            assert not is_below(earlier.name, later.name)
        if isinstance(earlier, StopUnit) and isinstance(later, StopUnit):
            assert not is_below(later.name, earlier.name)


async def test_nothing_is_loosened_before_something_is_tightened(case):
    steps = (await case.assess()).plan.steps
    tightens = [
        step.tightens if isinstance(step, SetProperties) else isinstance(step, StopUnit)
        for step in steps
    ]
    assert tightens == sorted(tightens, reverse=True)


async def test_every_property_is_one_that_systemd_takes(case):
    for unit in (await case.assess()).desired.units:
        for property_ in unit.properties:
            row = PROPERTIES[property_.name]
            assert unit.kind in row.kinds
            assert row.takes(property_.value), property_
            assert property_.why, property_


async def test_no_unit_is_outside_the_root(case):
    desired = (await case.assess()).desired
    inside = desired.root.removesuffix(".slice") + "-"
    reserved = {
        slice_of_cgroup(cgroup)
        for cgroup in (case.config.kube_reserved_cgroup, case.config.system_reserved_cgroup)
        if cgroup
    }
    for unit in desired.units:
        name = unit.name if unit.name.endswith(".slice") else unit.parent
        assert name == desired.root or name.startswith(inside) or unit.name in reserved
        assert unit.owned != (unit.name in reserved)
    slices = [name for name in desired.unwanted if name.endswith(".slice")]
    assert all(name.startswith(inside) or name == desired.root for name in slices)


async def test_what_children_are_guaranteed_their_parents_have(case):
    units = {unit.name: unit for unit in (await case.assess()).desired.units}
    for name in GUARANTEES:
        for parent in units.values():
            children = [
                unit.values.get(name, 0)
                for unit in units.values()
                if unit.name != parent.name and unit.parent == parent.name and unit.owned
            ]
            is_inner = parent.name == case.world.tree.root or parent.name in {
                case.world.tree.tier(qos) for qos in TIERS
            }
            if is_inner and any(children):
                assert parent.values[name] >= sum(children), parent.name


async def test_every_unit_is_in_the_slice_that_its_name_implies(case):
    for unit in (await case.assess()).desired.units:
        if unit.name.endswith(".slice"):
            assert unit.parent == parent_slice(unit.name)
            assert unit.control_group == control_group_of(unit.name)
        else:
            assert unit.control_group == f"{control_group_of(unit.parent)}/{unit.name}"


async def test_what_is_requested_is_the_sum_of_what_is_admitted(case):
    desired = (await case.assess()).desired
    for resource in {name for pod in desired.pods for name in pod.requests} - {PIDS}:
        total = sum(pod.requests.get(resource, 0) for pod in desired.pods)
        assert desired.requested[resource] == total
    assert {pod.qos for pod in desired.pods} <= set(Qos)


def is_below(child, parent):
    return child.startswith(parent.removesuffix(".slice") + "-")
