"""The budget of a load, and the work between two pauses."""

import gc
import json

import pytest

from podslice.errors import InputError
from podslice.inputs.budget import (
    DIRECTIVES_MAX,
    LIMITS,
    TEXT_BYTES_MAX,
    Budget,
    BudgetItem,
    Exhausted,
)
from podslice.inputs.manifest import parse
from podslice.inputs.manifest.load import load_pods, load_text
from podslice.inputs.manifest.parse import read_documents


def budget(**most):
    """A budget with some limits, by their names in lower case."""
    return Budget(
        limits={**LIMITS, **{BudgetItem[name.upper()]: number for name, number in most.items()}}
    )


def problem_of(data, name="a.yaml"):
    """The problem at which reading a text stops."""
    try:
        for _ in parse.read_documents(data, name, budget()):
            pass
    except InputError as error:
        return error.problems[0]


def documents_of(source):
    return [
        each.value for each in parse.read_documents(source.encode(), "a.json", budget()) if each
    ]


def count_values(source):
    """The number of values of a text: the smallest budget that suffices to read it."""
    used = budget()
    list(read_documents(source.encode(), "a.yaml", used))
    less = budget(values=used.used[BudgetItem.VALUES] - 1)
    with pytest.raises(Exhausted, match=f"more than {used.used[BudgetItem.VALUES] - 1} values"):
        list(read_documents(source.encode(), "a.yaml", less))
    return used.used[BudgetItem.VALUES]


def test_an_alias_counts_as_the_values_that_it_refers_to():
    assert count_values("a: &a [1, 2]\nb: &b [*a, *a]\nc: [*b, *b]\n") == 1 + 3 + 7 + 15


def test_merged_keys_are_counted():
    source = "a: &a {x: 1, y: 2}\nb: {<<: *a}\nc: {<<: *a}\n"
    assert count_values(source) == 1 + 3 + 2 * (1 + 3 + 2)


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_values_are_counted_over_all_documents_of_all_files(name):
    spent = budget(values=10)
    data = b'{"a": [1, 2]}' if name == "a.json" else b"a: [1, 2]\n---\n"
    for _ in range(2):
        list(parse.read_documents(data, name, spent))
    with pytest.raises(Exhausted):
        list(parse.read_documents(data, name, spent))


def test_flow_yaml_is_charged_once():
    spent = budget()
    assert [each.value for each in parse.read_documents(b"{a: 1,}", "a", spent)] == [{"a": "1"}]
    assert spent.used[BudgetItem.VALUES] == 2


@pytest.mark.parametrize(
    "source",
    [
        b"#" * (2 * TEXT_BYTES_MAX),
        b"# x\n" * TEXT_BYTES_MAX,
        b"\n" * (2 * TEXT_BYTES_MAX),
        b"a: '" + b"x" * (2 * TEXT_BYTES_MAX) + b"'",
        b"a: |\n" + b"  x\n" * TEXT_BYTES_MAX,
        b"a\n" * TEXT_BYTES_MAX,
    ],
    ids=["comment", "comments", "empty lines", "quoted", "block", "plain"],
)
def test_the_text_between_two_values_is_limited(source):
    """The parser can't be interrupted before the next value."""
    problem = problem_of(source)
    assert problem.message == "there is more than 1 MiB in one value, or without a value"


def test_many_long_values_are_read():
    source = b"".join(b"a%d: '" % n + b"x" * (TEXT_BYTES_MAX // 2) + b"'\n" for n in range(5))
    assert problem_of(source) is None


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029"])
def test_directives_are_limited(end):
    """PyYAML compares each with all earlier ones."""
    lines = (f"%TAG !t{n}! t{end}" for n in range(2 * DIRECTIVES_MAX + 2000))
    problem = problem_of(f"{''.join(lines)}--- a\n".encode())
    assert problem.message == "there are more than 1,000 directives (%)"


def test_directives_are_counted_from_one_value_to_the_next():
    every = b"%YAML 1.1\n---\na: 1\n...\n" * (2 * DIRECTIVES_MAX)
    assert problem_of(every) is None


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        ("[" + "1,\n" * 90_000 + "x]", 90_001, "not valid JSON: expecting value"),
        ('{"a": [' + "1,\n" * 90_000 + "1]", 90_001, "not valid JSON: expecting ',' delimiter"),
        ('{"a"' + " " * 70_000 + ", 1}", 1, "not valid JSON: expecting ':' delimiter"),
        ("[" * 200_000, None, "nested too deep"),
        ('["' + "A" * (2**20 + 1) + '"]', None, "a value is longer than 1 MiB"),
    ],
)
def test_problems_in_large_json_have_their_line(source, line, message):
    problem = problem_of(source.encode(), "a.json")
    assert problem.message.startswith(message)
    assert problem.where == ("" if line is None else f"line {line}")


@pytest.mark.parametrize("source", ["[" + " " * 70_000 + "]", "{" + " " * 70_000 + "}"])
def test_large_json_may_be_empty(source):
    assert documents_of(source) == [json.loads(source)]


def test_a_duplicate_key_in_large_json_is_reported_once():
    source = '{"x": {"c": 1, "c": 2}, "y": [' + "1," * 90_000 + "1]}"
    found = filter(None, parse.read_documents(source.encode(), "a.json", budget()))
    assert [len(document.problems) for document in found] == [1]


def test_the_problems_of_a_document_are_limited():
    """The pods of a list share them, and are charged for them once."""
    source = "{" + '"k": 1, ' * 2_000 + '"k": 2}'
    for name in ("a.json", "a.yaml"):
        assert (
            "there are more than 50 problems in this document"
            in problem_of(source.encode(), name).message
        )


@pytest.mark.parametrize("place", ["name", "namespace", "container"])
def test_replicas_do_not_multiply_a_long_name(place):
    long = {"name": "web", "namespace": "shop", "container": "nginx", place: "a" * 100_000}
    container = {"name": long["container"]}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": long["name"], "namespace": long["namespace"]},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [container]}}},
    }
    loaded = load_pods(["-"], stdin=json.dumps(manifest).encode)
    (problem,) = loaded.all_problems
    assert "is not a valid" in problem.message
    for pod in loaded.pods:
        assert len(f"{pod.key} {pod.containers[0].name}") < 300


@pytest.mark.parametrize("part", ["requests", "limits"])
def test_a_long_resource_name_is_truncated_in_its_address(part):
    container = {"name": "nginx", "resources": {part: {"a" * 100_000: "1"}}}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [container]},
    }
    loaded = load_pods(["-"], stdin=json.dumps(manifest).encode)
    assert loaded.all_problems
    assert max(len(str(problem)) for problem in loaded.all_problems) < 300


def test_problems_leave_no_cycles_for_the_garbage_collector():
    """The agent disables the collector while it reads, and would free all cycles in one turn."""
    mistakes = ", ".join(f"memory{number}: 5x" for number in range(50))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "app"}]},
    }
    text = json.dumps(pod).replace('"app"', f'"app", resources: {{limits: {{{mistakes}}}}}')
    gc.collect()
    gc.disable()
    try:
        loaded = load_text(text.encode(), "a.yaml", budget())
        left = gc.collect()
    finally:
        gc.enable()
    assert len(loaded.all_problems) > 40
    assert left < 10
