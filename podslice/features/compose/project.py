"""A project as its tool has resolved it → services with their amounts, each with its place.

Amounts are exact: a manifest gets the same number.

Source for the fields: compose-spec, 05-services.md and deploy.md; for those that count, docker
compose, pkg/compose/create.go, getDeployResources, and podman-compose, container_to_cpu_res_args.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from podslice.errors import InputError, Problem, invalid, quote, warning
from podslice.inputs.budget import POD_CONTAINERS_MAX, UNKNOWN_FIELDS_MAX
from podslice.inputs.scalars import (
    Boolean,
    Odd,
    describe,
    extend_path,
    nearest,
    read_amount,
    read_text,
)
from podslice.model.grammar import to_label
from podslice.model.resources import CPU, MEMORY, format_amount
from podslice.policy.convert import SHARES_PER_CPU

PERIOD_USEC = 100_000
"""The period of `cpu_quota` where the service states none.

Source: docs.docker.com, "Resource constraints", --cpu-period: the default is 100 milliseconds.
"""

_T = TypeVar("_T")
_TEXT_MAX = 32
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+", re.ASCII)
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgtp]?)i?b?", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_WHOLE = re.compile(r"[-+]?[0-9]+", re.ASCII)


def read_cpus(value: object) -> int:
    """Return a number of CPUs in thousandths, rounded up; 0 counts as not stated.

    Source: compose-spec, deploy.md, "cpus": a number of cores.

    Raises:
        InputError: it is not a number of CPUs.
    """
    match = _match(_DECIMAL, value)
    if match is None:
        raise invalid(f"must be a number of CPUs, not {describe(value)}", "write 0.5, for example")
    return math.ceil(Fraction(match[0]) * 1000)


def read_memory(value: object) -> int:
    """Return an amount of memory in thousandths of a byte; 0 counts as not stated.

    Every suffix is a power of 1024, as in docker and podman.

    Source: compose-spec, 11-extension.md, "Specifying byte values"; docker/go-units, size.go,
    RAMInBytes.

    Raises:
        InputError: it is not an amount of memory.
    """
    match = _match(_BYTES, value)
    if match is None:
        raise invalid(f"must be a byte value, not {describe(value)}", "write 512m, for example")
    return math.floor(Fraction(match[1]) * (1 << _POWERS[match[2].lower()])) * 1000


def read_whole(value: object) -> int:
    """Return a whole number, which may be negative.

    Raises:
        InputError: it is not a whole number.
    """
    match = _match(_WHOLE, value)
    if match is None:
        raise invalid(f"must be a whole number, not {describe(value)}")
    return int(match[0])


def _match(pattern: re.Pattern[str], value: object) -> re.Match[str] | None:
    """Match the text of a number or a string; None for any other value, and for a long text.

    Raises:
        InputError: it is a number that not every reader of YAML reads in the same way.
    """
    if isinstance(value, Odd):
        raise invalid(f"{quote(value)} is read differently by YAML 1.1 and YAML 1.2")
    if isinstance(value, bool | Boolean) or not isinstance(value, int | float | str):
        return None
    text = str(value)
    return pattern.fullmatch(text) if len(text) <= _TEXT_MAX else None


def _read(
    value: object, read: Callable[[object], _T], where: str, problems: list[Problem]
) -> _T | None:
    """Read a value; None if it is not stated, or invalid, which is added to the problems."""
    if value is None:
        return None
    try:
        return read(value)
    except InputError as error:
        problems += [each.within(where) for each in error.problems]
        return None


KEY = "x-podslice"


class Settings(NamedTuple):
    """What `x-podslice` of a project, or the command line, states about its pod."""

    name: str | None = None
    namespace: str | None = None
    budget: Mapping[str, int] = {}
    """The limits of the pod, in thousandths."""
    requests: Mapping[str, int] = {}
    reserve: bool = False
    """Whether the limits are also the requests where these are not stated; the command line only."""


def _read_settings(value: object, problems: list[Problem]) -> Settings:
    """Read `x-podslice`, and add its problems."""
    if value is None:
        return Settings()
    if not isinstance(value, dict):
        problems.append(Problem(where=KEY, message=f"must be a mapping, not {describe(value)}"))
        return Settings()
    known = ("name", "namespace", "budget", "requests")
    for key in value:
        if key not in known:
            message = f"there is no such setting as {quote(str(key))}"
            problems.append(Problem(where=KEY, message=message, hint=f"it has {', '.join(known)}"))
    name, namespace = (
        _read(value.get(key), read_text, extend_path(KEY, key), problems) for key in known[:2]
    )
    budget, requests = (
        _read_amounts(value.get(key), extend_path(KEY, key), problems) for key in known[2:]
    )
    return Settings(name=name, namespace=namespace, budget=budget, requests=requests)


def parse_budget(text: str, where: str) -> dict[str, int]:
    """Return the amounts of `cpu=2,memory=4Gi`.

    Raises:
        InputError: an amount is not valid; it has every problem.
    """
    problems: list[Problem] = []
    stated: dict[str, object] = {}
    for part in text.split(","):
        name, _, amount = part.partition("=")
        if name.strip() in stated:
            problems.append(Problem(where=where, message=f"{name.strip()} is stated twice"))
        stated[name.strip()] = amount.strip()
    amounts = _read_amounts(stated, where, problems)
    if problems:
        raise InputError(problems)
    return amounts


def _read_amounts(value: object, where: str, problems: list[Problem]) -> dict[str, int]:
    """Read amounts of cpu and memory, which are quantities as in a manifest."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        message = f"must be a mapping, not {describe(value)}"
        problems.append(Problem(where=where, message=message, hint="write cpu and memory below it"))
        return {}
    is_option = where.startswith("--")
    amounts: dict[str, int] = {}
    for name, stated in value.items():
        if name not in (CPU, MEMORY):
            message = f"{quote(str(name))} is not part of a budget"
            hint = "write cpu=2,memory=4Gi" if is_option else "it has cpu and memory"
            problems.append(Problem(where=where, message=message, hint=hint))
            continue
        place = where if is_option else extend_path(where, name)
        amount = _read(stated, read_amount, place, problems)
        if amount == 0:
            problems.append(Problem(where=place, message=f"a budget of 0 for {name} is none"))
        elif amount is not None:
            amounts[name] = amount
    return amounts


