"""Texts of manifests as arguments of podman: by its generator, systemd, and a program in its place."""

import itertools
import json

import pytest

from podslice.model.grammar import ARGUMENT, full_image
from podslice.model.pod import default_uid
from tests.cases.texts import HOSTILE
from tests.host import podman
from tests.lab.demo import PROGRAM

pytestmark = pytest.mark.namespace

WORK = "/run/fake"
QUADLETS = "/etc/containers/systemd"
GENERATOR = "/usr/lib/systemd/system-generators/podman-system-generator"
# each run of a container leaves its arguments, and fails
FAKE_PODMAN = f"""#!/bin/sh
[ "$1" != --version ] || exec echo podman version 5.4.2
[ "$1" != run ] || printf '%s\\0' "$@" >"{WORK}/$3"
exit 1
"""
# containers are bound to the service of their pod, and it is the generator's unless this one is found
POD = "/etc/systemd/system/web-pod.service"
FAKE_POD = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
DIGEST = "@sha256:" + "0123456789abcdef" * 4
IMAGES = (
    "app",
    "localhost/app:1",
    "localhost:5000/app",
    "registry.example.com:5000/team/web-app_2__x:v1.2-rc.1_A",
    "[2001:db8::1]:5000/app",
    f"docker.io/library/nginx{DIGEST}",
    f"registry.example.com/nginx:1.27{DIGEST}",
    "nginx.image:latest",
)
OPTIONS = (
    "--privileged",
    "-v=/:/host",
    "-v",
    "--volume=/:/host app",
    "app --privileged",
    "--rootfs",
    "--entrypoint=[]",
    "app\n[Service]\nExecStartPre=+/bin/touch /run/pwned",
    'app" --privileged "',
    "app\\",
    "%n",
    "$HOME",
    "${HOME}",
    "nginx.image",
    "nginx:1.build",
    "dir:5000/etc",
    "oci-archive:tmp",
    "docker://app",
    "App",
    "/etc",
    "../app",
    "",
    " ",
)
PATHS = (
    *("/a b", "/a%nb", "/a$HOME-${HOME}", "/a'b", '/a"b', "/a\\b", "/a,type=bind,b", "/a=b"),
    *("/a ; b", "/;", "/#a", "/[Service]", "/\xe9\u20ac", "/a\xa0b", "/-v", "/*", "/$(id)`id`"),
)
ARGUMENTS = [each for each in HOSTILE.values() if ARGUMENT.matches(each)]


@pytest.fixture
def box(clean_namespace, tmp_path):
    """A namespace with podman's generator, and a program in place of podman."""
    generator = podman.extract_generator(tmp_path)
    clean_namespace.put(GENERATOR, generator.read_bytes(), mode=0o755)
    clean_namespace.put("/usr/bin/podman", FAKE_PODMAN, mode=0o755)
    clean_namespace.put("/usr/bin/podslice", PROGRAM, mode=0o755)
    clean_namespace.put(f"{WORK}/made", "")
    clean_namespace.put(POD, FAKE_POD)
    clean_namespace.run("systemctl", "start", "web-pod.service")
    yield clean_namespace
    clean_namespace.run("systemctl", "stop", "web-pod.service")
    removed = ("/etc/containers", WORK, POD, GENERATOR, "/usr/bin/podman", "/usr/bin/podslice")
    clean_namespace.run("rm", "-rf", *removed)
    clean_namespace.run("systemctl", "daemon-reload")


def render(box, pod, *, check=True):
    """Install the quadlets of a pod, and have systemd read what the generator makes of them."""
    box.put("/pod.json", json.dumps(pod))
    arguments = ("render", "-f", "/pod.json", "--format", "quadlet", "--install")
    result = box.podslice(*arguments, "--capacity", "cpu=8,memory=32Gi", check=check)
    box.run("systemctl", "daemon-reload")
    return result


def pod_of(containers, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"restartPolicy": "Never", "containers": containers, **spec},
    }


def arguments_of(box, name):
    """The arguments with which the service of a container runs podman."""
    uid = default_uid("default", "web").replace("-", "_")
    unit = f"podslice-pod{uid}-{name}.service"
    box.run("systemctl", "start", "--job-mode=ignore-dependencies", unit, check=False)
    return box.get(f"{WORK}/web_{name}").decode().split("\0")[:-1]


def test_an_image_is_one_argument(box):
    containers = [
        {"name": f"c{at}", "image": each, "imagePullPolicy": "Never"}
        for at, each in enumerate(IMAGES)
    ]
    render(box, pod_of(containers))
    found = []
    for at, image in enumerate(IMAGES):
        arguments = arguments_of(box, f"c{at}")
        assert arguments[-1] == full_image(image)
        # the generator writes options in any order
        found.append(sorted(each.replace(f"c{at}", "NAME") for each in arguments[:-1]))
    assert found[1:] == found[:-1]
    assert not {"--privileged", "-v", "--volume"}.intersection(found[0])


def test_an_image_is_never_an_option(box):
    containers = [
        {"name": f"c{at}", "image": each, "args": ["docker.io/evil"]}
        for at, each in enumerate(OPTIONS)
    ]
    result = render(box, pod_of(containers), check=False)
    assert result.exit_code == 2
    for at in range(len(OPTIONS)):
        assert f"/pod.json: spec.containers[{at}].image: " in result.stderr
    assert box.run("ls", QUADLETS, check=False).stdout == ""
    listed = box.run("systemctl", "list-unit-files", "podslice-pod*", check=False).stdout
    assert "podslice-pod" not in listed
    for verb in ("check", "explain", "plan", "apply"):
        result = box.podslice(verb, "-f", "/pod.json", check=False)
        assert result.exit_code == 2
        assert "spec.containers[0].image: '--privileged' is not" in result.stderr + result.stdout


def test_a_claim_is_never_an_option(box):
    claim = {"name": "d", "persistentVolumeClaim": {"claimName": "--opt=device=/etc"}}
    result = render(box, pod_of([{"name": "c", "image": "app"}], volumes=[claim]), check=False)
    assert result.exit_code == 2
    assert "spec.volumes[0].persistentVolumeClaim.claimName: " in result.stderr
    assert box.run("ls", QUADLETS, check=False).stdout == ""


def test_other_texts_are_one_argument_unchanged(box):
    named = {f"E{at}": each for at, each in enumerate(ARGUMENTS)}
    containers = [
        {
            "name": "all",
            "image": "app",
            "args": ARGUMENTS,
            "env": [{"name": name, "value": each} for name, each in named.items()],
        },
        *(
            {
                "name": f"p{at}",
                "image": "app",
                "workingDir": each,
                "volumeMounts": [{"name": "d", "mountPath": each, "subPath": each[1:]}],
            }
            for at, each in enumerate(PATHS)
        ),
    ]
    volumes = [{"name": "d", "hostPath": {"path": f"{WORK}/data"}}]
    render(box, pod_of(containers, volumes=volumes))
    arguments = arguments_of(box, "all")
    assert arguments[-len(ARGUMENTS) - 1 :] == [full_image("app"), *ARGUMENTS]
    options = arguments[: -len(ARGUMENTS) - 1]
    given = [value for option, value in itertools.pairwise(options) if option == "--env"]
    assert sorted(given) == sorted(f"{name}={each}" for name, each in named.items())
    for at, path in enumerate(PATHS):
        arguments = arguments_of(box, f"p{at}")
        assert arguments[arguments.index("--workdir") + 1] == path
        assert arguments[arguments.index("-v") + 1] == f"{WORK}/data{path}:{path}"
        assert arguments[-1] == full_image("app")
