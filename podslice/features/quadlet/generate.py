"""A pod → the units with which systemd and podman's generator run it. Pure: values in, files out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from podslice.errors import InputError, invalid
from podslice.features.quadlet.container import (
    ContainerUnit,
    add_restart_of_pod,
    add_values,
    notes_on_systemd,
)
from podslice.features.quadlet.jobs import boot_target, job_files, notes_on_job
from podslice.features.quadlet.probes import (
    needs_prober,
    prober_files,
    program_problem,
    start_line,
)
from podslice.features.quadlet.result import (
    KEPT,
    OWN_SECTION,
    File,
    Options,
    PodSource,
    Quadlets,
    stem,
)
from podslice.features.quadlet.unit_text import (
    Section,
    argument,
    csv_field,
    double,
    plain,
    section,
    unit_file,
)
from podslice.features.quadlet.volume_units import (
    data_directories,
    data_files,
    size_files,
    volume_file,
)
from podslice.features.quadlet.workload import (
    DataFiles,
    PodWorkload,
    Protocol,
    is_in_memory,
)
from podslice.inputs.manifest.fields import checked
from podslice.model.desired import PodDecision
from podslice.model.grammar import LABEL_MAX
from podslice.model.naming import POD_LABEL, SANDBOX_SLICE, podman_network

_NAME_MAX = 255 - len("..podslice-new")
"""The longest name of a file that is first written under another one.

Source: Linux, include/uapi/linux/limits.h, NAME_MAX.
"""
_SHOWN = 64
_USER_SERVICES = ("podslice-agent.service",)
_SERVICES = ("podslice-apply.service", *_USER_SERVICES)
_SHARED = "--share=ipc,net,uts,pid"
_SEARCH_OF_NETWORK = "dns.podman"
"""The search domain of a network with podman's DNS."""
_STOP_SEC = 300
"""How long podman may take to remove a pod: it runs within the pod's limits, which may be small."""


def make_quadlets(
    decisions: Iterable[PodDecision], workloads: Mapping[str, PodWorkload], options: Options
) -> tuple[Quadlets, ...]:
    """Return the units of pods.

    Raises:
        InputError: their services cannot execute podslice, or a text does not fit in a unit.
    """
    pods = [(each, workloads[each.pod.key]) for each in decisions]
    found = [program_problem(each.pod.key, workload, options) for each, workload in pods]
    problems = [each for each in found if each is not None]
    made: list[Quadlets] = []
    for each, workload in pods:
        try:
            made.append(generate(each, workload, options))
        except InputError as error:
            problems += [problem.within(f"pod {each.pod.key}") for problem in error.problems]
    if problems:
        raise InputError(problems)
    return tuple(made)


def generate(decision: PodDecision, workload: PodWorkload, options: Options) -> Quadlets:
    """Return the files of a pod.

    Args:
        decision: what policy has decided on it; its slice and the properties of its containers.
        workload: its containers and volumes.
        options: the service manager, and the versions of systemd and podman.

    Raises:
        InputError: a text of the pod does not match its grammar, or does not fit in a unit.
    """
    _check_names(decision, workload)
    pod = PodSource(decision=decision, workload=workload, options=options)
    files = list(_files(pod))
    for each in files:
        name = each.path.rpartition("/")[2]
        if len(name) > _NAME_MAX:
            message = f"the file {name[:_SHOWN]}… has a name of {len(name)} characters"
            hint = f"shorten the names of pod and container: the maximum is {_NAME_MAX}"
            raise invalid(message, hint)
    has_data = any(each.path.startswith(f"{pod.data}/") for each in files)
    has_data = has_data or any(isinstance(each, DataFiles) for each in workload.volumes)
    return Quadlets(
        pod=pod.key,
        service=pod.pod_service,
        files=tuple(files),
        directories=tuple(data_directories(pod)) if has_data else (),
        data=pod.data,
        mark=pod.mark,
        notes=tuple(_notes(files, pod)),
    )


def _check_names(decision: PodDecision, workload: PodWorkload) -> None:
    pod = decision.pod
    checked("ObjectMeta.name", pod.name)
    checked("ObjectMeta.namespace", pod.namespace)
    checked("ObjectMeta.uid", pod.uid)
    for container in workload.containers:
        checked("Container.name", container.name)
    for volume in workload.volumes:
        checked("Volume.name", volume.name)


