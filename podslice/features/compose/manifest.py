"""A project → the manifest of its pod, and the override file, which has the slice for every service.

The manifest has a container for each container of a service, and one budget.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from podslice.cli.views.runtime_options import Parent
from podslice.cli.views.tables import list_first
from podslice.errors import Problem, Severity, warning
from podslice.features.compose.project import KEY, Project, Service, Settings
from podslice.features.compose.tools import ComposeTool
from podslice.inputs.scalars import extend_path, read_plain
from podslice.model.desired import PodDecision
from podslice.model.grammar import to_label
from podslice.model.resources import CPU, MEMORY, format_amount
from podslice.policy.convert import NOT_RESERVED, share_request_milli, shares_from_milli

Path = tuple[str | int, ...]
"""The keys and indices that lead to a value."""
_SUM = "the sum of the services"


class PodDraft:
    """The manifest of a project as plain values, before it is validated."""

    def __init__(self, project: Project, options: Settings) -> None:
        """Draft the pod; `options` are the options of the command line, which come first."""
        self._project, self._options = project, options
        self._problems = [*project.problems]
        self._places: dict[Path, str] = {}
        """Path of a value in the document → the place that states it."""
        self._has_limits = any(each.limits or each.requests for each in project.services)
        metadata = self._metadata()
        budgets = (options.budget, project.settings.budget, project.settings.requests)
        if project.services and not self._has_limits and not any(budgets):
            # nothing limits the project: its pod would have no effect
            message = "no service has a limit, and the project has no budget"
            hint = f"state one: --budget cpu=2,memory=4Gi, or {KEY}.budget in the file"
            self._problems.append(Problem(where="services", message=message, hint=hint))
        resources = self._pod_level()
        self._places["spec", "containers"] = "services"
        containers = list(self._containers())
        spec = {"resources": resources} if resources else {}
        self.document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {**spec, "containers": containers},
        }

    def lines(self) -> Iterator[str]:
        """Yield the manifest, with the place of each amount as a comment."""
        amounts = {path: place for path, place in self._places.items() if "resources" in path}
        return format_yaml(self.document, amounts)

    def problems(self, found: Iterable[Problem]) -> list[Problem]:
        """Return every problem once: of the project, and of its manifest.

        The latter name the place in the project. They are left out where that has an error already,
        which is the cause.
        """
        wrong = {each.where for each in self._problems if each.severity is Severity.ERROR}
        translated = (replace(each, where=self._place_of(each.where)) for each in found)
        others = (each for each in translated if each.where not in wrong)
        return list(dict.fromkeys((*self._problems, *others)))

    def _place_of(self, where: str) -> str:
        """Return the place in the project that states a value of the manifest, or one around it."""
        known = {extend_path("", *path): place for path, place in self._places.items()}
        inner = where.removeprefix(": ")
        near = [
            path for path in known if inner == path or inner.startswith((f"{path}.", f"{path}["))
        ]
        return known[max(near, key=len)] if near else where

    def _metadata(self) -> dict[str, object]:
        options, settings = self._options, self._project.settings
        name = options.name or settings.name or to_label(self._project.name or "")
        place = "--name" if options.name else f"{KEY}.name" if settings.name else "name"
        if not name:
            hint = "state one: --name NAME"
            problem = Problem(where=place, message="the project has no name", hint=hint)
            self._problems.append(problem)
        self._places["metadata", "name"] = place
        namespace = options.namespace or settings.namespace
        if not namespace:
            return {"name": name}
        place = "--namespace" if options.namespace else f"{KEY}.namespace"
        self._places["metadata", "namespace"] = place
        return {"name": name, "namespace": namespace}

    def _pod_level(self) -> dict[str, object]:
        """Return the resources of the pod.

        The limit is the budget of the command line, of `x-podslice`, or the sum of the services. It is
        only a limit: the request is what `x-podslice` or the services reserve. Without a reservation
        the pod requests no memory, and the CPUs for the weight of a unit without a setting, because
        with less the project would have hardly any CPU while the host is busy.
        """
        level: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
        for name in (CPU, MEMORY):
            limit = self._limit(name)
            for part, found in (("requests", self._request(name, limit)), ("limits", limit)):
                if found is not None:
                    level[part][name] = format_amount(name, found[0])
                    self._places["spec", "resources", part, name] = found[1]
        return {part: amounts for part, amounts in level.items() if amounts}

    def _limit(self, name: str) -> tuple[int, str] | None:
        """Return the pod's limit of a resource in thousandths, and its place."""
        budgets = {"--budget": self._options.budget}
        budgets[f"{KEY}.budget"] = self._project.settings.budget
        for place, budget in budgets.items():
            if name in budget:
                return budget[name], place
        services = self._project.services
        lacking = [extend_path("", each.name) for each in services if name not in each.limits]
        if services and not lacking:
            return self._sum(name, "limits"), _SUM
        if self._has_limits and not any(budgets.values()):
            verb = "has" if len(lacking) == 1 else "have"
            names = list_first(lacking, 3)
            message = f"the project has no budget of {name}, since {names} {verb} no limit"
            hint = f"state it: --budget {name}=AMOUNT, or below {KEY}.budget"
            self._problems.append(warning("services", message, hint))
        return None

    def _request(self, name: str, limit: tuple[int, str] | None) -> tuple[int, str] | None:
        """Return the pod's request of a resource in thousandths, and its place."""
        settings = self._project.settings
        if name in settings.requests:
            return settings.requests[name], f"{KEY}.requests"
        if limit is not None and self._options.reserve:
            return limit[0], "--reserve"
        reserved = self._sum(name, "requests")
        if limit is not None and reserved > limit[0]:
            return limit  # the check of the containers' requests reports the contradiction
        if reserved:
            return reserved, _SUM
        if limit is None:
            default = share_request_milli(None), "the weight of a unit without a setting"
            return default if name == CPU else None
        return (share_request_milli(limit[0]) if name == CPU else 0), NOT_RESERVED

    def _sum(self, name: str, part: str) -> int:
        """Return the sum over all containers, in thousandths."""
        services = self._project.services
        stated = ((each, each.limits if part == "limits" else each.requests) for each in services)
        return sum(
            len(service.containers) * amounts[name].milli
            for service, amounts in stated
            if name in amounts
        )

    def _containers(self) -> Iterator[dict[str, object]]:
        """Yield the containers of all services.

        A limit without a reservation gets a request of zero, since Kubernetes would take the limit for
        the request: compose files often state limits whose sum is above the budget.
        """
        named = (
            (service, name) for service in self._project.services for name in service.containers
        )
        for index, (service, name) in enumerate(named):
            path: Path = ("spec", "containers", index)
            self._places[path] = service.where
            resources: dict[str, dict[str, str]] = {}
            for part, stated in (("requests", service.requests), ("limits", service.limits)):
                for resource in (CPU, MEMORY):
                    if resource in stated:
                        amount = format_amount(resource, stated[resource].milli)
                        place = stated[resource].where
                    elif resource in service.limits:
                        amount, place = "0", "it reserves none"
                    else:
                        continue
                    resources.setdefault(part, {})[resource] = amount
                    self._places[*path, "resources", part, resource] = place
            yield {"name": name, "resources": resources} if resources else {"name": name}


