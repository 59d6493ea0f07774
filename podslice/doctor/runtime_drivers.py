"""Which driver the container runtimes use for control groups, from their configuration.

Only runtimes that are installed are looked at. Nothing is run: `podman info` takes a second, and a
daemon may be down.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from podslice.files import NotRegularError, follow_links, read_regular
from podslice.kernel.host import process_named
from podslice.kernel.text import read_text

SYSTEMD, CGROUPFS = "systemd", "cgroupfs"
_BYTES_MAX = 2**20
"""Bytes of a configuration file; those of all runtimes together are smaller."""
_PLACES = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "bin", "sbin")
_CRI_PLUGINS = {"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A container runtime, and how it makes control groups."""

    name: str
    driver: str
    """`systemd`, `cgroupfs`, or what it is told besides; empty where that can't be known."""
    source: str = ""
    """The file, or the process, that says so; empty for what it does by itself."""
    fix: str = ""
    """What makes it use systemd."""
    unreadable: str = ""
    """What of its configuration can't be read, and why."""
    in_use: bool = True
    """Whether it starts containers at all, as far as can be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the runtimes themselves look at, beside their configuration."""

    root: Path
    uid: int | None
    """The user whose runtimes are meant; None for those of the system."""
    config_home: str
    has_systemd: bool
    is_v2: bool

    @property
    def default(self) -> str:
        """What podman and docker do by themselves.

        Source: containers/common, pkg/config/systemd.go, defaultCgroupManager; moby,
        daemon/daemon_unix.go, UsingSystemd.
        """
        return SYSTEMD if self.has_systemd and self.is_v2 else CGROUPFS

    def under(self, path: str) -> Path:
        """A path of the host."""
        return self.root / path.lstrip("/")


class _UnreadableError(Exception):
    """A file is there and can't be understood, or not be opened."""


def read_runtimes(here: Surroundings) -> tuple[Runtime, ...]:
    """The runtimes that are installed."""
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
    by_itself = SYSTEMD if here.has_systemd and here.uid is None else here.default
    runtime = Runtime(name="podman", driver=by_itself)
    for path in _podman_files(here):
        engine = _table(_toml(here, path), "engine")
        if "cgroup_manager" in engine:
            runtime = replace(
                runtime, driver=str(engine["cgroup_manager"]), source=_shown(here, path)
            )
    where = runtime.source or (
        "/etc/containers/containers.conf"
        if here.uid is None
        else f"{here.config_home}/containers/containers.conf"
    )
    fix = f'write cgroup_manager = "systemd" below [engine] in {where}'
    return replace(runtime, fix=fix)


def _podman_files(here: Surroundings) -> Iterator[Path]:
    kind = "rootful" if here.uid is None else "rootless"
    homes = ["/usr/share", "/etc"]
    for home in homes if here.uid is None else [*homes, here.config_home]:
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
    home = "/etc" if here.uid is None else here.config_home
    path = here.under(home) / "docker/daemon.json"
    options = list(_table(_json(here, path)).get("exec-opts") or ())
    runtime = Runtime(name="docker", driver=here.default)
    runtime = _with_option(runtime, options, _shown(here, path))
    pid = process_named("dockerd", here.root) if here.uid is None else None
    if pid is not None:
        words = _command_line(here, pid)
        runtime = _with_option(runtime, words, f"the command line of dockerd (process {pid})")
    what = 'write "exec-opts": ["native.cgroupdriver=systemd"] into'
    restart = "systemctl restart docker" if here.uid is None else "systemctl --user restart docker"
    return replace(runtime, fix=f"{what} {_shown(here, path)}, then: {restart}")


def _with_option(runtime: Runtime, words: list[Any], source: str) -> Runtime:
    for word in words:
        _, found, driver = str(word).rpartition("native.cgroupdriver=")
        if found:
            runtime = replace(runtime, driver=driver, source=source)
    return runtime


def _containerd(here: Surroundings, _: Path) -> Runtime | None:
    """The CRI plugin; other clients of containerd (docker, nerdctl) state the driver themselves.

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
        source=_shown(here, path) if stated else "",
        fix=f"{fix} in {_shown(here, path)}, then: systemctl restart containerd",
        in_use=not disabled & _CRI_PLUGINS
        and any(_program(here, name) for name in ("kubelet", "crictl")),
    )


def _containerd_files(here: Surroundings, path: Path) -> Iterator[Mapping[str, Any]]:
    main = _toml(here, path)
    yield main
    for pattern in main.get("imports") or ():
        for imported in sorted(here.root.glob(str(pattern).lstrip("/") or "-")):
            if imported != path:
                yield _toml(here, imported)


def _crio(here: Surroundings, _: Path) -> Runtime | None:
    """Source: crio.conf(5), crio.conf.d(5)."""
    if here.uid is not None:
        return None
    base = here.under("/etc/crio")
    runtime = Runtime(name="cri-o", driver=SYSTEMD)
    drop_ins = (path for path in (base / "crio.conf.d").glob("*") if path.is_file())
    for path in (base / "crio.conf", *sorted(drop_ins)):
        settings = _table(_toml(here, path), "crio", "runtime")
        if "cgroup_manager" in settings:
            runtime = replace(
                runtime, driver=str(settings["cgroup_manager"]), source=_shown(here, path)
            )
    where = runtime.source or "/etc/crio/crio.conf"
    fix = f'write cgroup_manager = "systemd" below [crio.runtime] in {where}'
    return replace(runtime, fix=f"{fix}, then: systemctl restart crio")


def _crun(here: Surroundings, path: Path) -> Runtime:
    """Whether crun is built with systemd, which is all that there is to set in it.

    Source: crun, src/crun.c, what `crun --version` prints.
    """
    try:
        is_able = b"+SYSTEMD" in path.read_bytes()
    except OSError as error:
        raise _UnreadableError(f"{_shown(here, path)}: {error.strerror}") from error
    return Runtime(
        name="crun",
        driver=SYSTEMD if is_able else CGROUPFS,
        source=f"{_shown(here, path)} is built with{'' if is_able else 'out'} it",
        fix="install a crun whose --version says +SYSTEMD, or have runc used",
    )


def _program(here: Surroundings, name: str) -> Path | None:
    places = (here.root / place / name for place in _PLACES)
    return next((path for path in places if path.is_file()), None)


def _command_line(here: Surroundings, pid: int) -> list[str]:
    try:
        return read_text(here.root / "proc" / str(pid) / "cmdline").split("\0")
    except OSError:
        return []


def _shown(here: Surroundings, path: Path) -> str:
    """A path as it is on the host."""
    return f"/{path.relative_to(here.root)}"


def _table(value: object, *keys: str) -> Mapping[str, Any]:
    """What is below some keys; nothing where the shape is another."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _toml(here: Surroundings, path: Path) -> Mapping[str, Any]:
    text = _read(here, path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UnreadableError(f"{_shown(here, path)}: it is no TOML: {error}") from error


def _json(here: Surroundings, path: Path) -> object:
    text = _read(here, path)
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise _UnreadableError(f"{_shown(here, path)}: it is no JSON: {error}") from error


def _read(here: Surroundings, path: Path) -> str:
    """The text of a configuration file; none where there is no file."""
    try:
        return read_regular(path, limit_bytes=_BYTES_MAX, locate=follow_links).decode()
    except FileNotFoundError:
        return ""
    except NotRegularError as error:
        raise _UnreadableError(f"{_shown(here, path)}: it {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise _UnreadableError(f"{_shown(here, path)}: {why}") from error
