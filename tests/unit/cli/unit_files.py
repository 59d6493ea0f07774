"""A systemd that reads drop-ins of services from a directory, at each reload."""

import re

from podslice.model.unit import UnitName
from tests.fake_systemd import FakeSystemd


class WithUnitFiles(FakeSystemd):
    """A systemd whose services have the slice that their last drop-in states."""

    def __init__(self, directory):
        super().__init__()
        self.directory = directory

    async def reload(self):
        await super().reload()
        self.slices = dict.fromkeys(self.slices, "system.slice")
        self.drop_ins.clear()
        for directory in self.directory.glob("*.service.d"):
            name = UnitName(directory.name.removesuffix(".d"))
            paths = sorted(directory.glob("*.conf"))
            self.drop_ins[name] = tuple(map(str, paths))
            for path in paths:
                for slice_ in re.findall(r"^Slice=(\S+)$", path.read_text(), re.MULTILINE):
                    self.slices[name] = slice_

    async def group_of(self, name):
        """Return the control group of a service; empty if it does not run."""
        return (await self.read_definition(UnitName(name))).control_group
