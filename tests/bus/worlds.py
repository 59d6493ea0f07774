"""The service managers that the contract is tested with: the fake, and systemd of lab machines."""

import itertools
import os
from pathlib import Path
from typing import Protocol

from podslice.errors import CallTimeout, JobFailed
from podslice.model.unit import (
    Manager,
    TransientUnit,
    UnitName,
)
from podslice.systemd.bus import Bus
from podslice.systemd.client import Client, OnChange
from tests.bus.files import files_of
from tests.fake_systemd import FakeSystemd
from tests.lab.machine import Machine, Process

UNIT_DIR = "/run/systemd/system"
RELAY = "/run/podslicetest-relay"
LEFT_BEHIND = ("/run/systemd/transient", "/run/systemd/system.control", "/etc/systemd/system")


class World(Protocol):
    """A service manager, and the operations that tests need beside its client."""

    def client(self) -> Client: ...

    def subscribed(self, on_change: OnChange) -> Client:
        """Return a client that reports changes."""

    def insider(self) -> Client:
        """Return a client whose process is visible to the manager, which `attach` requires."""

    def new_process(self) -> int:
        """Start a process that sleeps; return its number for the manager."""

    def new_stubborn_process(self) -> int:
        """Start a process that ignores SIGTERM."""

    def hold_stubborn(self, name: UnitName) -> None:
        """Declare which unit has it."""

    def end_process(self, pid: int) -> None:
        """Kill a process and reap it."""

    def open_pidfd(self, pid: int) -> int:
        """Open a descriptor of a process."""

    def make_broken(self, unit: TransientUnit) -> None:
        """Declare that the command of this service cannot be run."""

    def mount_point(self, stem: str) -> str:
        """Return a path to mount on."""

    def fail_scope(self, name: UnitName) -> None:
        """Leave a scope in the failed state."""

    def provide(self, name: UnitName) -> None:
        """Provide a slice with a file, started by another program."""

    def provide_inactive(self, name: UnitName) -> None:
        """Provide a service with a file that is not started.

        It has MemoryMax=64M, Delegate=yes, AllowedCPUs=0, IOWeight=50 and TasksMax=99.
        """

    def write_service(self, name: UnitName, root: UnitName, kind: str, command: str) -> None:
        """Write the file of a service of this type, without a reload.

        A oneshot of `sleep` does not finish its start, and one of `false` fails.
        """

    def reload(self) -> None:
        """Reload the manager."""

    def slow_start(self, unit: TransientUnit) -> TransientUnit:
        """Return the unit with a start that does not finish, but can be canceled."""

    def cancel_start(self, unit: TransientUnit) -> None:
        """Cancel that start."""

    def leftovers(self, stem: str) -> list[str]:
        """Return the files of units whose names begin with a stem."""

    def close(self) -> None:
        """Stop and remove everything that the test started."""


class InMemory:
    """The fake, which is tested as a substitute for systemd."""

    def __init__(self, systemd_version: int) -> None:
        self._memory = FakeSystemd(systemd_version=systemd_version, on_change=self._notify)
        self._listeners: list[OnChange] = []
        self._pids = itertools.count(100)

    def client(self) -> Client:
        return self._memory

    def subscribed(self, on_change: OnChange) -> Client:
        self._listeners.append(on_change)
        return self._memory

    def _notify(self, name: UnitName | None) -> None:
        for on_change in self._listeners:
            on_change(name)

    def insider(self) -> Client:
        return self._memory

    def new_process(self) -> int:
        return next(self._pids)

    def new_stubborn_process(self) -> int:
        return next(self._pids)

    def hold_stubborn(self, name: UnitName) -> None:
        self._memory.make_stubborn(name)

    def end_process(self, pid: int) -> None:
        self._memory.end_process(pid)

    def open_pidfd(self, pid: int) -> int:
        return pid

    def make_broken(self, unit: TransientUnit) -> None:
        self._memory.refuse(unit.name, JobFailed("failed", result="failed"))

    def mount_point(self, stem: str) -> str:
        return f"/run/{stem}"

    def fail_scope(self, name: UnitName) -> None:
        self._memory.provide(name)
        self._memory.fail(name)

    def provide(self, name: UnitName) -> None:
        self._memory.provide(name)

    def provide_inactive(self, name: UnitName) -> None:
        self._memory.provide_file(
            name, MemoryMax=64 << 20, TasksMax=99, Delegate=True, AllowedCPUs="0", IOWeight=50
        )
        self._memory.set_further(name, TasksMax="99")

    def write_service(self, name: UnitName, root: UnitName, kind: str, command: str) -> None:
        self._memory.provide_file(name, Slice=root)
        if kind == "oneshot":
            failed = JobFailed("failed", result="failed")
            self._memory.refuse(name, failed if command == "false" else CallTimeout("no reply"))

    def reload(self) -> None:
        self._memory.reload_externally()

    def slow_start(self, unit: TransientUnit) -> TransientUnit:
        self._memory.refuse(unit.name, JobFailed("canceled", result="canceled"))
        return unit

    def cancel_start(self, unit: TransientUnit) -> None:
        self._memory.refuse(unit.name, None)

    def leftovers(self, stem: str) -> list[str]:
        return []

    def close(self) -> None:
        pass


