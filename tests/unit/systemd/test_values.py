import pytest

from podslice.errors import BadMessage
from podslice.model.unit import TransientUnit, UnitName
from podslice.systemd.manager import path_of
from podslice.systemd.values import (
    encode,
    exists,
    is_as_requested,
    is_implied,
    unpack,
)

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
    assert path_of(UnitName(name)) == f"/org/freedesktop/systemd1/unit/{path}"


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
def test_existing_units(change: dict[str, object], *, there: bool, implied: bool) -> None:
    assert exists(FRESH | change) == there
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
def test_units_as_requested(found: dict[str, object], *, expected: bool) -> None:
    properties = {"CPUWeight": 5, "Wants": ("a.slice",), "PIDs": (1,)}
    unit = TransientUnit(name=UnitName("x.scope"), properties=properties)
    assert is_as_requested(unit, FRESH | found) == expected


@pytest.mark.parametrize(("words", "expected"), [(("sh", "-c"), True), (("sh",), False)])
def test_a_service_has_the_requested_command(words: tuple[str, ...], *, expected: bool) -> None:
    ran = ("/bin/sh", words, False, 17, 0, 0, 0, 55, 0, 0)  # and when, and its process id
    unit = TransientUnit(
        name=UnitName("x.service"), properties={"ExecStart": (("/bin/sh", ("sh", "-c"), False),)}
    )
    assert is_as_requested(unit, FRESH | {"ExecStart": (ran,)}) == expected


def test_options_of_a_mount_are_formatted_by_the_kernel() -> None:
    asked = {"What": "tmpfs", "Options": "mode=0777,size=1048576"}
    found = {"What": "tmpfs", "Options": "rw,relatime,size=1024k,mode=777"}
    unit = TransientUnit(name=UnitName("x.mount"), properties=asked)
    assert is_as_requested(unit, FRESH | found)
    assert not is_as_requested(unit, FRESH | found | {"What": "none"})


def test_descriptors_are_named_by_their_position() -> None:
    descriptors: list[int] = []
    first, second = (encode({"PIDFDs": fds}, descriptors) for fds in ((7, 9), (5,)))
    assert descriptors == [7, 9, 5]
    assert [encoded[0][1].value for encoded in (first, second)] == [[0, 1], [2]]  # type: ignore[attr-defined]


def test_cpus_are_an_array_of_octets_on_the_bus() -> None:
    ((name, sent),) = encode({"AllowedCPUs": "0-3,8"}, [])
    assert (name, sent.signature, sent.value) == ("AllowedCPUs", "ay", b"\x0f\x01")  # type: ignore[attr-defined]
    assert unpack("AllowedCPUs", (0x0F, 0x01, 0)) == "0-3,8"


def test_limits_of_other_devices_are_removed_first() -> None:
    sent = encode({"IOReadIOPSMax": "/srv 5; /dev/sda 10"}, [])
    contents = [(name, each.signature, each.value) for name, each in sent]  # type: ignore[attr-defined]
    assert contents == [
        ("IOReadIOPSMax", "a(st)", []),
        ("IOReadIOPSMax", "a(st)", [["/dev/sda", 10], ["/srv", 5]]),
    ]
    assert len(encode({"IOReadIOPSMax": ""}, [])) == 1
    assert unpack("IOReadIOPSMax", (("/srv", 5), ("/dev/sda", 10))) == "/dev/sda 10; /srv 5"


def test_a_partition_that_was_never_set_is_none() -> None:
    ((name, sent),) = encode({"CPUSetPartition": "isolated"}, [])
    assert (name, sent.signature, sent.value) == ("CPUSetPartition", "s", "isolated")  # type: ignore[attr-defined]
    assert [unpack("CPUSetPartition", value) for value in ("", "root")] == ["member", "root"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("CPUSetPartition", value) for value in (1, (), (("/", 1),))),
        *(("AllowedCPUs", value) for value in ("0-3", (256,), (-1,), (True,), ("0",))),
        *(("IOReadIOPSMax", value) for value in ("/ 1", (1,), (("/", "1"),), (("/", 1, 2),))),
    ],
)
def test_values_of_other_types_are_malformed(name: str, value: object) -> None:
    with pytest.raises(BadMessage, match=f"{name} is .*, not a value of the expected type"):
        unpack(name, value)
