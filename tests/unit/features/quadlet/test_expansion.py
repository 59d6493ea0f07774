"""`$(NAME)`: the kubelet's own examples."""

import pytest

from podslice.features.quadlet.container import expand_variables
from podslice.features.quadlet.workload import Variable
from podslice.inputs.manifest.expansion import Expanded, expand

# Source: Kubernetes, third_party/forked/golang/expansion/expand_test.go
KUBELET = {"VAR_A": "A", "VAR_B": "B", "VAR_C": "C", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("___$(VAR_C)", "___C"),
        ("$(VAR_A)-$(VAR_A)", "A-A"),
        ("$(VAR_A)-1", "A-1"),
        ("$(VAR_REF)", "$(VAR_A)"),
        ("%%$(VAR_REF)--$(VAR_REF)%%", "%%$(VAR_A)--$(VAR_A)%%"),
        ("foo$(VAR_EMPTY)bar", "foobar"),
        ("foo\\$(VAR_A)bar", "foo\\Abar"),
        ("foo$$(VAR_A)bar", "foo$(VAR_A)bar"),
        ("$$$$$$$(VAR_A)", "$$$A"),
        ("$$$$$$$$$(VAR_A)", "$$$$A"),
        ("$$$$$$$(GOOD_ODDS", "$$$$(GOOD_ODDS"),
        ("$VAR_A", "$VAR_A"),
        ("${VAR_A}", "${VAR_A}"),
        ("$(VAR_B)_______$(A", "B_______$(A"),
        ("$(VAR_C)_______$(", "C_______$("),
        ("$(VAR_A)foobarzab$", "Afoobarzab$"),
        ("foo-\\$(VAR_A", "foo-\\$(VAR_A"),
        ("--$($($($($--", "--$($($($($--"),
        ("$($($($($--foo$(", "$($($($($--foo$("),
        ("foo0--$($($($(", "foo0--$($($($("),
        ("$(foo$$var)", "$(foo$$var)"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("", ""),
    ],
)
def test_expansion_is_that_of_the_kubelet(text, expected):
    known = {name: Expanded(text=value) for name, value in KUBELET.items()}
    assert expand(text, known).text == expected


def test_a_variable_refers_to_earlier_ones_only():
    made = expand_variables(
        [
            Variable(name="A", value="$(B)"),
            Variable(name="B", value="b"),
            Variable(name="C", value="$(A) $(B)"),
        ]
    )
    assert {name: each.text for name, each in made.items()} == {
        "A": "$(B)",
        "B": "b",
        "C": "$(B) b",
    }


def test_values_of_objects_are_not_expanded():
    made = expand_variables(
        [Variable(name="A", value="a"), Variable(name="B", value="$(A)$$", is_literal=True)]
    )
    assert made["B"].text == "$(A)$$"


def test_what_contains_a_secret_is_one():
    made = expand_variables(
        [
            Variable(name="KEY", value="s", is_literal=True, is_secret=True),
            Variable(name="DSN", value="db:$(KEY)"),
            Variable(name="URL", value="$(DSN)/x"),
            Variable(name="PLAIN", value="$$(KEY)"),
        ]
    )
    assert [name for name, each in made.items() if each.is_secret] == ["KEY", "DSN", "URL"]
