"""Worlds to try: pods, nodes and configurations, small enough to be read when one fails."""

from dataclasses import replace
from functools import cache

from hypothesis import settings
from hypothesis import strategies as st

from podslice.model.config import (
    DEFAULT_EVICTION_HARD,
    Config,
    Enforce,
    MemoryProtection,
    Rules,
    SwapBehavior,
    Threshold,
    WeightMapping,
)
from podslice.model.node import Node
from podslice.model.pod import Container, ContainerKind, MemoryVolume, Pod
from podslice.model.resources import Resources, is_pod_level_resource
from podslice.policy.aggregate import aggregate, default_pod
from podslice.policy.decide import decide

MI, GI = 2**20 * 1000, 2**30 * 1000

few, some = (settings(max_examples=settings().max_examples // part) for part in (8, 4))

STEPS = {
    "cpu": (0, 1, 2, 100, 125, 250, 500, 1000, 2500, 9000),
    "memory": (0, 1500, 4096_500, 100_000, 64 * MI, 128 * MI, 300 * MI, GI, 3 * GI, 20 * GI),
    "ephemeral-storage": (0, MI, GI),
    "hugepages-2Mi": (0, 2 * MI, 64 * MI),
    "example.com/gpu": (1000, 2000),
}
"""Amounts that matter: none, the least, round ones, and more than a node has."""

VOLUMES = (
    MemoryVolume(name="my-cache", size_bytes=2**26, where="spec.volumes[0]"),
    MemoryVolume(name="free", where="spec.volumes[1]"),
)

COMPUTE = ("cpu", "memory")
ANY = tuple(STEPS)


# Strategies are made once, since hypothesis examines each new one when it draws from it: that took
# longer than to draw.
FORMS = st.sampled_from(("request", "limit", "both", "equal"))
FIRST_KINDS = st.sampled_from((ContainerKind.INIT, ContainerKind.SIDECAR))
NAMESPACES = st.sampled_from(("default", "team"))
OVERHEADS = st.sampled_from(({}, {}, {"cpu": 10, "memory": 5 * MI}))
PRIORITIES = st.sampled_from((0, 0, 0, 5, -1, 2_000_000_000, 2_000_001_000))
GRACE_PERIODS = st.sampled_from((30, 30, 0, 5))
POD_VOLUMES = st.sampled_from(((), (), VOLUMES[:1], VOLUMES))


@cache
def amount(name):
    return st.sampled_from(STEPS[name])


@cache
def some_of(names):
    return st.lists(st.sampled_from(names), unique=True, max_size=3)


@cache
@st.composite
def resources(draw, names=ANY):
    """What may be stated on one level: no request above its limit, huge pages equal."""
    requests, limits = {}, {}
    for name in draw(some_of(names)):
        low, high = sorted((draw(amount(name)), draw(amount(name))))
        if name.startswith("hugepages-") or name == "example.com/gpu":
            low = high
        form = draw(FORMS)
        if form != "limit":
            requests[name] = high if form == "equal" else low
        is_fixed = name.startswith("hugepages-") or name == "example.com/gpu"
        if form != "request" or is_fixed:
            limits[name] = low if is_fixed else high
        if name.startswith("hugepages-") and name in requests:
            requests[name] = low
    return Resources(requests=requests, limits=limits)


def _container(kind, index, stated):
    group = "containers" if kind is ContainerKind.APP else "initContainers"
    name = f"{'c' if kind is ContainerKind.APP else 'i'}{index}"
    return Container(name=name, kind=kind, resources=stated, where=f"spec.{group}[{index}]")


@cache
def app_containers(names, max_containers):
    return st.lists(resources(names), min_size=1, max_size=max_containers)


@cache
def first_containers(names):
    return st.lists(st.tuples(FIRST_KINDS, resources(names)), max_size=2)


@cache
@st.composite
def _containers(draw, names, max_containers):
    apps = draw(app_containers(names, max_containers))
    before = draw(first_containers(names))
    return (
        *(_container(ContainerKind.APP, n, stated) for n, stated in enumerate(apps)),
        *(_container(kind, n, stated) for n, (kind, stated) in enumerate(before)),
    )


@st.composite
def _above(draw, containers, names):
    """A pod level that is at least its containers' requests, so that Kubernetes accepts it, too."""
    sums = aggregate(default_pod(Pod(name="x", uid="x", containers=containers)))
    least = sums.requests
    largest = {
        name: max(each.resources.limits.get(name, 0) for each in containers)
        for each in containers
        for name in each.resources.limits
    }
    requests, limits = {}, {}
    for name in draw(some_of(names)):
        request = least.get(name, 0) + draw(amount(name))
        limit = max(request, largest.get(name, 0)) + draw(amount(name))
        form = draw(FORMS)
        if name.startswith("hugepages-"):
            form, request = "equal", limit
        if form in ("both", "equal"):
            requests[name] = limit if form == "equal" else request
        if form == "request":
            requests[name] = request
        if form != "request":
            limits[name] = limit
    return Resources(requests=requests, limits=limits)


@cache
@st.composite
def pods(draw, name="pod", *, names=ANY, pod_level=True, max_containers=3):
    """A pod that both rule sets take."""
    containers = draw(_containers(names, max_containers))
    namespace = draw(NAMESPACES)
    level = tuple(name for name in names if is_pod_level_resource(name))
    return Pod(
        name=name,
        uid=f"{namespace}-{name}",
        namespace=namespace,
        containers=containers,
        resources=draw(_above(containers, level)) if pod_level else Resources(),
        overhead=draw(OVERHEADS),
        priority=draw(PRIORITIES),
        grace_period_sec=draw(GRACE_PERIODS),
        volumes=draw(POD_VOLUMES),
        where=f"{name}.yaml",
    )


@st.composite
def worlds(draw, *, names=ANY, max_pods=4, **fields):
    """Some pods with names of their own."""
    count = draw(st.integers(0, max_pods))
    return tuple(draw(pods(f"p{n}", names=names, **fields)) for n in range(count))


nodes = st.builds(
    lambda cpu, memory, storage, pages, counts: Node(
        capacity={
            "cpu": cpu * 1000,
            "memory": memory * GI,
            **({"ephemeral-storage": storage * GI} if storage else {}),
            "pid": 4_194_304_000,
            **({"hugepages-2Mi": pages * 2 * MI} if pages else {}),
        },
        hugepage_sizes=(2 * MI,),
        counts_hugepages=counts,
    ),
    cpu=st.integers(1, 16),
    memory=st.integers(1, 64),
    storage=st.sampled_from((0, 1, 100)),
    pages=st.sampled_from((0, 1, 64)),
    counts=st.booleans(),
)

reservations = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from((0, 100, 500)),
        "memory": st.sampled_from((0, 5 * MI, 300 * MI)),
        "ephemeral-storage": st.sampled_from((0, GI)),
        "pid": st.sampled_from((0, 1_000_000)),
    },
)

