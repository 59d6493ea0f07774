"""The grammars of texts that manifests state and units have, each with what a valid text is.

Source: Kubernetes v1.36, pkg/apis/core/validation/validation.go, where a grammar names a function.
"""

from __future__ import annotations

import ipaddress
import re
import signal
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from podslice.errors import Problem, quote
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
_PORT_MAX = 2**16 - 1
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
"""Source: validateContainerCommon, ValidateVolumes, ValidatePodSpec, apps ValidateStatefulSetSpec."""
SUBDOMAIN = Grammar(
    name="a DNS subdomain",
    form=f"use lower case letters, digits, '-' and '.', at most {SUBDOMAIN_MAX} characters",
    matches=_matching(rf"{_LABEL}(?:\.{_LABEL})*", SUBDOMAIN_MAX),
)
"""Source: ValidatePodName, ValidateConfigMapName, ValidateSecretName, ValidateHostAliases."""
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
"""Source: ValidateEnv, ValidateEnvFrom."""
PORT_NAME = Grammar(
    name="a name of a port",
    form=f"use lower case letters, digits and single '-', with a letter, at most {_PORT_NAME_MAX}",
    matches=_matching(r"(?=.*[a-z])[a-z0-9]+(?:-[a-z0-9]+)*", _PORT_NAME_MAX),
)
"""Source: validateContainerPorts."""
PORT = Grammar(
    name="a port",
    form=f"write 1 to {_PORT_MAX}",
    matches=lambda text: text.isdecimal() and 0 < int(text) <= _PORT_MAX,
)
SYSCTL = Grammar(
    name="a kernel parameter",
    form="use lower case letters, digits, '-' and '_', separated by '.' or '/'",
    matches=_matching(
        r"(?:[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?", SUBDOMAIN_MAX
    ),
)
"""Source: validateSysctls, SysctlContainSlashFmt; proc_sys(5)."""
HEADER = Grammar(
    name="a name of a header",
    form="use letters, digits and '-'",
    matches=_matching(r"[-A-Za-z0-9]+", _LINE_MAX),
)
"""Source: validateHTTPGetAction."""

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
"""Source: validatePodDNSConfig, ValidateHostAliases, validateContainerPorts."""
_is_host_name = _matching(r"[A-Za-z0-9_](?:[-._A-Za-z0-9]*[A-Za-z0-9_])?", SUBDOMAIN_MAX)
HOST = Grammar(
    name="a host name or an IP address",
    form="use letters, digits, '-', '_' and '.', or an address",
    matches=lambda text: _is_host_name(text) or _is_address(text),
)
"""Source: RFC 3986, reg-name."""
_is_search = _matching(rf"{_NAME}(?:\.{_NAME})*\.?", SUBDOMAIN_MAX + 1)
SEARCH_DOMAIN = Grammar(
    name="a search domain",
    form="use lower case letters, digits, '-', '_' and '.'",
    matches=lambda text: text == "." or _is_search(text),
)
"""Source: validatePodDNSConfig."""
RESOLVER_OPTION = Grammar(
    name="an option of the resolver",
    form="use letters, digits, '-', '_' and '.'; resolv.conf(5) lists them",
    matches=_matching(r"[A-Za-z0-9][-._A-Za-z0-9]*", LABEL_MAX),
)
"""Source: validatePodDNSConfig; resolv.conf(5)."""

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

_REGISTRY = "docker.io"


def full_image(reference: str) -> str:
    """Return a reference as Kubernetes' runtimes read it, with its registry and its tag or digest.

    podman itself looks for a name without a registry in the registries of registries.conf(5), a list
    that Debian leaves empty.

    Source: distribution/reference, normalize.go, splitDockerDomain and TagNameOnly.
    """
    found = _REFERENCE.fullmatch(reference)
    if found is None:  # reported with the grammar
        return reference
    registry, slash, path = found["name"].partition("/")
    is_registry = "." in registry or ":" in registry or registry == "localhost"
    if not slash or not (is_registry or registry != registry.lower()):
        registry, path = _REGISTRY, found["name"]
    if registry in (_REGISTRY, "index.docker.io"):
        registry, path = _REGISTRY, path if "/" in path else f"library/{path}"
    tag = found["tag"] or ("" if found["digest"] else ":latest")
    return f"{registry}/{path}{tag}{found['digest'] or ''}"


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
"""Source: podman, pkg/systemd/parser/unitfile.go, Parse; ValidateAppArmorProfileField."""
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
"""Source: ValidateVolumeMounts; podman-run(1), --volume, which is split at ':'."""
HOST_PATH = Grammar(
    name="an absolute path without '..' and ':'",
    form=DIRECTORY.form,
    matches=lambda text: MOUNT_PATH.matches(text) and ".." not in text.split("/"),
)
"""Source: validateHostPathVolumeSource; podman-run(1), --volume."""
SUB_PATH = Grammar(
    name="a relative path without '..' and ':'",
    form="name a part of the volume",
    matches=lambda text: _is_relative(text) and ":" not in text,
)
"""Source: validateLocalDescendingPath; podman-run(1), --volume."""
PROFILE_PATH = Grammar(
    name="a relative path without '..'",
    form="name a file below the directory of profiles",
    matches=_is_relative,
)
"""Source: validateSeccompProfileField."""

# Security

CAPABILITY = Grammar(
    name="a capability",
    form="use letters and '_': NET_ADMIN or CAP_NET_ADMIN, for example",
    matches=_matching(r"[A-Za-z]+(?:_[A-Za-z]+)*", LABEL_MAX),
)
"""Source: podman-systemd.unit(5), AddCapability: words separated by space."""
SELINUX = Grammar(
    name="a part of an SELinux context",
    form="use letters, digits, '_', '-' and '.'",
    matches=_matching(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", _REPOSITORY_MAX),
)
"""Source: selinux(8)."""
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
"""Source: validateStopSignal; Kubernetes, pkg/apis/core/types.go, Signal."""

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
"""Source: podman, pkg/systemd/parser/split.go, extractFirstWord."""


# Names, and the most similar valid ones

_RESOURCE = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""Source: Kubernetes, apimachinery/pkg/util/validation/validation.go, IsQualifiedName."""


def check_label(name: str, what: str) -> Problem | None:
    """Return the problem of a name that must be a DNS label (RFC 1123); None if it is valid."""
    rule = f"lower case letters, digits and '-', at most {LABEL_MAX} characters"
    return None if LABEL.matches(name) else _invalid(name, what, rule, LABEL_MAX)


def check_subdomain(name: str, what: str) -> Problem | None:
    """Return the problem of a name that must be a DNS subdomain (RFC 1123); None if it is valid."""
    rule = f"lower case letters, digits, '-' and '.', at most {SUBDOMAIN_MAX} characters"
    return None if SUBDOMAIN.matches(name) else _invalid(name, what, rule, SUBDOMAIN_MAX)


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
    return _RESOURCE.fullmatch(name) is not None


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