def make_override(project: Project, pod: PodDecision, *, has_oom_scores: bool) -> dict[str, object]:
    """Return the override file of a project, whose pod has been decided.

    It adds, and changes nothing that a service states: docker compose refuses a project with two
    different values of one amount, such as `mem_limit` and `deploy.resources.limits.memory`.

    Source: compose-spec, 13-merge.md; compose-go, loader/validate.go, checkConsistency.

    Args:
        project: the services, as their tool has resolved them.
        pod: the decision on their pod.
        has_oom_scores: whether services without an OOM score get the score of the pod's class.
    """
    decided = {each.name: each for each in pod.containers}
    # Only swarm mode observes a reservation of CPU. With one, every service needs shares, because the
    # default of a runtime may be more than the shares of one CPU.
    # Source: docker compose, pkg/compose/create.go, setReservations.
    requests = {each.name: each.requests.get(CPU) for each in project.services}
    needs_shares = any(each is not None and not each.is_weight for each in requests.values())
    services: dict[str, object] = {}
    for service in project.services:
        container = decided[service.containers[0]]
        # several containers share one set of labels, so that none of them can be named
        named = container if len(service.containers) == 1 else None
        keys = _placement(pod, Parent(pod=pod, container=named))
        if has_oom_scores and "oom_score_adj" not in service.stated:
            keys["oom_score_adj"] = container.oom_score_adj
        if needs_shares and "cpu_shares" not in service.stated:
            request = requests[service.name]
            keys["cpu_shares"] = shares_from_milli(0 if request is None else request.milli)
        services[service.name] = keys
    others = {name: _placement(pod, Parent(pod=pod)) for name in project.others}
    return {"services": {**services, **others}}


def _placement(pod: PodDecision, parent: Parent) -> dict[str, object]:
    """Return the keys that start a service in the pod."""
    return {"cgroup_parent": pod.slice, "labels": dict(parent.labels)}


_INSTEAD_OF_DEPLOY = {
    "deploy.resources.limits.cpus": "cpus",
    "deploy.resources.limits.memory": "mem_limit",
    "deploy.resources.reservations.memory": "mem_reservation",
}
"""Field below `deploy` → the field of the service that every tool observes."""


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


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*|[0-9]+(?:m|k|[MGTPE]|[KMGTPE]i)", re.ASCII)
"""Words, and quantities with a suffix."""
_LETTERS = frozenset("yYnN")
"""Words that YAML 1.1 reads as booleans, besides those that `read_plain` knows."""


def format_yaml(
    value: Mapping[str, object], comments: Mapping[Path, str] | None = None, path: Path = ()
) -> Iterator[str]:
    """Yield the lines of a mapping of mappings, lists of mappings, strings and whole numbers."""
    comments = comments or {}
    for key, below in value.items():
        here = (*path, key)
        comment = f"  # {comments[here]}" if here in comments else ""
        if not below or isinstance(below, str) or not isinstance(below, Mapping | Sequence):
            yield f"{_scalar(key)}: {_scalar(below)}{comment}"
            continue
        yield f"{_scalar(key)}:{comment}"
        if isinstance(below, Mapping):
            yield from (f"  {line}" for line in format_yaml(below, comments, here))
            continue
        for index, entry in enumerate(below):
            if isinstance(entry, Mapping):
                first, *others = format_yaml(entry, comments, (*here, index))
                yield f"- {first}"
                yield from (f"  {line}" for line in others)
            else:
                yield f"- {_scalar(entry)}"


def _scalar(value: object) -> str:
    """Return a scalar, in quotes unless every reader of YAML takes it for the same string."""
    if not isinstance(value, str):
        return json.dumps(value)
    is_plain = _PLAIN.fullmatch(value) and value not in _LETTERS and type(read_plain(value)) is str
    return value if is_plain else json.dumps(value)
