"""Names that Kubernetes accepts.

Source: Kubernetes, apimachinery/pkg/util/validation/validation.go (RFC 1123).
"""

from __future__ import annotations

import re

from podslice.errors import Problem, printable, quote
from podslice.model.grammar import LABEL, LABEL_MAX, SUBDOMAIN, SUBDOMAIN_MAX
from podslice.model.pod import UID_MAX, is_uid

_RESOURCE_RE = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def check_label(name: str, what: str) -> Problem | None:
    """Return the problem of a name that must be a DNS label (RFC 1123); None if it is valid."""
    rule = f"lower case letters, digits and '-', at most {LABEL_MAX} characters"
    return None if LABEL.matches(name) else _invalid(name, what, rule, LABEL_MAX)


def check_subdomain(name: str, what: str) -> Problem | None:
    """Return the problem of a name that must be a DNS subdomain (RFC 1123); None if it is valid."""
    rule = f"lower case letters, digits, '-' and '.', at most {SUBDOMAIN_MAX} characters"
    return None if SUBDOMAIN.matches(name) else _invalid(name, what, rule, SUBDOMAIN_MAX)


def keep(name: str) -> str:
    """Return a name as the pod stores it: printable, and truncated to the longest valid name.

    Every replica repeats it, in its own name and in those of its units. The checks report an
    invalid name.
    """
    return printable(name[:SUBDOMAIN_MAX])[:SUBDOMAIN_MAX]


def check_uid(uid: str) -> Problem | None:
    """Return the problem of a pod's uid, which becomes part of a slice's name; None if it is valid."""
    if is_uid(uid):
        return None
    rule = (
        f"letters, digits, '-', '.' and ':', at most {UID_MAX} characters, not only dots, and"
        " without the suffixes .json and .new"
    )
    message = f"{quote(uid)} is not a valid pod uid: {rule}"
    return Problem(message=message, hint="leave it out; podslice then computes one")


def to_label(name: str) -> str:
    """Return the most similar name that is a valid label; empty if there is none."""
    return _similar(name, LABEL_MAX)


def is_resource_name(name: str) -> bool:
    """Return whether a text is a valid resource name: `cpu`, `hugepages-2Mi`, `example.com/gpu`."""
    return bool(_RESOURCE_RE.fullmatch(name))


def _invalid(name: str, what: str, rule: str, longest: int) -> Problem:
    """Return the problem of a name, with the most similar valid one as hint."""
    text = _similar(name, longest)
    message = f"{quote(name)} is not a valid {what} name: {rule}"
    return Problem(message=message, hint=f"write '{text}'" if text else "")


def _similar(name: str, longest: int) -> str:
    separators = "-." if longest == SUBDOMAIN_MAX else "-"
    text = name[: 2 * longest].lower()
    text = "".join(c if c.isascii() and (c.isalnum() or c in separators) else "-" for c in text)
    return re.sub(r"-*\.[-.]*", ".", text)[:longest].strip("-.")
