"""One attempt of a probe: a command, and requests over the loopback interface."""

import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from podslice.features.quadlet.prober import (
    ProbedTarget,
    attempt,
    attempt_command,
    in_child,
    requester,
)
from podslice.features.quadlet.workload import Exec, HttpGet, Probe, ProbeKind, TcpSocket
from tests.cases.tables import cases

pytestmark = pytest.mark.usefixtures("allow_effects")
LOOPBACK = "127.0.0.1"
GROUP = "kubepods.slice/podslice-pod1-app.service"
TARGET = ProbedTarget(name="web-app", control_group=f"/{GROUP}")


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


@cases
def test_an_answer_succeeds_by_its_status(server, status, expected):
    got, thread = answer(server, f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
    action = HttpGet(
        port=server.getsockname()[1], host=LOOPBACK, path="/ok?a=b", headers=(("Host", "shop"),)
    )
    assert requester(action)(30) is expected
    thread.join()
    assert got[0].startswith("GET /ok?a=b HTTP/1.1\r\n")
    assert "\r\nHost: shop\r\n" in got[0]


def answer_each(listening, answers):
    """Answer one connection after the other; return the list of first lines of requests."""
    got = []

    def serve():
        for text in answers:
            connection, _ = listening.accept()
            with connection:
                got.append(connection.recv(4096).decode().partition("\r\n")[0])
                connection.sendall(f"HTTP/1.1 {text}\r\nContent-Length: 0\r\n\r\n".encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return got, thread


@pytest.mark.parametrize(("last", "expected"), [("200 OK", True), ("500 X", False)])
def test_a_redirection_on_the_same_host_is_followed(server, last, expected):
    port = server.getsockname()[1]
    answers = [
        "301 X\r\nLocation: login?a=b",
        f"307 X\r\nLocation: http://{LOOPBACK}:{port}/end",
        last,
    ]
    got, thread = answer_each(server, answers)
    assert requester(HttpGet(port=port, host=LOOPBACK, path="/shop/"))(30) is expected
    thread.join()
    assert got == ["GET /shop/ HTTP/1.1", "GET /shop/login?a=b HTTP/1.1", "GET /end HTTP/1.1"]


def test_redirections_without_end_fail(server):
    port = server.getsockname()[1]
    answer_each(server, ["302 X\r\nLocation: /"] * 10)
    with pytest.raises(OSError, match="10 redirections"):
        requester(HttpGet(port=port, host=LOOPBACK))(30)


def test_a_redirection_to_no_address_fails(server):
    answer_each(server, ["302 X\r\nLocation: http://127.0.0.1:x/"])
    with pytest.raises(OSError, match="redirection to"):
        requester(HttpGet(port=server.getsockname()[1], host=LOOPBACK))(30)


def test_a_header_may_be_stated_twice_and_replaces_the_default(server):
    got, thread = answer(server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    headers = (("X-A", "1"), ("X-A", "2"), ("accept", "text/plain"))
    action = HttpGet(port=server.getsockname()[1], host=LOOPBACK, headers=headers)
    assert requester(action)(30)
    thread.join()
    lines = got[0].split("\r\n")[1:-2]
    assert [each for each in lines if each.startswith("X-A")] == ["X-A: 1", "X-A: 2"]
    assert [each for each in lines if each.lower().startswith("accept:")] == ["accept: text/plain"]
    assert "User-Agent: kube-probe/podslice" in lines


def test_an_answer_of_another_protocol_fails(server):
    answer(server, "SSH-2.0-x\r\n")
    with pytest.raises(Exception, match="SSH"):
        requester(HttpGet(port=server.getsockname()[1], host=LOOPBACK))(30)


def test_a_connection_succeeds_if_there_is_a_listener(server):
    probe = Probe(action=TcpSocket(port=server.getsockname()[1], host=LOOPBACK), timeout_sec=30)
    assert attempt(ProbeKind.LIVENESS, probe, None)
    server.close()
    assert not attempt(ProbeKind.LIVENESS, probe, None)


def test_a_child_has_a_result_and_a_limit_of_time():
    assert in_child(lambda: True, 30)
    assert not in_child(lambda: False, 30)
    assert not in_child(lambda: 1 / 0, 30)
    assert not in_child(lambda: time.sleep(3600) is None, 0.01)


def succeeds(*command, timeout_sec=30, target=TARGET):
    return attempt_command(Probe(action=Exec(command=command), timeout_sec=timeout_sec), target)


def test_a_command_succeeds_by_its_exit_status(tmp_path, monkeypatch):
    podman = tmp_path / "podman"
    podman.write_text('#!/bin/sh\necho "$@" >> "$0.log"\nexit "$5"\n')
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert succeeds("check", "0")
    assert not succeeds("check", "3")
    assert (tmp_path / "podman.log").read_text() == (
        "exec --env=PODSLICE_PROBE=web-app web-app check 0\n"
        "exec --env=PODSLICE_PROBE=web-app web-app check 3\n"
    )


def test_the_processes_of_a_command_end_with_its_time_in_the_container_only(tmp_path, monkeypatch):
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\nexec sleep 100000\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # the container's processes are not podman's children
    marked, other, outside = (
        subprocess.Popen(["/usr/bin/sleep", "100000"], env={"A": "b", "PODSLICE_PROBE": name})
        for name in ("web-app", "web-app-2", "web-app")
    )
    payload = tmp_path / f"sys/fs/cgroup/{GROUP}/libpod-payload-1/init.scope"
    payload.mkdir(parents=True)
    (payload / "cgroup.procs").write_text(f"{other.pid}\n{marked.pid}\n")
    target = ProbedTarget(name="web-app", control_group=f"/{GROUP}", root=tmp_path)
    try:
        assert not succeeds("check", timeout_sec=0, target=target)
        assert marked.wait(30) == -signal.SIGKILL
        assert (other.poll(), outside.poll()) == (None, None)
    finally:
        for each in (marked, other, outside):
            each.kill()
            each.wait()


def test_without_podman_a_command_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not succeeds("true")