thresholds = st.one_of(
    st.sampled_from((MI, 100 * MI, GI)).map(lambda milli: Threshold(amount=milli)),
    st.sampled_from((1, 5_000, 10_500, 99_999)).map(lambda milli: Threshold(percent_milli=milli)),
)

ENFORCEABLE = (
    frozenset(),
    frozenset({Enforce.PODS}),
    frozenset({Enforce.PODS, Enforce.KUBE_RESERVED}),
    frozenset({Enforce.PODS, Enforce.KUBE_RESERVED_COMPRESSIBLE, Enforce.SYSTEM_RESERVED}),
)

rules = st.sampled_from(Rules)

configs = st.builds(
    Config,
    rules=rules,
    cpu_weight_mapping=st.sampled_from(WeightMapping),
    memory_protection=st.sampled_from(MemoryProtection),
    memory_swap_behavior=st.sampled_from(SwapBehavior),
    pod_max_pids=st.sampled_from((None, 300)),
    admission=st.booleans(),
    cgroup_root=st.sampled_from(("/", "/custom/pod-s")),
    cpu_cfs_quota=st.sampled_from((True, True, False)),
    cpu_cfs_quota_period_usec=st.sampled_from((100_000, 100_000, 5_000, 1_000_000)),
    kube_reserved=reservations,
    system_reserved=reservations,
    kube_reserved_cgroup=st.just("/podruntime.slice"),
    system_reserved_cgroup=st.just("/system.slice"),
    enforce_node_allocatable=st.sampled_from(ENFORCEABLE),
    qos_reserved=st.sampled_from(({}, {"memory": 0}, {"memory": 50}, {"memory": 100})),
    eviction_hard=st.sampled_from(({}, DEFAULT_EVICTION_HARD)),
    ignore_eviction_threshold=st.booleans(),
)


@st.composite
def amount_orders(draw, pod):
    """The pod with every mapping in another order."""

    def turned(amounts):
        return dict(draw(st.permutations(list(amounts.items()))))

    def stated(level):
        return Resources(requests=turned(level.requests), limits=turned(level.limits))

    return replace(
        pod,
        containers=tuple(replace(c, resources=stated(c.resources)) for c in pod.containers),
        resources=stated(pod.resources),
        overhead=turned(pod.overhead),
    )


def decisions(world, node, config):
    return [decide(pod, node, config) for pod in world]


def values(properties_):
    return {property_.name: property_.value for property_ in properties_}


def phases(pod):
    """The sets of containers that run at the same time: each init container's, then all others."""
    sidecars = []
    for container in pod.of_kind(ContainerKind.INIT, ContainerKind.SIDECAR):
        if container.kind is ContainerKind.SIDECAR:
            sidecars.append(container)
        else:
            yield [*sidecars, container]
    yield [*pod.of_kind(ContainerKind.APP), *sidecars]
