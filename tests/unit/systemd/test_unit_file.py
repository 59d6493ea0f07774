import os
from pathlib import Path

import pytest

from podslice.errors import HostError, InputError
from podslice.model.pod import Qos
from podslice.model.unit import INFINITY
from podslice.systemd.unit_file import HEAD, unit_files, write_unit_files
from tests.unit.builders import burstable, config, desired, desired_for, scope_unit, slice_unit

WEB = "kubepods-burstable-podweb.slice"


def test_a_pods_slice_as_a_file():
    web = burstable("web", "cpu=500m,memory=256Mi", "cpu=1100m,memory=512Mi")
    assert unit_files(desired_for(web))[WEB] == (
        "# Made by podslice render; changes are lost when it is made anew.\n"
        "\n"
        "[Unit]\n"
        "Description=Pod default/web (Burstable)\n"
        "DefaultDependencies=no\n"
        "Wants=kubepods-burstable.slice\n"
        "\n"
        "[Slice]\n"
        "IOAccounting=yes\n"
        "MemoryAccounting=yes\n"
        "TasksAccounting=yes\n"
        "# limits.cpu 1100m → 1100000 µs per second\n"
        "CPUQuota=110%\n"
        "# requests.cpu 500m → 512 shares → ×100/1024\n"
        "CPUWeight=50\n"
        "# requests.memory 256Mi\n"
        "MemoryLow=268435456\n"
        "# limits.memory 512Mi\n"
        "MemoryMax=536870912\n"
        "\n"
        "[Install]\n"
        "WantedBy=slices.target\n"
    )


def test_what_systemd_oomd_may_do_in_a_tier():
    settings = config(oomd_tiers=frozenset({Qos.BESTEFFORT}), oomd_memory_pressure_limit_percent=60)
    files = unit_files(desired_for(burstable("web"), by=settings))
    kept = [line for line in files["kubepods-besteffort.slice"].splitlines() if "OOM" in line]
    assert kept == [
        "ManagedOOMMemoryPressure=kill",
        "ManagedOOMMemoryPressureLimit=60%",
        "ManagedOOMSwap=kill",
    ]
    assert "OOM" not in files["kubepods-burstable.slice"]


def test_slices_of_others_get_a_drop_in():
    reserved = slice_unit("system.slice", owned=False, CPUWeight=50)
    assert unit_files(desired(reserved)) == {
        "system.slice.d/50-podslice.conf": (f"{HEAD}\n\n[Slice]\n# why CPUWeight\nCPUWeight=50\n")
    }


def test_the_root_of_the_tree_wants_nothing():
    text = unit_files(desired(slice_unit("kubepods.slice")))["kubepods.slice"]
    assert "Wants=" not in text


def test_scopes_are_no_files():
    assert unit_files(desired(scope_unit("podslice-poda-main.scope", WEB))) == {}


def test_specifiers_are_escaped():
    text = unit_files(desired(slice_unit("a.slice", description="100% of %n")))["a.slice"]
    assert "Description=100%% of %%n\n" in text


def test_no_limit_is_written_as_systemd_reads_it():
    text = unit_files(desired(slice_unit("a.slice", MemoryMax=INFINITY, TasksMax=5)))["a.slice"]
    assert "MemoryMax=infinity\n" in text
    assert "TasksMax=5\n" in text


def test_every_slice_has_a_file():
    by = config(
        kube_reserved={"cpu": 500},
        kube_reserved_cgroup="/podruntime.slice",
        enforce_node_allocatable=frozenset({"pods", "kube-reserved"}),
    )
    assert sorted(unit_files(desired_for(burstable("web"), by=by))) == [
        "kubepods-besteffort.slice",
        WEB,
        "kubepods-burstable.slice",
        "kubepods.slice",
        "podruntime.slice.d/50-podslice.conf",
    ]


def test_files_are_written_with_their_directories(tmp_path):
    files = {"a.slice": f"{HEAD}\n", "b.slice.d/50-podslice.conf": f"{HEAD}\n"}
    directory = tmp_path / "new" / "units"
    assert write_unit_files(files, directory) == [str(directory / name) for name in files]
    assert (directory / "b.slice.d/50-podslice.conf").read_text() == f"{HEAD}\n"


def test_own_files_are_written_anew(tmp_path):
    (tmp_path / "a.slice").write_text(f"{HEAD}\nold\n")
    write_unit_files({"a.slice": f"{HEAD}\nnew\n"}, tmp_path)
    assert (tmp_path / "a.slice").read_text() == f"{HEAD}\nnew\n"


@pytest.mark.parametrize("content", [b"[Slice]\n", b"", b"\xff\xfe"])
def test_a_foreign_file_is_refused_and_nothing_is_written(tmp_path, content):
    (tmp_path / "b.slice").write_bytes(content)
    with pytest.raises(InputError) as caught:
        write_unit_files({"a.slice": f"{HEAD}\n", "b.slice": f"{HEAD}\n"}, tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'b.slice'}: the file is there already, and not from podslice;"
        " remove it, or choose another directory"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["b.slice"]
    assert (tmp_path / "b.slice").read_bytes() == content


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_something_else_in_the_place_of_a_file_is_foreign(tmp_path, make):
    make(tmp_path / "a.slice")
    with pytest.raises(InputError):
        write_unit_files({"a.slice": ""}, tmp_path)


def test_a_path_that_is_too_long_is_an_error_of_the_host(tmp_path):
    with pytest.raises(HostError, match="File name too long"):
        write_unit_files({"a.slice": HEAD}, tmp_path / ("a" * 300))


def test_a_directory_that_can_not_be_is_an_error_of_the_host(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"Not a directory|File exists"):
        write_unit_files({"x.slice.d/50.conf": HEAD}, tmp_path / "file")
