"""The machine on which Ansible runs: its inventory, and the results of its plays."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.fleet import tools
from tests.lab.machine import LabError
from tests.packaging.builds import EPOCH, load

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples/fleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The result of a playbook."""

    code: int
    output: str
    tasks: tuple  # of the callback `record`
    stats: dict  # by host

    def results(self, host, task=""):
        """Return the results of a host, of tasks whose name has this part."""
        return [
            each["result"] for each in self.tasks if each["host"] == host and task in each["task"]
        ]

    def result(self, host, task):
        (found,) = self.results(host, task)
        return found

    def changed(self):
        """Return the number of changed tasks by host."""
        return {host: row["changed"] for host, row in self.stats.items()}


def install_collection(directory):
    """Build the collection, as `make ansible` does, and install it; return the directory of it."""
    script = load("build")
    tarball = script.collection.build_collection(directory, script.source_version(), EPOCH)
    words = (
        "ansible-galaxy",
        "collection",
        "install",
        "--offline",
        f"--collections-path={directory}",
    )
    done = tools.run_tool(tools.ensure_tools(), directory / "home", *words, str(tarball))
    if done.returncode:
        raise LabError(done.stdout + done.stderr)
    return directory


class Controller:
    """A directory with playbooks and variables, as an administrator has it."""

    def __init__(self, directory, collections, keys):
        self.tools = tools.ensure_tools()
        self.directory = directory
        self._collections, self._keys = collections, keys
        self._home = directory / "home"

    def take_example(self):
        """Begin with examples/fleet."""
        shutil.copytree(EXAMPLE, self.directory, dirs_exist_ok=True)

    def write(self, name, content):
        """Write a file in YAML."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content, sort_keys=False))

    def inventory(self, groups):
        """Write the inventory: hosts by group, with their variables."""
        common = {"ansible_python_interpreter": "/usr/bin/python3"}
        rows = {group: {"hosts": hosts} for group, hosts in groups.items()}
        self.write("inventory.yml", {"all": {"vars": common}, **rows})

    def play(self, playbook, *arguments):
        """Run a playbook of the directory, or these plays."""
        name = "play.yml"
        if isinstance(playbook, str):
            name = playbook
        else:
            self.write(name, playbook)
        record = self.directory / "record"
        record.unlink(missing_ok=True)
        variables = {
            "RECORD": str(record),
            "ANSIBLE_COLLECTIONS_PATH": str(self._collections),
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
            "ANSIBLE_CALLBACKS_ENABLED": "record",
            "ANSIBLE_SSH_COMMON_ARGS": f"-F {self._keys.configuration}",
            "ANSIBLE_TIMEOUT": "300",
        }
        words = ("ansible-playbook", "--inventory=inventory.yml", name, "--diff", *arguments)
        done = tools.run_tool(self.tools, self._home, *words, cwd=self.directory, env=variables)
        lines = record.read_text().splitlines() if record.exists() else ()
        rows = [json.loads(line) for line in lines]
        return Ran(
            code=done.returncode,
            output=done.stdout + done.stderr,
            tasks=tuple(row for row in rows if "task" in row),
            stats={row["host"]: row["stats"] for row in rows if "stats" in row},
        )
