from dataclasses import asdict, fields
from enum import Enum
from pathlib import Path

import pytest

from podslice.errors import InputError
from podslice.inputs.options.rules import validate_config
from podslice.inputs.options.table import OPTIONS
from podslice.model.config import (
    DEFAULT_EVICTION_HARD,
    Config,
    Enforce,
    MemoryProtection,
    Rules,
    Threshold,
)
from podslice.model.naming import Tree
from podslice.model.node import Cpu, CpuTopology, regular_topology
from podslice.model.pod import UID_MAX, Qos
from podslice.model.unit import UNIT_NAME_MAX
from tests.cases.tables import cases
from tests.configuration import load_config

NOWHERE = Path("/nonexistent")
MI = 2**20 * 1000


def load(**flags):
    return load_config({key.replace("_", "-"): v for key, v in flags.items()}, root=NOWHERE)


def problems(flags=None, **places):
    with pytest.raises(InputError) as caught:
        load_config(flags or {}, **{"root": NOWHERE, **places})
    return [str(problem) for problem in caught.value.problems]


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_an_empty_configuration_has_the_defaults_of_the_kubelet():
    assert load_config(root=NOWHERE) == Config()


def test_a_limit_for_systemd_oomd():
    config = load(oomd_tiers="besteffort", oomd_memory_pressure_limit="5%")
    assert config.oomd_memory_pressure_limit_percent == 5


def test_every_field_has_one_option_and_every_option_its_field():
    rows = [row.field for row in OPTIONS if row.field is not None]
    assert sorted(rows) == sorted(field.name for field in fields(Config))
    names = [name for row in OPTIONS for name in (row.key, *row.aliases)]
    assert len(names) == len(set(names))
    assert all(row.help.endswith(".") and row.is_boolean == (not row.metavar) for row in OPTIONS)


@cases
def test_value(key, value, expect):
    """Source: Node Allocatable Resources, "Phase 2", and the kubelet's own flags."""
    assert plain(read_option(key, value)) == expect


@pytest.mark.parametrize(
    ("value", "expect"),
    [
        (
            "sockets=2,cores=4, threads=2,numa=2",
            regular_topology(sockets=2, numa=2, cores=4, threads=2),
        ),
        ({"cores": 4}, regular_topology(sockets=1, numa=1, cores=4, threads=1)),
        (
            [{"cpu": 1, "core": 7, "socket": 1, "numa": 2, "uncore": 3}, {"cpu": 0, "core": 0}],
            CpuTopology(cpus=(Cpu(cpu=0, core=0), Cpu(cpu=1, core=7, socket=1, numa=2, uncore=3))),
        ),
    ],
)
def test_a_topology(value, expect):
    assert read_option("cpu-topology", value) == expect


def read_option(key, value):
    row = next(row for row in OPTIONS if row.key == key)
    more = {"enforce-node-allocatable": ""} if key == "cgroups-per-qos" else {}
    return getattr(load_config({key: value} | more, root=NOWHERE), row.field)


