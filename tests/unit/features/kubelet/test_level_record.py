"""The record of the values on slices of a kubelet."""

import pytest

from podslice.errors import HostError
from podslice.features.kubelet.levels import LevelRecord
from podslice.model.unit import UnitName
from tests.cases.tables import cases

OWN = {UnitName("kubepods-poda.slice"): {"CPUWeight": 20, "MemoryMax": 4096}}


def test_values_are_kept_until_there_are_none(tmp_path):
    record, path = LevelRecord(tmp_path), tmp_path / "pod-levels.json"
    record.save({})
    assert record.read() == {}
    record.save(OWN)
    assert LevelRecord(tmp_path).read() == OWN
    before = path.stat().st_ino
    record.save(OWN)
    assert path.stat().st_ino == before
    record.save({})
    assert not path.exists()


@cases
def test_a_damaged_record_has_no_values(tmp_path, text):
    (tmp_path / "pod-levels.json").write_text(text)
    assert LevelRecord(tmp_path).read() == {}
    LevelRecord(tmp_path).save(OWN)
    assert LevelRecord(tmp_path).read() == OWN


def test_a_record_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="file"):
        LevelRecord(tmp_path / "file").save(OWN)
