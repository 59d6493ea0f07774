import pytest

from podslice.model.naming import (
    Description,
    describe_container,
    describe_pod,
    describe_volume,
    parse_description,
)
from podslice.model.pod import Pod, Qos
from tests.cases.tables import cases

WEB = Pod(namespace="default", name="web.2", uid="1")


@pytest.mark.parametrize(
    ("describe", "expected", "description"),
    [
        (
            lambda: describe_pod(WEB, Qos.BURSTABLE),
            "Pod default/web.2 (Burstable)",
            Description(pod="default/web.2", qos=Qos.BURSTABLE),
        ),
        (
            lambda: describe_container(WEB, "app"),
            "Container app of pod default/web.2",
            Description(pod="default/web.2", container="app"),
        ),
        (
            lambda: describe_volume(WEB, "my-cache"),
            "Volume my-cache of pod default/web.2",
            Description(pod="default/web.2", volume="my-cache"),
        ),
    ],
)
def test_a_description_is_read_back(describe, expected, description):
    assert describe() == expected
    assert parse_description(expected) == description


@cases
def test_other_texts_are_not_descriptions(text):
    assert parse_description(text) is None
