"""The kubelet that verbs read: its options, and where its pods and its configuration are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import typer

from podslice.cli.manifests import read_stdin
from podslice.cli.options import declared, parameter
from podslice.cli.output import note
from podslice.errors import HostError, InputError, Problem, invalid, printable
from podslice.features.kubelet.api import Credentials, KubeletApi, parse_address, read_kubeconfig
from podslice.features.kubelet.config import read_settings, read_version
from podslice.features.kubelet.model import (
    KUBELET_VERSION,
    KubeletPod,
    KubeletSettings,
)
from podslice.features.kubelet.pods import parse_pod_list, read_pod_list
from podslice.inputs.budget import BYTES_MAX
from podslice.inputs.source import read_authority, read_file
from podslice.model.config import Config, PodsFrom
from podslice.model.unit import Manager

_KEY = "pods-from"


class KubeletSource(NamedTuple):
    """The kubelet that options state; the fields have the names of the options."""

    kubelet: str | None = None
    """The address of its API."""
    kubeconfig: Path | None = None
    kubelet_ca: Path | None = None
    insecure_skip_tls_verify: bool = False
    kubelet_config: Path | None = None
    kubelet_version: str | None = None


_PARAMETERS = tuple(
    parameter(key, typer.Option(f"--{key}", metavar=metavar, help=text), kind)
    for key, metavar, kind, text in (
        ("kubelet", "URL", str | None, "Address of the kubelet's API."),
        ("kubeconfig", "FILE", Path | None, "Credentials for the API."),
        (
            "kubelet-ca",
            "FILE",
            Path | None,
            "Trust these certificates.",
        ),
        ("insecure-skip-tls-verify", None, bool, "Accept any certificate."),
        (
            "kubelet-config",
            "FILE",
            Path | None,
            "Its configuration, or /configz.",
        ),
        ("kubelet-version", "VERSION", str | None, "Version of the rules."),
    )
)


def kubelet_options(verb: Callable[..., int]) -> Callable[..., int]:
    """Put the options that state a kubelet in the place of the parameter `source` of a verb."""
    parameters: list[inspect.Parameter] = []
    for each in inspect.signature(verb, eval_str=True).parameters.values():
        parameters += _PARAMETERS if each.name == "source" else [each]

    def with_source(*arguments: Any, **given: Any) -> int:  # noqa: ANN401 (as typer has parsed it)
        stated = {name: given.pop(name) for name in KubeletSource._fields if name in given}
        return verb(*arguments, source=KubeletSource(**stated), **given)

    return declared(with_source, verb, parameters)


def check_options(
    source: KubeletSource, config: Config, manager: Manager, *, restores: bool
) -> bool:
    """Return whether the agent is to follow a kubelet.

    Raises:
        InputError: the options contradict each other; it has every problem.
    """
    follows = config.pods_from is PodsFrom.KUBELET
    found = []
    if follows and source.kubelet is None:
        hint = "add --kubelet https://127.0.0.1:10250 to the command line of the agent"
        found.append(Problem(where=_KEY, message="the kubelet is not stated", hint=hint))
    if follows and manager.is_user:
        message = "a user's service manager has no kubelet"
        found.append(Problem(where="--user", message=message, hint="leave it out"))
    if not follows:
        options = {**source._asdict(), "restore": restores}
        stated = [name for name, value in options.items() if value not in (None, False)]
        hint = f'set {_KEY} = "kubelet" and allow-kubelet-slices = true in podslice.toml, or leave it out'
        message = "the agent reads its pods from manifests"
        found = [
            Problem(where=f"--{name.replace('_', '-')}", message=message, hint=hint)
            for name in stated
        ]
    if found:
        raise InputError(found)
    return follows


CONFIG_FILE = Path("/var/lib/kubelet/config.yaml")
"""Where kubeadm and most distributions have the kubelet's configuration."""
POD_LIST, _CONFIGZ = "/pods", "/configz"


