"""Sums against a straightforward transcription of Kubernetes' helpers, in every small world."""

import itertools

from podslice.model.config import Rules
from podslice.model.pod import Container, ContainerKind
from podslice.model.resources import Resources
from podslice.policy.aggregate import aggregate, default_pod, effective, lacking_limit
from tests.unit.policy.worlds import AMOUNTS, KINDS, container, levels, pod, stated


def aggregate_container_resources(pod, part):
    """component-helpers/resource/helpers.go, aggregateContainerResourcesByFn, line by line."""

    def add(target, more):
        for name, milli in more.items():
            target[name] = target.get(name, 0) + milli

    def maximum(target, more):
        for name, milli in more.items():
            if name not in target or milli > target[name]:
                target[name] = milli

    result, restartable, init = {}, {}, {}
    for each in pod.of_kind(ContainerKind.APP):
        add(result, getattr(each.resources, part))
    for each in pod.of_kind(ContainerKind.INIT, ContainerKind.SIDECAR):
        amounts = getattr(each.resources, part)
        if each.kind is ContainerKind.SIDECAR:
            add(result, amounts)
            add(restartable, amounts)
            used = restartable
        else:
            used = {}
            add(used, amounts)
            add(used, restartable)
        maximum(init, used)
    maximum(result, init)
    return result


def every_pod(containers):
    """Pods of so many containers, each of any kind, with cpu from the short list."""
    for kinds in itertools.product(KINDS, repeat=containers):
        for amounts in itertools.product(AMOUNTS, repeat=containers):
            yield pod(
                *(
                    Container(
                        name=f"c{index}",
                        kind=kind,
                        resources=Resources(
                            requests=stated(cpu=milli), limits=stated(cpu=milli, memory=milli)
                        ),
                    )
                    for index, (kind, milli) in enumerate(zip(kinds, amounts, strict=True))
                )
            )


def test_it_sums_as_kubernetes_does():
    for count in range(5):
        for each in every_pod(count):
            sums = aggregate(each)
            assert sums.requests == aggregate_container_resources(each, "requests"), each
            assert sums.limits == aggregate_container_resources(each, "limits"), each


def test_more_is_never_less():
    """Raising any one amount never lowers any sum."""
    for each in every_pod(3):
        before = aggregate(each).requests
        for index, changed in enumerate(each.containers):
            resources = Resources(requests={"cpu": changed.resources.requests.get("cpu", 0) + 1})
            containers = list(each.containers)
            containers[index] = Container(name="c", kind=changed.kind, resources=resources)
            after = aggregate(pod(*containers)).requests
            assert all(after[name] >= milli for name, milli in before.items())


def test_the_order_of_ordinary_containers_does_not_matter():
    for amounts in itertools.product(AMOUNTS, repeat=3):
        resources = [Resources(requests=stated(cpu=milli)) for milli in amounts]
        pods = (
            pod(*(container(each, n) for n, each in enumerate(order)))
            for order in itertools.permutations(resources)
        )
        assert len({tuple(aggregate(each).requests.items()) for each in pods}) == 1


def test_effective_is_what_kubernetes_counts():
    """component-helpers/resource/helpers.go, PodRequests and PodLimits."""
    overheads = ({}, {"cpu": 0}, {"cpu": 1, "memory": 2})
    for first, level, overhead in itertools.product(
        levels(with_memory=False), levels(with_memory=False), overheads
    ):
        each = pod(container(first), container(first, 1), resources=level, overhead=overhead)
        requests = aggregate_container_resources(each, "requests") | dict(level.requests)
        limits = aggregate_container_resources(each, "limits") | dict(level.limits)
        for name, milli in overhead.items():
            requests[name] = requests.get(name, 0) + milli
            if limits.get(name):
                limits[name] += milli
        counted = effective(each)
        assert counted.requests == requests, each
        assert counted.limits == limits, each


def test_a_container_without_a_limit_or_with_zero_lacks_it():
    for kinds in itertools.product(KINDS, repeat=2):
        for amounts in itertools.product(AMOUNTS, repeat=2):
            each = pod(
                *(
                    container(Resources(limits=stated(cpu=milli)), n, kind)
                    for n, (kind, milli) in enumerate(zip(kinds, amounts, strict=True))
                )
            )
            lacking = [c.name for c in lacking_limit(each, "cpu", Rules.PROPOSAL)]
            expected = [
                c.name for c, milli in zip(each.containers, amounts, strict=True) if not milli
            ]
            assert lacking == expected


def test_defaulting_twice_is_defaulting_once():
    for first, level in itertools.product(levels(), levels(with_memory=False)):
        once = default_pod(pod(container(first), container(Resources(), 1), resources=level))
        assert default_pod(once) == once


def test_defaulting_changes_nothing_that_is_stated():
    for first, level in itertools.product(levels(), levels()):
        before = pod(container(first), resources=level)
        after = default_pod(before)
        for old, new in (
            (before.containers[0].resources, after.containers[0].resources),
            (before.resources, after.resources),
        ):
            assert new.limits == old.limits
            assert {name: new.requests[name] for name in old.requests} == old.requests
            assert new.requests.keys() >= new.limits.keys()


def test_defaulting_leaves_a_pod_with_requests_alone():
    each = pod(container(Resources(requests={"cpu": 1})), name="a")
    assert default_pod(each) == each


def test_two_pods_defaulted_share_nothing_that_changes():
    shared = Resources(limits={"cpu": 1})
    first, second = pod(container(shared), name="a"), pod(container(shared), name="b")
    assert default_pod(first).containers[0].resources.requests == {"cpu": 1}
    assert second.containers[0].resources.requests == {}