_LIMITS = "deploy.resources.limits"
_RESERVATIONS = "deploy.resources.reservations"
_STATED = ("deploy.mode", "deploy.replicas")
_STAYS = "stays a setting of the container: a manifest has no such field"
_KEPT = {
    **dict.fromkeys(("blkio_config", "cpu_rt_period", "cpu_rt_runtime", "cpuset"), _STAYS),
    **dict.fromkeys((f"{_LIMITS}.pids", f"{_RESERVATIONS}.devices", "gpus"), _STAYS),
    **dict.fromkeys(("mem_swappiness", "memswap_limit", "oom_kill_disable", "pids_limit"), _STAYS),
    "cpu_count": "is ignored: it is for Windows",
    "cpu_percent": "is ignored: it is for Windows",
    f"{_RESERVATIONS}.generic_resources": "is ignored: it is for swarm mode",
}
"""What is not part of a budget, and what becomes of it."""
_READ = {
    "": frozenset(
        {
            *("cgroup_parent", "cpu_period", "cpu_quota", "cpu_shares", "cpus", "deploy"),
            *("mem_limit", "mem_reservation", "oom_score_adj", "scale"),
            *(key for key in _KEPT if "." not in key),
        }
    ),
    "deploy": frozenset(("mode", "replicas", "resources")),
    "deploy.resources": frozenset(("limits", "reservations")),
    _LIMITS: frozenset(("cpus", "memory", "pids")),
    _RESERVATIONS: frozenset(("cpus", "devices", "generic_resources", "memory")),
}
"""Path of a mapping in a service → the fields that are read there; no other field resembles one."""