def read_kubelet(
    source: KubeletSource, files: Sequence[str]
) -> tuple[tuple[KubeletPod, ...], KubeletSettings]:
    """Return the pods of a kubelet, from its API or from files, and its configuration.

    Raises:
        InputError: the options, a file or a document are invalid.
        HostError: the kubelet does not reply as expected.
    """
    if bool(files) == bool(source.kubelet):
        raise invalid(
            "state either --filename or --kubelet", "add one, or leave out one of the two"
        )
    if source.kubelet is None:
        if source.kubeconfig or source.kubelet_ca or source.insecure_skip_tls_verify:
            message = "--kubeconfig, --kubelet-ca and --insecure-skip-tls-verify require --kubelet"
            raise invalid(message, "add --kubelet https://127.0.0.1:10250")
        stated = (
            KUBELET_VERSION
            if source.kubelet_version is None
            else read_version(source.kubelet_version)
        )
        settings = _read_config(source.kubelet_config or CONFIG_FILE, stated)
        return read_pod_list(files, read_stdin), settings
    api = connect(source, source.kubelet)
    data = api.get(POD_LIST)
    settings = read_kubelet_settings(source, source.kubelet, api)
    return parse_pod_list(data, f"{source.kubelet}{POD_LIST}"), settings


def read_kubelet_settings(
    source: KubeletSource, url: str, api: KubeletApi, *, assumes_version: bool = True
) -> KubeletSettings:
    """Return the configuration of a kubelet, with its version.

    Args:
        source: the options.
        url: the address of the kubelet, for messages.
        api: the kubelet.
        assumes_version: whether a version is assumed, with a note, where it is not known.

    Raises:
        InputError: the configuration is invalid, or cannot be read.
        HostError: the kubelet does not reply as expected.
    """
    if source.kubelet_version is not None:
        version = read_version(source.kubelet_version)
    else:
        version = _ask_version(api) if assumes_version else read_version(api.version())
    # The read-only port does not serve /configz.
    if source.kubelet_config is not None or not api.is_secure:
        return _read_config(source.kubelet_config or CONFIG_FILE, version)
    data, name = api.get(_CONFIGZ), f"{url}{_CONFIGZ}"
    # The document states no time: the time of the usual file is used instead.
    return read_settings(data, name, changed_sec=_changed(CONFIG_FILE), version=version)


def connect(source: KubeletSource, url: str) -> KubeletApi:
    """Return the API of a kubelet, with the credentials as their files have them now.

    Raises:
        InputError: the address or a file is invalid.
        HostError: the credentials are not valid, or would be sent without encryption.
    """
    address = parse_address(url)
    credentials = Credentials()
    if source.kubeconfig is not None:
        credentials = read_kubeconfig(source.kubeconfig)
    if source.kubelet_ca is not None:
        credentials = replace(
            credentials, authority=read_authority(source.kubelet_ca, "--kubelet-ca")
        )
    return KubeletApi(
        address, credentials, limit_bytes=BYTES_MAX, is_verified=not source.insecure_skip_tls_verify
    )


def _ask_version(api: KubeletApi) -> tuple[int, int]:
    """Return the version of the kubelet, or the assumed one where it is not known."""
    try:
        return read_version(api.version())
    except (HostError, InputError) as error:
        shown = ".".join(map(str, KUBELET_VERSION))
        note(f"the version of the kubelet is not known, {shown} is assumed: {error}")
        return KUBELET_VERSION


def _read_config(path: Path, version: tuple[int, int]) -> KubeletSettings:
    data = read_file(path, limit_bytes=BYTES_MAX, hint="state the file with --kubelet-config")
    return read_settings(data, printable(str(path)), changed_sec=_changed(path), version=version)


def _changed(path: Path) -> int | None:
    with suppress(OSError):
        return int(path.stat().st_mtime)
    return None
