"""`delete`."""

import asyncio
import json

import pytest

from podslice.errors import Refused
from tests.unit.builders import make_files, manifest
from tests.unit.cli.pods import POD, lines


def test_delete_reports_stopped_units(podslice, web, memory):
    podslice("apply", "-f", web)
    assert podslice("delete", "shop/web") == (
        0,
        lines(
            f"stopped {POD}: pod shop/web is removed",
            "stopped kubepods-besteffort.slice: no pods remain",
            "stopped kubepods-burstable.slice: no pods remain",
            "stopped kubepods.slice: no pods remain",
            "4 done",
        ),
        "",
    )


@pytest.mark.parametrize(
    "arguments", [["web", "-n", "shop"], ["-f", "web.yaml"], ["--all"], ["shop/web", "--all"]]
)
def test_pods_are_named_in_several_ways(podslice, web, memory, arguments, here):
    podslice("apply", "-f", web)
    assert podslice("delete", *arguments).code == 0
    assert podslice("status").out == "no pods\n"
    assert not (here / "run-False").exists()


def test_delete_of_what_is_not_applied(podslice, web, memory):
    podslice("apply", "-f", web)
    assert podslice("delete", "nope", "shop/web", "\x1b[31m") == (
        1,
        stopped_everything(),
        (
            "error: pod default/\\x1b[31m is not applied; see: podslice status\n"
            "error: pod default/nope is not applied; see: podslice status\n"
        ),
    )


def test_the_form_of_kubectl(podslice, web, memory, files):
    podslice("apply", "-f", web)
    assert podslice("delete", "pod", "web", "-n", "shop") == (0, stopped_everything(), "")
    files({"pod.json": manifest("pod")})
    podslice("apply", "-f", web, "-f", "pod.json")
    assert "pod default/pod is removed" in podslice("delete", "pod", "shop/web").out


def stopped_everything():
    tiers = ("kubepods-besteffort.slice", "kubepods-burstable.slice", "kubepods.slice")
    return lines(
        f"stopped {POD}: pod shop/web is removed",
        *(f"stopped {name}: no pods remain" for name in tiers),
        "4 done",
    )


def test_delete_needs_pods(podslice, memory):
    message = "error: no pod specified; specify pods, -f FILE or --all\n"
    assert podslice("delete") == (2, "", message)
    assert not memory.calls


def test_delete_all_of_nothing(podslice, memory):
    assert podslice("delete", "--all") == (0, "nothing to do\n", "")


def test_delete_states_whether_it_changed_something(podslice, web, memory):
    podslice("apply", "-f", web)

    def changed():
        return json.loads(podslice("delete", "--all", "-o", "json").out)["changed"]

    units = (POD, "kubepods-besteffort.slice")
    for unit in units:
        memory.refuse(unit, Refused("access denied"))
    assert changed() is False
    for unit in units:
        memory.refuse(unit, None)
    assert [changed(), changed()] == [True, False]


def test_a_removed_record_is_a_change(podslice, web, memory):
    podslice("apply", "-f", web)
    asyncio.run(memory.stop("kubepods.slice"))
    document = json.loads(podslice("delete", "shop/web", "-o", "json").out)
    assert (document["changed"], document["steps"]) == (True, [])


def test_delete_reports_running_tasks(podslice, web, memory):
    podslice("apply", "-f", web)
    memory.set_tasks(POD, 2)
    assert f"stopped {POD} with its processes (2 tasks)" in podslice("delete", "--all").out


@pytest.mark.parametrize(
    ("arguments", "sec"),
    [((), ", up to 30 s"), (("--grace-period", "5"), ", up to 5 s"), (("--grace-period=0",), "")],
)
def test_waiting_for_processes_is_noted_beforehand(podslice, web, memory, arguments, sec):
    podslice("apply", "-f", web)
    memory.set_tasks(POD, 2)
    ended = podslice("delete", "shop/web", *arguments)
    assert (ended.code, ended.err) == (0, f"stopping 2 processes of pod shop/web{sec}\n")


@pytest.mark.parametrize("seconds", ["-1", "x", "1.5", "10000000"])
def test_a_grace_period_is_a_number_of_seconds(podslice, web, memory, seconds):
    ended = podslice("delete", "--all", f"--grace-period={seconds}")
    assert (ended.code, ended.out) == (2, "")
    assert "--grace-period" in ended.err
    assert not memory.calls


