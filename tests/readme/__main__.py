"""Run the commands of the README in a virtual machine; update their output, and the pictures.

    make pictures

The files keep their owner. tests/packaging/test_upgrade.py runs the same commands with the package.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.lab import session
from tests.lab.machine import Machine
from tests.lab.paths import why_unavailable
from tests.lab.session import Step
from tests.lab.vm import Vm
from tests.packaging.installed import install_source
from tests.readme import terminal_svg, tree_svg

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PICTURES = ROOT / "docs/pictures"
SCREENS = {"podslice status": "status.svg", "podslice top --once": "top.svg"}
"""The commands whose output is a picture of a terminal."""
TREE = "podslice explain -f pods"
_SCREEN_COLUMNS = 112


def main() -> int:
    """Update everything; return 1 if a command fails."""
    if reason := why_unavailable():
        sys.stderr.write(f"{reason}\n")
        return 1
    text = README.read_text()
    steps = session.read_steps(text)
    with Vm(has_source=True) as machine:
        install_source(machine)
        session.prepare(machine)
        outputs = list(run(machine, steps))
    if len(outputs) < len(steps):
        return 1
    write(README, session.with_outputs(text, outputs))
    return 0


def run(machine: Machine, steps: Iterable[Step]) -> Iterator[list[str]]:
    """Yield the output of each command, up to the first that fails, and draw the pictures."""
    for step in steps:
        sys.stdout.write(f"$ {step.command}\n")
        sys.stdout.flush()
        result = session.run(machine, step.command)
        if result.exit_code != 0:
            sys.stderr.write(f"exit code {result.exit_code}\n{result.stdout}")
            return
        yield session.lines_of(result)
        if name := SCREENS.get(step.command):
            write(PICTURES / name, draw_screen(machine, step.command))
        if step.command.startswith(TREE):
            write(PICTURES / "tree.svg", draw_tree(machine))


def draw_screen(machine: Machine, command: str) -> str:
    """Run a command with colors, and return the picture of its terminal."""
    shown = session.run(machine, command, columns=_SCREEN_COLUMNS, color=True)
    return terminal_svg.draw(command, shown.stdout, columns=_SCREEN_COLUMNS)


def draw_tree(machine: Machine) -> str:
    """Return the picture of the pods of the session."""
    explained = session.run(machine, f"{TREE} -o json").stdout
    node = session.run(machine, "podslice node -o json").stdout
    return tree_svg.draw(json.loads(node), json.loads(explained))


def write(path: Path, text: str) -> None:
    """Write a file, as one of the user who owns the source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    owner = ROOT.stat()
    for each in (path, path.parent):
        os.chown(each, owner.st_uid, owner.st_gid)


if __name__ == "__main__":
    sys.exit(main())
