"""`$(NAME)`: the kubelet's own examples."""

from podslice.features.quadlet.container import Expanded, expand, expand_variables
from podslice.features.quadlet.workload import Variable
from tests.cases.tables import cases

# Source: Kubernetes, third_party/forked/golang/expansion/expand_test.go
KUBELET = {"VAR_A": "A", "VAR_B": "B", "VAR_C": "C", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}


@cases
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
