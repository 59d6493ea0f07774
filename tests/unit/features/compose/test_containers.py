"""`delete`: podman stops the containers in the slice of a pod before systemd stops the slice."""

import json

import pytest

from podslice.kernel.programs import NoAnswerError
from podslice.usage import runtimes
from podslice.usage.runtimes import RuntimeContainer
from tests.cases.tables import cases
from tests.unit.builders import manifest

SLICE = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{}.default.slice"
NOT_STOPPED = {
    "elsewhere": "/machine.slice/libpod-1.scope/container",
    "in a service": f"{SLICE.format('web')}/podslice-podweb.default-app.service/libpod-payload-1",
    "of docker": f"{SLICE.format('web')}/docker-1.scope",
    "of another pod": f"{SLICE.format('db')}/libpod-1.scope/container",
}


@pytest.fixture
def applied(podslice, files, memory):
    """Two pods that are applied."""
    for name in ("web", "db"):
        files({f"{name}.json": manifest(name)})
        assert podslice("apply", "-f", f"{name}.json").code == 0


@pytest.fixture
def runs(monkeypatch, memory, runtimes_hold):
    """A function that adds a container; the commands and stops, in order; and what podman answers."""
    done, answers = [], []
    stop = memory.stop

    async def run(*argv, limit_sec):
        done.append((*argv, limit_sec))
        for each in answers:
            raise each

    async def stop_unit(name, **options):
        done.append(name)
        await stop(name, **options)

    monkeypatch.setattr(runtimes, "run", run)
    monkeypatch.setattr(memory, "stop", stop_unit)

    def add(name, group):
        runtimes_hold.append(
            RuntimeContainer(
                runtime="podman",
                id=f"id-of-{name}",
                name=name,
                pid=7,
                pod_key=None,
                pod_uid=None,
                container=None,
                control_group=group,
            )
        )

    return add, done, answers


def test_containers_stop_before_their_slice(podslice, applied, runs):
    add, done, _ = runs
    group = f"{SLICE.format('web')}/libpod-1.scope/container"
    for name in ("shop_web_1", "shop_db_1"):
        add(name, group)
    add("other", NOT_STOPPED["elsewhere"])
    ended = podslice("delete", "web", "--grace-period", "3")
    assert ended.code == 0
    first, *_ = ended.out.splitlines()
    assert first == "stopped podman container shop_db_1 (default/web): pod default/web is removed"
    ids = ("id-of-shop_db_1", "id-of-shop_web_1")
    assert done[0] == ("podman", "stop", "--ignore", "--time=3", *ids, 63.0)
    assert "kubepods-besteffort-podweb.default.slice" in done[1:]


@cases
def test_other_containers_do_not_stop(podslice, applied, runs, group):
    add, done, _ = runs
    add("other", group)
    assert podslice("delete", "web").code == 0
    assert not [each for each in done if each[0] == "podman"]


def test_a_podman_that_does_not_stop_them_is_reported(podslice, applied, runs):
    add, done, answers = runs
    add("shop_db_1", f"{SLICE.format('web')}/libpod-1.scope/container")
    answers.append(NoAnswerError("no answer in 90 s"))
    ended = podslice("delete", "web", "-o", "json")
    assert ended.code == 1
    (found,) = json.loads(ended.out)["containers"]
    assert (found["name"], found["outcome"]) == ("shop_db_1", "failed")
    assert found["error"] == "podman: no answer in 90 s"
    assert done[0][3] == "--time=30"
    assert "default/web" not in podslice("status").out
