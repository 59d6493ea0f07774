"""The table of fields has what Kubernetes publishes, and nothing else."""

import pytest

pytest.importorskip("fastjsonschema")

from podslice.features.quadlet import workload_containers
from podslice.inputs.manifest.fields import API_VERSIONS, Use, type_names, type_of
from tests.unit.inputs.manifest.published_fields import VERSIONS, read

VARIANTS = {"NamedMeta": "ObjectMeta"}
"""Types that the table describes apart, because the grammar of a field depends on the place."""


def published(field):
    type_ = VARIANTS.get(field.type, field.type)
    return f"[{type_}]" if type_ and field.bracket else type_


def described():
    types = {name: type_of(name).fields.values() for name in type_names()}
    return {name: {each.name: published(each) for each in fields} for name, fields in types.items()}


def test_the_fields_are_those_of_both_versions():
    versions = read()
    assert tuple(versions) == VERSIONS
    union = {}
    for types in versions.values():
        for name, fields in types.items():
            union.setdefault(name, {}).update(fields)
    union["List"] = {**union.pop("PodList"), "items": ""}
    found = described()
    assert all(found.pop(name) == union[other] for name, other in VARIANTS.items())
    assert found == union


def test_every_type_is_described():
    types = described()
    used = {kind.strip("[]") for fields in types.values() for kind in fields.values() if kind}
    assert used | API_VERSIONS.keys() | VARIANTS.keys() == types.keys()


def test_a_reason_is_of_a_field_that_is_refused():
    for row in workload_containers.REASONS:
        type_, _, name = row.partition(".")
        uses = {key: each.use for key, each in type_of(type_).fields.items()}
        assert Use.REFUSED in ([uses[name]] if name else uses.values()), row
