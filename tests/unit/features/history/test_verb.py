"""`recommend`."""

import json
import time
from pathlib import Path

import pytest
import yaml

from podslice.features.history.day import Day
from podslice.features.history.files import UsageFiles
from podslice.features.history.model import PodHistory, format_pod_history, parse_pod_history
from podslice.features.history.samples import add_oom_kills
from tests.cases.tables import cases
from tests.unit.builders import make_files, manifest
from tests.unit.features.history.rows import to_history

MI = 2**20
NO_CPU_LIMIT = (
    "no CPU limit is recommended: it would throttle the pod while CPUs are idle; while they are"
    " scarce, the request divides them"
)


@pytest.fixture
def now(monkeypatch):
    """Set the clock to the end of a day of samples."""
    _, end_sec = history_of(1000, 100)
    monkeypatch.setattr(time, "time", lambda: float(end_sec))
    return end_sec


def history_of(cpu, memory, kills=0):
    history, end_sec = to_history({"series": [{"hours": 24, "cpu": cpu, "memory": memory}]})
    return (add_oom_kills(history, kills, end_sec) if kills else history), end_sec


@pytest.fixture
def record(here):
    """Write the history of a pod, with a steady load and OOM kills of it and of its containers."""
    files = UsageFiles(here / "usage")

    def write(key, cpu, memory, kills=0, **containers):
        pod, _ = history_of(cpu, memory, kills)
        below = {name: history_of(*load)[0] for name, load in containers.items()}
        day = Day().add(1_700_006_400, cpu, memory * MI)
        files.write(files.pod_path(key), PodHistory(pod=pod, containers=below, day=day))

    return write


@pytest.fixture
def apply(podslice, files, memory):
    """Apply the manifest of a pod."""

    def run(text):
        files({"pod.yaml": text})
        assert podslice("apply", "-f", "pod.yaml").code == 0

    return run


POD_LEVEL = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  resources: {requests: {cpu: "2", memory: 1Gi}, limits: {memory: 2Gi}}
  containers: [{name: app}, {name: log}]
"""
TABLE = """\
NAME         HISTORY  CPU REQUEST  MEM REQUEST  MEM LIMIT
default/web  24 h     2 → 1169m    1Gi → 121Mi  2Gi → 121Mi
  app        24 h     - → 1169m    - → 121Mi    - → 121Mi
  log        24 h     - → 127m     - → 121Mi    - → 121Mi

