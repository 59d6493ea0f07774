import pytest

from podslice.kernel.proc import find_kubelets
from tests.cases.tables import cases
from tests.unit.builders import make_files, run_process


def found(tmp_path):
    return [(each.pid, each.name) for each in find_kubelets(tmp_path / "host") if each]


@cases
def test_programs_that_contain_a_kubelet(tmp_path, line):
    name, *arguments = line.split()
    run_process(tmp_path, 42, name, *arguments)
    assert found(tmp_path) == [(42, name)]


@cases
def test_programs_that_contain_none(tmp_path, line):
    name, *arguments = line.split()
    run_process(tmp_path, 42, name, *arguments)
    assert found(tmp_path) == []


@cases
def test_a_process_that_merely_calls_itself_kubelet(tmp_path, how):
    run_process(tmp_path, 1, "systemd")
    run_process(tmp_path, 42, "kubelet", **how)
    assert found(tmp_path) == []


def test_all_user_ids_count(tmp_path):
    run_process(tmp_path, 42, "kubelet")
    status = tmp_path / "host/proc/42/status"
    status.write_text(status.read_text().replace("Uid:\t0", "Uid:\t1000"))
    assert found(tmp_path) == []


@pytest.mark.parametrize(("own", "login"), [(1000, 1000), (2**32 - 1, 0)])
def test_a_system_that_was_itself_started_from_a_login(tmp_path, own, login):
    run_process(tmp_path, 1, "systemd", login=own)
    run_process(tmp_path, 42, "kubelet", login=login)
    assert found(tmp_path) == [(42, "kubelet")]


def test_a_process_that_terminates_meanwhile(tmp_path):
    make_files(tmp_path / "host", {"proc/42/comm": "kubelet\n", "proc/meminfo": ""})
    assert found(tmp_path) == []
    assert list(find_kubelets(tmp_path / "none")) == []


def test_there_is_one_value_for_each_process(tmp_path):
    for pid in (1, 2, 3):
        run_process(tmp_path, pid, "systemd")
    assert list(find_kubelets(tmp_path / "host")) == [None, None, None]
