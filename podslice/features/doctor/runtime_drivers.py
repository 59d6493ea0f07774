"""The drivers that container runtimes use for control groups, from their configuration.

Only installed runtimes are checked. None is run: `podman info` takes a second, and a daemon may be
down.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from podslice.kernel.files import NotRegularError, follow_links, read_regular
from podslice.kernel.host import process_named
from podslice.kernel.text import read_value_or_empty

SYSTEMD, CGROUPFS = "systemd", "cgroupfs"
_BYTES_MAX = 2**20
"""Bytes of a configuration file; those of all runtimes together are smaller."""
_PROGRAM_DIRECTORIES = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "bin", "sbin")
_CRI_PLUGINS = {"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}


class Runtime(NamedTuple):
    """A container runtime, and how it creates control groups."""

    name: str
    driver: str
    """`systemd`, `cgroupfs`, or another configured value; empty where it is not known."""
    source: str = ""
    """The file or process that states the driver; empty for the default."""
    fix: str = ""
    """The change that makes it use systemd."""
    unreadable: str = ""
    """The part of its configuration that cannot be read, and the reason."""
    in_use: bool = True
    """Whether it appears to start containers."""


class Surroundings(NamedTuple):
    """The facts that the runtimes' defaults depend on."""

    root: Path
    uid: int | None
    """The user of the runtimes; None for those of the system."""
    config_directory: str
    has_systemd: bool
    is_v2: bool

    @property
    def default(self) -> str:
        """Return the default driver of podman and docker.

        Source: containers/common, pkg/config/systemd.go, defaultCgroupManager; moby,
        daemon/daemon_unix.go, UsingSystemd.
        """
        return SYSTEMD if self.has_systemd and self.is_v2 else CGROUPFS

    def under(self, path: str) -> Path:
        """Return a path of the host below `root`."""
        return self.root / path.lstrip("/")


class _UnreadableError(Exception):
    """A file exists and cannot be opened or parsed."""


def read_runtimes(here: Surroundings) -> tuple[Runtime, ...]:
    """Return the installed runtimes."""
    readers = {
        "podman": ("podman", _podman),
        "docker": ("dockerd" if here.uid is None else "dockerd-rootless.sh", _docker),
        "containerd": ("containerd", _containerd),
        "cri-o": ("crio", _crio),
        "crun": ("crun", _crun),
    }
    found = []
    for name, (program, read) in readers.items():
        path = _program(here, program)
        if path is None:
            continue
        try:
            runtime = read(here, path)
        except _UnreadableError as error:
            runtime = Runtime(name=name, driver="", unreadable=str(error))
        if runtime is not None:
            found.append(runtime)
    return tuple(found)


def _podman(here: Surroundings, _: Path) -> Runtime:
    """Source: containers/common, pkg/config/new.go, systemConfigs; containers-config(5)."""
    # root's podman uses systemd on cgroup v1 as well
    default = SYSTEMD if here.has_systemd and here.uid is None else here.default
    runtime = Runtime(name="podman", driver=default)
    for path in _podman_files(here):
        runtime = _with_cgroup_manager(runtime, here, path, "engine")
    where = runtime.source or (
        "/etc/containers/containers.conf"
        if here.uid is None
        else f"{here.config_directory}/containers/containers.conf"
    )
    fix = f'write cgroup_manager = "systemd" below [engine] in {where}'
    return runtime._replace(fix=fix)


def _with_cgroup_manager(runtime: Runtime, here: Surroundings, path: Path, *keys: str) -> Runtime:
    """Return a runtime with the driver that a table of a file states."""
    options = _table(_read(here, path), *keys)
    if "cgroup_manager" not in options:
        return runtime
    driver = str(options["cgroup_manager"])
    return runtime._replace(driver=driver, source=_host_path(here, path))


def _podman_files(here: Surroundings) -> Iterator[Path]:
    kind = "rootful" if here.uid is None else "rootless"
    homes = ["/usr/share", "/etc"]
    for home in homes if here.uid is None else [*homes, here.config_directory]:
        base = here.under(home) / "containers"
        yield base / "containers.conf"
        yield from sorted((base / "containers.conf.d").glob("*.conf"))
        if home in homes:
            yield base / f"containers.{kind}.conf"
            yield from sorted((base / f"containers.{kind}.conf.d").glob("*.conf"))
        if home in homes and here.uid is not None:
            yield from sorted((base / f"containers.{kind}.conf.d" / str(here.uid)).glob("*.conf"))


def _docker(here: Surroundings, _: Path) -> Runtime:
    """Source: dockerd(8), --exec-opt; docs.docker.com, "Runtime metrics", cgroup driver."""
    home = "/etc" if here.uid is None else here.config_directory
    path = here.under(home) / "docker/daemon.json"
    options = list(_read(here, path, "JSON").get("exec-opts") or ())
    runtime = Runtime(name="docker", driver=here.default)
    runtime = _with_driver_option(runtime, options, _host_path(here, path))
    pid = process_named("dockerd", here.root) if here.uid is None else None
    if pid is not None:
        words = read_value_or_empty(here.root / "proc" / str(pid) / "cmdline").split("\0")
        source = f"the command line of dockerd (process {pid})"
        runtime = _with_driver_option(runtime, words, source)
    what = 'write "exec-opts": ["native.cgroupdriver=systemd"] into'
    restart = "systemctl restart docker" if here.uid is None else "systemctl --user restart docker"
    return runtime._replace(fix=f"{what} {_host_path(here, path)}, then: {restart}")


