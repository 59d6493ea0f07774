"""Builders of test values: pods, nodes, desired and observed units."""

from __future__ import annotations

import json
from dataclasses import replace

from podslice.cli.extensions import cpu_stage
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.desired import Desired
from podslice.model.node import Node
from podslice.model.pod import Container, ContainerKind, Pod
from podslice.model.properties import PROPERTIES
from podslice.model.quantity import parse_quantity
from podslice.model.resources import Resources
from podslice.model.unit import (
    Caps,
    DesiredUnit,
    Observed,
    ObservedUnit,
    PropertyValue,
    UnitKind,
    UnitName,
    control_group_of,
    parent_slice,
    user_manager,
)
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from podslice.reconcile.world import Guard, Guarded, World
from podslice.store.store import Store

USER = user_manager(1000, {"XDG_RUNTIME_DIR": "/run/user/1000"})
"""The manager of a user who is not the one that runs the tests."""
UNSET = {row.name: row.unset for row in PROPERTIES.values() if row.managed}
"""The values of the managed properties while they are unset."""


def amounts(text):
    """`cpu=500m,memory=1Gi` as thousandths."""
    pairs = (part.split("=") for part in text.split(",") if part)
    return {name: parse_quantity(quantity).milli for name, quantity in pairs}


def resources(requests="", limits=""):
    return Resources(requests=amounts(requests), limits=amounts(limits))


def container(name="main", requests="", limits="", kind=ContainerKind.APP):
    return Container(
        name=name,
        kind=kind,
        resources=resources(requests, limits),
        where=f"spec.containers[{name}]",
    )


def pod(name, requests="", limits="", **fields):
    """Return a pod whose uid is its name, with one container unless `containers` is given."""
    fields.setdefault("containers", (container("main", requests, limits),))
    return Pod(name=name, uid=fields.pop("uid", name), where=f"{name}.yaml", **fields)


def guaranteed(name, cpu="1", memory="1Gi", **fields):
    return pod(name, limits=f"cpu={cpu},memory={memory}", **fields)


def burstable(name, requests="cpu=500m,memory=256Mi", limits="", **fields):
    return pod(name, requests, limits, **fields)


def besteffort(name, **fields):
    return pod(name, **fields)


def node(capacity="cpu=8,memory=32Gi"):
    return Node(capacity=amounts(capacity))


def config(**fields):
    """Return a configuration without eviction thresholds, so that sums are round, and history."""
    return Config(**{"eviction_hard": {}, "usage_history": "", **fields})


def decisions(*pods, on=None, by=None):
    return tuple(decide(each, on or node(), by or config()) for each in pods)


def desired_for(*pods, current=(), terminating=(), on=None, by=None, **more):
    on, by = on or node(), by or config()
    return desire(
        decisions(*pods, on=on, by=by), on, by, current=current, terminating=terminating, **more
    )


def property_value(name, value, why=""):
    return PropertyValue(name=name, value=value, why=why)


def slice_unit(name, *, owned=True, pod=None, description="", **values):
    return DesiredUnit(
        name=UnitName(name),
        kind=UnitKind.SLICE,
        parent=parent_slice(UnitName(name)),
        control_group=control_group_of(UnitName(name)),
        description=description or f"Slice {name}",
        properties=tuple(
            property_value(key, value, f"why {key}") for key, value in sorted(values.items())
        ),
        pod=pod,
        owned=owned,
    )


def scope_unit(name, parent, *, pod=None, **values):
    unit = slice_unit("x.slice", pod=pod, description=f"Container {name} of pod {pod}", **values)
    group = f"{control_group_of(UnitName(parent))}/{name}"
    return replace(
        unit, name=UnitName(name), kind=UnitKind.SCOPE, parent=UnitName(parent), control_group=group
    )


def desired(*units, unwanted=(), **fields):
    return Desired(
        root=UnitName("kubepods.slice"),
        units=units,
        unwanted=dict.fromkeys(map(UnitName, unwanted), "no reason"),
        **fields,
    )


def seen(name, *, tasks=0, values=(), **fields):
    """Return a loaded unit, on which properties outside of `values` are unset."""
    return ObservedUnit(
        name=UnitName(name),
        properties={**UNSET, **dict(values)},
        control_group=control_group_of(UnitName(name)),
        tasks=tasks,
        **fields,
    )


def observed(*units, version=257):
    return Observed(caps=Caps(systemd_version=version), units={unit.name: unit for unit in units})


def as_observed(desired_, *, scopes=True, version=257):
    """Return an observation on which every unit is as desired."""
    return observed(
        *(
            replace(
                seen(unit.name, values=unit.values, description=unit.description),
                control_group=unit.control_group,
            )
            for unit in desired_.lasting
            if scopes or unit.kind is UnitKind.SLICE
        ),
        version=version,
    )


def world(tmp_path, client, *, on=None, by=None, notes=None, **fields):
    """Return a world below a directory, offline without a client; `notes` receives its notes."""
    offline = World(
        node=on or node(),
        config=by or config(),
        cpu_stage=cpu_stage(by or config()),
        store=Store(tmp_path / "run"),
        guard=fields.pop("guard", None) or Guard(tmp_path / "host"),
        cgroups=CgroupFs(mount=tmp_path / "cgroup"),
        on_note=(lambda _: None) if notes is None else notes.append,
        **fields,
    )
    if client is None:
        return offline
    return offline.with_client(Guarded(client, offline.claim))


def run_process(tmp_path, pid, name, *arguments, uid=0, ids=1, login=2**32 - 1):
    """A process in the /proc of a world, in so many namespaces of process ids."""
    status = f"Name:\t{name}\nUid:\t" + "\t".join(4 * [str(uid)]) + "\n"
    files = {
        "comm": f"{name}\n",
        "cmdline": "\0".join((f"/usr/bin/{name}", *arguments, "")),
        "status": status + "NSpid:\t" + "\t".join(map(str, (pid, *range(1, ids)))) + "\n",
        "loginuid": str(login),
    }
    make_files(tmp_path / "host/proc" / str(pid), files)


def manifest(name, requests=None, limits=None, **more):
    """Return a manifest as text (JSON is YAML)."""
    stated = {"requests": requests, "limits": limits}
    resources_ = {key: value for key, value in stated.items() if value}
    container_ = {"name": "main", **({"resources": resources_} if resources_ else {})}
    spec = {"containers": [container_], **more}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def make_files(root, files):
    """Write files below a directory: path → text."""
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode(errors="surrogateescape"))
    return root
