"""Problems: complete, addressed, and stricter under the rules of Kubernetes."""

import itertools
from dataclasses import replace
from functools import cache

import pytest

from podslice.errors import Severity
from podslice.model.config import Config, Rules
from podslice.model.node import Node
from podslice.model.pod import MemoryVolume
from podslice.model.resources import Resources
from podslice.policy import validate as module
from podslice.policy.aggregate import default_pod
from podslice.policy.allocatable import node_cpus
from podslice.policy.decide import decide
from tests.cases.tables import cases
from tests.unit.policy.worlds import AMOUNTS, container, pod, stated

# also what is wrong: requests above limits
ANY = [
    Resources(requests=stated(cpu=request), limits=stated(cpu=limit))
    for request, limit in itertools.product(AMOUNTS, repeat=2)
]


def small_pods():
    for first, second, level in itertools.product(ANY, repeat=3):
        yield pod(container(first), container(second, 1), resources=level)


def validate(stated, config, **more):
    more = {"page_size": 4096, "capacity": {}, **more}
    return module.validate(default_pod(stated), stated, config, **more)


@cache
def judged():
    """The small pods, each with its problems by the proposal and by Kubernetes."""
    kubernetes = Config(rules=Rules.KUBERNETES)
    return [(each, validate(each, Config()), validate(each, kubernetes)) for each in small_pods()]


def errors(problems):
    return {each.where for each in problems if each.severity is Severity.ERROR}


def test_a_request_above_its_limit_is_an_error_at_its_address():
    for each, problems, _ in judged():
        found = errors(problems)
        for level, where in [
            *((one.resources, f"{one.where}.resources") for one in each.containers),
            (each.resources, "spec.resources"),
        ]:
            limit = level.limits.get("cpu")
            wrong = limit is not None and level.requests.get("cpu", 0) > limit
            assert (f"{where}.requests[cpu]" in found) == wrong, each


@cases
def test_unlikely_amounts_are_reported(requests, limits, message, severity):
    """Memory below a page would be a limit of 0 for the kernel."""
    severity = Severity(severity)
    stated = Resources(requests=requests, limits=limits)
    text = message.format("less than a page of memory")
    for each, where in (
        (pod(container(stated)), "spec.containers[0].resources"),
        (pod(container(Resources()), resources=stated), "spec.resources"),
    ):
        found = validate(each, Config(), capacity={"cpu": 8000})
        assert [str(one) for one in found] == [f"{where}.{text}"]
        assert [one.severity for one in found] == [severity]


@pytest.mark.parametrize("rules", Rules)
def test_memory_of_nothing_or_a_page_is_valid(rules):
    """Source: Kubernetes' own tests request memory of "0", which asks for nothing."""
    each = pod(container(Resources(requests={"memory": 0}, limits={"memory": 4096_000})))
    assert validate(each, Config(rules=rules)) == []


def test_many_cpus_are_valid_if_the_node_has_them_or_is_unknown():
    few = pod(container(Resources(requests={"cpu": 9000, "memory": 4096_000})))
    assert validate(few, Config(), capacity={"cpu": 8000}) == []
    each = pod(container(Resources(limits={"cpu": 128_000})))
    assert validate(each, Config(), capacity={"cpu": 256_000}) == []
    assert validate(each, Config()) == []


def test_a_pod_s_limit_below_its_containers_requests_is_an_error():
    for each, problems, _ in judged():
        containers = default_pod(each).containers
        asked = sum(one.resources.requests.get("cpu", 0) for one in containers)
        limit = each.resources.limits.get("cpu")
        wrong = limit is not None and limit < asked
        assert ("spec.resources.limits[cpu]" in errors(problems)) == wrong


def test_what_the_proposal_refuses_kubernetes_refuses_too():
    for _, ours, theirs in judged():
        assert errors(ours) <= errors(theirs)


def test_what_only_kubernetes_refuses_is_a_warning():
    for _, ours, theirs in judged():
        more = errors(theirs) - errors(ours)
        warned = {
            problem.where
            for problem in ours
            if problem.severity is Severity.WARNING and "Kubernetes would refuse" in problem.hint
        }
        assert more <= warned


def test_every_problem_has_an_address_and_a_message():
    for each in itertools.islice(small_pods(), 0, None, 5):
        for problem in validate(replace(each, where="a.yaml[3]"), Config()):
            assert problem.where.startswith("a.yaml[3]: spec.")
            assert problem.message


def test_the_address_of_the_pod_level_is_where_the_spec_is():
    each = default_pod(
        pod(
            container(Resources()),
            resources=Resources(requests={"cpu": 2}, limits={"cpu": 1}),
            spec_where="items[3].spec.template.spec",
        )
    )
    assert "items[3].spec.template.spec.resources.requests[cpu]" in errors(validate(each, Config()))


@pytest.mark.parametrize("page_size", [4096, 16384, 65536])
def test_the_page_is_the_node_s(page_size):
    limit = pod(container(Resources(limits={"memory": page_size * 1000})))
    assert validate(limit, Config(), page_size=page_size) == []
    assert len(validate(limit, Config(), page_size=page_size * 2)) == 1
    node = Node(capacity={"cpu": 1000}, page_size_bytes=page_size * 2)
    assert len(decide(limit, node, Config()).problems) == 1


@pytest.mark.parametrize(("size_bytes", "is_odd"), [(None, False), (4095, True), (4096, False)])
def test_a_volume_smaller_than_a_page_is_an_error(size_bytes, is_odd):
    volume = MemoryVolume(name="v", size_bytes=size_bytes, where="spec.volumes[0]")
    found = validate(pod(container(Resources()), volumes=(volume,)), Config())
    assert [each.where for each in found] == ["spec.volumes[0].emptyDir.sizeLimit"] * is_odd
    assert len(errors(found)) == is_odd


def test_a_hundred_cpus_are_many():
    each = pod(container(Resources(limits={"cpu": 100_000})))
    assert [one.severity for one in validate(each, Config(), capacity={"cpu": 8000})] == [
        Severity.WARNING
    ]
    assert validate(each, Config(), capacity={"cpu": 100_000}) == []


@cases
def test_the_pod_level_and_the_overhead_are_checked_as_containers_are(level, overhead, where):
    each = pod(container(Resources()), resources=Resources(limits=level), overhead=overhead)
    assert [one.where for one in validate(each, Config())] == [f"spec.{where}"]


def test_only_the_helpers_of_a_pod_have_their_name():
    helpers = replace(container(Resources()), name="overhead")
    assert validate(pod(helpers), Config()) == []
    found = validate(pod(container(Resources(), 1), helpers, overhead={"cpu": 10}), Config())
    assert errors(found) == {"spec.containers[0].name"}


@pytest.mark.parametrize(("milli", "count"), [(1, 1), (1000, 1), (2001, 3), (2002, 3)])
def test_a_fraction_of_a_configured_cpu_counts_as_one(milli, count):
    config = Config(capacity={"cpu": milli})
    assert node_cpus(Node(capacity={}), config) == frozenset(range(count))
