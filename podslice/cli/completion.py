"""Names that the shell completes: pods, containers, namespaces and units.

typer calls these functions at a press of the completion key. Files that cannot be read are ignored
without a message.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import typer

from podslice.cli.host import runtime_directory
from podslice.errors import PodsliceError
from podslice.inputs.manifest.load import load_pods
from podslice.kernel.proc import find_manager
from podslice.model.pod import Pod
from podslice.reconcile.assess import living_agent
from podslice.store.store import Store

_Pod = tuple[str, str, tuple[str, ...]]
"""The namespace, the name and the containers of a pod."""


def complete_pods(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the pods of the files that are given, or else the applied ones."""
    return _matching(_as_typed(ctx, _pods(ctx)), incomplete)


def complete_containers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the containers of the pod on the command line, or of all pods."""
    given = ctx.params.get("pod") or ()
    wanted = {given} if isinstance(given, str) else {*given}
    pods = _as_typed(ctx, _pods(ctx))
    shown = (names for pod, names in pods.items() if not wanted or pod in wanted)
    return _matching(chain.from_iterable(shown), incomplete)


def complete_namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the namespaces of pods."""
    return _matching((namespace for namespace, _, _ in _pods(ctx)), incomplete)


def complete_units(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the services with a unit file; for `release` the services with a drop-in of podslice."""
    return _matching(_units(ctx), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that begin like the word; a damaged record may have any text as a name."""
    return sorted({name for name in names if name.startswith(incomplete) and _is_name(name)})


def _is_name(text: str) -> bool:
    return text.isascii() and all(each.isalnum() or each in "-./@_:" for each in text)


def _as_typed(ctx: typer.Context, pods: Iterable[_Pod]) -> dict[str, tuple[str, ...]]:
    """Return the containers of pods, whose names are as they are typed after `-n`."""
    here = ctx.params.get("namespace") or "default"
    return {
        name if namespace == here else f"{namespace}/{name}": containers
        for namespace, name, containers in pods
    }


def _pods(ctx: typer.Context) -> Iterator[_Pod]:
    files = ctx.params.get("filename")
    with suppress(PodsliceError):
        if files and ctx.info_name != "delete":
            files = [each for each in files if each != "-"]
            yield from _in_files(files, ctx.params.get("namespace"))
        else:
            yield from _recorded(ctx)


_SERVICE = ".service"
_SYSTEM = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system")
_USER = ("/etc/systemd/user", "/run/systemd/user", "/usr/lib/systemd/user")
_DROP_IN = "50-podslice.conf"


def _units(ctx: typer.Context) -> Iterator[str]:
    """Yield the services with a unit file; for `release` those with a drop-in of podslice."""
    own = os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '')}/.config"
    directories = (f"{own}/systemd/user", *_USER) if ctx.params.get("user") else _SYSTEM
    for directory in directories:
        with suppress(OSError):
            for path in Path(directory).iterdir():
                name = path.name
                unit = name.removesuffix(".d")
                if unit.endswith("@.service") or not unit.endswith(_SERVICE):
                    continue
                if ctx.info_name != "release":
                    yield from [name] if name == unit else ()
                elif (path / _DROP_IN).exists():
                    yield unit


def _recorded(ctx: typer.Context) -> Iterator[_Pod]:
    """Yield the applied pods; the evicted ones for `readmit`, and all wanted ones for `status`."""
    store = Store(runtime_directory(find_manager(user=bool(ctx.params.get("user")))))
    records, agent = store.load(), living_agent(store)
    further = [mark.pod for mark in records.evicted]
    if ctx.info_name == "status":
        further += [each.pod for each in (agent.pending if agent else None) or ()]
    if ctx.info_name in {"readmit", "status"}:
        for namespace, _, name in (key.partition("/") for key in further):
            yield namespace, name, ()
    if ctx.info_name != "readmit":
        yield from map(_values, records.pods)


def _in_files(files: list[str], namespace: str | None) -> Iterator[_Pod]:
    """Yield the pods of manifests."""
    loaded = load_pods(files, namespace=namespace, stdin=lambda: b"", validate=None)
    return map(_values, loaded.pods)


def _values(pod: Pod) -> _Pod:
    return pod.namespace, pod.name, tuple(each.name for each in pod.containers)
