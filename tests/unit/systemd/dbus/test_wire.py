"""The decoder of incoming messages, against dbus-next's marshaller and by hand."""

import random
import struct
from contextlib import suppress
from typing import Any

import pytest
from podslice.systemd.dbus.library._private.marshaller import Marshaller
from podslice.systemd.dbus.library.message import Message
from podslice.systemd.dbus.library.signature import Variant

from podslice.errors import BadMessage
from podslice.systemd.dbus import wire

BOUNDS = {"y": (0, 255), "n": (-(2**15), 2**15 - 1), "q": (0, 2**16 - 1)}
BOUNDS |= {"i": (-(2**31), 2**31 - 1), "u": (0, 2**32 - 1)}
BOUNDS |= {"x": (-(2**63), 2**63 - 1), "t": (0, 2**64 - 1)}
WORDS = ["", "a", "äöü", "kubepods.slice", "x" * 300]


def random_type(source: random.Random, depth: int = 0) -> str:
    simple = "ybnqiuxtdsog"
    kind = source.choice(simple + "" if depth > 2 else simple + "aa(({{vv")
    match kind:
        case "a":
            return "a" + random_type(source, depth + 1)
        case "(":
            return "(" + "".join(random_type(source, depth + 1) for _ in range(3)) + ")"
        case "{":
            return "a{s" + random_type(source, depth + 1) + "}"
    return kind


SIMPLE: dict[str, list[Any]] = {
    **{type_: [*bounds, 0, 1] for type_, bounds in BOUNDS.items()},
    "b": [True, False],
    "d": [0.5, -1.0],
    "s": WORDS,
    "o": ["/", "/org/a_2d"],
    "g": ["", "a{sv}"],
}


def random_value(source: random.Random, type_: str) -> tuple[Any, Any]:
    """A value as dbus-next takes it, and as we give it."""
    if type_ in SIMPLE:
        value = source.choice(SIMPLE[type_])
        return value, value
    if type_ == "v":
        inner = random_type(source, 2)
        given, expected = random_value(source, inner)
        return Variant(inner, given), expected
    if type_[0] == "(":
        members = [random_value(source, member) for member in wire.split_types(type_[1:-1])]
        return [given for given, _ in members], tuple(expected for _, expected in members)
    return random_array(source, type_[1:])


def random_array(source: random.Random, element: str) -> tuple[Any, Any]:
    if element[0] == "{":
        pairs = {word: random_value(source, element[2:-1]) for word in source.sample(WORDS, 2)}
        given = {key: pair[0] for key, pair in pairs.items()}
        return given, {key: pair[1] for key, pair in pairs.items()}
    items = [random_value(source, element) for _ in range(source.randrange(4))]
    given = [given for given, _ in items]
    return bytes(given) if element == "y" else given, tuple(expected for _, expected in items)


@pytest.mark.parametrize("seed", range(300))
def test_reads_and_skips_values_of_dbus_next(seed: int) -> None:
    source = random.Random(seed)
    types = [random_type(source) for _ in range(4)]
    values = [random_value(source, type_) for type_ in types]
    data = Marshaller("".join(types), [given for given, _ in values]).marshall()
    reader = wire.WireReader(bytes(data))
    assert wire.split_types("".join(types)) == tuple(types)
    assert [reader.read(type_) for type_ in types] == [expected for _, expected in values]
    assert reader.position == len(data)
    skipper = wire.WireReader(bytes(data))
    for type_ in types:
        skipper.skip(type_)
    assert skipper.position == len(data)


ROWS = [["web.slice", "/org/w", 7], ["", "/", 0], ["é", "/x", 2**32 - 1]]


def test_reads_rows_of_strings_and_numbers() -> None:
    data = bytes(Marshaller("a(sou)s", [ROWS, "end"]).marshall())
    reader = wire.WireReader(data)
    assert reader.read("a(sou)") == tuple(map(tuple, ROWS))
    assert reader.read("s") == "end"
    assert wire.WireReader(bytes(8)).read("a(sou)") == ()


