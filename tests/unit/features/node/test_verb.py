"""`node init` and `node reset`: files written and removed, and foreign files kept."""

import json
import tomllib

import pytest

from podslice.features.node import verb as node_init
from podslice.features.node.files import MARK
from podslice.model.node import Node
from tests.cases.tables import cases

GI = 2**30
INSTALLED = ("docker", "podman")
CONFIG = """\
# Reserved for container runtimes and podslice, as eks, the lowest memory of the three: 6% of the
# first CPU, 1% of the second, 0.5% of the next two each and 0.25% of every further one; 255 MiB
# of memory and 11 MiB for each of 30 pods (EKS, amazon-eks-ami, bootstrap.sh).
kube-reserved = "cpu=80m,memory=585Mi"
kube-reserved-cgroup = "/podruntime.slice"
# Reserved for system daemons: 100m of CPU; 1.5 times the memory that system.slice and user.slice
# use now, 200 MiB, in steps of 64 MiB.
system-reserved = "cpu=100m,memory=320Mi"
# Limits pods only. Measure the usage before adding kube-reserved here.
enforce-node-allocatable = "pods"
"""
SHOWN = """\
RESERVATION   CPU   MEMORY
kube, as gke  80m   1844Mi
kube, as eks  80m   585Mi
kube, as aks  140m  650Mi
system        100m  320Mi

gke: 6% of the first CPU, 1% of the second, 0.5% of the next two each and 0.25% of every further \
one; 25% of the first 4 GiB of memory, 20% of the next 4 GiB, 10% of the next 8 GiB, 6% of the next 112 GiB \
and 2% of the rest (GKE, "Plan GKE node sizes")
eks: 6% of the first CPU, 1% of the second, 0.5% of the next two each and 0.25% of every further \
one; 255 MiB of memory and 11 MiB for each of 30 pods (EKS, amazon-eks-ami, bootstrap.sh)
aks: 60m to 740m of CPU by the number of CPUs; 50 MiB of memory and 20 MiB for each of 30 pods, at most \
a quarter of the memory (AKS, "Resource reservations")
system: 100m of CPU; 1.5 times the memory that system.slice and user.slice use now, 200 MiB, in steps \
of 64 MiB

kube-reserved cpu=80m,memory=585Mi: for container runtimes and podslice, as eks, the lowest memory \
of the three
system-reserved cpu=100m,memory=320Mi: for system daemons

docker.service: placed in podruntime.slice, so that kube-reserved covers it, because \
{host}/usr/lib/systemd/system/docker.service is installed
podman.service: placed in podruntime.slice, so that kube-reserved covers it, because \
{host}/usr/lib/systemd/system/podman.service is installed
not installed: containerd, crio, kubelet; after installing one of them, run podslice node init again

would write {host}/etc/podslice/podslice.toml
"""


@pytest.fixture
def host(monkeypatch, tmp_path):
    """A host with four CPUs and 8Gi, below `tmp_path / "host"`."""
    node = Node(capacity={"cpu": 4_000, "memory": 8 * GI * 1000})
    monkeypatch.setattr(node_init, "read_node", lambda: node)
    monkeypatch.setattr(node_init, "used_by_system", lambda: 200 * 2**20)
    install(tmp_path / "host", *INSTALLED)
    return tmp_path / "host"


def install(host, *services):
    """Install the unit files of services, which are not among the files that are compared."""
    for name in services:
        path = host / f"usr/lib/systemd/system/{name}.service"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[Service]\n")


def files(host):
    found = (str(path.relative_to(host)) for path in (host / "etc").rglob("*") if path.is_file())
    return sorted(found)


def test_a_dry_run_shows_and_writes_nothing(podslice, host):
    ended = podslice("node", "init", "--dry-run", "--root", str(host))
    assert ended.code == 0
    assert ended.out.startswith(SHOWN.format(host=host))
    assert not (host / "etc").exists()


def test_init_writes_reservations_and_places_runtimes(podslice, host):
    assert podslice("node", "init", "--root", str(host)).code == 0
    written = (host / "etc/podslice/podslice.toml").read_text()
    assert written.split("\n", 2)[2] == CONFIG
    assert tomllib.loads(written)["kube-reserved-cgroup"] == "/podruntime.slice"
    for service in INSTALLED:
        drop_in = host / f"etc/systemd/system/{service}.service.d/50-podslice.conf"
        assert "\nSlice=podruntime.slice\n" in drop_in.read_text()
    assert "[Slice]" in (host / "etc/systemd/system/podruntime.slice").read_text()