def plain(value):
    """Return a value of the configuration as a table has it."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset):
        return {"set": sorted(map(plain, value))}
    if isinstance(value, Threshold):
        return {name: each for name, each in asdict(value).items() if each is not None}
    if isinstance(value, tuple):
        return [*map(plain, value)]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


@cases
def test_thresholds_of_tiers(value):
    """Issue 18, point 8: `["burstable=memory.available<10%"]`."""
    config = load_config({"eviction-tier": value, "qos-reserved": "memory=50%"}, root=NOWHERE)
    assert config.eviction_tier == {
        Qos.BURSTABLE: Threshold(percent_milli=10_000),
        Qos.BESTEFFORT: Threshold(amount=64 * MI),
    }


@pytest.mark.parametrize(
    ("key", "value", "expect"),
    [
        ("rules", "kubernets", "--rules: must be one of proposal, kubernetes, not the string 'kubernets'; write kubernetes"),
        ("rules", 5, "--rules: must be one of proposal, kubernetes, not the number 5"),
        ("oomd-tiers", "besteffort,guaranteed", "--oomd-tiers.guaranteed: unknown tier 'guaranteed'; write burstable or besteffort"),
        ("eviction-tier", "guaranteed=memory.available<1Gi", "--eviction-tier.guaranteed: unknown tier 'guaranteed'; write burstable or besteffort"),
        ("eviction-tier", "burstable=pid.available<5", "--eviction-tier.burstable: a tier has only memory.available; write burstable=memory.available<10%, for example"),
        ("eviction-tier", {"burstable": {}}, "--eviction-tier.burstable: a tier has only memory.available; write burstable=memory.available<10%, for example"),
        ("eviction-tier", "burstable=memory.available<-1%", "--eviction-tier.burstable: '-1%' is not a percentage"),
        ("eviction-tier", "memory.available<10%", "--eviction-tier: 'memory.available<10%' is not of the form name=value; the operator is '='"),
        ("eviction-tier", [5], "--eviction-tier: every entry must be a string, not the number 5"),
        ("eviction-tier", 5, "--eviction-tier: must be a string or a table, not the number 5"),
        ("oomd-tiers", 5, "--oomd-tiers: must be a list of tiers, not the number 5; write 'besteffort'"),
        ("memory-throttling-factor", "0", "--memory-throttling-factor: must be a number above 0 and at most 1, not the string '0'; write 0.9"),
        ("memory-throttling-factor", "1.001", "--memory-throttling-factor: must be a number above 0 and at most 1, not the string '1.001'; write 0.9"),
        ("memory-throttling-factor", "90%", "--memory-throttling-factor: must be a number above 0 and at most 1, not the string '90%'; write 0.9"),
        ("memory-swap-behavior", "noswap", "--memory-swap-behavior: must be one of unlimited, NoSwap, LimitedSwap, not the string 'noswap'; write NoSwap"),
        ("cpu-topology", 4, "--cpu-topology: must be a topology, not the number 4; write sockets=2,numa=2,cores=4,threads=2, or the path of a JSON file"),
        ("cpu-topology", "/nonexistent", "--cpu-topology: '/nonexistent': no such file or directory; write sockets=2,numa=2,cores=4,threads=2, or the path of a JSON file"),
        ("cpu-topology", "cores=0", "--cpu-topology.cores: must be a whole number above 0, not the string '0'"),
        ("cpu-topology", "core=1", "--cpu-topology.core: 'core' is not a part; write one of sockets, numa, cores, threads"),
        ("cpu-topology", "numa=3", "--cpu-topology: 3 NUMA nodes cannot divide 1 sockets with 1 cores each evenly; use a multiple or a divisor of the sockets, or a JSON file with each CPU"),
        ("cpu-topology", "sockets=8192,cores=2", "--cpu-topology: it has more than 8192 CPUs; write sockets=2,numa=2,cores=4,threads=2, or the path of a JSON file"),
        ("cpu-topology", [], "--cpu-topology: must be a list of 1 to 8192 CPUs; write {\"cpu\": 0, \"core\": 0, \"socket\": 0, \"numa\": 0, \"uncore\": 0}, for example"),
        ("cpu-topology", [{"cpu": 0, "core": 0}, {"cpu": 0, "core": 1}], "--cpu-topology: a CPU is listed twice; list each CPU once"),
        ("reserved-cpus", 1, "--reserved-cpus: must be a list of CPUs, not the number 1; write '0-1,8', for example"),
        ("reserved-cpus", "2-1", "--reserved-cpus: must be a list of CPUs, not the string '2-1'; write 0-1,8, for example"),
        ("cpu-manager-policy", "statik", "--cpu-manager-policy: must be one of none, static, not the string 'statik'; write static"),
        ("cpu-manager-policy-options", "full-pcpu-only=true", "--cpu-manager-policy-options.full-pcpu-only: unknown option 'full-pcpu-only'; write full-pcpus-only"),
        ("cpu-manager-policy-options", "x=true", "--cpu-manager-policy-options.x: unknown option 'x'; options are full-pcpus-only, strict-cpu-reservation, distribute-cpus-across-numa, prefer-align-cpus-by-uncorecache"),
        ("cpu-manager-policy-options", {"full-pcpus-only": 5}, "--cpu-manager-policy-options.full-pcpus-only: must be true or false, not the number 5"),
        ("pod-max-pids", 0, "--pod-max-pids: must be a whole number above 0, not the number 0; write -1 for no limit"),
        ("pod-max-pids", "1k", "--pod-max-pids: must be a whole number above 0, not the string '1k'; write -1 for no limit"),
        ("pod-max-pids", True, "--pod-max-pids: must be a whole number above 0, not the boolean true; write -1 for no limit"),
        ("oomd-memory-pressure-limit", "0%", "--oomd-memory-pressure-limit: must be a percentage, not the string '0%'; write 1% to 100%"),
        ("oomd-memory-pressure-limit", "101%", "--oomd-memory-pressure-limit: must be a percentage, not the string '101%'; write 1% to 100%"),
        ("oomd-memory-pressure-limit", "60", "--oomd-memory-pressure-limit: must be a percentage, not the string '60'; write 1% to 100%"),
        ("oomd-memory-pressure-limit", 60, "--oomd-memory-pressure-limit: must be a percentage, not the number 60; write 1% to 100%"),
        ("oom-policy", "stop", "--oom-policy: must be one of process, container, pod, not the string 'stop'"),
        ("manifests", "pods", "--manifests.pods: 'pods' is not an absolute path; write /etc/podslice/manifests"),
        ("manifests", ["/a", "/\0"], "--manifests['/\\x00']: '/\\x00' is not an absolute path; write /etc/podslice/manifests"),
        ("manifests", [5], "--manifests: every entry must be a string, not the number 5"),
        ("listen", "9469", "--listen: must be HOST:PORT, not the string '9469'; write 127.0.0.1:9469"),
        ("listen", 9469, "--listen: must be HOST:PORT, not the number 9469; write 127.0.0.1:9469"),
        ("listen", "127.0.0.1:0", "--listen: must be HOST:PORT, not the string '127.0.0.1:0'; write 127.0.0.1:9469"),
        ("listen", "127.0.0.1:65536", "--listen: must be HOST:PORT, not the string '127.0.0.1:65536'; write 127.0.0.1:9469"),
        ("listen", "::1:80", "--listen: must be HOST:PORT, not the string '::1:80'; write 127.0.0.1:9469"),
        *(
            ("listen", host + ":80", f"--listen: '{host}:80' is not a loopback address: other hosts could connect; write 127.0.0.1:80, behind a proxy that authenticates clients")
            for host in ("[::]", "192.0.2.1", "example.org", "[127.0.0.1]", "128.0.0.1")
        ),
        ("usage-history", "usage", "--usage-history: must be an absolute path, not the string 'usage'; write /var/lib/podslice/usage, for example"),
        ("usage-history", "/\0", "--usage-history: must be an absolute path, not the string '/\\x00'; write /var/lib/podslice/usage, for example"),
        ("usage-history", 5, "--usage-history: must be an absolute path, not the number 5; write /var/lib/podslice/usage, for example"),
        ("sync-period", "99ms", "--sync-period: '99ms' is out of range; write 100ms to 1h"),
        ("sync-period", "61m", "--sync-period: '61m' is out of range; write 100ms to 1h"),
        ("sync-period", 60, "--sync-period: must be a duration, not the number 60; write 30s or 1m30s, for example"),
        ("admission", "maybe", "--admission: must be true or false, not the string 'maybe'"),
        ("cgroup-driver", "cgroupfs", "--cgroup-driver: must be systemd, not the string 'cgroupfs'; podslice supports only"),
        ("cpu-cfs-quota-period", "100", "--cpu-cfs-quota-period: must be a duration, not the string '100'; write 100ms"),
        ("cpu-cfs-quota-period", "500us", "--cpu-cfs-quota-period: '500us' is out of range; write 1ms to 1s"),
        ("cpu-cfs-quota-period", "1.0001ms", "--cpu-cfs-quota-period: '1.0001ms' is out of range"),
        ("cgroup-root", "custom", "--cgroup-root: 'custom' is not an absolute path; write '/custom'"),
        ("cgroup-root", "/a_b", "--cgroup-root: 'a_b' can't be part of a slice's name; use letters"),
        ("cgroup-root", "/a/../b", "--cgroup-root: '..' can't be part of a slice's name"),
        ("cgroup-root", "/a b", "--cgroup-root: 'a b' can't be part of a slice's name"),
        ("cgroup-root", "/a--b.slice", "--cgroup-root: 'a--b.slice' is not a valid slice name"),
        ("cgroup-root", "/a-b.slice", "--cgroup-root: '/a-b.slice' is not where systemd puts 'a-b.slice'; write '/a.slice/a-b.slice'"),
        ("cgroup-root", "/" + "a" * 300, f"--cgroup-root: '/{'a' * 63}…' is too long: the names of the pods' slices have at most 255 characters; shorten it by 203 characters"),
        ("cgroup-root", f"/{'a' * 300}.slice", f"--cgroup-root: '/{'a' * 63}…' is too long: "),
        ("cgroup-root", "/a" * 70, f"--cgroup-root: '{'/a' * 32}…' is too long: the names of the pods' slices have at most 255 characters; shorten it by 42 characters"),
        ("kube-reserved-cgroup", "/" + "a" * 300, f"--kube-reserved-cgroup: '/{'a' * 63}…' is too long: the name of its slice has at most 255 characters; shorten it by 51 characters"),
        ("system-reserved-cgroup", "/a" * 100, f"--system-reserved-cgroup: '{'/a' * 32}…' has too many levels; write a path with fewer levels"),
        ("kube-reserved-cgroup", "/", "--kube-reserved-cgroup: a reservation can't be enforced on the root"),
        ("kube-reserved", "cpu", "--kube-reserved: 'cpu' is not of the form name=value; the operator is '='"),
        ("kube-reserved", "cpu=1,cpu=2", "--kube-reserved.cpu: duplicate key 'cpu'; remove one"),
        ("kube-reserved", "gpu=1", "--kube-reserved.gpu: 'gpu' is not supported here; write one of cpu, memory,"),
        ("kube-reserved", "hugepages-2Mi=1Gi", "--kube-reserved.hugepages-2Mi: 'hugepages-2Mi' is not supported here"),
        ("kube-reserved", "cpu=-1", "--kube-reserved.cpu: '-1' is negative"),
        ("kube-reserved", "memory=5MB", "--kube-reserved.memory: '5MB' is not a quantity; write 5M (10^6) or 5Mi (2^20)"),
        ("kube-reserved", 5, "--kube-reserved: must be a string or a table, not the number 5"),
        ("kube-reserved", {"cpu": True}, "--kube-reserved.cpu: must be a quantity, not the boolean true"),
        ("qos-reserved", "cpu=10%", "--qos-reserved.cpu: 'cpu' can't be reserved; write memory"),
        ("qos-reserved", "memory=50", "--qos-reserved.memory: must be a percentage, not the string '50'"),
        ("qos-reserved", "memory=101%", "--qos-reserved.memory: must be a percentage, not the string '101%'"),
        ("qos-reserved", "memory=-1%", "--qos-reserved.memory: must be a percentage, not the string '-1%'"),
        ("enforce-node-allocatable", "pods,none", "--enforce-node-allocatable.none: 'none' excludes other names"),
        ("enforce-node-allocatable", "pod", "--enforce-node-allocatable.pod: 'pod' can't be enforced; write pods,"),
        ("enforce-node-allocatable", "kube-reserved", "--enforce-node-allocatable: kube-reserved requires kube-reserved-cgroup"),
        ("enforce-node-allocatable", "system-reserved-compressible", "--enforce-node-allocatable: system-reserved-compressible requires system-reserved-cgroup"),
        ("eviction-hard", "memory.available>100Mi", "--eviction-hard: 'memory.available>100Mi' is not of the form name<value"),
        ("eviction-hard", "memory.available<=1", "--eviction-hard: 'memory.available<=1' is not of the form name<value"),
        ("eviction-hard", "memory<1Gi", "--eviction-hard.memory: unknown eviction signal 'memory'"),
        ("eviction-hard", "memory.availible<1Gi", "--eviction-hard.memory.availible: unknown eviction signal 'memory.availible'; write memory.available"),
        ("eviction-hard", "memory.available<0", "--eviction-hard.memory.available: a threshold must be above zero"),
        ("eviction-hard", "memory.available<101%", "--eviction-hard.memory.available: '101%' is not a percentage"),
        ("eviction-hard", "memory.available<-1%", "--eviction-hard.memory.available: '-1%' is not a percentage"),
        ("eviction-hard", "pid.available<1,pid.available<2", "--eviction-hard.pid.available: duplicate key 'pid.available'"),
        ("kube-resevred", "", "--kube-resevred: unknown option 'kube-resevred'; write kube-reserved"),
        ("kube_reserved", "", "--kube_reserved: unknown option 'kube_reserved'; write kube-reserved"),
        ("xyz", "", "--xyz: unknown option 'xyz'; podslice.toml(5) lists the options"),
        ("agent", {"listen": ""}, "--agent: unknown option 'agent'; options are not grouped in tables; remove the line [agent]"),
    ],
)  # fmt: skip
def test_invalid_value(key, value, expect):
    (problem,) = problems({key: value})
    assert problem.startswith(expect)


def test_aliases_are_the_flags_of_older_kubelets():
    config = load_config(
        {
            "experimental-node-allocatable-ignore-eviction-threshold": "true",
            "experimental-qos-reserved": "memory=10%",
            "cgroup-driver": "systemd",
        },
        root=NOWHERE,
    )
    assert (config.ignore_eviction_threshold, config.qos_reserved) == (True, {"memory": 10})


def test_all_problems_are_reported_at_once(tmp_path):
    write(
        tmp_path, {"etc/podslice/podslice.toml": "rules = 1\nkube-reserved = 'cpu=x,memory=-1'\n"}
    )
    found = problems({"qos-reserved": "cpu=1", "nonsense": ""}, root=tmp_path)
    assert len(found) == 5


def test_rules_between_options():
    """Source: Node Allocatable Resources, "Phase 2"."""
    wrong = Config(
        cgroups_per_qos=False,
        enforce_node_allocatable=frozenset(
            {Enforce.KUBE_RESERVED, Enforce.KUBE_RESERVED_COMPRESSIBLE}
        ),
        system_reserved_cgroup="/",
    )
    assert [(p.where, p.message) for p in validate_config(wrong)] == [
        ("enforce-node-allocatable", "nothing can be enforced without cgroups-per-qos"),
        (
            "enforce-node-allocatable",
            "kube-reserved and kube-reserved-compressible exclude each other",
        ),
        ("enforce-node-allocatable", "kube-reserved requires kube-reserved-cgroup"),
        ("system-reserved-cgroup", "a reservation can't be enforced on the root"),
    ]
    assert validate_config(Config()) == ()
    assert load(cgroups_per_qos="false", enforce_node_allocatable="none").cgroups_per_qos is False


def test_a_user_manager_does_not_have_the_slices_of_the_host():
    config = load(cpu_manager_policy="static", reserved_cpus="0", exclusive_for="host")
    assert validate_config(config) == ()
    (problem,) = validate_config(config, is_user=True)
    assert (problem.where, problem.message, problem.hint) == (
        "exclusive-for",
        "a user manager does not have system.slice and user.slice",
        "with --user, set it to pods",
    )


def test_a_user_manager_cannot_divide_the_cpus_of_the_host():
    isolated = {
        "cpu_manager_policy": "static",
        "cpu_manager_policy_options": "strict-cpu-reservation=true",
        "reserved_cpus": "0",
        "cpuset_partition": "isolated",
    }
    config = load(**isolated)
    assert validate_config(config) == ()
    (problem,) = validate_config(config, is_user=True)
    assert str(problem).startswith("cpuset-partition: a user manager cannot divide the host's CPUs")


def test_an_invalid_option_has_no_second_problem():
    flags = {"enforce-node-allocatable": "kube-reserved", "kube-reserved-cgroup": "kube.slice"}
    assert len(problems(flags)) == 1


def test_precedence_of_files_and_flags(tmp_path):
    write(
        tmp_path,
        {
            "usr/lib/podslice/podslice.toml": "memory-protection = 'none'\n",
            "etc/podslice/podslice.toml": "rules = 'kubernetes'\ncgroup-root = '/a'\n",
            "usr/lib/podslice/podslice.toml.d/10-a.toml": "cgroup-root = '/b'\n",
            "run/podslice/podslice.toml.d/20-b.toml": "cgroup-root = '/c'\n",
            "etc/podslice/podslice.toml.d/20-b.toml": "kube-reserved = 'cpu=1'\n",
            "usr/lib/podslice/podslice.toml.d/30-c.toml": "kube-reserved = 'cpu=3'\n",
            "etc/podslice/podslice.toml.d/README": "not = 'read'\n",
            "etc/podslice/podslice.toml.d/.hidden.toml": "not = 'read'\n",
        },
    )
    config = load_config(root=tmp_path)
    assert config.memory_protection is MemoryProtection.LOW  # /etc has the main file
    assert config.rules is Rules.KUBERNETES
    assert config.cgroup_root == "/b"  # /run's drop-in is masked by /etc's
    assert config.kube_reserved == {"cpu": 3000}  # the last by name, in any directory
    assert load_config({"kube-reserved": "cpu=4"}, root=tmp_path).kube_reserved == {"cpu": 4000}


def test_drop_in_is_masked_by_a_link_to_dev_null(tmp_path):
    write(tmp_path, {"usr/lib/podslice/podslice.toml.d/10.toml": "cgroup-root = '/b'\n"})
    mask = tmp_path / "etc/podslice/podslice.toml.d/10.toml"
    mask.parent.mkdir(parents=True)
    mask.symlink_to("/dev/null")
    assert load_config(root=tmp_path) == Config()


def test_main_file_of_the_distribution_is_read_if_the_operator_has_none(tmp_path):
    write(tmp_path, {"usr/lib/podslice/podslice.toml": "cgroup-root = '/a'\n"})
    assert load_config(root=tmp_path).cgroup_root == "/a"


def test_a_named_file_replaces_all_others(tmp_path):
    write(
        tmp_path,
        {"etc/podslice/podslice.toml": "cgroup-root = '/a'\n", "my.toml": "rules = 'kubernetes'\n"},
    )
    config = load_config(root=tmp_path, file=tmp_path / "my.toml")
    assert config == Config(rules=Rules.KUBERNETES)
    (problem,) = problems(root=tmp_path, file=tmp_path / "none.toml")
    assert problem == f"{tmp_path}/none.toml: no such file or directory"


def test_tables_and_numbers_of_toml(tmp_path):
    text = """
