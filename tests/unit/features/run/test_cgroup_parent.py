"""`cgroup-parent`: the pod, the output and the notes."""

import json
import shlex
import sys

import pytest

from podslice.cli.views.runtime_options import Form
from tests.unit.builders import make_files, manifest

SLICE = "kubepods-burstable-podweb.slice"
GROUP = f"kubepods.slice/kubepods-burstable.slice/{SLICE}"
NOT_THERE = (
    f"{SLICE} does not exist: units in it start without limits, or fail; apply pod shop/web"
    " first: podslice apply -f FILE\n"
)


def web(**limits):
    text = manifest("web", {"cpu": "100m"}, limits or None)
    return text.replace('"name": "web"', '"name": "web", "namespace": "shop", "uid": "web"')


@pytest.fixture
def applied(podslice, files, memory, here):
    """A pod that is applied, with its control group."""
    files({"web.json": web()})
    assert podslice("apply", "-f", "web.json").code == 0
    make_files(here, {"cgroup/cgroup.controllers": "cpu\n", f"cgroup/{GROUP}/cgroup.procs": ""})


def test_the_slice_of_an_applied_pod(podslice, applied):
    assert podslice("cgroup-parent", "shop/web") == (0, f"{SLICE}\n", "")
    assert podslice("cgroup-parent", "web", "-n", "shop") == (0, f"{SLICE}\n", "")


def test_only_the_options_go_to_stdout(podslice, applied):
    line = f"--cgroup-parent={SLICE} --label io.podslice.pod=shop/web\n"
    assert podslice("cgroup-parent", "shop/web", "-o", "podman") == (0, line, "")


def test_a_file_needs_neither_systemd_nor_an_applied_pod(podslice, files, no_systemd):
    files({"web.json": web()})
    assert podslice("cgroup-parent", "shop/web", "-f", "web.json") == (0, f"{SLICE}\n", NOT_THERE)


def test_the_slice_of_a_pod_that_is_not_applied_does_not_count(podslice, files, no_systemd, here):
    files({"web.json": web()})
    make_files(here, {"cgroup/cgroup.controllers": "cpu\n", f"cgroup/{GROUP}/cgroup.procs": ""})
    assert podslice("cgroup-parent", "shop/web", "-f", "web.json").err == NOT_THERE


def test_a_missing_slice_of_an_applied_pod_is_noted(podslice, applied, here):
    (here / "cgroup" / GROUP / "cgroup.procs").unlink()
    (here / "cgroup" / GROUP).rmdir()
    assert podslice("cgroup-parent", "shop/web") == (0, f"{SLICE}\n", NOT_THERE)
    assert not json.loads(podslice("cgroup-parent", "shop/web", "-o", "json").out)["exists"]


def test_the_document_has_options_one_by_one(podslice, files, no_systemd):
    files({"web.json": web(memory="64Mi")})

    def output(form, *more):
        return podslice("cgroup-parent", "shop/web", "-f", "web.json", "-o", form, *more).out

    document = json.loads(output("json", "-c", "main"))
    for runtime in ("podman", "podman-pod", "docker"):
        options = document.pop(f"{runtime.replace('-', '_')}_options")
        assert shlex.join(options) == output(runtime, "-c", "main").rstrip("\n")
    lines = document.pop("lines")
    assert set(lines) == {form.value for form in Form} - {"json"}
    assert all(f"{text}\n" == output(form, "-c", "main") for form, text in lines.items())
    assert document == {
        "version": 1,
        "pod": "shop/web",
        "uid": "web",
        "slice": SLICE,
        "control_group": f"/{GROUP}",
        "exists": False,
        "labels": {"io.podslice.pod": "shop/web", "io.podslice.container": "main"},
        "container": {
            "name": "main",
            "scope": "podslice-podweb-main.scope",
            "oom_score_adj": 999,
            "properties": {"CPUWeight": 9, "MemoryLow": 64 * 2**20, "MemoryMax": 64 * 2**20},
        },
    }
    of_pod = json.loads(output("json"))
    assert of_pod["container"] is None
    assert set(of_pod["lines"]) == set(lines) - {"oci"}


