"""The scripts of units, with a program in place of podman."""

import os
import subprocess

import pytest

from podslice.features.quadlet.result import PODMAN
from podslice.features.quadlet.volume_units import _SET_GROUP

pytestmark = pytest.mark.usefixtures("allow_effects")


@pytest.fixture
def volume(tmp_path):
    top = tmp_path / "volume"
    (top / "inner").mkdir(parents=True)
    (top / "inner/file").write_text("")
    (tmp_path / "other").write_text("")
    (top / "link").symlink_to(tmp_path / "other")
    for path, mode in ((top, 0o755), (top / "inner", 0o700), (top / "inner/file", 0o604)):
        path.chmod(mode)
    (tmp_path / "other").chmod(0o600)
    podman = tmp_path / "podman"
    podman.write_text(f"#!/bin/sh\necho {top}\n")
    podman.chmod(0o755)
    return top


def set_group(volume, *stated):
    script = _SET_GROUP.replace(PODMAN, str(volume.parent / "podman"))
    arguments = ["sh", "-c", script, "sh", "name", str(os.getgid()), *stated]
    subprocess.run(arguments, check=True)
    paths = (volume, volume / "inner", volume / "inner/file", volume.parent / "other")
    return [each.stat().st_mode & 0o7777 for each in paths]


ALL = [0o2775, 0o2770, 0o664, 0o600]


@pytest.mark.parametrize(
    ("rights", "mode", "expected"),
    [("rw", "-2770", ALL), ("r", "-2550", [0o2755, 0o2750, 0o644, 0o600])],
)
@pytest.mark.parametrize("policy", ["Always", "OnRootMismatch"])
def test_a_group_may_use_all_of_a_volume(volume, policy, rights, mode, expected):
    assert set_group(volume, policy, rights, mode) == expected


def test_a_volume_whose_top_has_the_group_remains_as_it_is(volume):
    volume.chmod(0o2770)
    before = [0o2770, 0o700, 0o604, 0o600]
    assert set_group(volume, "OnRootMismatch", "rw", "-2770") == before
    assert set_group(volume, "Always", "rw", "-2770") == [0o2770, *ALL[1:]]
