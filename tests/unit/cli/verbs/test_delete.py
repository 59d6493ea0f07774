"""`delete`."""

import pytest


@pytest.mark.parametrize("seconds", ["-1", "x", "1.5", "10000000"])
def test_a_grace_period_is_a_number_of_seconds(podslice, web, memory, seconds):
    ended = podslice("delete", "--all", f"--grace-period={seconds}")
    assert (ended.code, ended.out) == (2, "")
    assert "--grace-period" in ended.err
    assert not memory.calls
