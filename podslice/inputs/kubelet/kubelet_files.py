"""Files of a kubelet, and the single document that each of them has."""

from __future__ import annotations

from pathlib import Path

from podslice.errors import InputError, Problem, invalid, printable
from podslice.inputs.budget import Budget, Exhausted
from podslice.inputs.limits import TEXT_BYTES_MAX
from podslice.inputs.manifest.parse import read_documents
from podslice.inputs.source import read_bytes


def read_file(path: Path, *, limit_bytes: int, hint: str = "") -> bytes:
    """Return the content of a file.

    Raises:
        InputError: it cannot be read, or is too large; `hint` is the way out.
    """
    try:
        return read_bytes(path, limit_bytes=limit_bytes)
    except OSError as error:
        message = (error.strerror or str(error)).lower()
        found = Problem(where=printable(str(path)), message=message, hint=hint)
        raise InputError(found) from error


def is_pem(text: str) -> bool:
    """Return whether a text has certificates or keys in PEM."""
    return "-----BEGIN " in text


def read_authority(path: Path, option: str) -> str:
    """Return the certificates of a file that an option states.

    Raises:
        InputError: the file cannot be read, or has no certificate: without any, those of the host
            would be trusted.
    """
    text = read_file(path, limit_bytes=TEXT_BYTES_MAX).decode("ascii", errors="replace")
    if not is_pem(text):
        hint = f"state a file of certificates in PEM with {option}"
        raise invalid("there is no certificate in it", hint, where=printable(str(path)))
    return text


def read_document(data: bytes, where: str) -> object:
    """Return the only document of a text; None if there is not exactly one.

    Raises:
        InputError: it is not YAML, or exceeds the limits.
    """
    try:
        found = list(read_documents(data, where, Budget()))
    except InputError as error:
        raise InputError(each.within(where) for each in error.problems) from error
    except Exhausted as error:
        raise InputError(error.at(where)) from error
    if problems := [each.within(where) for one in found for each in one.invalid_texts]:
        raise InputError(problems)
    return found[0].value if len(found) == 1 else None
