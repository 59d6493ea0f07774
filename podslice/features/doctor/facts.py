"""Facts about a host that matter to podslice; the root directory is a parameter.

They are read from files that every user may read; nothing is written.
"""

from __future__ import annotations

import json
import pwd
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from podslice.errors import HostError, Problem
from podslice.kernel.files import NotRegularError, follow_links, read_regular
from podslice.kernel.host import cgroup2_options, process_named, read_meminfo
from podslice.kernel.text import read_value, read_value_or_empty, split_words
from podslice.model.node_state import Foreign, Kubelet
from podslice.model.unit import SYSTEM, Manager

SYSTEMD, CGROUPFS = "systemd", "cgroupfs"
_CGROUP = "sys/fs/cgroup"
# controllers that cgroup v2 names differently
_RENAMED = {"blkio": "io"}
_BYTES_MAX = 2**20
"""The limit of a runtime's configuration file, which is much smaller."""
_PROGRAM_DIRECTORIES = ("usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "bin", "sbin")
_CRI_PLUGINS = {"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}


class Layout(StrEnum):
    """The layout of the mounted control groups. Source: systemd, docs/CGROUP_DELEGATION.md."""

    V2 = "v2"
    HYBRID = "hybrid"
    """Version 1 with the controllers, and version 2 without any."""
    V1 = "v1"
    NONE = "none"


class SystemdReply(NamedTuple):
    """The reply of the service manager, and the owner of the root."""

    version: int | None
    error: str = ""
    """Why there is no reply."""
    foreign: Foreign | None = None
    """Why the root is not podslice's own, judged by its units and the kubelets."""
    kubelets: tuple[Kubelet, ...] = ()
    """The kubelets that run on the host."""
    claims: tuple[Problem, ...] = ()
    """The resources that both podslice and a kubelet claim."""


class Subject(NamedTuple):
    """The manager and the pods that are checked, and the user who checks them."""

    uid: int
    manager: Manager = SYSTEM
    control_group: str = "/kubepods.slice"
    """The slice that holds all pods, below the manager's own control group."""


class Session(NamedTuple):
    """The session that a user needs for `--user`."""

    name: str
    directory: str
    """XDG_RUNTIME_DIR; empty where it is not set."""
    owner: int | None
    """The uid of that directory's owner; None where it cannot be read."""
    lingers: bool
    """Whether the user's manager keeps running after the last session."""


class Hugetlb(NamedTuple):
    """The state of the controller of huge pages."""

    pages: int
    """The number of huge pages of all sizes."""
    known: bool
    """Whether the kernel has the controller."""
    stops_at: str | None
    """The control group above the root slice that does not enable it below; None if all do."""


class Facts(NamedTuple):
    """The state of a host, as it was read once."""

    manager: Manager
    systemd: SystemdReply
    uid: int
    session: Session | None
    """None for the system's manager."""
    first_process: str
    """The name of process 1; empty where it cannot be read."""
    kernel: str
    """Its release: `6.12.1-amd64`."""
    command_line: frozenset[str]
    """The words of the kernel's command line."""
    layout: Layout
    mount_options: frozenset[str]
    """The options of cgroup v2. Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "Mounting"."""
    controllers: frozenset[str]
    """The controllers that the manager may use."""
    root_slice: str
    """The name of the slice that holds all pods."""
    slice_controllers: frozenset[str] | None
    """The controllers of the root slice; None where it does not exist or they are not known."""
    hugetlb: Hugetlb
    has_pressure: bool
    swap_bytes: int
    oom_score_adj: int
    """The value of this process."""
    has_manifest_dir: bool
    """Whether the packages' directory of manifests exists."""
    runtimes: tuple[Runtime, ...]

    @property
    def protects_below(self) -> bool:
        """Return whether the protection of a control group applies to all groups below it."""
        return "memory_recursiveprot" in self.mount_options

    @property
    def counts_hugepages(self) -> bool:
        """Return whether huge pages count as memory of their control group."""
        return "memory_hugetlb_accounting" in self.mount_options


def read_facts(systemd: SystemdReply, subject: Subject, root: Path = Path("/")) -> Facts:
    """Read the facts of a host.

    Raises:
        HostError: /proc cannot be read.
    """
    manager = subject.manager
    try:
        swap_bytes = read_meminfo(root).get("SwapTotal", 0)
        kernel = read_value(root / "proc/sys/kernel/osrelease")
        oom_score_adj = int(read_value(root / "proc/self/oom_score_adj"))
    except (OSError, ValueError) as error:
        raise HostError(f"this host cannot be read: {error}; is /proc mounted?") from error
    layout = _layout(root)
    group = PurePosixPath(manager.path_of(subject.control_group))
    return Facts(
        manager=manager,
        systemd=systemd,
        uid=subject.uid,
        session=_session(manager.uid, manager, root) if manager.uid is not None else None,
        first_process=read_value_or_empty(root / "proc/1/comm"),
        kernel=kernel,
        command_line=frozenset(split_words(read_value_or_empty(root / "proc/cmdline"))),
        layout=layout,
        mount_options=cgroup2_options(root),
        controllers=_controllers(root, layout, manager),
        root_slice=group.name,
        slice_controllers=_controllers_of(root, group) if layout is Layout.V2 else None,
        hugetlb=_hugetlb(root, layout, group),
        # the kernel may list the file, and deny to read it
        has_pressure=bool(read_value_or_empty(root / "proc/pressure/memory")),
        swap_bytes=swap_bytes,
        oom_score_adj=oom_score_adj,
        has_manifest_dir=(root / "etc/podslice/manifests").is_dir(),
        runtimes=installed_runtimes(manager, root),
    )


def _layout(root: Path) -> Layout:
    mount = root / _CGROUP
    if (mount / "cgroup.controllers").exists():
        return Layout.V2
    if (mount / "unified/cgroup.procs").exists():
        return Layout.HYBRID
    return Layout.V1 if any(mount.glob("*/cgroup.procs")) else Layout.NONE


def _controllers(root: Path, layout: Layout, manager: Manager) -> frozenset[str]:
    """Return the controllers that a manager may use, by their names in cgroup v2."""
    if layout is Layout.V2:
        return _controllers_of(root, PurePosixPath(manager.control_group)) or frozenset()
    if manager.is_user:
        return frozenset()  # systemd delegates none of version 1 to users
    found = (root / _CGROUP).glob("*/cgroup.procs")
    return frozenset(_RENAMED.get(path.parent.name, path.parent.name) for path in found)


def _controllers_of(root: Path, group: PurePosixPath) -> frozenset[str] | None:
    """Return the controllers of a control group; None if it does not exist."""
    return _words(root / _CGROUP / group.relative_to("/") / "cgroup.controllers")


def _hugetlb(root: Path, layout: Layout, group: PurePosixPath) -> Hugetlb:
    counts = (root / "sys/kernel/mm/hugepages").glob("*/nr_hugepages")
    stops_at = None
    # a control group enables a controller below only if all above it do
    for above in reversed(group.parents):
        enabled = _words(root / _CGROUP / above.relative_to("/") / "cgroup.subtree_control")
        if enabled is not None and "hugetlb" not in enabled:
            stops_at = str(above)
            break
    known = _words(root / _CGROUP / "cgroup.controllers") or frozenset()
    return Hugetlb(
        pages=sum(int(read_value_or_empty(path) or 0) for path in counts),
        known=layout is Layout.V2 and "hugetlb" in known,
        stops_at=stops_at,
    )


def _session(uid: int, manager: Manager, root: Path) -> Session:
    name, owner = str(uid), None
    with suppress(KeyError):
        name = pwd.getpwuid(uid).pw_name
    directory = manager.runtime_directory if manager.has_session else ""
    with suppress(OSError):
        owner = (root / directory.lstrip("/")).stat().st_uid if directory else None
    return Session(
        name=name,
        directory=directory,
        owner=owner,
        lingers=(root / "var/lib/systemd/linger" / name).exists(),
    )


def _words(path: Path) -> frozenset[str] | None:
    try:
        return frozenset(split_words(read_value(path)))
    except OSError:
        return None


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
    """The user of the runtimes; None for the system's runtimes."""
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


def installed_runtimes(manager: Manager, root: Path = Path("/")) -> tuple[Runtime, ...]:
    """Return the container runtimes of a manager's user, with their drivers.

    None of them is run: `podman info` takes a second, and a daemon may be down.
    """
    here = Surroundings(
        root=root,
        uid=manager.uid,
        config_directory=manager.config_directory,
        has_systemd=read_value_or_empty(root / "proc/1/comm") == SYSTEMD,
        is_v2=_layout(root) is Layout.V2,
    )
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
    driver = _table(_read(here, path), *keys).get("cgroup_manager")
    if driver is None:
        return runtime
    return runtime._replace(driver=str(driver), source=_host_path(here, path))


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
    """Return a path as the host names it."""
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
