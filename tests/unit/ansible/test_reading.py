"""The modules cgroup_parent and info, which change nothing."""

import pytest
import yaml

from tests.unit.ansible.conftest import utility
from tests.unit.builders import make_files, manifest
from tests.unit.cli.pods import POD, WEB

Failure = utility("podslice").Failure
DEFINITION = yaml.safe_load(WEB)
GROUP = f"kubepods.slice/kubepods-burstable.slice/{POD}"


@pytest.fixture
def applied(podslice, web, memory, here):
    """A pod that is applied, and its control group."""
    podslice("apply", "-f", web)
    make_files(here, {"cgroup/cgroup.controllers": "", f"cgroup/{GROUP}/cgroup.procs": ""})


def test_the_slice_of_an_applied_pod(module, applied):
    found = module("cgroup_parent", pod="shop/web")
    assert found == {
        "changed": False,
        "slice": POD,
        "control_group": f"/{GROUP}",
        "exists": True,
        "labels": {"io.podslice.pod": "shop/web"},
        "line": f"--cgroup-parent={POD} --label io.podslice.pod=shop/web",
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("output", "begin"),
    [("name", POD), ("systemd", "# for a service"), ("oci", "{"), ("compose", "cgroup_parent:")],
)
def test_the_forms_of_the_line(module, applied, output, begin):
    found = module("cgroup_parent", pod="web", namespace="shop", container="app", output=output)
    assert found["line"].startswith(begin)
    assert not found["line"].endswith("\n")


def test_a_form_that_needs_a_container(module, applied):
    with pytest.raises(Failure, match="container"):
        module("cgroup_parent", pod="shop/web", output="oci")


def test_a_pod_that_is_not_applied(module, memory):
    with pytest.raises(Failure, match=r"not applied.*'definition' or 'src' names its manifest"):
        module("cgroup_parent", pod="shop/web")
    found = module("cgroup_parent", pod="shop/web", definition=DEFINITION, check_mode=True)
    assert (found["slice"], found["exists"], found["warnings"]) == (POD, False, [])
    (warning,) = module("cgroup_parent", pod="shop/web", definition=WEB)["warnings"]
    assert "does not exist" in warning


def test_facts_of_a_healthy_host(module, applied):
    found = module("info")
    assert (found["healthy"], found["problems"], found["changed"]) == (True, [], False)
    assert found["node"]["capacity"]["cpu_milli"] == 8000
    assert found["pods"]["shop/web"]["slice"] == POD
    assert found["pods"]["shop/web"]["in_sync"]
    assert set(found["pods"]["shop/web"]["containers"]) == {"app", "log"}
    assert not {"version", "notes", "units"} & found.keys()


def test_facts_of_an_unhealthy_host(module, applied, here):
    make_files(here, {"manifests/db.yaml": manifest("db")})
    found = module("info", gather=["status"])
    assert not found["healthy"]
    assert {each["kind"] for each in found["problems"]} >= {"pod-pending"}
    assert "pods" not in found


def test_facts_with_an_invalid_configuration(module, applied, here):
    make_files(here, {"etc/podslice/podslice.toml": "nonsense = 1\n"})
    found = module("info", gather=["status", "node"])
    assert found["configuration"]["source"] in {"last-valid", "default"}
    assert not found["healthy"]


def test_the_usage(module, applied):
    found = module("info", gather=["usage"])["usage"]
    assert [pod["pod"] for pod in found["pods"]] == ["shop/web"]
