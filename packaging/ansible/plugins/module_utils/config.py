# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The logic of the module config."""

from __future__ import annotations

import os
import re
import tempfile

from .changes import file_diff
from .files import read_text, remove, write_text
from .podslice import Document, Failure, Podslice, describe_problem
from .rendering import to_toml

ARGUMENTS: Document = {
    "settings": {"type": "dict"},
    "drop_in": {"type": "str", "default": "50-ansible"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}

DIRECTORY = "/etc/podslice"
MAIN = "podslice.toml"
HEADER = "# Written by Ansible (podslice.host.config), which overwrites changes.\n"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
_MODE = 0o644


def run(wanted: Document, podslice: Podslice, *, check_mode: bool) -> Document:
    """Write or remove a configuration file, and return the result of the module.

    Raises:
        Failure: the configuration would be invalid, or the file cannot be written.
    """
    path = path_of(wanted["drop_in"])
    is_present = wanted["state"] == "present"
    if podslice.is_user:
        raise Failure("the configuration is that of the host: leave out 'scope: user'")
    if is_present and wanted["settings"] is None:
        raise Failure("state 'present' requires: settings")
    podslice.require_version()
    old = read_text(path)
    new = _text_of(wanted["settings"]) if is_present else None
    checked = check(podslice, path, new or "")
    is_changed = old != new
    if is_changed and not check_mode:
        if new is None:
            remove(path)
        else:
            write_text(path, new, mode=_MODE)
    return {
        "changed": is_changed,
        "path": path,
        "previous": old,
        "effective": checked["effective"],
        "diff": [file_diff(path, old, new)] if is_changed else [],
        "warnings": [describe_problem(each) for each in checked["problems"]],
    }


def _text_of(settings: Document) -> str:
    """Return the text of a configuration file.

    Raises:
        Failure: the settings are nested too deeply.
    """
    try:
        return HEADER + to_toml(settings)
    except RecursionError as error:
        raise Failure("settings are nested too deeply: no option of podslice is") from error


def path_of(drop_in: str) -> str:
    """Return the path of a drop-in, or of the main file for an empty name.

    Raises:
        Failure: it is not a name of a file.
    """
    if not drop_in:
        return os.path.join(DIRECTORY, MAIN)
    if not _NAME.fullmatch(drop_in):
        raise Failure(
            f"drop_in: {drop_in!r} is not a name of a file: letters, digits, '-', '_', '.' and '@'"
        )
    name = drop_in if drop_in.endswith(".toml") else f"{drop_in}.toml"
    return os.path.join(DIRECTORY, f"{MAIN}.d", name)


def check(podslice: Podslice, path: str, text: str) -> Document:
    """Return the document of a check of the whole configuration with a text in place of a file.

    Raises:
        Failure: it would be invalid.
    """
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".toml") as file:
        file.write(text)
        file.flush()
        try:
            return podslice.read_plain("check", f"--config={file.name}", f"--as={path}")
        except Failure as failure:
            message = failure.message.replace(
                "podslice check failed", "the configuration would be invalid, and was not written"
            )
            raise Failure(message, **failure.facts) from failure
