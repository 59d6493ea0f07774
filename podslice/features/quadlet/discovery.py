"""Services → the networks of namespaces, with the names of pods and the ports of the host. Pure.

The pods of a namespace with a Service share a network, whose DNS knows the names of the Services. A
name resolves to the addresses of the pods: there is no proxy, so that clients use the pods' ports.

Source: Kubernetes, "Service" and "DNS for Services and Pods"; podman-network-create(1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from podslice.errors import Problem, quote
from podslice.features.quadlet.workload import PodNetwork, PodWorkload, Port, Protocol
from podslice.inputs.manifest.fields import SERVICE
from podslice.inputs.manifest.load import StatedData
from podslice.inputs.manifest.reading import Fields, Problems, entries_of, unstated
from podslice.inputs.scalars import extend_path
from podslice.model.grammar import SUBDOMAIN_MAX
from podslice.model.pod import ContainerKind, Pod

SERVICES_MAX = 1_000
SELECTIONS_MAX = 20_000
"""How many pods all Services together may select; a pod gets four names from each Service."""
_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
_DOMAINS = ("", ".svc", ".svc.cluster.local")


class Member(NamedTuple):
    """A pod, as Services select it."""

    pod: Pod
    workload: PodWorkload
    labels: Mapping[str, Any]
    governing: str = ""
    """The `serviceName` of its StatefulSet."""

    @property
    def is_named(self) -> bool:
        """Return whether the pod has an address to which a name can resolve."""
        return not self.workload.fields["hostNetwork"]

    @property
    def hostname(self) -> str:
        """Return the host name of the pod, which podman's DNS knows, too."""
        return self.workload.fields["hostname"] or self.pod.name

    @property
    def knows_services(self) -> bool:
        """Return whether it asks the DNS of its namespace."""
        return self.is_named and self.workload.fields["dnsPolicy"] not in ("None", "Default")

    @property
    def ports(self) -> dict[tuple[str, Protocol], int]:
        """Return the named ports of the pod. Source: Kubernetes, pkg/api/v1/pod/util.go, FindPort."""
        containers = (each for each in self.workload.containers if each.kind != ContainerKind.INIT)
        listed = (port for each in containers for port in each.ports if port.name)
        return {(port.name, port.protocol): port.container_port for port in listed}


class _Service(NamedTuple):
    name: str
    namespace: str
    fields: Fields
    """Its `spec`."""
    path: str
    problems: Problems

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_headless(self) -> bool:
        return bool(self.fields["clusterIP"] == "None")

    def names_of(self, member: Member) -> Iterator[str]:
        """Yield the names that a pod has by the Service."""
        is_own = self.is_headless and member.governing == self.name
        for name in (self.name, *([f"{member.pod.name}.{self.name}"] if is_own else [])):
            for suffix in ("", *(f".{self.namespace}{each}" for each in _DOMAINS)):
                if len(name + suffix) <= SUBDOMAIN_MAX:
                    yield name + suffix


def _listed(pods: Sequence[Member]) -> str:
    more = f" and {len(pods) - 1} more" if pods[1:] else ""
    return f"pod {pods[0].pod.name}{more}"


class _Group(NamedTuple):
    """Pods with the same named ports, as all replicas are."""

    ports: Mapping[tuple[str, Protocol], int]
    pods: Sequence[Member]


def _group_by_ports(pods: Iterable[Member]) -> list[_Group]:
    found: dict[frozenset[tuple[tuple[str, Protocol], int]], list[Member]] = {}
    for each in pods:
        found.setdefault(frozenset(each.ports.items()), []).append(each)
    return [_Group(dict(ports), members) for ports, members in found.items()]


