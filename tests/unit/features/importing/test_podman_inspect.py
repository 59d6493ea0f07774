"""Containers of `podman inspect`: settings, what is left out, and errors."""

import json
from pathlib import Path

import pytest

from podslice.errors import HostError, InputError
from podslice.features.importing.podman import inspect_podman, parse_inspect
from podslice.kernel.programs import NoAnswerError
from podslice.model.unit import UnitName

MI = 2**20
RECORDED = json.loads((Path(__file__).parent / "podman_inspect.json").read_text())
"""By podman's version: containers of root and of a user, with different options."""
GROUP = "/machine.slice/libpod-a1.scope"
ROOT = UnitName("kubepods.slice")


def recorded(version, user):
    """Return the containers by name, and as they are parsed."""
    entries = RECORDED[version][user]
    found = parse_inspect(json.dumps(entries))
    return {each.name: each for each in found}


def entry(labels=None, *, infra=False, group=GROUP, **host):
    (plain,) = (each for each in RECORDED["5.4.2"]["root"] if each["Name"] == "plain")
    return {
        **plain,
        "Name": "web",
        "IsInfra": infra,
        "State": {**plain["State"], "CgroupPath": group},
        "Config": {"Labels": labels},
        "HostConfig": {**plain["HostConfig"], **host},
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


MEMORY = {"MemoryMax": f"--memory={64 * MI}"}
UNLIMITED = "--pids-limit=-1"
REPORTED = {"4.3.1": {UNLIMITED: "--pids-limit=0"}, "5.4.2": {}}
SETTINGS = {
    # by the name of a recorded container, as the comment has its options
    "plain": ({}, ()),
    "made": (MEMORY, ()),
    "paused": ({}, ()),
    "shares": (
        {
            "CPUShares": "--cpu-shares=512",
            "CPUQuotaPerSecUSec": "--cpus=1.5",
            "MemoryLow": f"--memory-reservation={32 * MI}",
            **MEMORY,
        },
        (),
    ),
    "conf": (
        {
            "CPUWeight": "--cgroup-conf=cpu.weight=7",
            "MemoryLow": f"--cgroup-conf=memory.low={4 * MI}",
            "MemoryMax": f"--cgroup-conf=memory.max={32 * MI}",
        },
        (UNLIMITED, f"--cgroup-conf=memory.high={16 * MI}"),
    ),
    "member": ({"MemoryMax": f"--memory={32 * MI}"}, ()),
}
SETTINGS_OF_ROOT = {
    **SETTINGS,
    "quota": (
        {"CPUQuotaPerSecUSec": "--cpu-quota=75000 --cpu-period=50000", **MEMORY},
        (f"--memory-swap={64 * MI}",),
    ),
    # also with --memory-swap=-1, which is 0 here
    "swap": (MEMORY, ("--cpuset-cpus=0-1", "--cpuset-mems=0", "--pids-limit=100")),
    "blkio": ({}, ("--blkio-weight=50",)),
    "bps": ({}, ("--device-read-bps", "--device-write-iops")),
    "nopids": (
        {"CPUQuotaPerSecUSec": "--cpu-quota=50000"},
        ("--memory-swappiness=10", "--pids-limit=0"),
    ),
    "nooom": (MEMORY, ("--oom-kill-disable=True",)),
    "nogroups": ({}, ()),
}


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.parametrize(
    ("user", "expected"), [("root", SETTINGS_OF_ROOT), ("user", SETTINGS)], ids=["root", "user"]
)
def test_recorded_containers_have_their_settings(version, user, expected):
    settings = {
        name: ({kind.value: each.text for kind, each in found.taken.items()}, found.further)
        for name, found in ((each.name, each.settings) for each in recorded(version, user).values())
    }
    reported = REPORTED[version]
    assert {name: settings[name] for name in expected} == {
        name: (taken, tuple(reported.get(each, each) for each in further))
        for name, (taken, further) in expected.items()
    }


@pytest.mark.parametrize("version", RECORDED)
@pytest.mark.parametrize(
    ("user", "manager"), [("root", ""), ("user", "/user.slice/user-1000.slice/user@1000.service")]
)
def test_recorded_containers_have_their_control_group(version, user, manager):
    found = recorded(version, user)
    inside = f"{manager}/{'user' if manager else 'machine'}.slice/"
    for name in ("plain", "paused", "member"):
        assert found[name].control_group.startswith(inside)
    assert not any(found[name].control_group for name in ("made", "shares"))
    assert [each.name for each in found.values() if each.is_member] == [
        each.name for each in found.values() if each.is_infra or each.name == "member"
    ]
    assert sum(each.is_infra for each in found.values()) == 1


def test_a_recorded_quadlet_is_in_its_service():
    (found,) = (each for each in recorded("5.4.2", "root").values() if each.unit)
    assert (found.name, found.unit) == ("systemd-app", "app.service")
    assert found.control_group.startswith("/system.slice/app.service/libpod-payload-")


@pytest.mark.parametrize(
    ("host", "taken"),
    [
        ({"CpuShares": 512}, {"CPUShares": (512, "--cpu-shares=512")}),
        (
            {"CpuQuota": 75_000, "CpuPeriod": 50_000},
            {"CPUQuotaPerSecUSec": (1_500_000, "--cpu-quota=75000 --cpu-period=50000")},
        ),
        ({"CpuQuota": 50_000}, {"CPUQuotaPerSecUSec": (500_000, "--cpu-quota=50000")}),
        ({"CpuQuota": -1}, {}),
        (
            {"CpuQuota": 150_000, "CpuPeriod": 100_000, "NanoCpus": 1_500_000_000},
            {"CPUQuotaPerSecUSec": (1_500_000, "--cpus=1.5")},
        ),
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
        MemorySwap=64 * MI,
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
        f"--memory-swap={64 * MI}",
        "--oom-kill-disable=True",
        "--pids-limit=100",
    ]


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
    found = await inspect_podman(["web"], ROOT, run_command=answering(json.dumps([entry()])))
    assert [each.name for each in found] == ["web"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (NoAnswerError("No such file or directory"), "podman inspect: No such file or directory"),
        (NoAnswerError("Error: no such container Web"), "podman inspect: no such container Web"),
        ("{", "podman inspect: its output has an unknown format"),
        ('[{"Name": "web"}]', "podman inspect: its output has an unknown format"),
        ("[7]", "podman inspect: its output has an unknown format"),
        *(
            (json.dumps([entry(**host)]), "podman inspect: its output has an unknown format")
            for host in (
                {"Memory": float("inf")},
                {"CpuQuota": float("nan")},
                {"NanoCpus": 10**300},
                {"CpuShares": "512"},
                {"Memory": [1]},
                {"MemorySwap": 1, "Memory": {"a": 1}},
                {"CgroupConf": {"cpu.weight": "9" * 5000}},
                {"CgroupConf": {"cpu.weight": "9" * 500}},
                {"CgroupConf": {"cpu.weight": 7}},
                {"CgroupConf": ["cpu.weight"]},
            )
        ),
        (
            json.dumps([entry(Memory=1)]).replace('"Memory": 1', '"Memory": 1e400'),
            "podman inspect: its output has an unknown format",
        ),
    ],
)
async def test_podman_s_failures_are_errors(answer, error):
    with pytest.raises(HostError) as caught:
        await inspect_podman(["web"], ROOT, run_command=answering(answer))
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("found", "error"),
    [
        (
            entry(infra=True),
            "web: it only keeps the namespaces of a podman pod; name the pod's other containers",
        ),
        (entry({"io.podslice.pod": "shop/web"}), "web: it is in pod shop/web already"),
        (
            entry(group="/kubepods.slice/kubepods-pod1.slice/libpod-a1.scope"),
            "web: it is in a pod already",
        ),
    ],
)
async def test_containers_that_stay(found, error):
    with pytest.raises(InputError) as caught:
        await inspect_podman(["web"], ROOT, run_command=answering(json.dumps([found])))
    assert str(caught.value) == error
