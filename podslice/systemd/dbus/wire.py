"""Incoming D-Bus messages: frames, headers, and values, which are unmarshalled on request.

dbus-next unmarshals every value of every message, which takes 800 µs for 280 properties; this
module reads the header and skips values that are not requested, in about a tenth of the time.
dbus-next marshals outgoing messages (see `connection`). Nothing here does I/O.

Source: D-Bus Specification 0.43, "Marshaling (Wire Format)" and "Message Format".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from podslice.errors import BadMessage

ERROR = 3
SIGNAL = 4

MAX_FRAME_BYTES = 128 * 1024 * 1024
"""Source: D-Bus Specification, "Message Format": the maximum length of a message."""

_PREFIX_BYTES = 16
_ORDERS = {ord("l"): "<", ord("B"): ">"}
_FIELDS = {
    1: ("path", "o"),
    2: ("interface", "s"),
    3: ("member", "s"),
    4: ("error_name", "s"),
    5: ("reply_serial", "u"),
    7: ("sender", "s"),
    8: ("signature", "g"),
}
NESTING_MAX = 64
"""Source: D-Bus Specification, "Valid Signatures": 32 nested arrays and 32 nested structs."""

# the types with a fixed size, and their formats for `struct`
_FORMATS = dict(zip("ynqbiuhxtd", "BhHIiIIqQd", strict=True))
_SIZES = {type_: struct.calcsize("=" + code) for type_, code in _FORMATS.items()}
# alignment in arrays; everything else begins with a length of four bytes
_ALIGN = {**_SIZES, "g": 1, "v": 1, "(": 8, "{": 8}
_UNPACK = {
    order: {type_: struct.Struct(order + code).unpack_from for type_, code in _FORMATS.items()}
    for order in "<>"
}

TYPE_CODES = frozenset({*_FORMATS, "s", "o", "g"})
"""The types of keys of dictionaries."""
MALFORMED = (ValueError, LookupError, struct.error)
"""The errors that malformed bytes cause; callers receive BadMessage."""

T = TypeVar("T")
Wire = Any
"""A value of a message: a number, a string, or a tuple or dict of values."""


@lru_cache(maxsize=256)
def split_types(signature: str) -> tuple[str, ...]:
    """Return the complete types in a signature: `sa{sv}u` → `s`, `a{sv}`, `u`.

    Raises:
        ValueError: a bracket is not closed.
    """
    types, start, depth = [], 0, 0
    for at, letter in enumerate(signature):
        depth += (letter in "({") - (letter in ")}")
        if depth == 0 and letter != "a":
            types.append(signature[start : at + 1])
            start = at + 1
    if start != len(signature):
        raise ValueError(f"signature {signature!r} is not complete")
    return tuple(types)


@lru_cache(maxsize=256)
def _members(type_: str) -> tuple[str, ...]:
    """Return the types in a struct or an entry of a dictionary: `(sv)` → `s`, `v`.

    Raises:
        ValueError: it is neither, or is empty, which reading could not advance over.
    """
    members = split_types(type_[1:-1])
    if type_[0] not in "({" or not members:
        raise ValueError(f"{type_!r} is not a type")
    return members


@lru_cache(maxsize=256)
def _single(signature: str) -> str:
    """Return the type of a variant.

    Raises:
        ValueError: the signature has none, or several.
    """
    (type_,) = split_types(signature)
    return type_


class WireReader:
    """Reads consecutive values from a marshalled block that begins at an 8-byte boundary.

    Arrays and structs become tuples, dictionaries dicts, variants their values. Malformed bytes
    raise ValueError, LookupError or struct.error.
    """

    __slots__ = ("_data", "_depth", "_unpack", "position")

    def __init__(self, data: bytes, *, position: int = 0, order: str = "<") -> None:
        self._data = data
        self._unpack = _UNPACK[order]
        self._depth = 0
        self.position = position

    def read(self, type_: str) -> Wire:
        """Read the next value, which has this complete type."""
        head = type_[0]
        if head in _SIZES:
            return self._fixed(head)
        if head in "so":
            return self._string(self._fixed("u"))
        if head == "g":
            return self._signature()
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise ValueError(f"more than {NESTING_MAX} nested values")
        value: Wire
        if head == "a":
            value = self._array(type_[1:])
        elif head == "v":
            value = self.read(_single(self._signature()))
        else:
            self.align(8)
            value = tuple(self.read(member) for member in _members(type_))
        self._depth -= 1
        return value

    def skip(self, type_: str) -> None:
        """Skip the next value."""
        head = type_[0]
        if head in _SIZES:
            size = _SIZES[head]
            self.position = (self.position + size - 1 & -size) + size
        elif head in "so":
            length = self._fixed("u")  # first, as it advances the position
            self.position += length + 1
        elif head == "a":
            self.position = self._array_end(type_[1])
        else:
            self.read(type_)

    def read_properties(self, wanted: Collection[str]) -> dict[str, Wire]:
        """Read the wanted entries of the next value, an `a{sv}`."""
        end = self._array_end("{")
        names = {name.encode(): name for name in wanted}
        data, unpack_length = self._data, self._unpack["u"]
        found = {}
        # some 280 iterations per message: only values that are kept or long cost a call
        while self.position < end:
            # An entry begins at the next multiple of 8, with the length of the key in four bytes.
            at = (self.position + 7 & -8) + 4
            key_end = at + unpack_length(data, at - 4)[0]
            # after the key: a zero byte, one byte of length, the signature, a zero byte
            type_end = key_end + 2 + data[key_end + 1]
            type_ = data[key_end + 2 : type_end].decode()
            self.position = type_end + 1
            if name := names.get(data[at:key_end]):
                found[name] = self.read(_single(type_))
            elif type_ in _SIZES:
                self.position = (self.position + _SIZES[type_] - 1 & -_SIZES[type_]) + _SIZES[type_]
            else:
                self.skip(_single(type_))
        self._expect(end)
        return found

    def align(self, size: int) -> None:
        """Advance to the next multiple of a size."""
        self.position = self.position + size - 1 & -size

    def _expect(self, end: int) -> None:
        if self.position != end:
            raise ValueError("the last value of an array exceeds its end")

    def _fixed(self, type_: str) -> Wire:
        size = _SIZES[type_]
        at = self.position + size - 1 & -size
        self.position = at + size
        (value,) = self._unpack[type_](self._data, at)
        return bool(value) if type_ == "b" else value

    def _string(self, length: int) -> str:
        at = self.position
        self.position = at + length + 1
        if self.position > len(self._data):
            raise ValueError("a string exceeds the end of the message")
        return self._data[at : at + length].decode()

    def _signature(self) -> str:
        return self._string(self._fixed("y"))

    def _array_end(self, element: str) -> int:
        """Advance to an array's first element; return the position after its last."""
        length: int = self._fixed("u")
        # The length does not include the padding before the first element.
        self.align(_ALIGN.get(element, 4))
        if self.position + length > len(self._data):
            raise ValueError("an array exceeds the end of the message")
        return self.position + length

    def _array(self, element: str) -> Wire:
        end = self._array_end(element[0])
        if element[0] == "{":
            return dict(self._entries(element, end))
        values = []
        while self.position < end:
            values.append(self.read(element))
        self._expect(end)
        return tuple(values)

    def _entries(self, element: str, end: int) -> Iterator[tuple[Wire, Wire]]:
        key, value = _members(element)
        if key not in TYPE_CODES:
            raise ValueError(f"{key!r} is not a type for a key")
        while self.position < end:
            self.align(8)
            yield self.read(key), self.read(value)
        self._expect(end)