def connect(
    stated: Iterable[StatedData], members: Sequence[Member], namespace: str | None
) -> tuple[Mapping[str, PodNetwork], Mapping[str, Sequence[Problem]]]:
    """Return the networks of pods, by pod, and what Services lose here, by document.

    A pod without a network here keeps podman's default network.

    Args:
        stated: the Services of the files; other objects are left out.
        members: the pods of the files.
        namespace: of Services that state none.
    """
    services: dict[str, _Service] = {}
    found: dict[str, list[Problems]] = {}
    for each in stated:
        if each.kind == SERVICE:
            service = _read_service(each, namespace)
            found.setdefault(each.where, []).append(service.problems)
            first = services.setdefault(service.key, service)
            if first is not service:
                message = f"the Service {quote(service.name)} is already in {first.problems.where}"
                service.problems.error(each.path, message, "remove one of the two")
            elif len(services) > SERVICES_MAX:
                service.problems.error(each.path, f"there are more than {SERVICES_MAX:,} Services")
                break
    making = _Making(members=members)
    for service in services.values():
        if not service.problems.found:
            making.add(service)
    networks = {
        each.pod.key: PodNetwork(
            aliases=tuple(making.aliases.get(each.pod.key, ())),
            published=tuple(making.published.get(each.pod.key, ())),
        )
        for each in members
        if each.pod.key in making.aliases
        or (each.knows_services and each.pod.namespace in making.namespaces)
    }
    lost = {where: [*chain.from_iterable(each.found for each in of)] for where, of in found.items()}
    return networks, lost


def _read_service(stated: StatedData, namespace: str | None) -> _Service:
    problems, data = Problems(stated.where), stated.data
    problems.add("", *data.problems, *data.texts, *data.further)
    metadata = data.fields["metadata"] or unstated("NamedMeta")
    if not metadata["name"] and not problems.found:
        problems.error(extend_path(stated.path, "metadata", "name"), "a name is required")
    return _Service(
        name=metadata["name"] or "",
        namespace=metadata["namespace"] or namespace or "default",
        fields=data.fields["spec"] or unstated("ServiceSpec"),
        path=extend_path(stated.path, "spec"),
        problems=problems,
    )


