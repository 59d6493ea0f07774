"""`cgroup-parent`: the pod, the output and the notes."""

import json
import shlex
import sys

import pytest

from podslice.cli.views.runtime_options import Form
from tests.cases.tables import cases
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


@pytest.fixture
def unapplied(files, no_systemd):
    """The manifest of the pod, without systemd."""
    files({"web.json": web()})


@cases
def test_what_is_printed(case, expect):
    expect(case)


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


def test_the_user_s_own_pods_are_below_the_user_s_manager(podslice, files, memory, here):
    files({"web.json": web()})
    assert podslice("apply", "--user", "-f", "web.json").code == 0
    found = podslice("cgroup-parent", "--user", "shop/web").err
    assert found == NOT_THERE.replace("podslice apply", "podslice apply --user")
    uid = here.stat().st_uid
    group = f"user.slice/user-{uid}.slice/user@{uid}.service/{GROUP}"
    make_files(here, {"cgroup/cgroup.controllers": "cpu\n", f"cgroup/{group}/cgroup.procs": ""})
    assert podslice("cgroup-parent", "--user", "shop/web") == (0, f"{SLICE}\n", "")


@cases
def test_hints_are_printed_only_on_a_terminal(podslice, applied, monkeypatch, form, hint):
    assert podslice("cgroup-parent", "shop/web", "-o", form).err == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert podslice("cgroup-parent", "shop/web", "-o", form).err.startswith(hint)
