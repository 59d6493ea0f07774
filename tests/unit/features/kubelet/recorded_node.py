"""A recorded node with a kubelet, as units, control groups and the documents of the kubelet.

Tests plant faults in it: `units` and `pods` are plain values that may be changed.
"""

import copy
import json
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from podslice.model.pod import Qos
from podslice.model.properties import PROPERTIES
from podslice.model.unit import ObservedUnit, UnitName

CASES = Path(__file__).parent / "cases"
RECORDED = json.loads((CASES / "units.json").read_text())
PODS = json.loads((Path(__file__).parents[3] / "cases/kubelet/node.json").read_text())["pods"]
OTHERS = {
    "metadata": {"name": "others", "uid": "00000000-0000-0000-0000-000000000001"},
    "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "690m"}}}]},
    "status": {"phase": "Pending"},
}
"""The Burstable pods that the node had beside the recorded ones, as one: the weight of the tier
has their requests, too."""
DEFAULT_TASKS_MAX = 4694
"""What systemd gave to the scopes of the node."""
UNSET = {row.name: row.unset for row in PROPERTIES.values() if row.managed}
WRITTEN = {}
"""The files of the node that was written last, by the directory."""
_TIME_UNITS = {"ms": 1000, "us": 1}


def value_of(name, text):
    """Return the value on the bus for the text of `systemctl show`."""
    unit = next((unit for unit in _TIME_UNITS if text.endswith(unit)), None)
    if unit:
        return int(text.removesuffix(unit)) * _TIME_UNITS[unit]
    return int(text) if text.isdecimal() else text


def class_of(slice_):
    """Return the class of a pod by the path of its slice, which the kubelet states in its status."""
    return next((qos.value for qos in Qos if f"-{qos.lower()}-pod" in slice_), Qos.GUARANTEED.value)


class RecordedNode:
    """The node: control group → its files and properties; the pods; the kubelet's configuration."""

    def __init__(self):
        self.units = copy.deepcopy(RECORDED["units"])
        self.config = copy.deepcopy(RECORDED["kubelet_config"])
        self.pods = [self._pod(name) for name in PODS] + [copy.deepcopy(OTHERS)]

    @staticmethod
    def _pod(name):
        containers = RECORDED["containers"][name]
        statuses = [
            {"name": each, "containerID": f"containerd://{id_}", "state": {"running": {}}}
            for each, id_ in containers.items()
        ]
        return {
            "metadata": {"name": name, "uid": PODS[name]["uid"]},
            "spec": copy.deepcopy(PODS[name]["spec"]),
            "status": {
                "phase": "Running",
                "qosClass": class_of(PODS[name]["slice"]),
                "startTime": "2026-01-02T00:00:00Z",
                "containerStatuses": statuses,
            },
        }

    def path(self, unit):
        """Return the control group of a unit, a pod (`b-both`), a container or sandbox (`b-both/a`)."""
        pod, _, container = unit.partition("/")
        if pod in PODS:
            slice_ = f"/{PODS[pod]['slice']}"
            if container == "(sandbox)":
                ids = RECORDED["containers"][pod].values()
                below = (each for each in self.units if each.startswith(f"{slice_}/"))
                return next(each for each in below if not any(id_ in each for id_ in ids))
            scope = RECORDED["containers"][pod].get(container)
            return f"{slice_}/cri-containerd-{scope}.scope" if scope else slice_
        return next(path for path in self.units if path.endswith(f"/{unit}"))

    def document(self):
        """Return the pods as the kubelet's `/pods` has them: without a kind for each."""
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self.pods}

    def write(self, root):
        """Write the control groups below a directory, or what differs from those written before."""
        files, written = self._files(), WRITTEN.get(root, {})
        for path in sorted(written.keys() - files.keys(), reverse=True):
            file = root / path
            file.rmdir() if file.is_dir() else file.unlink()
        for path, text in files.items():
            if text is None:
                (root / path).mkdir(parents=True, exist_ok=True)
            elif written.get(path) != text:
                (root / path).write_text(text)
        WRITTEN[root] = files

    def _files(self):
        """Return the files of the control groups: path → text, None for a directory."""
        files = {".": None, "cgroup.controllers": "cpuset cpu io memory hugetlb pids\n"}
        for path, unit in self.units.items():
            group = PurePosixPath(path.lstrip("/"))
            files |= {str(each): None for each in (group, *group.parents)}
            texts = {f"{group}/{name}": f"{text}\n" for name, text in unit["files"].items()}
            if "process" in unit:  # of the host
                texts = {f"{group}/cgroup.procs": f"{unit['process']}\n", **texts}
            files |= texts
        return files

    def observed(self):
        """Return the units as systemd shows them."""
        loaded = (path for path, unit in self.units.items() if unit["properties"] is not None)
        return {unit.name: unit for unit in map(self._observed, loaded)}

    def _observed(self, path):
        shown = self.units[path]["properties"]
        values = {key: value_of(key, text) for key, text in shown.items() if key in UNSET}
        return ObservedUnit(
            name=UnitName(path.rpartition("/")[2]),
            description=shown.get("Description", ""),
            properties={**UNSET, **values},
            control_group=path,
            tasks=1,
        )


class RecordedManager:
    """The service manager of a recorded node; it can only be observed."""

    def __init__(self, node):
        self._node = node

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def default_tasks_max(self):
        return DEFAULT_TASKS_MAX

    async def observe(self, patterns):
        observed = self._node.observed().values()
        return tuple(u for u in observed if any(fnmatchcase(u.name, p) for p in patterns))
