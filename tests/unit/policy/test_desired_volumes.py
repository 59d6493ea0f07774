"""Volumes, helpers and huge pages in the desired state."""

from podslice.model.naming import scope_name
from podslice.model.node import Node
from podslice.model.pod import ContainerKind, MemoryVolume
from podslice.model.resources import Resources
from podslice.model.unit import UnitKind
from podslice.policy.decide import decide, unmounted
from podslice.policy.desire import desire
from tests.unit.policy.desired_worlds import BESTEFFORT, BURSTABLE, NODE, PLAIN, VOLUMES, desire_all
from tests.unit.policy.worlds import container, pod


def mounts(desired):
    return [unit for unit in desired.units if unit.kind is UnitKind.MOUNT]


def test_a_volume_is_a_mount_in_its_pod_s_slice():
    desired = desire_all(PLAIN, [pod(container(BESTEFFORT), volumes=VOLUMES, uid="12-34")])
    cache, free = mounts(desired)
    assert cache.name == "run-podslice-pods-12\\x2d34-volumes-my\\x2dcache.mount"
    assert cache.parent == desired.pods[0].slice
    assert cache.description == "Volume my-cache of pod default/pod"
    assert cache.properties == ()
    assert cache.owned
    assert cache.structure == {
        "What": "tmpfs",
        "Type": "tmpfs",
        "Options": "mode=1777,nosuid,nodev,size=67108864",
        "LazyUnmount": True,
    }
    assert free.structure["Options"].endswith(f",size={32 * 2**30}")


def test_a_user_manager_has_no_mounts():
    each = pod(container(BESTEFFORT), volumes=VOLUMES)
    desired = desire_all(PLAIN, [each], mounts=False)
    assert mounts(desired) == []
    assert [volume.name for volume in desired.pods[0].volumes] == ["my-cache", "free"]


def test_a_volume_of_a_user_manager_is_a_directory_without_a_size():
    """Source: XDG Base Directory Specification, XDG_RUNTIME_DIR, the user's place of /run."""
    each = pod(container(BESTEFFORT), volumes=VOLUMES, uid="u")
    mounted = decide(each, NODE, PLAIN).volumes[0]
    directory = unmounted(mounted)
    assert mounted.size_bytes == 2**26
    assert directory.size_bytes is None
    assert directory.path == "$XDG_RUNTIME_DIR/podslice/pods/u/volumes/my-cache"
    assert "a user manager can't mount" in directory.why


def test_a_volume_that_a_pod_no_longer_has_is_unwanted():
    before, after = (pod(container(BESTEFFORT), volumes=VOLUMES[:n]) for n in (2, 1))
    desired = desire_all(PLAIN, [after], current=[before])
    absent = {name: why for name, why in desired.unwanted.items() if name.endswith(".mount")}
    assert absent == {
        "run-podslice-pods-pod-volumes-free.mount": "pod default/pod no longer has volume free"
    }
    assert [unit.name for unit in mounts(desired)] == [
        "run-podslice-pods-pod-volumes-my\\x2dcache.mount"
    ]


def test_the_volumes_of_a_terminating_pod_are_stopped_with_its_slice():
    leaving = pod(container(BESTEFFORT), volumes=VOLUMES)
    desired = desire_all(
        PLAIN, [pod(container(BESTEFFORT), name="b")], current=[leaving], terminating=[leaving]
    )
    assert not any(name.endswith(".mount") for name in desired.unwanted)
    assert mounts(desired) == []


def test_a_volume_on_an_unknown_node_has_no_size():
    nowhere = Node(capacity={})
    each = pod(container(BESTEFFORT), volumes=VOLUMES[1:])
    desired = desire([decide(each, nowhere, PLAIN)], nowhere, PLAIN)
    assert mounts(desired)[0].structure["Options"] == "mode=1777,nosuid,nodev"


def test_a_volume_whose_unit_would_have_too_long_a_name_is_an_error():
    volume = MemoryVolume(name="v" * 63)
    assert decide(
        pod(container(BESTEFFORT), volumes=(volume,), uid="u" * 128), NODE, PLAIN
    ).is_valid
    decision = decide(pod(container(BESTEFFORT), volumes=(volume,), uid="u-" * 64), NODE, PLAIN)
    assert [problem.where for problem in decision.problems] == ["metadata.uid"]
    assert "is too long" in decision.problems[0].message
    assert "shorten the uid or the volume's name" in decision.problems[0].hint
    assert decision.volumes == ()


def test_a_pod_with_an_overhead_has_a_scope_for_its_helpers():
    each = pod(container(BURSTABLE), overhead={"cpu": 100, "memory": 2**20 * 1000}, uid="12-34")
    desired = desire_all(PLAIN, [each])
    helpers = {unit.name: unit for unit in desired.units}[scope_name("12-34", "overhead")]
    assert helpers.name == "podslice-pod12_34-overhead.scope"
    assert helpers.values == {"CPUWeight": 9, "MemoryLow": 2**20}
    assert [one.name for one in desired.pods[0].scopes] == ["container0", "overhead"]
    assert desired.pods[0].scopes[-1] == desired.pods[0].overhead
    assert desired.pods[0].scopes[-1].kind is ContainerKind.OVERHEAD
    assert desire_all(PLAIN, [pod(container(BURSTABLE))]).pods[0].overhead is None


def test_slices_and_scopes_have_limits_of_huge_pages():
    pages = {"hugepages-2Mi": 4 * 2**20 * 1000}
    each = pod(
        container(Resources(limits={"cpu": 100, **pages})), container(BESTEFFORT, 1), uid="u"
    )
    units = {unit.name: unit.hugepages for unit in desire_all(PLAIN, [each]).units}
    assert units["kubepods-burstable-podu.slice"] == {2**21: 4 * 2**20}
    assert units["podslice-podu-container0.scope"] == {2**21: 4 * 2**20}
    assert units["podslice-podu-container1.scope"] == {2**21: 0}
    assert units["kubepods.slice"] == {}
