"""What the manager's socket gets, and which sockets are taken from it."""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from podslice.systemd.notify import Notifier, listen_fds

pytestmark = pytest.mark.usefixtures("allow_effects")  # the manager is a socket of the test's


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    """A socket as the service manager has one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        is_path = request.param == "path"
        sock.bind(str(tmp_path / "notify") if is_path else f"\0podslice-test-{os.getpid()}")
        sock.settimeout(5)
        yield sock


def notifier(manager: socket.socket, **more: str) -> Notifier:
    name = manager.getsockname()
    address = name if isinstance(name, str) else f"@{name[1:].decode()}"
    return Notifier({"NOTIFY_SOCKET": address, **more})


def test_messages(manager: socket.socket) -> None:
    sender = notifier(manager)
    sender.ready("2 pods\nand 3 containers")
    assert manager.recv(100) == b"READY=1\nSTATUS=2 pods and 3 containers"
    sender.status("3 pods")
    assert manager.recv(100) == b"STATUS=3 pods"
    sender.stopping()
    assert manager.recv(100) == b"STOPPING=1"
    sender.watchdog()
    assert manager.recv(100) == b"WATCHDOG=1"
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    sender.reloading()
    first, second = manager.recv(100).decode().splitlines()
    assert first == "RELOADING=1"
    at_usec = int(second.removeprefix("MONOTONIC_USEC="))
    assert before <= at_usec <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


@pytest.mark.parametrize("usec", ["", "0", "-1", "1e6", "٣", "9" * 5000, "x"])
def test_a_watchdog_of_no_number_is_none(usec: str) -> None:
    assert Notifier({"WATCHDOG_USEC": usec}).watchdog_sec is None


@pytest.mark.parametrize("count", ["", "-1", "٣", "9" * 5000, "x"])
def test_descriptors_of_no_number_are_none(count: str) -> None:
    assert listen_fds({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count}) == []


@pytest.mark.parametrize(
    "environ", [{}, {"NOTIFY_SOCKET": "vsock:2:1"}, {"NOTIFY_SOCKET": "/nonexistent/notify"}]
)
def test_without_a_manager_nothing_is_sent(environ: dict[str, str]) -> None:
    sender = Notifier(environ)
    sender.ready("up")
    sender.watchdog()
    assert sender.watchdog_sec is None


def test_a_manager_that_does_not_listen_does_not_hold_a_service_up(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podslice.systemd.notify.SEND_TIMEOUT_SEC", 0.001)
    sender = notifier(manager)
    for n in range(600):  # more than the kernel lets wait: 10, or with systemd's settings 512
        sender.status(str(n))
    assert manager.recv(100) == b"STATUS=0"


@pytest.mark.parametrize(
    ("usec", "other", "expected"),
    [
        ("60000000", None, 60.0),
        ("2500000", 0, 2.5),
        ("2500000", 1, None),
        ("0", None, None),
        ("", None, None),
        ("1s", None, None),
    ],
)
def test_watchdog(usec: str, other: int | None, expected: float | None) -> None:
    pid = {} if other is None else {"WATCHDOG_PID": str(os.getpid() + other)}
    environ = {"WATCHDOG_USEC": usec, **pid}
    assert Notifier(environ).watchdog_sec == expected


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_PID": "1", "LISTEN_FDS": "1"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "x"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "0"},
    ],
)
def test_no_sockets_are_given(environ: dict[str, str]) -> None:
    more = {**environ, "LISTEN_FDNAMES": "a", "HOME": "/"}
    assert listen_fds(more) == []
    assert more == {"HOME": "/"}


def test_sockets_are_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_INET) as second:
        first.bind(str(tmp_path / "agent.sock"))
        given = [
            fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD, 500 + n)
            for n, sock in enumerate((first, second))
        ]
        assert given == [500, 501]
        for descriptor in given:
            os.set_inheritable(descriptor, True)
        monkeypatch.setattr("podslice.systemd.notify.FIRST_DESCRIPTOR", given[0])
        environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}
        taken = listen_fds(environ)
        assert listen_fds(environ) == []
        assert [sock.fileno() for sock in taken] == given
        assert [sock.family for sock in taken] == [socket.AF_UNIX, socket.AF_INET]
        assert taken[0].getsockname() == str(tmp_path / "agent.sock")
        for sock in taken:
            assert not sock.getblocking()
            assert not sock.get_inheritable()
            sock.close()