def _with_driver_option(runtime: Runtime, words: list[Any], source: str) -> Runtime:
    for word in words:
        _, found, driver = str(word).rpartition("native.cgroupdriver=")
        if found:
            runtime = runtime._replace(driver=driver, source=source)
    return runtime


def _containerd(here: Surroundings, _: Path) -> Runtime | None:
    """Return the CRI plugin; other clients of containerd (docker, nerdctl) set the driver themselves.

    Source: containerd, docs/cri/config.md.
    """
    if here.uid is not None:
        return None
    path = here.under("/etc/containerd/config.toml")
    stated: dict[str, bool] = {}
    disabled: set[str] = set()
    for config in _containerd_files(here, path):
        disabled |= set(map(str, config.get("disabled_plugins") or ()))
        for plugin in _table(config, "plugins").values():
            for name, runtime in _table(plugin, "containerd", "runtimes").items():
                options = _table(runtime, "options")
                if "SystemdCgroup" in options:
                    stated[name] = options["SystemdCgroup"] is True
    others = sorted(name for name, is_systemd in stated.items() if not is_systemd)
    fix = "write SystemdCgroup = true into the options of the CRI plugin's runtimes"
    return Runtime(
        name="containerd",
        driver=SYSTEMD if stated and not others else CGROUPFS,
        source=_host_path(here, path) if stated else "",
        fix=f"{fix} in {_host_path(here, path)}, then: systemctl restart containerd",
        in_use=not disabled & _CRI_PLUGINS
        and any(_program(here, name) for name in ("kubelet", "crictl")),
    )


def _containerd_files(here: Surroundings, path: Path) -> Iterator[Mapping[str, Any]]:
    main = _read(here, path)
    yield main
    for pattern in main.get("imports") or ():
        for imported in sorted(here.root.glob(str(pattern).lstrip("/") or "-")):
            if imported != path:
                yield _read(here, imported)


def _crio(here: Surroundings, _: Path) -> Runtime | None:
    """Source: crio.conf(5), crio.conf.d(5)."""
    if here.uid is not None:
        return None
    base = here.under("/etc/crio")
    runtime = Runtime(name="cri-o", driver=SYSTEMD)
    drop_ins = (path for path in (base / "crio.conf.d").glob("*") if path.is_file())
    for path in (base / "crio.conf", *sorted(drop_ins)):
        runtime = _with_cgroup_manager(runtime, here, path, "crio", "runtime")
    where = runtime.source or "/etc/crio/crio.conf"
    fix = f'write cgroup_manager = "systemd" below [crio.runtime] in {where}'
    return runtime._replace(fix=f"{fix}, then: systemctl restart crio")


def _crun(here: Surroundings, path: Path) -> Runtime:
    """Return whether crun is built with systemd, which is its only configuration.

    Source: crun, src/crun.c, what `crun --version` prints.
    """
    try:
        has_systemd = b"+SYSTEMD" in path.read_bytes()
    except OSError as error:
        raise _UnreadableError(f"{_host_path(here, path)}: {error.strerror}") from error
    return Runtime(
        name="crun",
        driver=SYSTEMD if has_systemd else CGROUPFS,
        source=f"{_host_path(here, path)} is built with{'' if has_systemd else 'out'} it",
        fix="install a crun whose --version shows +SYSTEMD, or use runc",
    )


def _program(here: Surroundings, name: str) -> Path | None:
    places = (here.root / place / name for place in _PROGRAM_DIRECTORIES)
    return next((path for path in places if path.is_file()), None)


def _host_path(here: Surroundings, path: Path) -> str:
    """Return a path as it is on the host."""
    return f"/{path.relative_to(here.root)}"


def _table(value: object, *keys: str) -> Mapping[str, Any]:
    """Return the table at a path of keys; empty if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _read(here: Surroundings, path: Path, form: str = "TOML") -> Mapping[str, Any]:
    """Return the content of a configuration file; empty if the file does not exist."""
    try:
        text = read_regular(path, limit_bytes=_BYTES_MAX, locate=follow_links).decode()
    except FileNotFoundError:
        return {}
    except NotRegularError as error:
        raise _UnreadableError(f"{_host_path(here, path)}: it {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not valid UTF-8"
        raise _UnreadableError(f"{_host_path(here, path)}: {why}") from error
    try:
        return tomllib.loads(text) if form == "TOML" else _table(json.loads(text or "{}"))
    except (ValueError, RecursionError) as error:
        raise _UnreadableError(f"{_host_path(here, path)}: not valid {form}: {error}") from error
