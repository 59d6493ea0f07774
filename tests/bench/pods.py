"""The pods of bring-up and steady state."""

from __future__ import annotations

CAPACITY = "cpu=100000,memory=64Ti,ephemeral-storage=64Ti"
"""The capacity of the node, so that any host admits all of them."""

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: worker-{number}
  namespace: team-{team}
  uid: 0b9e5c34-5a1e-4c7e-9d53-{number:012x}
  labels:
    app: worker
spec:
  priority: {priority}
  containers:
  - name: main
    image: registry.example.com/team/worker:1.{number}
    args: ["--queue", "jobs", "--verbose"]
{resources}---
"""
GUARANTEED = """\
    resources:
      limits: {{cpu: {cpu}m, memory: {memory}Mi}}
"""
BURSTABLE = """\
    resources:
      requests: {{cpu: {cpu}m, memory: {memory}Mi}}
      limits:
        cpu: {more}m
        memory: {larger}Mi
"""
MIX = (GUARANTEED, BURSTABLE, BURSTABLE, BURSTABLE, "")
"""By class; the last is BestEffort."""


def make_manifests(count: int, *, changed: int | None = None) -> str:
    """Return pods with different amounts; `changed` is the number of one with more memory."""
    return "".join(_pod(number, extra=64 * (number == changed)) for number in range(count))


def _pod(number: int, extra: int) -> str:
    memory = (64, 128, 256, 512, 1024, 2048, 3000)[number % 7] + extra
    resources = MIX[number % len(MIX)].format(
        cpu=(50, 100, 250, 500, 1000)[number % 4],
        more=2000 + 10 * (number % 50),
        memory=memory,
        larger=2 * memory,
    )
    return POD.format(number=number, team=number % 12, priority=number % 3, resources=resources)
