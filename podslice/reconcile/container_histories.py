"""The histories of the containers of applied pods."""

from __future__ import annotations

from collections.abc import Iterable

from podslice.model.container_exit import ContainerHistory
from podslice.model.desired import PodDecision
from podslice.model.naming import service_name
from podslice.model.unit import UnitName
from podslice.store import Store


def container_histories(
    store: Store, pods: Iterable[PodDecision]
) -> dict[UnitName, ContainerHistory]:
    """Return the histories of all containers, by their scopes and their services."""
    found = {}
    for pod in pods:
        histories = store.histories(pod.pod.uid)
        for container in pod.scopes:
            if container.name in histories:
                history = histories[container.name]
                found[container.scope] = found[service_name(container.scope)] = history
    return found
