"""Where an audit reads the pods and the configuration of a kubelet."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from podslice.cli.manifests import read_stdin
from podslice.cli.output import note
from podslice.dataclass import dataclass
from podslice.errors import HostError, InputError, invalid, printable
from podslice.imports import allow_openssl
from podslice.inputs.kubelet.kubelet_config import read_settings, read_version
from podslice.inputs.kubelet.kubelet_files import read_file
from podslice.inputs.kubelet.pod_list import parse_pod_list, read_pod_list
from podslice.inputs.limits import BYTES_MAX
from podslice.model.kubelet_node import KUBELET_VERSION, Credentials

if TYPE_CHECKING:
    from podslice.kubelet.kubelet_api import KubeletApi
    from podslice.model.kubelet_node import KubeletPod, KubeletSettings

CONFIG_FILE = Path("/var/lib/kubelet/config.yaml")
"""Where kubeadm and most distributions have the kubelet's configuration."""
_POD_LIST, _CONFIGZ = "/pods", "/configz"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSource:
    """The options that state where to read."""

    files: tuple[str, ...] = ()
    url: str | None = None
    kubeconfig: Path | None = None
    authority: Path | None = None
    is_verified: bool = True
    config: Path | None = None
    version: str | None = None


def read_kubelet(source: KubeletSource) -> tuple[tuple[KubeletPod, ...], KubeletSettings]:
    """Return the pods of a kubelet, and its configuration.

    Raises:
        InputError: the options, a file or a document are invalid.
        HostError: the kubelet does not reply as expected.
    """
    if bool(source.files) == bool(source.url):
        raise invalid(
            "state either --filename or --kubelet", "add one, or leave out one of the two"
        )
    stated = None if source.version is None else read_version(source.version)
    if source.url is None:
        _refuse_credentials(source)
        settings = _read_config(source.config or CONFIG_FILE, stated or KUBELET_VERSION)
        return read_pod_list(source.files, read_stdin), settings
    api, is_secure = _connect(source, source.url)
    version = stated or _ask_version(api)
    if source.config is None and is_secure:
        data, name = api.get(_CONFIGZ), f"{source.url}{_CONFIGZ}"
        settings = read_settings(data, name, changed_sec=_changed(CONFIG_FILE), version=version)
    else:
        settings = _read_config(source.config or CONFIG_FILE, version)
    return parse_pod_list(api.get(_POD_LIST), f"{source.url}{_POD_LIST}"), settings


def _refuse_credentials(source: KubeletSource) -> None:
    """Check that no option of a connection is stated without one."""
    if source.kubeconfig or source.authority or not source.is_verified:
        message = "--kubeconfig, --kubelet-ca and --insecure-skip-tls-verify require --kubelet"
        raise invalid(message, "add --kubelet https://127.0.0.1:10250")


def _connect(source: KubeletSource, url: str) -> tuple[KubeletApi, bool]:
    allow_openssl()
    from podslice.kubelet.kubelet_api import KubeletApi, parse_address

    address = parse_address(url)
    credentials = Credentials()
    if source.kubeconfig is not None:
        from podslice.inputs.kubelet.kubeconfig import read_kubeconfig

        credentials = read_kubeconfig(source.kubeconfig)
    if source.authority is not None:
        text = read_file(source.authority, limit_bytes=BYTES_MAX).decode("ascii", errors="replace")
        credentials = replace(credentials, authority=text)
    api = KubeletApi(address, credentials, limit_bytes=BYTES_MAX, is_verified=source.is_verified)
    return api, address.is_secure


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
