"""The decoder of Go for documents of the kubelet's Summary API; summary.toml has its types."""

import re
import tomllib
from pathlib import Path

TYPES = tomllib.loads(Path(__file__).with_name("summary.toml").read_text())


def decode(value, kind="summary", where="summary"):
    """Check that the decoder of Go accepts a document."""
    if kind.startswith("["):
        assert isinstance(value, list), f"{where} is not a list"
        names = [each["name"] for each in value if "name" in each]
        assert len(names) == len(set(names)), f"{where} has a name twice"
        for place, each in enumerate(value):
            decode(each, kind[1:-1], f"{where}[{place}]")
    elif kind in TYPES:
        assert isinstance(value, dict), f"{where} is not an object"
        assert not value.keys() - TYPES[kind].keys(), f"{where} has {[*value]}"
        for name, inner in TYPES[kind].items():
            assert name in value or not inner.endswith("!"), f"{where} has no {name}"
            if name in value:
                decode(value[name], inner.removesuffix("!"), f"{where}.{name}")
    elif kind in ("uint64", "int64"):
        assert type(value) is int, f"{where} is {value!r}"
        low, high = (0, 2**64) if kind == "uint64" else (-(2**63), 2**63)
        assert low <= value < high, f"{where} is {value}"
    elif kind == "float64":
        assert type(value) in (int, float), f"{where} is {value!r}"
    elif kind == "metav1.Time":
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value), f"{where} is {value!r}"
    else:
        assert isinstance(value, str), f"{where} is {value!r}"
        assert value, f"{where} is empty"
