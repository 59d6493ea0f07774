"""Descriptions of units: a format that podslice writes and reads back.

A description names what a unit belongs to. `systemctl status` shows it, and podslice recovers a
pod whose record is lost from it, so a change of the format needs a reader of the old one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from podslice.model.pod import Pod, Qos

_POD = re.compile(r"Pod ([a-z0-9-]+/[a-z0-9.-]+) \((\w+)\)")
_PART = re.compile(r"(Container|Volume) ([a-z0-9.-]+) of pod ([a-z0-9-]+/[a-z0-9.-]+)")


class Description(NamedTuple):
    """A pod's slice with its class, or one container or volume of a pod."""

    pod: str
    """`namespace/name`."""
    qos: Qos | None = None
    container: str | None = None
    volume: str | None = None


def describe_pod(pod: Pod, qos: Qos) -> str:
    """Return the description of a pod's slice."""
    return format_description(Description(pod=pod.key, qos=qos))


def describe_container(pod: Pod, container: str) -> str:
    """Return the description of a container's scope or service."""
    return format_description(Description(pod=pod.key, container=container))


def describe_volume(pod: Pod, volume: str) -> str:
    """Return the description of a volume's mount."""
    return format_description(Description(pod=pod.key, volume=volume))


def format_description(description: Description) -> str:
    """Return `Pod default/web (Burstable)`, `Container app of pod …` or `Volume cache of pod …`."""
    if description.container is not None:
        return f"Container {description.container} of pod {description.pod}"
    if description.volume is not None:
        return f"Volume {description.volume} of pod {description.pod}"
    return f"Pod {description.pod} ({description.qos})"


def parse_description(text: str) -> Description | None:
    """Return what `format_description` was given; None for any other text."""
    part = _PART.fullmatch(text)
    if part and part[1] == "Container":
        return Description(pod=part[3], container=part[2])
    if part:
        return Description(pod=part[3], volume=part[2])
    pod = _POD.fullmatch(text)
    if pod is None or pod[2] not in tuple(Qos):
        return None
    return Description(pod=pod[1], qos=Qos(pod[2]))
