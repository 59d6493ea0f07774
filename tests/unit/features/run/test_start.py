"""Starting containers."""

import pytest

from podslice.features.run.start import has_arrived
from podslice.features.run.target import find_place
from podslice.reconcile.assess import Request, assess
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import burstable, decisions, world
from tests.unit.converged import apply

UNIT = (
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podweb.slice/podslice-podweb-main"
)


@pytest.fixture
async def place(tmp_path):
    here = world(tmp_path, FakeSystemd())
    await apply(here, Request(candidates=decisions(burstable("web"))))
    return find_place(await assess(here), "default/web", None)


@pytest.mark.parametrize(
    ("groups", "is_there"),
    [
        (f"0::/{UNIT}.scope\n", True),
        (f"0::/user.slice/user-1000.slice/user@1000.service/{UNIT}.scope\n", True),
        (f"9:name=systemd:/{UNIT}.scope\n3:cpu,cpuacct:/\n0::/\n", True),
        (f"9:name=systemd:/\n0::/{UNIT}.scope\n", True),
        (f"9:name=systemd:/user.slice\n0::/{UNIT}.scope\n", False),
        ("0::/system.slice/podslice-podweb-main.scope\n", False),
        (f"0::/{UNIT}.scope/below\n", False),
        ("0::/\n", False),
    ],
)
async def test_a_process_has_arrived_once_it_is_in_the_scope(place, tmp_path, groups, is_there):
    file = tmp_path / "cgroup"
    file.write_text(groups)
    assert has_arrived(place, file) is is_there
