# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The logic of the module pods."""

from __future__ import annotations

import re

from .absent import Absent
from .manifests import read_source
from .podslice import Document, Failure, Podslice
from .present import Present

ARGUMENTS: Document = {
    "definition": {"type": "raw"},
    "src": {"type": "path"},
    "name": {"type": "list", "elements": "str"},
    "namespace": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "prune": {"type": "bool", "default": False},
    "persist": {"type": "bool", "default": True},
    "directory": {"type": "path"},
    "file": {"type": "str"},
    "allow_stop": {"type": "bool", "default": False},
    "allow_refused": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "grace_period": {"type": "int"},
    "confirm_seconds": {"type": "int"},
}
MUTUALLY_EXCLUSIVE = [("definition", "src", "name")]
REQUIRED_ONE_OF = [("definition", "src", "name", "file")]

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")


def run(wanted: Document, podslice: Podslice, *, check_mode: bool) -> Document:
    """Bring pods into a state, and return the result of the module.

    Raises:
        Failure: it is not possible, or not allowed.
    """
    _check_options(wanted, podslice)
    podslice.require_version()
    source = read_source(wanted["definition"], wanted["src"], wanted["namespace"])
    if wanted["state"] == "absent":
        return Absent(wanted, podslice, source, check_mode=check_mode).run().facts()
    if source is None:
        raise Failure("state 'present' requires one of: definition, src")
    return Present(wanted, podslice, source, check_mode=check_mode).run().facts()


def _check_options(wanted: Document, podslice: Podslice) -> None:
    """Check what the specification of arguments cannot state.

    Raises:
        Failure: options do not fit together.
    """
    is_present = wanted["state"] == "present"
    is_text = wanted["src"] is not None or isinstance(wanted["definition"], str)
    if is_present and wanted["persist"] and wanted["namespace"] is not None and is_text:
        raise Failure(
            "a text that is kept in a file must state its namespace, since it is applied at boot"
            " without the option 'namespace': add metadata.namespace, or set 'persist: false'"
        )
    if is_present and wanted["grace_period"] is not None:
        raise Failure(
            "grace_period is an option of state 'absent'; pods that 'prune' removes have their own"
            " terminationGracePeriodSeconds"
        )
    if not is_present and wanted["confirm_seconds"] is not None:
        raise Failure("confirm_seconds is an option of state 'present'")
    if podslice.is_user and wanted["confirm_seconds"] is not None:
        raise Failure("confirm_seconds requires scope 'system': a user has no reserved slices")
    name = wanted["file"]
    if name is not None and not _FILE_NAME.fullmatch(name):
        raise Failure(
            f"file: {name!r} is not a name of a file: letters, digits, '-', '_', '.' and '@';"
            " 'directory' has the directory"
        )
