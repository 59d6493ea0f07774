"""The override file of a project: the slice of its pod, for every service.

It adds, and changes nothing that a service states: docker compose refuses a project with two
different values of one amount, such as `mem_limit` and `deploy.resources.limits.memory`.

Source: compose-spec, 13-merge.md; compose-go, loader/validate.go, checkConsistency.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.compose.project import Project, Service
from podslice.compose.settings import KEY
from podslice.compose.tools import ComposeTool
from podslice.errors import Problem, warning
from podslice.model.desired import ContainerDecision, PodDecision
from podslice.model.resources import CPU
from podslice.policy.convert import shares_from_milli
from podslice.processes.runtime_options import Parent

_INSTEAD_OF_DEPLOY = {
    "deploy.resources.limits.cpus": "cpus",
    "deploy.resources.limits.memory": "mem_limit",
    "deploy.resources.reservations.memory": "mem_reservation",
}
"""Field below `deploy` → the field of the service that every tool observes."""


def make_override(project: Project, pod: PodDecision, *, has_oom_scores: bool) -> dict[str, object]:
    """Return the override file of a project, whose pod has been decided.

    Args:
        project: the services, as their tool has resolved them.
        pod: the decision on their pod.
        has_oom_scores: whether services without an OOM score get that of the pod's class.
    """
    decided = {each.name: each for each in pod.containers}
    needs_shares = any(_reserves_cpu(service) for service in project.services)
    services = {
        service.name: _make_service(
            service, pod, decided, needs_shares=needs_shares, has_oom_score=has_oom_scores
        )
        for service in project.services
    }
    keys = {"cgroup_parent": pod.slice, "labels": dict(Parent(pod=pod, container=None).labels)}
    others = {name: dict(keys) for name in project.others}
    return {"services": {**services, **others}}


def unsupported_by(tool: ComposeTool, project: Project) -> Iterator[Problem]:
    """Yield warnings of fields that the tool ignores, or leaves out when it resolves a project.

    Only docker-compose 1 prints no name of the project.

    Source: docker-compose 1.29.2, config/serialize.py.
    """
    if tool is ComposeTool.DOCKER_COMPOSE and project.name is None:
        hint = "state --budget, and --name if it has one"
        yield warning(KEY, "docker-compose 1 leaves it out, if the project has one", hint)
        for service in project.services:
            yield from _unsupported_by_docker_compose_1(service)
    if tool is ComposeTool.PODMAN_COMPOSE:
        for service in project.services:
            yield from _unsupported_by_podman_compose(service)


def _unsupported_by_docker_compose_1(service: Service) -> Iterator[Problem]:
    """Yield a warning for each amount below `deploy`; reserved CPUs become shares.

    Source: docker-compose 1.29.2, service.py, _get_container_host_config.
    """
    stated = {amount.where for amount in (*service.limits.values(), *service.requests.values())}
    for path, key in _INSTEAD_OF_DEPLOY.items():
        where = f"{service.where}.{path}"
        if where in stated:
            yield warning(where, "docker-compose 1 ignores it", f"state {key}")


def _unsupported_by_podman_compose(service: Service) -> Iterator[Problem]:
    """Yield warnings, also of what only some versions ignore.

    Source: podman-compose 1.3.0, 1.4.1 and 1.6.0, container_to_cpu_res_args and
    _parse_compose_file.
    """
    if "cpu_quota" in service.stated and CPU in service.limits:
        yield warning(f"{service.where}.cpu_quota", "podman-compose ignores it", "state cpus")
    if len(service.containers) == 1 or service.stated >= {"deploy.mode", "deploy.replicas"}:
        return
    if "scale" in service.stated:
        hint = "state deploy.mode: replicated, and deploy.replicas"
        message = "podman-compose before 1.4 starts one container only"
        yield warning(f"{service.where}.scale", message, hint)
    else:
        hint = "state deploy.mode: replicated"
        message = "podman-compose since 1.4 starts one container only"
        yield warning(f"{service.where}.deploy.replicas", message, hint)


def _make_service(
    service: Service,
    pod: PodDecision,
    decided: Mapping[str, ContainerDecision],
    *,
    needs_shares: bool,
    has_oom_score: bool,
) -> dict[str, object]:
    """Return the keys of a service.

    Its containers share one set of labels, so that of several none can be named.
    """
    container = decided[service.containers[0]]
    is_single = len(service.containers) == 1
    parent = Parent(pod=pod, container=container if is_single else None)
    keys: dict[str, object] = {"cgroup_parent": pod.slice, "labels": dict(parent.labels)}
    if has_oom_score and "oom_score_adj" not in service.stated:
        keys["oom_score_adj"] = container.oom_score_adj
    if needs_shares and "cpu_shares" not in service.stated:
        request = service.requests.get(CPU)
        keys["cpu_shares"] = shares_from_milli(0 if request is None else request.milli)
    return keys


def _reserves_cpu(service: Service) -> bool:
    """Return whether a service has a reservation of CPU, which only swarm mode would observe.

    Then every service needs shares: the default of a runtime may be more than that of one CPU.

    Source: docker compose, pkg/compose/create.go, setReservations.
    """
    request = service.requests.get(CPU)
    return request is not None and not request.is_weight
