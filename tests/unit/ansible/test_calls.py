"""Calls of podslice: versions, documents, errors, and the environment of a connection."""

import json
from contextlib import suppress

import pytest

from podslice import __version__
from tests.cases.tables import cases
from tests.unit.ansible.conftest import utility, with_defaults

calls = utility("podslice")
Ended, Failure = calls.Ended, calls.Failure
PARAMETERS = {"executable": "/usr/bin/podslice", "scope": "system", "cgroup_root": None}


def answering(*replies, **parameters):
    """Return a podslice that gives these answers, and the words of its calls."""
    words, left = [], [*replies]

    def run(given, text):
        words.append(given)
        return left.pop(0)

    return calls.Podslice(run, {**PARAMETERS, **parameters}), words


def test_common_options_are_passed():
    podslice, words = answering(Ended(0, '{"version": 1}', ""), scope="user", cgroup_root="/x")
    podslice.read("plan", "-f", "-")
    assert words == [
        ["/usr/bin/podslice", "plan", "-f", "-", "--user", "--set=cgroup-root=/x", "--output=json"]
    ]


def test_the_collection_requires_no_later_version_than_its_own():
    assert calls.is_new_enough(__version__)


@cases
def test_versions_are_compared_as_numbers(version, required, is_enough):
    assert calls.is_new_enough(version, required) == is_enough


def test_an_old_version_is_named_with_the_way_to_upgrade():
    podslice, words = answering(Ended(0, "podslice 0.0.9\n", ""))
    with pytest.raises(Failure) as caught:
        podslice.require_version()
    message = caught.value.message
    assert "podslice 0.0.9 (/usr/bin/podslice) is too old" in message
    assert f"requires {calls.REQUIRED_VERSION} or later" in message
    assert "podslice.host.host" in message
    assert caught.value.facts["podslice_version"] == "0.0.9"
    assert words == [["/usr/bin/podslice", "--version"]]


@pytest.mark.parametrize("out", ["", "usage: podslice", "podslice\n"])
def test_another_program_of_that_name(out):
    podslice, _ = answering(Ended(1, out, "what?"))
    with pytest.raises(Failure, match="does not print the version") as caught:
        podslice.require_version()
    assert caught.value.facts["stderr"] == "what?"