enforce-node-allocatable = ["pods"]
cgroups-per-qos = true
[kube-reserved]
cpu = 0.1
memory = 1_000
[eviction-hard]
memory.available = "5%"
"nodefs.available" = "1Gi"
"""
    write(tmp_path, {"a.toml": text})
    config = load_config(file=tmp_path / "a.toml")
    assert config.kube_reserved == {"cpu": 100, "memory": 10**6}
    assert set(config.eviction_hard) == {"memory.available", "nodefs.available"}


def test_problem_in_a_file_names_file_and_key(tmp_path):
    write(tmp_path, {"a.toml": "[kube-reserved]\nmemory = '2Gii'\n"})
    (problem,) = problems(file=tmp_path / "a.toml")
    assert problem == (
        f"{tmp_path}/a.toml: kube-reserved.memory: '2Gii' is not a quantity;"
        " write 2Gi (2^30) or 2G (10^9)"
    )


@pytest.mark.parametrize(
    ("data", "expect"),
    [
        (b"a = [1,\nb", ": line 2: "),
        (b"rules = 'proposal'\nrules = 'proposal'\n", ": line 2: "),
        (b"rules = \xff", ": the encoding is not UTF-8; save the file as UTF-8"),
        (b"a = " + b"[" * 50_000, ": nested too deep"),
        (b"a = " + b"9" * 10_000, ": a number has thousands of digits"),
        (b"#" * 2**21, ": is larger than "),
        (b"\na." + b"a." * 20_000 + b"b = 1", ": line 2: more than 40 dots"),
        (b"[" + b"a." * 20_000 + b"b]", ": line 1: more than 40 dots"),
    ],
)
def test_hostile_file(tmp_path, data, expect):
    path = tmp_path / "a.toml"
    path.write_bytes(data)
    found = problems(file=path)
    assert found[0].startswith(f"{path}{expect}")
    assert all(problem.isprintable() for problem in found)


def test_defaults_are_those_of_the_kubelet():
    """Source: Kubernetes, pkg/kubelet/apis/config/v1beta1/defaults_linux.go."""
    stated = load(
        eviction_hard="memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,"
        "imagefs.available<15%,imagefs.inodesFree<5%"
    )
    assert stated.eviction_hard == DEFAULT_EVICTION_HARD


def test_an_inaccessible_directory_is_reported_except_that_of_the_records(tmp_path, monkeypatch):
    """As for a user other than root, if root's umask denies other users all access."""
    exists = Path.exists

    def refuse(path, **more):
        if path.parent == hidden:
            raise PermissionError(13, "Permission denied")
        return exists(path, **more)

    def open_nothing(path, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)
    monkeypatch.setattr("podslice.inputs.source.open_regular", open_nothing)
    hidden = tmp_path / "run/podslice"
    assert load_config(root=tmp_path) == Config()
    hidden = tmp_path / "etc/podslice"
    assert problems(root=tmp_path) == [f"{hidden}/podslice.toml: permission denied"]


