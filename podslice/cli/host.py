"""What a verb reads of this host without systemd: the configuration, the node, the records of pods."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from podslice.cli.options import Planning
from podslice.cli.output import note
from podslice.cli.pods import only_pod_named
from podslice.cli.views.problem_lines import problem_line
from podslice.errors import HostError, InputError, Problem, Severity
from podslice.inputs.options.config_files import make_config, restore
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.host import read_cpu_topology, read_node
from podslice.model.config import Config, CpuManagerPolicy, Origin, Source
from podslice.model.naming import Tree, scope_name, service_name
from podslice.model.node import Node
from podslice.model.pod import Pod, Qos
from podslice.model.resources import CPU, MEMORY
from podslice.model.unit import SYSTEM, Manager, UnitName, control_group_of
from podslice.store.store import Store


def load_node(config: Config, *, lenient: bool = False, manager: Manager = SYSTEM) -> Node:
    """Return this host's node; an empty one if the capacity is configured, or not needed.

    Its controllers are those of the manager.

    Raises:
        HostError: the host's capacity is needed and cannot be read.
    """
    try:
        node = read_node(control_group=manager.control_group)
    except HostError:
        if lenient or {CPU, MEMORY} <= config.capacity.keys():
            return Node(capacity={})
        raise
    if config.cpu_manager_policy is CpuManagerPolicy.NONE or CPU in config.capacity:
        return node

    return replace(node, topology=read_cpu_topology())


_CPUS = "cpuset.cpus"


def read_cpus(
    config: Config, pods: Iterable[Pod], manager: Manager, cgroups: CgroupFs
) -> Mapping[UnitName, str]:
    """Return the lists of CPUs of the tier, and of Guaranteed pods and their containers.

    A container that is a service counts as its scope. Units without a list are absent.
    """
    groups = _control_groups(Tree(cgroup_root=config.cgroup_root), pods)
    above = manager.control_group.rstrip("/")
    found = ((name, cgroups.files(f"{above}{group}", (_CPUS,))) for name, group in groups)
    return {name: files[_CPUS] for name, files in found if files.get(_CPUS)}


def _control_groups(tree: Tree, pods: Iterable[Pod]) -> Iterator[tuple[UnitName, str]]:
    tier = tree.tier(Qos.BURSTABLE)
    yield tier, control_group_of(tier)
    for pod in pods:
        slice_ = tree.pod(pod.uid, Qos.GUARANTEED)
        group = control_group_of(slice_)
        yield slice_, group
        for container in pod.containers:
            scope = scope_name(pod.uid, container.name)
            yield scope, f"{group}/{service_name(scope)}"
            yield scope, f"{group}/{scope}"


def runtime_directory(manager: Manager) -> Path:
    """Return the directory of records, which lasts until shutdown or the end of the session.

    Raises:
        HostError: there is no session, or it is another user's.
    """
    base = manager.runtime_directory
    directory = Path(base, "podslice")
    if not manager.is_user:
        return directory
    if not manager.has_session:
        raise HostError(
            "there is no user session: XDG_RUNTIME_DIR is not set; log in, or enable lingering"
            f" (loginctl enable-linger) and set XDG_RUNTIME_DIR={base}"
        )
    try:
        owner, uid = Path(base).stat().st_uid, manager.uid
    except OSError:
        return directory  # the error of what is read or written in it is more precise
    if owner != uid:
        raise HostError(
            f"XDG_RUNTIME_DIR={base} belongs to user {owner}, not to user {uid}; set"
            f" XDG_RUNTIME_DIR=/run/user/{uid}"
        )
    return directory


def level_directory(manager: Manager) -> Path:
    """Return the directory of an agent that applies pod levels, apart from the other agent's.

    A DaemonSet may run the one, and the host the other.

    Raises:
        HostError: there is no session, or it is another user's.
    """
    return runtime_directory(manager) / "kubelet"


def usage_directory(config: Config, manager: Manager) -> str:
    """Return the directory of histories of usage; empty if none are recorded.

    The default one belongs to the host's agent; a user has `~/.local/state/podslice/usage`.
    """
    default = Config().usage_history
    if manager.is_user and config.usage_history == default:
        return default.replace("/var/lib", manager.state_directory, 1)
    return config.usage_history


def open_store(planning: Planning) -> Store:
    """Return the records, which last until shutdown or the end of the session.

    Raises:
        HostError: there is no session, or it is another user's.
    """
    directory = runtime_directory(planning.manager)
    return Store(directory, cgroup_root=planning.config.cgroup_root)


def applied_pods(planning: Planning) -> tuple[Pod, ...]:
    """Return the applied pods from their records.

    Raises:
        HostError: the records cannot be read, or there is no session.
    """
    return open_store(planning).load().pods


def applied_pod(planning: Planning, name: str, namespace: str | None) -> str:
    """Return the key of an applied or evicted pod, also where its workload is named.

    A name that no record has is returned as a key: the pod may be found by its slice.

    Raises:
        InputError: the workload has several pods.
        HostError: the records cannot be read.
    """
    return only_pod_named(name, namespace, recorded_keys(planning))


def recorded_keys(planning: Planning) -> set[str]:
    """Return the keys of the applied and the evicted pods.

    Raises:
        HostError: the records cannot be read, or there is no session.
    """
    return keys_in(open_store(planning))


def keys_in(store: Store) -> set[str]:
    """Return the keys of the applied and the evicted pods.

    Raises:
        HostError: the records cannot be read.
    """
    records = store.load()
    return {*(pod.key for pod in records.pods), *(mark.pod for mark in records.evicted)}


def recorded_pods(planning: Planning) -> tuple[Pod, ...]:
    """Return the applied pods; none if their records cannot be read."""
    try:
        return applied_pods(planning)
    except HostError as error:
        note(f"{error}; applied pods are not counted")
        return ()


PROGRAM = "/usr/bin/podslice"
"""Where packages install it."""


def own_program() -> str:
    """Return the path of the present process's program, or that of the packages."""
    own = Path(sys.argv[0])
    return str(own) if own.name == "podslice" and own.is_absolute() else PROGRAM


