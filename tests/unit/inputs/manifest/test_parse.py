from dataclasses import dataclass, field

import pytest
import yaml

from podslice.errors import InputError
from podslice.inputs.budget import Budget
from podslice.inputs.manifest import parse
from podslice.inputs.scalars import Boolean, Number
from tests.cases.tables import cases


@pytest.fixture(autouse=True, params=["c", "python"])
def parser(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(parse, "YAML_LOADER", yaml.SafeLoader)
    return request.param


@dataclass
class Texts:
    """The documents of a text, and the problem at which reading stopped."""

    documents: list = field(default_factory=list)
    problem: object = None


def read_documents(data, name):
    texts = Texts()
    try:
        for document in parse.read_documents(data, name, Budget()):
            if document is not None:
                texts.documents.append(document)
    except InputError as error:
        (texts.problem,) = error.problems
    return texts


def values(data, name="a.yaml"):
    texts = read_documents(data.encode(), name)
    assert texts.problem is None
    assert all(not document.problems for document in texts.documents)
    return [document.value for document in texts.documents]


def problems_of(data):
    (document,) = read_documents(data.encode(), "a.yaml").documents
    return [(problem.where, problem.message) for problem in document.problems]


def test_the_c_parser_is_used_if_available(parser):
    if parser == "c" and yaml.__with_libyaml__:
        assert parse.YAML_LOADER is yaml.CSafeLoader


@cases
def test_same_structure_as_pyyaml(source):
    """Unambiguous values are those of PyYAML, with scalars as text."""

    def as_text(value):
        if isinstance(value, dict):
            return {str(key): as_text(item) for key, item in value.items()}
        if isinstance(value, list):
            return [as_text(item) for item in value]
        if isinstance(value, bool):
            return {True: "yes", False: "no"}[value]
        return value if value is None else str(value)

    assert values(source) == [as_text(v) for v in yaml.load_all(source, yaml.SafeLoader)]


def test_scalars_keep_their_text():
    (value,) = values("a: 0.10\nb: '0.10'\nc: on\nd: ~\ne: 0.1\n")
    assert {key: type(item) for key, item in value.items()} == {
        "a": Number,
        "b": str,
        "c": Boolean,
        "d": type(None),
        "e": Number,
    }
    assert value["a"] == "0.10"


def test_tags_of_the_core_schema_choose_the_type():
    (value,) = values("a: !!str 1\nb: !!float '1'\nc: !!bool yes\nd: !!null x\ne: !!binary aa==\n")
    assert [type(item) for item in value.values()] == [str, Number, Boolean, type(None), str]


def test_aliases_are_references_and_never_copies():
    (value,) = values("a: &a [x]\nb: *a\nc: {d: *a}\n")
    assert value["a"] is value["b"] is value["c"]["d"]


def test_alias_as_key():
    assert values("- &a key\n- *a : value\n") == [["key", {"key": "value"}]]


def test_anchor_may_be_redefined_and_ends_with_the_document():
    assert values("- &a 1\n- &a 2\n- *a\n") == [["1", "2", "2"]]
    problem = read_documents(b"- &a 1\n---\n- *a\n", "a.yaml").problem
    assert str(problem) == "line 3: there is no anchor for the alias '*a'"


def test_own_keys_win_over_merged_ones_in_any_order():
    source = "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc: {x: 3, <<: [*a, *b]}\n"
    assert values(source)[0]["c"] == {"x": "3", "y": "1", "z": "2"}


def test_quoted_merge_key_is_a_key():
    assert values("'<<': {a: 1}\n") == [{"<<": {"a": "1"}}]


def test_duplicate_keys_are_reported_and_the_first_one_wins():
    source = "a: 1\nb: 2\na: 3\n? b\n: 4\n"
    assert problems_of(source) == [("line 3", "duplicate key 'a'"), ("line 4", "duplicate key 'b'")]
    assert read_documents(source.encode(), "a.yaml").documents[0].value == {"a": "1", "b": "2"}


def test_same_key_in_different_mappings_is_not_a_duplicate():
    assert values("a: {x: 1}\nb: {x: 1}\n") == [{"a": {"x": "1"}, "b": {"x": "1"}}]


def test_empty_documents_are_ignored():
    assert values("---\n---\na: 1\n---\n# only a comment\n") == [{"a": "1"}]
    assert values("") == []


def test_documents_before_an_error_are_kept():
    texts = read_documents(b"a: 1\n---\nb: [\n", "a.yaml")
    assert [document.value for document in texts.documents] == [{"a": "1"}]
    assert texts.problem.where.startswith("line ")


@pytest.mark.parametrize("source", ["\ufeffa: 1\n", "a: 1\r\n", "a:   1   \n"])
def test_byte_order_mark_carriage_return_and_spaces_are_ignored(source):
    assert values(source) == [{"a": "1"}]


@pytest.mark.parametrize("name", ["a.json", "a.yaml", "stdin"])
def test_json(name):
    source = '\ufeff {"a": [1, 1.50, "x", true, null, {"b": -1e3}]} {"c": 1}\n[]'
    expect = [{"a": ["1", "1.50", "x", True, None, {"b": "-1e3"}]}, {"c": "1"}, []]
    assert values(source, name) == expect


def test_flow_yaml_that_is_not_json_is_yaml_unless_the_name_ends_in_json():
    assert values("{a: 1,}\n---\n{b: 2}\n") == [{"a": "1"}, {"b": "2"}]
    assert values('{"a": 1,}\n') == [{"a": "1"}]
    assert read_documents(b"{a: 1,}", "a.json").problem.where == "line 1"


def test_duplicate_keys_in_json_are_reported():
    (document,) = read_documents(b'{"a": 1, "b": {"c": 1, "c": 2, "c": 3}}', "a.json").documents
    assert len(document.problems) == 2
