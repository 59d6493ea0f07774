"""The manifest of imported units and containers. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podslice.cli.views.import_text import ImportDraft, ImportSource, Mover
from podslice.cli.views.new_manifest import NewContainer, NewPod
from podslice.dataclass import dataclass
from podslice.inputs.manifest.names import to_label
from podslice.model.config import Config
from podslice.model.grammar import LABEL_MAX
from podslice.policy.present_settings import PresentSettings, import_pod

_DEFAULT_NAME = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportGroup:
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
        remarks=(*_slice_remarks(group.slice, of_pod.further), *group.left),
    )
    return ImportDraft(pod=pod, sources=sources, further=further, further_of_slice=of_pod.further)


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
    # the drop-in and the options have that of the QoS class
    adjustments = ("OOMScoreAdjust=", "--oom-score-adj=")
    replaced = [each for each in further if each.startswith(adjustments)]
    if replaced:
        yield f"{replaced[0]} is replaced by that of the pod's QoS class"
    if listed := ", ".join(each for each in further if each not in replaced):
        unit = source.unit or source.what
        where = f"kept by {unit}" if is_kept else "to be set again where it is started"
        yield f"Not in the manifest, {where}: {listed}"


def _slice_remarks(slice_: ImportSource | None, further: Sequence[str]) -> Iterator[str]:
    if slice_ and further:
        yield f"Not in the manifest, and without effect in the pod: {', '.join(further)}"
