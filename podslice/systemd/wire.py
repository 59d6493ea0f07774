"""What comes in from a D-Bus connection: frames, headers, and values read only when they are wanted.

dbus-next unmarshals every value of every message, at 800 µs for all properties of one unit; this
module reads the header and skips what nobody asked for, at about a tenth. Outgoing messages are
dbus-next's business (see `connection`). Nothing here does I/O.

Source: D-Bus Specification 0.43, "Marshaling (Wire Format)" and "Message Format".
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

METHOD_RETURN = 2
ERROR = 3
SIGNAL = 4

MAX_FRAME_BYTES = 128 * 1024 * 1024
"""Source: D-Bus Specification, "Message Format": the maximum length of a message."""

_PREFIX_BYTES = 16
_ORDERS = {ord("l"): "<", ord("B"): ">"}
_FIELDS = {
    1: "path",
    2: "interface",
    3: "member",
    4: "error_name",
    5: "reply_serial",
    7: "sender",
    8: "signature",
}

# the types with a fixed size, and their formats for `struct`
_FORMATS = dict(zip("ynqbiuhxtd", "BhHIiIIqQd", strict=True))
_SIZES = {type_: struct.calcsize("=" + code) for type_, code in _FORMATS.items()}
# alignment in arrays; everything else begins with a length of four bytes
_ALIGN = {**_SIZES, "g": 1, "v": 1, "(": 8, "{": 8}
_UNPACK = {
    order: {type_: struct.Struct(order + code).unpack_from for type_, code in _FORMATS.items()}
    for order in "<>"
}

Wire = Any
"""Whatever a message may hold: numbers, strings, tuples and dicts of them."""


@lru_cache(maxsize=256)
def split_types(signature: str) -> tuple[str, ...]:
    """The complete types in a signature: `sa{sv}u` → `s`, `a{sv}`, `u`.

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
    """The types in a struct or an entry of a dictionary: `(sv)` → `s`, `v`.

    Raises:
        ValueError: there are none, or this is neither. Reading would never get on.
    """
    members = split_types(type_[1:-1])
    if type_[0] not in "({" or not members:
        raise ValueError(f"{type_!r} is not a type")
    return members