class Received(NamedTuple):
    """A received message: its header, and its body before unmarshalling."""

    kind: int
    path: str = ""
    interface: str = ""
    member: str = ""
    error_name: str = ""
    sender: str = ""
    reply_serial: int = 0
    signature: str = ""
    frame: bytes = b""
    body_at: int = 0

    def body(self, expected: str | None = None) -> tuple[Wire, ...]:
        """Return all values of the body, after checking their types if these are given.

        Raises:
            BadMessage: the types differ, or the body is malformed.
        """
        expected = self.signature if expected is None else expected
        return self._read(
            expected, lambda reader: tuple(reader.read(type_) for type_ in split_types(expected))
        )

    def properties(self, wanted: Collection[str]) -> dict[str, Wire]:
        """Return the wanted entries of a body that is one `a{sv}`.

        Raises:
            BadMessage: the body has another type, or is malformed.
        """
        return self._read("a{sv}", lambda reader: reader.read_properties(wanted))

    def changed_properties(self, wanted: Collection[str]) -> dict[str, Wire]:
        """Return the wanted entries of the body of a signal `PropertiesChanged`.

        Raises:
            BadMessage: the body has other types, or is malformed.

        Source: D-Bus specification, org.freedesktop.DBus.Properties.PropertiesChanged.
        """

        def read(reader: WireReader) -> dict[str, Wire]:
            reader.read("s")
            return reader.read_properties(wanted)

        return self._read("sa{sv}as", read)

    @property
    def reason(self) -> str:
        """Return the reason that an error reply states."""
        values = self.body()
        return str(values[0]).rstrip(".") if values else "no reason given"

    def _read(self, expected: str, read: Callable[[WireReader], T]) -> T:
        """Read a body that has the expected types."""
        name = f"the message {self.member or self.error_name or self.reply_serial}"
        if self.signature != expected:
            raise BadMessage(f"{name} has values of the types {self.signature!r}, not {expected!r}")
        try:
            return read(self.body_reader())
        except MALFORMED as error:
            raise BadMessage(f"{name} is malformed: {error}") from error

    def body_reader(self) -> WireReader:
        """Return a reader at the start of the body."""
        return WireReader(self.frame, position=self.body_at, order=_order(self.frame))


