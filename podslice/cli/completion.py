"""Names for shell completion: `podslice __complete KIND WORD…` prints one name per line.

Called at every press of the completion key, so it imports as little as possible. Files that cannot
be read are ignored without a message. `WORD…` is the command line so far.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from itertools import chain

from podslice.kernel.files import read_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_BYTES_MAX = 16 * 2**20
"""Bytes of a record, as in `store`."""
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def main(arguments: list[str]) -> int:
    """Print the names of `pods`, `units`, or the `containers` of the last pod on the command line."""
    kind, words = (arguments[0], arguments[1:]) if arguments else ("", [])
    pods = dict(_pods(words)) if kind in ("pods", "containers") else {}
    if kind == "units":
        names: Iterable[str] = set(_units(words))
    elif kind == "pods":
        names = pods
    elif kind == "containers":
        pod = next((word for word in reversed(words) if word in pods), "")
        names = pods.get(pod, ())
    else:
        names = ()
    sys.stdout.write("".join(f"{name}\n" for name in sorted(filter(_is_name, names))))
    return 0


def _is_name(text: str) -> bool:
    """Return whether a text may be a name: a damaged record may have any."""
    return text.isascii() and all(each.isalnum() or each in "-./@_:" for each in text)


def _pods(words: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the pods of the given files, or applied pods, as they are typed, with their containers."""
    files = list(_values(words, "-f", "--filename"))
    namespace = next(_values(words, "-n", "--namespace"), None)
    from_files = files and not {"delete", "events", "logs"} & {*words}
    found = _in_files(files, namespace) if from_files else _recorded(words)
    for of_pod, name, containers in found:
        is_plain = of_pod == (namespace or "default")
        yield (name if is_plain else f"{of_pod}/{name}"), containers


_SERVICE = ".service"
_SYSTEM = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system")
_USER = ("/etc/systemd/user", "/run/systemd/user", "/usr/lib/systemd/user")
_DROP_IN = "50-podslice.conf"


def _units(words: list[str]) -> Iterator[str]:
    """Yield the services with a unit file; for `release` those with a drop-in of podslice."""
    own = os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '')}/.config"
    directories = (f"{own}/systemd/user", *_USER) if "--user" in words else _SYSTEM
    for directory in directories:
        with suppress(OSError):
            for name in os.listdir(directory):  # noqa: PTH208 - as below
                unit = name.removesuffix(".d")
                if unit.endswith("@.service") or not unit.endswith(_SERVICE):
                    continue
                if "release" not in words:
                    yield from [name] if name == unit else ()
                elif os.path.exists(f"{directory}/{name}/{_DROP_IN}"):  # noqa: PTH110 - as below
                    yield unit


def _values(words: list[str], short: str, long: str) -> Iterator[str]:
    """Yield the values of an option; shells split `--option=value` into three words."""
    for index, word in enumerate(words):
        rest = [each for each in words[index + 1 : index + 3] if each != "="]
        if word in (short, long):
            yield from rest[:1]
        elif word.startswith(f"{long}="):
            yield word.removeprefix(f"{long}=")


def _recorded(words: list[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the applied pods; the evicted ones for `readmit`, and all wanted ones for `status`."""
    is_user = "--user" in words
    session = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    base = session if is_user else "/run"
    if "readmit" in words:
        return _evicted(base)
    if "status" in words:
        return chain(_pending(base), _evicted(base), _applied(base))
    return _applied(base)


def _pending(base: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the pods that the agent reports as pending."""
    with suppress(*_UNREADABLE):
        for pending in _parse(f"{base}/podslice/agent.json")["pending"]:
            namespace, _, name = pending["pod"].partition("/")
            yield namespace, name, ()


def _evicted(base: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the pods of the eviction marks."""
    for path in _records(f"{base}/podslice/evicted"):
        with suppress(*_UNREADABLE):
            namespace, _, name = _parse(path)["pod"].partition("/")
            yield namespace, name, ()


def _applied(base: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the pods of the records."""
    for path in _records(f"{base}/podslice/pods"):
        try:
            manifest = _parse(path)["manifest"]
            metadata, spec = manifest["metadata"], manifest["spec"]
            containers = [*spec.get("initContainers", ()), *spec["containers"]]
            namespace, name = metadata["namespace"], metadata["name"]
            names = tuple(each["name"] for each in containers if isinstance(each["name"], str))
            # a damaged record may have values of other types
            if isinstance(namespace, str) and isinstance(name, str):
                yield namespace, name, names
        except _UNREADABLE:
            continue


def _records(directory: str) -> list[str]:
    """Return the files of a directory; none if it cannot be read."""
    with suppress(OSError, ValueError):
        names = os.listdir(directory)  # noqa: PTH208 - pathlib takes a third of the time
        return [f"{directory}/{name}" for name in names if name.endswith(".json")]
    return []


def _parse(path: str) -> Any:  # noqa: ANN401 - any JSON

    return json.loads(read_regular(path, limit_bytes=_BYTES_MAX))


def _in_files(
    files: list[str], namespace: str | None
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the pods of manifests."""
    # 0.2 s, which names of applied pods need not
    from podslice.errors import PodsliceError
    from podslice.inputs.manifest.load import load_pods

    try:
        named = [f for f in files if f != "-"]
        loaded = load_pods(named, namespace=namespace, stdin=lambda: b"", validate=None)
    except PodsliceError:
        return
    for pod in loaded.pods:
        yield pod.namespace, pod.name, tuple(each.name for each in pod.containers)
