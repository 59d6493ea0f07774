"""The screen of `top`: with 3 and 63 pods, on terminals of four widths."""

from dataclasses import replace

import pytest

from podslice.cli.arguments import Sort
from podslice.cli.terminal import Key
from podslice.cli.verbs import top
from podslice.cli.verbs.top import TopState
from podslice.cli.views.style import Display
from podslice.cli.views.text_width import width_of
from podslice.cli.views.usage_table import NODE, NodeSummary, NodeUsage, UsageRow
from podslice.kernel.cgroup import Sample
from podslice.model.unit import UnitName
from tests.unit.cli.verbs.test_top import MI, node

ABOUT = NodeSummary(cpus_milli=8000, conditions=("MemoryPressure",))


def row(name, number=0, **more):
    sample = Sample(working_set_bytes=number * MI, tasks=number)
    return UsageRow(name=name, unit=UnitName(f"{name}.slice"), sample=sample, **more)


def usage(count):
    """Pods of which the first uses most; their names differ before a common end."""
    pods = tuple(
        row(
            f"production/frontend-web-server-{n:02}-with-a-long-suffix",
            n,
            cpu_milli=count - n,
            limit_bytes=64 * MI,
            qos="Burstable",
            containers=(row("main"), row("proxy")),
        )
        for n in range(count)
    )
    groups = (row("kubepods.slice"), row("kubepods-burstable.slice"))
    return NodeUsage(node=replace(row("node"), unit=NODE), groups=groups, pods=pods, stats=node(0))


MANY = usage(63)
PAGE = [f"line {number}" for number in range(8)]


def after(*keys, of=MANY, state=None, width=80, height=24):
    """The frame after these keys, which are drawn one by one as on the screen."""
    state = draw(state or TopState(), of, width, height).state
    for key in keys:
        names = [each.name for each in top.select_pods(of, state).pods]
        state = draw(top.press(state, key, names), of, width, height).state
    return draw(state, of, width, height)


def draw(state, of=MANY, width=80, height=24, **more):
    display = Display(width=width, wide=state.wide, **more)
    if state.shows_help:
        return top.draw_help(state, display, height)
    if state.opened:
        return top.draw_page(state, PAGE, display, height)
    title = top.format_title(state, of, "12:00:00", 2)
    return top.draw_list(state, of, ABOUT, title, display, height)


def selected(frame):
    return frame.lines[frame.marked]


@pytest.mark.parametrize("count", [0, 3, 63])
@pytest.mark.parametrize(("width", "height"), [(60, 20), (80, 24), (120, 40), (200, 50), (20, 5)])
@pytest.mark.parametrize("wide", [False, True])
def test_every_screen_fits(count, width, height, wide):
    state = TopState(wide=wide)
    keys = [
        "?",
        "x",
        "/",
        "w",
        Key.ENTER,
        Key.END,
        Key.ENTER,
        Key.PAGE_DOWN,
        Key.ESCAPE,
        Key.ESCAPE,
    ]
    of = usage(count)
    for pressed in [(), *((key,) for key in keys)]:
        frame = after(*pressed, of=of, state=state, width=width, height=height)
        state = frame.state
        assert len(frame.lines) <= height
        assert max(map(width_of, frame.lines)) <= width


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_pods_with_long_names_remain_different(width):
    frame = draw(TopState(), width=width, height=80)
    names = [line.split()[0] for line in frame.lines if "-with-a-long-suffix" in line]
    assert len(set(names)) == 63


def test_the_first_screen_of_many():
    lines = after().lines
    assert lines[:6] == [
        "12:00:00  63 pods by cpu, every 2 s",
        "cpu        ░░░░░  - / 8        memory   ████░  768 MiB / 1 GiB",
        "processes  ░░░░░  120 / 32768  storage  ███░░  60 GiB / 100 GiB",
        "node conditions: MemoryPressure",
        "",
        "NAME                         CPU / LIMIT       MEM / LIMIT   THROTTLED  PRESSURE",
    ]
    assert lines[6].startswith("node ")
    assert selected(after()) == lines[9]
    assert lines[9].startswith("pro…00-with-a-long-suffix   0.06 / - ")
    assert lines[-1].startswith("1-17 of 66 rows  q quit  ? help  / filter")


