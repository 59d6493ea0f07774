"""Who has used the processors, from files as the kernel writes them."""

import time

import pytest

from tests.bench.load import TICKS_PER_SEC, busy_sec, own_sec, watch_load


def write_process(proc, pid, parent, *ticks, name="x"):
    (proc / str(pid)).mkdir(parents=True)
    fields = ["S", str(parent), *["0"] * 9, *map(str, ticks), "20", "0"]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def test_idle_and_waiting_are_not_busy(tmp_path):
    (tmp_path / "stat").write_text("cpu  100 10 50 9999 8888 5 3 2 100 10\ncpu0 1 1 1 1\n")
    assert busy_sec(tmp_path) == pytest.approx((100 + 10 + 50 + 5 + 3 + 2) / TICKS_PER_SEC)


def test_only_descendants_count(tmp_path):
    write_process(tmp_path, 1, 0, 1000, 1000, 1000, 1000)
    write_process(tmp_path, 10, 1, 1, 2, 3, 4)
    write_process(tmp_path, 11, 10, 10, 20, 30, 40, name="a) S 1 (b")
    write_process(tmp_path, 12, 11, 100, 0, 0, 0)
    write_process(tmp_path, 20, 1, 5000, 0, 0, 0)
    (tmp_path / "self").mkdir()
    assert own_sec(tmp_path, 10) == pytest.approx((10 + 100 + 100) / TICKS_PER_SEC)
    assert own_sec(tmp_path, 12) == pytest.approx(100 / TICKS_PER_SEC)


def test_foreign_load_disturbs(monkeypatch):
    busy = iter([10.0, 11.5])
    own = iter([1.0, 1.2])
    monkeypatch.setattr("tests.bench.load.busy_sec", lambda: next(busy))
    monkeypatch.setattr("tests.bench.load.own_sec", lambda: next(own))
    with watch_load() as load:
        time.sleep(0.01)
    assert load.foreign_sec == pytest.approx(1.3)
    assert load.is_disturbed
