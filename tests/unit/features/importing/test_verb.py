"""`import`: a manifest from existing units and containers."""

import json

import pytest
import yaml

from podslice.features.importing import podman as podman_reading
from podslice.features.importing import reading
from podslice.features.importing.policy import PresentUse
from podslice.kernel.cgroup import CgroupFs
from podslice.model.unit import UnitName
from tests.cases.tables import cases
from tests.unit.builders import make_files

MI = 2**20
NGINX = """\
# Show what each value becomes: podslice explain -f FILE; start the pod: podslice apply -f FILE
# Limits are from settings; requests are from settings, or else from the present use.
apiVersion: v1 # the format is that of Kubernetes
kind: Pod # processes with a common budget
metadata: # identifies the pod
name: nginx # a pod with another name is another pod
annotations: # what Kubernetes has no field for, of the pod and its containers
podslice.io/oom-score-adj.nginx: "-100" # the OOMScoreAdjust of nginx.service
spec: # what the pod consists of
containers: # groups of processes in the pod
- name: nginx # nginx.service, which has run for 2 h, with 5 tasks; its peak of memory is 200 MiB
resources: # its part of the budget
requests: # kept for the pod while the host is busy
cpu: 500m # its share of the CPUs when they are scarce (CPUWeight); CPUWeight=50; by its use it would be 50m
memory: 90Mi # its memory that is protected from reclaim (MemoryLow); what it uses now
limits: # never exceeded
cpu: 1500m # it is throttled above this (CPUQuota); CPUQuota=150%
memory: 512Mi # above this its processes are OOM-killed (MemoryMax); MemoryMax=512Mi
# Not in the manifest, kept by nginx.service: IOWeight=50, MemoryHigh=256Mi
#
# To start nginx.service in the applied pod, by a drop-in with the lines below: podslice adopt nginx nginx.service -c nginx --restart
# [Unit]
# Wants=podslice-apply.service
# After=podslice-apply.service podslice-agent.service
#
# [Service]
# Slice=kubepods-burstable-podnginx.default.slice
# CPUQuota=150%
# CPUWeight=50
# MemoryLow=94371840
# MemoryMax=536870912
# OOMScoreAdjust=-100
"""


@pytest.fixture
def uses(monkeypatch):
    """The present use by unit; a unit that is not here has no processes."""
    found = {}

    def unit_use(unit, **_):
        return found.get(unit.name)

    monkeypatch.setattr(reading, "unit_use", unit_use)
    return found


def use(what, **more):
    fields = {"age_sec": 7200, "cpu_usec": 302_400_000, "memory_bytes": 90 * MI, "tasks": 5}
    return PresentUse(name=what.partition(".")[0], what=what, **{**fields, **more})


@pytest.fixture
def nginx(memory, uses):
    """A service that runs, with settings."""
    name = UnitName("nginx.service")
    memory.provide(
        name, CPUWeight=50, CPUQuotaPerSecUSec=1_500_000, MemoryMax=512 * MI, MemoryHigh=256 * MI
    )
    memory.set_further(name, IOWeight="50", OOMScoreAdjust="-100")
    uses[name] = use(name, peak_bytes=200 * MI)
    return name


