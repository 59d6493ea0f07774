"""The module node: reservations, the services that were moved, and values on trial."""

import asyncio

import pytest

from podslice.features.node import verb as node_init
from podslice.model.unit import UnitName
from tests.unit.ansible.conftest import utility
from tests.unit.builders import make_files, node
from tests.unit.cli.pods import POD, WEB

Failure, Ended = utility("podslice").Failure, utility("podslice").Ended
CONFIG = "etc/podslice/podslice.toml"
ENFORCED = """\
system-reserved = "memory=1Gi"
system-reserved-cgroup = "/system.slice"
enforce-node-allocatable = "pods,system-reserved"
"""


@pytest.fixture
def services():
    """The control groups of running services."""
    return {"docker.service": "/system.slice/docker.service"}


@pytest.fixture
def commands():
    """The commands besides podslice."""
    return []


@pytest.fixture
def run_podslice(run_podslice, here, services, commands, monkeypatch):
    """Run podslice on files of the simulated machine, and a systemctl."""
    host = node("cpu=4,memory=8Gi,ephemeral-storage=100Gi,pid=32768")
    monkeypatch.setattr(node_init, "read_node", lambda: host)
    monkeypatch.setattr(node_init, "used_by_system", lambda: 200 * 2**20)
    make_files(here, {"usr/lib/systemd/system/docker.service": "[Service]\n"})

    def systemctl(words):
        commands.append(words)
        shown = [
            f"Id={name}\nActiveState={'active' if name in services else 'inactive'}\n"
            f"ControlGroup={services.get(name, '')}\n"
            for name in words
            if name.endswith(".service")
        ]
        return Ended(0, "\n".join(shown), "")

    def run(words, text):
        if words[0] == "systemctl":
            return systemctl(words)
        return run_podslice([*words, f"--root={here}"] if words[1] == "node" else words, text)

    return run


def test_reservations_are_written_once(module, here, commands, memory):
    found = module("node")
    assert found["changed"]
    assert f"{here}/{CONFIG}" in found["written"]
    assert found["needs_restart"] == ["docker.service"]
    assert found["needs_reload"] == ["podslice-agent.service"]
    assert found["allocatable"]["cpu_milli"] < found["capacity"]["cpu_milli"] == 4000
    assert ["systemctl", "daemon-reload"] in commands
    assert 'kube-reserved = "cpu=80m' in found["diff"][0]["after"]


def test_another_usage_of_the_system_is_not_a_change(module, here, memory, monkeypatch, services):
    module("node")
    services["docker.service"] = "/podruntime.slice/docker.service"
    monkeypatch.setattr(node_init, "used_by_system", lambda: 900 * 2**20)
    found = module("node")
    assert (found["changed"], found["written"], found["needs_restart"]) == (False, [], [])
    found = module("node", reservations={"refresh": True})
    assert found["written"] == [f"{here}/{CONFIG}"]


def test_a_service_that_was_not_restarted_still_needs_it(module, memory):
    module("node")
    assert module("node")["needs_restart"] == ["docker.service"]


def test_check_mode_writes_nothing(module, here, memory, commands):
    found = module("node", check_mode=True)
    assert found["changed"]
    assert not (here / CONFIG).exists()
    assert ["systemctl", "daemon-reload"] not in commands


def test_reservations_of_a_provider(module, memory):
    found = module("node", reservations={"like": "aks", "pods": 50}, check_mode=True)
    assert "as aks" in found["diff"][0]["after"]
    assert "50 pods" in found["diff"][0]["after"].replace("\n# ", " ")


def test_stated_reservations(module, memory, here):
    stated = {"kube": {"cpu": "300m", "memory": "1Gi"}, "system": "memory=2Gi"}
    found = module("node", reservations=stated)
    assert found["reserved"]["kube"] == {"cpu_milli": 300, "memory_bytes": 2**30}
    assert found["reserved"]["system"] == {"memory_bytes": 2**31}
    assert not module("node", reservations=stated)["changed"]
    with pytest.raises(Failure, match="kube must be a mapping or a text"):
        module("node", reservations={"kube": 3})
    with pytest.raises(Failure, match="half"):
        module("node", reservations={"kube": {"cpu": "half"}})


def test_a_file_of_others_is_kept(module, here, memory):
    make_files(here, {CONFIG: 'rules = "kubernetes"\n'})
    for check_mode in (True, False):
        with pytest.raises(Failure, match=r"podslice\.toml: the file exists"):
            module("node", check_mode=check_mode)
    assert (here / CONFIG).read_text() == 'rules = "kubernetes"\n'


def test_reset_removes_the_files(module, here, memory, services):
    module("node")
    services["docker.service"] = "/podruntime.slice/docker.service"
    found = module("node", state="reset", check_mode=True)
    assert found["changed"]
    assert (here / CONFIG).exists()
    found = module("node", state="reset")
    assert f"{here}/{CONFIG}" in found["removed"]
    assert found["needs_restart"] == ["docker.service"]
    assert not module("node", state="reset")["changed"]


def test_reset_keeps_a_modified_file_and_removes_the_others(module, here, memory, commands):
    module("node")
    (here / CONFIG).write_text((here / CONFIG).read_text() + "# more\n")
    commands.clear()
    with pytest.raises(Failure, match="was modified and is kept") as caught:
        module("node", state="reset")
    assert caught.value.facts["changed"]
    assert caught.value.facts["removed"]
    assert ["systemctl", "daemon-reload"] in commands
    assert (here / CONFIG).exists()


def test_it_is_about_the_host(module, memory):
    with pytest.raises(Failure, match="those of the host"):
        module("node", scope="user")


# values on trial


@pytest.fixture
def enforced(here, memory):
    """A configuration that enforces a reservation."""
    memory.provide(UnitName("system.slice"))
    make_files(here, {"etc/podslice/podslice.toml.d/60-enforce.toml": ENFORCED})


def test_values_of_reserved_slices_are_on_trial(module, memory, enforced):
    found = module("node", confirm_seconds=60)
    trial = found["unconfirmed"]
    assert (trial["state"], [unit["unit"] for unit in trial["units"]]) == (
        "armed",
        ["system.slice"],
    )
    assert trial["confirm_command"] == ["podslice", "confirm"]
    assert "system.slice" in found["diff"][-1]["after"]


def test_a_trial_that_was_not_confirmed_is_found_again(module, memory, enforced):
    module("node", confirm_seconds=60)
    found = module("node", confirm_seconds=60)
    assert not found["changed"]
    assert found["unconfirmed"]["state"] == "armed"


def test_without_new_values_there_is_no_trial(module, memory, here):
    assert "unconfirmed" not in module("node", confirm_seconds=60)


def test_check_mode_shows_the_values_of_present_files(module, memory, enforced):
    module("node")
    found = module("node", confirm_seconds=60, check_mode=True)
    assert found["changed"]
    assert "MemoryMax: 1Gi" in found["diff"][0]["after"]
    assert "unconfirmed" not in found


def test_the_difference_names_the_pods_of_drifted_slices(module, memory, here, tmp_path):
    """The trial sets all values of the configuration, also those of applied pods."""
    module("pods", definition=WEB, directory=str(tmp_path / "manifests"))
    asyncio.run(memory.set_properties(UnitName(POD), {"CPUWeight": 7}))
    found = module("node", confirm_seconds=60, check_mode=False)
    assert f"{POD}:  # shop/web\n  CPUWeight: 7\n" in found["diff"][-1]["before"]
