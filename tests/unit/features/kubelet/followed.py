"""A kubelet with pods, for an agent that applies pod levels on its slices."""

import threading
from dataclasses import replace

from podslice.errors import HostError
from podslice.features.kubelet.model import KubeletNode, KubeletPod, KubeletSettings
from podslice.model.config import Config
from podslice.model.node import Node
from podslice.model.resources import Resources
from podslice.model.unit import TransientUnit, UnitName
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import amounts, pod

WEB = UnitName("kubepods-besteffort-podweb.slice")
APPLIED = {"MemoryLow": 67108864, "MemoryMax": 67108864}
BEFORE = {"CPUWeight": 1, "MemoryLow": 0, "MemoryMax": 2**64 - 1}


class Kubelet:
    """Pods with a pod level and their slices, of a kubelet without the feature."""

    def __init__(self):
        self.memory = FakeSystemd()
        self.settings = KubeletSettings(config=Config(eviction_hard={}), version=(1, 33))
        self.pods = {}
        self.error = None
        self.reads = self.refreshes = 0
        self._goes_on = threading.Event()
        self._goes_on.set()

    def put(self, name, **limits):
        level = Resources(
            limits={key: amounts(f"{key}={text}")[key] for key, text in limits.items()}
        )
        self.pods[name] = KubeletPod(pod=pod(name, resources=level), is_running=True)

    async def start(self, name, **properties):
        """Start the slice of a pod as libcontainer does."""
        unit = UnitName(f"kubepods-besteffort-pod{name}.slice")
        description = f"libcontainer container {unit}"
        properties = {"Description": description, "CPUWeight": 1, **properties}
        await self.memory.start(TransientUnit(name=unit, properties=properties))

    async def values(self, unit=WEB):
        (found,) = await self.memory.observe([unit])
        return {name: found.properties[name] for name in ("CPUWeight", "MemoryLow", "MemoryMax")}

    def read(self):
        self.reads += 1
        self._goes_on.wait()
        if self.error is not None:
            raise self.error
        node = Node(capacity=amounts("cpu=4,memory=8Gi"))
        return KubeletNode(pods=tuple(self.pods.values()), settings=self.settings, node=node)

    def hang(self):
        """Let reads not end before the event that is returned."""
        self._goes_on.clear()
        return self._goes_on

    def refresh(self):
        self.refreshes += 1

    def upgrade(self, version):
        self.settings = replace(self.settings, version=version)

    def refuse(self, message):
        self.error = HostError(message)
