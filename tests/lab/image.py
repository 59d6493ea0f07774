"""Images in the cache: built once per recipe, replaced when the recipe changes."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.lab import bootstrap, deps, recipe
from tests.lab.machine import LabError, to_bytes
from tests.lab.paths import cache_dir, locked, require_host

DISK_SIZE_BYTES = 4 << 30
KEY_PATTERN = "[0-9a-f]" * 16
GUEST_DIR = Path(__file__).parent / "guest"
AGENT_FILES = {
    "usr/local/lib/podlab/agent.py": (GUEST_DIR / "agent.py", 0o644),
    "etc/systemd/system/podlab-agent.service": (GUEST_DIR / "podlab-agent.service", 0o644),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image: the same Debian as a directory and as a disk with its kernel."""

    suite: str
    dir: Path
    root: Path
    """The root directory, which must not be changed."""
    disk: Path
    """The same as a raw ext4 file system."""
    kernel: Path
    initrd: Path
    """The initial memory disk: it mounts /dev/vda and starts its /sbin/init."""


def ensure_image(suite: str = recipe.DEFAULT_SUITE) -> Image:
    """Build the suite's image if the cache has none for the present recipe."""
    require_host()
    if suite not in recipe.SUITES:
        raise LabError(f"suite {suite!r} is not known; known are {', '.join(recipe.SUITES)}")
    base_key = make_key(
        suite, Path(bootstrap.__file__), repr((recipe.PACKAGES, recipe.KERNEL_PACKAGE))
    )
    key = make_key(
        base_key, Path(recipe.__file__), Path(__file__), *(p for p, _ in AGENT_FILES.values())
    )
    made = ensure_dir("image", suite, key, lambda new: _build(suite, base_key, new))
    files = {"root": "root", "disk": "root.ext4", "kernel": "vmlinuz", "initrd": "initrd"}
    return Image(suite=suite, dir=made, **{key: made / name for key, name in files.items()})


def ensure_dir(kind: str, name: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return the cached directory KIND/NAME-KEY; `build` creates it if there is none.

    It appears atomically; other builders wait; directories of other keys are removed. The caller's
    process holds the returned directory: it is not removed while the process lives.
    """
    parent = cache_dir() / kind
    path = parent / f"{name}-{key}"
    with locked(parent / f".{name}.lock"):
        if not path.is_dir():
            new = parent / f".new-{name}"
            shutil.rmtree(new, ignore_errors=True)  # of a killed builder
            new.mkdir()
            try:
                build(new)
                new.rename(path)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        _hold(path)
        for other in parent.glob(f"{name}-{KEY_PATTERN}"):
            if other != path and not _is_held(other):
                shutil.rmtree(other, ignore_errors=True)
    return path


def remove_unused(kind: str) -> list[Path]:
    """Remove the cached directories of a kind that no process holds; return the removed ones."""
    found = [path for path in (cache_dir() / kind).glob("*") if path.is_dir()]
    unused = [path for path in found if not _is_held(path)]
    for path in unused:
        shutil.rmtree(path, ignore_errors=True)
    return unused


def _build(suite: str, base_key: str, new: Path) -> None:
    deps.ensure_deps()
    debs = cache_dir() / "debs" / suite
    base = ensure_dir(
        "base", suite, base_key, lambda target: bootstrap.build_base(suite, target, debs)
    )
    # hard links: files of the base are replaced, never written to
    deps.run_tool("cp", "-al", str(base / "root"), str(new / "root"))
    os.link(base / "vmlinuz", new / "vmlinuz")
    _add_lab_files(new / "root")
    (new / "initrd").write_bytes(_initrd(new / "root"))
    _make_disk(new / "root", new / "root.ext4")


def _add_lab_files(root: Path) -> None:
    for name, text in recipe.FILES.items():
        _replace(root / name).write_text(text)
    for name, (source, mode) in AGENT_FILES.items():
        path = _replace(root / name)
        path.write_bytes(source.read_bytes())
        path.chmod(mode)
    for name, target in recipe.LINKS.items():
        _replace(root / name).symlink_to(target)
    (root / "src").mkdir()


def _replace(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path


def _make_disk(root: Path, disk: Path) -> None:
    with disk.open("wb") as file:
        file.truncate(DISK_SIZE_BYTES)
    deps.run_tool(
        *("mke2fs", "-q", "-t", "ext4", "-m", "0", "-E", "lazy_itable_init=1,nodiscard"),
        *("-O", "^has_journal,^metadata_csum,^64bit,^orphan_file", "-d", str(root), str(disk)),
    )


def _initrd(root: Path) -> bytes:
    (kernel,) = (root / "usr/lib/modules").iterdir()
    modules = _module_files(root, kernel.name)
    busybox = next(root / p for p in ("bin/busybox", "usr/bin/busybox") if (root / p).exists())
    script = recipe.INIT_SCRIPT.format(modules=" ".join(path.name for path in modules))
    archive = _Cpio()
    for name in ("bin", "dev", "proc", "new", "lib"):
        archive.add(name, b"", 0o040755)
    archive.add("bin/busybox", busybox.read_bytes(), 0o100755)
    for name in ("sh", "mount", "umount", "insmod", "switch_root", "sleep"):
        archive.add(f"bin/{name}", b"busybox", 0o120777)
    for path in modules:
        archive.add(f"lib/{path.name}", path.read_bytes(), 0o100644)
    archive.add("init", script.encode(), 0o100755)
    return archive.finish()


def _module_files(root: Path, kernel: str) -> list[Path]:
    """Return the files of the boot modules and their dependencies, in order of loading."""
    found: dict[Path, None] = {}
    for module in recipe.BOOT_MODULES:
        shown = deps.run_tool(
            *("chroot", str(root), "modprobe", "-S", kernel, "--show-depends", module),
            check=False,  # a module that is built in, or that this kernel no longer has
        )
        for line in shown.splitlines():
            if line.startswith("insmod "):
                found[root / line.split()[1].lstrip("/")] = None
    return list(found)


class _Cpio:
    """Writer of the "newc" format, as far as the kernel reads it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0

    def add(self, name: str, data: bytes, mode: int) -> None:
        self._count += 1
        fields = (self._count, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._parts += [_padded(head + name.encode() + b"\0"), _padded(data)]

    def finish(self) -> bytes:
        self.add("TRAILER!!!", b"", 0)
        return b"".join(self._parts)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def make_key(*parts: str | bytes | Path) -> str:
    """Return a short hash of words, and of the content of files."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else to_bytes(part)
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()[:16]


_held: dict[Path, int] = {}  # for the life of the process


def _hold(path: Path) -> None:
    if path not in _held:
        _held[path] = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(_held[path], fcntl.LOCK_SH)


def _is_held(path: Path) -> bool:
    if path in _held:
        return True
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
