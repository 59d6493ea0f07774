"""The table of fields has what Kubernetes publishes, and nothing else."""

import pytest

pytest.importorskip("fastjsonschema")

from podslice.inputs.manifest.kinds import API_VERSIONS
from podslice.inputs.manifest.kubernetes_fields import field_types
from tests.unit.inputs.manifest.published_fields import VERSIONS, read


def test_the_fields_are_those_of_both_versions():
    published = read()
    assert tuple(published) == VERSIONS
    union = {}
    for types in published.values():
        for name, fields in types.items():
            union.setdefault(name, {}).update(fields)
    union["List"] = {**union.pop("PodList"), "items": ""}
    assert field_types() == union


def test_every_type_is_described():
    types = field_types()
    used = {kind.strip("[]") for fields in types.values() for kind in fields.values() if kind}
    assert used | API_VERSIONS.keys() == types.keys()
