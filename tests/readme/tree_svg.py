"""The tree of slices with the budgets of pods as a picture, from the JSON of `explain` and `node`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from podslice.model.quantity import format_milli, human_bytes

Document = Mapping[str, Any]
_TIERS = (
    ("Guaranteed", "directly below kubepods.slice", "#1a7f37"),
    ("Burstable", "kubepods-burstable.slice", "#0969da"),
    ("BestEffort", "kubepods-besteffort.slice", "#9a6700"),
)
"""The classes, the slice of each, and a color."""
_POD_WIDTH, _POD_HEIGHT, _GAP, _TOP = 300, 172, 18, 96
_BAR_WIDTH = _POD_WIDTH - 32
_INK, _FAINT, _PAPER = "#1f2328", "#59636e", "#ffffff"
_RESOURCES = (("CPU", "cpu_milli"), ("memory", "memory_bytes"))


def draw(node: Document, explained: Document) -> str:
    """Return the picture of all pods in their slices, each with its requests and limits."""
    columns = [
        (tier, [pod for pod in explained["pods"] if pod["qos_class"] == tier[0]]) for tier in _TIERS
    ]
    columns = [(tier, pods) for tier, pods in columns if pods]
    deepest = max(len(pods) for _, pods in columns)
    width = len(columns) * (_POD_WIDTH + 2 * _GAP) + (len(columns) + 1) * _GAP
    tier_height = 56 + deepest * (_POD_HEIGHT + _GAP)
    height = _TOP + tier_height + 62
    body = [*_root(node, width, height)]
    for index, (tier, pods) in enumerate(columns):
        x = _GAP + index * (_POD_WIDTH + 3 * _GAP)
        body += _tier(tier, pods, node, (x, _TOP, tier_height))
    body += _legend(height)
    lines = "\n".join(body)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" \
viewBox="0 0 {width} {height}" role="img" font-family="Helvetica, Arial, sans-serif">
<title>kubepods.slice with the slices of pods, and the budget of each</title>
{lines}
</svg>
"""


def _root(node: Document, width: int, height: int) -> Iterator[str]:
    capacity = node["capacity"]
    shown = (f"{_amount(key, capacity[key])} {name}" for name, key in _RESOURCES)
    yield _box(0.5, 0.5, width - 1, height - 1, fill=_PAPER, stroke="#d1d9e0")
    yield _text(_GAP, 34, "kubepods.slice", size=20, weight="bold")
    yield _text(_GAP, 56, f"all pods of this host: {', '.join(shown)}", color=_FAINT)
    # what runs beside the pods keeps its place
    yield _text(_GAP, 78, "beside it: system.slice, user.slice, podruntime.slice", color=_FAINT)


def _tier(
    tier: tuple[str, str, str],
    pods: Sequence[Document],
    node: Document,
    place: tuple[int, int, int],
) -> Iterator[str]:
    name, slice_, color = tier
    x, y, height = place
    yield _box(x, y, _POD_WIDTH + 2 * _GAP, height, fill="#f6f8fa", stroke=color)
    yield _text(x + _GAP, y + 24, name, size=16, weight="bold", color=color)
    yield _text(x + _GAP, y + 43, slice_, size=12, color=_FAINT)
    for index, pod in enumerate(pods):
        yield from _pod(pod, node, (x + _GAP, y + 56 + index * (_POD_HEIGHT + _GAP)), color)


def _pod(pod: Document, node: Document, place: tuple[int, int], color: str) -> Iterator[str]:
    x, y = place
    yield _box(x, y, _POD_WIDTH, _POD_HEIGHT, fill=_PAPER, stroke=color)
    yield _text(x + 16, y + 26, f"pod {pod['name']}", size=15, weight="bold")
    for index, (name, key) in enumerate(_RESOURCES):
        at = y + 50 + index * 42
        request, limit = pod["requests"].get(key), pod["limits"].get(key)
        capacity = node["capacity"][key]
        yield _text(x + 16, at, f"{name}: {_budget(key, request, limit)}", size=12)
        yield _box(x + 16, at + 6, _BAR_WIDTH, 12, fill="#eaeef2", radius=3)
        for amount, opacity in ((capacity if limit is None else limit, 0.3), (request or 0, 1)):
            share = min(amount / capacity, 1) * _BAR_WIDTH
            if share:
                yield _box(x + 16, at + 6, share, 12, fill=color, radius=3, opacity=opacity)
    yield from _containers(pod, (x + 16, y + _POD_HEIGHT - 46))


def _containers(pod: Document, place: tuple[int, int]) -> Iterator[str]:
    x, y = place
    for container in pod["containers"]:
        width = 20 + 7 * len(container["name"])
        yield _box(x, y, width, 30, fill="#ddf4ff", stroke="#54aeff", radius=6)
        yield _text(x + 10, y + 20, container["name"], size=12)
        x += width + 10


def _budget(key: str, request: int | None, limit: int | None) -> str:
    if request is None and limit is None:
        return "what the others leave idle"
    least = f"at least {_amount(key, request)}" if request else ""
    most = "no limit" if limit is None else f"at most {_amount(key, limit)}"
    return ", ".join(filter(None, (least, most)))


def _amount(key: str, amount: int) -> str:
    return human_bytes(amount) if key == "memory_bytes" else format_milli(amount)


def _legend(height: int) -> Iterator[str]:
    y = height - 34
    yield _box(_GAP, y, 34, 12, fill=_INK, radius=3)
    yield _text(_GAP + 42, y + 11, "requested: kept for the pod", size=12, color=_FAINT)
    yield _box(_GAP + 230, y, 34, 12, fill=_INK, radius=3, opacity=0.3)
    yield _text(_GAP + 272, y + 11, "up to its limit, if idle", size=12, color=_FAINT)
    yield _box(_GAP + 430, y - 3, 34, 18, fill="#ddf4ff", stroke="#54aeff", radius=5)
    yield _text(_GAP + 472, y + 11, "container: processes", size=12, color=_FAINT)


def _box(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str,
    stroke: str = "none",
    radius: int = 8,
    opacity: float = 1,
) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" rx="{radius}"'
        f' fill="{fill}" stroke="{stroke}" fill-opacity="{opacity:g}"/>'
    )


def _text(
    x: float, y: float, text: str, *, size: int = 13, weight: str = "normal", color: str = _INK
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}"'
        f' fill="{color}">{escape(text)}</text>'
    )
