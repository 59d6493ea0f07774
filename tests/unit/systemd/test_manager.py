import pytest

from podslice.model.unit import TransientUnit, UnitName
from podslice.systemd.manager import _path_of, is_as_asked, is_implied, is_there

FRESH = {"LoadState": "loaded", "ActiveState": "active", "FragmentPath": ""}
FRESH |= {"Transient": True, "Perpetual": False}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a-b.slice", "a_2db_2eslice"),
        ("-.slice", "_2d_2eslice"),
        ("1a.slice", "_31a_2eslice"),
        ("pod0a_1.scope", "pod0a_5f1_2escope"),
        (r"a\x2db.scope", "a_5cx2db_2escope"),
    ],
)
def test_object_paths(name: str, path: str) -> None:
    assert _path_of(UnitName(name)) == f"/org/freedesktop/systemd1/unit/{path}"


@pytest.mark.parametrize(
    ("change", "there", "implied"),
    [
        ({}, True, False),
        ({"Transient": False}, True, True),
        ({"Transient": False, "Perpetual": True}, True, False),
        ({"Transient": False, "FragmentPath": "/etc/x.slice"}, True, False),
        ({"Transient": False, "FragmentPath": "/x", "ActiveState": "inactive"}, True, False),
        ({"ActiveState": "failed"}, True, False),
        ({"ActiveState": "inactive"}, True, False),
        ({"Transient": False, "ActiveState": "inactive"}, False, True),
        ({"LoadState": "not-found", "ActiveState": "failed"}, False, False),
    ],
)
def test_what_is_there(change: dict[str, object], *, there: bool, implied: bool) -> None:
    assert is_there(FRESH | change) == there
    assert is_implied(FRESH | change) == implied


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"CPUWeight": 5, "Wants": ("a.slice", "b.slice")}, True),
        ({"CPUWeight": 5}, True),
        ({"CPUWeight": 6, "Wants": ("a.slice",)}, False),
        ({"CPUWeight": 5, "Wants": ()}, False),
        ({"CPUWeight": 5, "Transient": False}, False),
    ],
)
def test_what_is_as_asked(found: dict[str, object], *, expected: bool) -> None:
    properties = {"CPUWeight": 5, "Wants": ("a.slice",), "PIDs": (1,)}
    unit = TransientUnit(name=UnitName("x.scope"), properties=properties)
    assert is_as_asked(unit, FRESH | found) == expected
