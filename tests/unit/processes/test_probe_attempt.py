"""One attempt of a probe: a child process, and requests over the loopback interface."""

import os
import socket
import threading
import time

import pytest

from podslice.model.workload import Exec, HttpGet, TcpSocket
from podslice.processes.probe_attempt import RunningContainer, attempt, in_child, request

pytestmark = pytest.mark.usefixtures("allow_effects")
LOOPBACK = "127.0.0.1"


@pytest.fixture
def server():
    """A server that answers each connection with a text; the requests that it has got."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        listening.settimeout(30)
        yield listening


def answer(listening, text):
    """Answer one connection, and return the list that gets the request."""
    got = []

    def serve():
        connection, _ = listening.accept()
        with connection:
            got.append(connection.recv(4096).decode())
            connection.sendall(text.encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return got, thread


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("200 OK", True),
        ("204 No Content", True),
        ("302 Found", True),
        ("399 X", True),
        ("404 Not Found", False),
        ("500 Internal Server Error", False),
    ],
)
def test_an_answer_succeeds_by_its_status(server, status, expected):
    got, thread = answer(server, f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
    action = HttpGet(
        port=server.getsockname()[1], host=LOOPBACK, path="/ok?a=b", headers=(("Host", "shop"),)
    )
    assert request(action, 30) is expected
    thread.join()
    assert got[0].startswith("GET /ok?a=b HTTP/1.1\r\n")
    assert "\r\nHost: shop\r\n" in got[0]


def test_an_answer_of_another_protocol_fails(server):
    answer(server, "SSH-2.0-x\r\n")
    with pytest.raises(Exception, match="SSH"):
        request(HttpGet(port=server.getsockname()[1], host=LOOPBACK), 30)


def test_a_connection_succeeds_if_there_is_a_listener(server):
    port = server.getsockname()[1]
    own = RunningContainer(name="web-app", pid=os.getpid())
    action = TcpSocket(port=port, host=LOOPBACK)
    assert attempt(action, own, 30)
    server.close()
    assert not attempt(action, own, 30)


def test_a_child_has_a_result_and_a_limit_of_time():
    assert in_child(lambda: True, 30)
    assert not in_child(lambda: False, 30)
    assert not in_child(lambda: 1 / 0, 30)
    assert not in_child(lambda: time.sleep(3600) is None, 0.01)


def test_a_container_that_has_exited_fails():
    gone = RunningContainer(name="web-app", pid=2**22 + 1)
    assert not attempt(TcpSocket(port=1, host=LOOPBACK), gone, 30)


def test_a_command_succeeds_by_its_exit_status(tmp_path, monkeypatch):
    podman = tmp_path / "podman"
    podman.write_text('#!/bin/sh\necho "$@" >> "$0.log"\nexit "$4"\n')
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    own = RunningContainer(name="web-app", pid=1)
    assert attempt(Exec(command=("check", "0")), own, 30)
    assert not attempt(Exec(command=("check", "3")), own, 30)
    assert (tmp_path / "podman.log").read_text() == "exec web-app check 0\nexec web-app check 3\n"


def test_without_podman_a_command_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not attempt(Exec(command=("true",)), RunningContainer(name="web-app", pid=1), 30)
