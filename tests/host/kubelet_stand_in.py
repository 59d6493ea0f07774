"""A stand-in for a kubelet: creates slices and scopes as libcontainer does, and serves its API.

    python3 kubelet_stand_in.py STATE PERIOD_SEC

STATE is a JSON file with `config` (a KubeletConfiguration), `version` and `pods`. In each period, and
after SIGUSR1, the stand-in reads it, starts pods that are new or whose slice is missing, removes the
slices of others, and updates the tiers, as a kubelet does every minute. It starts all containers but
those that the status of a pod names. It serves `/pods`, `/configz` and `/metrics` at 127.0.0.1:10255.

The formulas are its own, so that the audit is compared with another implementation. Source:
Kubernetes, pkg/kubelet/cm, helpers_linux.go, cgroup_v2_manager_linux.go, pod_container_manager_linux.go;
opencontainers/cgroups, systemd/v2.go and utils.go.
"""

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ADDRESS = ("127.0.0.1", 10255)
ROOT, MOUNT = "kubepods", Path("/sys/fs/cgroup")
MANAGER = (
    *("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"),
)
BIN = "/usr/bin"
SUFFIXES = {"": 1000, "m": 1, "Ki": 2**10 * 1000, "Mi": 2**20 * 1000, "Gi": 2**30 * 1000}
UNLIMITED = 2**64 - 1


def milli(text):
    """Return a quantity in thousandths."""
    suffix = text.lstrip("0123456789.")
    return int(float(text.removesuffix(suffix)) * SUFFIXES[suffix])


