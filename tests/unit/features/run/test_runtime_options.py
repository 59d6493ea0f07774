"""Options for runtimes, and that their limits equal podslice's own."""

import json
import shlex
from dataclasses import replace

import pytest
import yaml

from podslice.cli.views.runtime_options import (
    FORMATTERS,
    Form,
    Parent,
    docker_options,
    podman_options,
)
from podslice.model.config import MemoryProtection, Rules
from podslice.model.properties import PROPERTIES
from podslice.model.unit import PropertyValue
from podslice.policy.convert import quota_from_milli
from tests.cases.tables import cases
from tests.unit.builders import USER, besteffort, config, container, decisions, guaranteed, pod

WEB = pod(
    "web",
    namespace="shop",
    uid="1-2",
    containers=(
        container("main", "cpu=100m,memory=16Mi", "cpu=500m,memory=64Mi"),
        container("log", "cpu=50m"),
    ),
)
SLICE = "kubepods-burstable-pod1_2.slice"


def parent(of=WEB, named=None, *, by=None, **more):
    (decision,) = decisions(of, by=by)
    chosen = next((each for each in decision.scopes if each.name == named), None)
    return Parent(pod=decision, container=chosen, **more)


def text(form, of=WEB, named=None, **more):
    return "\n".join(FORMATTERS[form](parent(of, named, **more)))


@cases
def test_the_text_of_a_form(form, container, manager, expected):
    more = {"manager": USER} if manager else {}
    assert text(Form(form), named=container, **more) == expected


@cases
def test_the_swap_of_runtimes_includes_the_memory(of_memory, of_docker, more_of_podman):
    properties = tuple(
        PropertyValue(name=name, value=value, why="") for name, value in of_memory.items()
    )
    by_default = parent(guaranteed("g"), "main")
    made = replace(by_default, container=replace(by_default.container, properties=properties))

    def about_swap(options):
        return " ".join(option for option in options if "swap" in option)

    assert about_swap(docker_options(made)) == of_docker
    assert about_swap(podman_options(made)) == (of_docker or more_of_podman)


def test_a_line_is_safe_for_a_shell_as_it_is():
    for form in (Form.NAME, Form.PODMAN, Form.PODMAN_POD, Form.DOCKER):
        line = text(form, named="main")
        assert shlex.split(line) == line.split(" ")


def test_keys_of_a_compose_file_are_yaml():
    assert yaml.safe_load(text(Form.COMPOSE, named="main")) == {
        "cgroup_parent": SLICE,
        "labels": {"io.podslice.pod": "shop/web", "io.podslice.container": "main"},
        "cpu_period": 100_000,
        "cpu_quota": 50_000,
        "mem_limit": 64 * 2**20,
        "memswap_limit": -1,
        "mem_reservation": 16 * 2**20,
        "oom_score_adj": 999,
    }


def test_names_stay_text_in_yaml():
    odd = pod("on", namespace="1e3", containers=(container("007"),))
    labels = yaml.safe_load(text(Form.COMPOSE, odd, "007"))["labels"]
    assert labels == {"io.podslice.pod": "1e3/on", "io.podslice.container": "007"}


def test_an_oci_runtime_makes_the_scope_of_the_container():
    made = json.loads(text(Form.OCI, named="main"))
    assert made == {
        "process": {"oomScoreAdj": 999},
        "annotations": {
            "org.systemd.property.CPUQuotaPerSecUSec": "uint64 500000",
            "org.systemd.property.CPUWeight": "uint64 9",
            "org.systemd.property.MemoryLow": "uint64 16777216",
            "org.systemd.property.MemoryMax": "uint64 67108864",
            "org.systemd.property.CollectMode": "'inactive-or-failed'",
            "org.systemd.property.TimeoutStopUSec": "uint64 30000000",
        },
        "linux": {"cgroupsPath": f"{SLICE}:podslice:pod1_2-main"},
    }
    slice_, prefix, name = made["linux"]["cgroupsPath"].split(":")
    assert f"{prefix}-{name}.scope" == parent(named="main").container.scope
    assert slice_ == parent().pod.slice


def test_unlimited_resources_have_no_options():
    assert text(Form.PODMAN, besteffort("b"), "main").split()[-2:] == [
        "--oom-score-adj=1000",
        "--cgroup-conf=cpu.weight=1",
    ]
    made = json.loads(text(Form.OCI, besteffort("b"), "main"))
    assert "org.systemd.property.MemoryMax" not in made["annotations"]