_SUBSTITUTES = {
    Source.LAST_VALID: "this command uses the last valid configuration",
    Source.DEFAULT: "no valid configuration is recorded; this command uses the default one",
}


def tolerate(planning: Planning, *, is_listed: bool = False) -> Planning:
    """Return the options with another configuration if the configuration files are invalid.

    Verbs that show or remove use the last valid configuration, or the default one if none is
    recorded. The problems are reported on standard error, unless the verb lists them itself.

    Raises:
        InputError: an option, or the file given with `--config`, is invalid.
    """
    try:
        _ = planning.config
    except InputError as error:
        if planning.config_file is not None:
            raise
        config, origin = _substitute(planning, error)
    else:
        return planning
    for found in () if is_listed else origin.problems:
        note(problem_line(found))
    message = f"the configuration files are invalid: {_SUBSTITUTES[origin.source]}"
    hint = "after correcting them, run: podslice check"
    note(problem_line(Problem(where="", message=message, hint=hint, severity=Severity.WARNING)))
    return replace(planning, substitute=(config, origin))


def _substitute(planning: Planning, error: InputError) -> tuple[Config, Origin]:
    """Return the last valid configuration or else the default one, with the options applied.

    Raises:
        InputError: `error`, because the options are invalid with both.
    """
    recorded: Mapping[str, object] | None = None

    with suppress(HostError):  # there is no session
        recorded = Store(runtime_directory(planning.manager)).options()
    for source, settings in ((Source.LAST_VALID, recorded), (Source.DEFAULT, {})):
        if settings is not None:
            with suppress(InputError):
                is_user = planning.manager.is_user
                config = make_config(
                    restore(settings), planning.flags, planning.settings, is_user=is_user
                )
                return config, Origin(source=source, problems=error.problems)
    raise error
