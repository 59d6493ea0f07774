"""A project → the manifest of its pod, and the override file, which has the slice for every service.

The manifest has a container for each container of a service, and one budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from podslice.cli.views.runtime_options import Parent
from podslice.errors import Problem, Severity, warning
from podslice.features.compose.project import Project, Service
from podslice.features.compose.settings import KEY, Settings
from podslice.features.compose.tools import ComposeTool
from podslice.features.compose.yaml_text import Path, format_yaml
from podslice.inputs.manifest.names import to_label
from podslice.inputs.scalars import extend_path
from podslice.model.desired import ContainerDecision, PodDecision
from podslice.model.resources import CPU, MEMORY, format_amount
from podslice.policy.convert import NOT_RESERVED, share_request_milli, shares_from_milli

_RESOURCES = (CPU, MEMORY)
_NO_RESERVATION = "it reserves none"
_SUM = "the sum of the services"
_SHARE = "the weight of a unit without a setting"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDraft:
    """A manifest as plain values, before it is validated."""

    document: Mapping[str, object]
    places: Mapping[Path, str] = field(default_factory=dict)
    """Path of a value in the document → the place that states it."""
    problems: tuple[Problem, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the manifest, with the place of each amount as a comment."""
        amounts = {path: place for path, place in self.places.items() if "resources" in path}
        return format_yaml(self.document, amounts)

    def translate(self, problem: Problem) -> Problem:
        """Return a problem of the manifest with the place in the project that causes it."""
        where = problem.where.removeprefix(": ")
        known = {extend_path("", *path): place for path, place in self.places.items()}
        near = [
            path for path in known if where == path or where.startswith((f"{path}.", f"{path}["))
        ]
        return replace(problem, where=known[max(near, key=len)]) if near else problem


def join_problems(project: Project, draft: PodDraft, found: Iterable[Problem]) -> list[Problem]:
    """Return every problem once: those of the project, and those found in its manifest.

    A place that has an error already is what the manifest's is about, too.
    """
    own = (*project.problems, *draft.problems)
    wrong = {each.where for each in own if each.severity is Severity.ERROR}
    translated = (draft.translate(each) for each in found)
    return list(dict.fromkeys((*own, *(each for each in translated if each.where not in wrong))))


def draft_pod(project: Project, options: Settings) -> PodDraft:
    """Return the pod of a project; `options` are of the command line, and count first."""
    places: dict[Path, str] = {}
    problems: list[Problem] = []
    metadata = _metadata(project, options, places, problems)
    spec: dict[str, object] = {}
    stated = (options.budget, project.settings.budget, project.settings.requests)
    if project.services and not any(stated) and not _has_limits(project):
        # nothing limits the project: its pod would have no effect
        message = "no service has a limit, and the project has no budget"
        hint = f"state one: --budget cpu=2,memory=4Gi, or {KEY}.budget in the file"
        problems.append(Problem(where="services", message=message, hint=hint))
    resources = _pod_level(project, options, places, problems)
    if resources:
        spec["resources"] = resources
    places["spec", "containers"] = "services"
    spec["containers"] = _containers(project, places)
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return PodDraft(document=document, places=places, problems=tuple(problems))


def _metadata(
    project: Project, options: Settings, places: dict[Path, str], problems: list[Problem]
) -> dict[str, object]:
    settings = project.settings
    if options.name or settings.name:
        name = options.name or settings.name or ""
        place = "--name" if options.name else f"{KEY}.name"
    else:
        place = "name"
        name = to_label(project.name or "")
        if not name:
            hint = "state one: --name NAME"
            problems.append(Problem(where=place, message="the project has no name", hint=hint))
    places["metadata", "name"] = place
    metadata: dict[str, object] = {"name": name}
    namespace = options.namespace or settings.namespace
    if namespace:
        metadata["namespace"] = namespace
        place = "--namespace" if options.namespace else f"{KEY}.namespace"
        places["metadata", "namespace"] = place
    return metadata


def _pod_level(
    project: Project, options: Settings, places: dict[Path, str], problems: list[Problem]
) -> dict[str, object]:
    """Return the resources of the pod."""
    level: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for name in _RESOURCES:
        for part, (milli, place) in _budget_of(name, project, options, problems).items():
            level[part][name] = format_amount(name, milli)
            places["spec", "resources", part, name] = place
    return {part: amounts for part, amounts in level.items() if amounts}


def _has_limits(project: Project) -> bool:
    return any(service.limits or service.requests for service in project.services)


