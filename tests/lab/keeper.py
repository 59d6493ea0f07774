"""Hold one machine: start it, and stop it at the owner's request or end.

A separate program, because it must survive the SIGKILL of the test run it belongs to:
`python3 -I -S keeper.py`, with one line of JSON (see Orders) on its standard input, which the
owner then keeps open. It writes the machine's process id. Another line ends the machine; so does
the end of the input, which also removes the run directory. If the keeper is killed itself the
machine dies with it (PR_SET_PDEATHSIG), and `sweep` removes what it left.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
CLEAN_UP_SEC = 10.0
POLL_SEC = 0.005
ORDERS_NAME = "orders.json"
LOCK_NAME = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The machine to hold. All resources named here belong to it alone."""

    argv: tuple[str, ...]  # the machine, or the program that becomes it
    run_dir: str  # removed at the end; holds the lock, these orders, and "log"
    cgroups: tuple[str, ...] = ()  # created and joined by the machine, removed with their children
    # cgroup v2 with systemd: the mount point; then the keeper's own cgroup is a scope with
    # Delegate=yes, in which the machine gets a cgroup, and systemd removes all of them
    delegated_at: str = ""
    # cgroup v2 without systemd: delegate the controllers of this one to the one in `cgroups`
    parent: str = ""
    in_namespaces: bool = False  # argv gets all namespaces but user and time


def main() -> None:
    """Follow the orders on standard input, until the owner's next line or its end."""
    orders = Orders(**json.loads(sys.stdin.readline()))
    lock = lock_run_dir(Path(orders.run_dir))
    Path(orders.run_dir, ORDERS_NAME).write_text(dump(orders))  # for `sweep`
    try:
        pid = start(orders)
    except BaseException:
        remove_cgroups(orders)
        raise
    sys.stdout.write(f"{pid}\n")
    sys.stdout.flush()
    is_owner_alive = bool(sys.stdin.readline())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)  # not before: until then the owner can query the state of this process
    remove_cgroups(orders)
    if not is_owner_alive:
        shutil.rmtree(orders.run_dir, ignore_errors=True)
    os.close(lock)


def lock_run_dir(run_dir: Path, mode: int = fcntl.LOCK_SH) -> int:
    """Lock the directory, until the returned descriptor is closed.

    Owner and keeper share the lock; a process that gets it exclusively knows that both have ended.
    """
    lock = os.open(run_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, mode)
    except OSError:
        os.close(lock)
        raise
    return lock


def start(orders: Orders) -> int:
    cgroups = [Path(cgroup) for cgroup in orders.cgroups]
    if orders.parent:
        enable_controllers(Path(orders.parent))
    for cgroup in cgroups:
        cgroup.mkdir()
    if orders.delegated_at:
        cgroups = [divide_scope(Path(orders.delegated_at))]
    libc = ctypes.CDLL(None, use_errno=True)
    if orders.in_namespaces:
        unshare(libc, CLONE_NEWPID)  # for the child, which creates the other namespaces
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            become_machine(libc, keeper, orders, cgroups)
        except BaseException as error:  # noqa: BLE001 (nothing may return from here)
            sys.stderr.write(f"cannot start the machine: {error!r}\n")
            sys.stderr.flush()
        finally:
            os._exit(125)
    return pid


def become_machine(
    libc: ctypes.CDLL, keeper: int, orders: Orders, cgroups: Iterable[Path]
) -> NoReturn:
    """Join the cgroups and namespaces in the child, and execute."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if not orders.in_namespaces and os.getppid() != keeper:
        os._exit(125)  # the parent died before the line above
    for cgroup in cgroups:
        (cgroup / "cgroup.procs").write_text("0")
    if orders.in_namespaces:
        unshare(libc, CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET)
    os.setsid()
    os.chdir(orders.run_dir)
    log = os.open(Path(orders.run_dir, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvp(orders.argv[0], orders.argv)  # noqa: S606 (a shell would be one process more)


def unshare(libc: ctypes.CDLL, flags: int) -> None:
    """Call unshare(2), which os has from Python 3.12 only."""
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def divide_scope(mount_point: Path) -> Path:
    """Move to a child of this scope and create a cgroup for the machine; only leaves have both."""
    own = Path("/proc/self/cgroup").read_text().partition("0::")[2].split("\n")[0]
    scope = mount_point / own.lstrip("/")
    for name in ("keeper", "machine"):
        (scope / name).mkdir()
    (scope / "keeper/cgroup.procs").write_text("0")
    enable_controllers(scope)
    return scope / "machine"


def enable_controllers(cgroup: Path) -> None:
    """Delegate controllers one by one, because some fail alone."""
    for name in (cgroup / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):
            (cgroup / "cgroup.subtree_control").write_text(f"+{name}")


def remove_cgroups(orders: Orders) -> None:
    for cgroup in orders.cgroups:
        remove_cgroup(Path(cgroup))


def remove_cgroup(cgroup: Path) -> None:
    """Remove a cgroup and its children, killing the processes in them."""
    deadline = time.monotonic() + CLEAN_UP_SEC
    while cgroup.is_dir() and time.monotonic() < deadline:
        for directory, _, _ in os.walk(cgroup, topdown=False):
            kill_members(Path(directory))
            with contextlib.suppress(OSError):
                Path(directory).rmdir()
        if cgroup.is_dir():
            time.sleep(POLL_SEC)  # a killed process remains for a moment, without an event


def kill_members(cgroup: Path) -> None:
    """Kill the processes of one cgroup, except this one."""
    try:
        members = [int(line) for line in (cgroup / "cgroup.procs").read_text().split()]
    except OSError:
        return
    for pid in members:
        if pid not in (0, os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def sweep(run_dirs: Iterable[Path]) -> list[str]:
    """Remove what killed owners and keepers left; return the names of their machines."""
    swept = []
    for run_dir in run_dirs:
        try:
            lock = lock_run_dir(run_dir, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # it runs, or has just ended by itself
        # without orders it may be starting; with others they are of another version of this
        with contextlib.suppress(FileNotFoundError, TypeError, ValueError):
            remove_cgroups(Orders(**json.loads((run_dir / ORDERS_NAME).read_text())))
            shutil.rmtree(run_dir)
            swept.append(run_dir.name)
        os.close(lock)
    return swept


def dump(orders: Orders) -> str:
    return json.dumps(asdict(orders)) + "\n"


if __name__ == "__main__":
    main()
