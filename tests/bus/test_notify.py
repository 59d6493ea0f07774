"""Notifications of a service to a real systemd, and the sockets that it passes."""

import socket

import pytest

UNIT = "podslicetestnotify"
SOCKET = f"/run/{UNIT}"
SERVICE = """
import os
from podslice.systemd.notify import Notifier, listen_fds

notifier = Notifier(os.environ)
(listening,) = listen_fds(os.environ)
listening.setblocking(True)
notifier.ready(f"up, alive every {notifier.watchdog_sec:g} s")
word = ""
while word != "stopping":
    caller = listening.accept()[0]
    with caller:
        word = caller.recv(100).decode()
        getattr(notifier, word)(*(["up again"] if word == "ready" else []))
        caller.send(b"done")
        caller.recv(1)
"""


class Service:
    """A service that sends notifications on request."""

    def __init__(self, machine):
        self._machine = machine
        kind = ("--property=Type=notify", "--property=WatchdogSec=30")
        listen = f"--socket-property=ListenStream={SOCKET}"
        machine.run(
            *("systemd-run", "--quiet", f"--unit={UNIT}", listen, *kind),
            *("--setenv=PYTHONPATH=/src", "python3", "-c", SERVICE),
        )

    def notify(self, word):
        """Bid it; it waits until the connection is closed."""
        caller = socket.socket(socket.AF_UNIX)
        caller.settimeout(30)
        caller.connect(f"{self._machine.root or ''}{SOCKET}")
        caller.send(word.encode())
        assert caller.recv(10) == b"done"
        return caller

    def show(self, *keys):
        wanted = [f"--property={key}" for key in keys]
        shown = self._machine.run("systemctl", "show", *wanted, f"{UNIT}.service").stdout
        values = dict(line.split("=", 1) for line in shown.splitlines())
        return [values[key] for key in keys]

    def close(self):
        for kind in ("socket", "service"):  # which may have ended by itself
            self._machine.run("systemctl", "stop", f"{UNIT}.{kind}", check=False)


@pytest.fixture(params=["machine", "old_machine"])
def service(request):
    made = Service(request.getfixturevalue(request.param))
    yield made
    made.close()


def test_systemd_shows_notifications(service):
    service.notify("watchdog").close()  # starts it, too
    first = service.show("ActiveState", "StatusText", "WatchdogTimestampMonotonic")
    assert first[:2] == ["active", "up, alive every 30 s"]
    service.notify("watchdog").close()
    assert int(service.show("WatchdogTimestampMonotonic")[0]) > int(first[2])
    service.notify("reloading").close()
    assert service.show("ActiveState") == ["reloading"]
    service.notify("ready").close()
    assert service.show("ActiveState", "StatusText") == ["active", "up again"]
    with service.notify("stopping"):
        assert service.show("ActiveState", "SubState") == ["deactivating", "stop-sigterm"]