default/web: its containers need cpu=1296m,memory=242Mi in sum; together, as a pod, \
cpu=127m,memory=121Mi less
"""


def test_the_table_has_the_pod_and_its_containers(podslice, apply, record, now):
    apply(POD_LEVEL)
    record("default/web", 1000, 100, app=(1000, 100), log=(100, 100), gone=(1, 1))
    assert podslice("recommend") == (0, f"{TABLE}{NO_CPU_LIMIT}\n", "")
    assert podslice("recommend", "web", "-o", "name").out == "default/web\n"
    assert podslice("recommend", "-n", "shop") == (
        0,
        "",
        "no pods are applied in the namespace shop\n",
    )


def test_the_wide_table_has_bounds(podslice, apply, record, now):
    apply(POD_LEVEL)
    record("default/web", 1000, 100)
    lines = podslice("recommend", "-o", "wide").out.splitlines()
    assert lines[0].endswith("CPU BOUNDS      MEM BOUNDS      LIMIT BOUNDS")
    assert lines[1].endswith("1167m to 2338m  121Mi to 242Mi  121Mi to 242Mi")


def test_the_document(podslice, apply, record, now):
    apply(POD_LEVEL)
    record("default/web", 1000, 100, app=(1000, 100))
    found = json.loads(podslice("recommend", "-o", "json").out)
    (pod,) = found["pods"]
    (app,) = pod.pop("containers")
    assert (found["version"], app["name"]) == (1, "app")
    assert pod == {
        "namespace": "default",
        "name": "web",
        "history_sec": 86_400,
        "samples": 1441,
        "confidence_days": 1.0,
        "oom_kills": 0,
        "cpu_wait_percent": 0.0,
        "memory_wait_percent": 0.0,
        "cpu_request": {
            "current_milli": 2000,
            "recommended_milli": 1169,
            "computed_milli": 1169,
            "lower_milli": 1167,
            "upper_milli": 2338,
            "veto": None,
        },
        "memory_request": {
            "current_bytes": 1024 * MI,
            "recommended_bytes": 121 * MI,
            "computed_bytes": 121 * MI,
            "lower_bytes": 121 * MI,
            "upper_bytes": 242 * MI,
            "veto": None,
        },
        "memory_limit": {
            "current_bytes": 2048 * MI,
            "recommended_bytes": 121 * MI,
            "computed_bytes": 121 * MI,
            "lower_bytes": 121 * MI,
            "upper_bytes": 242 * MI,
            "veto": None,
        },
        "sum_of_requests": {"cpu_milli": 1169, "memory_bytes": 121 * MI},
        "saving": {},
        "day": [{"time_usec": 1_700_006_400_000_000, "cpu_milli": 1000, "memory_bytes": 100 * MI}],
    }
    of_yaml = yaml.safe_load(podslice("recommend", "-o", "yaml").out)
    assert of_yaml == json.loads(podslice("recommend", "-o", "json").out)


def test_a_veto_is_marked_with_its_reason(podslice, apply, record, now):
    apply(POD_LEVEL)
    record("default/web", 1000, 100, kills=2)
    found = podslice("recommend").out
    assert "default/web  24 h     2 → 1169m    1Gi!         2Gi!\n" in found
    for what in ("request", "limit"):
        why = f"the memory {what} is not decreased: 2 OOM kills, the last one in the last 8 days"
        assert f"default/web: {why}\n" in found


def test_a_short_history_is_reported(podslice, record, here, monkeypatch):
    history, end_sec = to_history({"series": [{"hours": 1, "cpu": 300, "memory": 100}]})
    monkeypatch.setattr(time, "time", lambda: float(end_sec))
    files = UsageFiles(here / "usage")
    files.write(files.pod_path("default/web"), PodHistory(pod=history))
    lines = podslice("recommend", "web").out.splitlines()
    assert lines[1].startswith("default/web  60 min ")
    short = "amounts from a history of less than a day are uncertain; their bounds: -o wide"
    assert lines[3:] == [short, NO_CPU_LIMIT]


def test_a_change_of_the_class_is_reported(podslice, apply, record, now):
    apply(manifest("web", None, {"cpu": "2", "memory": "1Gi"}))
    record("default/web", 1000, 100)
    assert (
        "default/web: the pod is Guaranteed because its requests are its limits; with the"
        " recommended requests it would be Burstable\n" in podslice("recommend").out
    )


# What is missing.


def test_without_a_history_the_remedy_is_reported(podslice, apply, now):
    apply(POD_LEVEL)
    code, out, err = podslice("recommend")
    assert (code, out) == (0, "")
    assert err.startswith(
        "warning: default/web: no usage is recorded yet; the agent takes a sample"
    )
    code, _, err = podslice("recommend", "web")
    assert (code, err.partition(" yet")[0]) == (1, "error: default/web: no usage is recorded")
    assert err.endswith("; see: systemctl status podslice-agent\n")
    assert podslice("recommend", "--user").err == "no pods are applied\n"


def test_a_history_without_samples_of_the_last_days_is_none(
    podslice, apply, record, now, monkeypatch
):
    apply(POD_LEVEL)
    record("default/web", 1000, 100, app=(1000, 100))
    monkeypatch.setattr(time, "time", lambda: float(now + 8 * 86_400 - 1))
    assert podslice("recommend", "web", "-o", "name").out == "default/web\n"
    monkeypatch.setattr(time, "time", lambda: float(now + 8 * 86_400))
    code, out, err = podslice("recommend", "web")
    assert (code, out) == (1, "")
    assert err.startswith("error: default/web: no usage was recorded in the last 8 days; the agent")


def test_a_damaged_history_is_reported(podslice, apply, here, now):
    apply(POD_LEVEL)
    path = UsageFiles(here / "usage").pod_path("default/web")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    code, out, err = podslice("recommend", "web")
    assert (code, out) == (1, "")
    assert "pods/default/web: not a history of usage" in err


def test_an_unknown_pod_is_an_error(podslice, record, now):
    record("default/web", 1000, 100)
    code, out, err = podslice("recommend", "wbe")
    assert (code, out) == (2, "")
    assert "did you mean default/web?" in err


def test_a_pod_that_is_no_longer_applied_has_a_history(podslice, record, now):
    record("default/web", 1000, 100, app=(1000, 100))
    assert podslice("recommend").out == ""
    lines = podslice("recommend", "web").out.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["default/web", "24", "h", "-", "→", "1169m", "-", "→", "121Mi", "-", "→", "121Mi"],
        ["app", "24", "h", "-", "→", "1169m", "-", "→", "121Mi", "-", "→", "121Mi"],
    ]
    assert podslice("recommend", "web", "-o", "patch") == (
        1,
        "",
        (
            "error: default/web: the pod is not applied, so it has no manifest; to show the amounts:"
            " omit -o patch\n"
        ),
    )


def test_where_nothing_is_recorded_that_is_an_error(podslice, monkeypatch, here):
    monkeypatch.setattr("podslice.cli.host.usage_directory", lambda *_: "")
    assert podslice("recommend") == (
        2,
        "",
        "error: no usage is recorded; set usage-history to a directory\n",
    )


# Manifests.


def patched(podslice, files, *names):
    """The manifest that is recommended; `check` accepts it."""
    found = podslice("recommend", *names, "-o", "patch")
    assert (found.code, found.err) == (0, "")
    files({"patch.yaml": found.out})
    assert podslice("check", "-f", "patch.yaml").code == 0
    return found.out, yaml.safe_load(found.out)["spec"]


def test_the_patch_of_a_pod_level(podslice, apply, record, files, now):
    apply(POD_LEVEL)
    record("default/web", 1000, 100, app=(1000, 100))
    text, spec = patched(podslice, files)
    assert spec["resources"] == {
        "requests": {"cpu": "1169m", "memory": "121Mi"},
        "limits": {"memory": "121Mi"},
    }
    assert spec["containers"] == [{"name": "app"}, {"name": "log"}]
    assert "the 90th percentile of 24 h, and 15 %, was 2\n" in text
    assert "the highest peak of 24 h, and 15 %, was 2Gi\n" in text
    assert NO_CPU_LIMIT in text


def test_the_patch_of_containers_that_state_resources(podslice, apply, record, files, now):
    apply(
        """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers: [{name: setup, resources: {requests: {cpu: 10m}}}]
  containers:
  - {name: app, resources: {requests: {memory: 64Mi}, limits: {cpu: 500m, memory: 64Mi}}}
  - {name: log, resources: {requests: {cpu: 10m}}}
  - {name: new, resources: {requests: {cpu: 20m}}}
  - {name: idle}
