"""The module pods: what it plans, refuses, writes and applies."""

import asyncio
import shutil

import pytest
import yaml

from podslice.errors import Refused
from tests.unit.ansible.conftest import utility
from tests.unit.builders import make_files, manifest
from tests.unit.cli.pods import POD, WEB

Failure = utility("podslice").Failure
DEFINITION = yaml.safe_load(WEB)


@pytest.fixture
def directory(tmp_path):
    """The manifest directory of the host."""
    path = tmp_path / "manifests"
    path.mkdir()
    return path


@pytest.fixture
def pods(module, directory):
    """Run the module with this directory."""

    def run(**given):
        return module("pods", **{"directory": str(directory), **given})

    return run


def units(memory):
    """The names of all units of the service manager."""
    return {unit.name for unit in asyncio.run(memory.list_units(["*"]))}


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def pod(name, *requests):
    return yaml.safe_load(manifest(name, *requests))


def test_a_pod_is_applied_and_kept(pods, memory, directory):
    found = pods(definition=DEFINITION)
    assert found["changed"]
    assert [step["unit"] for step in found["plan"]["steps"]][-1] == POD
    assert found["slices"] == {"shop/web": POD}
    assert found["file"] == str(directory / "shop_web.yaml")
    assert yaml.safe_load((directory / "shop_web.yaml").read_text()) == DEFINITION
    assert POD in units(memory)
    assert found["stopped"] == found["refused"] == found["warnings"] == []
    assert "unconfirmed" not in found


def test_a_second_run_changes_nothing_and_calls_little(pods, memory, calls):
    pods(definition=DEFINITION)
    calls.clear()
    found = pods(definition=DEFINITION)
    assert (found["changed"], found["diff"], found["plan"]["steps"]) == (False, [], [])
    assert [words[0] for words in calls] == ["--version", "explain", "plan"]


def test_check_mode_changes_nothing(pods, memory, directory, calls):
    found = pods(definition=DEFINITION, check_mode=True)
    assert found["changed"]
    assert names(directory) == []
    assert set(memory.calls) <= {"observe", "caps", "list_units"}
    assert {words[0] for words in calls} == {"--version", "explain", "plan", "check"}
    applied = pods(definition=DEFINITION)
    assert applied["diff"] == found["diff"]
    assert applied["plan"] == found["plan"]


def test_the_difference_is_a_few_lines_of_yaml(pods, memory):
    pods(definition=DEFINITION)
    found = pods(definition=WEB.replace("500m", "250m"), file="shop_web", check_mode=True)
    units, file = found["diff"]
    assert (
        units["before"]
        == f"kubepods-burstable.slice:\n  CPUWeight: 75\n{POD}:  # shop/web\n  CPUWeight: 75\n"
    )
    assert yaml.safe_load(units["after"]) == {
        "kubepods-burstable.slice": {"CPUWeight": 50},
        POD: {"CPUWeight": 50},
    }
    assert file["after"] == WEB.replace("500m", "250m")


def test_the_difference_of_a_new_pod_has_readable_values(pods, memory):
    (units, _) = pods(definition=DEFINITION, check_mode=True)["diff"]
    assert units["before"] == ""
    assert yaml.safe_load(units["after"])[POD] == {
        "CPUQuota": "125%",
        "CPUWeight": 75,
        "MemoryLow": "256Mi",
    }


def test_a_definition_may_be_a_list_or_a_text(pods, memory, directory):
    found = pods(definition=[pod("a"), pod("b")], file="both")
    assert sorted(found["slices"]) == ["default/a", "default/b"]
    assert pods(definition=manifest("c"))["file"] == str(directory / "c.yaml")
    assert names(directory) == ["both.yaml", "c.yaml"]


@pytest.mark.parametrize("definition", [[], 7, ["web"], None])
def test_other_definitions_are_refused(pods, memory, definition):
    with pytest.raises(Failure, match=r"definition"):
        pods(definition=definition)


def test_several_pods_need_the_name_of_a_file(pods, memory):
    with pytest.raises(Failure, match="has 2 pods: set 'file'"):
        pods(definition=[pod("a"), pod("b")])
    assert pods(definition=[pod("a"), pod("b")], persist=False)["changed"]


@pytest.mark.parametrize("name", ["../web", ".web", "", "a b"])
def test_the_name_of_a_file_is_only_a_name(pods, memory, name):
    with pytest.raises(Failure, match="is not a name of a file"):
        pods(definition=DEFINITION, file=name)


