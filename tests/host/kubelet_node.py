"""A node with a stand-in for a kubelet: its pods, their slices, and the state that the stand-in reads."""

import json

UNIT, STATE = "podlab-kubelet.service", "/run/podlab-kubelet.json"
URL = "http://127.0.0.1:10255"
CONFIG_FILE = "/run/podlab-kubelet-config.json"
CONFIG = {"kind": "KubeletConfiguration", "podPidsLimit": 512}
SCRIPT = "/src/tests/host/kubelet_stand_in.py"
ANNOTATION = "podslice.io/resources"
PERIOD_SEC = 3600
"""Longer than any test: a signal is what makes the stand-in synchronize."""
ROOT, BURSTABLE, BESTEFFORT = (
    "kubepods.slice",
    "kubepods-burstable.slice",
    "kubepods-besteffort.slice",
)
SMALL = {"requests": {"cpu": "50m", "memory": "16Mi"}, "limits": {"cpu": "105m", "memory": "32Mi"}}
LEVEL = {"requests": {"cpu": "500m", "memory": "24Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}
"""A pod level."""
LEVEL_SET = {
    "CPUQuotaPerSecUSec": "1s",
    "CPUWeight": "20",
    "MemoryLow": "25165824",
    "MemoryMax": "134217728",
}
"""Its properties: 500m are 512 shares, and 1 + (512 - 2) * 9999 / 262142 = 20."""


def pod(name, *resources):
    """Return a pod with a container for each of the resources."""
    containers = [{"name": f"c{n}", "resources": each} for n, each in enumerate(resources)]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"0000-{name}"},
        "spec": {"containers": containers},
    }


def with_annotation(manifest):
    """Return a pod with the pod level as an annotation."""
    metadata = {**manifest["metadata"], "annotations": {ANNOTATION: json.dumps(LEVEL)}}
    return {**manifest, "metadata": metadata}


def write_state(machine, pods, version="v1.36.2"):
    machine.put(STATE, json.dumps({"config": CONFIG, "version": version, "pods": pods}))


def start(machine, pods, version="v1.36.2"):
    """Start the stand-in; its pods have their slices on return."""
    write_state(machine, pods, version)
    machine.put(CONFIG_FILE, json.dumps(CONFIG))
    machine.run(
        *("systemd-run", "--quiet", "--service-type=notify", "-p", "NotifyAccess=all"),
        *(f"--unit={UNIT}", "python3", SCRIPT, STATE, str(PERIOD_SEC)),
    )


def stop(machine):
    """Stop the stand-in with all its pods."""
    machine.run("systemctl", "stop", UNIT, ROOT, check=False)
    machine.run("systemctl", "reset-failed", UNIT, check=False)
    machine.run("rm", "-f", STATE, CONFIG_FILE)


def synchronize(machine):
    machine.run("systemctl", "kill", "--kill-whom=main", "--signal=USR1", UNIT)


def is_active(machine, unit):
    return machine.run("systemctl", "is-active", unit, check=False).exit_code == 0


def level_values(machine, *units):
    """Return the properties of a pod level of one slice, or of several by name."""
    shown = machine.run("systemctl", "show", *units, "-p", ",".join(("Id", *LEVEL_SET))).stdout
    parts = (dict(line.split("=", 1) for line in part.splitlines()) for part in shown.split("\n\n"))
    found = {each.pop("Id"): each for each in parts}
    return found[units[0]] if len(units) == 1 else found
