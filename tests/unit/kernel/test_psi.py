"""That it is woken is seen in the virtual machine; here, what it asks for."""

import errno
import os
import select

import pytest

from podslice.kernel.watch import TRIGGERS, MemoryAlarm
from tests.unit.builders import make_files
from tests.unit.recorder import open_files


@pytest.fixture
def pipe(tmp_path):
    """A file that takes what is written and can be waited for, as the kernel's can."""
    path = tmp_path / "proc/pressure/memory"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield reader
    os.close(reader)


async def test_the_quick_trigger_is_set_first(pipe, tmp_path):
    alarm = MemoryAlarm(lambda: None, tmp_path)
    assert os.read(pipe, 100) == TRIGGERS[0]
    alarm.close()
    assert os.read(pipe, 100) == b"", "it is closed"


class Epoll:
    """An epoll instance that notes what was asked for when the wait began."""

    def __init__(self, pipe, asked):
        self._pipe, self._asked = pipe, asked
        self._epoll = select.epoll()

    def register(self, descriptor, mask):
        self._asked.append(os.read(self._pipe, 100))
        self._epoll.register(descriptor, mask)

    def fileno(self):
        return self._epoll.fileno()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._epoll.close()


async def test_the_trigger_is_set_before_waiting(pipe, tmp_path, monkeypatch):
    """Source: Linux, kernel/sched/psi.c, psi_trigger_poll: without a trigger nothing wakes."""
    asked = []
    epoll = select.epoll

    def make():
        monkeypatch.setattr(select, "epoll", epoll)
        return Epoll(pipe, asked)

    monkeypatch.setattr(select, "epoll", make)
    MemoryAlarm(lambda: None, tmp_path).close()
    assert asked == [TRIGGERS[0]]


@pytest.fixture
def refuse_quick(monkeypatch):
    """Let the kernel refuse the quick trigger with a number."""
    write = os.write

    def begin(number):
        def refuse(handle, data):
            if data == TRIGGERS[0]:
                raise OSError(number, os.strerror(number))
            return write(handle, data)

        monkeypatch.setattr("podslice.kernel.watch.os.write", refuse)

    return begin


async def test_without_the_privilege_the_slow_trigger_is_set(pipe, tmp_path, refuse_quick):
    refuse_quick(errno.EINVAL)
    alarm = MemoryAlarm(lambda: None, tmp_path)
    assert os.read(pipe, 100) == TRIGGERS[1]
    alarm.close()


async def test_another_error_is_none_of_rights(pipe, tmp_path, refuse_quick):
    refuse_quick(errno.EOPNOTSUPP)
    with pytest.raises(OSError, match="not supported"):
        MemoryAlarm(lambda: None, tmp_path)


async def test_a_failure_leaves_nothing_open(tmp_path):
    make_files(tmp_path, {"proc/pressure/memory": ""})  # a plain file can't be waited for
    before = open_files()
    with pytest.raises(PermissionError):
        MemoryAlarm(lambda: None, tmp_path)
    assert open_files() == before


async def test_a_kernel_without_pressures_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        MemoryAlarm(lambda: None, tmp_path)
