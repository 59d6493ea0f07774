import pytest

from podslice.kernel.host import read_possible
from tests.unit.builders import make_files


@pytest.mark.parametrize(
    ("name", "expected"), [("AllowedCPUs", "0-7"), ("AllowedMemoryNodes", "0"), ("MemoryMax", "")]
)
def test_all_that_a_machine_may_have(name, expected, tmp_path):
    system = "sys/devices/system"
    make_files(tmp_path, {f"{system}/cpu/possible": "0-7\n", f"{system}/node/possible": "0\n"})
    assert read_possible(name, tmp_path) == expected


@pytest.mark.parametrize("files", [{}, {"sys/devices/system/node/possible": "all\n"}])
def test_nothing_is_known(files, tmp_path):
    make_files(tmp_path, files)
    assert read_possible("AllowedMemoryNodes", tmp_path) == ""
