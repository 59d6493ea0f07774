"""The grammars of texts that manifests state and units have, each with what a valid text is."""

from __future__ import annotations

import ipaddress
import re
import signal
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from podslice.model.pod import UID_MAX, is_uid

LABEL_MAX = 63
SUBDOMAIN_MAX = 253
ARGUMENT_BYTES_MAX = 2**17 - 1
"""Bytes of one argument or variable of a program. Source: Linux, MAX_ARG_STRLEN."""
_LINE_MAX = 4095
"""Source: Linux, include/uapi/linux/limits.h, PATH_MAX, with the zero at the end."""
_REPOSITORY_MAX = 255
_REFERENCE_MAX = _REPOSITORY_MAX + len(":") + 128 + len("@sha512:") + 128
_PORT_NAME_MAX = 15
_ADDRESS_MAX = 45


class Grammar(NamedTuple):
    """A set of valid texts."""

    name: str
    """The name of one text, for "is not …"."""
    form: str
    """The remedy: what a valid text is."""
    matches: Callable[[str], bool]


def _matching(pattern: str, longest: int) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: len(text) <= longest and compiled.fullmatch(text) is not None


_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = r"[a-z0-9_](?:[-_a-z0-9]*[a-z0-9_])?"

# Names of objects: Kubernetes, apimachinery/pkg/util/validation/validation.go

LABEL = Grammar(
    name="a DNS label",
    form=f"use lower case letters, digits and '-', at most {LABEL_MAX} characters",
    matches=_matching(_LABEL, LABEL_MAX),
)
SUBDOMAIN = Grammar(
    name="a DNS subdomain",
    form=f"use lower case letters, digits, '-' and '.', at most {SUBDOMAIN_MAX} characters",
    matches=_matching(rf"{_LABEL}(?:\.{_LABEL})*", SUBDOMAIN_MAX),
)
UID = Grammar(
    name="a uid",
    form=f"use letters, digits, '-', '.' and ':', at most {UID_MAX} characters",
    matches=is_uid,
)
VARIABLE = Grammar(
    name="a name of a variable",
    form="use letters, digits, '_', '-' and '.', without a digit at the beginning",
    matches=_matching(r"[-._a-zA-Z][-._a-zA-Z0-9]*", _LINE_MAX),
)
PORT_NAME = Grammar(
    name="a name of a port",
    form=f"use lower case letters, digits and single '-', with a letter, at most {_PORT_NAME_MAX}",
    matches=_matching(r"(?=.*[a-z])[a-z0-9]+(?:-[a-z0-9]+)*", _PORT_NAME_MAX),
)
SYSCTL = Grammar(
    name="a kernel parameter",
    form="use lower case letters, digits, '-' and '_', separated by '.' or '/'",
    matches=_matching(
        r"(?:[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?", SUBDOMAIN_MAX
    ),
)
"""Source: Kubernetes, pkg/apis/core/validation/validation.go, SysctlContainSlashFmt."""
HEADER = Grammar(
    name="a name of a header",
    form="use letters, digits and '-'",
    matches=_matching(r"[-A-Za-z0-9]+", _LINE_MAX),
)

# Addresses and the resolver


def _is_address(text: str) -> bool:
    """Return whether a text is an address; a zone, as in `fe80::1%eth0`, is not part of it."""
    if len(text) > _ADDRESS_MAX or "%" in text:
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


ADDRESS = Grammar(
    name="an IP address", form="write 192.0.2.1 or 2001:db8::1, for example", matches=_is_address
)
_is_host_name = _matching(r"[A-Za-z0-9_](?:[-._A-Za-z0-9]*[A-Za-z0-9_])?", SUBDOMAIN_MAX)
HOST = Grammar(
    name="a host name or an IP address",
    form="use letters, digits, '-', '_' and '.', or an address",
    matches=lambda text: _is_host_name(text) or _is_address(text),
)
_is_search = _matching(rf"{_NAME}(?:\.{_NAME})*\.?", SUBDOMAIN_MAX + 1)
SEARCH_DOMAIN = Grammar(
    name="a search domain",
    form="use lower case letters, digits, '-', '_' and '.'",
    matches=lambda text: text == "." or _is_search(text),
)
"""Source: Kubernetes, pkg/apis/core/validation/validation.go, validatePodDNSConfig."""
RESOLVER_OPTION = Grammar(
    name="an option of the resolver",
    form="use letters, digits, '-', '_' and '.'; resolv.conf(5) lists them",
    matches=_matching(r"[A-Za-z0-9][-._A-Za-z0-9]*", LABEL_MAX),
)

# Images

_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_DIGEST = r"(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?{_PATH_PART}(?:/{_PATH_PART})*)"
    rf"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?P<digest>@{_DIGEST})?",
    re.ASCII,
)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
# podman reads what follows these as a path of the host, or of another store
_TRANSPORTS = frozenset(
    (
        *("atomic", "containers-storage", "dir", "docker", "docker-archive", "docker-daemon"),
        *("oci", "oci-archive", "ostree", "sif", "tarball"),
    )
)
_UNITS = (".image", ".build")
"""The ends of names that podman's generator takes for units. Source: podman, pkg/systemd/quadlet/quadlet.go, handleImageSource."""


