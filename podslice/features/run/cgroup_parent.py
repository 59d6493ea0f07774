"""`podslice cgroup-parent`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from podslice.cli.arguments import DONE, Namespace, PodName, container_option, files_option
from podslice.cli.host import applied_pod, applied_pods, load_node, tolerate
from podslice.cli.manifests import all_problems, decide_all, load_manifests, named_pods
from podslice.cli.options import Planning, configured
from podslice.cli.output import note, write, write_json
from podslice.cli.pods import only_pod_named
from podslice.cli.report import document
from podslice.cli.views.runtime_options import (
    FORMATTERS,
    Form,
    Parent,
    docker_options,
    podman_options,
    podman_pod_options,
)
from podslice.errors import HostError, InputError, Severity
from podslice.features.run.target import find_container
from podslice.kernel.cgroup import CgroupFs
from podslice.model.desired import PodDecision
from podslice.policy.decide import decide

HINTS = {
    Form.PODMAN: "in a podman pod, every container needs these options, and the pod itself none",
    Form.PODMAN_POD: "every container of the podman pod also needs the options of -o podman",
    Form.DOCKER: "docker's cgroup driver must be systemd: docker info -f '{{.CgroupDriver}}'",
    Form.COMPOSE: "docker's cgroup driver must be systemd: docker info -f '{{.CgroupDriver}}'",
    Form.OCI: "for runc and crun with --systemd-cgroup",
}
"""What else a form requires; printed only on a terminal."""

LimitsOf = Annotated[str | None, container_option("Include this container's limits.")]
ManifestFiles = Annotated[list[str] | None, files_option("Manifests with the pod; - for stdin.")]
OutputForm = Annotated[
    Form,
    typer.Option("--output", "-o", metavar="FORM", help="One of the forms above."),
]


@dataclass(frozen=True, kw_only=True)
class ContainerEntry:
    """The container of a pod, whose limits the options have."""

    name: str
    scope: str
    oom_score_adj: int
    properties: dict[str, int | str]


@dataclass(frozen=True, kw_only=True)
class ParentReport:
    """A pod's slice, and the options of each runtime."""

    pod: str
    uid: str
    slice: str
    control_group: str
    exists: bool
    labels: dict[str, str]
    container: ContainerEntry | None
    podman_options: list[str]
    podman_pod_options: list[str]
    docker_options: list[str]
    lines: dict[Form, str]
    """The text of every other form; `oci` only with a container."""


def _report(parent: Parent) -> ParentReport:
    container = parent.container
    return ParentReport(
        pod=parent.pod.pod.key,
        uid=parent.pod.pod.uid,
        slice=parent.pod.slice,
        control_group=parent.pod.control_group,
        exists=parent.exists,
        labels=dict(parent.labels),
        container=None
        if container is None
        else ContainerEntry(
            name=container.name,
            scope=container.scope,
            oom_score_adj=container.oom_score_adj,
            properties=dict(parent.properties),
        ),
        podman_options=podman_options(parent),
        podman_pod_options=podman_pod_options(parent),
        docker_options=docker_options(parent),
        lines={
            form: "\n".join(make(parent))
            for form, make in FORMATTERS.items()
            if container or form is not Form.OCI
        },
    )


@configured
def cgroup_parent(
    planning: Planning,
    pod: PodName,
    container: LimitsOf = None,
    filename: ManifestFiles = None,
    namespace: Namespace = None,
    output: OutputForm = Form.NAME,
) -> int:
    """Run `podslice cgroup-parent`.

    The options make podman, docker, systemd or an OCI runtime start a container in the slice. The
    forms are name, podman, podman-pod, docker, compose, systemd, quadlet, oci and json.

    Examples:
        podman run $(podslice cgroup-parent web -o podman) IMAGE
        podslice cgroup-parent web -f web.yaml -o systemd
    """
    if filename:
        found = _find_in(planning, filename, pod, namespace)
        key = found.pod.key
    else:
        planning = tolerate(planning)
        key = applied_pod(planning, pod, namespace)
        found = _find_applied(planning, key)
    limits_of = None
    if container is not None or output is Form.OCI:
        limits_of = find_container(found, container)
    parent = Parent(
        pod=found, container=limits_of, manager=planning.manager, exists=_exists(planning, found)
    )
    if output is Form.JSON:
        write_json(document(_report(parent)))
    else:
        write(FORMATTERS[output](parent))
    if not parent.exists:
        note(
            f"{found.slice} does not exist: units in it start without limits, or fail; apply"
            f" pod {key} first: podslice apply{planning.manager.flag} -f FILE"
        )
    if output in HINTS and sys.stdout.isatty():
        note(HINTS[output])
    return DONE


def _find_in(
    planning: Planning, filename: list[str], name: str, namespace: str | None
) -> PodDecision:
    """Return the decision about a pod of manifests.

    Raises:
        InputError: the pod is not in the manifests, or invalid.
    """
    config = planning.config
    loaded = load_manifests(filename, namespace, config.validate)
    decisions = decide_all(
        loaded, load_node(config, lenient=True, manager=planning.manager), config
    )
    key = only_pod_named(name, namespace, {each.pod.key for each in decisions})
    (found,) = named_pods(decisions, [key], None)
    problems = all_problems(loaded, [found])
    if any(each.severity is Severity.ERROR for each in problems):
        raise InputError(problems)
    return found


def _find_applied(planning: Planning, key: str) -> PodDecision:
    """Return the decision about an applied pod.

    Raises:
        HostError: the pod is not applied.
    """
    config = planning.config
    for pod in applied_pods(planning):
        if pod.key == key:
            return decide(pod, load_node(config), config)
    raise HostError(
        f"pod {key} is not applied; apply its manifest first, or specify the file: -f FILE"
    )


def _exists(planning: Planning, found: PodDecision) -> bool:
    """Return whether the pod is applied and its slice exists, as far as permissions allow."""
    try:
        uids = {pod.uid for pod in applied_pods(planning)}
    except HostError:
        return False
    group = planning.manager.path_of(found.control_group)
    return found.pod.uid in uids and CgroupFs().exists(group)
