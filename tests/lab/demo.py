"""A first look at podslice: a private systemd, the example pods in it, and what systemctl says.

    python3 -m tests.lab.demo

Everything happens in namespaces that end with this process; the host's own systemd, if it runs one,
is not involved.
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
    ("make it so",),
    ("podslice", "apply", "-f", "examples/seeds"),
    ("two commands as containers of the IDE",),
    ("podslice", "run", "--detach", "myide", "-c", "ide", "--", "sleep", "infinity"),
    ("podslice", "run", "--detach", "myide", "-c", "shell", "--", "sleep", "infinity"),
    ("podslice", "tree"),
    ("systemctl", "status", "kubepods.slice", "--no-pager"),
    ("systemd-cgls", "--no-pager", "--all", "/kubepods.slice"),
    ("why does the IDE get this?",),
    ("podslice", "explain", "-f", "examples/seeds/ide.yaml", "myide"),
    ("somebody changes a value by hand; status finds it, apply mends it",),
    ("systemctl", "set-property", "kubepods-burstable.slice", "CPUWeight=5"),
    ("podslice", "status"),
    ("podslice", "apply", "-f", "examples/seeds"),
    ("and away again, with what runs in them, without a trace",),
    ("podslice", "delete", "--all"),
    ("podslice", "status"),
    ("systemctl", "list-units", "--all", "kubepods*"),
)
CAPACITY = "capacity = 'cpu=8,memory=32Gi,ephemeral-storage=100Gi'\n"
"""So that the pods fit, and the numbers are the same, on every machine."""


def main() -> int:
    """Show it; 1 when a command ends other than it should."""
    if reason := why_unavailable():
        say(reason)
        return 1
    if not image_is_there():
        say("building the image of a small Debian first; this takes a minute or two, once")
    with Namespace(bind={"/src": source_dir()}) as machine:
        machine.put("/etc/podslice/podslice.toml", CAPACITY)
        say(f"systemd {machine.systemd_version}, private to this demo\n")
        return int(not all(show(machine, step) for step in STEPS))


def image_is_there() -> bool:
    """Whether an image has been built before."""
    return any((cache_dir() / "image").glob("*"))


def show(machine: Machine, step: tuple[str, ...]) -> bool:
    """Run one command as on a terminal, or say one sentence; False when it failed."""
    if len(step) == 1:
        say(f"\n# {step[0]}")
        return True
    say(f"$ {shlex.join(step)}")
    command = ["cd /src && exec", *map(shlex.quote, step)]
    if step[0] == "podslice":
        command[1] = "python3 -m podslice"
    result = machine.run(
        "sh", "-c", " ".join(command) + " 2>&1", check=False, env={"PYTHONDONTWRITEBYTECODE": "1"}
    )
    say(result.stdout.rstrip() + "\n")
    return result.exit_code in (0, 3)


def say(text: str) -> None:
    """Print and flush, so that a pipe sees the demo as it goes."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