def shares(cpu_milli):
    return min(max(cpu_milli * 1024 // 1000, 2), 262144)


def linear(cpu_milli):
    return 1 + (shares(cpu_milli) - 2) * 9999 // 262142


def curve(cpu_milli):
    log = math.log2(shares(cpu_milli))
    return math.ceil(10 ** ((log * log + 125 * log) / 612 - 7 / 34))


class Pod:
    """A pod of the state, with limits and requests of its containers only."""

    def __init__(self, manifest):
        self.update(manifest)
        self.uid = manifest["metadata"]["uid"]
        self.containers = manifest["spec"]["containers"]
        self.qos = self._classify()
        tier = {"Guaranteed": ""}.get(self.qos, f"-{self.qos.lower()}")
        self.slice = f"{ROOT}{tier}-pod{self.uid.replace('-', '_')}.slice"
        self.processes = {}

    def update(self, manifest):
        """Take over the status of containers that something else starts."""
        self.manifest = manifest
        self.stated = manifest.get("status", {}).get("containerStatuses", [])

    def amounts(self, part, resource):
        """Return the amount of each container; a limit is the request where none is stated."""
        found = []
        for each in self.containers:
            stated = each.get("resources", {})
            parts = [part, "limits"] if part == "requests" else [part]
            texts = (stated.get(name, {}).get(resource) for name in parts)
            found.append(next((milli(text) for text in texts if text), None))
        return found

    def _classify(self):
        requests, limits = (
            [self.amounts(part, each) for each in ("cpu", "memory")]
            for part in ("requests", "limits")
        )
        if all(None not in each for each in limits) and requests == limits:
            return "Guaranteed"
        stated = [amount for each in (*requests, *limits) for amount in each]
        return "Burstable" if any(stated) else "BestEffort"

    def request(self, resource):
        return sum(amount or 0 for amount in self.amounts("requests", resource))

    def limit(self, resource):
        """Return the sum of the limits; None if a container has none."""
        amounts = self.amounts("limits", resource)
        return None if None in amounts else sum(amounts)


def values(weight, cpu_milli, memory_milli, tasks=None):
    """Return properties for the bus, as libcontainer sets them."""
    found = {"CPUWeight": weight}
    if cpu_milli:
        # rounded up to whole percents
        found |= {"CPUQuotaPerSecUSec": -(-cpu_milli // 10) * 10_000, "CPUQuotaPeriodUSec": 100_000}
    if memory_milli:
        found["MemoryMax"] = memory_milli // 1000
    if tasks:
        found["TasksMax"] = tasks
    return found


def call(method, *arguments):
    subprocess.run(
        (f"{BIN}/busctl", "--", "call", *MANAGER, method, *map(str, arguments)), check=True
    )


def numbers(found):
    return [word for key, value in found.items() for word in (key, "t", value)]


def exists(unit):
    command = (f"{BIN}/systemctl", "is-active", "--quiet", unit)
    return subprocess.run(command, check=False).returncode == 0


def parent(slice_):
    stem = slice_.removesuffix(".slice").rpartition("-")[0]
    return f"{stem}.slice" if stem else "-.slice"


def start_slice(name, found):
    properties = [
        *("Description", "s", f"libcontainer container {name}"),
        *("DefaultDependencies", "b", "false", "Wants", "as", 1, parent(name)),
        *numbers(found),
    ]
    call("StartTransientUnit", "ssa(sv)a(sa(sv))", name, "replace", 3 + len(found), *properties, 0)
    enable_controllers(parent(name))


def enable_controllers(slice_):
    """Enable every controller in a slice and above it, as libcontainer does; with cgroup v2 only.

    Source: opencontainers/cgroups, fs2/create.go, CreateCgroupPath.
    """
    controllers = MOUNT / "cgroup.controllers"
    if not controllers.exists():
        return
    text = " ".join(f"+{name}" for name in controllers.read_text().split())
    above = []
    while slice_ != "-.slice":
        above.insert(0, slice_)
        slice_ = parent(slice_)
    for number in range(len(above) + 1):
        MOUNT.joinpath(*above[:number], "cgroup.subtree_control").write_text(text)


def start_scope(name, slice_, pid, found):
    properties = [
        *("Description", "s", f"libcontainer container {name}", "Slice", "s", slice_),
        *("DefaultDependencies", "b", "false", "Delegate", "b", "true", "PIDs", "au", 1, pid),
        *numbers(found),
    ]
    call("StartTransientUnit", "ssa(sv)a(sa(sv))", name, "replace", 5 + len(found), *properties, 0)


def set_values(name, found):
    arguments = (name, "true", len(found), *numbers(found))
    call("SetUnitProperties", "sba(sv)", *arguments)


def write_files(unit, found):
    """Write files of a control group, as libcontainer does after systemd; with cgroup v2 only."""
    shown = subprocess.run(
        (f"{BIN}/systemctl", "show", "-P", "ControlGroup", unit),
        capture_output=True,
        text=True,
        check=True,
    )
    directory = MOUNT / shown.stdout.strip().lstrip("/")
    for file, value in found.items():
        for path in directory.glob(file):
            path.write_text(value)


class StandIn:
    """The pods that run."""

    def __init__(self, state):
        self._path = state
        self.pods = {}
        self.read()

    def read(self):
        self.state = json.loads(self._path.read_text())
        self._pids_limit = self.state["config"].get("podPidsLimit")

    def begin(self):
        """Create the root and the tiers, unless they remain from before a restart."""
        if exists(f"{ROOT}.slice"):
            return
        memory = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
        most = (Path(f"/proc/sys/kernel/{name}").read_text() for name in ("pid_max", "threads-max"))
        cpus = len(os.sched_getaffinity(0)) * 1000
        start_slice(f"{ROOT}.slice", values(linear(cpus), None, memory * 1000, min(map(int, most))))
        start_slice(f"{ROOT}-besteffort.slice", values(linear(0), None, None))
        start_slice(f"{ROOT}-burstable.slice", values(linear(0), None, None))

    def sync(self):
        """Start and remove pods, and update the tiers."""
        self.read()
        wanted = {each["metadata"]["uid"]: each for each in self.state["pods"]}
        for uid in self.pods.keys() - wanted.keys():
            call("StopUnit", "ss", self.pods.pop(uid).slice, "replace")
        for uid, manifest in wanted.items():
            if uid not in self.pods or not exists(self.pods[uid].slice):
                self.pods[uid] = self._start(Pod(manifest))
            self.pods[uid].update(manifest)
        burstable = sum(p.request("cpu") for p in self.pods.values() if p.qos == "Burstable")
        set_values(f"{ROOT}-burstable.slice", {"CPUWeight": linear(burstable)})
        set_values(f"{ROOT}-besteffort.slice", {"CPUWeight": linear(0)})

    def _start(self, pod):
        if exists(pod.slice):  # from before a restart; a kubelet does not set its values again
            return pod
        cpu, memory = pod.limit("cpu"), pod.limit("memory")
        weight = linear(pod.request("cpu"))
        start_slice(pod.slice, values(weight, cpu, memory, self._pids_limit))
        write_files(pod.slice, {"hugetlb.*.max": "0"})
        limits = zip(pod.amounts("limits", "cpu"), pod.amounts("limits", "memory"), strict=True)
        requests = pod.amounts("requests", "cpu")
        stated = {each["name"] for each in pod.stated}
        for each, request, (cpu, memory) in zip(pod.containers, requests, limits, strict=True):
            if each["name"] in stated:
                continue
            # as a container has, which a process of the host has not
            own_mounts = (f"{BIN}/unshare", "--mount")
            process = subprocess.Popen((*own_mounts, f"{BIN}/sleep", "infinity"))
            id_ = hashlib.sha256(f"{pod.uid}{process.pid}".encode()).hexdigest()
            scope = f"cri-containerd-{id_}.scope"
            start_scope(scope, pod.slice, process.pid, values(curve(request or 0), cpu, memory))
            exact = {"cpu.max": f"{cpu * 100} 100000"} if cpu else {}
            files = {"memory.oom.group": "1", "memory.swap.max": "0", **exact}
            write_files(scope, files)
            pod.processes[each["name"]] = id_
        return pod

    def document(self):
        """Return `/pods`."""
        items = []
        for pod in list(self.pods.values()):
            statuses = [
                {"name": name, "containerID": f"containerd://{id_}", "state": {"running": {}}}
                for name, id_ in pod.processes.items()
            ]
            status = {"phase": "Running", "containerStatuses": [*statuses, *pod.stated]}
            items.append({**pod.manifest, "status": status})
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}


def serve(stand_in):
    """Serve the API."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            version = stand_in.state["version"]
            documents = {
                "/pods": lambda: json.dumps(stand_in.document()),
                "/configz": lambda: json.dumps({"kubeletconfig": stand_in.state["config"]}),
                "/metrics": lambda: f'kubernetes_build_info{{git_version="{version}"}} 1\n',
            }
            body = documents[self.path]().encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    ThreadingHTTPServer(ADDRESS, Handler).serve_forever()


def main():
    """Run until SIGTERM; the units remain, as those of a kubelet do."""
    state, period_sec = Path(sys.argv[1]), float(sys.argv[2])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    stand_in = StandIn(state)
    stand_in.begin()
    stand_in.sync()
    threading.Thread(target=serve, args=(stand_in,), daemon=True).start()
    subprocess.run((f"{BIN}/systemd-notify", "--ready"), check=True)
    while True:
        signal.sigtimedwait({signal.SIGUSR1}, period_sec)
        stand_in.sync()


if __name__ == "__main__":
    main()
