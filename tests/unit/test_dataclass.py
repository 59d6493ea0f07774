"""The decorator of dataclasses agrees with that of the standard library, whose methods it shares."""

import copy
import dataclasses
from dataclasses import field

import pytest

from podslice.dataclass import dataclass

OPTIONS = {"frozen": True, "slots": True, "kw_only": True}


def define(decorate):
    """Return classes of the same shape with one decorator."""

    @decorate(**OPTIONS)
    class Nothing:
        pass

    @decorate(**OPTIONS)
    class One:
        a: object = 0

    @decorate(**OPTIONS)
    class Most:
        a: int
        b: str = field(default="", compare=False)
        c: dict = field(default_factory=dict)
        d: int = field(init=False, repr=False, default=3)

    @decorate(**OPTIONS)
    class Derived(One):
        b: int = 1

    @decorate(frozen=True)
    class Own:
        a: int

        def __eq__(self, other):
            return True

        def __hash__(self):
            return self.a

        def __repr__(self):
            return "own"

    class Plain(One):
        pass

    return {
        "nothing": Nothing,
        "one": One,
        "most": Most,
        "derived": Derived,
        "own": Own,
        "p": Plain,
    }


OURS, THEIRS = define(dataclass), define(dataclasses.dataclass)
VALUES = [
    ("nothing", {}),
    *(("one", {"a": a}) for a in (0, 1, (), (0,))),
    *(("most", {"a": a, "b": b}) for a in (0, 1) for b in ("", "x")),
    *(("derived", {"a": a, "b": b}) for a in (0, 1) for b in (0, 1)),
    *(("own", {"a": a}) for a in (0, 1)),
    *(("p", {"a": a}) for a in (0, 1)),
]


def made(classes):
    return [classes[name](**values) for name, values in VALUES]


def test_values_are_equal_where_those_of_the_standard_library_are():
    ours, theirs = (
        [[one == other for other in values] for one in values]
        for values in (made(OURS), made(THEIRS))
    )
    assert ours == theirs


@pytest.mark.parametrize(("ours", "theirs"), [*zip(made(OURS), made(THEIRS), strict=True)])
def test_a_value_is_shown_hashed_and_replaced_likewise(ours, theirs):
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert hasattr(ours, "__dict__") == hasattr(theirs, "__dict__")
    assert dataclasses.replace(ours) == ours
    if not isinstance(theirs, THEIRS["most"]):  # a dict has no hash
        assert hash(ours) == hash(dataclasses.replace(ours))


def test_fields_without_comparison_are_not_hashed():
    assert hash(Keyed(a=1, b=[])) == hash(Keyed(a=1, b=[2]))


@dataclass(**OPTIONS)
class Keyed:
    a: int
    b: list = field(compare=False)


def test_a_value_can_be_copied():
    value = Keyed(a=1, b=[2])
    again = copy.copy(value)
    assert (again, again.b) == (value, value.b)


def test_classes_that_are_ordered_or_change_are_those_of_the_standard_library():
    @dataclass(frozen=True, order=True)
    class Ordered:
        a: int

    @dataclass(slots=True)
    class Changing:
        a: int

    assert Ordered(a=1) < Ordered(a=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Ordered(a=1).a = 2
    changing = Changing(a=1)
    changing.a = 2
    assert changing == Changing(a=2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(changing)
