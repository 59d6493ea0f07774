"""Which names Kubernetes takes, and what would be right instead.

Source: Kubernetes, apimachinery/pkg/util/validation/validation.go (RFC 1123).
"""

from __future__ import annotations

import re

from podslice.errors import printable
from podslice.inputs.scalars import shown

SUBDOMAIN_MAX = 253
LABEL_MAX = 63
UID_MAX = 128

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL_RE = re.compile(_LABEL)
_SUBDOMAIN_RE = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_UID_RE = re.compile(r"[A-Za-z0-9.:-]+")
# a directory is named by the uid, beside the records, `<uid>.json`
_FILE_RE = re.compile(r"\.+|.*\.(?:json|new)")
_RESOURCE_RE = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

Mistake = tuple[str, str]
"""What is wrong, and what would be right."""


def check_label(name: str, what: str) -> Mistake | None:
    """What is wrong with a name that has to be a DNS label (RFC 1123)."""
    if len(name) <= LABEL_MAX and _LABEL_RE.fullmatch(name):
        return None
    rule = f"lower case letters, digits and '-', at most {LABEL_MAX} characters"
    return f"{shown(name)} can't be the name of a {what}: {rule}", _suggest(name, LABEL_MAX)


def check_subdomain(name: str, what: str) -> Mistake | None:
    """What is wrong with a name that has to be a DNS subdomain (RFC 1123)."""
    if len(name) <= SUBDOMAIN_MAX and _SUBDOMAIN_RE.fullmatch(name):
        return None
    rule = f"lower case letters, digits, '-' and '.', at most {SUBDOMAIN_MAX} characters"
    return f"{shown(name)} can't be the name of a {what}: {rule}", _suggest(name, SUBDOMAIN_MAX)


def keep(name: str) -> str:
    """Return a name as a pod has it: printable, and cut where no valid name is as long.

    Every replica has it in its own name and in those of its units. The checks report that it is
    wrong.
    """
    return printable(name[:SUBDOMAIN_MAX])[:SUBDOMAIN_MAX]


def check_uid(uid: str) -> Mistake | None:
    """What is wrong with a pod's uid, which becomes part of a slice's name."""
    if is_uid(uid):
        return None
    rule = f"letters, digits, '-', '.' and ':', at most {UID_MAX} characters"
    if _FILE_RE.fullmatch(uid):
        rule = "it would be taken for the name of a file"
    return f"{shown(uid)} can't be the uid of a pod: {rule}", "leave it out, it is then computed"


def is_uid(uid: str | None) -> bool:
    """Whether it may be a pod's uid."""
    if uid is None or len(uid) > UID_MAX or _FILE_RE.fullmatch(uid):
        return False
    return bool(_UID_RE.fullmatch(uid))


def is_resource_name(name: str) -> bool:
    """Whether it may be the name of a resource: `cpu`, `hugepages-2Mi`, `example.com/gpu`."""
    return bool(_RESOURCE_RE.fullmatch(name))


def _suggest(name: str, longest: int) -> str:
    """The nearest name that is possible, as a hint."""
    separators = "-." if longest == SUBDOMAIN_MAX else "-"
    text = name[: 2 * longest].lower()
    text = "".join(c if c.isascii() and (c.isalnum() or c in separators) else "-" for c in text)
    text = re.sub(r"-*\.[-.]*", ".", text)[:longest].strip("-.")
    return f"write '{text}'" if text else ""
