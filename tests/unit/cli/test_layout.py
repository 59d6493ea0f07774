"""Tables within a width: what is dropped, what is shortened, and how names remain different."""

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.cli.views.layout import Align, Column, Shorten, fold, table
from podslice.cli.views.style import ColorMode, Display, Role, Styled, bar, is_colored
from podslice.cli.views.text_width import shorten_end, shorten_middle, width_of

NAME = Column(title="NAME", min_width=8, shorten=Shorten.MIDDLE)
STATE = Column(title="STATE", drop=2)
TASKS = Column(title="TASKS", drop=1, align=Align.RIGHT)
NOTE = Column(title="NOTE", min_width=6)
COLUMNS = (NAME, STATE, TASKS, NOTE)
ROWS = [("default/web-1", "active", "3", "restarts often"), ("default/web-2", "", "12", "")]
FULL = """\
NAME           STATE   TASKS  NOTE
default/web-1  active      3  restarts often
default/web-2             12
""".splitlines()


def lines(width, columns=COLUMNS, rows=ROWS):
    return list(table(columns, rows, Display(width=width)))


@pytest.mark.parametrize("width", [None, 44, 200])
def test_a_table_that_fits_is_complete(width):
    assert lines(width) == FULL


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (43, ["NAME           STATE   TASKS  NOTE", "default/web-1  active      3  restarts oft…"]),
        (36, ["NAME           STATE   TASKS  NOTE", "default/web-1  active      3  resta…"]),
        (35, ["NAME          STATE   TASKS  NOTE", "defaul…web-1  active      3  resta…"]),
        (31, ["NAME      STATE   TASKS  NOTE", "defa…b-1  active      3  resta…"]),
        (30, ["NAME           STATE   NOTE", "default/web-1  active  restar…"]),
        (24, ["NAME      STATE   NOTE", "defa…b-1  active  resta…"]),
        (23, ["NAME           NOTE", "default/web-1  restart…"]),
        (16, ["NAME      NOTE", "defa…b-1  resta…"]),
        (10, ["NAME  NOTE", "de…1  res…"]),
        (4, ["…  …", "…  …"]),
    ],
)
def test_columns_are_shortened_and_then_dropped(width, expected):
    assert lines(width)[:2] == expected


def test_a_table_may_have_no_head_an_indent_and_no_rows():
    assert list(table((STATE,), [("a",)], Display(), indent="  ", has_head=False)) == ["  a"]
    assert list(table((STATE,), [], Display())) == ["STATE"]
    assert list(table((STATE,), [], Display(), has_head=False)) == []


def test_control_characters_are_escaped_and_wide_ones_have_their_width():
    rows = [("日本語", "a\x1b[31m"), ("e\u0301", "x")]
    assert lines(None, (STATE, NOTE), rows) == [
        "STATE   NOTE",
        "日本語  a\\x1b[31m",
        "e\u0301       x",
    ]
    shown = lines(14, (STATE, NOTE), rows)
    assert shown[1] == "日本語  a\\x1b…"
    assert [width_of(line) for line in shown] == [12, 14, 9]


def test_cells_are_colored_without_their_spaces():
    rows = [(Styled("ok", Role.GOOD), "1"), (Styled("", Role.GOOD), "2")]
    colored = Display(is_colored=True)
    assert list(table((STATE, TASKS), rows, colored, has_head=False)) == [
        "\x1b[32mok\x1b[0m  1",
        "    2",
    ]
    assert list(table((STATE, TASKS), rows, Display()))[1:] == ["ok         1", "           2"]
    assert "\x1b[1mSTATE\x1b[0m" in next(table((STATE,), [], colored))


