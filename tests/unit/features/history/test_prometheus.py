"""Histories from the series of a Prometheus server."""

import pytest

from podslice.errors import InputError
from podslice.features.history import prometheus as prometheus_history
from podslice.features.history.prometheus import Series, make_pod_history

NOTHING = {"cpu": (), "memory": (), "kills": ()}


class Labels(dict):
    """Labels that count how often they are read."""

    reads = 0

    def get(self, *arguments):
        Labels.reads += 1
        return super().get(*arguments)


def series(name, *values):
    return Series(labels=Labels(container=name), points=tuple(enumerate(values, 1)))


def test_each_container_has_its_own_series():
    of_containers = {
        "cpu": [series("b", 1.0), series("a", 2.0)],
        "memory": [series("a", 2.0**30)],
        "kills": [series("a", 1.0), series("gone", 1.0)],
    }
    found = make_pod_history({**NOTHING, "cpu": [series("", 1.0)]}, of_containers)
    assert [*found.containers] == ["a", "b"]
    assert found.containers["a"].oom_kills == 1
    assert found.containers["b"].memory.peak_bytes == 0
    assert found.pod.samples == 5


def test_the_series_of_many_containers_are_read_once():
    """Comparing each container with each series takes time with the square of their number."""
    Labels.reads = 0
    of_containers = {what: [series(f"c{number}", 1.0) for number in range(500)] for what in NOTHING}
    assert len(make_pod_history(NOTHING, of_containers).containers) == 500
    assert Labels.reads == 1500


def test_the_number_of_containers_is_limited(monkeypatch):
    monkeypatch.setattr(prometheus_history, "CONTAINERS_MAX", 1)
    of_containers = {**NOTHING, "cpu": [series("a", 1.0)]}
    assert make_pod_history(NOTHING, of_containers).containers
    with pytest.raises(InputError, match="has more than 1 containers of one pod"):
        make_pod_history(NOTHING, {**of_containers, "memory": [series("b", 1.0)]})


def test_values_of_any_size_are_counted():
    large = 2.0**63 - 1024
    found = make_pod_history({what: [series("", large, -large)] for what in NOTHING}, NOTHING)
    assert found.pod.oom_kills == large


@pytest.mark.parametrize(
    "name", ["", "\x1b[31m", "\ud800", "A", "a_b", "-a", "a-", "a" * 64, "a\n"]
)
def test_a_name_that_no_container_has_is_an_error(name):
    """It would reach the terminal, and manifests."""
    with pytest.raises(InputError, match="a series without a valid name of a container"):
        make_pod_history(NOTHING, {**NOTHING, "cpu": [series(name, 1.0)]})
