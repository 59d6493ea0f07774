"""What `podslice` prints with `-o json` on an invented host: the documents of docs/json, as many pods as wanted.

With `bad` every text that a user can choose ends with it, as if nothing before the page escaped it.
"""

from __future__ import annotations

import time
from typing import Any

Document = dict[str, Any]
NAMES = ("web", "db", "cache", "queue", "search", "batch", "mail", "ci", "report", "backup")
TIERS = {"Guaranteed": "", "Burstable": "-burstable", "BestEffort": "-besteffort"}
MI = 1 << 20
HOUR_SEC = 3600
CPU, MEMORY_MAX = "CPUQuotaPerSecUSec", "MemoryMax"


class Documents:
    """The documents of a host with some pods; use and times follow the clock."""

    def __init__(self, count: int = 10, bad: str = "") -> None:
        self.bad = bad
        self.pods = [self._pod(number) for number in range(count)]

    def _text(self, text: str) -> str:
        return text + self.bad

    def _pod(self, number: int) -> Document:
        name = NAMES[number % len(NAMES)]
        name += "" if number < len(NAMES) else f"-{number // len(NAMES)}"
        qos = [*TIERS][(number + 1) % len(TIERS)]
        has_limits = qos != "BestEffort"
        key = f"shop/{name}" if number % 4 else f"default/{name}"
        tier = f"/kubepods.slice/kubepods{TIERS[qos]}.slice" if TIERS[qos] else "/kubepods.slice"
        namespace, _, _ = key.partition("/")
        slice_ = f"kubepods{TIERS[qos]}-pod{name}.{namespace}.slice"
        cpu, memory = 500 + 250 * (number % 7), (128 << (number % 4)) * MI
        requests = amounts(cpu // 2, memory // 2) if qos == "Burstable" else amounts(cpu, memory)
        return {
            "number": number,
            "key": key + self.bad.replace("/", "") if number % 50 == 0 else key,
            "qos": qos,
            "slice": slice_,
            "group": f"{tier}/{slice_}",
            "requests": requests if has_limits else {},
            "limits": amounts(cpu, memory) if has_limits else {},
            "containers": ["app", self._text("worker")] if number % 3 == 0 else ["app"],
        }

    def units(self, pods: list[Document]) -> list[Document]:
        """Return the entries of `status`: slices, pods and containers."""
        if not pods:
            return []
        found = [_unit("kubepods.slice", "/kubepods.slice", memory=30_000 * MI)]
        for qos in ("Guaranteed", "Burstable", "BestEffort"):
            if TIERS[qos]:
                name = f"kubepods{TIERS[qos]}.slice"
                found.append(_unit(name, f"/kubepods.slice/{name}"))
            for pod in (each for each in pods if each["qos"] == qos):
                found += self._units_of(pod)
        return found

    def _units_of(self, pod: Document) -> list[Document]:
        limits, count = pod["limits"], len(pod["containers"])
        facts = {
            "containers": count,
            "containers_ready": count - (pod["number"] == 3),
            "restarts": pod["number"] % 3,
            "started_usec": _ago_usec(5 * HOUR_SEC),
            "requests": pod["requests"],
            "limits": limits,
        }
        given = {"cpu": limits.get("cpu_milli"), "memory": limits.get("memory_bytes")}
        made = [
            _unit(
                pod["slice"], pod["group"], **given, pod=pod["key"], qos_class=pod["qos"], **facts
            )
        ]
        for index, name in enumerate(pod["containers"]):
            is_killed = pod["number"] == 3 and index == 0
            unit = f"podslice-{pod['slice'].removesuffix('.slice')}-{index}.scope"
            held = {
                "container": name,
                "processes": [] if is_killed else [{"pid": 4000 + index, "name": self._text("sh")}],
                "restarts": pod["number"] % 3,
                "last_exit": _exit(is_oom=True) if is_killed else None,
            }
            kind = {"kind": "scope", "state": "exited" if is_killed else "active"}
            made.append(_unit(unit, f"{pod['group']}/{unit}", pod=pod["key"], **kind, **held))
        return made

    def status(self, key: str | None = None) -> Document:
        """Return the report of `status`, or of `status POD`."""
        pods = self.pods if key is None else [self._find(key)]
        made = {
            "version": 1,
            "healthy": False,
            "problems": [
                each for each in self._problems() if key is None or each["pod"] == pods[0]["key"]
            ],
            "warnings": [],
            "in_sync": False,
            "units": self.units(pods),
            "others": [],
            "strays": [],
            "orphans": [],
            "evicted": [],
            "agent_pid": None,
            "conditions": [],
            "terminating": [],
            "steps": [],
            "pending": [self._pending()] if key is None and self.pods else [],
        }
        return made if key is None else {**made, "pod": self._page(pods[0])}

    def _find(self, key: str) -> Document:
        """Return a pod; the page asks for a key with its hidden characters replaced."""
        (pod,) = (
            each for each in self.pods if each["key"].partition("<")[0] == key.partition("<")[0]
        )
        return pod

    def _pending(self) -> Document:
        return {
            "pod": self._text("shop/video"),
            "qos_class": "Guaranteed",
            "reason": "OutOfmemory",
            "message": self._text(
                "requests 64 GiB of memory, 18.7 GiB is free (11.7 GiB of 30.4 GiB is requested)"
            ),
            "hint": "lower its requests, or delete other pods; see: podslice node",
            "condition": None,
            "manifest": self._text("/etc/podslice/manifests/video.yaml"),
            "is_applied": False,
        }

    def _problems(self) -> list[Document]:
        if len(self.pods) < 4:
            return []
        drifted, killed, pending = self.pods[0], self.pods[3], self._pending()
        restore = ["podslice", "apply"]
        return [
            {
                "kind": "pod-pending",
                "object": pending["pod"],
                "message": f"pending: OutOfmemory: {pending['message']}",
                "hint": pending["hint"],
                "pod": pending["pod"],
                "command": None,
            },
            {
                "kind": "container-oom-killed",
                "object": killed["key"],
                "message": self._text("container app was killed for lack of memory by the kernel"),
                "hint": f"to see its output: podslice logs {killed['key']} -c app; to start it again:"
                f" podslice run --detach {killed['key']} -c app -- COMMAND",
                "pod": killed["key"],
                "command": None,
            },
            {
                "kind": "unit-differs",
                "object": drifted["slice"],
                "message": self._text("CPUWeight is 5, should be 50"),
                "hint": "to restore it: podslice apply",
                "pod": drifted["key"],
                "command": [*restore, *([self.bad] if self.bad else [])],
            },
        ]

    def _page(self, pod: Document) -> Document:
        namespace, _, name = pod["key"].partition("/")
        limits = {
            "cpu_limit_milli": pod["limits"].get("cpu_milli"),
            "memory_limit_bytes": pod["limits"].get("memory_bytes"),
            "tasks_limit": None,
        }
        containers = [
            {
                "name": unit["container"],
                "kind": "container",
                "unit": unit["name"],
                "state": unit["state"],
                "restarts": unit["restarts"],
                "last_exit": unit["last_exit"],
                "processes": unit["processes"],
                "usage": self._use(pod),
                "runtime": None,
                "runtime_name": None,
                "image": self._text("registry.example/shop/app:2.4"),
                "ports": [],
                "io_read_bytes": 5 * MI,
                "io_written_bytes": 3 * MI,
                "log": [
                    {"time_usec": _ago_usec(60 - second), "message": self._text(line)}
                    for second, line in enumerate(("ready", "GET /cart 200", "GET /health 200"))
                ],
            }
            for unit in self._units_of(pod)
            if "container" in unit
        ]
        return {
            "namespace": namespace,
            "name": name,
            "uid": self._text(name),
            "qos_class": pod["qos"],
            "phase": "running",
            "init_containers": [],
            "node_conditions": [],
            "manifest": self._text(f"/etc/podslice/manifests/{name}.yaml"),
            "apply_command": [
                "podslice",
                "apply",
                "-f",
                self._text(f"/etc/podslice/manifests/{name}.yaml"),
            ],
            "slice": pod["slice"],
            "started_usec": _ago_usec(5 * HOUR_SEC),
            "grace_period_sec": 30,
            "requests": pod["requests"],
            "limits": pod["limits"],
            "usage": {**self._use(pod), **limits},
            "usage_p90": {"cpu_milli": 180, "memory_working_set_bytes": 40 * MI},
            "containers": containers,
            "volumes": [
                {
                    "name": self._text("scratch"),
                    "unit": "run-podslice-volumes-web-scratch.mount",
                    "path": self._text("/run/podslice/volumes/web/scratch"),
                    "size_bytes": 64 * MI,
                    "used_bytes": 3 * MI,
                }
            ],
            "events": [
                {
                    "time_usec": _ago_usec(age),
                    "kind": kind,
                    "level": level,
                    "pod": pod["key"],
                    "unit": pod["slice"],
                    "message": self._text(message),
                    "fields": {},
                }
                for age, kind, level, message in (
                    (5 * HOUR_SEC, "started", "info", "started the pod"),
                    (300, "oom-kill", "error", "the kernel killed a process of container app"),
                )
            ],
            "events_problem": self._text("older events are not readable") if self.bad else None,
            "log_problem": None,
        }

    def _use(self, pod: Document) -> Document:
        usage = _usage(pod)
        waited = {"avg60_percent": 1.0, "avg300_percent": 0.5, "total_usec": 1000}
        pressure = {"avg10_percent": usage["cpu_pressure_percent"], **waited}
        return {
            "cpu_milli": usage["cpu_milli"],
            "cpu_usec": 10**9,
            "memory_working_set_bytes": usage["memory_working_set_bytes"],
            "memory_bytes": usage["memory_bytes"],
            "tasks": 12,
            "oom_kills": 1,
            "io_read_bytes": 5 * MI,
            "io_written_bytes": 3 * MI,
            "periods": 1000,
            "throttled_periods": 120,
            "throttled_usec": 9 * 10**6,
            "pressure": {"cpu": {"some": pressure, "full": pressure}},
        }

    def top(self) -> Document:
        """Return a measurement of `top`."""
        node = {
            **_usage({"number": 3, "limits": amounts(8000, 30_000 * MI)}),
            "cpu_capacity_milli": 8000,
        }
        for name in ("memory_available_bytes", "storage_available_bytes", "storage_capacity_bytes"):
            node[name] = 9000 * MI
        more = {"pids_max": 32768, "conditions": [], "evicted": [], "problems": []}
        pods = [
            {
                "pod": pod["key"],
                "unit": pod["slice"],
                "qos_class": pod["qos"],
                "containers": [
                    {"name": name, "unit": "x.scope", **_usage(pod)} for name in pod["containers"]
                ],
                **_usage(pod),
            }
            for pod in self.pods
        ]
        group = {
            "unit": "kubepods.slice",
            **_usage({"number": 2, "limits": amounts(6000, 20_000 * MI)}),
        }
        moment = {"time_usec": _ago_usec(0), "interval_usec": 2 * 10**6}
        return {"version": 1, **moment, "node": {**node, **more}, "groups": [group], "pods": pods}

    def node(self) -> Document:
        """Return what the host has."""
        reserved = {"kube": amounts(500, 512 * MI), "system": amounts(500, 1024 * MI)}
        eviction = {"eviction": amounts(0, 100 * MI), "hugepages": {}}
        return {
            "version": 1,
            "capacity": amounts(8000, 32_768 * MI),
            "reserved": {**reserved, **eviction},
            "allocatable": amounts(7000, 31_132 * MI),
            "requested": amounts(3250, 12_000 * MI),
            "free": amounts(3750, 19_132 * MI),
            "memory_hugetlb_accounting": False,
        }

    def doctor(self) -> Document:
        """Return what the host lacks."""
        finding = {
            "check": "cgroup",
            "state": "attention",
            "what": self._text("the host has cgroup v1"),
            "effect": self._text("memory requests are not protected, and there is no pressure"),
            "fix": "boot with systemd.unified_cgroup_hierarchy=1",
        }
        return {"version": 1, "passed": False, "findings": [finding]}

    def explain(self, key: str) -> Document:
        """Return the reasons for the values of a pod."""
        pod = self._find(key)
        namespace, _, name = key.partition("/")
        reasons = {
            CPU: (10**6, "spec.resources.limits.cpu 1 → 1000000 µs per second"),
            MEMORY_MAX: (128 * MI, "spec.resources.limits.memory 128Mi"),
        }
        properties = [
            {"name": each, "value": value, "why": self._text(why)}
            for each, (value, why) in reasons.items()
        ]
        entry = {
            "namespace": namespace,
            "name": name,
            "uid": name,
            "qos_class": pod["qos"],
            "requests": pod["requests"],
            "limits": pod["limits"],
            "grace_period_sec": 30,
            "slice": pod["slice"],
            "control_group": pod["group"],
            "properties": properties,
            "containers": [],
            "volumes": [],
            "notes": [],
            "problems": [],
        }
        return {
            "version": 1,
            "node": _without_version(self.node()),
            "pods": [entry],
            "problems": [],
        }

    def recommend(self, key: str) -> Document:
        """Return the last day of a pod, and the recommended amounts."""
        namespace, _, name = key.partition("/")
        advice = {"lower": 100, "upper": 400, "current": 500, "computed": 200, "recommended": 200}
        cpu = {f"{part}_milli": amount for part, amount in advice.items()}
        memory = {f"{part}_bytes": amount * MI // 4 for part, amount in advice.items()}
        start = int(time.time()) // 900 * 900 - 86_400 + 900
        day = [
            {
                "time_usec": (start + 900 * step) * 10**6,
                "cpu_milli": 60 + 7 * (step * 37 % 23) + (200 if 30 < step < 60 else 0),
                "memory_bytes": (30 + step // 4 + step % 5) * MI,
            }
            for step in range(96)
            if step not in range(12, 20)  # the agent did not run
        ]
        waits = {"cpu_wait_percent": 1.0, "memory_wait_percent": 0.0}
        pod = {
            "namespace": namespace,
            "name": name,
            "history_sec": 86_400,
            "samples": 1440,
            "confidence_days": 1.0,
            "oom_kills": 0,
            **waits,
            "cpu_request": {**cpu, "veto": None},
            "memory_request": {**memory, "veto": None},
            "memory_limit": None,
            "containers": [],
            "sum_of_requests": amounts(200, 50 * MI),
            "saving": amounts(300, 50 * MI),
            "day": day,
        }
        return {"version": 1, "pods": [pod]}

    def plan(self) -> Document:
        """Return what an apply would do."""
        change = {
            "name": "CPUWeight",
            "old": 5,
            "new": 50,
            "why": self._text("cpu 500m → 512 shares"),
        }
        pod = self.pods[0]
        steps = [
            {"action": "set", "unit": pod["slice"], "properties": [change]},
            {
                "action": "stop",
                "unit": self._text("x.scope"),
                "properties": [],
                "why": self._text("its pod is no longer wanted"),
                "tasks": 1,
                "grace_period_sec": 30,
                "occupants": [self._text("100 sleep")],
            },
        ]
        return {"version": 1, "changed": True, "steps": steps, "skipped": [], "refused": []}

    def answer(self, words: list[str]) -> Document | None:
        """Return the document of a command, without its `-o json`; None of one that prints none."""
        match [word for word in words if word != "--exit-zero"]:
            case ["podslice", "status", *pods]:
                return self.status(*pods)
            case ["podslice", "top", *_]:
                return self.top()
            case ["podslice", ("explain" | "recommend") as verb, pod]:
                return self.explain(pod) if verb == "explain" else self.recommend(pod)
            case ["podslice", "plan", *_]:
                return self.plan()
            case ["podslice", ("node" | "doctor") as verb]:
                return self.node() if verb == "node" else self.doctor()
            case _:
                return None


def amounts(cpu_milli: int, memory_bytes: int) -> Document:
    """Return amounts as documents have them."""
    return {"cpu_milli": cpu_milli, "memory_bytes": memory_bytes}


def problems(*found: Document) -> Document:
    """Return the document of a command that has failed."""
    return {"version": 1, "problems": [{"severity": "error", **each} for each in found]}


def _unit(
    name: str, group: str, *, cpu: int | None = None, memory: int | None = None, **more: object
) -> Document:
    values = {CPU: cpu and cpu * 1000, MEMORY_MAX: memory, "CPUWeight": 50}
    properties = [
        {"name": each, "desired": value, "systemd": value, "kernel": str(value)}
        for each, value in values.items()
        if value is not None
    ]
    known = {"name": name, "kind": "slice", "pod": None, "qos_class": None, "state": "active"}
    known |= {"control_group": group, "differs": False, "properties": properties}
    return {**known, "usage": {"memory_bytes": 40 * MI, "cpu_usec": 10**6, "tasks": 3}, **more}


def _exit(*, is_oom: bool) -> Document:
    return {
        "result": "oom-kill" if is_oom else "success",
        "exit_code": None if is_oom else 0,
        "signal": "SIGKILL" if is_oom else None,
        "oom_killed": is_oom,
        "started_usec": _ago_usec(HOUR_SEC),
        "ended_usec": _ago_usec(300),
        "duration_usec": (HOUR_SEC - 300) * 10**6,
    }


def _usage(pod: Document) -> Document:
    """Return a use between a tenth of the limit and all of it, which changes."""
    number, limits = pod["number"], pod["limits"]
    part = (number * 29 + int(time.monotonic()) * 3) % 90 + 8
    return {
        "cpu_milli": limits.get("cpu_milli", 400) * part // 100,
        "memory_working_set_bytes": limits.get("memory_bytes", 200 * MI)
        * (number * 41 % 88 + 10)
        // 100,
        "memory_bytes": 128 * MI,
        "throttled_percent": max(part - 60, 0),
        "tasks": 3,
        "cpu_pressure_percent": max(part - 70.0, 0.0),
        "memory_pressure_percent": 0.5,
        "io_pressure_percent": 0.0,
    }


def _ago_usec(seconds: int) -> int:
    return int((time.time() - seconds) * 10**6)


def _without_version(document: Document) -> Document:
    return {key: value for key, value in document.items() if key != "version"}
