"""The manifest of imported units: names of pods and containers."""

from podslice.features.importing.policy import PresentSettings
from podslice.features.importing.verb import ImportGroup, ImportSource, draft_pod
from podslice.model.config import Config
from podslice.model.grammar import check_label
from tests.cases.tables import cases


def source(name):
    return ImportSource(name=name, what=f"{name}.service", settings=PresentSettings())


@cases
def test_containers_have_valid_and_unique_names(names, containers):
    group = ImportGroup(slice=None, sources=tuple(map(source, names)))
    draft = draft_pod(group, None, None, Config())
    assert [each.name for each in draft.pod.containers] == list(draft.sources) == containers
    assert not any(check_label(name, "container") for name in containers)
    assert draft.pod.name == containers[0]


def test_the_pod_has_the_name_of_the_slice_unless_one_is_stated():
    group = ImportGroup(slice=source("shop-day"), sources=(source("web"),))
    assert draft_pod(group, None, "prod", Config()).pod.key == "prod/shop-day"
    assert draft_pod(group, "site", None, Config()).pod.key == "site"
