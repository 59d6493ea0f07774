"""Imported pods: their manifests, and how their units and containers are placed in them.

Pure: values in, lines and documents out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from podslice.cli.views.documents import Document
from podslice.cli.views.new_manifest import NewPod, describe_use, format_lines, make_document
from podslice.model.desired import PodDecision
from podslice.model.manager import Manager
from podslice.model.quantity import about_bytes
from podslice.policy.present_settings import PresentSettings
from podslice.policy.present_settings import PresentUse
from podslice.processes.runtime_options import (
    FORMATTERS,
    Form,
    Parent,
    drop_in,
    podman_options,
    systemd_run,
)


class Mover(StrEnum):
    """How a unit or a container gets into the pod."""

    DROP_IN = "drop-in"
    """A service with a unit file."""
    SYSTEMD_RUN = "systemd-run"
    """A transient service."""
    ADOPT = "adopt"
    """A scope, whose processes another program has started."""
    PODMAN = "podman"
    QUADLET = "quadlet"
    """A container that a service of podman's generator has started."""


class ImportSource(NamedTuple):
    """A unit or a container to import."""

    name: str
    """The base of the container's name: `nginx`."""
    what: str
    """`nginx.service`, or `podman container web`."""
    settings: PresentSettings
    use: PresentUse | None = None
    """None if it has no processes."""
    oom_score_adj: int | None = None
    """The OOM score of its processes; None if they have none in common."""
    mover: Mover = Mover.DROP_IN
    unit: str = ""
    """The service that starts it; empty where `what` is the unit."""

    caveat: str = ""
    """A sentence about what is not included; empty if that is nothing."""

    @property
    def is_unit(self) -> bool:
        """Return whether it is a unit, not a container of a runtime."""
        return self.mover not in (Mover.PODMAN, Mover.QUADLET)

    @property
    def origin(self) -> str:
        """Return where the container's values are from."""
        if self.use is None:
            return f"{self.what}, which has no processes"
        peak = self.use.peak_bytes
        most = "" if peak is None else f"; its peak of memory is {about_bytes(peak)}"
        return f"{describe_use(self.use)}{most}"


class ImportDraft(NamedTuple):
    """The manifest of a pod with what it is imported from."""

    pod: NewPod
    sources: Mapping[str, ImportSource]
    """By the name of the container."""
    further: Mapping[str, tuple[str, ...]]
    """Settings that the manifest does not have, by container."""
    further_of_slice: tuple[str, ...] = ()


class ImportedPod(NamedTuple):
    """An imported pod with the units that it will have."""

    draft: ImportDraft
    decision: PodDecision
    manager: Manager

    def parent_of(self, container: str) -> Parent:
        """Return the pod as the parent of a container."""
        limits = next(each for each in self.decision.containers if each.name == container)
        return Parent(pod=self.decision, container=limits, manager=self.manager)


ORIGIN = "Limits are from settings; requests are from settings, or else from the present use."


def format_imported(imported: ImportedPod) -> Iterator[str]:
    """Yield the manifest, then in comments how each container's processes get into the pod."""
    yield from format_lines(imported.draft.pod, ORIGIN)
    for container, source in imported.draft.sources.items():
        yield "#"
        lead, lines = _placement(source, container, imported)
        yield f"# {lead}"
        yield from (f"#   {line}".rstrip() for line in lines)


def imported_document(imported: ImportedPod) -> Document:
    """Return an imported pod for programs."""
    return {
        "pod": imported.decision.pod.key,
        "slice": imported.decision.slice,
        "manifest": make_document(imported.draft.pod),
        "not_imported": list(imported.draft.further_of_slice),
        "containers": [
            {
                "name": container,
                "from": source.what,
                "mover": source.mover.value,
                "lines": list(_placement(source, container, imported)[1]),
                "not_imported": list(imported.draft.further[container]),
            }
            for container, source in imported.draft.sources.items()
        ],
    }


def _placement(
    source: ImportSource, container: str, imported: ImportedPod
) -> tuple[str, tuple[str, ...]]:
    """Return a sentence on how a container's processes get into the pod, and the lines for it."""
    parent, flag = imported.parent_of(container), imported.manager.flag
    unit = shlex.quote(source.unit or source.what)
    match source.mover:
        case Mover.DROP_IN:
            pod = imported.draft.pod.key
            lead = (
                f"To start {unit} in the applied pod, by a drop-in with the lines below: podslice"
                f" adopt{flag} {pod} {unit} -c {container} --restart"
            )
            return lead, tuple(drop_in(parent))
        case Mover.SYSTEMD_RUN:
            lead = f"{unit} is transient: stop it, and start its command in the applied pod with:"
            return lead, (f"{systemd_run(parent)} COMMAND",)
        case Mover.ADOPT:
            lead = (
                f"{unit} is a scope, which stays where it is: move its processes into the applied"
                " pod, and let the program that creates it use the slice"
            )
            slice_ = f"Slice={parent.pod.slice}"
            return lead, (
                f"podslice adopt{flag} {imported.draft.pod.key} -c {container} PID...",
                slice_,
            )
        case Mover.PODMAN:
            lead = f"{source.what} stays where it is: create it again in the applied pod with:"
            return lead, (f"podman run {shlex.join(podman_options(parent))} …",)
        case Mover.QUADLET:
            lead = (
                f"To start {source.what} in the applied pod, add the lines below to the .container"
                f" file of {unit}; then: systemctl{flag} daemon-reload; systemctl{flag} restart {unit}"
            )
            return lead, tuple(FORMATTERS[Form.QUADLET](parent))
