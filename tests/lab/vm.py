"""An image's systemd in a virtual machine: everything is real, and it is restored in a second."""

import contextlib
import shutil
import time
from dataclasses import astuple
from pathlib import Path

from tests.lab import keeper, qemu, recipe
from tests.lab.deps import ensure_deps, run_tool
from tests.lab.image import Image, ensure_dir, ensure_image, make_key
from tests.lab.machine import CommandTimeout, Kind, LabError, MachineGone, pack_tree
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir
from tests.lab.qemu import Hardware
from tests.lab.remote import UNPACK, RemoteMachine

BOOT_TIMEOUT_SEC = {"host": 600.0, "instructions": 1200.0}
"""By the clock: one that counts instructions is slow. On a busy host a boot takes minutes."""
# multi-threaded emulation sometimes loses a race with the kernel's patching of its own code
BOOT_TRIES = 3
SERVICES_TIMEOUT_SEC = 600.0
"""From the first answer to the end of the boot: containers may start in between."""
SHUTDOWN_TIMEOUT_SEC = 600.0
"""Containers have a grace period."""
# Generators of systemd run at each daemon-reload, for a third of its time in an emulated machine, and
# find nothing in the image. They are masked until a reboot; fstab's, which mounts need, is not.
MASK_GENERATORS = """
mkdir -p /run/systemd/system-generators
cd /usr/lib/systemd/system-generators
for name in systemd-*-generator; do
  [ "$name" = systemd-fstab-generator ] || ln -s /dev/null "/run/systemd/system-generators/$name"
done
"""
ARCHIVE_DISK = "archive"
# the guest notices a new disk by itself, but only udev has an event for it; where the notification is
# lost, as once happened to a restored machine beside others, a scan of the bus finds the disk
UNPACK_DISK = """
serial=$1; shift
looks=0
while :; do
  for disk in /sys/block/vd*; do
    [ "$(cat "$disk/serial")" = "$serial" ] && exec "$@" "/dev/${disk##*/}"
  done
  looks=$((looks + 1))
  [ $((looks % 100)) -ne 0 ] || echo 1 > /sys/bus/pci/rescan
  sleep 0.02
done
"""


class Vm(RemoteMachine):
    """A virtual machine with cgroup v2 and a disk of its own.

    Restored from a template unless `is_cold`. Emulated, so ten to twenty times slower than this
    host: not suitable for measurements of speed.
    """

    kind: Kind = "vm"

    def __init__(
        self,
        suite: str = recipe.DEFAULT_SUITE,
        *,
        hardware: Hardware | None = None,
        has_source: bool = False,
        is_cold: bool = False,
        will_freeze: bool = False,
    ) -> None:
        """Restore or boot.

        Args:
            has_source: the source tree is at /src, and its modules are imported.
            will_freeze: the machine is restored for `freeze`, with disk and memory of its own.
        """
        ensure_deps()
        self._image = ensure_image(suite)
        self._hardware = hardware or Hardware()
        super().__init__("vm")
        self._disk = self._held.dir / "disk.qcow2"
        try:
            if is_cold:
                qemu.make_overlay(self._image.disk, self._disk)
                self._boot_again()
            elif will_freeze:
                self._restore_copy(ensure_template(self._image, self._hardware))
            elif has_source:
                self._restore(ensure_source_template(self._image, self._hardware))
                self._is_source_preloaded = True
            else:
                self._restore(ensure_template(self._image, self._hardware))
        except BaseException:
            self.close()
            raise

    def reboot(self) -> None:
        """Shut systemd down and boot again, with the same disk; /run is empty then."""
        # it may be down before the command's exit code has arrived
        with contextlib.suppress(MachineGone):
            self.run("systemctl", "reboot", "--no-block")
        self._held.wait_ended(SHUTDOWN_TIMEOUT_SEC)
        self._boot_again()

    def unpack(self, archive: Path) -> None:
        """Extract the archive from a disk that the machine has for this time."""
        with self._control() as control, control.disk(ARCHIVE_DISK, archive):
            self.run("sh", "-c", UNPACK_DISK, "unpack", ARCHIVE_DISK, *UNPACK)

    def unpack_source(self) -> None:
        """Extract the source tree, with its bytecode, as a source template has it."""
        packed = self._held.dir / "source.tar"
        _pack_source(self._image.suite, packed)
        self.unpack(packed)
        packed.unlink()
        self._is_source_preloaded = False

    def _control(self) -> contextlib.closing[qemu.Control]:
        return contextlib.closing(
            qemu.Control(self._held.connect(self._held.dir / qemu.CONTROL_SOCKET))
        )

    def _restore(self, template: Path) -> None:
        qemu.make_overlay(template / "disk.qcow2", self._disk)
        self._continue(template, template / "memory", is_memory_private=True)

    def _restore_copy(self, template: Path) -> None:
        """Restore a machine that needs nothing of its template later."""
        memory = self._held.dir / "memory"
        for source in (template / "disk.qcow2", *template.glob("memory*")):
            copy = self._held.dir / source.name
            run_tool("cp", "--sparse=always", "--no-preserve=mode", str(source), str(copy))
        self._continue(template, memory, is_memory_private=False)

    def _continue(self, template: Path, memory: Path, *, is_memory_private: bool) -> None:
        self._start(memory, is_restored=True, is_memory_private=is_memory_private)
        with self._control() as control:
            control.restore(template / "state")
        # its clock was that of the template
        self._agent().ask({"do": "clock", "time_sec": time.time()})
        self._is_preloaded = True

    def _boot_again(self) -> None:
        """Boot from the disk, repeatedly if necessary."""
        for _ in range(BOOT_TRIES - 1):
            with contextlib.suppress(LabError):
                self._boot()
                return
        self._boot()

    def _boot(self) -> None:
        self._is_preloaded = self._is_source_preloaded = False
        self._start(self._held.dir / "memory", is_restored=False, is_memory_private=False)
        limit_sec = BOOT_TIMEOUT_SEC[self._hardware.clock]
        try:
            self._agent().ask({"do": "ping"}, timeout_sec=limit_sec)
        except CommandTimeout as error:
            raise LabError(f"{self.name} does not boot\n{self._held.last_words()}") from error
        self._wait_booted(SERVICES_TIMEOUT_SEC)

    def _start(self, memory: Path, *, is_restored: bool, is_memory_private: bool) -> None:
        self._disconnect()
        argv = qemu.command_line(
            self._image,
            self._hardware,
            disk=self._disk,
            memory=memory,
            is_memory_private=is_memory_private,
            is_restored=is_restored,
        )
        self._held.start(keeper.Orders(argv=argv, run_dir=str(self._held.dir)))
        self._connect(self._held.dir / qemu.AGENT_SOCKET)

    def freeze(self, target: Path) -> None:
        """Save a machine that was booted cold or restored for this, and end it."""
        self.run("sync")
        with self._control() as control:
            control.save(target / "state")
        self._held.wait_ended(SHUTDOWN_TIMEOUT_SEC)
        for path in (self._disk, *self._held.dir.glob("memory*")):
            shutil.move(path, target / path.name)
        self.close()


