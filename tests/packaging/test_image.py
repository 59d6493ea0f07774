"""The image for Kubernetes: built offline by podman, and run with the rights of the DaemonSet."""

from __future__ import annotations

import json
import signal

import pytest
import yaml

from podslice import __version__
from tests.host import kubelet_node, podman
from tests.host.agent import until
from tests.host.kubelet_node import LEVEL_SET, SMALL, level_values, pod, with_annotation
from tests.lab import extras
from tests.lab.image import ensure_image
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir
from tests.lab.recipe import DEFAULT_SUITE
from tests.packaging.builds import ROOT

BASE, IMAGE, CONTEXT = "localhost/base:1", "localhost/podslice:1", "/context"
EXAMPLE = ROOT / "examples/kubernetes"
CONTAINERFILE = "/src/packaging/container/Containerfile"
CONFIG, PODS = "/etc/podslice", f"{CONTEXT}/pods.json"
SLICE = "kubepods-burstable-pod0000_an.slice"
# images in memory, in layers; the namespace may not raise limits, and has control groups of version 1
ENV = {"CONTAINERS_STORAGE_CONF": "/storage.conf", "PODMAN_IGNORE_CGROUPSV1_WARNING": "1"}
STORAGE = """
[storage]
driver = "overlay"
graphroot = "/run/images"
runroot = "/run/containers-of-images"
"""
LIMITS = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
# Debian with the dependencies of the package, and without an archive of packages
LEFT_OUT = (
    *("boot", "dev", "etc/apt/sources.list*", "usr/lib/modules"),
    *("usr/share/doc", "usr/share/locale", "usr/share/man"),
)
MAKE_BASE = f"""
tar -C /base {" ".join(f"--exclude=./{name}" for name in LEFT_OUT)} -c . |
  podman import --quiet - {BASE}
"""
BUILD = (
    *("podman", "build", "--pull=never", "--isolation=chroot", f"--build-arg=BASE={BASE}"),
    *("--tag", IMAGE, "--file", CONTAINERFILE, CONTEXT),
)
MANIFESTS = [with_annotation(pod("an", SMALL, {})), pod("b", SMALL)]


@pytest.fixture(scope="module")
def node(packages):
    """A machine with the image, and with a stand-in for a kubelet without pod levels."""
    package = packages.get(DEFAULT_SUITE).package
    base = ensure_image(DEFAULT_SUITE).root
    with Namespace(DEFAULT_SUITE, bind={"/src": source_dir(), "/base": base}) as machine:
        extras.unpack(machine, DEFAULT_SUITE, podman.PACKAGES, left_out=podman.NOT_NEEDED)
        machine.put("/storage.conf", STORAGE)
        machine.put("/etc/containers/containers.conf", LIMITS)
        machine.put(f"{CONTEXT}/{package.name}", package.read_bytes())
        machine.run("sh", "-ec", MAKE_BASE, env=ENV)
        machine.run(*BUILD, env=ENV)
        kubelet_node.start(machine, MANIFESTS, version="v1.33.0")
        yield machine


def rights():
    """Return what the DaemonSet permits, as options of podman."""
    template = yaml.safe_load((EXAMPLE / "daemonset.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = template["containers"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert not security["privileged"]
    assert not security["allowPrivilegeEscalation"]
    yield from ("--read-only", "--read-only-tmpfs=false", "--security-opt=no-new-privileges")
    yield f"--user={security['runAsUser']}:{security['runAsGroup']}"
    yield from (f"--cap-drop={each}" for each in security["capabilities"]["drop"])
    yield "--network=host" if template["hostNetwork"] else "--network=none"
    paths = {each["name"]: each["hostPath"]["path"] for each in template["volumes"][1:]}
    paths["config"] = CONFIG
    del paths["kubelet-certificate"]  # the stand-in has the read-only port
    for mount in container["volumeMounts"]:
        if path := paths.get(mount["name"]):
            suffix = ":ro" if mount.get("readOnly") else ""
            yield f"--volume={path}:{mount['mountPath']}{suffix}"


def run(*arguments):
    """Return the command of a container, which podman starts without a control group of its own."""
    return ("podman", "run", "--rm", "--pull=never", "--cgroups=disabled", *arguments)


def test_the_image_has_the_package_and_starts_the_agent(node):
    shown = node.run(*run("--network=none", IMAGE, "--version"), env=ENV)
    assert shown.stdout == f"podslice {__version__}\n"
    inspected = node.run("podman", "image", "inspect", IMAGE, env=ENV).stdout
    config = json.loads(inspected)[0]["Config"]
    assert (config["User"], config["Entrypoint"]) == ("0:0", ["/usr/bin/podslice"])
    assert config["Cmd"] == ["agent"]
    # what apt has read and written
    find = ("/tmp", "/var/lib/apt/lists", "/var/cache/apt", "/var/log", "-type", "f")
    kept = node.run(*run("--network=none", "--entrypoint=/usr/bin/find", IMAGE, *find), env=ENV)
    assert kept.stdout == ""


def test_an_audit_in_the_image_compares_the_node(node):
    node.put(PODS, json.dumps({"kind": "PodList", "apiVersion": "v1", "items": MANIFESTS}))
    mounted = (f"--volume={path}:{path}:ro" for path in (PODS, kubelet_node.CONFIG_FILE))
    config = f"--kubelet-config={kubelet_node.CONFIG_FILE}"
    audit = ("audit", "-f", PODS, config, "--kubelet-version=1.33", "-o", "json")
    command = run(*rights(), *mounted, IMAGE, *audit)
    node.run("mkdir", "-p", CONFIG, "/run/podslice/kubelet")
    found = json.loads(node.run(*command, env=ENV).stdout)
    assert [each for each in found["findings"] if not each["known"]] == []
    assert all(each["exists"] for each in found["units"])
    node.run("systemctl", "set-property", "--runtime", SLICE, "CPUWeight=7")
    changed = node.run(*command, env=ENV, check=False)
    assert changed.exit_code == 3
    (finding,) = json.loads(changed.stdout)["findings"]
    assert (finding["object"], finding["property"]) == (SLICE, "CPUWeight")
    node.run("systemctl", "set-property", "--runtime", SLICE, "CPUWeight=2")


def test_the_agent_in_the_image_applies_pod_levels_with_the_rights_of_the_daemonset(node):
    config = yaml.safe_load((EXAMPLE / "config.yaml").read_text())["data"]
    node.put(f"{CONFIG}/podslice.toml", config["podslice.toml"])
    node.run("mkdir", "-p", "/run/podslice/kubelet")
    before = level_values(node, SLICE)
    file = kubelet_node.CONFIG_FILE
    options = (f"--kubelet={kubelet_node.URL}", f"--kubelet-config={file}", "--restore")
    command = run(*rights(), f"--volume={file}:{file}:ro", IMAGE, "agent", *options)
    agent = node.spawn(*command, env=ENV)
    until(lambda: level_values(node, SLICE) == LEVEL_SET)
    agent.kill(signal.SIGTERM)
    ended = agent.wait()
    assert ended.exit_code == 0, ended.stderr
    assert level_values(node, SLICE) == before