def test_rows_that_exceed_their_array_are_malformed() -> None:
    data = bytes(Marshaller("a(sou)s", [ROWS, "end"]).marshall())
    (length,) = struct.unpack_from("<I", data)
    for wrong in {*range(1, length + 9)} - {length}:
        broken = struct.pack("<I", wrong) + data[4:]
        reader = wire.WireReader(broken)
        with suppress(*wire.MALFORMED):
            found = reader.read("a(sou)")
            assert len(found) < len(ROWS), "the array ends after one of its structs"
            assert reader.position == 8 + wrong


@pytest.mark.parametrize("seed", range(100))
def test_reads_wanted_properties_only(seed: int) -> None:
    source = random.Random(seed)
    types = {f"Name{'x' * number}": random_type(source) for number in range(12)}
    values = {name: random_value(source, type_) for name, type_ in types.items()}
    variants = {name: Variant(types[name], given) for name, (given, _) in values.items()}
    data = bytes(Marshaller("a{sv}", [variants]).marshall())
    expected = {name: expected for name, (_, expected) in values.items()}
    for wanted in (set(), {"Namexx", "Other"}, set(types)):
        found = wire.WireReader(data).read_properties(wanted)
        assert found == {name: expected[name] for name in wanted & expected.keys()}


def test_parses_the_header_of_a_call() -> None:
    frame = Message(
        destination=":1.5",
        path="/a/b",
        interface="a.b",
        member="Do",
        signature="sa{sv}",
        body=["x", {"k": Variant("t", 7)}],
        serial=9,
    )._marshall()
    received = wire.parse_frame(bytes(frame))
    assert (received.path, received.interface, received.member) == ("/a/b", "a.b", "Do")
    assert (received.kind, received.reply_serial, received.sender) == (1, 0, "")
    assert received.body() == ("x", {"k": 7})


def test_reads_both_byte_orders() -> None:
    header = struct.pack(">BBBBIII", ord("B"), wire.SIGNAL, 0, 1, 8, 1, 7)
    fields = b"\x08\x01g\x00\x01t\x00" + b"\0"
    frame = header + fields + struct.pack(">Q", 2**40)
    assert wire.frame_bytes(frame) == len(frame)
    assert wire.parse_frame(frame).body() == (2**40,)


def test_a_frame_has_no_length_before_its_prefix_is_complete() -> None:
    frame = Message(path="/", member="M", serial=1)._marshall()
    assert [wire.frame_bytes(frame[:size]) for size in (0, 1, 15)] == [None] * 3
    assert wire.frame_bytes(frame[:16]) == len(frame)


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 400 Bad Request", b"l\2\0\1\xff\xff\xff\x7f" + bytes(8)]
)
def test_rejects_other_bytes_than_a_frame(data: bytes) -> None:
    with pytest.raises(BadMessage, match="message"):
        wire.frame_bytes(data)


@pytest.mark.parametrize("signature", ["(s", "a", "a{sv"])
def test_refuses_incomplete_signatures(signature: str) -> None:
    with pytest.raises(ValueError, match="not complete"):
        wire.split_types(signature)


@pytest.mark.parametrize("seed", range(200))
def test_broken_frames_end_in_the_errors_that_are_expected(seed: int) -> None:
    source = random.Random(seed)
    message = Message(path="/a", member="M", signature="a{sv}as", serial=1)
    message.body = [{"MemoryMax": Variant("t", 7), "Wants": Variant("as", ["a"])}, ["x", "y"]]
    frame = bytearray(message._marshall())
    for _ in range(3):
        frame[source.randrange(16, len(frame))] = source.randrange(256)
    with suppress(BadMessage):
        wire.parse_frame(bytes(frame)).body()


@pytest.mark.parametrize("type_", ["()", "a()", "z", "az", "a{}"])
def test_types_that_do_not_exist_do_not_stall(type_: str) -> None:
    data = struct.pack("<IIII", 8, 0, 1, 1)
    with pytest.raises(ValueError, match="is not a type"):
        wire.WireReader(data).read(type_)


def framed(signature: str, body: bytes, *more: bytes) -> wire.Received:
    """A reply with this body, and further fields in its header."""
    letters = signature.encode()
    fields = b"\x08\x01g\0" + bytes([len(letters)]) + letters + b"\0"
    for field in more:
        fields += bytes(-len(fields) % 8) + field
    head = struct.pack("<BBBBIII", ord("l"), 2, 0, 1, len(body), 1, len(fields))
    return wire.parse_frame(head + fields + bytes(-len(fields) % 8) + body)