class ServiceAmount(NamedTuple):
    """An amount that a service states, in thousandths."""

    milli: int
    where: str
    is_weight: bool = False
    """Whether it was stated as `cpu_shares`, which only weighs."""


class Service(NamedTuple):
    """A service that has containers."""

    name: str
    containers: tuple[str, ...]
    """The names of its containers in the pod: one, or as many as it has replicas."""
    requests: Mapping[str, ServiceAmount]
    limits: Mapping[str, ServiceAmount]
    stated: frozenset[str]
    """The keys that it states, and some below `deploy`."""

    @property
    def where(self) -> str:
        """Return its place in the project."""
        return extend_path("services", self.name)


class Project(NamedTuple):
    """A resolved project, and everything that is wrong with it or not taken over."""

    name: str | None = None
    services: tuple[Service, ...] = ()
    others: tuple[str, ...] = ()
    """The services that have no containers now: in a profile that is not active, or with scale 0."""
    built: tuple[str, ...] = ()
    """The services whose image is built."""
    settings: Settings = Settings()
    problems: tuple[Problem, ...] = ()


def read_project(value: object, everything: object = None) -> Project:
    """Read the output of `docker compose config` or `podman-compose config`.

    Args:
        value: the project with the active profiles.
        everything: the same project with all profiles; None if it is not known.
    """
    if not isinstance(value, dict):
        message = f"a project must be a mapping, not {describe(value)}"
        return Project(problems=(Problem(message=message),))
    problems: list[Problem] = []
    services, every = services_of(value), services_of(everything)
    names = islice((name for name in every if name not in services), POD_CONTAINERS_MAX)
    inactive = {str(name): every[name] for name in names}
    if not services:
        problems.append(_no_services(inactive))
    if "include" in value:
        problems.append(_unresolved("include"))
    # one more than a pod may have, which is enough to refuse the project
    first = islice(services.items(), POD_CONTAINERS_MAX + 1)
    read = [_ServiceReader(str(name), fields) for name, fields in first]
    found = [service for each in read if (service := each.read()) is not None]
    settings = _read_settings(value.get("x-podslice"), problems)
    for each in read:
        problems += each.problems
    if sum(len(service.containers) for service in found) > POD_CONTAINERS_MAX:
        message = f"a pod has at most {POD_CONTAINERS_MAX} containers, and the project has more"
        problems.append(Problem(where="services", message=message))
        found = []
    problems += _check_names(found)
    name = value.get("name")
    return Project(
        name=str(name) if isinstance(name, str) else None,
        services=tuple(found),
        others=(*(each.name for each in read if each.is_off), *inactive),
        built=tuple(each.name for each in read if each.is_built),
        settings=settings,
        problems=tuple(dict.fromkeys(problems)),
    )


def services_of(project: object) -> Mapping[object, object]:
    """Return the services of a project or a compose file; none of anything else."""
    services = project.get("services") if isinstance(project, dict) else None
    return services if isinstance(services, dict) else {}


def profiles_of(services: Mapping[Any, object]) -> set[str]:
    """Return the profiles that services name."""
    found = (each.get("profiles") for each in services.values() if isinstance(each, dict))
    return {str(name) for each in found if isinstance(each, list) for name in each}


def _no_services(inactive: Mapping[str, object]) -> Problem:
    """Return the problem of a project without active services."""
    if not inactive:
        return Problem(where="services", message="the project has no services")
    names = sorted(profiles_of(inactive))
    hint = f"state one or more: --profile {names[0] if names else 'NAME'}"
    hint += f"; the profiles are {', '.join(names)}" if len(names) > 1 else ""
    return Problem(where="services", message="every service is in a profile", hint=hint)