def test_a_file_in_another_namespace(podslice, files, no_systemd):
    files({"web.json": manifest("web")})
    ended = podslice("cgroup-parent", "web", "-n", "shop", "-f", "web.json", "-o", "podman")
    assert ended.code == 0
    assert ended.out.endswith(" --label io.podslice.pod=shop/web\n")


def test_the_user_s_own_pods_are_below_the_user_s_manager(podslice, files, memory, here):
    files({"web.json": web()})
    assert podslice("apply", "--user", "-f", "web.json").code == 0
    found = podslice("cgroup-parent", "--user", "shop/web").err
    assert found == NOT_THERE.replace("podslice apply", "podslice apply --user")
    uid = here.stat().st_uid
    group = f"user.slice/user-{uid}.slice/user@{uid}.service/{GROUP}"
    make_files(here, {"cgroup/cgroup.controllers": "cpu\n", f"cgroup/{group}/cgroup.procs": ""})
    assert podslice("cgroup-parent", "--user", "shop/web") == (0, f"{SLICE}\n", "")


def test_a_pod_that_is_not_applied(podslice, memory):
    assert podslice("cgroup-parent", "web") == (
        1,
        "",
        (
            "error: pod default/web is not applied; apply its manifest first, or specify the file:"
            " -f FILE\n"
        ),
    )


def test_a_pod_that_is_not_in_the_file(podslice, files, no_systemd):
    files({"web.json": web()})
    assert podslice("cgroup-parent", "shop/wep", "-f", "web.json") == (
        2,
        "",
        "error: shop/wep: no such pod in the manifests; did you mean shop/web?\n",
    )


def test_a_pod_with_errors_has_no_line(podslice, files, no_systemd):
    files({"web.json": web(cpu="1GHz")})
    ended = podslice("cgroup-parent", "shop/web", "-f", "web.json")
    assert (ended.code, ended.out) == (2, "")
    assert "'1GHz' is not a quantity" in ended.err


def test_another_pods_errors_are_not_this_ones(podslice, files, no_systemd):
    bad = manifest("bad", {"cpu": 2}, {"cpu": 1})
    files({"web.json": web(), "bad.json": bad})
    assert podslice("cgroup-parent", "shop/web", "-f", ".").out == f"{SLICE}\n"


def test_a_container_is_named_by_its_name(podslice, applied):
    ended = podslice("cgroup-parent", "shop/web", "-c", "main", "-o", "docker")
    assert "--label io.podslice.container=main" in ended.out
    assert podslice("cgroup-parent", "shop/web", "-c", "other") == (
        2,
        "",
        "error: pod shop/web: it has no container 'other'; name one with -c: main\n",
    )


def test_an_oci_runtime_gets_the_only_container(podslice, applied):
    ended = podslice("cgroup-parent", "shop/web", "-o", "oci")
    assert json.loads(ended.out)["linux"]["cgroupsPath"] == f"{SLICE}:podslice:podweb-main"


def test_an_oci_runtime_needs_the_name_of_one_of_several_containers(podslice, files, no_systemd):
    two = {"containers": [{"name": "a"}, {"name": "b"}]}
    files({"two.json": manifest("two", **two)})
    ended = podslice("cgroup-parent", "two", "-f", "two.json", "-o", "oci")
    assert (ended.code, ended.out) == (2, "")
    assert "it has several containers; name one with -c: a, b" in ended.err


@pytest.mark.parametrize(
    ("form", "hint"),
    [
        ("podman", "in a podman pod, every container needs these options, and the pod itself none"),
        ("docker", "docker's cgroup driver must be systemd"),
        ("name", ""),
    ],
)
def test_hints_are_printed_only_on_a_terminal(podslice, applied, monkeypatch, form, hint):
    assert podslice("cgroup-parent", "shop/web", "-o", form).err == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert podslice("cgroup-parent", "shop/web", "-o", form).err.startswith(hint)
