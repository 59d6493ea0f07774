"""`node init` and `node reset`: files written and removed, and foreign files kept."""

import tomllib

import pytest

from podslice.cli.verbs import node_init
from podslice.model.node import Node

GI = 2**30


@pytest.fixture
def host(monkeypatch, tmp_path):
    """A host with four CPUs and 8Gi, below `tmp_path / "host"`."""
    node = Node(capacity={"cpu": 4_000, "memory": 8 * GI * 1000})
    monkeypatch.setattr(node_init, "read_node", lambda: node)
    monkeypatch.setattr(node_init, "_used_by_system", lambda: 200 * 2**20)
    return tmp_path / "host"


def files(host):
    return sorted(str(path.relative_to(host)) for path in host.rglob("*") if path.is_file())


def test_a_dry_run_shows_and_writes_nothing(podslice, host):
    ended = podslice("node", "init", "--dry-run", "--root", str(host))
    assert ended.code == 0
    assert "kube, as gke  80m   1844Mi  " in ended.out
    assert "kube, as eks  80m   585Mi   " in ended.out
    assert "kube, as aks  140m  650Mi   " in ended.out
    assert "system        100m  320Mi   " in ended.out
    assert f"would write {host}/etc/podslice/podslice.toml\n" in ended.out
    assert not host.exists()


def test_init_writes_reservations_and_places_runtimes(podslice, host):
    assert podslice("node", "init", "--root", str(host)).code == 0
    config = tomllib.loads((host / "etc/podslice/podslice.toml").read_text())
    assert config == {
        "kube-reserved": "cpu=80m,memory=585Mi",
        "kube-reserved-cgroup": "/podruntime.slice",
        "system-reserved": "cpu=100m,memory=320Mi",
        "enforce-node-allocatable": "pods",
    }
    for service in ("containerd", "crio", "docker", "kubelet", "podman"):
        drop_in = host / f"etc/systemd/system/{service}.service.d/50-podslice.conf"
        assert "\nSlice=podruntime.slice\n" in drop_in.read_text()
    assert "[Slice]" in (host / "etc/systemd/system/podruntime.slice").read_text()


def test_a_shipped_slice_is_not_written_again(podslice, host):
    shipped = host / "usr/lib/systemd/system/podruntime.slice"
    shipped.parent.mkdir(parents=True)
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
    assert dry.out.count("would remove ") == 7
    done = podslice("node", "reset", "--root", str(host))
    assert (done.code, done.out.splitlines()[-1]) == (0, "now run: systemctl daemon-reload")
    assert files(host) == []
    assert not list(host.rglob("*.d"))
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
    (host / "etc").mkdir(parents=True)
    (host / "etc/podslice").write_text("")
    ended = podslice("node", "init", "--root", str(host))
    assert ended.code == 1
    assert ended.err.startswith(f"error: {host}/etc/podslice")