def test_all_problems_of_a_definition_are_reported(pods, memory, directory):
    bad = WEB.replace("500m", "half").replace("512Mi", "x")
    with pytest.raises(Failure) as caught:
        pods(definition=bad)
    assert "definition: spec.containers[0].resources.requests[cpu]" in caught.value.message
    assert len([line for line in caught.value.message.splitlines() if line.startswith("- ")]) == 2
    assert len(caught.value.facts["problems"]) == 2
    assert names(directory) == []


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_refused_pod_fails_and_nothing_is_changed(pods, memory, directory, check_mode):
    with pytest.raises(Failure, match="pod default/a is refused: OutOfcpu") as caught:
        pods(definition=[pod("a", {"cpu": 9}), pod("b")], file="two", check_mode=check_mode)
    assert caught.value.facts["refused"][0]["pod"] == "default/a"
    assert names(directory) == []
    assert "kubepods.slice" not in units(memory)


def test_the_other_pods_are_applied_where_that_is_allowed(pods, memory, directory):
    found = pods(definition=[pod("a", {"cpu": 9}), pod("b")], file="two", allow_refused=True)
    assert found["changed"]
    assert found["warnings"][0].startswith("pod default/a is refused: OutOfcpu")
    assert names(directory) == ["two.yaml"]
    again = pods(definition=[pod("a", {"cpu": 9}), pod("b")], file="two", allow_refused=True)
    assert not again["changed"]


def test_prune_stops_no_processes_unless_it_is_allowed(pods, memory):
    pods(definition=DEFINITION, persist=False)
    memory.set_tasks(POD, 2)
    with pytest.raises(Failure, match="allow_stop: true") as caught:
        pods(definition=pod("b"), prune=True)
    assert "pod shop/web is removed" in caught.value.message
    assert caught.value.facts["stopped"][0]["unit"] == POD
    assert POD in units(memory)
    found = pods(definition=pod("b"), prune=True, allow_stop=True)
    assert found["stopped"][0]["tasks"] == 2
    assert POD not in units(memory)


def test_a_pod_without_processes_may_be_pruned(pods, memory):
    pods(definition=DEFINITION, persist=False)
    assert pods(definition=pod("b"), prune=True)["changed"]
    assert POD not in units(memory)


def test_prune_keeps_the_pods_of_other_files(pods, memory):
    pods(definition=DEFINITION)
    pods(definition=pod("b"), prune=True)
    assert POD in units(memory)


def test_prune_with_a_kept_file_keeps_the_others(pods, memory, directory):
    pods(definition=DEFINITION)
    (directory / "b.yaml").write_text(manifest("b"))
    pods(src=str(directory / "b.yaml"), prune=True)
    assert POD in units(memory)
    (directory / "shop_web.yaml").unlink()
    pods(src=str(directory), prune=True)
    assert POD not in units(memory)


def test_a_pod_of_another_file_is_refused(pods, memory, directory):
    (directory / "mine.yaml").write_text(WEB)
    with pytest.raises(Failure, match=r"already used by a pod in .*mine\.yaml") as caught:
        pods(definition=DEFINITION)
    assert "would be invalid" in caught.value.message
    assert "shop_web.yaml: metadata.name" in caught.value.message
    assert pods(definition=DEFINITION, file="mine")["changed"]
    assert names(directory) == ["mine.yaml"]


def test_an_invalid_file_of_others_is_a_warning(pods, memory, directory):
    (directory / "broken.yaml").write_text("nonsense")
    found = pods(definition=DEFINITION)
    assert "broken.yaml" in found["warnings"][0]


def test_a_pod_that_a_file_loses_is_reported(pods, memory):
    pods(definition=[pod("a"), pod("b")], file="two")
    found = pods(definition=pod("a"), file="two")
    assert "pod default/b is in no manifest" in found["warnings"][0]


def test_manifests_on_the_host(pods, memory, files, directory):
    files({"web.yaml": WEB})
    found = pods(src="web.yaml")
    assert (directory / "shop_web.yaml").read_text() == WEB
    assert found["file"] == str(directory / "shop_web.yaml")
    assert not pods(src=str(directory))["changed"]
    assert names(directory) == ["shop_web.yaml"]


def test_a_directory_elsewhere_is_not_kept(pods, memory, files):
    files({"pods/web.yaml": WEB})
    with pytest.raises(Failure, match="is a directory"):
        pods(src="pods")
    assert pods(src="pods", persist=False)["changed"]


def test_the_namespace_is_part_of_the_file(pods, memory, directory):
    found = pods(definition=pod("a"), namespace="shop")
    assert list(found["slices"]) == ["shop/a"]
    assert (
        yaml.safe_load((directory / "shop_a.yaml").read_text())["metadata"]["namespace"] == "shop"
    )
    with pytest.raises(Failure, match="must state its namespace"):
        pods(definition=manifest("a"), namespace="shop")


