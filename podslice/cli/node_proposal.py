"""The reservations that `node init` proposes: as text, as a file, and as a document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from podslice.cli.views.tables import columns
from podslice.errors import InputError, Problem
from podslice.inputs.options.values import read_reservation
from podslice.model.naming import KUBE_RESERVED_SLICE
from podslice.model.quantity import format_bytes, format_milli
from podslice.policy.providers import (
    PROVIDERS,
    Reservation,
    explain_provider,
    explain_system,
    system_reservation,
)

if TYPE_CHECKING:
    from podslice.cli.views.documents import Document
    from podslice.model.node import Node

KUBE, SYSTEM = "kube-reserved", "system-reserved"
"""Keys of the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The reservations to write, with their reasons."""

    kube: Reservation
    why_kube: str
    formula: str
    system: Reservation
    why_system: str
    stated: Mapping[str, str]
    """The values of options that are written instead, by key."""

    def value(self, key: str) -> str:
        """Return what is written."""
        return self.stated.get(key) or _flag(self.kube if key == KUBE else self.system)

    def why(self, key: str, proposed: str) -> str:
        """Return the reason: that of the proposal, unless the value is stated."""
        return f"as stated with --{key}" if key in self.stated else proposed


def read_stated(options: Mapping[str, str | None]) -> dict[str, str]:
    """Return the reservations that are stated, by key.

    Raises:
        InputError: one is invalid; it has every problem.
    """
    stated = {key: value for key, value in options.items() if value is not None}
    problems: list[Problem] = []
    for key, value in stated.items():
        try:
            read_reservation(value)
        except InputError as error:
            problems += (each.within(f"--{key}") for each in error.problems)
    if problems:
        raise InputError(problems)
    return stated


def propose(
    node: Node,
    proposals: Mapping[str, Reservation],
    like: str | None,
    pods: int,
    stated: Mapping[str, str],
    used_bytes: int | None,
) -> Proposal:
    """Return the reservations of one provider, or those with the least memory, and the system's."""
    least = min(proposals, key=lambda name: proposals[name].memory_bytes)
    return Proposal(
        kube=proposals[like or least],
        why_kube=f"as {like}" if like else f"as {least}, the lowest memory of the three",
        formula=explain_provider(like or least, pods),
        system=system_reservation(node, used_bytes),
        why_system=explain_system(used_bytes),
        stated=stated,
    )


def config_text(proposal: Proposal) -> str:
    """Return the text of `podslice.toml`."""
    why_kube = proposal.why(KUBE, f"{proposal.why_kube}: {proposal.formula}")
    why_system = proposal.why(SYSTEM, "")
    why_system = f", {why_system}" if why_system else f": {proposal.why_system}"
    return "\n".join(
        (
            *_comment(f"Reserved for container runtimes and podslice, {why_kube}."),
            f"{KUBE} = {json.dumps(proposal.value(KUBE))}",
            f'kube-reserved-cgroup = "/{KUBE_RESERVED_SLICE}"',
            *_comment(f"Reserved for system daemons{why_system}."),
            f"{SYSTEM} = {json.dumps(proposal.value(SYSTEM))}",
            "# Limits pods only. Measure the usage before adding kube-reserved here.",
            'enforce-node-allocatable = "pods"',
            "",
        )
    )


def _comment(text: str) -> list[str]:
    return wrap(text, 98, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _flag(reservation: Reservation) -> str:
    cpu, memory = format_milli(reservation.cpu_milli), format_bytes(reservation.memory_bytes)
    return f"cpu={cpu},memory={memory}"


def table(proposals: dict[str, Reservation], system: Reservation) -> Iterator[str]:
    """Return a table of the providers' reservations, and of the system's."""
    kept = {f"kube, as {name}": each for name, each in proposals.items()} | {"system": system}
    rows = [
        (name, format_milli(each.cpu_milli), format_bytes(each.memory_bytes))
        for name, each in kept.items()
    ]
    return columns([("RESERVATION", "CPU", "MEMORY"), *rows])


def explain(proposal: Proposal, pods: int) -> Iterator[str]:
    """Yield each provider's formula, and the proposed values, with their sources."""
    yield from (f"{name}: {explain_provider(name, pods)}" for name in PROVIDERS)
    yield f"system: {proposal.why_system}"
    yield ""
    why_kube = proposal.why(KUBE, proposal.why_kube)
    why_system = f", {proposal.why(SYSTEM, '')}".removesuffix(", ")
    yield f"{KUBE} {proposal.value(KUBE)}: for container runtimes and podslice, {why_kube}"
    yield f"{SYSTEM} {proposal.value(SYSTEM)}: for system daemons{why_system}"


def proposals_document(
    by_name: Mapping[str, Reservation], proposal: Proposal, pods: int
) -> Document:
    """Return the reservation that each provider proposes, and the one for the system."""
    formulas = {name: explain_provider(name, pods) for name in by_name}
    formulas["system"] = proposal.why_system
    return {
        name: {
            "cpu_milli": each.cpu_milli,
            "memory_bytes": each.memory_bytes,
            "formula": formulas[name],
        }
        for name, each in {**by_name, "system": proposal.system}.items()
    }
