"""`new`: a manifest whose values are those that were requested."""

import json

import pytest
import yaml

from tests.cases.tables import cases

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.features.importing import new
from podslice.features.importing.manifest import NewContainer, NewPod, format_lines, make_document
from podslice.features.importing.policy import PresentUse, StatedAmount
from podslice.model.unit import ObservedUnit, UnitName

WEB = """\
# Show what each value becomes: podslice explain -f FILE; start the pod: podslice apply -f FILE
apiVersion: v1         # the format is that of Kubernetes
kind: Pod              # processes with a common budget
metadata:              # identifies the pod
  name: web            # a pod with another name is another pod
spec:                  # what the pod consists of
  resources:           # the budget that all containers share
    requests:          # kept for the pod while the host is busy
      cpu: 500m        # its share of the CPUs when they are scarce (CPUWeight)
      memory: 512Mi    # its memory that is protected from reclaim (MemoryLow)
    limits:            # never exceeded
      cpu: "2.0"       # it is throttled above this (CPUQuota)
      # no memory limit: it may use all memory that pods may use
  containers:          # groups of processes in the pod
  - name: app          # podslice run web -c app -- COMMAND
  - name: db           # podslice run web -c db -- COMMAND
"""
ARGUMENTS = ("new", "web", "--cpu", "500m", "--cpu-limit", "2.0", "--memory", "512Mi")
NGINX = PresentUse(
    name="nginx",
    what="nginx.service",
    age_sec=7200,
    cpu_usec=302_400_000,
    memory_bytes=90 * 2**20,
    peak_bytes=200 * 2**20,
    tasks=5,
)


def explained(podslice, path):
    ended = podslice("explain", "-f", path)
    assert (ended.code, ended.err) == (0, "")
    return ended.out


def test_the_manifest_has_a_comment_on_each_field(podslice):
    ended = podslice(*ARGUMENTS, "--container", "app", "-c", "db")
    assert (ended.code, ended.err) == (0, "")
    assert [line.split() for line in ended.out.splitlines()] == [
        line.split() for line in WEB.splitlines()
    ]
    columns = {line.index("# ") for line in ended.out.splitlines() if line.lstrip()[0] != "#"}
    assert len(columns) == 1


def test_the_values_are_those_that_were_requested(podslice, files):
    limit = ("--memory-limit", "1Gi", "-n", "shop", "-c", "app", "-c", "db")
    files({"web.yaml": podslice(*ARGUMENTS, *limit).out})
    assert podslice("check", "-f", "web.yaml") == (0, "1 pod, 0 errors, 0 warnings\n", "")
    shown = explained(podslice, "web.yaml")
    assert "pod shop/web  Burstable\n" in shown
    assert "  requests  cpu=500m,memory=512Mi\n  limits    cpu=2,memory=1Gi\n" in shown
    assert "  container app\n" in shown
    assert "  container db\n" in shown


@cases
def test_what_is_printed(case, expect):
    expect(case)


@pytest.mark.parametrize("options", [[], ["--cpu-limit=1"], ["--cpu=1"], ["--memory-limit=1Gi"]])
def test_a_manifest_with_missing_values_is_valid(podslice, files, options):
    files({"web.yaml": podslice("new", "web", *options).out})
    assert "container main" in explained(podslice, "web.yaml")


def test_all_options_are_validated_at_once(podslice):
    wrong = ("--cpu", "x", "--memory", "2Gi", "--memory-limit", "1Gi", "-c", "A", "-c", "b")
    ended = podslice("new", "Web_", *wrong, "-c", "b", "--like", "kitchen/sink")
    assert (ended.code, ended.out) == (2, "")
    assert sorted(line.split(": ")[1] for line in ended.err.splitlines()) == [
        *("--container", "--container", "--cpu", "--like", "--memory", "NAME")
    ]
    assert (
        "error: --memory: 2Gi is more than the limit of 1Gi; a request is at most its limit\n"
        in (ended.err)
    )


def test_the_manifest_as_json(podslice, tmp_path):
    command = ("new", "web", "--cpu-limit", "2", "-o", "json")
    made = json.loads(podslice(*command).out)
    assert (made["manifest"]["metadata"], made["file"]) == ({"name": "web"}, None)
    path = tmp_path / "web.yaml"
    made = json.loads(podslice(*command, "--output-file", str(path)).out)
    assert made["manifest"].keys() == yaml.safe_load(path.read_text()).keys()
    assert made["file"] == str(path)


