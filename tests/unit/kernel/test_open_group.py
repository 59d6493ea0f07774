"""The attribute in which systemd-oomd counts its kills."""

import pytest

from podslice.kernel.cgroup import CgroupFs, OpenGroup
from tests.unit.agent.fakes import Oomd

GROUP = "/kubepods.slice/a.scope"


@pytest.fixture
def cgroups(tmp_path):
    (tmp_path / GROUP.lstrip("/")).mkdir(parents=True)
    return CgroupFs(mount=tmp_path)


@pytest.fixture
def group(cgroups):
    opened = OpenGroup.open(cgroups, GROUP)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("value", "kills"),
    [(b"0", 0), (b"1", 1), (b"12", 12), (b"", 0), (b"-1", 0), (b"1\n", 0), (b"9" * 19, 0)],
)
def test_kills_are_read_after_the_group_is_removed(cgroups, group, monkeypatch, value, kills):
    oomd = Oomd(monkeypatch)
    assert group.oomd_kills() == 0
    directory = cgroups.directory(GROUP)
    oomd.kill(directory, value)
    directory.rmdir()
    assert group.oomd_kills() == kills


def test_another_group_of_the_same_name_is_not_this_one(cgroups, group):
    assert group.is_at(cgroups, GROUP)
    cgroups.directory(GROUP).rmdir()
    assert not group.is_at(cgroups, GROUP)
    cgroups.directory(GROUP).mkdir()
    assert not group.is_at(cgroups, GROUP)


def test_a_group_that_does_not_exist_is_not_opened(cgroups):
    assert OpenGroup.open(cgroups, "/no.scope") is None
