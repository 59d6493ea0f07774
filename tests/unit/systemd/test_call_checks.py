import pytest

from podslice.errors import BadProperty
from podslice.model.properties import PROPERTIES
from podslice.model.unit import INFINITY, TransientUnit, UnitKind, UnitName, Value, kind_of
from podslice.systemd.client import PIDFDS_MAX, Change, Verb, check_change, check_name

SLICE = UnitName("a-b.slice")
SCOPE = UnitName("a.scope")
SERVICE = UnitName("a.service")
MOUNT = UnitName("a.mount")
TIMER = UnitName("a.timer")


def start(name: UnitName, properties: dict[str, Value]) -> Change:
    unit = TransientUnit(name=name, properties=properties)
    return Change(Verb.START, (name,), (unit,))


def set_(name: UnitName, properties: dict[str, Value]) -> Change:
    return Change(Verb.SET_PROPERTIES, (name,), properties=properties)


@pytest.mark.parametrize(
    "name", ["a.slice", "-.slice", "x-y--z.scope", "a.b.slice", "a--b.service", r"run-a\x2db.mount"]
)
def test_good_names(name: str) -> None:
    check_name(UnitName(name))


@pytest.mark.parametrize(
    "name", ["", "a", ".slice", "a--b.slice", "-a.slice", "a.socket", "a b.slice", "a-.mount"]
)
def test_bad_names(name: str) -> None:
    with pytest.raises(
        BadProperty, match="not the name of a slice, scope, service, mount or timer"
    ):
        check_name(UnitName(name))


@pytest.mark.parametrize("row", PROPERTIES.values(), ids=lambda row: row.name)
def test_every_property_has_a_type_that_is_checked(row: object) -> None:
    assert isinstance(row, type(PROPERTIES["CPUWeight"]))
    name = UnitName(f"a.{min(row.kinds)}")
    with pytest.raises(TypeError, match=row.name):
        check_change(set_(name, {row.name: 0.5}))  # type: ignore[dict-item]


GOOD: list[tuple[UnitName, str, Value]] = [
    (SLICE, "MemoryMax", INFINITY),
    (SLICE, "CPUWeight", INFINITY),
    (SLICE, "CPUWeight", 0),
    (SLICE, "Wants", ("a.slice",)),
    (SLICE, "Wants", ()),
    (SCOPE, "PIDs", (1, 2)),
    (SCOPE, "Slice", "a.slice"),
    (SCOPE, "PIDFDs", tuple(range(PIDFDS_MAX))),
    (SCOPE, "TimeoutStopUSec", INFINITY),
    (SERVICE, "MemoryMax", 4096),
    (SERVICE, "ExecStart", (("/bin/sh", ("sh", "-c", "true"), False),)),
    (SERVICE, "ExecStart", ()),
    (SERVICE, "OOMScoreAdjust", -1000),
    (SERVICE, "Environment", ("A=b",)),
    (SERVICE, "Type", "exec"),
    (SLICE, "AllowedCPUs", "0-3,8"),
    (SLICE, "AllowedCPUs", ""),
    (SLICE, "IOWeight", INFINITY),
    (SCOPE, "IOReadIOPSMax", "/dev/sda 10; /srv 5"),
    (MOUNT, "Type", "tmpfs"),
    (MOUNT, "DirectoryMode", 0o7777),
    (MOUNT, "Slice", "a.slice"),
    (TIMER, "TimersMonotonic", (("OnActiveSec", 1),)),
]


@pytest.mark.parametrize(("name", "key", "value"), GOOD)
def test_good_values(name: UnitName, key: str, value: Value) -> None:
    check_change(start(name, {key: value}))


BAD: list[tuple[UnitName, str, Value]] = [
    (SLICE, "MemoryMax", 0),
    (SLICE, "MemoryMax", -1),
    (SLICE, "MemoryMax", 2**64),
    (SLICE, "CPUWeight", 10_001),
    (SLICE, "PIDs", (1,)),
    (SLICE, "Delegate", True),
    (SLICE, "ExecStart", "sh"),
    (SLICE, "Slice", "a.slice"),
    (SLICE, "TimeoutStopUSec", 1),
    (SCOPE, "ExecStart", ()),
    (SCOPE, "Type", "exec"),
    (SCOPE, "PIDFDs", tuple(range(PIDFDS_MAX + 1))),
    (SERVICE, "PIDs", (1,)),
    (SERVICE, "OOMScoreAdjust", 1001),
    (MOUNT, "MemoryMax", 4096),
    (MOUNT, "AllowedCPUs", "0"),
    (SLICE, "AllowedCPUs", "0 1"),
    (SLICE, "AllowedCPUs", "all"),
    (SLICE, "IOWeight", 0),
    (SLICE, "IOReadIOPSMax", "/srv 5; /dev/sda 10"),
    (TIMER, "Slice", "a.slice"),
    (TIMER, "AccuracyUSec", 0),
    (MOUNT, "DirectoryMode", 0o10000),
]


@pytest.mark.parametrize(("name", "key", "value"), BAD)
def test_bad_values(name: UnitName, key: str, value: Value) -> None:
    with pytest.raises(BadProperty, match=f"^{name}: {key}: "):
        check_change(start(name, {key: value}))


WRONG: list[tuple[UnitName, str, object]] = [
    (SLICE, "MemoryMax", "1"),
    (SLICE, "MemoryMax", True),
    (SLICE, "CPUAccounting", 1),
    (SLICE, "Description", 1),
    (SLICE, "Wants", "a.slice"),
    (SLICE, "Wants", (1,)),
    (SLICE, "Wants", ["a.slice"]),
    (SCOPE, "PIDs", (True,)),
    (SERVICE, "ExecStart", ("/bin/sh", ("sh",), False)),
    (SERVICE, "ExecStart", (("/bin/sh", ("sh",)),)),
    (SERVICE, "ExecStart", (("/bin/sh", ("sh",), False, 1),)),
    (SERVICE, "ExecStart", (("/bin/sh", ["sh"], False),)),
    (TIMER, "TimersMonotonic", (("OnActiveSec", "1s"),)),
    (SERVICE, "ExecStart", (("/bin/sh", ("sh",), 0),)),
]


@pytest.mark.parametrize(("name", "key", "value"), WRONG)
def test_wrong_types(name: UnitName, key: str, value: Value) -> None:
    with pytest.raises(TypeError, match=key):
        check_change(set_(name, {key: value}))


def test_the_kind_of_a_unit_is_its_suffix() -> None:
    assert [kind_of(name) for name in (SLICE, SCOPE, SERVICE, MOUNT, TIMER)] == list(UnitKind)