class Reader:
    """Reads values one after the other from a marshalled block that begins at an 8-byte boundary.

    Arrays and structs become tuples, dictionaries dicts, variants their bare value.
    """

    __slots__ = ("_data", "_unpack", "position")

    def __init__(self, data: bytes, *, position: int = 0, order: str = "<") -> None:
        self._data = data
        self._unpack = _UNPACK[order]
        self.position = position

    def read(self, type_: str) -> Wire:
        """The next value, which has this complete type."""
        head = type_[0]
        if head in _SIZES:
            return self._fixed(head)
        if head in "so":
            return self._string(self._fixed("u"))
        if head == "a":
            return self._array(type_[1:])
        if head == "v":
            return self.read(self._signature())
        if head == "g":
            return self._signature()
        self.align(8)
        return tuple(self.read(member) for member in _members(type_))

    def skip(self, type_: str) -> None:
        """Step over the next value."""
        head = type_[0]
        if head in _SIZES:
            size = _SIZES[head]
            self.position = (self.position + size - 1 & -size) + size
        elif head in "so":
            length = self._fixed("u")  # first: it moves the position
            self.position += length + 1
        elif head == "a":
            self.position = self._array_end(type_[1])
        elif head == "v":
            self.skip(self._signature())
        elif head == "g":
            self._signature()
        else:
            self.align(8)
            for member in _members(type_):
                self.skip(member)

    def read_properties(self, wanted: Collection[str]) -> dict[str, Wire]:
        """The next value, an `a{sv}`, without the entries that nobody wants."""
        end = self._array_end("{")
        names = {name.encode(): name for name in wanted}
        data, unpack_length = self._data, self._unpack["u"]
        found = {}
        # the loop runs some 280 times per unit: only values that are kept or long cost a call
        while self.position < end:
            at = (self.position + 7 & -8) + 4
            key_end = at + unpack_length(data, at - 4)[0]
            # behind the key: its zero, one byte of length, the signature, its zero
            type_end = key_end + 2 + data[key_end + 1]
            type_ = data[key_end + 2 : type_end].decode()
            self.position = type_end + 1
            if name := names.get(data[at:key_end]):
                found[name] = self.read(type_)
            elif type_ in _SIZES:
                self.position = (self.position + _SIZES[type_] - 1 & -_SIZES[type_]) + _SIZES[type_]
            else:
                self.skip(type_)
        return found

    def align(self, size: int) -> None:
        """Step to the next multiple of a size."""
        self.position = self.position + size - 1 & -size

    def _fixed(self, type_: str) -> Wire:
        size = _SIZES[type_]
        at = self.position + size - 1 & -size
        self.position = at + size
        (value,) = self._unpack[type_](self._data, at)
        return bool(value) if type_ == "b" else value

    def _string(self, length: int) -> str:
        at = self.position
        self.position = at + length + 1
        return self._data[at : at + length].decode()

    def _signature(self) -> str:
        return self._string(self._fixed("y"))

    def _array_end(self, element: str) -> int:
        """Step to an array's first element; the position after its last."""
        length: int = self._fixed("u")
        self.align(_ALIGN.get(element, 4))
        return self.position + length

    def _array(self, element: str) -> Wire:
        end = self._array_end(element[0])
        if element[0] == "{":
            return dict(self._entries(element, end))
        values = []
        while self.position < end:
            values.append(self.read(element))
        return tuple(values)

    def _entries(self, element: str, end: int) -> Iterator[tuple[Wire, Wire]]:
        key, value = _members(element)
        while self.position < end:
            self.align(8)
            yield self.read(key), self.read(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One message that came in; the header is read, the body is not yet."""

    kind: int
    path: str = ""
    interface: str = ""
    member: str = ""
    error_name: str = ""
    sender: str = ""
    reply_serial: int = 0
    signature: str = ""
    frame: bytes = field(default=b"", repr=False)
    body_at: int = 0

    def body(self) -> tuple[Wire, ...]:
        """Every value of the body."""
        reader = self._reader()
        return tuple(reader.read(type_) for type_ in split_types(self.signature))

    def properties(self, wanted: Collection[str]) -> dict[str, Wire]:
        """The wanted entries of a body that is one `a{sv}`."""
        return self._reader().read_properties(wanted)

    def _reader(self) -> Reader:
        return Reader(self.frame, position=self.body_at, order=_order(self.frame))


def frame_bytes(buffer: bytes | bytearray) -> int | None:
    """How long the message at the start of the buffer is; None while too little of it is there.

    Raises:
        ValueError: this is not D-Bus, or longer than D-Bus allows.
    """
    if len(buffer) < _PREFIX_BYTES:
        return None
    body, _serial, fields = struct.unpack_from(_order(buffer) + "III", buffer, 4)
    length: int = _PREFIX_BYTES + (fields + 7 & -8) + body
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {length} bytes is longer than D-Bus allows")
    return length


def parse_frame(frame: bytes) -> Received:
    """The message that one whole frame holds.

    Raises:
        ValueError, IndexError, struct.error: this is not D-Bus.
    """
    order = _order(frame)
    body, _serial, fields = struct.unpack_from(order + "III", frame, 4)
    reader = Reader(frame, position=_PREFIX_BYTES, order=order)
    header: dict[str, Wire] = {}
    while reader.position < _PREFIX_BYTES + fields:
        reader.align(8)
        code, value = reader.read("y"), reader.read("v")
        if name := _FIELDS.get(code):
            header[name] = value
    return Received(kind=frame[1], frame=frame, body_at=len(frame) - body, **header)


def _order(frame: bytes | bytearray) -> str:
    if frame[0] not in _ORDERS:
        raise ValueError(f"a message can't begin with byte {frame[0]:#x}")
    return _ORDERS[frame[0]]
