"""Start the units of a work file with pystemd, one call after the other.

    client_pystemd.py WORK

pystemd has no asynchronous calls; but the jobs are awaited together.
"""

import sys

from pystemd.dbuslib import DBus
from pystemd.systemd1 import Manager
from pystemd.systemd1.unit_signatures import KNOWN_UNIT_SIGNATURES
from work import Unit, read_work

SYSTEMD = b"org.freedesktop.systemd1"
PATH = b"/org/freedesktop/systemd1"
WAIT_USEC = 1_000_000

ended: set[bytes] = set()


def on_job_removed(message, error=None, userdata=None) -> None:
    """Record the end of a job."""
    message.process_reply(False)
    _, job, unit, result = message.body
    if result != b"done":
        sys.exit(f"{unit}: {result}")
    ended.add(job)


def start(manager: Manager, unit: Unit) -> bytes:
    """Start one unit; return its job."""
    name, properties = unit
    values = {}
    for key, type_, value in properties:
        # it does not know CPUWeight
        KNOWN_UNIT_SIGNATURES.setdefault(key.encode(), type_.encode())
        values[key.encode()] = as_bytes(value)
    return manager.Manager.StartTransientUnit(name.encode(), b"replace", values)


def as_bytes(value: object) -> object:
    """Return strings in the form that pystemd requires."""
    if isinstance(value, list):
        return [as_bytes(each) for each in value]
    return value.encode() if isinstance(value, str) else value


def main(path: str) -> None:
    """Start level by level."""
    with DBus() as bus, Manager(bus=bus, _autoload=True) as manager:
        bus.match_signal(SYSTEMD, PATH, SYSTEMD + b".Manager", b"JobRemoved", on_job_removed)
        for level in read_work(path):
            asked = {start(manager, unit) for unit in level}
            while True:
                bus.process()
                if asked <= ended:
                    break
                bus.wait(WAIT_USEC)


if __name__ == "__main__":
    main(sys.argv[1])