def _files(pod: PodSource) -> Iterator[File]:
    yield _pod_file(pod)
    if pod.workload.network is not None:
        yield _network_file(pod)
    volumes = {each.name: each for each in pod.workload.volumes}
    for container in pod.workload.containers:
        yield from ContainerUnit(container=container, pod=pod, volumes=volumes).files()
        if needs_prober(container, pod.options):
            yield from prober_files(container, pod)
    if pod.workload.job is not None:
        yield from job_files(pod, pod.workload.job, _conditions(pod))
    yield from size_files(pod)
    for volume in pod.workload.volumes:
        yield from volume_file(volume, pod)
        yield from data_files(volume, pod)


def _conditions(pod: PodSource) -> Section:
    """Return the lines without which nothing of a pod starts."""
    head = section("Unit")
    head.add("After", *(_USER_SERVICES if pod.options.manager.is_user else _SERVICES))
    head.comment("without the record of an applied pod, or a unit file, the slice has no limits")
    head.add("AssertPathExists", *_limits(pod))
    return head


def _pod_file(pod: PodSource) -> File:
    head, service, install = section("Unit"), section("Service"), section("Install")
    head.add("Description", f"Pod {double(pod.key)}")
    head.lines += _conditions(pod).lines
    service.add("Slice", pod.decision.slice)
    # podman may pull the image of its first container; each container waits for that
    service.add("TimeoutStartSec", "infinity")
    service.add("TimeoutStopSec", f"{_STOP_SEC}s")
    add_values(service, pod)
    add_restart_of_pod(head, service, pod)
    for volume in pod.limited_volumes:
        service.add("ExecStartPost", start_line(pod.size_watch(volume.name), pod.options))
    if pod.workload.job is None:
        install.add("WantedBy", boot_target(pod.options))
    own = section(OWN_SECTION)
    if pod.options.is_kept:
        own.add(KEPT, "yes")
    return unit_file(pod.pod_file, head, _pod(pod), service, install, own)


def _network_file(pod: PodSource) -> File:
    """Return the unit of the network, which the next start of the pod creates if it was removed."""
    head, body = section("Unit"), section("Network")
    head.add("Description", f"Network of pod {double(pod.key)}")
    head.add("PartOf", pod.pod_service)
    body.add("NetworkName", podman_network(pod.decision.pod.namespace))
    return unit_file(pod.network_file, head, body)


def _limits(pod: PodSource) -> Iterator[str]:
    """Yield the files of which one exists if the slice has its limits.

    systemd itself makes a missing slice for a service, without any: at boot, or if the pod was
    evicted. It compares these files after the units above have started.

    Source: systemd.unit(5), "Conditions and Asserts" and "Specifiers".
    """
    kind = "user" if pod.options.manager.is_user else "system"
    yield f"|%t/podslice/pods/{pod.decision.pod.uid}.json"
    yield f"|%E/systemd/{kind}/{pod.decision.slice}"


def _pod(pod: PodSource) -> Section:
    """Return the section of podman's pod.

    The pod remains when its last container exits, since systemd may start that one again. Podman's own
    container is in a slice that systemd does not stop at shutdown before the pod's services.

    Source: podman 5.4, pkg/systemd/quadlet/quadlet.go, ConvertPod; podman-pod-create(1).
    """
    workload, body = pod.workload, section("Pod")
    body.add("PodName", pod.name)
    if pod.decision.overhead:
        body.add("ServiceName", stem(pod.pod_service))
    body.add("PodmanArgs", "--exit-policy=continue")
    body.add("PodmanArgs", f"--cgroup-parent={SANDBOX_SLICE}")
    body.add("PodmanArgs", argument(f"--label={POD_LABEL}={pod.key}"))
    _add_network(body, pod)
    for name, value in workload.sysctls.items():
        checked("Sysctl.name", name)
        checked("Sysctl.value", value)
        body.add("PodmanArgs", argument(f"--sysctl={csv_field(f'{name}={value}')}"))
    if workload.fields["hostPID"]:
        body.add("PodmanArgs", "--pid=host")
    elif workload.fields["shareProcessNamespace"]:
        body.add("PodmanArgs", _SHARED)
    if workload.fields["hostUsers"] is False:
        body.add("UserNS", "auto")
    return body