def test_a_file_name_that_is_too_long_is_reported():
    (said,) = problems(file=Path("/" + "a" * 300))
    assert said == f"/{'a' * 300}: file name too long"


@pytest.mark.parametrize("form", ["/{}", "/{}.slice"])
def test_the_longest_root_has_room_for_every_pod(form):
    longest = UNIT_NAME_MAX - len("-kubepods-besteffort-pod.slice") - UID_MAX
    tree = Tree(cgroup_root=load(cgroup_root=form.format("a" * longest)).cgroup_root)
    names = [tree.pod(UID_MAX * "a", qos) for qos in Qos]
    assert max(map(len, names)) == UNIT_NAME_MAX
    with pytest.raises(InputError, match="too long"):
        load(cgroup_root=form.format("a" * (longest + 1)))


def test_an_unquoted_string_is_reported(tmp_path):
    (tmp_path / "a.toml").write_text("rules = kubernetes\n")
    (problem,) = problems(file=tmp_path / "a.toml")
    assert problem == f"{tmp_path}/a.toml: line 1: invalid value; strings need quotes"


ALLOWED = {"pods-from": "kubelet", "allow-kubelet-slices": True}


@cases
def test_pods_of_a_kubelet_may_be_allowed(options):
    config = load_config({**ALLOWED, **options}, root=NOWHERE)
    assert config.allow_kubelet_slices


