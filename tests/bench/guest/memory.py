"""Programs that use memory, for pods in the machine; each logs every pass in a file.

    python3 memory.py read FILE MIB PART_MIB PAUSE_SEC LOG   reads a part of a file repeatedly
    python3 memory.py touch MIB STEP_MIB PAUSE_SEC LOG       writes to all of its pages repeatedly
    python3 memory.py make FILE MIB                          writes a file, and drops it from the cache
    python3 memory.py forget FILE...                         drops files from the page cache

A pause follows every part that is read, and every pass over all pages; the touched memory grows by
one step each time up to its size. Then a line is written to the log: the seconds of the pass
without the pause, and its MiB.
"""
# pathlib costs a tenth of a second at the start in an emulated machine:
# ruff: noqa: PTH123

from __future__ import annotations

import mmap
import os
import sys
import time

MIB = 2**20
PAGE = mmap.PAGESIZE


class Log:
    """A log whose lines are written at once."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def log_pass(self, began: float, size_mib: int) -> None:
        """Log a pass."""
        os.write(self._fd, f"{time.monotonic() - began:.5f} {size_mib}\n".encode())


def read(path: str, size_mib: int, part_mib: int, pause_sec: float, log: Log) -> None:
    """Read a file forever."""
    buffer = memoryview(bytearray(MIB))
    file = os.open(path, os.O_RDONLY)
    while True:
        os.lseek(file, 0, os.SEEK_SET)
        for _ in range(size_mib // part_mib):
            began = time.monotonic()
            for _ in range(part_mib):
                if os.readv(file, [buffer]) != MIB:
                    raise RuntimeError(f"{path} has less than {size_mib} MiB")
            log.log_pass(began, part_mib)
            time.sleep(pause_sec)


def touch(size_mib: int, step_mib: int, pause_sec: float, log: Log) -> None:
    """Write to every page forever."""
    blocks: list[mmap.mmap] = []
    number = 0
    while True:
        began = time.monotonic()
        if len(blocks) * step_mib < size_mib:
            blocks.append(mmap.mmap(-1, step_mib * MIB, flags=mmap.MAP_PRIVATE))
        # never the same byte twice in a row, and never 0: pages must not be merged or elided
        number = number % 255 + 1
        for block in blocks:
            block[::PAGE] = bytes([number]) * (len(block) // PAGE)
        log.log_pass(began, len(blocks) * step_mib)
        time.sleep(pause_sec)


def make(path: str, size_mib: int) -> None:
    """Write a file with content."""
    block = bytes(range(256)) * (MIB // 256)
    with open(path, "wb") as file:
        file.writelines(block for _ in range(size_mib))
    forget(path)


def forget(path: str) -> None:
    """Drop a file from the page cache."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def main() -> None:
    """Run the command."""
    match sys.argv[1:]:
        case "read", path, size, part, pause, log:
            read(path, int(size), int(part), float(pause), Log(log))
        case "touch", size, step, pause, log:
            touch(int(size), int(step), float(pause), Log(log))
        case "make", path, size:
            make(path, int(size))
        case "forget", *paths:
            for path in paths:
                forget(path)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
