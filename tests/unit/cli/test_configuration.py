"""Invalid configuration files: verbs that use another configuration, and verbs that fail."""

import asyncio
import json

import pytest

from podslice.store.store import Store
from tests.unit.builders import make_files, manifest
from tests.unit.features.run.test_phase import SHOP

VALID = 'cgroup-root = "/elsewhere"\nkube-reserved = "memory=2Gi"\ncpu-weight-mapping = "oci"\n'
INVALID = f'{VALID}rules = "own"\neviction-hrad = ""\nfoo = 1\n'
PROBLEMS = [
    "podslice.toml: eviction-hrad: unknown option 'eviction-hrad'; write eviction-hard",
    "podslice.toml: foo: unknown option 'foo'; podslice.toml(5) lists the options",
    "podslice.toml: rules: ",
]
WEB = ("cpu=500m,memory=256Mi", "memory=512Mi")
TIER = "elsewhere-kubepods-burstable.slice"


@pytest.fixture
def configure(here):
    def write(text):
        make_files(here, {"etc/podslice/podslice.toml": text})

    return write


@pytest.fixture
def applied(memory, podslice, files, configure):
    """Two pods below another control group, and a configuration that became invalid since."""
    files({"web.yaml": manifest("web", *map(amounts, WEB)), "shop.yaml": SHOP})
    configure(VALID)
    assert podslice("apply", "-f", "web.yaml", "-f", "shop.yaml").code == 0
    configure(INVALID)
    return memory


def amounts(text):
    return dict(part.split("=") for part in text.split(","))


def state_of(memory):
    """Every unit with its properties."""

    async def observe():
        return await memory.observe(["*kubepods*"])

    return {unit.name: unit.properties for unit in asyncio.run(observe())}


SHOWS = {
    "status": 3,
    "tree": 0,
    "top --once --interval 100ms": 0,
    "node": 0,
    "phase shop": 0,
    "status --pid 1": 3,
}


@pytest.mark.parametrize(("verb", "code"), SHOWS.items())
def test_a_verb_that_shows_uses_the_last_valid_configuration(applied, podslice, verb, code):
    ended = podslice(*verb.split())
    assert ended.code == code
    is_listed = verb in ("status", "tree")
    for problem in PROBLEMS:
        text = problem.partition("; ")[0] if is_listed else problem
        assert (ended.out if is_listed else ended.err).count(text) == 1
        assert (ended.out + ended.err).count(text) == 1
    assert "warning: the configuration files are invalid: this command uses the last valid" in (
        ended.err
    )
    document = json.loads(podslice(*verb.split(), "-o", "json").out)
    assert document["configuration"]["source"] == "last-valid"
    assert len(document["configuration"]["problems"]) == len(PROBLEMS)


def test_values_are_those_of_the_last_valid_configuration(applied, podslice):
    status = json.loads(podslice("status", "-o", "json").out)
    assert TIER in [unit["name"] for unit in status["units"]]
    assert not [unit for unit in status["units"] if unit["state"] == "differs"]
    node = json.loads(podslice("node", "-o", "json").out)
    assert node["reserved"]["kube"] == {"memory_bytes": 2 * 2**30}


def test_cgroup_parent_prints_the_slice_that_is_there(applied, podslice):
    ended = podslice("cgroup-parent", "shop")
    assert (ended.code, ended.out) == (0, "elsewhere-kubepods-burstable-podu_1.slice\n")
    assert "the last valid configuration" in ended.err


def test_explain_has_the_applied_pods(applied, podslice):
    ended = podslice("explain", "shop")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "pod default/shop  Burstable")
    assert "the last valid configuration" in ended.err


def test_readmit_reaches_the_marks(applied, podslice):
    ended = podslice("readmit", "web")
    assert ended.code == 1
    assert "pod default/web was not evicted" in ended.err


def test_delete_removes_and_relaxes_the_tiers(applied, podslice):
    before = state_of(applied)
    ended = podslice("delete", "web", "-o", "json")
    assert (ended.code, ended.err.count(PROBLEMS[0])) == (0, 1)
    assert json.loads(ended.out)["configuration"]["source"] == "last-valid"
    after = state_of(applied)
    assert len(before) - len(after) == 1
    assert after[TIER]["CPUWeight"] < before[TIER]["CPUWeight"]


def test_delete_all_leaves_nothing(applied, podslice, here):
    assert podslice("delete", "--all").code == 0
    assert state_of(applied) == {}
    assert not (here / "run-False").exists()


SETS = [
    "apply -f web.yaml",
    "plan -f web.yaml",
    "check -f web.yaml",
    "explain -f web.yaml",
    "render -f web.yaml",
    "cgroup-parent -f web.yaml web",
    "run web -c main -- true",
    "adopt web -c main 1",
    "phase shop running",
    "agent",
]


@pytest.mark.parametrize("verb", SETS)
def test_a_verb_that_sets_values_refuses(applied, podslice, verb):
    before = state_of(applied)
    ended = podslice(*verb.split())
    assert (ended.code, ended.out) == (2, "")
    for problem in PROBLEMS:
        assert ended.err.count(problem) == 1
    assert state_of(applied) == before


@pytest.fixture
def unknown(applied, here):
    """No last valid configuration is recorded, and the pods lie where the default one has them."""
    (here / "run-False/configuration.json").write_text("{")


def test_without_a_record_the_default_configuration_is_used(podslice, memory, configure):
    configure(INVALID)
    ended = podslice("status", "-o", "json")
    assert json.loads(ended.out)["configuration"]["source"] == "default"
    assert "no valid configuration is recorded; this command uses the default one" in ended.err


def test_delete_does_not_act_below_another_control_group(unknown, applied, podslice):
    before = state_of(applied)
    ended = podslice("delete", "--all")
    assert ended.code == 1
    assert "use --set cgroup-root=/elsewhere" in ended.err
    assert state_of(applied) == before


def test_with_an_assumed_configuration_delete_only_stops(unknown, applied, podslice):
    before = state_of(applied)
    ended = podslice("delete", "web", "--set=cgroup-root=/elsewhere")
    assert ended.code == 0
    assert "the values of other units change with the next podslice apply" in ended.err
    after = state_of(applied)
    assert len(before) - len(after) == 1
    assert all(before[name] == values for name, values in after.items())
    assert podslice("delete", "--all", "--set=cgroup-root=/elsewhere").code == 0
    assert state_of(applied) == {}


def test_a_wrong_flag_is_refused(applied, podslice):
    ended = podslice("status", "--set=rules=none")
    assert (ended.code, ended.out) == (2, "")
    assert "--set rules: " in ended.err
    assert PROBLEMS[0] in ended.err


def test_the_file_of_the_config_option_must_be_valid(applied, podslice, files):
    files({"own.toml": INVALID})
    assert podslice("status", "--config=own.toml").code == 2


def test_a_corrected_configuration_counts_at_once(applied, podslice, configure):
    configure(VALID)
    ended = podslice("status", "-o", "json")
    assert ended.code == 0
    assert "configuration" not in json.loads(ended.out)


def test_flags_are_not_recorded(memory, podslice, files, here):
    files({"web.yaml": manifest("web")})
    assert podslice("apply", "-f", "web.yaml", "--set=cpu-weight-mapping=oci").code == 0
    assert Store(here / "run-False").options() == {}


def test_problems_of_manifests_are_reported_with_those_of_the_configuration(
    applied, podslice, files
):
    files({"bad.yaml": "kind: Pood\n"})
    ended = podslice("plan", "-f", "bad.yaml")
    assert ended.code == 2
    assert PROBLEMS[0] in ended.err
    assert "'Pood'" in ended.err
