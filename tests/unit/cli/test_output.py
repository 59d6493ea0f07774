"""The format of lines, numbers and progress."""

import io
import sys

import pytest

from podslice import __version__
from podslice.cli.output import OutputFormat, emit
from podslice.cli.report import PropertyEntry, amounts_entry, part
from podslice.cli.views import status_view, tables
from podslice.cli.views.problem_lines import count_problems, problem_line
from podslice.errors import Problem, Severity
from podslice.kernel.cgroup import Usage
from podslice.model.unit import INFINITY
from tests.unit.builders import amounts, manifest


def test_columns_are_as_wide_as_their_widest_cell():
    rows = [("A", "BBB", "C"), ("AAAA", "B", ""), ("", "", "C")]
    assert list(tables.columns(rows)) == ["A     BBB  C", "AAAA  B", "           C"]


def test_unknown_usage_is_a_dash():
    assert status_view.usage(Usage()) == ("-", "-", "-")


def test_problems_are_escaped():
    problem = Problem(where="a\x1b", message="b\n", hint="c\u202e", severity=Severity.WARNING)
    assert problem_line(problem) == "warning: a\\x1b: b\\n; c\\u202e"


def test_counts_agree_with_their_nouns():
    error, warning = (
        Problem(where="", message=""),
        Problem(where="", message="", severity=Severity.WARNING),
    )
    assert count_problems([error], 1) == "1 pod, 1 error, 0 warnings"
    assert count_problems([error, error, warning], 2) == "2 pods, 2 errors, 1 warning"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(INFINITY, "infinity"), (5, 5), (("a", "b"), ["a", "b"]), (True, True)],
)
def test_values_of_properties_in_documents(value, shown):
    assert part(PropertyEntry(name="a", value=value, why=""))["value"] == shown


def test_amounts_in_documents():
    stated = amounts("cpu=500m,memory=1Ki,ephemeral-storage=1k,pid=7,hugepages-2Mi=4Mi,x.io/gpu=1")
    assert part(amounts_entry(stated)) == {
        "cpu_milli": 500,
        "memory_bytes": 1024,
        "ephemeral_storage_bytes": 1000,
        "pids": 7,
        "hugepages_bytes": {"2097152": 4194304},
    }


def test_amounts_that_are_not_stated_are_absent():
    assert part(amounts_entry({})) == {}
    assert part(amounts_entry({"cpu": 0})) == {"cpu_milli": 0}


def test_yaml_keeps_the_order_and_the_letters(capsys):
    emit(
        OutputFormat.YAML,
        document=lambda: {"version": 1, "b": "×", "a": [1]},
        lines=lambda _: [],
        names=list,
    )
    assert capsys.readouterr().out == "version: 1\nb: ×\na:\n- 1\n"


# The entry


def test_the_version_is_printed_without_further_imports(main, capsys):
    with pytest.raises(SystemExit) as ended:
        main("--version")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"podslice {__version__}\n"


@pytest.mark.parametrize(("arguments", "code"), [(["node"], 0), (["bogus"], 2)])
def test_the_exit_code_is_that_of_the_verb(main, arguments, code):
    with pytest.raises(SystemExit) as ended:
        main(*arguments)
    assert ended.value.code == code


def test_letters_that_a_locale_does_not_have_are_escaped(main, monkeypatch, files):
    files({"web.yaml": manifest("web", {"cpu": 1})})
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    with pytest.raises(SystemExit) as ended:
        main("explain", "-f", "web.yaml")
    assert ended.value.code == 0
    assert b"requests.cpu 1 \\u2192 1024 shares \\u2192 \xd7100/1024\n" in written.getvalue()


@pytest.mark.parametrize(
    ("arguments", "environment", "is_colored"),
    [
        (["node"], {}, False),
        (["--color=always", "node"], {}, True),
        (["--color", "always", "node"], {}, True),
        (["node", "--color=always"], {"NO_COLOR": "1"}, True),
        (["--color=always", "node", "--color=never"], {}, False),
        (["--color=never", "node", "--color", "always"], {}, True),
    ],
)
def test_color_is_an_option_before_and_after_the_verb(
    podslice, monkeypatch, arguments, environment, is_colored
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ended = podslice(*arguments)
    assert ended.code == 0
    assert ("\x1b[1mRESOURCE\x1b[0m" in ended.out) is is_colored
    assert "\x1b" not in podslice("node").out  # the next call has its own