def test_a_file_is_written_and_not_overwritten(podslice, tmp_path):
    target = tmp_path / "web.yaml"
    ended = podslice(*ARGUMENTS, "--output-file", str(target))
    assert ended == (
        0,
        f"wrote {target}; show what its values become: podslice explain -f {target}\n",
        "",
    )
    first = target.read_text()
    assert first == podslice(*ARGUMENTS).out
    again = podslice("new", "web", "--output-file", str(target))
    assert again == (
        2,
        "",
        f"error: {target}: the file exists; choose another one, or add --overwrite\n",
    )
    assert target.read_text() == first
    assert podslice("new", "web", "--output-file", str(target), "--overwrite").code == 0
    assert target.read_text() != first
    missing = podslice("new", "web", "--output-file", str(tmp_path / "none/web.yaml"))
    assert (missing.code, missing.out) == (1, "")


@pytest.fixture
def nginx(memory, monkeypatch):
    """A service that runs, whose use is known."""
    unit = ObservedUnit(name=UnitName("nginx.service"), control_group="/system.slice/nginx.service")

    async def observe(patterns):
        return (unit,) if patterns == ["nginx.service"] else ()

    monkeypatch.setattr(memory, "observe", observe)
    monkeypatch.setattr(new, "unit_use", lambda found: NGINX if found is unit else None)


def test_values_are_proposed_from_a_unit(podslice, files, nginx):
    made = podslice("new", "web", "--like", "nginx")
    assert (made.code, made.err) == (0, "")
    assert made.out.splitlines()[1] == (
        "# Proposed from the present use of nginx.service, which has run for 2 h, with 5 tasks."
    )
    assert "cpu: 50m" in made.out
    assert "(CPUWeight); its average in 2 h is 42m\n" in made.out
    assert "(MemoryMax); 1.25 times its peak, 200 MiB\n" in made.out
    files({"web.yaml": made.out})
    shown = explained(podslice, "web.yaml")
    assert "  requests  cpu=50m,memory=90Mi\n  limits    memory=250Mi\n" in shown
    assert "  container nginx\n" in shown


@cases
def test_options_override_proposals(podslice, nginx, options, amounts):
    made = podslice("new", "web", "--like", "nginx.service", *options)
    assert (made.code, made.err) == (0, "")
    found = yaml.safe_load(made.out)["spec"]["resources"]
    assert {part: list(values.values()) for part, values in found.items()} == amounts


def test_a_young_program_is_reported(podslice, monkeypatch):
    young = PresentUse(name="(sh)", what="process 7 (sh)", age_sec=5, memory_bytes=1)
    monkeypatch.setattr(new, "process_use", lambda pid: young if pid == 7 else None)
    made = podslice("new", "web", "--like", "7")
    assert (made.code, made.err) == (
        0,
        "process 7 (sh) has run for 5 s only: the proposed values may be too low\n",
    )
    assert "- name: sh " in made.out


QUANTITIES = st.sampled_from(["1", "500m", "2.5", "1e3", "010", "128M", "1Gi", "0", "1k"])
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory"]), QUANTITIES.map(lambda text: StatedAmount(text=text))
)
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True) | st.sampled_from(
    ["on", "null", "1e3", "0x1f", "true", "a.b"]
)


@given(
    name=NAMES,
    namespace=st.none() | NAMES,
    containers=st.lists(NAMES, min_size=1, max_size=3),
    of_container=AMOUNTS,
    requests=AMOUNTS,
    limits=AMOUNTS,
)
def test_the_text_is_the_validated_document(
    name, namespace, containers, of_container, requests, limits
):
    """With the reader of YAML 1.1, every scalar is read as the text that it is in the document."""
    pod = NewPod(
        name=name,
        namespace=namespace,
        containers=tuple(NewContainer(name=each, requests=of_container) for each in containers),
        requests=requests,
        limits=limits,
    )
    text = "\n".join(format_lines(pod, "Proposed from a unit."))
    assert all("#" in line for line in text.splitlines())
    read = yaml.load(text, yaml.BaseLoader)  # noqa: S506 - it makes strings, lists and dictionaries only
    assert read == make_document(pod)
    resolved = yaml.safe_load(text)
    for one, other in zip(levels_of(resolved), levels_of(read), strict=True):
        for part, amounts in one.pop("resources", {}).items():
            expected = other["resources"][part]
            assert {key: str(value) for key, value in amounts.items()} == expected
        other.pop("resources", None)
    assert resolved == read


def levels_of(manifest):
    """Return the parts of a manifest that may have resources."""
    return [manifest["spec"], *manifest["spec"]["containers"]]
