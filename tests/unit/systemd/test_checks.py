import pytest

from podslice.errors import BadProperty
from podslice.model.properties import PROPERTIES
from podslice.model.unit import INFINITY, TransientUnit, UnitName, Value
from podslice.systemd.checks import check_name, check_properties, check_unit

SLICE = UnitName("a-b.slice")
SCOPE = UnitName("a.scope")


@pytest.mark.parametrize("name", ["a.slice", "a-b.slice", "-.slice", "x-y--z.scope", "a.b.slice"])
def test_good_names(name: str) -> None:
    check_name(UnitName(name))


@pytest.mark.parametrize(
    "name", ["", "a", ".slice", "a--b.slice", "-a.slice", "a.service", "a b.slice"]
)
def test_bad_names(name: str) -> None:
    with pytest.raises(BadProperty, match="not the name of a slice or scope"):
        check_name(UnitName(name))


@pytest.mark.parametrize("row", PROPERTIES.values(), ids=lambda row: row.name)
def test_every_property_has_a_type_that_is_checked(row: object) -> None:
    assert isinstance(row, type(PROPERTIES["CPUWeight"]))
    name = SLICE if SLICE.endswith(tuple(row.kinds)) else SCOPE
    with pytest.raises(TypeError, match=row.name):
        check_properties(name, {row.name: 0.5})  # type: ignore[dict-item]


GOOD: list[tuple[UnitName, str, Value]] = [
    (SLICE, "MemoryMax", INFINITY),
    (SLICE, "CPUWeight", INFINITY),
    (SLICE, "CPUWeight", 0),
    (SLICE, "Wants", ("a.slice",)),
    (SLICE, "Wants", ()),
    (SCOPE, "PIDs", (1, 2)),
    (SCOPE, "Slice", "a.slice"),
]


@pytest.mark.parametrize(("name", "key", "value"), GOOD)
def test_good_values(name: UnitName, key: str, value: Value) -> None:
    check_unit(TransientUnit(name=name, properties={key: value}))


BAD: list[tuple[UnitName, str, Value]] = [
    (SLICE, "MemoryMax", 0),
    (SLICE, "MemoryMax", -1),
    (SLICE, "MemoryMax", 2**64),
    (SLICE, "CPUWeight", 10_001),
    (SLICE, "PIDs", (1,)),
    (SLICE, "Delegate", True),
    (SLICE, "ExecStart", "sh"),
]


@pytest.mark.parametrize(("name", "key", "value"), BAD)
def test_bad_values(name: UnitName, key: str, value: Value) -> None:
    with pytest.raises(BadProperty, match=f"^{name}: {key}: "):
        check_unit(TransientUnit(name=name, properties={key: value}))


WRONG: list[tuple[str, Value]] = [
    ("MemoryMax", "1"),
    ("MemoryMax", True),
    ("CPUAccounting", 1),
    ("Description", 1),
    ("Wants", "a.slice"),
    ("Wants", (1,)),
    ("Wants", ["a.slice"]),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_wrong_types(key: str, value: Value) -> None:
    with pytest.raises(TypeError, match=key):
        check_properties(SLICE, {key: value})
