"""The slices of a kubelet's pods: what podslice may change of a kubelet.

This is the only exception from the guard. It changes four properties of slices of pods, and neither
starts nor stops a unit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from podslice.features.kubelet.node import LEVEL_PROPERTIES, LevelChange
from podslice.features.kubelet.pod_level import SliceState
from podslice.features.kubelet.units import is_in_kernel, read_values
from podslice.kernel.cgroup import CgroupFs
from podslice.model.unit import ObservedUnit, UnitKind, UnitName
from podslice.systemd.client import Client

_OF_POD = re.compile(r"[^/]+-pod[^-/]+\.slice")


class LevelSlices:
    """The slices of a kubelet's pods."""

    def __init__(self, client: Client, cgroups: CgroupFs) -> None:
        """Use this client for nothing else."""
        self._client = client
        self._cgroups = cgroups

    async def observe(
        self, root: UnitName, own: Collection[UnitName], page_size: int
    ) -> Mapping[UnitName, SliceState]:
        """Return the loaded slices of pods below the root.

        Args:
            root: the slice of all pods.
            own: the slices whose values in the kernel are compared as well.
            page_size: of the node's memory, in bytes.

        Raises:
            SystemdError: systemd cannot be asked.
        """
        pattern = f"{root.removesuffix(f'.{UnitKind.SLICE}')}-*.{UnitKind.SLICE}"
        return {
            unit.name: SliceState(
                unit=unit,
                rewritten=self._rewritten(unit, page_size) if unit.name in own else frozenset(),
            )
            for unit in await self._client.observe([pattern])
            if unit.active_state != "inactive" and _OF_POD.fullmatch(unit.name)
        }

    async def set(self, change: LevelChange) -> None:
        """Set properties of a slice until the next boot, or until the slice is removed.

        Raises:
            NoSuchUnit: the slice was removed.
            SystemdError: systemd refuses, or cannot be reached.
            ValueError: the change is not one of a pod's level; nothing changed.
        """
        values = change.values
        if not _OF_POD.fullmatch(change.unit) or not values.keys() <= set(LEVEL_PROPERTIES):
            raise ValueError(f"{change.unit}: {', '.join(values)} may not be changed")
        await self._client.set_properties(change.unit, values)

    def _rewritten(self, unit: ObservedUnit, page_size: int) -> frozenset[str]:
        """Return the properties of which the kernel has another value than systemd."""
        kernel = read_values(self._cgroups, unit.control_group, ())
        return frozenset(
            name
            for name in LEVEL_PROPERTIES
            if name in kernel
            and not is_in_kernel(name, unit.properties.get(name), kernel[name], page_size)
        )
