"""`render`."""

import json
import re
import tarfile
from pathlib import Path

import pytest

from podslice.features.quadlet import verbs as quadlets
from podslice.model.unit import GENERATED, Manager
from tests.unit.builders import manifest
from tests.unit.cli.pods import FULL, of_present_verbs

RENDER_JSON = """\
{
  "version": 1,
  "units": [
    {
      "name": "kubepods.slice",
      "kind": "slice",
      "parent": "-.slice",
      "control_group": "/kubepods.slice",
      "properties": {
        "CPUWeight": 800,
        "MemoryLow": 268435456,
        "MemoryMax": 34359738368
      }
    },
    {
      "name": "kubepods-burstable.slice",
      "kind": "slice",
      "parent": "kubepods.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice",
      "properties": {
        "CPUWeight": 75,
        "MemoryLow": 268435456
      }
    },
    {
      "name": "kubepods-besteffort.slice",
      "kind": "slice",
      "parent": "kubepods.slice",
      "control_group": "/kubepods.slice/kubepods-besteffort.slice",
      "properties": {
        "CPUWeight": 1
      }
    },
    {
      "name": "kubepods-burstable-pod0a1b_2c.slice",
      "kind": "slice",
      "parent": "kubepods-burstable.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice",
      "properties": {
        "CPUQuotaPerSecUSec": 1250000,
        "CPUWeight": 75,
        "MemoryLow": 268435456
      }
    },
    {
      "name": "podslice-pod0a1b_2c-app.scope",
      "kind": "scope",
      "parent": "kubepods-burstable-pod0a1b_2c.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice/podslice-pod0a1b_2c-app.scope",
      "properties": {
        "CPUQuotaPerSecUSec": 1000000,
        "CPUWeight": 50,
        "MemoryLow": 268435456,
        "MemoryMax": 536870912
      }
    },
    {
      "name": "podslice-pod0a1b_2c-log.scope",
      "kind": "scope",
      "parent": "kubepods-burstable-pod0a1b_2c.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice/podslice-pod0a1b_2c-log.scope",
      "properties": {
        "CPUQuotaPerSecUSec": 250000,
        "CPUWeight": 25
      }
    }
  ]
}
"""

RENDER_WIDE = """\
UNIT                                 PROPERTIES
kubepods.slice                       CPUWeight=800 MemoryLow=256Mi MemoryMax=32Gi
kubepods-burstable.slice             CPUWeight=75 MemoryLow=256Mi
kubepods-besteffort.slice            CPUWeight=1
kubepods-burstable-pod0a1b_2c.slice  CPUQuota=125% CPUWeight=75 MemoryLow=256Mi
podslice-pod0a1b_2c-app.scope        CPUQuota=100% CPUWeight=50 MemoryLow=256Mi MemoryMax=512Mi
podslice-pod0a1b_2c-log.scope        CPUQuota=25% CPUWeight=25
"""


def test_render_of_a_pod_with_everything(podslice, files):
    """The mount has its structure, and the slice what holds once init containers have finished."""
    files({"web.yaml": FULL})
    document = json.loads(podslice("render", "-f", "web.yaml", "-o", "json").out)
    units = {unit["name"]: unit for unit in document["units"]}
    slice_ = units["kubepods-burstable-pod12_34.slice"]
    assert slice_["properties"]["MemoryMax"] == 1040 * 2**20
    assert slice_["hugetlb_bytes"] == {str(2**21): 2**22}
    mount = units["run-podslice-pods-12\\x2d34-volumes-my\\x2dcache.mount"]
    assert mount["kind"] == "mount"
    assert mount["parent"] == slice_["name"]
    assert mount["properties"] == {}
    assert mount["structure"]["Options"] == f"mode=1777,nosuid,nodev,size={64 * 2**20}"
    assert "podslice-pod12_34-overhead.scope" in units
    wide = podslice("render", "-f", "web.yaml", "-o", "wide").out
    assert re.search(
        r"^run-\S+\.mount +What=tmpfs Type=tmpfs Options=mode=1777,.* LazyUnmount=yes$",
        wide,
        re.MULTILINE,
    )
    assert ".mount" not in podslice("render", "-f", "web.yaml").out
    assert ".mount" not in podslice("render", "-f", "web.yaml", "--user", "-o", "name").out


def test_render_writes_no_files_for_scopes_and_mounts(podslice, files, tmp_path):
    files({"web.yaml": FULL})
    podslice("render", "-f", "web.yaml", "--output-dir", str(tmp_path / "units"))
    names = [path.name for path in (tmp_path / "units").iterdir()]
    assert "kubepods-burstable-pod12_34.slice" in names
    assert {name.rpartition(".")[2] for name in names} == {"slice"}
    text = (tmp_path / "units/kubepods-burstable-pod12_34.slice").read_text()
    assert "MemoryMax=1090519040\n" in text


def test_render_as_json(podslice, web):
    assert podslice("render", "-f", web, "-o", "json") == (0, RENDER_JSON, "")


def test_render_as_table(podslice, web):
    assert podslice("render", "-f", web, "-o", "wide") == (0, RENDER_WIDE, "")
    slices = [line for line in RENDER_WIDE.splitlines() if ".scope" not in line]
    assert podslice("render", "-f", web).out.splitlines() == slices


def test_render_into_a_directory(podslice, web, tmp_path):
    ended = podslice("render", "-f", web, "--output-dir", "units")
    assert ended == (
        0,
        (
            "units/kubepods.slice\n"
            "units/kubepods-burstable.slice\n"
            "units/kubepods-besteffort.slice\n"
            "units/kubepods-burstable-pod0a1b_2c.slice\n"
        ),
        "",
    )
    pod = tmp_path / "work/units/kubepods-burstable-pod0a1b_2c.slice"
    assert "Description=Pod shop/web (Burstable)\n" in pod.read_text()
    assert podslice("render", "-f", web, "--output-dir", "units").code == 0