def test_a_missing_program(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(calls, "OTHER_DIRECTORIES", (str(tmp_path / "bin"),))
    with pytest.raises(Failure, match="there is no podslice in PATH; install the package"):
        calls.find_executable("podslice")
    with pytest.raises(Failure, match="there is no /none/podslice; install"):
        calls.find_executable("/none/podslice")
    program = tmp_path / "bin/podslice"
    program.parent.mkdir()
    program.touch(mode=0o755)
    assert calls.find_executable("podslice") == str(program)


def test_documents_of_another_version_are_refused():
    podslice, _ = answering(Ended(0, '{"version": 2}', ""))
    with pytest.raises(Failure, match="of version 2, and this collection reads version 1"):
        podslice.read("plan")


@pytest.mark.parametrize("out", ["", "nonsense", "[]"])
def test_a_call_without_a_document_fails(out):
    podslice, _ = answering(Ended(1, out, "error: no bus; start it\n"))
    with pytest.raises(Failure, match="podslice plan failed: no bus; start it") as caught:
        podslice.read("plan", accept=(0, 1))
    assert caught.value.facts["rc"] == 1


def test_an_error_without_a_message_names_the_exit_code():
    podslice, _ = answering(Ended(137, "", ""))
    with pytest.raises(Failure, match="exit code 137 and without a message"):
        podslice.read("plan")


def test_problems_of_documents_and_lines_are_listed_once():
    problem = {"severity": "error", "where": "a", "message": "is wrong", "hint": "write b"}
    document = json.dumps({"problems": [problem], "pods": [{"problems": [problem]}]})
    failure = calls.failure_of(("check",), Ended(2, document, "warning: odd\nerror: bad\n"))
    assert failure.message == "podslice check failed:\n- a: is wrong; write b\n- bad"
    assert [each["severity"] for each in failure.facts["problems"]] == ["error", "warning", "error"]


def test_the_document_of_an_error_is_a_failure_with_each_problem_once():
    problem = {"severity": "error", "where": "--set", "message": "wrong", "hint": "remove it"}
    text = json.dumps({"version": 1, "problems": [problem]})
    ended = Ended(2, text, "error: --set: wrong; remove it\n")
    podslice, _ = answering(ended)
    with pytest.raises(Failure) as caught:
        podslice.read("node", "init", accept=(0, 1, 2))
    assert caught.value.message == "podslice node failed: --set: wrong; remove it"
    assert caught.value.facts["problems"] == [problem]
    assert calls.parse_document(text) is None


def test_a_connection_without_a_login_gets_the_session(monkeypatch):
    monkeypatch.setattr(calls.os.path, "isdir", lambda path: path == "/run/user/7")
    added = {"LC_ALL": "C.UTF-8"}
    with_session = {**added, "XDG_RUNTIME_DIR": "/run/user/7"}
    assert calls.environment_of("user", {}, 7) == with_session
    assert calls.environment_of("user", {"XDG_RUNTIME_DIR": "/x"}, 7) == added
    assert calls.environment_of("user", {}, 8) == added
    assert calls.environment_of("system", {}, 7) == added


DEEP = "[" * 100_000 + "]" * 100_000
ANSWERS = (
    *("[]", "5", "null", '"a"', DEEP, f'{{"version": 1, "units": {DEEP}}}', '{"version": 1}'),
    *(
        json.dumps({"version": 1, **dict.fromkeys(NAMES, value)})
        for NAMES in (
            *(("units",), ("steps",), ("pods",), ("problems", "units"), ("files",), ("evicted",)),
            *(("steps", "skipped", "refused"), ("units", "evicted", "others"), ("lines", "slice")),
        )
        for value in (5, "a", None, [5], [None], ["a"], [[]], {"a": 1}, [{}], float("inf"))
    ),
)
TASKS = {
    "cgroup_parent": {"pod": "shop/web"},
    "info": {"gather": ["version", "node", "pods", "status", "doctor", "usage"]},
    "node": {},
    "pods": {"definition": {"kind": "Pod", "metadata": {"name": "a"}}},
    "pods absent": {"state": "absent", "name": "a"},
    "config": {"settings": {"max-pods": 5}},
}


@cases
def test_an_answer_of_another_form_is_a_failure(task, tmp_path):
    """Every verb answers the same document, and ends with each exit code."""
    logic = utility(task.split()[0])
    common = {**calls.COMMON_ARGUMENTS, **logic.ARGUMENTS}
    wanted = with_defaults(common, TASKS[task])
    if "directory" in wanted:
        wanted["directory"] = str(tmp_path)
    for answer in ANSWERS:
        for code in (0, 1, 2, 3):

            def run(words, text, answer=answer, code=code):
                is_version = words[1:] == ["--version"]
                return (
                    Ended(0, f"podslice {__version__}", "")
                    if is_version
                    else Ended(code, answer, "")
                )

            podslice = calls.Podslice(run, wanted)
            with suppress(Failure):
                calls.run_logic(logic.run, {**wanted}, podslice, check_mode=True)


def test_a_document_that_ansible_could_not_pass_on_is_none():
    for levels, is_read in ((calls.DEPTH_MAX - 1, True), (calls.DEPTH_MAX, False)):
        text = f'{{"a": {"[" * levels}{"]" * levels}}}'
        assert (calls.parse_document(text) is not None) is is_read


def test_an_unexpected_type_is_named_with_the_verb():
    def read(wanted, podslice, *, check_mode):
        return podslice.read("status")["units"]

    podslice, _ = answering(Ended(0, '{"version": 1}', ""))
    with pytest.raises(Failure) as caught:
        calls.run_logic(read, {}, podslice, check_mode=False)
    assert caught.value.message == (
        "an option of the task, or what podslice status printed, has a value of an unexpected type:"
        " KeyError('units'); use the collection of the version of podslice"
    )
    assert "Traceback" in caught.value.facts["exception"]


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"items": [value]}
    return value


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("pods", {"definition": nested(5000)}, "definition is nested too deeply"),
        (
            "pods",
            {"definition": nested(5000), "namespace": "shop"},
            "definition is nested too deeply",
        ),
        ("config", {"settings": {"a": nested(5000)}}, "settings are nested too deeply"),
    ],
)
def test_a_task_that_is_nested_too_deeply(name, given, message):
    logic = utility(name)
    wanted = with_defaults({**calls.COMMON_ARGUMENTS, **logic.ARGUMENTS}, given)
    podslice, _ = answering(Ended(0, f"podslice {__version__}", ""))
    with pytest.raises(Failure, match=message):
        calls.run_logic(logic.run, wanted, podslice, check_mode=False)
