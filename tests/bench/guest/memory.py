"""Programs that want memory, for pods in the machine; each tells of every pass in a file.

    python3 memory.py read FILE MIB PART_MIB PAUSE_SEC LOG   reads so much of a file again and again
    python3 memory.py touch MIB STEP_MIB PAUSE_SEC LOG       writes to all of its pages again and again
    python3 memory.py make FILE MIB                          writes a file, and forgets it
    python3 memory.py forget FILE...                         takes files out of the page cache

A pause comes after every part that is read, and after every time that all pages are touched; what
is touched grows by one step each time until it is so much. Then a line goes to the log: how many
seconds it took without the pause, and how many MiB it was.
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
    """Lines that are there at once."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def tell(self, began: float, size_mib: int) -> None:
        """One pass is over."""
        os.write(self._fd, f"{time.monotonic() - began:.5f} {size_mib}\n".encode())


def read(path: str, size_mib: int, part_mib: int, pause_sec: float, log: Log) -> None:
    """Go through a file for ever."""
    buffer = memoryview(bytearray(MIB))
    file = os.open(path, os.O_RDONLY)
    while True:
        os.lseek(file, 0, os.SEEK_SET)
        for _ in range(size_mib // part_mib):
            began = time.monotonic()
            for _ in range(part_mib):
                if os.readv(file, [buffer]) != MIB:
                    raise RuntimeError(f"{path} has less than {size_mib} MiB")
            log.tell(began, part_mib)
            time.sleep(pause_sec)


def touch(size_mib: int, step_mib: int, pause_sec: float, log: Log) -> None:
    """Write to every page for ever."""
    blocks: list[mmap.mmap] = []
    number = 0
    while True:
        began = time.monotonic()
        if len(blocks) * step_mib < size_mib:
            blocks.append(mmap.mmap(-1, step_mib * MIB, flags=mmap.MAP_PRIVATE))
        # never the same byte twice running, and never 0: nothing is to be saved by looking
        number = number % 255 + 1
        for block in blocks:
            block[::PAGE] = bytes([number]) * (len(block) // PAGE)
        log.tell(began, len(blocks) * step_mib)
        time.sleep(pause_sec)


def make(path: str, size_mib: int) -> None:
    """Write a file with something in it."""
    block = bytes(range(256)) * (MIB // 256)
    with open(path, "wb") as file:
        file.writelines(block for _ in range(size_mib))
    forget(path)


def forget(path: str) -> None:
    """Take a file out of the page cache."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def main() -> None:
    """Do what is asked for."""
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
