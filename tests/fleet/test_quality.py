"""The collection and the example of a fleet, as Ansible's own tools judge them."""

import json
import shutil

import pytest

from tests.fleet import tools
from tests.fleet.controller import EXAMPLE, HERE

COLLECTION = HERE.parents[1] / "packaging/ansible"
MODULES = sorted(path.stem for path in (COLLECTION / "plugins/modules").glob("*.py"))
# Those for changelogs of antsibull, for Powershell and for shell scripts have nothing to test here.
LEFT_OUT = ("changelog", "pslint", "shellcheck")
RUN = ("ansible-doc", "compile", "ignores", "import", "pylint", "validate-modules", "yamllint")


@pytest.fixture(scope="module")
def installed(collections):
    return collections / "ansible_collections/podslice/host"


def test_sanity(installed):
    """All tests of ansible-test with the Python of the controller, besides those left out."""
    home = tools.ensure_sanity(installed, LEFT_OUT)
    done = tools.sanity(tools.ensure_tools(), home, installed, LEFT_OUT)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert [name for name in RUN if f'Running sanity test "{name}"' not in output] == []


def test_lint_with_the_profile_for_production(installed, collections, tmp_path):
    """In one run for the collection and the example, as most of its time is its start."""
    shutil.copyfile(COLLECTION / ".ansible-lint", tmp_path / "lint.yml")
    shutil.copytree(EXAMPLE, tmp_path / "example")
    words = ("ansible-lint", "--offline", "--nocolor", f"--config-file={tmp_path / 'lint.yml'}")
    done = tools.run_tool(
        *(tools.ensure_tools(), tmp_path / "home", *words, ".", str(tmp_path / "example")),
        cwd=installed,
        env={"ANSIBLE_COLLECTIONS_PATH": str(collections)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Profile 'production' was required, and it passed" in done.stdout + done.stderr


def test_documentation_of_each_plugin_and_of_the_role(collections, tmp_path):
    names = [f"podslice.host.{name}" for name in MODULES]
    env = {"ANSIBLE_COLLECTIONS_PATH": str(collections)}
    found = {}
    for kind, wanted in (
        ("module", names),
        ("filter", ["podslice.host.package_for"]),
        ("role", ["podslice.host.host"]),
    ):
        words = ("ansible-doc", "--json", f"--type={kind}", *wanted)
        done = tools.run_tool(tools.ensure_tools(), tmp_path, *words, env=env)
        assert done.returncode == 0, done.stderr
        found[kind] = json.loads(done.stdout)
        assert sorted(found[kind]) == wanted
    for each in found["module"].values():
        assert each["examples"]
        assert each["return"]