def test_the_namespace_is_not_that_of_other_files(pods, memory, directory):
    (directory / "b.yaml").write_text(manifest("b"))
    (directory / "web.yaml").write_text(WEB.replace("shop", "other"))
    assert pods(definition=pod("a"), namespace="shop", prune=True)["warnings"] == []
    assert pods(definition=pod("b"), namespace="shop")["file"] == str(directory / "shop_b.yaml")
    assert pods(name=["b"], namespace="shop", state="absent")["changed"]
    assert names(directory) == ["b.yaml", "shop_a.yaml", "web.yaml"]


def test_what_was_not_applied_fails_and_is_repeated(pods, memory, directory):
    memory.refuse(POD, Refused("access denied"))
    for _ in range(2):
        with pytest.raises(Failure, match="not everything was applied") as caught:
            pods(definition=DEFINITION)
    assert "access denied" in caught.value.message
    assert names(directory) == ["shop_web.yaml"]
    memory.refuse(POD, None)
    assert pods(definition=DEFINITION)["changed"]


# state absent


GROUP = f"cgroup/kubepods.slice/kubepods-burstable.slice/{POD}"


def test_a_pod_is_removed_with_its_file(pods, memory, directory, here):
    pods(definition=DEFINITION)
    make_files(here, {f"{GROUP}/pids.current": "3\n", "cgroup/cgroup.controllers": ""})
    with pytest.raises(Failure, match="3 tasks"):
        pods(name=["shop/web"], state="absent", check_mode=True)
    found = pods(
        name=["shop/web"], state="absent", allow_stop=True, grace_period=1, check_mode=True
    )
    assert found["changed"]
    assert POD in units(memory)
    assert names(directory) == ["shop_web.yaml"]
    assert found["stopped"][0]["unit"] == POD
    assert yaml.safe_load(found["diff"][0]["before"]) == {POD: {"processes": ["3 tasks"]}}
    assert found["diff"][0]["after"] == found["diff"][1]["after"] == ""
    shutil.rmtree(here / GROUP)
    memory.set_tasks(POD, 3)
    assert pods(name=["shop/web"], state="absent", allow_stop=True, grace_period=1)["changed"]
    assert POD not in units(memory)
    assert names(directory) == []
    assert not pods(name=["shop/web"], state="absent")["changed"]


def test_a_pod_that_an_agent_has_removed_meanwhile(pods, memory, monkeypatch, podslice):
    """The agent stops the pods of a manifest as soon as the file is removed."""
    pods(definition=DEFINITION)
    logic = utility("absent")
    original = logic.remove

    def remove(path):
        original(path)
        podslice("delete", "shop/web")

    monkeypatch.setattr(logic, "remove", remove)
    assert pods(name=["shop/web"], state="absent")["changed"]
    assert POD not in units(memory)


def test_an_empty_pod_is_removed_without_permission_to_stop(pods, memory, directory):
    pods(definition=DEFINITION)
    assert pods(definition=DEFINITION, state="absent")["changed"]
    assert POD not in units(memory)


def test_a_file_is_removed_with_all_its_pods(pods, memory, directory):
    pods(definition=[pod("a"), pod("b")], file="two")
    with pytest.raises(Failure, match="also has default/b"):
        pods(name=["a"], file="two", state="absent")
    assert pods(file="two", state="absent")["changed"]
    assert names(directory) == []
    assert not [name for name in units(memory) if "-pod" in name]


def test_a_pod_that_another_file_has_is_not_removed(pods, memory, directory):
    pods(definition=[pod("a"), pod("b")], file="two")
    with pytest.raises(Failure, match=r"set 'file' to two\.yaml"):
        pods(name=["a"], state="absent")


def test_options_that_do_not_fit_together(pods, memory):
    for given, message in (
        ({"definition": DEFINITION, "grace_period": 3}, "grace_period is an option of"),
        ({"name": ["a"]}, "requires one of"),
        ({"name": ["a"], "state": "absent", "confirm_seconds": 3}, "of state 'present'"),
        ({"definition": DEFINITION, "scope": "user", "confirm_seconds": 3}, "scope 'system'"),
    ):
        with pytest.raises(Failure, match=message):
            pods(**given)


def test_many_processes_are_counted():
    logic = utility("pod_status")
    processes = [{"name": "sh", "pid": number} for number in range(12)]
    unit = {"name": "a.slice", "kind": "slice", "pod": "default/a", "usage": {"tasks": 12}}
    scope = {"kind": "scope", "pod": "default/a", "processes": processes}
    (stop,) = logic.occupied({"units": [unit, scope], "others": []}, ["default/a"])
    assert (len(stop["processes"]), stop["processes"][-1]) == (11, "2 more")
    assert stop["tasks"] == 12
