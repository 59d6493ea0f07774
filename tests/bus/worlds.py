"""The service managers that the contract is tested with: the fake, and systemd of lab machines."""

import itertools
import os
from pathlib import Path

from podslice.errors import CallTimeout, JobFailed
from podslice.model.unit import Manager, TransientUnit
from podslice.systemd.bus import Bus
from tests.bus.files import files_of
from tests.fake_systemd import FakeSystemd

UNIT_DIR = "/run/systemd/system"
RELAY = "/run/podslicetest-relay"
LEFT_BEHIND = ("/run/systemd/transient", "/run/systemd/system.control", "/etc/systemd/system")


class InMemory:
    """The fake, which is tested as a substitute for systemd; `Real` describes the operations."""

    def __init__(self, systemd_version):
        self._memory = FakeSystemd(systemd_version=systemd_version, on_change=self._notify)
        self._listeners = []
        self._pids = itertools.count(100)

    def client(self):
        return self._memory

    def subscribed(self, on_change):
        self._listeners.append(on_change)
        return self._memory

    def _notify(self, name):
        for on_change in self._listeners:
            on_change(name)

    def insider(self):
        return self._memory

    def new_process(self):
        return next(self._pids)

    def new_stubborn_process(self):
        return next(self._pids)

    def hold_stubborn(self, name):
        self._memory.make_stubborn(name)

    def end_process(self, pid):
        self._memory.end_process(pid)

    def open_pidfd(self, pid):
        return pid

    def make_broken(self, unit):
        self._memory.refuse(unit.name, JobFailed("failed", result="failed"))

    def mount_point(self, stem):
        return f"/run/{stem}"

    def fail_scope(self, name):
        self._memory.provide(name)
        self._memory.fail(name)

    def provide(self, name):
        self._memory.provide(name)

    def provide_inactive(self, name):
        self._memory.provide_file(
            name, MemoryMax=64 << 20, TasksMax=99, Delegate=True, AllowedCPUs="0", IOWeight=50
        )
        self._memory.set_further(name, TasksMax="99")

    def write_service(self, name, root, kind, command):
        self._memory.provide_file(name, Slice=root)
        if kind == "oneshot":
            failed = JobFailed("failed", result="failed")
            self._memory.refuse(name, failed if command == "false" else CallTimeout("no reply"))

    def reload(self):
        self._memory.reload_externally()

    def slow_start(self, unit):
        self._memory.refuse(unit.name, JobFailed("canceled", result="canceled"))
        return unit

    def cancel_start(self, unit):
        self._memory.refuse(unit.name, None)

    def leftovers(self, stem):
        return []

    def close(self):
        pass


