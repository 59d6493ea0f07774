"""A demo of podslice: a private systemd, the example pods in it, and what systemctl shows.

    python3 -m tests.lab.demo

Everything runs in namespaces that end with this process; the systemd of the host, if there is one,
is not affected.
"""

import shlex
import sys

from tests.lab.machine import Machine
from tests.lab.namespace import Namespace
from tests.lab.paths import cache_dir, source_dir, why_unavailable

STEPS = (
    ("the seeds' pods, and an IDE whose tools share one budget",),
    ("podslice", "check", "-f", "examples/seeds"),
    ("podslice", "plan", "-f", "examples/seeds/ide.yaml"),
    ("apply them",),
    ("podslice", "apply", "-f", "examples/seeds"),
    ("two commands as containers of the IDE",),
    ("podslice", "run", "--detach", "myide", "-c", "ide", "--", "sleep", "infinity"),
    ("podslice", "run", "--detach", "myide", "-c", "shell", "--", "sleep", "infinity"),
    ("podslice", "tree"),
    ("systemctl", "status", "kubepods.slice", "--no-pager"),
    ("systemd-cgls", "--no-pager", "--all", "/kubepods.slice"),
    ("the reason for each value",),
    ("podslice", "explain", "-f", "examples/seeds/ide.yaml", "myide"),
    ("a value is changed externally; status reports it, apply restores it",),
    ("systemctl", "set-property", "kubepods-burstable.slice", "CPUWeight=5"),
    ("podslice", "status"),
    ("podslice", "apply", "-f", "examples/seeds"),
    ("stop the pods and their processes, and remove all units",),
    ("podslice", "delete", "--all"),
    ("podslice", "status"),
    ("systemctl", "list-units", "--all", "kubepods*"),
)
CAPACITY = "capacity = 'cpu=8,memory=32Gi,ephemeral-storage=100Gi'\n"
"""Makes the pods fit, and the numbers the same, on every machine."""


def main() -> int:
    """Run the demo; return 1 if a command fails."""
    if reason := why_unavailable():
        print_line(reason)
        return 1
    if not image_is_there():
        print_line("building the image of a small Debian first; this takes a minute or two, once")
    with Namespace(bind={"/src": source_dir()}) as machine:
        machine.put("/etc/podslice/podslice.toml", CAPACITY)
        print_line(f"systemd {machine.systemd_version}, private to this demo\n")
        return int(not all(show(machine, step) for step in STEPS))


def image_is_there() -> bool:
    """Return whether an image has been built before."""
    return any((cache_dir() / "image").glob("*"))


def show(machine: Machine, step: tuple[str, ...]) -> bool:
    """Run one command as on a terminal, or print a sentence; return False if it failed."""
    if len(step) == 1:
        print_line(f"\n# {step[0]}")
        return True
    print_line(f"$ {shlex.join(step)}")
    command = ["cd /src && exec", *map(shlex.quote, step)]
    if step[0] == "podslice":
        command[1] = "python3 -m podslice"
    result = machine.run(
        "sh", "-c", " ".join(command) + " 2>&1", check=False, env={"PYTHONDONTWRITEBYTECODE": "1"}
    )
    print_line(result.stdout.rstrip() + "\n")
    return result.exit_code in (0, 3)


def print_line(text: str) -> None:
    """Print and flush, so that a pipe receives the output at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
