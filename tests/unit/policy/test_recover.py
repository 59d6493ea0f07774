"""A pod recovered from its slice gets the same slice again."""

import itertools
from dataclasses import replace

import pytest

from podslice.model.config import Config, MemoryProtection, Rules, WeightMapping
from podslice.model.naming import volume_path
from podslice.model.node import Node
from podslice.model.pod import Container, Qos
from podslice.model.properties import PROPERTIES
from podslice.model.resources import Resources
from podslice.model.unit import ObservedUnit, mount_name
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from podslice.policy.ownership import recover
from tests.unit.policy.worlds import container, levels, pod

NODE = Node(capacity={"cpu": 8000, "memory": 32 * 2**30 * 1000})
UNSET = {row.name: row.unset for row in PROPERTIES.values() if row.managed}
SCALE = {"cpu": 370, "memory": 2**20 * 1000}
FEW = tuple(levels())[::12]
CONFIGS = [
    Config(eviction_hard={}, cpu_weight_mapping=mapping, memory_protection=protection)
    for mapping, protection in itertools.product(WeightMapping, MemoryProtection)
    if protection is not MemoryProtection.NONE
]
CONFIGS.append(Config(eviction_hard={}, rules=Rules.KUBERNETES, cgroup_root="/custom"))


def scaled(resources):
    return Resources(
        requests={name: milli * SCALE[name] for name, milli in resources.requests.items()},
        limits={name: milli * SCALE[name] for name, milli in resources.limits.items()},
    )


def observe(each, config, **more):
    """The slice of a pod as systemd shows it once it has been started."""
    desired = desire([decide(each, NODE, config)], NODE, config)
    unit = next(unit for unit in desired.units if unit.pod and unit.name.endswith(".slice"))
    fields = {
        "name": unit.name,
        "description": unit.description,
        "properties": {**UNSET, **unit.values},
    }
    return ObservedUnit(**{**fields, **more})


@pytest.mark.parametrize("config", CONFIGS)
def test_a_recovered_pod_gets_the_same_slice(config):
    for first, second in itertools.product(map(scaled, FEW), repeat=2):
        each = pod(container(first), container(second, 1), name="web", uid="12-34")
        before = decide(each, NODE, config)
        recovered = recover(observe(each, config), config)
        assert recovered is not None
        assert (recovered.key, recovered.uid) == (each.key, each.uid)
        assert [one.where for one in recovered.containers] == ["spec.containers[0]"]
        after = decide(recovered, NODE, config)
        assert after.slice == before.slice
        assert after.qos is before.qos
        assert after.properties == before.properties


def test_only_our_own_descriptions_are_parsed():
    each = pod(container(Resources()), name="web")
    for description in ("", "kubepods-besteffort-podweb.slice", "Pod web (BestEffort)"):
        assert recover(observe(each, Config(), description=description), Config()) is None


def test_a_class_that_is_none_is_not_believed():
    each = pod(container(Resources()), name="web")
    unit = observe(each, Config(), description="Pod default/web (Golden)")
    assert recover(unit, Config()) is None


def test_a_slice_that_is_not_where_its_class_belongs_is_not_believed():
    each = pod(container(Resources()), name="web")
    unit = observe(each, Config(), description=f"Pod default/web ({Qos.GUARANTEED})")
    assert recover(unit, Config()) is None
    assert recover(observe(each, Config()), Config(cgroup_root="/custom")) is None


def test_a_slice_without_a_uid_is_not_believed():
    each = pod(container(Resources()), name="web")
    assert recover(observe(each, Config(), name="kubepods-besteffort.slice"), Config()) is None


@pytest.mark.parametrize("weight", [0, 1, 10_001, PROPERTIES["CPUWeight"].unset, "odd"])
def test_an_invalid_weight_counts_as_the_least_request(weight):
    each = pod(container(Resources(requests={"cpu": 1000})), name="web")
    unit = observe(each, Config(), properties={"CPUWeight": weight})
    recovered = recover(unit, Config())
    assert recovered is not None
    assert recovered.resources.requests["cpu"] == 1
    assert decide(recovered, NODE, Config()).qos is Qos.BURSTABLE


def test_amounts_are_recovered_from_the_properties():
    """1 CPU has the weight 100, a fiftieth, rounded up, 2; 1,000 µs of quota are a thousandth."""
    each = pod(container(Resources(requests={"cpu": 1000})), name="web", namespace="shop")
    for weight, milli in ((1, 0), (2, 21), (100, 1_000), (10_000, 100_000)):
        properties = {"CPUWeight": weight, "CPUQuotaPerSecUSec": 2_500_000, "MemoryLow": 1}
        recovered = recover(observe(each, Config(), properties=properties), Config())
        assert recovered.resources.requests == {"cpu": milli, "memory": 1000}
        assert recovered.resources.limits == {"cpu": 2500}
    assert recovered.key == "shop/web"
    assert recovered.containers == (Container(name="unknown", where="spec.containers[0]"),)


@pytest.mark.parametrize("stated", [{}, {"cpu": 1000}])
def test_a_limit_of_process_ids_is_recovered_if_it_is_the_pod_s_own(stated):
    own = Resources(limits={**stated, "pid": 2_048_000})
    each = pod(container(Resources()), name="web", resources=own)
    for config in (Config(), Config(pod_max_pids=4096)):
        recovered = recover(observe(each, config), config)
        assert recovered.resources.limits["pid"] == 2_048_000
        before, after = decide(each, NODE, config), decide(recovered, NODE, config)
        assert (before.qos, before.properties) == (after.qos, after.properties)
    limited = Config(pod_max_pids=100)
    assert "pid" not in recover(observe(each, limited), limited).resources.limits


@pytest.mark.parametrize("period", [100_000, 50_000])
def test_what_annotations_state_is_recovered(period):
    config = Config(cpu_cfs_quota_period_usec=period)
    stated = {"CPUQuotaPeriodUSec": 500_000, "MemoryHigh": 2**20, "MemorySwapMax": 0}
    stated |= {"AllowedCPUs": "0-63", "IOReadIOPSMax": "/dev/sda 1", "IOWeight": 5}
    limited = Resources(limits={"cpu": 200})
    for properties in (stated, {}):
        each = pod(container(limited), name="web", properties=properties)
        recovered = recover(observe(each, config), config)
        assert recovered.properties == properties
        before, after = decide(each, NODE, config), decide(recovered, NODE, config)
        assert before.properties == after.properties


def mount(name, uid="12-34", *, of="default/web", options="rw,nosuid,size=98304k,inode64"):
    return ObservedUnit(
        name=mount_name(volume_path(uid, name)),
        description=f"Volume {name} of pod {of}",
        properties={"Options": options} if options else {},
    )


def test_volumes_that_are_mounted_are_the_pod_s_still():
    """Else the next apply would take them for leftovers, and unmount them."""
    each = pod(container(Resources()), name="web", uid="12-34")
    slice_ = observe(each, Config())
    recovered = recover(
        slice_,
        Config(),
        [
            slice_,
            mount("my-cache"),
            mount("free", options="rw,nosuid"),
            mount("odd", options=""),
            mount("other-s", of="default/shop"),
            mount("not-here", uid="56"),
            replace(mount("x"), description="/run/podslice/pods/12-34/volumes/x"),
        ],
    )
    assert [(volume.name, volume.size_bytes) for volume in recovered.volumes] == [
        ("my-cache", 96 * 2**20),
        ("free", None),
        ("odd", None),
    ]
    assert {volume.where for volume in recovered.volumes} == {"spec.volumes"}
    assert recover(slice_, Config()).volumes == ()
