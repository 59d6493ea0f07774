"""The modules that each verb imports, as listed in `verb_modules.toml`.

After an intended change, write the list again, and review its difference:

    .venv/bin/python -m tests.unit.cli.verb_modules

Each verb runs with the user manager of an empty runtime directory, so that the list does not depend
on this host: verbs that need systemd end where they connect.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import podslice

ROOT = Path(podslice.__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")
CHILD = """
import json, os, sys
names = os.fdopen(int(sys.argv.pop(1)), "w")
def leave(code, leave=os._exit):
    json.dump([name for name, module in sys.modules.items() if module], names)
    names.close()
    leave(code)
os._exit = leave
from podslice.__main__ import main
main()
"""
MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: main, image: app, resources: {limits: {memory: 64Mi}}}]}
"""
PROJECT = "{name: shop, services: {web: {image: app, mem_limit: 64m}}}"
KUBELET = "{kind: KubeletConfiguration}"
FILE, USER = "--filename=pod.yaml", "--user"
COMMANDS = {
    "--version": ("--version",),
    "--help": ("--help",),
    "__complete": ("__complete", "pods"),
    "__probe": ("__probe",),
    "adopt": ("adopt", USER, "web", "1"),
    "apply": ("apply", USER, FILE),
    "cgroup-parent": ("cgroup-parent", USER, "web", FILE),
    "audit": ("audit", "--filename=pods.yaml", "--kubelet-config=config.yaml"),
    "check": ("check", USER, FILE),
    "compose": ("compose", USER, "--resolved=project.yaml"),
    "confirm": ("confirm",),
    "delete": ("delete", USER, "web"),
    "doctor": ("doctor", USER),
    "events": ("events",),
    "explain": ("explain", USER, FILE),
    "import": ("import", USER, "web"),
    "logs": ("logs", USER, "web"),
    "new": ("new", "web"),
    "node": ("node", USER),
    "phase": ("phase", USER, "web"),
    "plan": ("plan", USER, FILE),
    "readmit": ("readmit", USER, "web"),
    "recommend": ("recommend", USER),
    "render": ("render", USER, FILE),
    "run": ("run", USER, "web", "--", sys.executable),
    "simulate": ("simulate", USER, FILE),
    "status": ("status", USER),
    "top": ("top", USER),
    "tree": ("tree", USER),
    "version": ("version", "--output=json"),
}
WATCHED = frozenset(
    {"asyncio", "dbus_next", "email", "h11", "json", "prometheus_client", "pydantic", "rich", "ssl"}
    | {"subprocess", "typer", "xml", "yaml"}
)
"""Libraries and expensive modules of Python."""


def modules_of(verb: str, directory: Path) -> list[str]:
    """Run a verb, and return the names of all modules that it has imported."""
    (directory / "pod.yaml").write_text(MANIFEST)
    (directory / "project.yaml").write_text(PROJECT)
    (directory / "pods.yaml").write_text(MANIFEST.replace("name: web", "name: web, uid: a-1"))
    (directory / "config.yaml").write_text(KUBELET)
    environment = {
        **{name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ},
        "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={directory}/no-bus",
        "PATH": str(directory),
        "PYTHONPATH": str(ROOT),
        "XDG_RUNTIME_DIR": str(directory),
    }
    reading, writing = os.pipe()
    argv = [sys.executable, "-c", CHILD, str(writing), *COMMANDS[verb]]
    with os.fdopen(reading) as names:
        try:
            child = subprocess.Popen(
                argv,
                cwd=directory,
                env=environment,
                pass_fds=[writing],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            os.close(writing)
        text = names.read()
        child.wait()
    return json.loads(text)


def own(names: list[str]) -> dict[str, str]:
    """Return the modules of podslice by package, each package as one line."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        top, *rest = name.split(".")
        if top == "podslice" and rest:
            package, _, module = ".".join(rest).rpartition(".")
            found.setdefault(package, []).append(module)
    return {package or "podslice": " ".join(modules) for package, modules in found.items()}


def absent(names: list[str]) -> list[str]:
    """Return the watched modules that are not imported."""
    return sorted(WATCHED.difference(names))


def format_table(found: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "# The modules of podslice that each verb imports, and libraries that it must not import."
    yield "# Written by: .venv/bin/python -m tests.unit.cli.verb_modules"
    for verb, names in found.items():
        yield f'\n["{verb}"]'
        yield f'absent = "{" ".join(absent(names))}"'
        yield from (f'"{package}" = "{modules}"' for package, modules in own(names).items())


def main() -> None:
    """Write the table."""
    found = {}
    for verb in COMMANDS:
        with tempfile.TemporaryDirectory() as directory:
            found[verb] = modules_of(verb, Path(directory))
    TABLE.write_text("\n".join(format_table(found)) + "\n")


if __name__ == "__main__":
    main()
