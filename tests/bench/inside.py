"""A namespace in which clients of systemd are measured: podslice as installed by a package, and others.

It has a private systemd at this host's speed. The programs inside it are in `peers`;
`peers/runner.py` measures them, inside as well. floor.c, the client of libsystemd in C, is compiled
in another namespace.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podslice.model.properties import OBSERVED
from podslice.model.unit import UnitKind
from tests.bench.load import watch_load
from tests.bench.pods import CAPACITY, make_manifests
from tests.lab import extras
from tests.lab.image import ensure_dir, make_key
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir
from tests.lab.recipe import DEFAULT_SUITE

PEERS = Path(__file__).parent / "peers"
PACKAGES = ("python3-dbus-fast",)
DIR = "/bench"
MANIFESTS, WORK = f"{DIR}/pods.yaml", f"{DIR}/work"
FLOOR = f"{DIR}/floor"
ENVIRONMENT = {"PYTHONPATH": "/src"}
TIMEOUT_SEC = 300.0
GONE_PATIENCE_SEC = 10.0
OPTIONS = (f"--set=capacity={CAPACITY}",)
"""Options of every verb of podslice."""
FLOOR_SOURCE = Path(__file__).with_name("floor.c")
FLOOR_PACKAGES = ("gcc", "libc6-dev", "libsystemd-dev")
# not extras.unpack, which leaves out libraries to link with
UNPACK = """\
for deb in /mnt/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -C / --keep-directory-symlink -xf -
done
"""
COMPILE = ("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", "/root/floor", "/root/floor.c")
COMPARED = (
    *("Description", "LoadState", "ActiveState", "Transient", "ControlGroup", "DropInPaths"),
    *("Wants", "Requires", "After", "Slice", "DefaultDependencies"),
    *sorted(OBSERVED[UnitKind.SLICE] - {"Slice"}),
)
"""The properties of each slice that must be the same for every client."""


class WrongWork(Exception):
    """A client has not done its work: its time is meaningless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The time of one command; milliseconds."""

    wall: float
    cpu: float
    """Of the command and its children."""
    pid1: float
    bus: float
    """Of dbus-daemon."""
    disturbed: bool
    stdout: str
    stderr: str

    def figures(self) -> dict[str, object]:
        """Return the figures of a round."""
        return {
            "wall_ms": round(self.wall, 3),
            "client_cpu_ms": round(self.cpu, 3),
            "pid1_cpu_ms": round(self.pid1, 3),
            "bus_cpu_ms": round(self.bus, 3),
            "disturbed": self.disturbed,
        }


def podslice(*arguments: str) -> tuple[str, ...]:
    """Return a verb of podslice as a command: a new interpreter, nothing imported before."""
    verb, *rest = arguments
    return ("python3", "-m", "podslice", verb, *OPTIONS, *rest)


@contextmanager
def open_namespace() -> Iterator[Namespace]:
    """Boot a machine with all programs, and podslice with its bytecode, as a package installs it."""
    with Namespace() as machine:
        machine.push(source_dir(), "/src")
        machine.run("python3", "-m", "compileall", "-q", "/src/podslice")
        extras.unpack(machine, DEFAULT_SUITE, PACKAGES)
        machine.put(FLOOR, build_floor().read_bytes(), 0o755)
        for path in PEERS.iterdir():
            if path.is_file():
                machine.put(f"{DIR}/{path.name}", path.read_bytes(), 0o755)
        yield machine


def build_floor() -> Path:
    """Return the program of floor.c; from the cache if possible."""
    debs = extras.fetch(DEFAULT_SUITE, FLOOR_PACKAGES)
    key = make_key(debs.parent.name, FLOOR_SOURCE, *COMPILE)

    def build(new: Path) -> None:
        with Namespace(bind={"/mnt": debs}) as machine:
            machine.run("sh", "-ec", UNPACK)
            machine.put("/root/floor.c", FLOOR_SOURCE.read_bytes())
            machine.run(*COMPILE, "-lsystemd")
            (new / "floor").write_bytes(machine.get("/root/floor"))

    return ensure_dir("bench", f"floor-{DEFAULT_SUITE}", key, build) / "floor"


def put_pods(machine: Namespace, pods: int) -> None:
    """Write the manifests of a number of pods, and the resulting work for the other clients."""
    machine.put(MANIFESTS, make_manifests(pods))
    argv = ("python3", f"{DIR}/plan_work.py", MANIFESTS, CAPACITY, WORK)
    machine.run(*argv, env=ENVIRONMENT)


def measure(machine: Namespace, argv: Sequence[str], *, codes: tuple[int, ...] = (0,)) -> Run:
    """Run a command in the machine, and measure it.

    Raises:
        WrongWork: it exited with another code than those.
    """
    runner = ("python3", "-SE", f"{DIR}/runner.py", *argv)
    with watch_load() as load:
        done = machine.run(*runner, env=ENVIRONMENT, timeout_sec=TIMEOUT_SEC)
    found = json.loads(done.stdout)
    if found["code"] not in codes:
        raise WrongWork(f"{' '.join(argv)}: exit code {found['code']}\n{found['stderr']}")
    return Run(
        wall=found["wall_ms"],
        cpu=found["cpu_ms"],
        pid1=found["pid1_ms"],
        bus=found["bus_ms"],
        disturbed=load.is_disturbed,
        stdout=found["stdout"],
        stderr=found["stderr"],
    )


def read_state(machine: Namespace) -> dict[str, Any]:
    """Return the state of the pods' slices in systemd, its files and the kernel."""
    argv = ("python3", "-SE", f"{DIR}/state.py", *COMPARED)
    return json.loads(machine.run(*argv, timeout_sec=TIMEOUT_SEC).stdout)  # type: ignore[no-any-return]


def count_jobs(machine: Namespace) -> int:
    """Return the number of jobs of systemd since its start."""
    shown = machine.run("systemctl", "show", "--value", "--property=NInstalledJobs")
    return int(shown.stdout)


def stop_all(machine: Namespace) -> None:
    """Stop every pod, remove the records, and check that nothing is left.

    Raises:
        WrongWork: something is left.
    """
    machine.run("systemctl", "stop", "kubepods.slice", timeout_sec=TIMEOUT_SEC)
    machine.run("rm", "-rf", "/run/podslice")
    deadline = time.monotonic() + GONE_PATIENCE_SEC
    while left := [name for part in read_state(machine).values() for name in part]:
        if time.monotonic() > deadline:
            raise WrongWork(f"{len(left)} things are left, {left[0]} among them")


def first_difference(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    """Describe the first difference between two states; None if they are equal."""
    for part in expected:
        ours, theirs = expected[part], found[part]
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                return f"{part}: {name}: {_differing(ours.get(name), theirs.get(name))}"
    return None


def _differing(one: Any, other: Any) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]
        return f"{keys[0]} is {other.get(keys[0])!r}, not {one.get(keys[0])!r}"
    return f"{other!r}, not {one!r}"
