import pytest

from tests.cases.tables import cases

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.model.unit import (
    UNIT_NAME_MAX,
    DesiredUnit,
    PropertyValue,
    UnitDefinition,
    UnitKind,
    UnitName,
    complete_name,
    control_group_of,
    escape_component,
    is_inside,
    is_unit_name,
    mount_name,
    parent_slice,
    slice_name,
)

components = st.lists(st.from_regex(r"[A-Za-z0-9.:-]{1,12}", fullmatch=True), max_size=6)


@given(components)
def test_every_abstract_name_is_a_slice_that_systemd_takes(parts):
    name = slice_name(tuple(parts))
    assert is_unit_name(name)
    assert len(name.encode()) <= UNIT_NAME_MAX


@given(components.filter(bool))
def test_a_slice_lies_in_the_slice_of_its_abstract_parent(parts):
    assert parent_slice(slice_name(tuple(parts))) == slice_name(tuple(parts[:-1]))


@given(components)
def test_the_control_group_is_the_line_of_slices(parts):
    line = [slice_name(tuple(parts[:n])) for n in range(1, len(parts) + 1)]
    assert control_group_of(slice_name(tuple(parts))) == "/" + "/".join(line)


@given(components, components)
def test_different_names_are_different_slices(one, other):
    def unescaped(parts):
        return [part.replace("-", "_") for part in parts]

    same = slice_name(tuple(one)) == slice_name(tuple(other))
    assert same == (unescaped(one) == unescaped(other))


@given(st.text(max_size=20))
def test_what_can_not_be_a_component_is_refused(text):
    try:
        escaped = escape_component(text)
    except ValueError:
        return
    assert is_unit_name(f"{escaped}.slice") or not escaped.strip("_.")


@cases
def test_names_that_systemd_takes(name):
    assert is_unit_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "kubepods",
        ".slice",
        ".scope",
        "a.socket",
        "a@.service",
        "@a.service",
        "-a.mount",
        "a--b.mount",
        "-.mount",
        "a b.slice",
        "a/b.slice",
        "é.slice",
        "\udcff.slice",
        "a\n.slice",
        "-a.slice",
        "a-.slice",
        "a--b.slice",
        "--.slice",
        "-.scope.",
        "x" * 250 + ".slice",
    ],
)
def test_names_that_systemd_refuses(name):
    assert not is_unit_name(name)


@cases
def test_parents(name, parent):
    assert parent_slice(UnitName(name)) == parent


@cases
def test_mounts_are_named_as_systemd_escape_does_it(path, name):
    assert mount_name(path) == name


@pytest.mark.parametrize("path", ["", "run/a", "/", "//.", "/run/../a", "/" + "-" * 63])
def test_paths_that_can_not_be_mount_points(path):
    with pytest.raises(ValueError, match=r"can't be mounted on|too long"):
        mount_name(path)


@given(st.lists(st.text(st.characters(exclude_characters="/\0"), min_size=1), min_size=1))
def test_a_mount_s_name_is_one_that_systemd_takes(parts):
    try:
        name = mount_name("/" + "/".join(parts))
    except (ValueError, UnicodeEncodeError):
        return
    assert is_unit_name(name)


def test_why_a_property_has_its_value_is_left_out_of_comparison():
    assert PropertyValue(name="CPUWeight", value=1, why="a") == PropertyValue(
        name="CPUWeight", value=1
    )
    assert PropertyValue(name="CPUWeight", value=1) != PropertyValue(name="CPUWeight", value=2)


def test_values_of_a_unit_by_name():
    unit = DesiredUnit(
        name=UnitName("a.slice"),
        kind=UnitKind.SLICE,
        parent=UnitName("-.slice"),
        control_group="/a.slice",
        description="",
        properties=(
            PropertyValue(name="CPUWeight", value=1),
            PropertyValue(name="MemoryMax", value=2),
        ),
    )
    assert unit.values == {"CPUWeight": 1, "MemoryMax": 2}


@cases
def test_a_name_without_a_suffix_is_that_of_a_service(name, complete):
    assert complete_name(name) == complete


@pytest.mark.parametrize(
    ("group", "parent", "inside"),
    [
        ("/a.slice", "/a.slice", True),
        ("/a.slice/b.scope", "/a.slice", True),
        ("/a.slice/b.scope", "/", True),
        ("/a-b.slice", "/a", False),
        ("/a.slice", "", False),
        ("", "/a.slice", False),
    ],
)
def test_a_control_group_is_inside_of_another(group, parent, inside):
    assert is_inside(group, parent) is inside


@pytest.mark.parametrize(
    ("state", "running"),
    [("active", True), ("activating", True), ("inactive", False), ("failed", False)],
)
def test_a_unit_runs_until_it_has_stopped(state, running):
    found = UnitDefinition(name=UnitName("a.service"), load_state="loaded", active_state=state)
    assert found.is_running is running
