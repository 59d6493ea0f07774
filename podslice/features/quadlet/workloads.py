"""Documents with pods → their workloads, and the fields that cannot be kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from podslice.errors import Problem, quote
from podslice.features.quadlet.workload import (
    Claim,
    ContainerWorkload,
    Dns,
    PodWorkload,
    Restart,
    Volume,
)
from podslice.features.quadlet.workload_containers import (
    ContainerReader,
    EnvironmentReader,
    SecurityReader,
)
from podslice.features.quadlet.workload_fields import Refusals, owner_path, refuse_of_owner
from podslice.features.quadlet.workload_models import DnsFields, PodSecurityFields, WorkloadFields
from podslice.features.quadlet.workload_volumes import (
    DataObjects,
    VolumeReader,
    read_claims,
    read_objects,
)
from podslice.inputs.manifest.kinds import WORKLOADS
from podslice.inputs.manifest.schema import read_model
from podslice.inputs.manifest.unknown_fields import find_unknown
from podslice.model.pod import Pod

_STEP = re.compile(r"([^.[\]]+)|\[(\d+)\]")


class LoadedWorkloads(NamedTuple):
    """The workloads of pods, by `namespace/name`, with the problems of all."""

    workloads: Mapping[str, PodWorkload]
    problems: tuple[Problem, ...]


def read_workloads(
    pods: Iterable[Pod],
    documents: Mapping[str, object],
    *,
    namespace: str | None = None,
    ignored: frozenset[str] = frozenset(),
) -> LoadedWorkloads:
    """Read the workloads of pods.

    Args:
        pods: the pods of the documents.
        documents: address → value, as `load_pods` keeps them.
        namespace: of ConfigMaps and Secrets that state none.
        ignored: fields that are given up instead of refused.
    """
    objects, found = read_objects(documents, namespace)
    workloads = {}
    problems = list(found)
    used: set[str] = set()
    for pod in pods:
        spec = _find(documents.get(pod.where), pod.spec_where)
        owner = owner_path(pod.spec_where)
        holder = _find(documents.get(pod.where), owner)
        kind = str(holder.get("kind")) if isinstance(holder, Mapping) else ""
        found_unknown = find_unknown(holder, kind, owner) if kind in WORKLOADS else ()
        unknown = frozenset(each.path for each in found_unknown)
        known = frozenset(each.where for each in pod.problems)
        refusals = Refusals(where=pod.where, ignored=ignored, unknown=unknown, known=known)
        refuse_of_owner(kind, holder, owner, refusals)
        claims = read_claims(pod, holder, owner, refusals)
        beside = f"{pod.spec_where.removesuffix('spec')}metadata"
        metadata = _find(documents.get(pod.where), beside)
        workloads[pod.key] = _read_spec(pod, spec, metadata, claims, refusals, objects)
        problems += refusals.found
        used |= refusals.used
    problems += [
        Problem(where="--ignore", message=f"no field {quote(each)} was refused", hint="remove it")
        for each in sorted(ignored - used)
    ]
    return LoadedWorkloads(workloads=workloads, problems=tuple(dict.fromkeys(problems)))


def _find(value: object, path: str) -> object:
    """Return what a document has at the path of a pod's spec."""
    for name, index in _STEP.findall(path):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and index and int(index) < len(value):
            value = value[int(index)]
        else:
            return None
    return value


def _read_spec(
    pod: Pod,
    spec: object,
    metadata: object,
    claims: Mapping[str, Claim],
    refusals: Refusals,
    objects: DataObjects,
) -> PodWorkload:
    """Return the workload; a claim replaces the pod's own volume of the same name."""
    path = pod.spec_where
    fields, found = read_model(WorkloadFields, spec or {}, path)
    # the resources' own reader has reported these types already
    known = {str(each) for each in pod.problems}
    refusals.add(each for each in found if str(each.within(pod.where)) not in known)
    refusals.refuse_unread(fields, spec, path)
    reader = VolumeReader(refusals=refusals, objects=objects, namespace=pod.namespace)
    own = reader.read(fields.volumes or (), f"{path}.volumes")
    volumes = (*(each for each in own if each.name not in claims), *claims.values())
    security = fields.security_context or PodSecurityFields()
    return PodWorkload(
        containers=tuple(_read_containers(pod, fields, metadata, volumes, refusals, objects)),
        volumes=volumes,
        restart=_restart(fields, refusals, path),
        host_network=bool(fields.host_network),
        host_pid=bool(fields.host_pid),
        shares_processes=bool(fields.share_process_namespace),
        private_users=fields.host_users is False,
        hostname=fields.hostname or "",
        dns=_dns(fields, refusals, path),
        hosts={
            name: each.ip or ""
            for each in fields.host_aliases or ()
            for name in each.hostnames or ()
        },
        sysctls={each.name or "": each.value or "" for each in security.sysctls or ()},
        groups=tuple(security.supplemental_groups or ()),
    )


def _read_containers(
    pod: Pod,
    fields: WorkloadFields,
    metadata: object,
    volumes: tuple[Volume, ...],
    refusals: Refusals,
    objects: DataObjects,
) -> Iterator[ContainerWorkload]:
    """Yield init containers and sidecars, then the others."""
    path = pod.spec_where
    reader = ContainerReader(
        refusals=refusals,
        environment=EnvironmentReader(
            refusals=refusals,
            objects=objects,
            pod=pod,
            metadata=metadata,
        ),
        security=SecurityReader(
            refusals=refusals,
            pod=fields.security_context or PodSecurityFields(),
            pod_path=f"{path}.securityContext",
        ),
        volumes={
            **{each.name: None for each in fields.volumes or () if each.name},
            **{each.name: each for each in volumes},
        },
        host_network=bool(fields.host_network),
    )
    yield from reader.read(fields.init_containers or (), f"{path}.initContainers", init=True)
    yield from reader.read(fields.containers or (), f"{path}.containers", init=False)


def _restart(fields: WorkloadFields, refusals: Refusals, path: str) -> Restart:
    stated = fields.restart_policy or Restart.ALWAYS
    if stated in tuple(Restart):
        return Restart(stated)
    hint = f"write one of {', '.join(Restart)}"
    refusals.error(f"{path}.restartPolicy", f"unknown value {quote(stated)}", hint)
    return Restart.ALWAYS


def _dns(fields: WorkloadFields, refusals: Refusals, path: str) -> Dns:
    """Read the resolver. Podman replaces the host's with what is stated, as the policy None does.

    Source: Kubernetes, pkg/kubelet/network/dns/dns.go, GetPodDNS; podman-pod-create(1), --dns.
    """
    config = fields.dns_config or DnsFields()
    policy = fields.dns_policy or "ClusterFirst"
    if policy not in ("None", "Default", "ClusterFirst", "ClusterFirstWithHostNet"):
        hint = "write None or Default"
        refusals.error(f"{path}.dnsPolicy", f"unknown value {quote(policy)}", hint)
    if policy != "None" and (config.nameservers or config.searches):
        reason = "podman cannot add to the host's resolver, only replace it"
        refusals.refuse(f"{path}.dnsConfig", reason, "set dnsPolicy: None")
        return Dns()
    if policy == "None" and not config.nameservers:
        refusals.error(f"{path}.dnsConfig.nameservers", "dnsPolicy None needs at least one")
    return Dns(
        servers=tuple(config.nameservers or ()),
        # without an entry, podman takes the host's; "." stands for none
        searches=tuple(config.searches or ("." if policy == "None" else "")),
        options=tuple(
            f"{each.name}:{each.value}" if each.value else each.name or ""
            for each in config.options or ()
        ),
    )
