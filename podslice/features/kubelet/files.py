"""Files of a kubelet and of kubectl: certificates, and the single document that each other file has."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podslice.errors import InputError, invalid, printable, quote
from podslice.features.kubelet.node import Credentials
from podslice.inputs.budget import TEXT_BYTES_MAX, Budget, Exhausted
from podslice.inputs.manifest.parse import read_documents
from podslice.inputs.source import is_pem, read_file


def mapping_of(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping in a field; one of another type counts as not stated."""
    found = fields.get(key)
    return found if isinstance(found, dict) else {}


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


_UNSUPPORTED = ("exec", "auth-provider", "username", "password")


def read_kubeconfig(path: Path) -> Credentials:
    """Return the credentials of the current context's user, and the authority of its cluster.

    Raises:
        InputError: the file cannot be read, has no current context, or the user is identified by
            a program or a password.

    Source: Kubernetes, staging/src/k8s.io/client-go/tools/clientcmd/api/v1/types.go.
    """
    where = printable(str(path))
    document = read_document(read_file(path, limit_bytes=TEXT_BYTES_MAX), where)
    if not isinstance(document, dict) or document.get("kind") != "Config":
        raise invalid("there is not exactly one Config in it", where=where)
    name = document.get("current-context")
    context = _named(document, "contexts", "context", name, where)
    user = _named(document, "users", "user", context.get("user"), where)
    cluster = _named(document, "clusters", "cluster", context.get("cluster"), where)
    for key in _UNSUPPORTED:
        if user.get(key):
            message = f"credentials by {key} are not supported"
            raise invalid(message, "use a token or a client certificate", where=f"{where}: users")
    return Credentials(
        token=_token(user, path.parent, where),
        certificate=_data(user, "client-certificate", path.parent, where),
        key=_data(user, "client-key", path.parent, where),
        authority=_data(cluster, "certificate-authority", path.parent, where),
    )


def _named(
    document: Mapping[str, Any], key: str, part: str, name: object, where: str
) -> Mapping[str, Any]:
    """Return the entry of a list with a name."""
    entries = document.get(key)
    for each in entries if isinstance(entries, list) else ():
        if isinstance(each, dict) and name is not None and each.get("name") == name:
            return mapping_of(each, part)
    shown = quote(name) if isinstance(name, str) else "none"
    hint = "set current-context, and the context's cluster and user"
    raise invalid(f"there is no {part} named {shown}", hint, where=f"{where}: {key}")


def _token(user: Mapping[str, Any], base: Path, where: str) -> str:
    """Return the token of a user; that of a file has precedence."""
    file = user.get("tokenFile")
    text = user.get("token")
    if isinstance(file, str):
        try:
            text = read_file(base / file, limit_bytes=TEXT_BYTES_MAX).decode().strip(" \t\r\n")
        except UnicodeDecodeError:
            text = "\0"
        if not text:
            raise invalid("there is no token in it", where=printable(str(base / file)))
    token = text if isinstance(text, str) else ""
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise invalid("the token has characters that no token has", where=f"{where}: users")
    return token


def _data(fields: Mapping[str, Any], key: str, base: Path, where: str) -> str:
    """Return a certificate or a key as PEM: that in the file itself, or that of another file.

    Empty if neither is stated.
    """
    inline, file = fields.get(f"{key}-data"), fields.get(key)
    try:
        if isinstance(inline, str) and inline:
            text = base64.b64decode(inline, validate=True).decode("ascii")
        elif isinstance(file, str) and file:
            where = printable(str(base / file))
            text = read_file(base / file, limit_bytes=TEXT_BYTES_MAX).decode("ascii")
        else:
            return ""
    except (binascii.Error, UnicodeDecodeError) as error:
        raise invalid(f"{key} is not PEM", where=where) from error
    if not is_pem(text):
        raise invalid(f"{key} is not PEM", where=where)
    return text
