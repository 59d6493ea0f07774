"""`podslice logs`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Annotated

import typer

from podslice.cli.arguments import Namespace, PodName, container_option, lines_option, since_option
from podslice.cli.host import open_store, tolerate
from podslice.cli.options import Planning, configured
from podslice.cli.output import note
from podslice.cli.pods import PodFilter, key_of
from podslice.cli.suggestions import closest
from podslice.errors import InputError, invalid
from podslice.kernel import programs
from podslice.model.naming import OVERHEAD, Tree, scope_name, service_name
from podslice.model.pod import Pod, Qos
from podslice.model.unit import UnitName
from podslice.store.adopted_services import by_pod, read_adopted
from podslice.systemd.journal import LogQuery, journal_command
from podslice.usage import runtimes
from podslice.usage.runtimes import run_patiently

Container = Annotated[str | None, container_option("Only the output of this container.")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Wait for further output, until Ctrl-C.")
]
Since = Annotated[str | None, since_option("output")]
Lines = Annotated[int | None, lines_option("lines, the latest")]
Every = Annotated[bool, typer.Option("--all", help="Also messages of systemd, podman and others.")]
Format = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FORMAT", help="A format of journalctl, such as cat."),
]


@configured
def logs(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: PodName,
    container: Container = None,
    follow: Follow = False,  # noqa: FBT002
    since: Since = None,
    lines: Lines = None,
    every: Every = False,  # noqa: FBT002
    namespace: Namespace = None,
    output: Format = None,
) -> int:
    """Run `podslice logs`.

    Examples:
        podslice logs web --tail 20
        podslice logs web -c app --follow
    """
    planning = tolerate(planning)
    pods = _find(planning, pod, namespace)
    services = by_pod(read_adopted(planning.manager))
    units: list[UnitName] = []
    whole = []
    for key, (uid, found) in pods.items():
        own = {each.container: each.unit for each in services.get(key, ())}
        if container is not None:
            _require(found, key, container, own)
        elif every or found is None:  # the containers of an evicted pod are unknown
            whole.append(uid)
        units += [unit for name, unit in own.items() if container in (None, name)]
        for name in [container] if container is not None else _containers(found):
            scope = scope_name(uid, name)
            units += [scope, service_name(scope)]
    # of each class: a pod may have had another one before
    tree = Tree(cgroup_root=planning.config.cgroup_root)
    query = LogQuery(
        units=units,
        slices=[tree.pod(uid, qos) for uid in whole for qos in Qos],
        with_manager=every,
        containers=_runtime_ids(planning, [each for _, each in pods.values() if each], container),
        since=since,
        lines=lines,
        follow=follow,
        format=output,
        manager=planning.manager,
    )
    file, arguments = journal_command(query)
    programs.become(
        programs.Invocation(
            file=file, arguments=arguments, environment=programs.given_environment()
        )
    )


def _find(
    planning: Planning, name: str, namespace: str | None
) -> dict[str, tuple[str, Pod | None]]:
    """Return the uid of an applied or evicted pod, and the pod where it has a record.

    The name of a workload is the name of all its pods.

    Raises:
        InputError: there is no such pod.
    """
    records = open_store(planning).load()
    marks = {mark.pod: mark.uid for mark in records.evicted}
    pods = {pod.key: pod for pod in records.pods}
    uids = marks | {pod.key: pod.uid for pod in pods.values()}
    try:
        found = PodFilter(keys=(key_of(name, namespace),)).resolve(uids).keys
    except InputError as error:
        if namespace is None or not namespace.isdecimal():
            raise
        hint = f"-n is the namespace; for the number of lines: --tail {namespace}"
        raise InputError(replace(each, hint=hint) for each in error.problems) from error
    return {each: (uids[each], pods.get(each)) for each in found}


def _containers(pod: Pod | None) -> list[str]:
    return [*(each.name for each in pod.containers), OVERHEAD] if pod else []


def _require(pod: Pod | None, key: str, container: str, services: Collection[str]) -> None:
    """Check that a pod has a container; those of evicted pods are unknown.

    Raises:
        InputError: it has not; the hint is the most similar name.
    """
    names = [name for name in _containers(pod) if name != OVERHEAD or (pod and pod.overhead)]
    names += [name for name in services if name not in names]
    if pod is None or container in names:
        return
    near = closest(container, names)
    nearest = f"did you mean {near}? " if near else ""
    hint = f"{nearest}its containers: {', '.join(names)}"
    raise invalid(f"it has no container {container!r}", hint, where=f"pod {key}")


def _runtime_ids(planning: Planning, pods: list[Pod], container: str | None) -> list[str]:
    """Return the ids of the containers that podman and docker have for pods."""
    if not pods:
        return []
    uids, keys = {pod.uid for pod in pods}, {pod.key for pod in pods}
    found = asyncio.run(
        runtimes.containers(
            tuple(pods),
            manager=planning.manager,
            on_note=note,
            with_exited=True,
            run_command=run_patiently,
        )
    )
    return [
        each.id
        for each in found
        if each.pod_uid in uids or each.pod_key in keys
        if container in (None, each.container)
    ]
