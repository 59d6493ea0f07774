"""Values as YAML and TOML, which libraries read as the same values, and as systemd shows them."""

import tomllib

import pytest
import yaml

from podslice.model.properties import PROPERTIES, format_value
from podslice.model.quantity import format_bytes
from podslice.model.unit import INFINITY
from tests.cases.tables import cases
from tests.unit.ansible.conftest import utility

rendering = utility("rendering")
changes = utility("changes")

VALUES = [
    {"a": 1, "b": [1, "x", {"c": None, "d": [[], {}]}], "e": {"f": {"g": True}}},
    {"yes": "no", "null": "~", "n": "y", "1": "1", "": "", " a ": "a: b", "#": "- x"},
    {"quantity": ["500m", "1Gi", "2", "1e3", "0x1", "1_000", "12:30", "50%", "1.5", "1K", "12E"]},
    {"text": "line\nline\n", "tab": "\t", "bell": "\x07", "del": "\x7f\x85", "lines": "\u2028"},
    {"name": "ünï", "emoji": "🐧", "quote": "\"'\\", "bom": "\ufeff"},
    ["a", ["b", ["c"]], {"d": "e"}],
    [],
    {},
    "text",
    None,
    -1.5,
]


@pytest.mark.parametrize("value", VALUES)
def test_yaml_is_read_as_the_same_value(value):
    assert yaml.safe_load(rendering.to_yaml(value)) == value


def test_yaml_is_for_people():
    value = {"kind": "Pod", "spec": {"containers": [{"name": "a", "args": ["x y"]}]}, "cpu": "500m"}
    assert rendering.to_yaml(value, {"spec": "why"}) == (
        'kind: Pod\nspec:  # why\n  containers:\n    - name: a\n      args:\n        - "x y"\n'
        "cpu: 500m\n"
    )


@cases
def test_toml_is_read_as_the_same_value(value):
    assert tomllib.loads(rendering.to_toml(value)) == value


@pytest.mark.parametrize("number", [1, 1023, 1024, 1536, 2**20, 3 * 2**30, 128_000_000, 2**62])
def test_amounts_are_those_of_podslice(number):
    assert str(rendering.format_value("MemoryMax", number)) == format_bytes(number)


MANAGED = sorted(name for name, row in PROPERTIES.items() if row.managed)


@pytest.mark.parametrize("name", MANAGED)
@pytest.mark.parametrize("value", [250_000, 1_234_500, 2**31])
def test_properties_are_as_podslice_shows_them(name, value):
    """Their keys are those of unit files, so that no row of the table is forgotten."""
    assert rendering.key_of(name) == PROPERTIES[name].key
    unset = PROPERTIES[name].unset
    if isinstance(unset, int):
        raw = "infinity" if unset == INFINITY else unset
        if name != "ManagedOOMMemoryPressureLimit":
            assert rendering.format_value(name, raw) == "unset" == format_value(name, unset)
        assert str(rendering.format_value(name, value)) == format_value(name, value)


def test_other_values_stay():
    assert rendering.format_value("MemoryMax", "infinity") == "unset"
    assert rendering.format_value("MemoryLow", "infinity") == "infinity"
    assert rendering.format_value("MemoryLow", 0) == "unset"
    assert rendering.format_value("ManagedOOMSwap", "kill") == "kill"
    assert rendering.format_value("AllowedCPUs", "") == "unset"
    assert rendering.format_value("AllowedCPUs", "0-3") == "0-3"
    assert rendering.format_value("hugetlb.2MB.max", 2**21) == "2Mi"


def test_a_step_that_stops_a_unit_shows_its_processes():
    step = {"action": "stop", "unit": "a.slice", "properties": [], "tasks": 2, "occupants": []}
    found = changes.unit_diff([step, {**step, "unit": "b.slice", "tasks": 0}])
    assert found["before"] == 'a.slice:\n  processes:\n    - "2 tasks"\nb.slice: {}\n'
    assert found["after"] == ""
    assert changes.stops_of([step])[0]["processes"] == ["2 tasks"]