class Real:
    """systemd of a lab machine."""

    def __init__(self, machine: Machine, *, reads_files: bool = False) -> None:
        self._machine = machine
        self._reads_files = reads_files
        self._processes: list[Process] = []
        self._files: list[str] = []
        self._directories: list[str] = []
        self._descriptors: list[int] = []

    def client(self) -> Client:
        files = files_of(self._machine) if self._reads_files else None
        return Bus(Manager(bus_address=self._machine.bus_address), timeout_sec=10, files=files)

    def subscribed(self, on_change: OnChange) -> Client:
        return Bus(
            Manager(bus_address=self._machine.bus_address), timeout_sec=10, on_change=on_change
        )

    def insider(self) -> Client:
        root = self._machine.root
        if root is None:
            return self.client()
        if not (root / RELAY.removeprefix("/")).exists():
            proxy = ("/lib/systemd/systemd-socket-proxyd", "/run/dbus/system_bus_socket")
            listen = (f"--socket-property=ListenStream={RELAY}", "--unit=labrelay")
            self._machine.run("systemd-run", "--quiet", *listen, *proxy)
        return Bus(Manager(bus_address=f"unix:path={root}{RELAY}"), timeout_sec=10)

    def new_process(self) -> int:
        return self._spawn("sleep", "1000")

    def new_stubborn_process(self) -> int:
        pid = self._spawn("env", "--ignore-signal=TERM", "sleep", "1000")
        self._machine.run("sh", "-c", f"until grep -qx sleep /proc/{pid}/comm; do :; done")
        return pid

    def hold_stubborn(self, name: UnitName) -> None:
        pass

    def end_process(self, pid: int) -> None:
        for process in self._processes:
            if process.pid == pid:
                process.kill()
                process.wait()

    def open_pidfd(self, pid: int) -> int:
        root = self._machine.root
        is_here = root is None or self._machine.kind == "local"
        self._descriptors.append(os.pidfd_open(pid if is_here else host_pid(root, pid)))
        return self._descriptors[-1]

    def make_broken(self, unit: TransientUnit) -> None:
        pass

    def mount_point(self, stem: str) -> str:
        self._directories.append(f"/run/{stem}")
        return self._directories[-1]

    def _spawn(self, *argv: str) -> int:
        self._processes.append(self._machine.spawn(*argv))
        return self._processes[-1].pid

    def fail_scope(self, name: UnitName) -> None:
        # the scope is up before its command is, which only then ignores the signal
        is_up = f"/run/{name}.up"
        ignores = f"trap '' TERM; : > {is_up}; while :; do sleep 1; done"
        process = self._machine.spawn(
            *("systemd-run", "--scope", f"--unit={name}", "-p", "TimeoutStopSec=50ms"),
            *("sh", "-c", ignores),
        )
        self._processes.append(process)
        while self._machine.run("test", "-e", is_up, check=False).exit_code:
            pass
        self._machine.run("rm", is_up)
        self._machine.run("systemctl", "stop", name)

    def provide(self, name: UnitName) -> None:
        self._put(name, "[Unit]\nDescription=provided\n")
        self._machine.run("systemctl", "start", name)

    def provide_inactive(self, name: UnitName) -> None:
        settings = ("MemoryMax=64M", "Delegate=yes", "AllowedCPUs=0", "IOWeight=50", "TasksMax=99")
        self._put(name, "\n".join(("[Service]", "ExecStart=true", *settings, "")))

    def write_service(self, name: UnitName, root: UnitName, kind: str, command: str) -> None:
        settings = ("DefaultDependencies=no", "[Service]", f"Slice={root}", f"Type={kind}")
        text = "\n".join(("[Unit]", *settings, f"ExecStart={command}", ""))
        self._machine.put(f"{UNIT_DIR}/{name}", text)
        self._files.append(name)

    def reload(self) -> None:
        self._machine.run("systemctl", "daemon-reload")

    def slow_start(self, unit: TransientUnit) -> TransientUnit:
        slow = f"slow{unit.name.removesuffix('.slice')}.service"
        self._put(slow, "[Service]\nType=oneshot\nExecStart=sleep 1000\n")
        waits = {"Wants": (slow,), "After": (slow,)}
        return TransientUnit(name=unit.name, properties={**unit.properties, **waits})

    def cancel_start(self, unit: TransientUnit) -> None:
        self._machine.run("systemctl", "stop", unit.name)

    def leftovers(self, stem: str) -> list[str]:
        names = ("-name", f"{stem}*", "-o", "-name", "podslicebatch*")
        found = self._machine.run("find", *LEFT_BEHIND, *names, check=False).stdout.split()
        return [path for path in found if not path.endswith(tuple(self._drop_ins()))]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for descriptor in self._descriptors:
            os.close(descriptor)
        for directory in self._directories:
            self._machine.run("rmdir", directory)
        for file in self._files:
            self._machine.run("systemctl", "stop", file)
            self._machine.run("rm", f"{UNIT_DIR}/{file}")
        for drop_ins in self._drop_ins():
            self._machine.run("rm", "-rf", drop_ins)
        if self._files:
            self.reload()

    def _drop_ins(self) -> list[str]:
        """Return the drop-ins that set_properties rightly keeps for units with a file."""
        return [f"/run/systemd/system.control/{file}.d" for file in self._files]

    def _put(self, name: str, text: str) -> None:
        self._machine.put(f"{UNIT_DIR}/{name}", text)
        self._files.append(name)
        self.reload()


def host_pid(root: Path, pid: int) -> int:
    """Return the number on this host of a process of a machine."""
    inside = (root.parent / "ns/pid").readlink()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            is_inside = (place / "ns/pid").readlink() == inside
            status = (place / "status").read_text()
        except OSError:
            continue
        (ids,) = (line for line in status.splitlines() if line.startswith("NSpid:"))
        if is_inside and ids.split()[-1] == str(pid):
            return int(place.name)
    raise LookupError(pid)