@dataclass(kw_only=True)
class _Making:
    """What the Services so far give the pods."""

    members: Sequence[Member]
    namespaces: set[str] = field(default_factory=set)
    aliases: dict[str, list[str]] = field(default_factory=dict)
    published: dict[str, list[Port]] = field(default_factory=dict)
    holders: dict[tuple[int, Protocol], str] = field(default_factory=dict)
    """Port of the host → the Service that publishes it."""
    selections: int = 0

    def add(self, service: _Service) -> None:
        """Add a Service, and what is lost of it."""
        fields, path, problems = service.fields, service.path, service.problems
        kind = fields["type"] or _TYPES[0]
        if kind not in _TYPES:
            hint = f"write one of {', '.join(_TYPES)}"
            problems.error(f"{path}.type", f"unknown type {quote(kind)}", hint)
        elif kind == "ExternalName":
            message = f"podman's DNS has no aliases of other hosts: {service.name} does not resolve"
            hint = f"let clients use {fields['externalName']}"
            problems.warn(f"{path}.externalName", message, hint)
        elif not fields["selector"]:
            message = f"a Service without a selector has no pods: {service.name} does not resolve"
            problems.warn(path, message, "write its address into hostAliases of the clients")
        else:
            self.namespaces.add(service.namespace)
            self._add_pods(service, kind)

    def _add_pods(self, service: _Service, kind: str) -> None:
        fields, path, problems = service.fields, service.path, service.problems
        selector = fields["selector"].items()
        nearby = [each for each in self.members if each.pod.namespace == service.namespace]
        selected = [each for each in nearby if selector <= each.labels.items()]
        if not selected:
            message = "selects no pod of these files"
            problems.warn(f"{path}.selector", message, "add their file with another -f")
        self.selections += len(selected)
        if self.selections > SELECTIONS_MAX:
            message = f"all Services together select pods more than {SELECTIONS_MAX:,} times"
            problems.error(f"{path}.selector", message)
            return
        keys = {each.pod.key for each in selected}
        others = (each for each in nearby if each.is_named and each.pod.key not in keys)
        if named := [each for each in others if each.hostname == service.name]:
            message = f"the name also resolves to {_listed(named)}, whose host name it is"
            problems.warn(f"{path}.selector", message, "rename one of the two")
        if of_host := [each for each in selected if not each.is_named]:
            message = f"pods in the host's network have no name of a Service: {_listed(of_host)}"
            problems.warn(f"{path}.selector", message, "let clients use the name of the host")
        pods = [each for each in selected if each.is_named]
        for each in pods:
            self.aliases.setdefault(each.pod.key, []).extend(service.names_of(each))
        if len(pods) > 1 and not service.is_headless:
            is_sticky = fields["sessionAffinity"] == "ClientIP"
            message = f"the name resolves to the addresses of all {len(pods)} pods"
            problems.warn(f"{path}.{'sessionAffinity' if is_sticky else 'selector'}", message)
        groups = _group_by_ports(pods)
        for entry, at in entries_of(fields["ports"], f"{path}.ports"):
            if groups and entry["port"]:
                self._add_port(service, entry, at, groups, kind)
        if fields["externalIPs"]:
            hint = "use the type LoadBalancer, which publishes the port at all addresses"
            problems.warn(f"{path}.externalIPs", "is not kept", hint)

    def _add_port(
        self, service: _Service, entry: Fields, path: str, groups: Sequence[_Group], kind: str
    ) -> None:
        """Publish a port of the first pod, and report where clients cannot use the Service's own."""
        problems, port = service.problems, entry["port"]
        stated = entry["protocol"] or "TCP"
        if not problems.check(f"{path}.protocol", stated, tuple(Protocol)):
            return
        protocol, named = Protocol(stated), entry["targetPort"] or port
        targets = [
            each.ports.get((named, protocol)) if isinstance(named, str) else named
            for each in groups
        ]
        lack = (each.pods for each, target in zip(groups, targets, strict=True) if target is None)
        if lacking := [*chain.from_iterable(lack)]:
            message = f"no container of {_listed(lacking)} has a port {quote(named)}"
            problems.warn(f"{path}.targetPort", message, "name it in the container's ports")
        others = sorted({each for each in targets if each not in (None, port)})
        if others and not service.is_headless:
            listed = " or ".join(map(str, others))
            message = (
                f"the name resolves to the pod itself: clients must use port {listed}, not {port}"
            )
            problems.warn(f"{path}.targetPort", message)
        first, target = groups[0].pods[0], targets[0]
        for number in self._published(service, entry, path, kind):
            holder = self.holders.setdefault((number, protocol), service.key)
            if holder != service.key:
                message = f"port {number} of the host is not published: Service {holder} has it"
                problems.warn(path, message, "state another one")
            elif target is not None:
                made = Port(container_port=target, host_port=number, protocol=protocol)
                self.published.setdefault(first.pod.key, []).append(made)
                if len(groups) > 1 or len(groups[0].pods) > 1:
                    message = f"port {number} of the host is published by pod {first.pod.name} only"
                    problems.warn(path, message)

    def _published(self, service: _Service, entry: Fields, path: str, kind: str) -> Iterator[int]:
        """Yield the ports of the host; a load balancer has the address of the host."""
        if kind == _TYPES[0]:
            return
        if service.fields["loadBalancerSourceRanges"]:
            message = "is not kept, so that no port is published"
            hint = "remove it, and restrict access in the firewall"
            service.problems.warn(f"{service.path}.loadBalancerSourceRanges", message, hint)
            return
        if kind == "LoadBalancer":
            yield entry["port"]
        if entry["nodePort"]:
            yield entry["nodePort"]
        elif kind == "NodePort":
            message = "no port of the host is published: Kubernetes would choose one"
            service.problems.warn(path, message, "state nodePort")
