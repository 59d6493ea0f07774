"""The collection's modules, without Ansible, on the command line of a simulated machine."""

import importlib
import sys
import types
from pathlib import Path

import pytest

from podslice import __version__

# the simulated machine of the command line's own tests
from tests.unit.cli.conftest import (  # noqa: F401
    command_line,
    files,
    here,
    journal,
    memory,
    no_loop,
    podslice,
    runtimes_hold,
    web,
)

COLLECTION = Path(__file__).resolve().parents[3] / "packaging/ansible"


def _import_collection():
    """Make `ansible_collections.podslice.host` importable, as Ansible does."""
    path = "ansible_collections"
    for name, paths in (("", []), (".podslice", []), (".podslice.host", [str(COLLECTION)])):
        package = sys.modules.setdefault(path + name, types.ModuleType(path + name))
        package.__path__ = paths


_import_collection()


def utility(name):
    """Import a module of plugins/module_utils."""
    return importlib.import_module(f"ansible_collections.podslice.host.plugins.module_utils.{name}")


def plugin_utility(name):
    """Import a module of plugins/plugin_utils."""
    return importlib.import_module(f"ansible_collections.podslice.host.plugins.plugin_utils.{name}")


def with_defaults(arguments, given):
    """Return parameters as Ansible passes them: all options, with their defaults."""
    unknown = given.keys() - arguments.keys()
    assert not unknown
    return {name: given.get(name, row.get("default")) for name, row in arguments.items()}


@pytest.fixture
def calls():
    """The words of each call of podslice."""
    return []


@pytest.fixture
def run_podslice(podslice, tmp_path, monkeypatch, calls):  # noqa: F811
    """Run podslice in this process, as a module does in another one."""

    def run(words, text):
        calls.append(tuple(words[1:]))
        if words[1:] == ["--version"]:
            return utility("podslice").Ended(0, f"podslice {__version__}\n", "")
        path = tmp_path / "stdin"
        path.write_text(text or "")
        with path.open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            return utility("podslice").Ended(*podslice(*words[1:]))

    return run


@pytest.fixture
def module(run_podslice):
    """Run the logic of a module: `module("pods", definition=…)`."""

    def run(name, /, *, check_mode=False, **given):
        logic, common = utility(name), utility("podslice")
        arguments = {**common.COMMON_ARGUMENTS, **logic.ARGUMENTS}
        wanted = with_defaults(arguments, given)
        return logic.run(wanted, common.Podslice(run_podslice, wanted), check_mode=check_mode)

    return run