def test_render_leaves_foreign_files_alone(podslice, web, files):
    files({"units/kubepods.slice": "[Slice]\n"})
    ended = podslice("render", "-f", web, "--output-dir", "units")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(
        "error: units/kubepods.slice: the file exists and was not generated by podslice"
    )


def test_render_into_a_file_is_an_error(podslice, web):
    ended = podslice("render", "-f", web, "--output-dir", web)
    assert ended == (1, "", f"error: {web}: File exists\n")


def test_render_of_invalid_manifests_writes_no_files(podslice, files, tmp_path):
    files({"a.yaml": manifest("a", {"cpu": 2}, {"cpu": 1})})
    ended = podslice("render", "-f", "a.yaml", "--output-dir", "units")
    assert (ended.code, ended.out) == (2, "")
    assert not (tmp_path / "work/units").exists()


def test_render_reports_pods_that_do_not_fit(podslice, files):
    files({"a.yaml": manifest("a", {"cpu": 9}), "b.yaml": manifest("b")})
    ended = podslice("render", "-f", ".", "-o", "name")
    assert ended.code == 1
    assert ended.err == (
        "pod default/a refused: OutOfcpu: requests 9 of cpu, 8 is free (0 of 8 is requested)\n"
    )
    assert "besteffort-pod" in ended.out


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


def test_quadlets_are_shown_without_contents_of_secrets(podslice, files, here):
    files({"web.yaml": CONTAINERS})
    out = podslice("render", "-f", "web.yaml", "--format", "quadlet").out
    assert "### web_app.container (mode 0644)\n# Generated by podslice render;" in out
    assert "Slice=kubepods-besteffort-pod0a1b_2c.slice" in out
    assert "s3cret" not in out
    head = f"### {here}/lib-False/podslice/volumes/default_web/app.env (mode 0600)"
    assert f"{head}\n# 16 bytes, which are written to a file only" in out


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


def test_a_field_that_quadlets_cannot_keep_is_refused(podslice, files, tmp_path):
    files({"web.yaml": CONTAINERS + "  hostIPC: true\n  runtimeClassName: kata\n"})
    made = tmp_path / "quadlets"
    command = ("render", "-f", "web.yaml", "--format", "quadlet", "--output-dir", str(made))
    result = podslice(*command, "--ignore", "hostIPC")
    assert result.code == 2
    assert "warning: web.yaml[1]: spec.hostIPC: is ignored, as requested:" in result.err
    assert "error: web.yaml[1]: spec.runtimeClassName: cannot be kept:" in result.err
    assert not made.exists()
    result = podslice(*command, "--ignore", "hostIPC", "--ignore", "runtimeClassName")
    assert result.code == 0
    assert (made / "web.pod").exists()


def test_options_of_quadlets_need_the_format(podslice, files):
    files({"web.yaml": CONTAINERS})
    for options in (["--install"], ["--ignore", "hostIPC"]):
        result = podslice("render", "-f", "web.yaml", *options)
        assert result.code == 2
        assert f"{options[0]}: is for quadlets only; add --format quadlet" in result.err
    result = podslice(
        "render", "-f", "web.yaml", "--format", "quadlet", "--install", "--output-dir", "x"
    )
    assert result.code == 2
    assert "--install: contradicts --output-dir" in result.err


def test_files_as_json(podslice, files):
    files({"web.yaml": CONTAINERS})
    written = podslice("render", "-f", "web.yaml", "--output-dir", "made", "-o", "json")
    assert written.code == 0
    paths = [each["path"] for each in json.loads(written.out)["files"]]
    assert paths
    assert all(Path(each).read_text().startswith(GENERATED) for each in paths)
    quadlet = ("render", "-f", "web.yaml", "--format", "quadlet", "-o")
    shown = json.loads(podslice(*quadlet, "json").out)["files"]
    assert shown[0].keys() == {"path", "mode", "text"}
    assert podslice(*quadlet, "name").out.splitlines() == [each["path"] for each in shown]


def test_no_file_is_written_of_an_invalid_pod(podslice, files):
    files({"web.yaml": manifest("web", {"cpu": 2}, {"cpu": 1})})
    ended = podslice("render", "-f", "web.yaml", "--output-dir", "made", "-o", "json")
    assert ended.code == 2
    assert len(json.loads(ended.out)["problems"]) == 1
    assert not Path("made").exists()


def test_a_misspelled_field_of_a_container_is_reported_once(podslice, files):
    files({"web.yaml": CONTAINERS.replace("image:", "stdinOnec: true\n    image:", 1)})
    result = podslice("render", "-f", "web.yaml", "--format", "quadlet")
    assert result.code == 2
    (line,) = (each for each in result.err.splitlines() if "stdinOnec" in each)
    assert line.endswith("stdinOnec: unknown field 'stdinOnec'; write stdinOnce")
    result = podslice("render", "-f", "web.yaml", "--format", "quadlet", "--validate=ignore")
    assert (result.code, "stdinOnec" in result.err + result.out) == (0, False)


def test_configmaps_and_secrets_are_still_ignored_by_others(podslice, files):
    files({"web.yaml": CONTAINERS})
    result = podslice("render", "-f", "web.yaml")
    assert (
        "objects of kind 'Secret' have no pod and are ignored; only apply --start and render"
        " --format quadlet use them" in result.err
    )


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
