"""The schema of the kubelet's Summary API, as clients decode it.

A field is (type, whether it is required): optional ones are pointers or `omitempty`. What is not
here, a strict decoder refuses.

Source: Kubernetes, staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go.
"""

from __future__ import annotations

import re

TIME = "metav1.Time"
UINT64, INT64, FLOAT64, TEXT = "uint64", "int64", "float64", "string"

FS = {
    "time": (TIME, True),
    "availableBytes": (UINT64, False),
    "capacityBytes": (UINT64, False),
    "usedBytes": (UINT64, False),
    "inodesFree": (UINT64, False),
    "inodes": (UINT64, False),
    "inodesUsed": (UINT64, False),
}
PSI_DATA = {
    "total": (UINT64, True),
    "avg10": (FLOAT64, True),
    "avg60": (FLOAT64, True),
    "avg300": (FLOAT64, True),
}
PSI = {"full": (PSI_DATA, True), "some": (PSI_DATA, True)}
CPU = {
    "time": (TIME, True),
    "usageNanoCores": (UINT64, False),
    "usageCoreNanoSeconds": (UINT64, False),
    "psi": (PSI, False),
}
MEMORY = {
    "time": (TIME, True),
    "availableBytes": (UINT64, False),
    "usageBytes": (UINT64, False),
    "workingSetBytes": (UINT64, False),
    "rssBytes": (UINT64, False),
    "pageFaults": (UINT64, False),
    "majorPageFaults": (UINT64, False),
    "psi": (PSI, False),
}
IO = {"time": (TIME, True), "psi": (PSI, False)}
SWAP = {
    "time": (TIME, True),
    "swapAvailableBytes": (UINT64, False),
    "swapUsageBytes": (UINT64, False),
}
RLIMIT = {"time": (TIME, True), "maxpid": (INT64, False), "curproc": (INT64, False)}
VOLUME = {**FS, "name": (TEXT, False)}
CONTAINER = {
    "name": (TEXT, True),
    "startTime": (TIME, True),
    "cpu": (CPU, False),
    "memory": (MEMORY, False),
    "io": (IO, False),
    "swap": (SWAP, False),
    "rootfs": (FS, False),
    "logs": (FS, False),
}
POD_REF = {"name": (TEXT, True), "namespace": (TEXT, True), "uid": (TEXT, True)}
POD = {
    "podRef": (POD_REF, True),
    "startTime": (TIME, True),
    "containers": ([CONTAINER], True),
    "cpu": (CPU, False),
    "memory": (MEMORY, False),
    "io": (IO, False),
    "swap": (SWAP, False),
    "volume": ([VOLUME], False),
    "ephemeral-storage": (FS, False),
    "process_stats": ({"process_count": (UINT64, False)}, False),
}
NODE = {
    "nodeName": (TEXT, True),
    "systemContainers": ([CONTAINER], False),
    "startTime": (TIME, True),
    "cpu": (CPU, False),
    "memory": (MEMORY, False),
    "io": (IO, False),
    "swap": (SWAP, False),
    "fs": (FS, False),
    "runtime": ({"imageFs": (FS, False)}, False),
    "rlimit": (RLIMIT, False),
}
SUMMARY = {"node": (NODE, True), "pods": ([POD], True)}


def decode(value, kind=SUMMARY, where="summary"):
    """Check that the decoder of Go accepts a document."""
    if isinstance(kind, list):
        assert isinstance(value, list), f"{where} is not a list"
        names = [each["name"] for each in value if "name" in each]
        assert len(names) == len(set(names)), f"{where} has a name twice"
        for place, each in enumerate(value):
            decode(each, kind[0], f"{where}[{place}]")
    elif isinstance(kind, dict):
        assert isinstance(value, dict), f"{where} is not an object"
        assert not value.keys() - kind.keys(), f"{where} has {value.keys() - kind.keys()}"
        for name, (inner, is_required) in kind.items():
            assert name in value or not is_required, f"{where} has no {name}"
            if name in value:
                decode(value[name], inner, f"{where}.{name}")
    elif kind in (UINT64, INT64):
        assert type(value) is int, f"{where} is {value!r}"
        low, high = (0, 2**64) if kind == UINT64 else (-(2**63), 2**63)
        assert low <= value < high, f"{where} is {value}"
    elif kind == FLOAT64:
        assert type(value) in (int, float), f"{where} is {value!r}"
    elif kind == TIME:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value), f"{where} is {value!r}"
    else:
        assert isinstance(value, str), f"{where} is {value!r}"
        assert value, f"{where} is empty"