def normal(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def resources_of(text):
    """Return the resources of the containers of a manifest."""
    containers = yaml.safe_load(text)["spec"]["containers"]
    return {each["name"]: each.get("resources") for each in containers}


def test_a_service_becomes_a_pod_with_its_settings_and_use(podslice, nginx):
    made = podslice("import", "nginx")
    assert (made.code, made.err) == (0, "")
    assert normal(made.out) == normal(NGINX)


def test_the_manifest_is_valid_and_has_the_properties_of_the_drop_in(podslice, files, nginx):
    made = podslice("import", "nginx.service")
    files({"web.yaml": made.out})
    assert podslice("check", "-f", "web.yaml") == (0, "1 pod, 0 errors, 0 warnings\n", "")
    drop_in = podslice("cgroup-parent", "nginx", "-f", "web.yaml", "-c", "nginx", "-o", "systemd")
    lines = [line for line in drop_in.out.splitlines() if not line.startswith("#")]
    assert [f"#   {line}".rstrip() for line in lines] == made.out.splitlines()[-len(lines) :]


def test_an_inactive_unit_has_only_its_settings(podslice, memory, uses):
    memory.provide_file(UnitName("batch@7.service"), MemoryMax=512 * MI)
    made = podslice("import", "batch@7.service")
    assert (made.code, made.err) == (0, "")
    assert resources_of(made.out) == {
        "batch-7": {"requests": {"memory": "0"}, "limits": {"memory": "512Mi"}}
    }
    assert "# batch@7.service, which has no processes\n" in made.out
    assert "podslice adopt batch-7 batch@7.service -c batch-7 --restart" in made.out


def test_a_unit_without_settings_keeps_its_weight_and_its_score(podslice, files, memory, uses):
    """As ssh.service and docker.service have them, beside postgresql@.service with a score."""
    memory.provide(UnitName("ssh.service"))
    memory.provide(UnitName("db.service"))
    memory.set_further(UnitName("db.service"), OOMScoreAdjust="-900")
    made = podslice("import", "ssh", "db", "--name", "base")
    assert yaml.safe_load(made.out)["metadata"]["annotations"] == {
        "podslice.io/cpu-weight": "200",
        "podslice.io/cpu-weight.ssh": "100",
        "podslice.io/oom-score-adj.ssh": "0",
        "podslice.io/cpu-weight.db": "100",
        "podslice.io/oom-score-adj.db": "-900",
    }
    for name, score in (("ssh", 0), ("db", -900)):
        start = f"# To start {name}.service in the applied pod"
        lines = made.out[made.out.index(start) :].split("\n#\n# To start")[0]
        assert "#   CPUWeight=100\n" in lines
        assert f"#   OOMScoreAdjust={score}" in lines
    files({"base.yaml": made.out})
    assert podslice("check", "-f", "base.yaml").out == "1 pod, 0 errors, 0 warnings\n"


def test_a_percentage_stays_in_the_comment(podslice, memory, uses, here):
    unit = UnitName("web.service")
    memory.provide(unit, MemoryMax=512 * MI)
    make_files(here, {"web.service": "[Service]\nMemoryMax=1G\n", "b.conf": "MemoryMax= 25%\n"})
    memory._units[unit].fragment_path = str(here / "web.service")
    memory.drop_ins[unit] = (str(here / "b.conf"),)
    made = podslice("import", "web")
    assert resources_of(made.out)["web"]["limits"] == {"memory": "512Mi"}
    assert "MemoryMax=25%, of the memory of this host\n" in made.out
    make_files(here, {"b.conf": "MemoryMax=512M\n"})
    assert "%" not in podslice("import", "web").out


@pytest.fixture
def pods_slice(memory):
    memory.provide(UnitName("kubepods.slice"))


@pytest.fixture
def shop_slice(memory):
    memory.provide(UnitName("shop.slice"))


@pytest.fixture
def grouping(memory, uses):
    """A unit without processes, and one of its instances, which runs."""
    memory.provide(UnitName("pg.service"))
    memory.provide(UnitName("pg@17-main.service"))
    memory.set_tasks(UnitName("pg@17-main.service"), 3)
    memory.finish(UnitName("pg.service"))


@cases
def test_what_is_printed(case, expect):
    expect(case)


def test_units_of_a_user_have_the_commands_of_the_user(podslice, memory, uses):
    memory.provide(UnitName("sync.service"))
    memory.provide(UnitName("app-term.scope"))
    made = podslice("import", "--user", "sync", "app-term.scope", "--name", "desk")
    assert (made.code, made.err) == (0, "")
    assert "podslice adopt --user desk sync.service -c sync --restart" in made.out
    assert "#   podslice adopt --user desk -c app-term PID...\n" in made.out
    memory.provide(UnitName("inside.service"), Slice="kubepods-podx.slice")
    inside = podslice("import", "--user", "inside")
    assert inside.err == "error: inside.service: it is in a pod; see: podslice status --user\n"


def test_a_unit_with_control_groups_of_its_own_is_commented(podslice, memory, uses):
    memory.provide(UnitName("engine.service"), Delegate=True)
    made = podslice("import", "engine")
    assert (made.code, made.err) == (0, "")
    assert "    # It manages control groups of its own (Delegate); what it starts" in made.out


@pytest.mark.parametrize(("scores", "kept"), [((300, 300), "300"), ((300, -1), None), ((), None)])
def test_a_scope_keeps_the_score_that_its_processes_have(
    podslice, memory, uses, monkeypatch, scores, kept
):
    memory.provide(UnitName("app.scope"), Slice="desk.slice")
    monkeypatch.setattr(CgroupFs, "processes", lambda _, group: {group: (*range(len(scores)), 999)})

    def read(pid):
        if pid == 999:  # it has exited
            raise ProcessLookupError
        return scores[pid]

    monkeypatch.setattr(reading, "read_oom_score_adj", read)
    made = podslice("import", "app.scope")
    annotations = yaml.safe_load(made.out)["metadata"]["annotations"]
    assert annotations.get("podslice.io/oom-score-adj.app") == kept
    assert ("# Its processes get the OOM score of the pod's QoS class\n" in made.out) == (not kept)


def test_several_units_share_a_pod_or_have_one_each(podslice, memory, nginx, uses):
    memory.provide(UnitName("nginx.scope"), MemoryMax=64 * MI)
    made = podslice(
        "import", "nginx", "nginx.scope", "nginx.service", "--name", "web", "-n", "shop"
    )
    assert (made.code, made.err) == (0, "")
    assert list(resources_of(made.out)) == ["nginx", "nginx-2"]
    assert yaml.safe_load(made.out)["metadata"] == {
        "name": "web",
        "namespace": "shop",
        "annotations": {
            "podslice.io/cpu-weight": "150",
            "podslice.io/oom-score-adj.nginx": "-100",
            "podslice.io/cpu-weight.nginx-2": "100",
        },
    }
    assert "#   podslice adopt shop/web -c nginx-2 PID...\n" in made.out
    memory.provide_file(UnitName("db.service"))
    each = podslice("import", "nginx", "db", "--each")
    assert [found["metadata"]["name"] for found in yaml.safe_load_all(each.out)] == ["nginx", "db"]
    same = podslice("import", "nginx", "nginx.scope", "--each")
    assert (same.code, same.err) == (
        2,
        "error: --each: 2 pods have the name nginx; import one of them with --name\n",
    )


def test_a_slice_is_the_pod_level_and_its_units_are_containers(podslice, memory, uses):
    memory.provide(UnitName("shop.slice"), CPUWeight=200, MemoryMax=1024 * MI)
    memory.set_further(UnitName("shop.slice"), IOWeight="50")
    memory.provide(UnitName("shop-night.slice"))
    memory.provide(UnitName("web.service"), Slice="shop.slice", CPUWeight=100, MemoryLow=64 * MI)
    memory.provide(UnitName("db.service"), Slice="shop.slice", MemoryMax=512 * MI)
    memory.provide(UnitName("libpod-a1.scope"), Slice="shop.slice")
    memory.provide(UnitName("other.service"))
    made = podslice("import", "--slice", "shop")
    assert (made.code, made.err) == (0, "")
    found = yaml.safe_load(made.out)
    assert found["metadata"]["name"] == "shop"
    assert found["spec"]["resources"] == {"requests": {"cpu": 2}, "limits": {"memory": "1Gi"}}
    assert resources_of(made.out) == {
        "db": {"requests": {"memory": "0"}, "limits": {"memory": "512Mi"}},
        "web": {"requests": {"cpu": 1, "memory": "64Mi"}},
    }
    for remark in (
        "      # no memory request: the sum of its containers' requests applies\n",
        "# Not in the manifest, and without effect in the pod: IOWeight=50\n",
        "# libpod-a1.scope is not imported: it is a container of podman\n",
        "# shop-night.slice is below shop.slice: import it separately\n",
    ):
        assert remark in made.out


def test_problems_of_the_manifest_name_the_pod(podslice, memory, uses):
    memory.provide(UnitName("shop.slice"), MemoryMax=64 * MI)
    memory.provide(UnitName("web.service"), Slice="shop.slice", MemoryMax=128 * MI)
    where = "pod shop: spec.containers[0].resources.limits[memory]"
    made = podslice("import", "--slice", "shop")
    more = "128Mi is more than the pod's limit of 64Mi"
    assert made.code == 0
    assert f"warning: {where}: {more}; Kubernetes would refuse the pod\n" in made.err
    strict = podslice("import", "--slice", "shop", "--set=rules=kubernetes")
    assert (strict.code, strict.out) == (2, "")
    assert f"error: {where}: {more}\n" in strict.err


def test_a_transient_service_is_started_in_the_pod_by_systemd_run(podslice, memory, uses):
    memory.provide(UnitName("run-1.service"))
    unit = memory._units[UnitName("run-1.service")]
    unit.transient = True
    made = podslice("import", "run-1.service")
    assert "# run-1.service is transient: stop it" in made.out
    assert "#   systemd-run --slice=kubepods-besteffort-pod" in made.out


REFUSED = {
    "init.scope": "init.scope: it contains the service manager itself",
    "user@1000.service": "user@1000.service: it is the service manager of a user; import its units"
    " with --user",
    "session-3.scope": "session-3.scope: it is a session of a user; import units of the user with"
    " --user",
    "system.slice": "system.slice: it contains the system's daemons; name the services to import",
    "a@.service": "a@.service: it is a template, not a unit; name an instance: a@NAME.service",
    "shop.slice": "UNIT: 'shop.slice' is not a service or scope; use --slice",
    "a/b": "UNIT: 'a/b.service' is not a service or scope",
    "none": "none.service: there is no such unit; see: systemctl",
    "libpod-a1.scope": "libpod-a1.scope: it is a container of podman; name the container: --podman"
    " NAME",
    "inside.service": "inside.service: it is in a pod; see: podslice status",
}


def test_what_cannot_be_moved_is_refused_all_at_once(podslice, memory):
    memory.provide(UnitName("inside.service"), Slice="kubepods-podx.slice")
    ended = podslice("import", *REFUSED, "--name", "web")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines() == [f"error: {text}" for text in REFUSED.values()]


def test_the_document_has_manifests_and_placements(podslice, nginx):
    made = podslice("import", "nginx", "-o", "json")
    assert (made.code, made.err) == (0, "")
    (pod,) = json.loads(made.out)["pods"]
    assert pod["pod"] == "default/nginx"
    assert pod["manifest"]["kind"] == "Pod"
    assert pod["not_imported"] == []
    (container,) = pod["containers"]
    assert container["lines"][:5] == [
        "[Unit]",
        "Wants=podslice-apply.service",
        "After=podslice-apply.service podslice-agent.service",
        "",
        "[Service]",
    ]
    assert container["lines"][5] == f"Slice={pod['slice']}"
    assert {key: container[key] for key in ("name", "from", "mover")} == {
        "name": "nginx",
        "from": "nginx.service",
        "mover": "drop-in",
    }
    assert container["not_imported"] == ["IOWeight=50", "MemoryHigh=256Mi"]


def test_a_young_unit_is_reported(podslice, nginx, uses):
    uses[nginx] = use(nginx, age_sec=5)
    assert podslice("import", "nginx").err == (
        "nginx.service has run for 5 s only: the proposed values may be too low\n"
    )


INSPECTED = {
    "Name": "cache",
    "State": {"Running": True, "CgroupPath": "/machine.slice/libpod-a1.scope"},
    "Config": {"Labels": {}},
    "HostConfig": {"CpuShares": 512, "Memory": 256 * MI, "PidsLimit": 100},
}


@pytest.fixture
def podman(monkeypatch):
    """podman with containers, run by root."""
    entries = {"cache": INSPECTED}

    async def inspect(names, root):
        async def run_command(*argv):
            return json.dumps([entries[name] for name in names])

        return await original(names, root, run_command=run_command)

    original = podman_reading.inspect_podman
    monkeypatch.setattr(podman_reading, "inspect_podman", inspect)
    monkeypatch.setattr(podman_reading.os, "geteuid", lambda: 0)
    monkeypatch.setattr(podman_reading.shutil, "which", lambda name: f"/usr/bin/{name}")
    found = use("podman container cache", memory_bytes=32 * MI)
    monkeypatch.setattr(podman_reading, "group_use", lambda group, *_: found if group else None)
    return entries


def test_a_container_of_podman_is_created_again_in_the_pod(podslice, no_systemd, podman):
    made = podslice("import", "--podman", "cache")
    assert (made.code, made.err) == (0, "")
    assert resources_of(made.out) == {
        "cache": {"requests": {"cpu": "500m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}
    }
    assert "# podman container cache, which has run for 2 h, with 5 tasks\n" in made.out
    assert "# Not in the manifest, to be set again where it is started: --pids-limit=100\n" in (
        made.out
    )
    assert "#   podman run --cgroup-parent=kubepods-burstable-pod" in made.out


def test_a_container_of_a_quadlet_is_placed_by_its_file(podslice, no_systemd, podman):
    entry = {**INSPECTED, "Config": {"Labels": {"PODMAN_SYSTEMD_UNIT": "cache.service"}}}
    podman["cache"] = entry
    # such as a unit of `podman generate systemd`, whose container is elsewhere
    outside = podslice("import", "--podman", "cache")
    assert "#   podman run --cgroup-parent=" in outside.out
    inside = "/system.slice/cache.service/libpod-payload-a1"
    podman["cache"] = {**entry, "State": {"Running": True, "CgroupPath": inside}}
    made = podslice("import", "--podman", "cache")
    assert "to the .container file of cache.service; then: systemctl daemon-reload;" in made.out
    assert "#   [Container]\n#   Label=io.podslice.pod=default/cache\n" in made.out


def test_what_becomes_of_options_without_a_field_is_commented(podslice, no_systemd, podman):
    more = {"PidsLimit": 2048, "OomScoreAdj": -500, "CpusetCpus": "0"}
    podman["cache"] = {**INSPECTED, "Pod": "a2", "HostConfig": {**INSPECTED["HostConfig"], **more}}
    made = podslice("import", "--podman", "cache")
    assert (made.code, made.err) == (0, "")
    for remark in (
        "# It is in a podman pod, whose own options are not included: see podman pod inspect\n",
        " # --oom-score-adj of podman container cache\n",
        " --oom-score-adj=-500 ",
        "# Not in the manifest, to be set again where it is started: --cpuset-cpus=0\n",
    ):
        assert remark in made.out
    annotations = yaml.safe_load(made.out)["metadata"]["annotations"]
    assert annotations == {"podslice.io/oom-score-adj.cache": "-500"}


def test_podman_may_not_be_installed(podslice, no_systemd, podman, monkeypatch):
    monkeypatch.setattr(podman_reading.shutil, "which", lambda _: None)
    ended = podslice("import", "--podman", "cache")
    assert ended == (1, "", "error: podman is not installed, or not in PATH\n")


def test_podman_is_that_of_the_manager_s_user(podslice, no_systemd, podman, monkeypatch):
    assert podslice("import", "--user", "--podman", "cache").err == (
        "error: podman has containers for each user: run podslice as that user, not as root\n"
    )
    monkeypatch.setattr(podman_reading.os, "geteuid", lambda: 1000)
    assert podslice("import", "--podman", "cache").err == (
        "error: podman has containers for each user: run podslice as root, or add --user\n"
    )
