"""Values of the options that name a control group, and so a slice."""

from __future__ import annotations

from podslice.errors import InputError, invalid, quote
from podslice.inputs.options.values import is_text
from podslice.inputs.scalars import describe
from podslice.model.pod import UID_MAX
from podslice.model.unit import (
    UNIT_NAME_MAX,
    UnitName,
    control_group_of,
    escape_component,
    is_unit_name,
)

_SLICE = ".slice"
_BELOW_ROOT = f"-kubepods-besteffort-pod{UID_MAX * '0'}"
"""The suffix of the longest name of a pod's slice."""

_CONTROL_GROUP_MAX = 4096 - 64 - 2 * 256
"""Characters of a control group, so that the path of a file in a container's scope fits the kernel.

Source: Linux, include/uapi/linux/limits.h, PATH_MAX and NAME_MAX.
"""


def read_cgroup(value: object) -> str:
    """Return the path of a slice's control group: `/system.slice`, `/custom/pods`, or an empty string.

    Source: Node Allocatable Resources, "absolute paths are required".
    """
    return "" if value == "" else _read(value, "", "the name of its slice has")


def read_root(value: object) -> str:
    """Return a path as `read_cgroup`, with room for pods' slices below it; "" is the root, `/`."""
    return "/" if value == "" else _read(value, _BELOW_ROOT, "the names of the pods' slices have")


def _read(value: object, below: str, whose: str) -> str:
    if not is_text(value):
        raise invalid(f"must be a path, not {describe(value)}")
    path = str(value)
    if not path.startswith("/"):
        raise invalid(f"{quote(path)} is not an absolute path", f"write {quote('/' + path)}")
    stem = _stem(path)
    _check_length(path, f"{stem}{below}" if stem else below.lstrip("-"), whose)
    if path.rstrip("/").endswith(_SLICE):
        _check_slice(path.rstrip("/"), UnitName(f"{stem}{_SLICE}"))
    return path


def _stem(path: str) -> str:
    """Return the name of the slice without its suffix: `/custom/pods` → `custom-pods`."""
    components = [part for part in path.split("/") if part]
    if components and components[-1].endswith(_SLICE):
        return components[-1].removesuffix(_SLICE)
    return "-".join(map(_escape, components))


def _escape(component: str) -> str:
    try:
        return escape_component("" if component in (".", "..") else component)
    except InputError as error:
        message = f"{quote(component)} can't be part of a slice's name"
        raise invalid(message, error.problems[0].hint) from error


def _check_length(path: str, stem: str, whose: str) -> None:
    """Check that the names and the path are not too long for systemd and the kernel."""
    more = len(stem) + len(_SLICE) - UNIT_NAME_MAX
    if more > 0:
        message = f"{quote(path)} is too long: {whose} at most {UNIT_NAME_MAX} characters"
        raise invalid(message, f"shorten it by {more} characters")
    if len(control_group_of(UnitName(f"{stem}{_SLICE}"))) > _CONTROL_GROUP_MAX:
        raise invalid(f"{quote(path)} has too many levels", "write a path with fewer levels")


def _check_slice(path: str, name: UnitName) -> None:
    if not is_unit_name(name):
        raise invalid(f"{quote(name)} is not a valid slice name")
    right = control_group_of(name)
    if path != right:
        raise invalid(
            f"{quote(path)} is not where systemd puts {quote(name)}", f"write {quote(right)}"
        )