def frame_bytes(buffer: bytes | bytearray) -> int | None:
    """Return the length of the message at the start of the buffer; None before its header is complete.

    Raises:
        BadMessage: it is malformed, or longer than D-Bus allows.
    """
    if len(buffer) < _PREFIX_BYTES:
        return None
    body, _serial, fields = struct.unpack_from(_order(buffer) + "III", buffer, 4)
    length: int = _PREFIX_BYTES + (fields + 7 & -8) + body
    if length > MAX_FRAME_BYTES:
        raise BadMessage(f"a message of {length} bytes is longer than D-Bus allows")
    return length


def parse_frame(frame: bytes) -> Received:
    """Parse a complete frame.

    Raises:
        BadMessage: it is malformed.
    """
    header: dict[str, Wire] = {}
    try:
        order = _order(frame)
        body, _serial, fields = struct.unpack_from(order + "III", frame, 4)
        reader = WireReader(frame, position=_PREFIX_BYTES, order=order)
        while reader.position < _PREFIX_BYTES + fields:
            reader.align(8)
            name, expected = _FIELDS.get(reader.read("y"), ("", ""))
            if not name:
                reader.skip("v")
            elif (type_ := reader.read("g")) == expected:
                header[name] = reader.read(type_)
            else:
                raise ValueError(f"the field {name} has the type {type_!r}")
        if not reader.position <= len(frame) - body <= len(frame):
            raise ValueError("the header exceeds the end")
    except MALFORMED as error:
        raise BadMessage(f"a message is malformed: {error}") from error
    return Received(kind=frame[1], frame=frame, body_at=len(frame) - body, **header)


def _order(frame: bytes | bytearray) -> str:
    if frame[0] not in _ORDERS:
        raise BadMessage(f"a message cannot begin with byte {frame[0]:#x}")
    return _ORDERS[frame[0]]
