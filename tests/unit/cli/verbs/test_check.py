"""`check`."""

import json
import sys

import pytest

from tests.unit.builders import manifest
from tests.unit.cli.pods import WEB

OPTIONS_AS_NAMES = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: app, image: "--privileged", args: [docker.io/evil]}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: "--opt=device=/etc"}}
"""


def test_check_of_a_good_manifest(podslice, web):
    assert podslice("check", "-f", web) == (0, "1 pod, 0 errors, 0 warnings\n", "")


def test_check_reports_every_problem_of_every_file(podslice, files):
    files(
        {
            "a.yaml": manifest("a", {"cpu": "1core"}, {"memory": "512MiB"}),
            "b.yaml": manifest("b", {"cpu": 2}, {"cpu": 1}),
            "c.yaml": "just text",
        }
    )
    ended = podslice("check", "-f", ".", "-f", "d.yaml")
    assert ended.code == 2
    lines = ended.out.splitlines()
    at = "spec.containers[0].resources"
    assert [line.partition(" ")[0] for line in lines[:-1]] == ["error:"] * (len(lines) - 1)
    assert any(
        f"a.yaml: {at}.requests[cpu]: '1core' is not a quantity; write 1" in x for x in lines
    )
    assert any(f"a.yaml: {at}.limits[memory]: '512MiB'" in line for line in lines)
    assert any(f"b.yaml: {at}.requests[cpu]: 2 is more than the limit of 1" in x for x in lines)
    assert "error: d.yaml: no such file or directory" in lines
    assert lines[-1] == "2 pods, 5 errors, 0 warnings"


def test_check_of_warnings_is_good(podslice, files):
    files({"a.yaml": manifest("a", {"cpu": "100m"}, {"cpu": "333m"})})
    ended = podslice("check", "-f", "a.yaml")
    assert ended == (
        0,
        (
            "warning: a.yaml: spec.containers[0].resources.limits[cpu]: 333m is not a whole percent"
            " of a CPU, the precision that systemd stores; it counts as 340m\n"
            "1 pod, 0 errors, 1 warning\n"
        ),
        "",
    )


def test_replicas_share_the_problems_of_their_template(podslice, files):
    pod = json.loads(manifest("a", {"cpu": 2}, {"cpu": 1}))
    spec = {"replicas": 3, "template": {"spec": pod["spec"]}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
    files({"a.yaml": json.dumps({**deployment, "spec": spec})})
    ended = podslice("check", "-f", "a.yaml")
    assert ended.out.endswith("\n3 pods, 1 error, 0 warnings\n")
    assert ended.out.count("\n") == 2


def test_check_as_json(podslice, files):
    files({"a.yaml": manifest("a", {"cpu": 2}, {"cpu": 1}), "b.yaml": manifest("b")})
    ended = podslice("check", "-f", "a.yaml", "-f", "b.yaml", "-o", "json")
    assert ended.code == 2
    assert json.loads(ended.out) == {
        "version": 1,
        "pods": [
            {"namespace": "default", "name": "a", "valid": False},
            {"namespace": "default", "name": "b", "valid": True},
        ],
        "problems": [
            {
                "severity": "error",
                "where": "a.yaml: spec.containers[0].resources.requests[cpu]",
                "message": "2 is more than the limit of 1",
                "hint": "a request is at most its limit",
            }
        ],
    }
    assert podslice("check", "-f", ".", "-o", "name").out == "default/b\n"


@pytest.mark.parametrize("format_", ["table", "wide", "json", "yaml", "name"])
@pytest.mark.parametrize("verb", ["check", "explain", "render", "plan"])
def test_every_format_of_every_verb_is_stable(podslice, files, no_systemd, verb, format_):
    """The same bytes for the files in any order, and again."""
    files({f"{name}.yaml": manifest(name, {"cpu": "100m"}) for name in "abc"})
    first = podslice(verb, "-f", ".", "-o", format_)
    other = podslice(verb, "-f", "c.yaml", "-f", "a.yaml", "-f", "b.yaml", "-o", format_)
    assert first.code in (0, 3)
    assert first.out
    assert other == first


def test_the_list_of_files_may_come_from_stdin(podslice, monkeypatch, tmp_path):
    (tmp_path / "stdin").write_text(WEB)
    with (tmp_path / "stdin").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert podslice("check", "-f", "-").out == "1 pod, 0 errors, 0 warnings\n"


@pytest.mark.parametrize("verb", ["check", "explain", "render", "quadlets", "plan", "apply"])
def test_the_verbs_agree_on_a_text_that_no_unit_can_have(podslice, files, verb):
    image = "spec.containers[0].image: '--privileged' is not a reference of an image; write "
    claim = "spec.volumes[0].persistentVolumeClaim.claimName: '--opt=device=/etc' is not a DNS"
    files({"web.yaml": OPTIONS_AS_NAMES})
    options = ("render", "--format", "quadlet") if verb == "quadlets" else (verb,)
    ended = podslice(*options, "-f", "web.yaml")
    assert ended.code == 2
    for each in (image, claim):
        assert f"error: web.yaml: {each}" in ended.out + ended.err


def test_a_name_of_the_units_of_podslice_is_reserved(podslice, files):
    files({"web.yaml": manifest("podslice-pod0a1b")})
    assert podslice("check", "-f", "web.yaml").out.startswith(
        "error: web.yaml: metadata.name: 'podslice-pod0a1b' is reserved for units of podslice"
    )
