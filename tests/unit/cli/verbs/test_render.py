"""`render`."""

import json
import tarfile

import pytest

from podslice.features.quadlet import verbs as quadlets
from podslice.model.unit import Manager
from tests.unit.cli.pods import of_present_verbs

CONTAINERS = """\
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: s3cret}
---
apiVersion: v1
kind: Pod
metadata: {name: web, uid: 0a1b-2c}
spec:
  containers:
  - name: app
    image: localhost/app:1
    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: login, key: password}}}]
"""
VOLUME = """\
  securityContext: {fsGroup: 7}
  volumes: [{name: login, secret: {secretName: login, defaultMode: 0400}}]
"""


def test_quadlets_are_written_to_a_directory(podslice, files, tmp_path, here):
    files({"web.yaml": f"{CONTAINERS}{VOLUME}"})
    made = tmp_path / "quadlets"
    result = podslice("render", "-f", "web.yaml", "--format", "quadlet", "--output-dir", str(made))
    assert result.code == 0
    assert result.err.splitlines() == [
        f"on the host, .pod, .container, .volume and .network files belong in {here}/etc-False/containers/systemd",
        (
            "on the host, extract each .volumes.tar file, which has the data of a pod: tar"
            " --extract --preserve-permissions --directory=/ --file=FILE; it belongs in no"
            " directory of units"
        ),
    ]
    assert result.out.splitlines() == [
        f"{made}/web.pod",
        f"{made}/web_app.container",
        f"{made}/web.volumes.tar",
    ]
    # other users cannot read it, and the directories that it makes
    assert (made / "web.volumes.tar").stat().st_mode & 0o777 == 0o600
    top = f"{here}/lib-False/podslice/volumes".removeprefix("/")
    with tarfile.open(made / "web.volumes.tar") as archive:
        members = archive.getmembers()
        assert [(each.name, each.mode, each.uid, each.gid) for each in members] == [
            (top, 0o700, 0, 0),
            (f"{top}/default_web", 0o700, 0, 0),
            (f"{top}/default_web/login", 0o755, 0, 0),
            (f"{top}/default_web/app.env", 0o600, 0, 0),
            (f"{top}/default_web/login/password", 0o440, 0, 7),
        ]
        assert archive.extractfile(f"{top}/default_web/app.env").read() == b"PASSWORD=s3cret\n"
    unit = (made / "web_app.container").read_text()
    assert f"\nEnvironmentFile=/{top}/default_web/app.env\n" in unit
    again = podslice("render", "-f", "web.yaml", "--format", "quadlet", "--output-dir", str(made))
    assert again.out == result.out
    files({"web.yaml": CONTAINERS.partition("    env:")[0]})
    result = podslice("render", "-f", "web.yaml", "--format", "quadlet", "--output-dir", str(made))
    assert f"removed {made}/web.volumes.tar, which the pod no longer has" in result.err
    assert sorted(each.name for each in made.iterdir()) == ["web.pod", "web_app.container"]


def test_an_archive_does_not_replace_a_link(podslice, files, tmp_path):
    files({"web.yaml": CONTAINERS})
    (tmp_path / "target").write_text("kept")
    (tmp_path / "web.volumes.tar").symlink_to(tmp_path / "target")
    result = podslice(
        "render", "-f", "web.yaml", "--format", "quadlet", "--output-dir", str(tmp_path)
    )
    assert (result.code, result.out) == (1, "")
    problem = f"error: {tmp_path}/web.volumes.tar: is a link, not a regular file; remove it"
    assert problem in result.err.splitlines()
    assert (tmp_path / "target").read_text() == "kept"


def test_an_install_goes_on_with_the_other_pods(podslice, files, here, monkeypatch):
    monkeypatch.setattr(quadlets, "_version_of", lambda _: (257, 0))
    other = CONTAINERS.partition("---\n")[2].partition("    env:")[0]
    files({"web.yaml": CONTAINERS + "---\n" + other.replace("name: web, uid: 0a1b-2c", "name: b")})
    (here / "lib-False/podslice/volumes").mkdir(parents=True)
    place = here / "lib-False/podslice/volumes/default_web"
    place.symlink_to(here)
    result = podslice("render", "-f", "web.yaml", "--format", "quadlet", "--install")
    assert result.code == 1
    assert f"error: {place}: is a link, not a directory; podslice did not create it" in result.err
    directory = here / "etc-False/containers/systemd"
    assert sorted(each.name for each in directory.iterdir()) == ["b.pod", "b_app.container"]


def test_names_that_are_too_long_for_a_file(podslice, files):
    names = {"web.yaml": ("a" * 200, "b" * 63), "log.yaml": ("a" * 200, "b" * 20)}
    for file, (pod, container) in names.items():
        text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {pod}}}\nspec:\n  containers:\n"
        files({file: f"{text}  - {{name: {container}, image: app}}\n"})
    result = podslice("render", "-f", "web.yaml", "--format", "quadlet")
    assert result.code == 2
    assert f"error: pod default/{'a' * 200}: the file aaa" in result.err
    assert "has a name of 274 characters; shorten the names of pod and container: " in result.err
    result = podslice("render", "-f", "log.yaml", "--format", "quadlet")
    assert result.code == 0
    assert f"PodmanArgs=--hostname={'a' * 63}\n" in result.out


ODD = "a\u202eb\x1b[31m\nc"
SHOWN = "a\\u202eb\\x1b[31m\\nc"


@pytest.mark.parametrize(
    "options",
    of_present_verbs(
        [
            ("render", "-f", "{web}", "--output-dir", ODD),
            ("render", "-f", "image.json", "--output-dir", ODD, "--format", "quadlet"),
            ("new", "web", "--output-file", f"{ODD}.yaml"),
            ("node", "init", "--root", ODD),
            ("node", "init", "--root", ODD, "--dry-run"),
            ("node", "reset", "--root", ODD),
            (
                "compose",
                "--resolved=project.json",
                "--output-dir",
                ODD,
                "--budget=cpu=1,memory=1Gi",
            ),
            ("render", "-f", "{web}", "--output-dir", f"{ODD}/file"),
        ]
    ),
    ids=lambda options: " ".join(options[:2]),
)
def test_paths_are_printed_without_control_characters(podslice, web, tmp_path, options):
    work = tmp_path / "work"
    (work / "project.json").write_text('{"name": "shop", "services": {"web": {"image": "nginx"}}}')
    spec = {"containers": [{"name": "app", "image": "docker.io/nginx"}]}
    image = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "shop"}, "spec": spec}
    (work / "image.json").write_text(json.dumps(image))
    (work / ODD / "usr/lib/systemd/system").mkdir(parents=True)
    (work / ODD / "usr/lib/systemd/system/docker.service").write_text("")
    (work / ODD / "file").write_text("")
    if options[1] == "reset":
        assert podslice("node", "init", "--root", ODD).code == 0
    ended = podslice(*(each.format(web=web) for each in options))
    printed = ended.out + ended.err
    assert SHOWN in printed
    assert all(line.isprintable() for line in printed.splitlines())


def test_a_state_directory_that_podman_cannot_mount_is_refused(podslice, files, monkeypatch):
    monkeypatch.setattr(Manager, "own_state_directory", property(lambda _: "/a:b/podslice"))
    files({"web.yaml": CONTAINERS})
    result = podslice("render", "-f", "web.yaml", "--format", "quadlet")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error: XDG_STATE_HOME: podman cannot mount files below '/a:b/podslice': the path has ':' or"
        " a control character; set XDG_STATE_HOME to another directory\n"
    )
