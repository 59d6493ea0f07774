"""The manifest of imported units and containers, and how they are placed in it. Pure: values in."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from podslice.cli.views import new_manifest
from podslice.cli.views.documents import Document
from podslice.inputs.manifest.names import to_label
from podslice.model.config import Config
from podslice.model.desired import PodDecision
from podslice.model.grammar import LABEL_MAX
from podslice.model.manager import Manager
from podslice.model.properties import CPU_WEIGHT, OOM_SCORE_ADJ
from podslice.model.quantity import about_bytes
from podslice.policy.convert import MAX_WEIGHT
from podslice.policy.present_settings import PresentSettings, SettingKind, import_pod
from podslice.policy.present_settings import PresentUse, StatedAmount
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
        return f"{new_manifest.describe_use(self.use)}{most}"


class ImportDraft(NamedTuple):
    """The manifest of a pod with what it is imported from."""

    pod: new_manifest.NewPod
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
    yield from new_manifest.format_lines(imported.draft.pod, ORIGIN)
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
        "manifest": new_manifest.make_document(imported.draft.pod),
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


_DEFAULT_NAME = "main"
DEFAULT_WEIGHT = 100
"""The weight of a unit that states none. Source: systemd.resource-control(5), CPUWeight=."""

_OF_SERVICE, _OF_PROCESSES = "the OOMScoreAdjust of", "oom_score_adj of the processes of"
_OF_CONTAINER = "--oom-score-adj of"
_SCORES = {
    Mover.DROP_IN: _OF_SERVICE,
    Mover.SYSTEMD_RUN: _OF_SERVICE,
    Mover.ADOPT: _OF_PROCESSES,
    Mover.PODMAN: _OF_CONTAINER,
    Mover.QUADLET: _OF_CONTAINER,
}
"""What states the OOM score."""


class ImportGroup(NamedTuple):
    """What becomes one pod."""

    slice: ImportSource | None
    """The slice whose settings are the pod's; None if there is none."""
    sources: tuple[ImportSource, ...]
    left: tuple[str, ...] = ()
    """Sentences about what is not included."""


def draft_pod(
    group: ImportGroup, name: str | None, namespace: str | None, config: Config
) -> ImportDraft:
    """Return the manifest; without a name it is that of the slice, or of the first unit."""
    level = group.slice.settings if group.slice else PresentSettings()
    of_pod, amounts = import_pod(
        level, [(source.settings, source.use) for source in group.sources], config
    )
    names = list(_container_names(group.sources))
    sources = dict(zip(names, group.sources, strict=True))
    further = dict(zip(names, (each.further for each in amounts), strict=True))
    containers = tuple(
        new_manifest.NewContainer(
            name=label,
            requests=found.requests,
            limits=found.limits,
            annotations=dict(_annotations(sources[label])),
            origin=sources[label].origin,
            remarks=tuple(_remarks(sources[label], found.further)),
        )
        for label, found in zip(names, amounts, strict=True)
    )
    pod = new_manifest.NewPod(
        name=name or _to_name((group.slice or group.sources[0]).name),
        namespace=namespace,
        containers=containers,
        requests=of_pod.requests,
        limits=of_pod.limits,
        annotations=dict(_annotations_of_pod(group)),
        remarks=(*_slice_remarks(group.slice, of_pod.further), *group.left),
    )
    return ImportDraft(pod=pod, sources=sources, further=further, further_of_slice=of_pod.further)


def _annotations(source: ImportSource) -> Iterator[tuple[str, StatedAmount]]:
    """Yield what keeps the weight of a unit and the OOM score, where resources would change them."""
    if source.is_unit:
        yield from _default_weight(source)
    if source.oom_score_adj is not None:
        yield (
            OOM_SCORE_ADJ,
            _amount(source.oom_score_adj, f"{_SCORES[source.mover]} {source.what}"),
        )


def _annotations_of_pod(group: ImportGroup) -> Iterator[tuple[str, StatedAmount]]:
    """Yield what keeps the weight of a slice, or of several units together."""
    if group.slice is not None:
        yield from _default_weight(group.slice)
        return
    units = [each for each in group.sources if each.is_unit]
    if len(units) < len(group.sources) or all(map(_has_weight, units)):
        return
    weights = [
        each.settings.taken[SettingKind.CPU_WEIGHT].value if _has_weight(each) else DEFAULT_WEIGHT
        for each in units
    ]
    why = "of its containers together" if len(units) > 1 else "of its container"
    yield CPU_WEIGHT, _amount(min(sum(weights), MAX_WEIGHT), why)


def _default_weight(source: ImportSource) -> Iterator[tuple[str, StatedAmount]]:
    """Yield the weight of a unit that states none."""
    if not _has_weight(source):
        yield CPU_WEIGHT, _amount(DEFAULT_WEIGHT, f"{source.what} states no CPUWeight")


def _has_weight(source: ImportSource) -> bool:
    return SettingKind.CPU_WEIGHT in source.settings.taken


def _amount(value: int, source: str) -> StatedAmount:
    return StatedAmount(text=str(value), source=source)


def _container_names(sources: Sequence[ImportSource]) -> Iterator[str]:
    """Yield a valid and unique name for each container: `web`, `web-2`."""
    used: set[str] = set()
    for source in sources:
        base, number = _to_name(source.name), 1
        label = base
        while label in used:
            number += 1
            suffix = f"-{number}"
            label = base[: LABEL_MAX - len(suffix)] + suffix
        used.add(label)
        yield label


def _to_name(text: str) -> str:
    return to_label(text) or _DEFAULT_NAME


def _remarks(source: ImportSource, further: Sequence[str]) -> Iterator[str]:
    """Yield comments on the settings of a container that are not in the manifest."""
    if source.caveat:
        yield source.caveat
    is_kept = source.mover in (Mover.DROP_IN, Mover.QUADLET)
    if source.oom_score_adj is None:
        yield "Its processes get the OOM score of the pod's QoS class"
    if listed := ", ".join(further):
        unit = source.unit or source.what
        where = f"kept by {unit}" if is_kept else "to be set again where it is started"
        yield f"Not in the manifest, {where}: {listed}"


def _slice_remarks(slice_: ImportSource | None, further: Sequence[str]) -> Iterator[str]:
    if slice_ and further:
        yield f"Not in the manifest, and without effect in the pod: {', '.join(further)}"