class Real:
    """systemd of a lab machine, and the operations that tests need beside its client."""

    def __init__(self, machine, *, reads_files=False):
        self._machine = machine
        self._reads_files = reads_files
        self._processes = []
        self._files = []
        self._directories = []
        self._descriptors = []

    def client(self):
        files = files_of(self._machine) if self._reads_files else None
        return Bus(Manager(bus_address=self._machine.bus_address), timeout_sec=10, files=files)

    def subscribed(self, on_change):
        """Return a client that reports changes."""
        return Bus(
            Manager(bus_address=self._machine.bus_address), timeout_sec=10, on_change=on_change
        )

    def insider(self):
        """Return a client whose process is visible to the manager, which `attach` requires."""
        root = self._machine.root
        if root is None:
            return self.client()
        if not (root / RELAY.removeprefix("/")).exists():
            proxy = ("/lib/systemd/systemd-socket-proxyd", "/run/dbus/system_bus_socket")
            listen = (f"--socket-property=ListenStream={RELAY}", "--unit=labrelay")
            self._machine.run("systemd-run", "--quiet", *listen, *proxy)
        return Bus(Manager(bus_address=f"unix:path={root}{RELAY}"), timeout_sec=10)

    def new_process(self):
        """Start a process that sleeps; return its number for the manager."""
        return self._spawn("sleep", "1000")

    def new_stubborn_process(self):
        """Start a process that ignores SIGTERM."""
        pid = self._spawn("env", "--ignore-signal=TERM", "sleep", "1000")
        self._machine.run("sh", "-c", f"until grep -qx sleep /proc/{pid}/comm; do :; done")
        return pid

    def hold_stubborn(self, name):
        """Declare which unit has it."""

    def end_process(self, pid):
        """Kill a process and reap it."""
        for process in self._processes:
            if process.pid == pid:
                process.kill()
                process.wait()

    def open_pidfd(self, pid):
        """Open a descriptor of a process."""
        root = self._machine.root
        is_here = root is None or self._machine.kind == "local"
        self._descriptors.append(os.pidfd_open(pid if is_here else host_pid(root, pid)))
        return self._descriptors[-1]

    def make_broken(self, unit):
        """Declare that the command of this service cannot be run."""

    def mount_point(self, stem):
        """Return a path to mount on."""
        self._directories.append(f"/run/{stem}")
        return self._directories[-1]

    def _spawn(self, *argv):
        self._processes.append(self._machine.spawn(*argv))
        return self._processes[-1].pid

    def fail_scope(self, name):
        # the scope is up before its command is, which only then ignores the signal
        """Leave a scope in the failed state."""
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

    def provide(self, name):
        """Provide a slice with a file, started by another program."""
        self._put(name, "[Unit]\nDescription=provided\n")
        self._machine.run("systemctl", "start", name)

    def provide_inactive(self, name):
        """Provide a service with a file that is not started.

        It has MemoryMax=64M, Delegate=yes, AllowedCPUs=0, IOWeight=50 and TasksMax=99.
        """
        settings = ("MemoryMax=64M", "Delegate=yes", "AllowedCPUs=0", "IOWeight=50", "TasksMax=99")
        self._put(name, "\n".join(("[Service]", "ExecStart=true", *settings, "")))

    def write_service(self, name, root, kind, command):
        """Write the file of a service of this type, without a reload.

        A oneshot of `sleep` does not finish its start, and one of `false` fails.
        """
        settings = ("DefaultDependencies=no", "[Service]", f"Slice={root}", f"Type={kind}")
        text = "\n".join(("[Unit]", *settings, f"ExecStart={command}", ""))
        self._machine.put(f"{UNIT_DIR}/{name}", text)
        self._files.append(name)

    def reload(self):
        """Reload the manager."""
        self._machine.run("systemctl", "daemon-reload")

    def slow_start(self, unit):
        """Return the unit with a start that does not finish, but can be canceled."""
        slow = f"slow{unit.name.removesuffix('.slice')}.service"
        self._put(slow, "[Service]\nType=oneshot\nExecStart=sleep 1000\n")
        waits = {"Wants": (slow,), "After": (slow,)}
        return TransientUnit(name=unit.name, properties={**unit.properties, **waits})

    def cancel_start(self, unit):
        """Cancel that start."""
        self._machine.run("systemctl", "stop", unit.name)

    def leftovers(self, stem):
        """Return the files of units whose names begin with a stem."""
        names = ("-name", f"{stem}*", "-o", "-name", "podslicebatch*")
        found = self._machine.run("find", *LEFT_BEHIND, *names, check=False).stdout.split()
        return [path for path in found if not path.endswith(tuple(self._drop_ins()))]

    def close(self):
        """Stop and remove everything that the test started."""
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

    def _drop_ins(self):
        """Return the drop-ins that set_properties rightly keeps for units with a file."""
        return [f"/run/systemd/system.control/{file}.d" for file in self._files]

    def _put(self, name, text):
        self._machine.put(f"{UNIT_DIR}/{name}", text)
        self._files.append(name)
        self.reload()


def host_pid(root, pid):
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
