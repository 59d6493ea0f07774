import os
import signal
import socket
import subprocess
import sys

import pytest


def test_a_unit_test_can_not_start_a_process():
    with pytest.raises(BaseException, match=r"subprocess\.Popen"):
        subprocess.run([sys.executable, "-V"], check=False)


def test_a_unit_test_can_not_fork():
    with pytest.raises(BaseException, match=r"os\.fork"):
        os.fork()


def test_a_unit_test_can_not_send_a_signal():
    with pytest.raises(BaseException, match=r"os\.kill"):
        os.kill(os.getpid(), signal.SIGCONT)


def test_a_unit_test_can_not_connect():
    with (
        socket.socket() as unconnected,
        pytest.raises(BaseException, match=r"socket\.connect"),
    ):
        unconnected.connect(("127.0.0.1", 9))


def test_the_guard_is_not_an_exception_that_code_might_swallow():
    with pytest.raises(BaseException, match=r"os\.kill") as caught:
        os.kill(os.getpid(), signal.SIGCONT)
    assert not isinstance(caught.value, Exception)