def _is_image(text: str) -> bool:
    """Return whether a text is a reference that podman looks for in registries and its own store.

    Source: distribution/reference, regexp.go, reference.go, NameTotalLengthMax, and normalize.go;
    opencontainers/go-digest, algorithm.go; containers/image, transports/alltransports.
    """
    found = _REFERENCE.fullmatch(text) if len(text) <= _REFERENCE_MAX else None
    if found is None or len(found["name"]) > _REPOSITORY_MAX or text.endswith(_UNITS):
        return False
    before, colon, _ = text.partition(":")
    return not _IDENTIFIER.fullmatch(found["name"]) and not (colon and before in _TRANSPORTS)


IMAGE = Grammar(
    name="a reference of an image",
    form="write [REGISTRY[:PORT]/]NAME[:TAG][@DIGEST], without .image or .build at the end",
    matches=_is_image,
)

# Lines: texts that a unit has without quotes

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters, unpaired surrogates, separators of lines."""


def is_line(text: str) -> bool:
    """Return whether a text remains the same in a line of a unit, and is shown by a terminal.

    podman's generator and systemd remove space at both ends, read a quotation mark at the beginning,
    and join the next line after a backslash at the end.

    Source: podman, pkg/systemd/parser/unitfile.go, Parse; systemd.syntax(7).
    """
    if not text or text != text.strip() or text[0] in "\"'" or text[-1] in "\"'\\":
        return False
    return (text.isascii() and text.isprintable()) or not _has_invisible(text)


def _has_invisible(text: str) -> bool:
    return any(unicodedata.category(each) in _INVISIBLE for each in text)


def _is_line(text: str) -> bool:
    return len(text.encode(errors="replace")) <= _LINE_MAX and is_line(text)


def _is_relative(text: str) -> bool:
    return _is_line(text) and text[0] != "/" and ".." not in text.split("/")


LINE = Grammar(
    name="a plain text",
    form="use no control characters, and no space, quotation mark or backslash at its ends",
    matches=_is_line,
)
DIRECTORY = Grammar(
    name="an absolute path",
    form="begin with '/', without control characters, and without space, quotation mark or"
    " backslash at the end",
    matches=lambda text: _is_line(text) and text[0] == "/",
)
MOUNT_PATH = Grammar(
    name="an absolute path without ':'",
    form=DIRECTORY.form,
    matches=lambda text: DIRECTORY.matches(text) and ":" not in text,
)
HOST_PATH = Grammar(
    name="an absolute path without '..' and ':'",
    form=DIRECTORY.form,
    matches=lambda text: MOUNT_PATH.matches(text) and ".." not in text.split("/"),
)
SUB_PATH = Grammar(
    name="a relative path without '..' and ':'",
    form="name a part of the volume",
    matches=lambda text: _is_relative(text) and ":" not in text,
)
PROFILE_PATH = Grammar(
    name="a relative path without '..'",
    form="name a file below the directory of profiles",
    matches=_is_relative,
)

# Security

CAPABILITY = Grammar(
    name="a capability",
    form="use letters and '_': NET_ADMIN or CAP_NET_ADMIN, for example",
    matches=_matching(r"[A-Za-z]+(?:_[A-Za-z]+)*", LABEL_MAX),
)
SELINUX = Grammar(
    name="a part of an SELinux context",
    form="use letters, digits, '_', '-' and '.'",
    matches=_matching(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", _REPOSITORY_MAX),
)
SELINUX_LEVEL = Grammar(
    name="an SELinux level",
    form="write s0:c123,c456, for example",
    matches=_matching(r"[A-Za-z0-9_][A-Za-z0-9_.:,-]*", _REPOSITORY_MAX),
)
_REAL_TIME = re.compile(r"SIGRTM(?:IN\+(?:[1-9]|1[0-5])|AX-(?:[1-9]|1[0-4]))")
_SIGNALS = frozenset(each.name for each in signal.Signals)
SIGNAL = Grammar(
    name="a signal",
    form="write SIGTERM, for example",
    matches=lambda text: text in _SIGNALS or _REAL_TIME.fullmatch(text) is not None,
)
"""Source: Kubernetes, pkg/apis/core/types.go, Signal."""

# Texts that are quoted in units


def _is_argument(text: str) -> bool:
    """Return whether a program can have a text as an argument, through the generator and systemd.

    U+0080 becomes another byte: the generator writes it with the escape of that byte.

    Source: podman, pkg/systemd/parser/split.go, charNeedEscape.
    """
    if "\0" in text or "\x80" in text:
        return False
    try:
        return len(text.encode()) <= ARGUMENT_BYTES_MAX
    except UnicodeEncodeError:
        return False


ARGUMENT = Grammar(
    name="an argument of a program",
    form=f"use at most {ARGUMENT_BYTES_MAX:,} bytes, without U+0000, U+0080 and unpaired surrogates",
    matches=_is_argument,
)
