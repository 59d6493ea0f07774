"""The collection: its version, its tarball, and documentation that agrees with the code."""

import ast
import json
import runpy
import tarfile

import pytest
import yaml

from podslice import __version__
from tests.unit.ansible.conftest import COLLECTION, utility

MODULES = sorted(path.stem for path in (COLLECTION / "plugins/modules").glob("*.py"))
FRAGMENTS = COLLECTION / "plugins/doc_fragments/podslice.py"
BUILD = COLLECTION.parent / "builder/collection.py"
EPOCH = 1_700_000_000


def texts(path):
    """Return the strings that a module or a class assigns to names."""
    return {
        node.targets[0].id: node.value.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }


def documented(name):
    """Return the documentation of a module, with the options that all have."""
    document = yaml.safe_load(texts(COLLECTION / f"plugins/modules/{name}.py")["DOCUMENTATION"])
    common = yaml.safe_load(texts(FRAGMENTS)["DOCUMENTATION"])
    return {**document["options"], **common["options"]}


def as_specified(options):
    """Return options of a documentation in the form of a specification of arguments."""
    found = {}
    for name, row in options.items():
        kept = {"type", "choices", "default", "elements", "required"}
        found[name] = {key: value for key, value in row.items() if key in kept}
        if "suboptions" in row:
            found[name]["options"] = as_specified(row["suboptions"])
    return found


def test_its_version_is_that_of_podslice():
    """Also that of the package which the role installs."""
    assert yaml.safe_load((COLLECTION / "galaxy.yml").read_text())["version"] == __version__
    defaults = yaml.safe_load((COLLECTION / "roles/host/defaults/main.yml").read_text())
    assert defaults["podslice_version"] == __version__


@pytest.mark.parametrize("name", MODULES)
def test_options_are_documented_as_they_are(name):
    arguments = {**utility("podslice").COMMON_ARGUMENTS, **utility(name).ARGUMENTS}
    assert as_specified(documented(name)) == arguments


@pytest.mark.parametrize("name", MODULES)
def test_examples_use_options_of_the_module(name):
    module = texts(COLLECTION / f"plugins/modules/{name}.py")
    tasks = yaml.safe_load(module["EXAMPLES"])
    used = [
        task[f"podslice.host.{name}"] or {} for task in tasks if f"podslice.host.{name}" in task
    ]
    assert used
    assert {option for given in used for option in given} <= documented(name).keys()
    assert yaml.safe_load(module["RETURN"])


def test_every_module_is_in_the_group():
    runtime = yaml.safe_load((COLLECTION / "meta/runtime.yml").read_text())
    assert runtime["action_groups"]["podslice"] == MODULES
    for path in (COLLECTION / "plugins/action").glob("*.py"):
        assert path.stem in MODULES


def test_variables_of_the_role_are_documented_with_their_defaults():
    role = COLLECTION / "roles/host"
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())
    options = specs["argument_specs"]["main"]["options"]
    assert {name: row.get("default") for name, row in options.items()} == defaults


def test_handlers_and_notifications_agree():
    role = COLLECTION / "roles/host"
    handlers = yaml.safe_load((role / "handlers/main.yml").read_text())
    names = {each["name"] for each in handlers}
    text = (role / "tasks/configure.yml").read_text()
    assert {
        line.partition("notify: ")[2] for line in text.splitlines() if "notify:" in line
    } == names


def test_a_host_that_stays_out_of_reach_stops_the_play():
    """An unreachable host is not a failed one: with `serial` the play would go on to the others."""
    tasks = yaml.safe_load((COLLECTION / "roles/host/tasks/configure.yml").read_text())
    *restoring, last = tasks[0]["rescue"]
    assert [task["name"] for task in restoring if not task.get("ignore_unreachable")] == []
    assert "ansible.builtin.fail" in last


@pytest.fixture
def build(tmp_path):
    return runpy.run_path(str(BUILD))["build_collection"]


def test_the_tarball_is_complete_and_reproducible(build, tmp_path):
    path = build(tmp_path / "a", "1.2.3", EPOCH)
    assert path.name == "podslice-host-1.2.3.tar.gz"
    assert path.read_bytes() == build(tmp_path / "b", "1.2.3", EPOCH).read_bytes()
    with tarfile.open(path) as tar:
        names = tar.getnames()
        manifest = json.load(tar.extractfile("MANIFEST.json"))
        listed = json.load(tar.extractfile("FILES.json"))["files"]
        assert {member.mtime for member in tar.getmembers()} == {EPOCH}
    assert manifest["collection_info"]["version"] == "1.2.3"
    assert manifest["collection_info"]["license"] == ["Apache-2.0"]
    assert {each["name"] for each in listed} == {*names, "."} - {"MANIFEST.json", "FILES.json"}
    expected = {"LICENSE", "README.md", "plugins/modules/pods.py", "roles/host/tasks/main.yml"}
    assert expected <= {*names}
    assert not [name for name in names if "__pycache__" in name or name.startswith((".", "ruff"))]
    assert "galaxy.yml" not in names


# the example of a fleet

FLEET = COLLECTION.parents[1] / "examples/fleet"
KINDS = sorted(path.stem for path in (FLEET / "group_vars").glob("*.yml"))


def variables(kind):
    """Return the variables of a host of one kind."""
    files = (FLEET / f"group_vars/{name}.yml" for name in ("all", kind))
    return {key: value for file in files for key, value in yaml.safe_load(file.read_text()).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_variables_of_the_example_are_those_of_the_role(kind):
    defaults = yaml.safe_load((COLLECTION / "roles/host/defaults/main.yml").read_text())
    assert variables(kind).keys() <= defaults.keys()
    options = {option for entry in variables(kind).get("podslice_pods", []) for option in entry}
    assert options <= utility("pods").ARGUMENTS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_configuration_and_pods_of_the_example_are_valid(kind, module, memory, tmp_path, podslice):
    toml = utility("rendering").to_toml(variables(kind)["podslice_settings"])
    (tmp_path / "podslice.toml").write_text(toml)
    ended = podslice("check", "--config", str(tmp_path / "podslice.toml"))
    assert (ended.code, ended.err) == (0, "")
    for entry in variables(kind).get("podslice_pods", []):
        found = module("pods", **entry, directory=str(tmp_path / "manifests"))
        assert (found["changed"], found["warnings"]) == (True, [])


def test_the_inventory_has_a_group_for_each_kind():
    groups = yaml.safe_load((FLEET / "inventory.yml").read_text())
    assert sorted({*groups, "all"}) == KINDS


def test_the_playbook_uses_the_collection():
    plays = yaml.safe_load((FLEET / "site.yml").read_text())
    assert [role["role"] for play in plays for role in play.get("roles", [])] == [
        "podslice.host.host"
    ]
    tasks = [task for play in plays for task in play.get("tasks", [])]
    used = {name for task in tasks for name in task if name.startswith("podslice.host.")}
    assert {name.rpartition(".")[2] for name in used} <= {*MODULES}