def test_the_selection_moves_and_the_list_follows():
    assert "01-with" in selected(after(Key.DOWN))
    assert "00-with" in selected(after(Key.DOWN, Key.UP))
    assert "00-with" in selected(after(Key.UP))
    last = after(Key.END)
    assert "62-with" in selected(last)
    assert last.lines[-1].startswith("50-66 of 66 rows")
    assert after(Key.END, Key.DOWN).lines == last.lines
    page = after(Key.PAGE_DOWN)
    assert "16-with" in selected(page)
    assert page.lines[-1].startswith("4-20 of 66 rows")
    assert after(Key.PAGE_DOWN, Key.PAGE_UP).lines == after().lines
    assert after(Key.END, Key.HOME).lines == after().lines
    # the list scrolls only where the selection would leave it
    assert after(Key.END, Key.UP).lines[-1].startswith("50-66 of 66 rows")


def test_the_selection_stays_with_its_pod_and_otherwise_at_the_top():
    assert "62-with" in selected(after("m"))
    assert "01-with" in selected(after(Key.DOWN, "m"))
    gone = MANY._replace(pods=MANY.pods[5:])
    assert "05-with" in selected(draw(after(Key.DOWN).state, of=gone))


@pytest.mark.parametrize(
    ("key", "sort"),
    [("c", "cpu"), ("m", "memory"), ("t", "throttled"), ("p", "pressure"), ("n", "name")],
)
def test_keys_choose_the_order(key, sort):
    assert after(key).state.sort is Sort(sort)
    assert f"pods by {sort}, every" in after(key).lines[0]


def test_a_filter_selects_pods_while_it_is_typed():
    typing = after("/", *"er-6")
    assert typing.lines[0] == "12:00:00  3 of 63 pods by cpu, every 2 s, filter: er-6"
    assert typing.lines[-1] == "/er-6▏  Enter keep  Esc clear"
    assert "0-with" in selected(typing)
    assert "1-with" in selected(after("/", *"er-6", Key.DOWN))
    assert after("/", *"er-6", Key.BACKSPACE, *"5").lines[0].endswith("filter: er-5")
    kept = after("/", *"q?6", Key.ENTER)
    assert "no pod contains 'q?6'" in kept.lines
    assert kept.lines[-1].startswith("q quit")
    assert kept.marked is None
    assert after("/", *"q", Key.ENTER, Key.ENTER, Key.DOWN).state.opened == ""
    for keys in (("/", *"er-6", Key.ESCAPE), ("/", *"er-6", Key.ENTER, Key.ESCAPE)):
        assert after(*keys).lines == after().lines


def test_enter_opens_the_page_of_a_pod_and_escape_leads_back():
    page = after(Key.DOWN, Key.ENTER)
    assert page.state.opened == "production/frontend-web-server-01-with-a-long-suffix"
    assert page.lines[:8] == PAGE
    assert page.lines[-1] == "q quit  Esc back  ↑ ↓ PgUp PgDn scroll"
    assert after(Key.DOWN, Key.ENTER, Key.ESCAPE).lines == after(Key.DOWN).lines
    # a page that is longer than the screen
    small = {"height": 5, "width": 80}
    assert after(Key.ENTER, **small).lines[-1].startswith("1-4 of 8 rows")
    assert after(Key.ENTER, Key.DOWN, **small).lines[-1].startswith("2-5 of 8 rows")
    assert after(Key.ENTER, Key.PAGE_DOWN, **small).lines[-1].startswith("4-7 of 8 rows")
    assert after(Key.ENTER, Key.END, Key.UP, **small).lines[-1].startswith("4-7 of 8 rows")
    assert after(Key.ENTER, Key.END, Key.HOME, **small).lines == after(Key.ENTER, **small).lines


def test_containers_are_shown_and_remain_below_their_pod():
    wide = after("w", Key.END)
    assert wide.lines[-2].startswith("  proxy ")
    assert "62-with" in selected(wide)
    assert "OOM" in after("w", width=120).lines[5]
    assert after("w", "w").lines == after().lines


def test_help_lists_the_keys():
    page = after("?")
    assert page.lines[0] == "Keys"
    assert any(line.startswith("q Ctrl-C ") for line in page.lines)
    assert after("?", "c").lines == after().lines
    assert after(Key.ENTER, "h").lines == page.lines


def test_an_empty_node_has_a_message():
    lines = after(Key.DOWN, Key.ENTER, of=usage(0)).lines
    assert "no pods" in lines


def test_the_highlighted_row_has_no_colors_and_others_have():
    full = MANY._replace(pods=tuple(replace(pod, limit_bytes=MI) for pod in MANY.pods))
    frame = draw(TopState(sort=Sort.MEMORY), of=full, is_colored=True)
    assert "\x1b" not in selected(frame)
    assert "\x1b[31m" in frame.lines[frame.marked + 1]
