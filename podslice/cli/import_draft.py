"""The manifest of imported units and containers. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from podslice.cli.views.import_text import ImportDraft, ImportSource, Mover
from podslice.cli.views.new_manifest import NewContainer, NewPod
from podslice.inputs.manifest.names import to_label
from podslice.model.config import Config
from podslice.model.grammar import LABEL_MAX
from podslice.model.properties import CPU_WEIGHT, OOM_SCORE_ADJ
from podslice.policy.convert import MAX_WEIGHT
from podslice.policy.present_settings import PresentSettings, SettingKind, StatedAmount, import_pod

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
        NewContainer(
            name=label,
            requests=found.requests,
            limits=found.limits,
            annotations=dict(_annotations(sources[label])),
            origin=sources[label].origin,
            remarks=tuple(_remarks(sources[label], found.further)),
        )
        for label, found in zip(names, amounts, strict=True)
    )
    pod = NewPod(
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
