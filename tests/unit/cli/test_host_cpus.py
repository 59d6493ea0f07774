"""The CPUs that units have now, read from their control groups."""

import pytest

from podslice.cli.host import read_cpus
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.unit import SYSTEM, Manager
from tests.unit.builders import guaranteed, make_files, pod


@pytest.mark.parametrize(
    ("manager", "above"),
    [(SYSTEM, ""), (Manager(uid=1, control_group="/user"), "user/")],
)
def test_the_cpus_of_units_are_those_of_their_control_groups(tmp_path, manager, above):
    pods = f"{above}kubepods.slice"
    files = {
        f"{pods}/kubepods-burstable.slice/cpuset.cpus": "0,4\n",
        f"{pods}/kubepods-podrun.slice/cpuset.cpus": "1-2\n",
        f"{pods}/kubepods-podrun.slice/podslice-podrun-main.scope/cpuset.cpus": "1\n",
        f"{pods}/kubepods-podserve.slice/cpuset.cpus": "3\n",
        f"{pods}/kubepods-podserve.slice/podslice-podserve-main.service/cpuset.cpus": "3\n",
        f"{pods}/kubepods-podall.slice/cpuset.cpus": "\n",
    }
    make_files(tmp_path, {"cgroup.controllers": "cpuset\n", **files})
    applied = [guaranteed(name) for name in ("run", "serve", "all")]
    found = read_cpus(Config(), [*applied, pod("none")], manager, CgroupFs(mount=tmp_path))
    assert found == {
        "kubepods-burstable.slice": "0,4",
        "kubepods-podrun.slice": "1-2",
        "podslice-podrun-main.scope": "1",
        "kubepods-podserve.slice": "3",
        "podslice-podserve-main.scope": "3",
    }
    assert read_cpus(Config(), applied, manager, CgroupFs(mount=tmp_path / "none")) == {}