def test_a_runtime_that_is_installed_later_is_placed_by_the_next_call(podslice, host):
    masked = host / "etc/systemd/system/crio.service"
    masked.parent.mkdir(parents=True)
    masked.symlink_to("/dev/null")
    podslice("node", "init", "--root", str(host))
    drop_ins = {path for path in files(host) if path.endswith("50-podslice.conf")}
    assert drop_ins == {
        f"etc/systemd/system/{name}.service.d/50-podslice.conf" for name in INSTALLED
    }
    install(host, "containerd")
    ended = podslice("node", "init", "--root", str(host))
    assert ended.code == 0
    assert "etc/systemd/system/containerd.service.d/50-podslice.conf" in files(host)
    assert "\nnot installed: crio, kubelet; after installing one of them" in ended.out


def test_without_a_runtime_there_is_no_drop_in(podslice, host):
    for path in (host / "usr/lib/systemd/system").iterdir():
        path.unlink()
    ended = podslice("node", "init", "--root", str(host))
    assert "not installed: containerd, crio, docker, kubelet, podman; after" in ended.out
    assert [path for path in files(host) if path.endswith(".conf")] == []


def test_a_shipped_slice_is_not_written_again(podslice, host):
    shipped = host / "usr/lib/systemd/system/podruntime.slice"
    shipped.parent.mkdir(parents=True, exist_ok=True)
    shipped.write_text("[Slice]\n")
    podslice("node", "init", "--root", str(host))
    assert "etc/systemd/system/podruntime.slice" not in files(host)


def test_a_provider_can_be_chosen(podslice, host):
    podslice("node", "init", "--root", str(host), "--like", "aks", "--pods", "50")
    config = tomllib.loads((host / "etc/podslice/podslice.toml").read_text())
    assert config["kube-reserved"] == "cpu=140m,memory=1050Mi"
    ended = podslice("node", "init", "--root", str(host), "--like", "azure")
    assert ended == (2, "", "error: --like: unknown provider 'azure'; use one of gke, eks, aks\n")


def test_reset_undoes_it(podslice, host):
    podslice("node", "init", "--root", str(host))
    dry = podslice("node", "reset", "--root", str(host), "--dry-run")
    assert dry.out.count("would remove ") == 4
    done = podslice("node", "reset", "--root", str(host))
    assert (done.code, done.out.splitlines()[-2:]) == (
        0,
        [
            "now run: systemctl daemon-reload",
            "to remove the limits of the reservations now: podslice apply",
        ],
    )
    assert files(host) == []
    assert not list((host / "etc").rglob("*.d"))
    again = podslice("node", "reset", "--root", str(host))
    assert (again.code, again.out) == (0, "nothing to remove\n")


def test_init_can_be_repeated(podslice, host):
    podslice("node", "init", "--root", str(host))
    assert podslice("node", "init", "--root", str(host), "--pods", "10").code == 0


def test_what_others_wrote_stays(podslice, host):
    theirs = host / "etc/podslice/podslice.toml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('rules = "kubernetes"\n')
    ended = podslice("node", "init", "--root", str(host))
    assert ended.code == 2
    assert f"error: {theirs}: the file exists and was not written by podslice" in ended.err
    assert files(host) == ["etc/podslice/podslice.toml"]
    assert podslice("node", "reset", "--root", str(host)).code == 0
    assert theirs.exists()


def test_what_was_changed_since_stays(podslice, host):
    podslice("node", "init", "--root", str(host))
    changed = host / "etc/systemd/system/podman.service.d/50-podslice.conf"
    changed.write_text(changed.read_text() + "# mine\n")
    ended = podslice("node", "reset", "--root", str(host))
    assert ended.code == 1
    assert ended.err == f"{changed} was modified and is kept; remove it manually\n"
    assert files(host) == ["etc/systemd/system/podman.service.d/50-podslice.conf"]


def test_a_directory_that_cannot_be_written_is_an_error(podslice, host):
    (host / "etc").mkdir()
    (host / "etc/podslice").write_text("")
    ended = podslice("node", "init", "--root", str(host))
    assert ended.code == 1
    assert ended.err.startswith(f"error: {host}/etc/podslice")