def test_pods_of_a_kubelet_must_be_allowed_and_are_the_only_ones():
    (problem,) = problems({"pods-from": "kubelet"})
    assert problem == (
        "--pods-from: the slices of a kubelet may not be changed; set allow-kubelet-slices to true,"
        " see podslice-kubelet(7)"
    )
    others = {"manifests": "/srv", "containers": "quadlet", "collect-orphans": True}
    host = {
        "cpu-manager-policy": "static",
        "cpu-manager-policy-options": "strict-cpu-reservation=true",
        "reserved-cpus": "0",
        "exclusive-for": "host",
        "cpuset-partition": "isolated",
    }
    assert problems({**ALLOWED, **others, **host}) == [
        f"--{key}: it has no meaning for the pods of a kubelet; leave it out, or set pods-from to"
        " manifests"
        for key in (*others, "exclusive-for", "cpuset-partition")
    ]


def test_the_cpus_of_another_machine_are_a_json_file(tmp_path):
    file = tmp_path / "cpus.json"
    file.write_text('[{"cpu": 0, "core": 0}, {"cpu": 1, "core": 1}]')
    config = load(cpu_topology=str(file))
    assert config.cpu_topology == CpuTopology(cpus=(Cpu(cpu=0, core=0), Cpu(cpu=1, core=1)))
    assert config.capacity == {"cpu": 2000}
    assert load(cpu_topology=str(file), capacity="cpu=2").capacity == {"cpu": 2000}
    with pytest.raises(InputError, match="cpu is not the number of CPUs of cpu-topology, 2"):
        load(cpu_topology=str(file), capacity="cpu=3")


@cases
def test_problems_of_a_list_of_cpus(tmp_path, text, problems):
    file = tmp_path / "cpus.json"
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        load(cpu_topology=str(file))
    assert len(raised.value.problems) == len(problems)
    for found, message in zip(raised.value.problems, problems, strict=True):
        assert message in found.message
