"""Settings that name a control group, and so a slice."""

from __future__ import annotations

from podslice.errors import InputError
from podslice.inputs.options.values import is_text, wrong
from podslice.inputs.scalars import describe, shown
from podslice.model.unit import (
    UNIT_NAME_MAX,
    UnitName,
    control_group_of,
    escape_component,
    is_unit_name,
)

_SLICE = ".slice"
_BELOW_ROOT = f"-kubepods-besteffort-pod{36 * '0'}"
"""What the longest name of a pod's slice adds, with a uid of the usual 36 characters."""

_CONTROL_GROUP_MAX = 4096 - 64 - 2 * 256
"""Characters of a control group, so that the path of a file in a container's scope fits the kernel.

Source: Linux, include/uapi/linux/limits.h, PATH_MAX and NAME_MAX.
"""


def read_cgroup(value: object) -> str:
    """Return an absolute control group that can be a slice: `/system.slice`, `/custom/pods`, or "".

    Source: seed 004, "absolute paths are required".
    """
    return "" if value == "" else _read(value, "", "the name of its slice has")


def read_root(value: object) -> str:
    """As `read_cgroup`, with room for the slices of pods below it; nothing is the root, `/`."""
    return "/" if value == "" else _read(value, _BELOW_ROOT, "the names of the pods' slices have")


def _read(value: object, below: str, whose: str) -> str:
    if not is_text(value):
        raise wrong(f"has to be a path, is {describe(value)}")
    path = str(value)
    if not path.startswith("/"):
        raise wrong(f"{shown(path)} is not an absolute path", f"write {shown('/' + path)}")
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
        message = f"{shown(component)} can't be part of a slice's name"
        raise wrong(message, error.problems[0].hint) from error


def _check_length(path: str, stem: str, whose: str) -> None:
    """Refuse what systemd or the kernel would not take for its length."""
    more = len(stem) + len(_SLICE) - UNIT_NAME_MAX
    if more > 0:
        message = f"{shown(path)} is too long: {whose} at most {UNIT_NAME_MAX} characters"
        raise wrong(message, f"shorten it by {more} characters")
    if len(control_group_of(UnitName(f"{stem}{_SLICE}"))) > _CONTROL_GROUP_MAX:
        raise wrong(f"{shown(path)} has too many levels", "write a path with fewer of them")


def _check_slice(path: str, name: UnitName) -> None:
    if not is_unit_name(name):
        raise wrong(f"{shown(name)} can't be the name of a slice")
    right = control_group_of(name)
    if path != right:
        raise wrong(
            f"{shown(path)} is not where systemd puts {shown(name)}", f"write {shown(right)}"
        )