def _add_network(body: Section, pod: PodSource) -> None:
    """Add network, ports and names; the host's network has no ports to publish."""
    workload = pod.workload
    if workload.fields["hostNetwork"]:
        body.add("Network", "host")
    else:
        if workload.network is not None:
            body.add("Network", pod.network_file)
            body.add_text("NetworkAlias", "HostAlias.hostnames", *workload.network.aliases)
        body.add("PublishPort", *dict.fromkeys(_published(workload)))
    if hostname := _hostname(pod):
        body.add("PodmanArgs", argument(f"--hostname={hostname}"))
    dns = workload.dns
    body.add_text("DNS", "PodDNSConfig.nameservers", *dns.servers)
    if _adds_searches(workload) and workload.network is not None:
        # those that are stated replace it
        body.add("DNSSearch", _SEARCH_OF_NETWORK)
    body.add_text("DNSSearch", "PodDNSConfig.searches", *dns.searches)
    for name, value in dns.options:
        text = plain("PodDNSConfigOption.name", name)
        text += f":{plain('PodDNSConfigOption.value', value)}" if value else ""
        body.add("DNSOption", text)
    for name, ip in workload.hosts.items():
        host = plain("HostAlias.hostnames", name)
        body.add("AddHost", f"{host}:{plain('HostAlias.ip', ip)}")


def _adds_searches(workload: PodWorkload) -> bool:
    """Return whether a pod has search domains in addition to others."""
    return bool(workload.dns.searches) and workload.fields["dnsPolicy"] != "None"


def _hostname(pod: PodSource) -> str:
    """Return the host name of a pod; empty for the name of podman's pod, or of the host.

    Source: Kubernetes, pkg/kubelet/kubelet_pods.go, GeneratePodHostNameAndDomain and
    truncatePodHostnameIfNeeded.
    """
    fields = pod.workload.fields
    if stated := fields["hostname"]:
        return checked("PodSpec.hostname", stated)
    own = pod.decision.pod.name[:LABEL_MAX].rstrip("-.")
    return "" if fields["hostNetwork"] or own == pod.name else own


def _published(workload: PodWorkload) -> Iterator[str]:
    """Yield the ports of the host, each once.

    Source: podman-pod-create(1), --publish; the default protocol is TCP.
    """
    stated = [port for container in workload.containers for port in container.ports]
    for port in (*stated, *(workload.network.published if workload.network else ())):
        if port.host_port is not None:
            address = port.host_ip and checked("ContainerPort.hostIP", port.host_ip)
            address = f"[{address}]" if ":" in address else address
            start = f"{address}:" if address else ""
            end = "" if port.protocol is Protocol.TCP else f"/{port.protocol.lower()}"
            yield f"{start}{port.host_port}:{port.container_port}{end}"


def _notes(files: Iterable[File], pod: PodSource) -> Iterator[str]:
    """Yield what an operator has to know, since no unit has it."""
    key, workload = pod.key, pod.workload
    for each in (*notes_on_systemd(pod), *notes_on_job(workload)):
        yield f"pod {key}: {each}"
    secret = [each.path for each in files if each.is_secret and each.path.endswith(".container")]
    for path in secret:
        yield f"pod {key}: {path} has a Secret's value in it, which all users can read with systemctl show"
    memory = [each.name for each in workload.volumes if is_in_memory(each)]
    if memory:
        listed = ", ".join(memory)
        yield f"pod {key}: podslice apply mounts {listed} in memory before the pod starts"
    if _adds_searches(workload) and workload.network is None:
        yield f"pod {key}: the search domains of its dnsConfig precede those of the host"
    if workload.network is not None and not pod.options.has_dns:
        yield f"pod {key}: names of Services do not resolve without aardvark-dns; install aardvark-dns"
    if any(any(pod.decided(each.name).hugepages.values()) for each in workload.containers):
        yield f"pod {key}: the limits of huge pages are set by podslice, not by the units"