"""
    )
    record("default/web", 1000, 100, app=(1000, 100), log=(100, 100))
    text, spec = patched(podslice, files)
    assert "resources" not in spec
    assert [each.get("resources") for each in spec["containers"]] == [
        {
            "requests": {"cpu": "1169m", "memory": "121Mi"},
            "limits": {"cpu": "1169m", "memory": "121Mi"},
        },
        {"requests": {"cpu": "127m", "memory": "121Mi"}},
        {"requests": {"cpu": "20m"}},
        None,
    ]
    assert "init containers and sidecars are not shown" in text


def test_the_pod_level_has_at_least_the_sum_of_its_containers(podslice, apply, record, files, now):
    apply(
        """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  resources: {limits: {cpu: 8, memory: 1Gi}}
  volumes: [{name: cache, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]
  containers:
  - {name: app, resources: {requests: {cpu: 500m, memory: 64Mi}}}
  - {name: log, resources: {requests: {cpu: 500m, memory: 64Mi}}}
"""
    )
    record("default/web", 1000, 100, app=(1000, 100), log=(1000, 100))
    text, spec = patched(podslice, files)
    assert spec["resources"] == {
        "requests": {"cpu": "2338m", "memory": "242Mi"},
        "limits": {"cpu": 8, "memory": "242Mi"},
    }
    assert "the sum of the containers' requests" in text
    assert "volumes and the overhead are not shown" in text
    assert NO_CPU_LIMIT not in text


def test_the_pod_level_counts_sidecars_and_limits_that_a_veto_keeps(
    podslice, apply, record, files, now
):
    apply(
        """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  resources: {requests: {cpu: 3, memory: 64Mi}}
  initContainers: [{name: proxy, restartPolicy: Always, resources: {limits: {cpu: 2}}}]
  containers:
  - {name: app, resources: {requests: {memory: 64Mi}, limits: {memory: 1Gi}}}
  - {name: log}
"""
    )
    record("default/web", 1000, 100, kills=1, app=(1000, 100, 1))
    text, spec = patched(podslice, files)
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    assert spec["resources"] == {
        # the limit of the sidecar is its request
        "requests": {"cpu": "3169m", "memory": "237Mi"},
        "limits": {"memory": "1Gi"},
    }
    assert "; the largest limit of a container\n" in text
    assert podslice("check", "-f", "patch.yaml", "--rules=kubernetes").code == 0


@pytest.fixture
def documented(here, now):
    """Write the history of podslice-agent(8) for the pod `web`, with some values replaced."""
    manual = Path(__file__).parents[4] / "packaging/man/podslice-agent.8.md"
    _, _, section = manual.read_text().partition("## Format of a history\n")
    example = section.split("```\n")[1]

    def write(**changed):
        found = json.loads(example)
        for path, value in changed.items():
            part, _, key = path.rpartition("__")
            (found["pod"][part] if part else found["pod"])[key] = value
        make_files(here, {"usage/pods/default/web": json.dumps(found)})
        return found

    return write


def test_the_documented_history_is_as_the_agent_writes_it(documented):
    found = documented()
    assert format_pod_history(parse_pod_history(found)) == found


AS_COMPUTED, KEPT = ("1169m", "237Mi", "237Mi"), ("1169m", "1Gi", "2Gi")


# Source: podslice-agent(8), HISTORY OF USAGE, for the documented history: 1016.3m × 1.15, the end of
# bucket 36, which has more than a tenth of the weight; 205.8Mi × 1.15, the end of bucket 14. 4Gi are in
# bucket 63, which ends at 4139.8Mi.
# podslice-policy(7), Requests and limits: the OOM kills of 8 days, and waits in 0.1 % and 10 % of the time.
@cases
def test_the_patch_of_a_documented_history_and_its_vetoes(
    podslice, apply, documented, files, changed, expected
):
    apply(POD_LEVEL)
    documented(**changed)
    text, spec = patched(podslice, files)
    amounts, reasons = expected
    cpu, memory, limit = amounts
    requests = {name: str(amount) for name, amount in spec["resources"]["requests"].items()}
    assert requests == {"cpu": cpu, "memory": memory}
    assert spec["resources"]["limits"] == {"memory": limit}
    assert ("not decreased" in text) is bool(reasons)
    for reason in reasons:
        assert reason in text


def test_patches_are_separate_documents(podslice, apply, record, now):
    for name in ("web", "db"):
        apply(manifest(name))
        record(f"default/{name}", 1000, 100)
    found = list(yaml.safe_load_all(podslice("recommend", "-o", "patch").out))
    assert [each["metadata"]["name"] for each in found] == ["db", "web"]
    assert found[0]["spec"]["resources"]["requests"] == {"cpu": "1169m", "memory": "121Mi"}