def _budget_of(
    name: str, project: Project, options: Settings, problems: list[Problem]
) -> dict[str, tuple[int, str]]:
    """Return the request and the limit of one resource, each with its place.

    The limit is the budget of the command line, of `x-podslice`, or the sum of the services. It is
    only a limit: the request is what `x-podslice` or the services reserve. Without a reservation the
    pod requests no memory, and the CPUs for the weight of a unit without a setting, because with
    less the project would have hardly any CPU while the host is busy.
    """
    found = {"limits": _limit_of(name, project, options, problems)}
    found["requests"] = _request_of(name, project, options, found["limits"])
    return {part: each for part, each in found.items() if each is not None}


def _limit_of(
    name: str, project: Project, options: Settings, problems: list[Problem]
) -> tuple[int, str] | None:
    if name in options.budget:
        return options.budget[name], "--budget"
    if name in project.settings.budget:
        return project.settings.budget[name], f"{KEY}.budget"
    limit, missing = _sum_of_limits(project.services, name)
    if not options.budget and not project.settings.budget and _has_limits(project):
        problems += missing
    return None if limit is None else (limit, _SUM)


def _request_of(
    name: str, project: Project, options: Settings, limit: tuple[int, str] | None
) -> tuple[int, str] | None:
    if name in project.settings.requests:
        return project.settings.requests[name], f"{KEY}.requests"
    if limit is not None and options.reserve:
        return limit[0], "--reserve"
    reserved = _sum_of(project.services, name, "requests")
    if limit is not None and reserved > limit[0]:
        return limit  # the check of the containers' requests reports the contradiction
    if reserved:
        return reserved, _SUM
    if limit is None:
        return (share_request_milli(None), _SHARE) if name == CPU else None
    return (share_request_milli(limit[0]) if name == CPU else 0), NOT_RESERVED


def _sum_of_limits(services: Sequence[Service], name: str) -> tuple[int | None, list[Problem]]:
    """Return the sum of the limits if every service has one, and otherwise why there is none."""
    if not services:
        return None, []
    lacking = [extend_path("", each.name) for each in services if name not in each.limits]
    if not lacking:
        return _sum_of(services, name, "limits"), []
    message = f"the project has no budget of {name}, since {_listed(lacking)} no limit"
    hint = f"state it: --budget {name}=AMOUNT, or below {KEY}.budget"
    return None, [warning("services", message, hint)]


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{shown}{rest} {'has' if len(names) == 1 else 'have'}"


def _sum_of(services: Iterable[Service], name: str, part: str) -> int:
    """Return the sum over all containers."""
    amounts = (
        (service.limits if part == "limits" else service.requests).get(name)
        for service in services
        for _ in service.containers
    )
    return sum(each.milli for each in amounts if each is not None)


def _containers(project: Project, places: dict[Path, str]) -> list[object]:
    containers: list[object] = []
    for service in project.services:
        for name in service.containers:
            path: Path = ("spec", "containers", len(containers))
            places[path] = service.where
            fields: dict[str, object] = {"name": name}
            resources = _resources(service, (*path, "resources"), places)
            if resources:
                fields["resources"] = resources
            containers.append(fields)
    return containers


def _resources(service: Service, path: Path, places: dict[Path, str]) -> dict[str, object]:
    """Return the resources of a container.

    A limit without a reservation gets a request of zero, since Kubernetes would take the limit for
    the request: compose files often state limits whose sum is above the budget.
    """
    requests, limits = dict[str, str](), dict[str, str]()
    for name in _RESOURCES:
        limit, request = service.limits.get(name), service.requests.get(name)
        if limit is not None:
            limits[name] = format_amount(name, limit.milli)
            places[*path, "limits", name] = limit.where
        if request is not None:
            requests[name] = format_amount(name, request.milli)
            places[*path, "requests", name] = request.where
        elif limit is not None:
            requests[name] = "0"
            places[*path, "requests", name] = _NO_RESERVATION
    return {key: each for key, each in (("requests", requests), ("limits", limits)) if each}


_INSTEAD_OF_DEPLOY = {
    "deploy.resources.limits.cpus": "cpus",
    "deploy.resources.limits.memory": "mem_limit",
    "deploy.resources.reservations.memory": "mem_reservation",
}
"""Field below `deploy` → the field of the service that every tool observes."""


def make_override(project: Project, pod: PodDecision, *, has_oom_scores: bool) -> dict[str, object]:
    """Return the override file of a project, whose pod has been decided.

    It adds, and changes nothing that a service states: docker compose refuses a project with two
    different values of one amount, such as `mem_limit` and `deploy.resources.limits.memory`.

    Source: compose-spec, 13-merge.md; compose-go, loader/validate.go, checkConsistency.

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
