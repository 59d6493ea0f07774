"""QEMU: the start of a virtual machine, and its control channel (QMP)."""

import json
import shlex
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.lab.deps import run_tool
from tests.lab.image import Image
from tests.lab.machine import LabError

PROGRAM = "qemu-system-x86_64"
AGENT_SOCKET, CONTROL_SOCKET = "agent.sock", "qmp.sock"
AGENT_PORT = "podlab.0"
# without cx16: QEMU 7.2 corrupts flags in cmpxchg16b, and Linux 6.12 panics at random because of it;
# to be removed when Debian 12 hosts without backports are no longer supported
CPU = "qemu64,-cx16"
KERNEL_COMMAND_LINE = (
    "console=ttyS0 root=/dev/vda rw quiet loglevel=3 panic=-1 psi=1 mitigations=off nokaslr"
    " random.trust_cpu=on tsc=reliable no_timer_check rcupdate.rcu_expedited=1"
    " cryptomgr.notests net.ifnames=0 systemd.show_status=0 systemd.unified_cgroup_hierarchy=1"
)
POLL_SEC = 0.005
CONTROL_TIMEOUT_SEC = 120.0
_ACCELERATORS = {
    "host": ("-accel", "tcg,thread=multi,tb-size=256"),
    # 2^3 ns for each instruction
    "instructions": ("-accel", "tcg,thread=single,tb-size=256", "-icount", "shift=3"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Size of a virtual machine; part of a template's key."""

    memory_mib: int = 1024
    cpu_count: int = 2
    numa_count: int = 1
    """NUMA nodes, which are sockets; each has an equal part of the CPUs and of the memory."""
    threads_per_core: int = 1
    clock: Literal["host", "instructions"] = "host"
    """What advances its time. Instructions: load of this host has no effect on shares of time."""


def version() -> str:
    """Return the first line of QEMU's version: a template is specific to one version."""
    return run_tool(PROGRAM, "--version").splitlines()[0]


def make_overlay(backing: Path, disk: Path) -> None:
    """Create a disk that reads from another one and keeps its own changes."""
    backing_format = "qcow2" if backing.suffix == ".qcow2" else "raw"
    disk.unlink(missing_ok=True)
    run_tool(
        *("qemu-img", "create", "-q", "-f", "qcow2"),
        *("-b", str(backing), "-F", backing_format, str(disk)),
    )


def command_line(
    image: Image,
    hardware: Hardware,
    *,
    disk: Path,
    memory: Path,
    is_memory_private: bool,
    is_restored: bool,
) -> tuple[str, ...]:
    """Return the arguments for QEMU, to be started in the directory of its sockets.

    Args:
        memory: file of the guest's memory; each of several NUMA nodes has one with its number.
        is_memory_private: changes are not written to that file.
        is_restored: wait for `Control.restore`.
    """
    return (
        *(PROGRAM, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *_ACCELERATORS[hardware.clock],
        *("-cpu", CPU, "-m", f"{hardware.memory_mib}"),
        *_nodes(hardware, memory, share="off" if is_memory_private else "on"),
        *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
        *("-append", KERNEL_COMMAND_LINE),
        *("-drive", f"file={_escape(disk)},format=qcow2,if=none,id=disk,cache=unsafe"),
        *("-device", "virtio-blk-pci,drive=disk"),
        *("-device", "virtio-serial-pci"),
        *("-chardev", f"socket,id=agent,path={AGENT_SOCKET},server=on,wait=off"),
        *("-device", f"virtserialport,chardev=agent,name={AGENT_PORT}"),
        *("-device", "virtio-rng-pci", "-serial", "file:console"),
        *("-qmp", f"unix:{CONTROL_SOCKET},server=on,wait=off"),
        *(("-incoming", "defer") if is_restored else ()),
    )


def _nodes(hardware: Hardware, memory: Path, *, share: str) -> Iterator[str]:
    """Yield the arguments for CPUs and memory, by NUMA node if there are several."""
    number, cpus = hardware.numa_count, hardware.cpu_count // hardware.numa_count
    size = f"size={hardware.memory_mib // number}M,share={share}"
    threads = f"threads={hardware.threads_per_core}"
    yield from ("-smp", f"{hardware.cpu_count},sockets={number},{threads}")
    if number == 1:
        yield from ("-machine", "pc,memory-backend=memory")
        yield from ("-object", f"memory-backend-file,id=memory,{size},mem-path={_escape(memory)}")
        return
    yield from ("-machine", "pc")
    for node in range(number):
        path = memory.with_name(f"{memory.name}-{node}")
        yield from ("-object", f"memory-backend-file,id=m{node},{size},mem-path={_escape(path)}")
        first = node * cpus
        yield from ("-numa", f"node,nodeid={node},cpus={first}-{first + cpus - 1},memdev=m{node}")


class Control:
    """A QMP connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(CONTROL_TIMEOUT_SEC)
        self._connection = connection
        self._file = connection.makefile("rwb")
        self._removed: set[str] = set()
        self._file.readline()  # the greeting
        self._ask("qmp_capabilities")

    def close(self) -> None:
        self._file.close()
        self._connection.close()

    def save(self, state: Path) -> None:
        """Stop the machine and write the state of its devices; the memory is in its file."""
        self._ask("stop")
        self._leave_memory_alone()
        self._ask("migrate", uri=f"exec:cat > {shlex.quote(str(state))}")
        while (status := self._ask("query-migrate").get("status")) != "completed":
            if status in ("failed", "cancelled"):
                raise LabError(f"saving the machine: {status}")
            time.sleep(POLL_SEC)
        self._ask("quit")

    def restore(self, state: Path) -> None:
        """Continue a restored machine from the saved state."""
        self._leave_memory_alone()
        self._ask("migrate-incoming", uri=f"exec:cat {shlex.quote(str(state))}")
        while (status := self._ask("query-status")["status"]) == "inmigrate":
            time.sleep(POLL_SEC)
        if status != "running":
            self._ask("cont")

    @contextmanager
    def disk(self, name: str, path: Path) -> Iterator[None]:
        """Add a read-only disk for a while; its serial number is its name.

        The guest notices the disk by itself, and must have released it at the end.
        """
        node = {"node-name": name}
        file = {"driver": "file", "filename": str(path)}
        self._ask("blockdev-add", **node, driver="raw", file=file, **{"read-only": True})
        self._ask("device_add", driver="virtio-blk-pci", id=name, drive=name, serial=name)
        yield
        self._ask("device_del", id=name)
        while name not in self._removed:
            self._read()
        self._ask("blockdev-del", **node)

    def _leave_memory_alone(self) -> None:
        capability = {"capability": "x-ignore-shared", "state": True}
        self._ask("migrate-set-capabilities", capabilities=[capability])

    def _ask(self, command: str, **arguments: object) -> Mapping[str, Any]:
        line = json.dumps({"execute": command, "arguments": arguments})
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise LabError(f"QEMU: {command}: {error}") from error
        while True:
            reply = self._read()
            if "return" in reply:
                return reply["return"]  # type: ignore[no-any-return]
            if "error" in reply:
                raise LabError(f"QEMU: {command}: {reply['error']['desc']}")

    def _read(self) -> dict[str, Any]:
        try:
            line = self._file.readline()
        except OSError as error:
            raise LabError(f"QEMU: {error}") from error
        if not line:
            raise LabError("QEMU has ended")
        message: dict[str, Any] = json.loads(line)
        if message.get("event") == "DEVICE_DELETED":
            self._removed.add(message["data"].get("device", ""))
        return message


def _escape(path: Path) -> str:
    """Return a path as a value in a list of options."""
    return str(path).replace(",", ",,")
