"""The options that state a kubelet, of all verbs that read one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from podslice.errors import InputError, Problem
from podslice.model.config import Config, PodsFrom
from podslice.model.manager import Manager

_KEY = "pods-from"
Kubelet = Annotated[
    str | None,
    typer.Option("--kubelet", metavar="URL", help="Read the pods from the kubelet's API."),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", metavar="FILE", help="Use the user of this kubeconfig."),
]
KubeletCa = Annotated[
    Path | None,
    typer.Option(
        "--kubelet-ca",
        metavar="FILE",
        help="Trust these certificates, instead of the kubeconfig's.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure-skip-tls-verify", help="Accept any certificate of the kubelet."),
]
KubeletConfig = Annotated[
    Path | None,
    typer.Option(
        "--kubelet-config",
        metavar="FILE",
        help="Read the kubelet's configuration, or a saved /configz, from this file.",
    ),
]
KubeletVersion = Annotated[
    str | None,
    typer.Option("--kubelet-version", metavar="VERSION", help="Follow the rules of this version."),
]


class KubeletSource(NamedTuple):
    """The options that state where to read."""

    files: tuple[str, ...] = ()
    url: str | None = None
    kubeconfig: Path | None = None
    authority: Path | None = None
    is_verified: bool = True
    config: Path | None = None
    version: str | None = None


def check_options(
    source: KubeletSource, config: Config, manager: Manager, *, restores: bool
) -> bool:
    """Return whether the agent is to follow a kubelet.

    Raises:
        InputError: the options contradict each other; it has every problem.
    """
    follows = config.pods_from is PodsFrom.KUBELET
    stated = dict(_stated(source, restores=restores))
    if follows:
        found = list(_lacking(source, manager))
    else:
        hint = f'set {_KEY} = "kubelet" and allow-kubelet-slices = true in podslice.toml, or leave it out'
        message = "the agent reads its pods from manifests"
        found = [Problem(where=name, message=message, hint=hint) for name in stated if stated[name]]
    if found:
        raise InputError(found)
    return follows


def _stated(source: KubeletSource, *, restores: bool) -> Iterator[tuple[str, bool]]:
    """Yield the options of the command line, and whether each is stated."""
    yield "--kubelet", source.url is not None
    yield "--kubeconfig", source.kubeconfig is not None
    yield "--kubelet-ca", source.authority is not None
    yield "--insecure-skip-tls-verify", not source.is_verified
    yield "--kubelet-config", source.config is not None
    yield "--kubelet-version", source.version is not None
    yield "--restore", restores


def _lacking(source: KubeletSource, manager: Manager) -> Iterator[Problem]:
    if source.url is None:
        hint = "add --kubelet https://127.0.0.1:10250 to the command line of the agent"
        yield Problem(where=_KEY, message="the kubelet is not stated", hint=hint)
    if manager.is_user:
        message = "a user's service manager has no kubelet"
        yield Problem(where="--user", message=message, hint="leave it out")
