"""`__evict`: a pod one of whose volumes is larger than its limit."""

import pytest

from podslice.errors import Refused
from podslice.store.store import Store
from tests.unit.cli.podman import POD, WEB, active

WHY = 'Usage of EmptyDir volume "data" exceeds the limit "1536"'
LIMITED = WEB.replace("{name: data, emptyDir: {}}", "{name: data, emptyDir: {sizeLimit: 1.5Ki}}")


pytestmark = pytest.mark.usefixtures("podman_memory")


def evict(podslice):
    return podslice("__evict", "default/web", "data", "1536")


def test_a_pod_is_stopped_and_marked(here, podslice, podman_memory, quadlet_directory, files):
    files({"web.yaml": LIMITED})
    assert podslice("apply", "--start", "-f", "web.yaml").code == 0
    ended = evict(podslice)
    assert (ended.code, ended.err) == (0, "")
    assert f"stopped {POD} (default/web): the pod is removed" in ended.out.splitlines()
    assert (active(podman_memory), list(quadlet_directory.iterdir())) == ([], [])
    (mark,) = Store(here / "run-False").load().evicted
    assert (mark.pod, mark.signal, mark.message) == ("default/web", "emptydirfs.limit", WHY)
    assert f"evicted: {WHY}" in podslice("status").out
    refused = podslice("apply", "--start", "-f", "web.yaml")
    assert (refused.code, WHY in refused.out) == (1, True)
    assert podslice("readmit", "web").code == 0
    assert podslice("apply", "--start", "-f", "web.yaml").code == 0


def test_a_pod_that_is_not_applied_is_left_alone(podslice):
    assert evict(podslice) == (0, "nothing to do\n", "")


def test_a_pod_whose_service_cannot_be_stopped_does_not_start_again(
    here, podslice, podman_memory, files
):
    files({"web.yaml": LIMITED})
    podslice("apply", "--start", "-f", "web.yaml")
    podman_memory.refuse(POD, Refused("access denied"))
    ended = evict(podslice)
    assert (ended.code, active(podman_memory)) == (1, [])
    assert f"failed to stop {POD} (default/web): the pod is removed: access denied" in ended.out
    assert len(Store(here / "run-False").load().evicted) == 1