@pytest.mark.parametrize(
    ("texts", "width", "shown"),
    [
        (["default/web-1", "default/web-2"], 13, ["default/web-1", "default/web-2"]),
        (["default/web-1", "default/web-2"], 8, ["defa…b-1", "defa…b-2"]),
        (["default/web-1", "a"], 8, ["defa…b-1", "a"]),
        # the difference is where the middle would be cut
        (["kube-1-of-the-nodes", "kube-2-of-the-nodes"], 9, ["kube-1…es", "kube-2…es"]),
        (["the-nodes-kube-1-of", "the-nodes-kube-2-of"], 9, ["the-…1-of", "the-…2-of"]),
        # it is too far from both ends
        (["a" * 20 + "-1-" + "b" * 20, "a" * 20 + "-2-" + "b" * 20], 9, ["…a-1-bbb…", "…a-2-bbb…"]),
        (["日本語日本語-1", "日本語日本語-2"], 9, ["日本…語-1", "日本…語-2"]),
        (["日本語日本語-1", "日本語日本語-2"], 8, ["日本…-1", "日本…-2"]),
        (["aaa", "aaa"], 2, ["a…", "a…"]),
        # what indents them remains
        (["    default/web-1", "    default/web-2"], 11, ["    d…web-1", "    d…web-2"]),
        (["│  ├─ default/web-1", "│  └─ default/web-2"], 12, ["│  ├─ …web-1", "│  └─ …web-2"]),
        (
            ["  " + "a" * 20 + "-1-x" + "b" * 20, "  " + "a" * 20 + "-2-x" + "b" * 20],
            12,
            ["  …aa-1-xbb…", "  …aa-2-xbb…"],
        ),
        ([], 5, []),
    ],
)
def test_names_are_shortened_where_they_do_not_differ(texts, width, shown):
    assert shorten_middle(texts, width) == shown


def test_the_end_of_a_name_begins_with_a_word():
    names = [f"default/team-a-service-{number}-of-the-shop" for number in (40, 43, 46)]
    shown = [f"default/t…{number}-of-the-shop" for number in (40, 43, 46)]
    assert shorten_middle(names, 24) == shown


@given(st.lists(st.text("ab-", min_size=1, max_size=40), max_size=40), st.integers(6, 40))
def test_different_names_remain_different(texts, width):
    shown = shorten_middle(texts, width)
    assert len(set(shown)) == len(set(texts))
    assert max(map(width_of, shown), default=0) <= width


@given(st.text(max_size=20), st.integers(0, 30))
def test_no_text_is_wider_than_it_may_be(text, width):
    assert width_of(shorten_end(text, width)) <= width
    assert width_of(shorten_middle([text], width)[0]) <= width


@given(
    st.lists(st.tuples(*[st.text(max_size=30)] * 4), min_size=1, max_size=8), st.integers(1, 120)
)
def test_no_line_is_wider_than_the_terminal(rows, width):
    assert max(map(width_of, lines(width, rows=rows))) <= width


def test_sentences_are_folded_between_words():
    text = "to readmit it: podslice readmit default/a-long-name"
    display = Display(width=20)
    assert list(fold(text, display, indent="- ", hanging="  ")) == [
        "- to readmit it:",
        "  podslice readmit",
        "  default/a-long-name",
    ]
    assert list(fold(text, Display(), indent="- ")) == [f"- {text}"]
    assert list(fold("", display)) == [""]


@pytest.mark.parametrize(
    ("mode", "environment", "is_terminal", "expected"),
    [
        ("auto", {"TERM": "xterm"}, True, True),
        ("auto", {"TERM": "xterm"}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {}, True, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": "0"}, True, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ("always", {"TERM": "dumb", "NO_COLOR": "1"}, False, True),
        ("never", {"TERM": "xterm"}, True, False),
    ],
)
def test_when_colors_are_used(mode, environment, is_terminal, expected):
    assert is_colored(ColorMode(mode), environment, is_terminal=is_terminal) is expected


@pytest.mark.parametrize(
    ("part", "whole", "shown", "role"),
    [
        (0, 10, "░░░░", Role.GOOD),
        (9, 1000, "░░░░", Role.GOOD),
        (10, 1000, "█░░░", Role.GOOD),
        (5, 10, "██░░", Role.GOOD),
        (8, 10, "███░", Role.WARNING),
        (999, 1000, "███░", Role.ERROR),
        (10, 10, "████", Role.ERROR),
        (20, 10, "████", Role.ERROR),
        (1, 0, "░░░░", Role.GOOD),
    ],
)
def test_a_bar_shows_the_part(part, whole, shown, role):
    assert bar(part, whole, width=4) == Styled(shown, role)
