"""Services whose drop-ins were written or removed, as lines and JSON. Pure: values in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from podslice.cli.views.layout import fold
from podslice.cli.views.style import Role
from podslice.processes.service_adoption import ServiceAction

if TYPE_CHECKING:
    from podslice.cli.adopted_services import PlannedDropIn
    from podslice.cli.views.documents import Document
    from podslice.cli.views.style import Display
    from podslice.processes.service_adoption import PlacedService

_HANGING = "    "


def service_lines(
    services: Iterable[PlacedService], flag: str, display: Display, *, with_text: bool = False
) -> Iterator[str]:
    """Yield what was done to services, and what is left to do; `with_text` with the drop-ins.

    `flag` is the option of a user's service manager, after a space.
    """
    for each in services:
        yield from fold(_change(each), display, hanging=_HANGING)
        if with_text:
            yield from (f"{_HANGING}{line}".rstrip() for line in each.service.text.split("\n")[:-1])
        text, role = _state(each, flag)
        if with_text and not text and not each.runs_in:
            text = f"{each.service.unit} is not running"
        for line in fold(text, display, hanging=_HANGING) if text else ():
            yield display.paint(line, role)


def planned_lines(planned: Iterable[PlannedDropIn], display: Display) -> Iterator[str]:
    """Yield what would be done to the drop-ins of services."""
    for each in planned:
        service = each.service
        place = f"{service.unit} would start in {service.slice}, pod {service.pod}"
        if each.action is ServiceAction.REMOVED:
            text, role = f"would remove {each.path}: pod {service.pod} is removed", Role.ERROR
        else:
            text, role = f"would write {each.path}: {place}", Role.WARNING
        head = " ".join(text.split(" ", 2)[:2])
        first, *others = fold(text, display, hanging=_HANGING)
        yield display.paint(head, role) + first[len(head) :]
        yield from others


def planned_document(each: PlannedDropIn) -> Document:
    """Return a drop-in that would be changed for programs."""
    text = each.service.text if each.action is ServiceAction.WRITTEN else None
    return _drop_in_document(each, text=text, slice_=each.service.slice)


def _change(each: PlacedService) -> str:
    service = each.service
    place = f"{service.unit} starts in {each.slice}"
    if each.action is ServiceAction.REMOVED:
        return f"removed {each.path}: {place}"
    place = f"{place}, pod {service.pod}, as container {service.container}"
    if each.action is ServiceAction.NONE:
        return f"{each.path} is as it should be: {place}"
    return f"wrote {each.path}: {place}"


def _state(each: PlacedService, flag: str) -> tuple[str, Role | None]:
    """Return where a service runs, if that is not certain."""
    unit = each.service.unit
    again = f"systemctl{flag} restart {unit}"
    if each.error:
        return f"failed to restart {unit}: {each.error}; to try again: {again}", Role.ERROR
    if each.is_due:
        where = each.runs_in.removesuffix(f"/{unit}") or "/"
        text = f"{unit} runs in {where} until it is restarted: {again}"
        return text, Role.WARNING
    if each.is_restarted:
        return f"restarted {unit}", None
    return "", None


def service_document(each: PlacedService) -> Document:
    """Return a service for programs."""
    return {
        **_drop_in_document(each, text=each.service.text, slice_=each.slice),
        "control_group": each.runs_in or None,
        "restart_due": each.is_due,
        "restarted": each.is_restarted,
        "error": each.error or None,
    }


def _drop_in_document(
    each: PlacedService | PlannedDropIn, *, text: str | None, slice_: str
) -> Document:
    """Return a service with its drop-in, which was changed or would be."""
    return {
        "unit": each.service.unit,
        "pod": each.service.pod,
        "container": each.service.container,
        "drop_in": each.path,
        "text": text,
        "action": each.action.value,
        "slice": slice_,
    }
