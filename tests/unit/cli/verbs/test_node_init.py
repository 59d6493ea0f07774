"""`node init` and `node reset`: files written and removed, and foreign files kept."""

import tomllib

import pytest

from podslice.cli.verbs import node_init
from podslice.model.node import Node

GI = 2**30
INSTALLED = ("docker", "podman")
CONFIG = """\
# Reserved for container runtimes and podslice, as eks, the lowest memory of the three: 6% of the
# first CPU, 1% of the second, 0.5% of the next two each and 0.25% of every further one; 255Mi of
# memory and 11Mi for each of 30 pods (EKS, amazon-eks-ami, bootstrap.sh).
kube-reserved = "cpu=80m,memory=585Mi"
kube-reserved-cgroup = "/podruntime.slice"
# Reserved for system daemons: 100m of CPU; 1.5 times the memory that system.slice and user.slice
# use now, 200Mi, in steps of 64Mi.
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
one; 25% of the first 4Gi of memory, 20% of the next 4Gi, 10% of the next 8Gi, 6% of the next 112Gi \
and 2% of the rest (GKE, "Plan GKE node sizes")
eks: 6% of the first CPU, 1% of the second, 0.5% of the next two each and 0.25% of every further \
one; 255Mi of memory and 11Mi for each of 30 pods (EKS, amazon-eks-ami, bootstrap.sh)
aks: 60m to 740m of CPU by the number of CPUs; 50Mi of memory and 20Mi for each of 30 pods, at most \
a quarter of the memory (AKS, "Resource reservations")
system: 100m of CPU; 1.5 times the memory that system.slice and user.slice use now, 200Mi, in steps \
of 64Mi

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
    assert (done.code, done.out.splitlines()[-1]) == (0, "now run: systemctl daemon-reload")
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