def test_delete_of_a_file_that_cannot_be_read_deletes_nothing(podslice, web, memory):
    podslice("apply", "-f", web)
    ended = podslice("delete", "-f", web, "-f", "gone.yaml")
    assert ended == (2, "", "error: gone.yaml: no such file or directory\n")
    assert POD in [unit.name for unit in asyncio.run(memory.observe(["kubepods*"]))]


PODS = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: a}]}\n"
REPLICAS = (
    "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: shop}\n"
    "spec: {replicas: 11, template: {spec: {containers: [{name: a}]}}}\n"
)


def test_a_manifest_that_stays_is_named_and_removed_on_request(podslice, here, memory):
    make_files(here / "manifests", {"db.yaml": PODS % "db"})
    path = here / "manifests/db.yaml"
    assert podslice("apply").code == 0
    ended = podslice("delete", "db")
    assert ended.code == 0
    assert ended.err == (
        f"{path} contains default/db: the agent, or podslice-apply.service at boot, applies it"
        " again; to remove the file, too: podslice delete default/db --forget\n"
    )
    assert podslice("apply").code == 0
    ended = podslice("delete", "db", "--forget")
    assert (ended.code, ended.err) == (0, f"removed {path}\n")
    assert not path.exists()
    assert podslice("status").out.startswith("no pods\n")
    make_files(here / "manifests", {"db.yaml": PODS % "db"})
    ended = podslice("delete", "db")
    assert (ended.code, "podslice delete default/db --forget" in ended.err) == (1, True)
    ended = podslice("delete", "db", "--forget")
    assert (ended.code, ended.err) == (0, f"removed {path}\npod default/db is not applied\n")


def test_a_manifest_with_further_pods_is_not_removed(podslice, here, memory):
    both = f"{PODS % 'db'}---\n{PODS % 'web'}"
    make_files(here / "manifests", {"both.yaml": both, "bad.yaml": f"{PODS % 'x'}---\nkind: Pod\n"})
    path = here / "manifests/both.yaml"
    assert podslice("apply", "-f", str(path)).code == 0
    ended = podslice("delete", "db", "--forget")
    assert (ended.code, ended.out) == (2, "")
    assert "the file contains further pods: default/web; delete them, too" in ended.err
    assert "default/db" in podslice("status").out
    assert podslice("delete", "x", "--forget").code == 2
    assert (here / "manifests/bad.yaml").exists()
    assert podslice("delete", "db", "web", "--forget").code == 0
    assert not path.exists()


def test_pods_of_files_that_are_not_applied_are_noted(podslice, files, web, memory):
    podslice("apply", "-f", web)
    files({"db.yaml": PODS % "db"})
    ended = podslice("delete", "-f", "db.yaml", "-f", web)
    assert (ended.code, ended.err) == (0, "pod default/db is not applied\n")


def test_the_name_of_a_workload_is_the_name_of_its_pods(podslice, files, memory):
    files({"shop.yaml": REPLICAS, "other.yaml": PODS % "shop-x"})
    assert podslice("apply", "-f", "shop.yaml", "-f", "other.yaml").code == 0
    shown = podslice("status", "shop", "-o", "name").out
    assert shown.count("podshop_") == 11
    assert "podshop_x" not in shown
    ended = podslice("phase", "shop")
    first = ", ".join(f"default/shop-{number}" for number in range(5))
    error = f"error: default/shop: 11 pods have this workload; name one: {first}, …\n"
    assert (ended.code, ended.err) == (2, error)
    assert podslice("phase", "shop-1").code == 0
    assert podslice("delete", "deployment", "shop").code == 0
    assert podslice("status", "-o", "name").out.count("podshop") == 1
    assert "did you mean default/shop-x?" in podslice("delete", "shop-y").err
    assert "did you mean default/shop-x?" in podslice("phase", "shop-y").err


def test_a_workload_with_one_pod_is_that_pod(podslice, files, memory):
    files({"shop.yaml": REPLICAS.replace("11", "1")})
    assert podslice("apply", "-f", "shop.yaml").code == 0
    assert podslice("phase", "shop").out == podslice("phase", "shop-0").out
    slice_ = podslice("cgroup-parent", "shop").out
    assert slice_ == "kubepods-besteffort-podshop_0.default.slice\n"
    assert podslice("cgroup-parent", "shop", "-f", "shop.yaml").out == slice_
