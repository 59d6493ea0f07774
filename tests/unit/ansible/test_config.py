"""The module config: validated as a whole, then written."""

import pytest

from tests.cases.tables import cases
from tests.configuration import load_config
from tests.unit.ansible.conftest import utility
from tests.unit.builders import make_files

Failure = utility("podslice").Failure
PATH = "etc/podslice/podslice.toml.d/50-ansible.toml"
RESERVED = {
    "system-reserved": {"cpu": "500m", "memory": "1Gi"},
    "system-reserved-cgroup": "/system.slice",
    "enforce-node-allocatable": ["pods", "system-reserved"],
    "cpu-cfs-quota": True,
    "eviction-hard": "memory.available<200Mi",
}


@pytest.fixture
def config(module, here, memory, monkeypatch):
    """Run the module on the simulated machine, whose files are below a directory."""
    logic = utility("config")
    for name in ("read_text", "write_text", "remove"):
        original = getattr(logic, name)
        monkeypatch.setattr(
            logic,
            name,
            lambda path, *rest, original=original, **options: original(
                f"{here}{path}", *rest, **options
            ),
        )

    def run(**given):
        return module("config", **given)

    return run


def test_settings_are_written_and_effective(config, here):
    found = config(settings=RESERVED)
    assert (found["changed"], found["path"]) == (True, f"/{PATH}")
    assert found["effective"]["enforce-node-allocatable"] == ["pods", "system-reserved"]
    loaded = load_config(root=here)
    assert loaded.system_reserved_cgroup == "/system.slice"
    assert loaded.system_reserved == {"cpu": 500, "memory": 2**30 * 1000}
    assert (here / PATH).stat().st_mode & 0o777 == 0o644
    again = config(settings=RESERVED)
    assert (again["changed"], again["diff"]) == (False, [])


def test_check_mode_validates_and_writes_nothing(config, here):
    found = config(settings=RESERVED, check_mode=True)
    assert found["changed"]
    assert 'system-reserved-cgroup = "/system.slice"\n' in found["diff"][0]["after"]
    assert not (here / PATH).exists()


@pytest.mark.parametrize("check_mode", [True, False])
def test_all_problems_are_reported_and_nothing_is_written(config, here, check_mode):
    settings = {"kube-reservd": "cpu=1", "eviction-hard": "memory<1", "rules": "mine"}
    with pytest.raises(Failure, match="was not written") as caught:
        config(settings=settings, check_mode=check_mode)
    assert len(caught.value.facts["problems"]) == 3
    assert f"{PATH}: kube-reservd: unknown option" in caught.value.message
    assert not (here / PATH).exists()


def test_a_file_is_validated_together_with_the_others(config, here):
    make_files(here, {"etc/podslice/podslice.toml": 'system-reserved-cgroup = "/system.slice"\n'})
    enforced = {"enforce-node-allocatable": "system-reserved", "system-reserved": "memory=1Gi"}
    assert config(settings=enforced)["effective"]["system-reserved-cgroup"] == "/system.slice"
    with pytest.raises(Failure, match="system-reserved requires system-reserved-cgroup"):
        config(drop_in="", state="absent")


def test_a_file_is_removed(config, here):
    config(settings=RESERVED)
    assert config(state="absent", check_mode=True)["changed"]
    assert (here / PATH).exists()
    found = config(state="absent")
    assert found["effective"] == {}
    assert not (here / PATH).exists()
    assert not config(state="absent")["changed"]


def test_the_main_file_has_an_empty_name(config, here):
    assert config(settings={"rules": "kubernetes"}, drop_in="")["changed"]
    assert load_config(root=here).rules == "kubernetes"


@cases
def test_options_that_do_not_fit(config, given, message):
    with pytest.raises(Failure, match=message):
        config(**given)
