"""The session of the README in a private systemd.

    python3 -m tests.lab.demo

Everything runs in namespaces that end with this process; the systemd of the host, if there is one,
is not affected.
"""

import sys

from tests.lab import session
from tests.lab.machine import Machine
from tests.lab.namespace import Namespace
from tests.lab.paths import cache_dir, source_dir, why_unavailable

SECTION = "A first session"
PROGRAM = '#!/bin/sh\nPYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/src exec python3 -m podslice "$@"\n'
CAPACITY = "capacity = 'cpu=8,memory=32Gi,ephemeral-storage=100Gi'\n"
"""Makes the pods fit, and the numbers the same, on every machine."""


def main() -> int:
    if reason := why_unavailable():
        print_line(reason)
        return 1
    if not image_is_there():
        print_line("building the image of a small Debian first; this takes a minute or two, once")
    readme = (source_dir() / "README.md").read_text()
    steps = session.read_steps(session.sections(readme)[SECTION])
    with Namespace(bind={"/src": source_dir()}) as machine:
        machine.put("/etc/podslice/podslice.toml", CAPACITY)
        machine.put("/usr/bin/podslice", PROGRAM, mode=0o755)
        print_line(f"systemd {machine.systemd_version}, private to this demo")
        print_line(f"/etc/podslice/podslice.toml, not the size of this host: {CAPACITY}")
        session.prepare(machine)
        done = [show(machine, step) for step in steps]  # also those after one that fails
        return int(not all(done))


def image_is_there() -> bool:
    return any((cache_dir() / "image").glob("*"))


def show(machine: Machine, step: session.Step) -> bool:
    print_line(f"$ {step.command}")
    result = session.run(machine, step.command, color=sys.stdout.isatty())
    print_line(result.stdout)
    return result.exit_code == 0


def print_line(text: str) -> None:
    """Print and flush, so that a pipe receives the output at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