def _unresolved(where: str) -> Problem:
    return Problem(
        where=where,
        message="it is not resolved; podman-compose config leaves it as it is",
        hint=(
            "resolve the project with docker-compose config, which needs no docker for that, and"
            " pass the output: --resolved FILE"
        ),
    )


def _check_names(services: list[Service]) -> Iterator[Problem]:
    """Return problems of names, which become the names of containers in the pod."""
    first: dict[str, Service] = {}
    for service in services:
        for name in service.containers:
            other = first.setdefault(name, service)
            if other is not service:
                message = f"its container would be {quote(name)}, as one of {other.where}"
                yield Problem(where=service.where, message=message, hint="rename one of them")


class _ServiceReader:
    """Reads one service, and collects its problems."""

    def __init__(self, name: str, fields: object) -> None:
        self.problems: list[Problem] = []
        self.name = name
        self.is_off = False
        """Whether its scale is 0."""
        self._raw = fields
        self._fields: Mapping[str, object] = fields if isinstance(fields, dict) else {}
        self._where = extend_path("services", name)
        self.is_built = bool(self._fields.get("build"))
        """Whether its image is built."""

    def read(self) -> Service | None:
        """Return the service; None if it has no containers, or is not one."""
        if not isinstance(self._raw, dict):
            self._error("", f"a service must be a mapping, not {describe(self._raw)}")
            return None
        if "extends" in self._fields:
            self._report_extends(self._fields["extends"])
        if "provider" in self._fields:
            self._warn("provider", "has no containers: it is not part of the pod")
            return None
        count = self._count_replicas()
        containers = self._container_names(count)
        if not containers:
            return None
        self._report_kept()
        self._report_misspelled()
        cpu_limit = self._cpu_limit()
        memory_limit = self._either(f"{_LIMITS}.memory", "mem_limit", read_memory, MEMORY)
        cpu = self._cpu_request(cpu_limit)
        memory = self._either(f"{_RESERVATIONS}.memory", "mem_reservation", read_memory, MEMORY)
        limits, requests = {CPU: cpu_limit, MEMORY: memory_limit}, {CPU: cpu, MEMORY: memory}
        return Service(
            name=self.name,
            containers=containers,
            requests={name: amount for name, amount in requests.items() if amount is not None},
            limits={name: amount for name, amount in limits.items() if amount is not None},
            stated=frozenset(
                path for path in (*self._fields, *_STATED) if self._find(path) is not None
            ),
        )

    def _report_extends(self, value: object) -> None:
        """Report what podman-compose leaves unresolved; docker compose resolves it, or refuses it.

        Source: compose-spec, 05-services.md, "extends"; podman-compose 1.6.0, resolve_extends.
        """
        if value.get("service") if isinstance(value, dict) else value:
            self.problems.append(_unresolved(self._at("extends")))
        else:
            hint = "write extends: {service: NAME}, or remove it"
            self._error("extends", "does not name a service", hint)

    def _count_replicas(self) -> int:
        """Return the number of its containers.

        Source: compose-spec, 05-services.md, "scale"; deploy.md, "replicas".
        """
        for path in ("scale", "deploy.replicas"):
            stated = self._read(path, read_whole)
            if stated is not None:
                if not 0 <= stated.milli <= POD_CONTAINERS_MAX:
                    hint = f"the maximum is {POD_CONTAINERS_MAX}"
                    self._error(path, f"{stated.milli} is not a number of containers", hint)
                    return 1
                return stated.milli
        return 1

    def _container_names(self, count: int) -> tuple[str, ...]:
        """Return the names of its containers, which are labels of RFC 1123."""
        if not count:
            self.is_off = True
            return ()
        # as docker compose numbers the containers of a service
        suffixes = [""] if count == 1 else [f"-{number}" for number in range(1, count + 1)]
        stem = to_label(to_label(self.name)[: 63 - len(suffixes[-1])])
        if not stem:
            self._error("", "no letter or digit of its name can be in that of a container")
            return ()
        if stem != self.name:
            rule = "names of containers have lower case letters, digits and '-' only"
            self._warn("", f"is container {quote(stem)} of the pod: {rule}")
        return tuple(f"{stem}{suffix}" for suffix in suffixes)

    def _report_kept(self) -> None:
        for path, what in _KEPT.items():
            value = self._find(path)
            if value and str(value).lower() != "false":
                self._warn(path, what)
        parent = self._find("cgroup_parent")
        if parent is not None:
            self._warn("cgroup_parent", f"{describe(parent)} is replaced by the pod's slice")

    def _report_misspelled(self) -> None:
        """Report fields that podman-compose, which checks no names, would ignore without a message."""
        for path, known in _READ.items():
            found = self._find(path) if path else self._fields
            fields = set(map(str, found)) if isinstance(found, dict) else set[str]()
            for name in islice(sorted(fields - known), UNKNOWN_FIELDS_MAX):
                if right := nearest(name, known):
                    hint = "" if right in fields else f"write {right}"
                    self._warn(f"{path}.{name}".lstrip("."), "unknown field is ignored", hint)

    def _cpu_limit(self) -> ServiceAmount | None:
        stated = self._either(f"{_LIMITS}.cpus", "cpus", read_cpus, CPU)
        quota = self._read("cpu_quota", read_whole)
        if quota is None or quota.milli <= 0:
            return stated
        if stated is not None:
            self._error("cpu_quota", f"excludes {stated.where}", "remove one of them")
            return stated
        # quota and period are µs: their ratio is the number of CPUs, rounded up
        period = self._read("cpu_period", read_whole)
        period_usec = period.milli if period is not None and period.milli > 0 else PERIOD_USEC
        return quota._replace(milli=-(-quota.milli * 1000 // period_usec))

    def _cpu_request(self, limit: ServiceAmount | None) -> ServiceAmount | None:
        """Return what it reserves; shares are a request of 1 CPU for 1024, at most its limit."""
        reserved = self._read(f"{_RESERVATIONS}.cpus", read_cpus)
        if reserved is not None and reserved.milli:
            return reserved
        shares = self._read("cpu_shares", read_whole)
        if shares is None or shares.milli <= 0:
            return None
        milli = -(-shares.milli * 1000 // SHARES_PER_CPU)
        if limit is not None and limit.milli < milli:
            asked, most = format_amount(CPU, milli), format_amount(CPU, limit.milli)
            self._warn("cpu_shares", f"would request {asked}; the request is the limit, {most}")
            milli = limit.milli
        return shares._replace(milli=milli, is_weight=True)

    def _either(
        self, path: str, older: str, read: Callable[[object], int], resource: str
    ) -> ServiceAmount | None:
        """Return the amount below `deploy`, else the amount of the service itself."""
        stated, other = self._read(path, read), self._read(older, read)
        if stated is None or not stated.milli:
            return other if other is not None and other.milli else None
        if other is not None and other.milli and other.milli != stated.milli:
            amount = format_amount(resource, stated.milli)
            self._warn(older, f"differs from {stated.where}, {amount}, which counts")
        return stated

    def _read(self, path: str, read: Callable[[object], int]) -> ServiceAmount | None:
        """Read a field; None if it is not stated, or not valid, which is reported."""
        milli = _read(self._find(path), read, self._at(path), self.problems)
        return None if milli is None else ServiceAmount(milli=milli, where=self._at(path))

    def _find(self, path: str) -> object:
        """Return the value at a path of keys; None if there is none."""
        value: object = self._fields
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def _at(self, path: str) -> str:
        return f"{self._where}.{path}" if path else self._where

    def _error(self, path: str, message: str, hint: str = "") -> None:
        problem = Problem(where=self._at(path), message=message, hint=hint)
        if problem not in self.problems:
            self.problems.append(problem)

    def _warn(self, path: str, message: str, hint: str = "") -> None:
        self.problems.append(warning(self._at(path), message, hint))
