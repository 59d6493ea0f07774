"""The data of volumes: what podman's generator and systemd make of names in a manifest."""

import pytest

from podslice.model.pod import default_uid
from tests.host import podman
from tests.host.scenario import show
from tests.lab import fixtures

MARK = "/run/run-by-a-name"
UNIT = "[Container]\nImage=localhost/app:1\n"
COMMAND = f"[Service]\nExecStartPre=+/usr/bin/touch {MARK}\n"
DROP_INS = (
    *("nginx.container.d/10.conf", "container.d/10.conf", "pod.d/10.conf"),
    *("web_app.container.d/10.conf", "web-.container.d/10.conf", "web.pod.d/10.conf"),
    *("nginx.service.d/10.conf", "service.d/10.conf", "a/b/nginx.container.d/10.conf"),
)
UNITS = tuple(f"other.{kind}" for kind in ("container", "pod", "volume", "network", "kube"))
NGINX = "/etc/containers/systemd/nginx.container"
WEB = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: app, image: "localhost/app:1"}]
"""
WEB_ID = f"pod{default_uid('default', 'web').replace('-', '_')}"
SERVICES = ("nginx.service", "web-pod.service", f"podslice-{WEB_ID}-app.service")
DATA = "/var/lib/podslice/volumes"
INSTALL = ("render", "--format", "quadlet", "--install")


def pod_with(kind, paths):
    """Return a pod with files at these paths, from a ConfigMap or a Secret."""
    text = COMMAND.replace("\n", "\\n")
    items = ", ".join(f'{{key: k, path: "{path}"}}' for path in paths)
    sources = {
        "configMap": f"configMap: {{name: it, items: [{items}]}}",
        "secret": f"secret: {{secretName: it, items: [{items}]}}",
        "projected": f"projected: {{sources: [{{configMap: {{name: it, items: [{items}]}}}}]}}",
    }
    return f"""
apiVersion: v1
kind: {"Secret" if kind == "secret" else "ConfigMap"}
metadata: {{name: it}}
{"stringData" if kind == "secret" else "data"}: {{k: "{text}"}}
---
apiVersion: v1
kind: Pod
metadata: {{name: mean}}
spec:
  containers:
  - {{name: app, image: "localhost/app:1", volumeMounts: [{{name: it, mountPath: /it}}]}}
  volumes: [{{name: it, {sources[kind]}}}]
"""


@pytest.fixture(scope="module")
def box():
    """A namespace with podman's generator, a container of an administrator, and a pod."""
    with fixtures.boot_namespace() as machine:
        podman.unpack(machine)
        machine.put(NGINX, UNIT)
        machine.put("/web.yaml", WEB)
        machine.podslice(*INSTALL, "-f", "/web.yaml")
        yield machine


def units(box):
    """Return the lines of the services, with drop-ins, after systemd has read all files.

    podman's generator writes options of a command in any order.
    """
    box.run("systemctl", "daemon-reload")
    lines = box.run("systemctl", "cat", *SERVICES).stdout.splitlines()
    return sorted(sorted(line.split()) for line in lines)


@pytest.mark.parametrize("kind", ["configMap", "secret", "projected"])
def test_the_name_of_a_file_adds_nothing_to_any_unit(box, kind):
    """podman reads `NAME.container.d/*.conf` in each directory below its own."""
    before = units(box)
    box.put("/mean.yaml", pod_with(kind, DROP_INS))
    box.podslice(*INSTALL, "-f", "/mean.yaml")
    assert units(box) == before
    box.run("systemctl", "start", "nginx.service", check=False)  # it has no image
    assert box.run("test", "-e", MARK, check=False).exit_code == 1


def test_a_file_may_have_the_name_of_a_unit(box):
    before = units(box)
    box.put("/mean.yaml", pod_with("configMap", UNITS))
    box.podslice(*INSTALL, "-f", "/mean.yaml")
    assert units(box) == before
    made = ("other.service", "other-pod.service", "other-volume.service", "other-network.service")
    states = [show(box, each, "LoadState")["LoadState"] for each in made]
    assert states == ["not-found"] * len(made)


def test_rendered_files_add_nothing_to_any_unit_even_if_all_are_copied(box):
    """As described in podslice-quadlet(7), and with the archive in a directory of units."""
    before = units(box)
    box.put("/mean.yaml", pod_with("secret", DROP_INS))
    render = ("render", "--format", "quadlet", "--output-dir", "/rendered", "-f", "/mean.yaml")
    box.podslice(*render)
    box.run("sh", "-ec", "cp -r /rendered/. /etc/containers/systemd")
    assert units(box) == before
    extract = ("tar", "--extract", "--preserve-permissions", "--directory=/")
    box.run("rm", "-rf", DATA)
    box.run(*extract, "--file=/rendered/mean.volumes.tar")
    assert box.get(f"{DATA}/default_mean/it/nginx.container.d/10.conf").decode() == COMMAND
    modes = box.run("stat", "--format=%a", DATA, f"{DATA}/default_mean").stdout.split()
    assert modes == ["700", "700"]
    assert units(box) == before
    # an installation replaces the archive by the data
    done = box.podslice(*INSTALL, "-f", "/mean.yaml")
    assert "removed /etc/containers/systemd/mean.volumes.tar" in done.stderr


def test_a_user_without_privileges_plans_without_the_data(box):
    box.put("/mean.yaml", pod_with("secret", DROP_INS))
    box.podslice(*INSTALL, "-f", "/mean.yaml")
    program = ("env", "PYTHONPATH=/src", "PYTHONDONTWRITEBYTECODE=1", "python3", "-m", "podslice")
    plan = ("runuser", "-u", "daemon", "--", *program, "plan", "-f", "/web.yaml")
    done = box.run(*plan, check=False)
    assert (done.exit_code, done.stderr) == (3, "")
    refused = box.run("runuser", "-u", "daemon", "--", "ls", DATA, check=False)
    assert refused.stderr.endswith("Permission denied\n")