def ensure_template(image: Image, hardware: Hardware | None = None) -> Path:
    """Boot a machine once and save it: memory, disk and state of the devices."""
    hardware = hardware or Hardware()
    parts = (image.dir.name, qemu.version(), qemu.KERNEL_COMMAND_LINE, qemu.CPU, hardware)
    sources = (Path(__file__), Path(qemu.__file__))
    key = make_key(repr(parts), *sources)
    name = "-".join([image.suite, *(f"{number}" for number in astuple(hardware))])
    return ensure_dir("template", name, key, lambda new: _make_template(image, hardware, new))


def _make_template(image: Image, hardware: Hardware, target: Path) -> None:
    with Vm(image.suite, hardware=hardware, is_cold=True) as vm:
        vm.preload()
        vm.run("sh", "-c", MASK_GENERATORS)
        vm.run("systemctl", "--version")  # loads the files that every test uses into the page cache
        vm.freeze(target)
    _protect(target)


def ensure_source_template(image: Image, hardware: Hardware) -> Path:
    """Save a machine once that has the source tree at /src, and has compiled and imported its modules."""
    base = ensure_template(image, hardware)
    key = make_key(base.name, pack_tree(source_dir()))
    name = base.name.rpartition("-")[0] + "-source"
    return ensure_dir(
        "template", name, key, lambda new: _make_source_template(image, hardware, new)
    )


def _make_source_template(image: Image, hardware: Hardware, target: Path) -> None:
    with Vm(image.suite, hardware=hardware, will_freeze=True) as vm:
        vm.unpack_source()
        vm.preload_source()
        vm.freeze(target)
    _protect(target)


def _pack_source(suite: str, archive: Path) -> None:
    """Pack the source tree with its bytecode, which a namespace compiles twenty times as fast.

    As in a package: a sandbox may not write, and every start of an agent would take seconds longer.
    """
    with Namespace(suite) as native:
        native.push(source_dir(), recipe.SOURCE_DIR)
        native.run("python3", "-m", "compileall", "-q", f"{recipe.SOURCE_DIR}/podslice")
        run_tool("tar", "-C", str(native.root), "-cf", str(archive), recipe.SOURCE_DIR.lstrip("/"))


def _protect(template: Path) -> None:
    for path in template.iterdir():
        path.chmod(0o444)