MI = 2**20
AGENT = "podslice-agent.service"
RESERVED = {
    "kube": {"cpu_milli": 80, "memory_bytes": 585 * MI},
    "system": {"cpu_milli": 100, "memory_bytes": 320 * MI},
    "eviction": {"memory_bytes": 100 * MI},
    "hugepages": {},
}
ALLOCATABLE = {"cpu_milli": 3820, "memory_bytes": 8 * GI - (585 + 320 + 100) * MI}


@pytest.fixture
def as_json(podslice, host):
    """Run `node VERB -o json` below the host; the code is added to the document."""

    def call(verb, *arguments):
        ended = podslice("node", verb, "--root", str(host), "-o", "json", *arguments)
        assert ended.err == ""
        return {**json.loads(ended.out), "code": ended.code}

    return call


def names(document, host, *, changed=True):
    """The paths of files below the host that change, or do not."""
    found = (each["path"] for each in document["files"] if each["changed"] is changed)
    return sorted(path.removeprefix(f"{host}/") for path in found)


def test_init_as_json_states_what_it_writes_and_what_it_makes_of_the_node(as_json, host):
    dry = as_json("init", "--dry-run")
    assert not (host / "etc").exists()
    done = as_json("init")
    assert (dry.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert dry == done
    assert (done["version"], done["code"], done["changed"], done["problems"]) == (1, 0, True, [])
    assert done["capacity"] == {"cpu_milli": 4000, "memory_bytes": 8 * GI}
    assert (done["reserved"], done["allocatable"]) == (RESERVED, ALLOCATABLE)
    assert done["effective"] == tomllib.loads(CONFIG)
    assert names(done, host) == files(host)
    for each in done["files"]:
        assert each["before"] is None
        assert (host / each["path"]).read_text() == each["after"]
    services = ["docker.service", "podman.service"]
    assert done["services"] == done["needs_restart"] == services
    assert (done["needs_daemon_reload"], done["needs_reload"]) == (True, [AGENT])
    assert done["proposals"]["aks"]["memory_bytes"] == 650 * MI
    assert done["proposals"]["system"]["formula"].startswith("100m of CPU; 1.5 times")


def test_init_as_json_states_that_nothing_changes(as_json, host):
    as_json("init")
    again = as_json("init")
    assert (again["code"], again["changed"], names(again, host)) == (0, False, [])
    assert (again["needs_daemon_reload"], again["needs_restart"]) == (False, [])
    assert again["needs_reload"] == []
    assert again["allocatable"] == ALLOCATABLE


def test_files_that_are_as_they_should_be_are_named_and_not_written(podslice, host):
    podslice("node", "init", "--root", str(host))
    for arguments in ((), ("--dry-run",)):
        ended = podslice("node", "init", "--root", str(host), *arguments)
        assert ended.out.count("unchanged ") == 4
        assert "wr" not in ended.out.rpartition("init again")[2]
        assert "daemon-reload" not in ended.out


def test_keep_leaves_the_reservations_and_adds_what_is_missing(as_json, host, monkeypatch):
    as_json("init")
    monkeypatch.setattr(node_init, "used_by_system", lambda: 900 * MI)
    install(host, "containerd")
    assert "etc/podslice/podslice.toml" in names(as_json("init", "--dry-run"), host)
    kept = as_json("init", "--keep")
    drop_in = "etc/systemd/system/containerd.service.d/50-podslice.conf"
    assert names(kept, host) == [drop_in]
    assert (kept["reserved"], kept["needs_restart"]) == (RESERVED, ["containerd.service"])
    assert kept["needs_reload"] == []
    assert as_json("init", "--keep")["changed"] is False


def test_keep_writes_reservations_where_there_are_none(as_json, host):
    assert as_json("init", "--keep")["reserved"] == RESERVED


def test_other_files_of_the_configuration_count(as_json, host):
    drop_in = host / "etc/podslice/podslice.toml.d/50-site.toml"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text('kube-reserved = "cpu=1"\n')
    document = as_json("init", "--dry-run")
    assert document["reserved"]["kube"] == {"cpu_milli": 1000}
    assert document["effective"]["kube-reserved"] == "cpu=1"
    drop_in.write_text("nonsense = 1\n")
    document = as_json("init", "--dry-run")
    assert (document["allocatable"], document["effective"]) == (None, None)
    (problem,) = document["configuration_problems"]
    assert problem["where"] == f"{drop_in}: nonsense"


@pytest.mark.parametrize(("arguments", "code"), [((), 2), (("--dry-run",), 1)])
def test_a_file_of_others_is_a_problem_and_nothing_changes(as_json, host, arguments, code):
    theirs = host / "etc/podslice/podslice.toml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('kube-reserved = "cpu=2"\n')
    document = as_json("init", *arguments)
    assert (document["code"], document["changed"], names(document, host)) == (code, False, [])
    (problem,) = document["problems"]
    assert problem["where"] == str(theirs)
    assert document["files"][0]["after"] == theirs.read_text()
    assert document["reserved"]["kube"] == {"cpu_milli": 2000}
    assert files(host) == ["etc/podslice/podslice.toml"]


def test_reset_as_json(as_json, host):
    as_json("init")
    dry = as_json("reset", "--dry-run")
    assert names(dry, host) == files(host)
    done = as_json("reset")
    assert (dry.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert dry == done
    assert (done["code"], done["changed"], done["effective"]) == (0, True, {})
    assert all(each["before"].startswith(MARK) for each in done["files"])
    assert {each["after"] for each in done["files"]} == {None}
    assert done["allocatable"] == {"cpu_milli": 4000, "memory_bytes": 8 * GI - 100 * MI}
    assert done["needs_restart"] == ["docker.service", "podman.service"]
    assert (done["services"], done["needs_reload"]) == ([], [AGENT])
    assert files(host) == []
    again = as_json("reset")
    assert (again["code"], again["changed"], again["files"]) == (0, False, [])
    assert (again["needs_daemon_reload"], again["needs_restart"]) == (False, [])


def test_reset_as_json_names_what_stays(as_json, host):
    as_json("init")
    changed = host / "etc/podslice/podslice.toml"
    changed.write_text(changed.read_text() + "# mine\n")
    document = as_json("reset")
    assert (document["code"], document["changed"]) == (1, True)
    assert names(document, host, changed=False) == files(host) == ["etc/podslice/podslice.toml"]
    (problem,) = document["problems"]
    assert problem["where"] == str(changed)
    assert (document["reserved"], document["needs_reload"]) == (RESERVED, [])


STATED = ("--kube-reserved", "cpu=1,memory=1Gi", "--system-reserved", "memory=512Mi")


def test_reservations_can_be_stated(podslice, as_json, host):
    document = as_json("init", *STATED)
    assert document["reserved"]["kube"] == {"cpu_milli": 1000, "memory_bytes": GI}
    assert document["reserved"]["system"] == {"memory_bytes": 512 * MI}
    written = (host / "etc/podslice/podslice.toml").read_text()
    assert (
        "\n# Reserved for container runtimes and podslice, as stated with --kube-reserved.\n"
        in (written)
    )
    assert "\n# Reserved for system daemons, as stated with --system-reserved.\n" in written
    assert as_json("init", *STATED)["changed"] is False
    assert as_json("init", *STATED, "--keep")["changed"] is False
    shown = podslice("node", "init", "--root", str(host), "--dry-run", *STATED).out
    assert "\nsystem-reserved memory=512Mi: for system daemons, as stated with --system-" in shown


def test_keep_writes_stated_reservations_that_differ(as_json, host, monkeypatch):
    as_json("init", *STATED[:2])
    monkeypatch.setattr(node_init, "used_by_system", lambda: 900 * MI)
    kept = as_json("init", "--keep", *STATED[:2])
    assert (kept["changed"], kept["reserved"]["system"]) == (False, RESERVED["system"])
    assert as_json("init", "--keep", "--kube-reserved=cpu=2")["reserved"]["kube"] == {
        "cpu_milli": 2000
    }


def test_invalid_reservations_are_all_reported_and_nothing_is_written(podslice, host):
    stated = ("--kube-reserved=cpu=1core", "--system-reserved=disk=1Gi")
    ended = podslice("node", "init", "--root", str(host), *stated)
    assert (ended.code, ended.out) == (2, "")
    first, second = ended.err.splitlines()
    assert first.startswith("error: --kube-reserved")
    assert second.startswith("error: --system-reserved")
    assert not (host / "etc").exists()


PRIVATE = 'system-reserved = "cpu=777m"  # of another system\n'


@pytest.fixture
def outside(tmp_path):
    """A directory of the host, beside the root, with a secret."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret").write_text(PRIVATE)
    return directory


def contents(directory):
    return {path.name: path.read_text() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("verb", ["init", "reset"])
@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("is_dry", [True, False], ids=["dry run", "writes"])
@cases
def test_a_link_below_the_root_leads_nowhere_else(  # noqa: PLR0917
    podslice, host, outside, link, target, verb, output, is_dry
):
    (outside / "podslice.toml").write_text(PRIVATE)
    (outside / "a.toml").write_text(PRIVATE)
    (outside / "podslice").mkdir()
    (outside / "podslice/podslice.toml").write_text(PRIVATE)
    before = contents(outside)
    path, target = host / link, target.format(outside=outside)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    dry = ["--dry-run"] if is_dry else []
    ended = podslice("node", verb, "--root", str(host), "-o", output, *dry)
    printed = json.loads(ended.out).keys() if ended.out else None
    assert (ended.code, printed) == (2, {"version", "problems"} if output == "json" else None)
    assert f"error: {path}: is a link to {target}, which is not followed; replace it" in ended.err
    assert "777" not in ended.out + ended.err
    assert contents(outside) == before


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(podslice, host, outside):
    place = host / "etc/podslice/.podslice.toml.new"
    place.parent.mkdir(parents=True)
    place.symlink_to(outside / "secret")
    assert podslice("node", "init", "--root", str(host)).code == 0
    assert contents(outside) == {"secret": PRIVATE}
    assert not place.is_symlink()
    assert (host / "etc/podslice/podslice.toml").read_text().startswith(MARK)
    assert not (host / "etc/podslice/podslice.toml").is_symlink()


def test_a_drop_in_that_is_a_link_is_of_others(podslice, host, outside):
    path = host / "etc/systemd/system/docker.service.d/50-podslice.conf"
    path.parent.mkdir(parents=True)
    path.symlink_to(outside / "secret")
    ended = podslice("node", "init", "--root", str(host), "-o", "json")
    assert ended.code == 2
    assert "777" not in ended.out
    assert contents(outside) == {"secret": PRIVATE}
    assert path.is_symlink()


def test_links_that_stay_below_the_root_are_followed(podslice, host):
    """Such as the links of a merged /usr."""
    (host / "data/config").mkdir(parents=True)
    (host / "etc").mkdir()
    (host / "etc/podslice").symlink_to("../data/config")
    (host / "lib").symlink_to("usr/lib")
    (host / "etc/systemd").symlink_to("./../data/../data")
    (host / "etc/masked").symlink_to("/dev/null")
    assert podslice("node", "init", "--root", str(host)).code == 0
    assert (host / "data/config/podslice.toml").exists()
    assert (host / "data/system/docker.service.d/50-podslice.conf").exists()
    assert podslice("node", "reset", "--root", str(host)).code == 0
    assert not (host / "data/config/podslice.toml").exists()


def test_a_masked_configuration_file_below_the_root(podslice, host):
    masked = host / "etc/podslice/podslice.toml.d/a.toml"
    masked.parent.mkdir(parents=True)
    masked.symlink_to("/dev/null")
    assert podslice("node", "init", "--root", str(host)).code == 0


def test_services_of_another_root_are_not_installed(podslice, host, outside):
    install(outside, "kubelet")
    (host / "etc").mkdir()
    (host / "lib").symlink_to(outside / "usr/lib")
    ended = podslice("node", "init", "--root", str(host), "--dry-run")
    assert ended.code == 2
    assert f"error: {host}/lib: is a link to" in ended.err


def test_links_without_an_end(podslice, host):
    (host / "etc").symlink_to("etc")
    ended = podslice("node", "init", "--root", str(host))
    assert (ended.code, ended.out) == (1, "")
    assert "Too many levels of symbolic links" in ended.err


def test_a_root_that_does_not_exist(podslice, host):
    ended = podslice("node", "init", "--root", f"{host}/none")
    assert ended == (2, "", f"error: --root: {host}/none is not a directory\n")
