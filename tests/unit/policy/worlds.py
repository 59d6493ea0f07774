"""Small worlds, exhaustively: pods of a few containers with amounts from a short list."""

import itertools

from podslice.model.pod import Container, ContainerKind, Pod
from podslice.model.resources import Resources

AMOUNTS = (None, 0, 1, 2)
KINDS = (ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR)
"""The kinds of a pod's containers."""


def stated(**amounts):
    return {name: milli for name, milli in amounts.items() if milli is not None}


def levels(*, with_memory=True):
    """Every valid pair of requests and limits of cpu and memory: no request above its limit."""
    pairs = [
        (request, limit)
        for request, limit in itertools.product(AMOUNTS, repeat=2)
        if request is None or limit is None or request <= limit
    ]
    for cpu, memory in itertools.product(pairs, pairs if with_memory else [(None, None)]):
        yield Resources(
            requests=stated(cpu=cpu[0], memory=memory[0]),
            limits=stated(cpu=cpu[1], memory=memory[1]),
        )


def container(resources, index=0, kind=ContainerKind.APP):
    group = "containers" if kind is ContainerKind.APP else "initContainers"
    return Container(
        name=f"{kind.value}{index}", kind=kind, resources=resources, where=f"spec.{group}[{index}]"
    )


def pod(*containers, name="pod", **fields):
    return Pod(name=name, uid=fields.pop("uid", name), containers=containers, **fields)