def test_protection_that_is_hard_has_a_file_of_its_own():
    by = config(memory_protection=MemoryProtection.MIN)
    line = text(Form.PODMAN, guaranteed("g"), "main", by=by)
    assert "--cgroup-conf=memory.min=1073741824" in line
    assert "--memory-reservation" not in line
    assert "memory.min" not in text(Form.DOCKER, guaranteed("g"), "main", by=by)
    made = json.loads(text(Form.OCI, guaranteed("g"), "main", by=by))
    assert made["annotations"]["org.systemd.property.MemoryMin"] == f"uint64 {2**30}"


@pytest.mark.parametrize("milli", [10, 15, 33, 100, 477, 1250, 64_000])
@pytest.mark.parametrize("period_usec", [100_000, 33_333, 7_001, 1_000])
def test_runtimes_make_the_same_quota_of_quota_and_period(milli, period_usec):
    by = config(cpu_cfs_quota_period_usec=period_usec)
    made = parent(pod("p", limits=f"cpu={milli}m"), "main", by=by)
    quota, period = made.quota
    assert period == period_usec
    # as crun and runc convert it to CPUQuotaPerSecUSec
    per_sec = quota * 1_000_000 // period
    assert -(-per_sec // 10_000) * 10_000 == made.limits["CPUQuotaPerSecUSec"]
    assert quota >= 1000
    assert (
        quota_from_milli(milli, period_usec=period).per_sec_usec == -(-per_sec // 10_000) * 10_000
    )


def test_every_form_has_lines():
    assert set(FORMATTERS) == set(Form) - {Form.JSON}
    assert all(text(form, named="main") for form in FORMATTERS)


def test_every_limit_of_a_container_is_in_podmans_line():
    """Every property that policy sets on a container is handled."""
    known = {"CPUWeight", "CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec"}
    known |= {"MemoryMax", "MemoryLow", "MemoryMin", "MemoryHigh", "MemorySwapMax"}
    assert known <= set(PROPERTIES)
    for protection in MemoryProtection:
        by = config(
            memory_protection=protection, cpu_cfs_quota_period_usec=50_000, rules=Rules.KUBERNETES
        )
        assert set(parent(guaranteed("g"), "main", by=by).limits) <= known


ON_SOME = replace(
    guaranteed("g"),
    containers=(
        replace(
            container("main", limits="cpu=1"),
            properties={
                "AllowedCPUs": "0-1,3",
                "IOReadIOPSMax": "/dev/sda 5; /srv 7",
                "IOWeight": 50,
            },
        ),
    ),
)


def test_cpus_are_an_option_of_every_runtime():
    for form in (Form.PODMAN, Form.DOCKER):
        assert "--cpuset-cpus=0-1,3" in text(form, ON_SOME, "main").split()
        assert "--cpuset-cpus" not in text(form, ON_SOME)
    assert yaml.safe_load(text(Form.COMPOSE, ON_SOME, "main"))["cpuset"] == "0-1,3"
    made = json.loads(text(Form.OCI, ON_SOME, "main"))
    assert made["linux"]["resources"] == {"cpu": {"cpus": "0-1,3"}}
    assert "org.systemd.property.AllowedCPUs" not in made["annotations"]
    assert made["annotations"]["org.systemd.property.IOWeight"] == "uint64 50"


def test_numa_nodes_are_an_option_of_most_runtimes():
    before = parent(ON_SOME, "main")
    nodes = PropertyValue(name="AllowedMemoryNodes", value="1", why="")
    changed = replace(before.container, properties=(*before.container.properties, nodes))
    after = replace(before, container=changed)
    for options in (podman_options, docker_options):
        assert [each for each in options(after) if "mems" in each] == ["--cpuset-mems=1"]
        assert not [each for each in options(before) if "mems" in each]
    (made,) = FORMATTERS[Form.OCI](after)
    assert json.loads(made)["linux"]["resources"] == {"cpu": {"cpus": "0-1,3", "mems": "1"}}


def test_limits_of_devices_are_lines_of_a_unit():
    expected = ["AllowedCPUs=0-1,3", "IOReadIOPSMax=/dev/sda 5", "IOReadIOPSMax=/srv 7"]
    for form in (Form.SYSTEMD, Form.QUADLET):
        lines = text(form, ON_SOME, "main").splitlines()
        assert [line for line in lines if line.startswith(("Allowed", "IOR"))] == expected
    _, command, *_ = text(Form.SYSTEMD, ON_SOME, "main").splitlines()
    properties = [word for word in shlex.split(command) if word.startswith("--property=IOR")]
    assert properties == ["--property=IOReadIOPSMax=/dev/sda 5", "--property=IOReadIOPSMax=/srv 7"]
