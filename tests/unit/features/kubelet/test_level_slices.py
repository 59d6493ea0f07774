"""The slices of a kubelet's pods: which are observed, and what may be changed."""

import pytest

from podslice.features.kubelet.levels import LevelSlices
from podslice.features.kubelet.model import LevelChange
from podslice.kernel.cgroup import CgroupFs
from podslice.model.unit import PropertyValue, TransientUnit, UnitName, control_group_of
from tests.cases.tables import cases
from tests.fake_systemd import FakeSystemd
from tests.unit import builders

ROOT, POD = UnitName("kubepods.slice"), UnitName("kubepods-burstable-poda.slice")


@pytest.fixture
async def memory():
    memory = FakeSystemd()
    for name in (POD, "kubepods-podb.slice", "kubepods-other.slice", "other-poda.slice"):
        await memory.start(TransientUnit(name=UnitName(name), properties={"MemoryMax": 8192}))
    return memory


@pytest.fixture
def slices(memory, tmp_path):
    return LevelSlices(memory, CgroupFs(mount=tmp_path))


def change(unit, **values):
    properties = (PropertyValue(name=name, value=value, why="") for name, value in values.items())
    return LevelChange(pod="default/a", unit=UnitName(unit), properties=tuple(properties))


async def test_only_slices_of_pods_are_observed(slices):
    found = await slices.observe(ROOT, (), 4096)
    assert set(found) == {POD, "kubepods-podb.slice"}
    assert found[POD].unit.properties["MemoryMax"] == 8192


@cases
async def test_values_that_only_the_kernel_has(slices, tmp_path, files, rewritten):
    rewritten = set(rewritten)
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    for name in (POD, UnitName("kubepods-podb.slice")):
        texts = {file: f"{text}\n" for file, text in files.items()}
        builders.make_files(tmp_path / control_group_of(name).lstrip("/"), texts)
    found = await slices.observe(ROOT, [POD], 4096)
    assert found[POD].rewritten == rewritten
    assert not found["kubepods-podb.slice"].rewritten


async def test_four_properties_of_pods_may_be_set(slices, memory):
    await slices.set(change(POD, MemoryMax=4096, CPUWeight=7))
    (unit,) = await memory.observe([POD])
    assert (unit.properties["MemoryMax"], unit.properties["CPUWeight"]) == (4096, 7)
    before = memory.calls["set_properties"]
    for unit, values in (
        (POD, {"TasksMax": 1}),
        (POD, {"MemoryMax": 1, "MemoryHigh": 1}),
        ("kubepods.slice", {"MemoryMax": 1}),
        ("kubepods-burstable.slice", {"MemoryMax": 1}),
        ("cri-containerd-0a.scope", {"MemoryMax": 1}),
    ):
        with pytest.raises(ValueError, match="may not be changed"):
            await slices.set(change(unit, **values))
    assert memory.calls["set_properties"] == before
