"""Containers of `podman inspect`: settings, what is left out, and errors."""

import json

import pytest

from podslice.errors import HostError, InputError
from podslice.processes.podman_inspect import inspect_podman, parse_inspect
from podslice.processes.runtimes import NoAnswerError

MI = 2**20
HOST = {
    # the values of a container that was created without options, as podman 5.4 prints them
    "BlkioDeviceReadBps": None,
    "BlkioWeight": 0,
    "BlkioWeightDevice": None,
    "CgroupConf": None,
    "CpuPeriod": 0,
    "CpuQuota": 0,
    "CpuRealtimePeriod": 0,
    "CpuRealtimeRuntime": 0,
    "CpuShares": 0,
    "CpusetCpus": "",
    "CpusetMems": "",
    "Memory": 0,
    "MemoryReservation": 0,
    "MemorySwap": 0,
    "MemorySwappiness": 0,
    "NanoCpus": 0,
    "OomKillDisable": False,
    "OomScoreAdj": 0,
    "PidsLimit": 2048,
}
GROUP = "/machine.slice/libpod-a1.scope"


def entry(labels=None, *, running=True, infra=False, **host):
    return {
        "Id": "a1",
        "Name": "web",
        "IsInfra": infra,
        "State": {"Running": running, "CgroupPath": GROUP},
        "Config": {"Labels": labels},
        "HostConfig": {**HOST, **host},
    }


def parsed(*entries):
    return parse_inspect(json.dumps(entries))


def settings_of(**host):
    (found,) = parsed(entry(**host))
    taken = {kind.value: (each.value, each.text) for kind, each in found.settings.taken.items()}
    return taken, found.settings.further


def test_a_container_without_options_has_no_settings():
    assert settings_of() == ({}, ())
    (found,) = parsed(entry())
    assert (found.name, found.control_group, found.unit, found.pod_key) == ("web", GROUP, "", "")


@pytest.mark.parametrize(
    ("host", "taken"),
    [
        ({"CpuShares": 512}, {"CPUShares": (512, "--cpu-shares=512")}),
        (
            {"CpuQuota": 75_000, "CpuPeriod": 50_000, "NanoCpus": 1_500_000_000},
            {"CPUQuotaPerSecUSec": (1_500_000, "--cpu-quota=75000 --cpu-period=50000")},
        ),
        ({"CpuQuota": 50_000}, {"CPUQuotaPerSecUSec": (500_000, "--cpu-quota=50000")}),
        ({"CpuQuota": -1}, {}),
        ({"NanoCpus": 1_500_000_000}, {"CPUQuotaPerSecUSec": (1_500_000, "--cpus=1.5")}),
        (
            {"Memory": 64 * MI, "MemorySwap": 128 * MI},
            {"MemoryMax": (64 * MI, f"--memory={64 * MI}")},
        ),
        (
            {"MemoryReservation": 32 * MI},
            {"MemoryLow": (32 * MI, f"--memory-reservation={32 * MI}")},
        ),
        (
            {"CgroupConf": {"cpu.weight": "7", "memory.min": "4096"}},
            {
                "CPUWeight": (7, "--cgroup-conf=cpu.weight=7"),
                "MemoryMin": (4096, "--cgroup-conf=memory.min=4096"),
            },
        ),
    ],
)
def test_options_with_a_field_in_a_manifest(host, taken):
    assert settings_of(**host) == (taken, ())


def test_options_without_a_field_are_listed():
    taken, further = settings_of(
        PidsLimit=100,
        CpusetCpus="0-3",
        BlkioWeight=50,
        MemorySwap=-1,
        OomScoreAdj=-500,
        OomKillDisable=True,
        BlkioDeviceReadBps=[{"Path": "/dev/sda", "Rate": 1}],
        CgroupConf={"memory.high": "1\x1b", "memory.max": "max"},
    )
    assert not taken
    assert sorted(further) == [
        "--blkio-weight=50",
        "--cgroup-conf=memory.high=1\\x1b",
        "--cgroup-conf=memory.max=max",
        "--cpuset-cpus=0-3",
        "--device-read-bps",
        "--memory-swap=-1",
        "--oom-kill-disable=True",
        "--oom-score-adj=-500",
        "--pids-limit=100",
    ]


def test_a_stopped_container_has_no_control_group():
    (found,) = parsed(entry(running=False))
    assert not found.control_group


def test_labels_name_the_service_and_the_pod():
    (found,) = parsed(entry({"PODMAN_SYSTEMD_UNIT": "web.service", "io.podslice.pod": "shop/web"}))
    assert (found.unit, found.pod_key) == ("web.service", "shop/web")


def answering(answer):
    async def run_command(*argv):
        assert argv[:2] == ("podman", "inspect")
        assert argv[-2:] == ("--", "web")
        if isinstance(answer, Exception):
            raise answer
        return answer

    return run_command


async def test_containers_are_asked_by_name():
    found = await inspect_podman(["web"], run_command=answering(json.dumps([entry()])))
    assert [each.name for each in found] == ["web"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (NoAnswerError("No such file or directory"), "podman inspect: no such file or directory"),
        (
            NoAnswerError('Error: no such container "web"'),
            'podman inspect: error: no such container "web"',
        ),
        ("{", "podman inspect: its output has an unknown format"),
        ('[{"Name": "web"}]', "podman inspect: its output has an unknown format"),
        ("[7]", "podman inspect: its output has an unknown format"),
    ],
)
async def test_podman_s_failures_are_errors(answer, error):
    with pytest.raises(HostError) as caught:
        await inspect_podman(["web"], run_command=answering(answer))
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("found", "error"),
    [
        (
            entry(infra=True),
            "web: it only keeps the namespaces of a podman pod; name the pod's other containers",
        ),
        (entry({"io.podslice.pod": "shop/web"}), "web: it is in pod shop/web already"),
    ],
)
async def test_containers_that_stay(found, error):
    with pytest.raises(InputError) as caught:
        await inspect_podman(["web"], run_command=answering(json.dumps([found])))
    assert str(caught.value) == error