VARIANT = b"\x01v\0"


@pytest.mark.parametrize(
    ("signature", "body", "message"),
    [
        ("v", VARIANT * 100_000 + b"\x01y\0\1", "more than 64 nested values"),
        ("a" * 70 + "y", struct.pack("<70I", *range(69 * 4, -1, -4)), "more than 64 nested values"),
        ("a{vy}", struct.pack("<II", 8, 0) + b"\x01y\0\1\1\0\0\0", "'v' is not a type for a key"),
        ("a{asy}", struct.pack("<IIII", 8, 0, 0, 1), "'as' is not a type for a key"),
        ("v", b"\x02yy\0\1\1", "too many values to unpack"),
        ("v", b"\0\0", "not enough values to unpack"),
        ("s", struct.pack("<I", 5) + b"abc\0", "a string exceeds the end of the message"),
        ("g", b"\x05y\0", "a string exceeds the end of the message"),
        ("ay", struct.pack("<I", 5) + b"abc\0", "an array exceeds the end of the message"),
        ("au", struct.pack("<III", 6, 1, 2), "the last value of an array exceeds its end"),
        (
            "a{yy}",
            struct.pack("<II", 1, 0) + b"\1\1",
            "the last value of an array exceeds its end",
        ),
        ("s", struct.pack("<I", 1) + b"\xff\0", "codec can't decode byte 0xff"),
        ("z", b"", "'z' is not a type"),
        ("(", b"", "not complete"),
        ("t", b"", "unpack_from requires a buffer"),
    ],
)
def test_a_malformed_body_is_one_error(signature: str, body: bytes, message: str) -> None:
    with pytest.raises(BadMessage, match=f"is malformed: .*{message}"):
        framed(signature, body).body()


def test_a_malformed_dictionary_of_properties_is_one_error() -> None:
    nested = VARIANT * 1000 + b"\x01y\0\1"
    for name in ("Wanted", "Other"):
        entry = struct.pack("<I", 6) + name.encode()[:6].ljust(6) + b"\0" + nested
        body = struct.pack("<II", len(entry), 0) + entry
        with pytest.raises(BadMessage, match="more than 64 nested values"):
            framed("a{sv}", body).properties({"Wanted"})
    with pytest.raises(BadMessage, match="exceeds its end"):
        framed("a{sv}", struct.pack("<II", 9, 0) + b"\1\0\0\0a\0\1y\0\1").properties(())
    with pytest.raises(BadMessage, match=r"has values of the types .s., not .a\{sv\}."):
        framed("s", b"\1\0\0\0a\0").properties(())


@pytest.mark.parametrize(
    "field",
    [
        b"\x01\x01s\0\0\0\0\0\0",  # a path that is a text
        b"\x05\x01s\0\0\0\0\0\0",  # a serial that is a text
        b"\x07\x05a{sv}\0\0\0\0\0\0\0\0",  # a sender that cannot be a key
        b"\x08\x01u\0\0\0\0\0",  # a signature that is a number
        b"\x63" + VARIANT * 500,  # an unknown field, nested
    ],
)
def test_a_header_with_fields_of_other_types_is_one_error(field: bytes) -> None:
    with pytest.raises(BadMessage, match="a message is malformed"):
        framed("y", b"\1", field)


def test_a_header_beyond_the_end_of_its_message_is_one_error() -> None:
    for fields, body in ((200, 0), (0, 1), (0, 2**31)):
        head = struct.pack("<BBBBIII", ord("l"), 2, 0, 1, body, 1, fields)
        with pytest.raises(BadMessage):
            wire.parse_frame(head)


def test_an_unknown_field_is_ignored() -> None:
    assert framed("y", b"\1", b"\x63\x01y\0\7").body("y") == (1,)


def test_values_of_other_types_than_expected_are_one_error() -> None:
    with pytest.raises(BadMessage, match=r"has values of the types 'y', not 'o'"):
        framed("y", b"\1").body("o")
