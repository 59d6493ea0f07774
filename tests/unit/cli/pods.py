"""Manifests, states and expected output that several verbs' tests share."""

import os

from podslice.cli.verb_table import VERBS
from podslice.kernel.proc import read_process
from podslice.model.node_state import AgentState, Eviction
from podslice.usage.runtimes import RuntimeContainer


def of_present_verbs(commands):
    """Return the command lines whose verb there is: a feature may be absent."""

    def is_present(words):
        verb = words[0] if words else "-"
        below = " ".join(words[:2])
        return verb[0] in "-_" or (below if below in BELOW_NODE else verb) in VERBS

    return [each for each in commands if is_present([*each])]


def run_agent(store, **fields):
    """Record a running agent: this process."""
    process = read_process(os.getpid())
    started = process.started_ticks
    store.agent.save(AgentState(pid=process.pid, started_ticks=started, **fields))


def mark_evicted(store, pod, message="50Mi of memory are available, 100Mi are required", **fields):
    """Record the eviction of a pod."""
    stated = {"signal": "memory.available", "message": message, "at_usec": 1_700_000_000_000_000}
    mark = {"pod": pod.key, "uid": pod.uid, "digest": store.digest(pod), **stated, **fields}
    store.mark_evicted(Eviction(**mark))


def podman_container(group, **fields):
    """Return container main of pod shop/web as podman has it, in a control group."""
    found = RuntimeContainer(
        runtime="podman",
        id="0123",
        name="web-main",
        pid=40,
        container="main",
        pod_key="shop/web",
        pod_uid=None,
        control_group=group,
    )
    return found._replace(**fields)


BELOW_NODE = ("node init", "node recommend", "node reset")

WEB = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: 0a1b-2c}
spec:
  containers:
  - name: app
    resources:
      requests: {cpu: 500m, memory: 256Mi}
      limits: {cpu: "1", memory: 512Mi}
  - name: log
    resources:
      limits: {cpu: 250m}
"""

POD = "kubepods-burstable-pod0a1b_2c.slice"


FULL = """\
apiVersion: v1
kind: Pod
metadata: {name: web, uid: 12-34}
spec:
  overhead: {cpu: 100m, memory: 16Mi}
  terminationGracePeriodSeconds: 5
  containers: [{name: app}]
  initContainers:
  - {name: setup, resources: {requests: {memory: 64Mi}, limits: {memory: 2Gi}}}
  - {name: proxy, restartPolicy: Always}
  resources: {limits: {memory: 1Gi, cpu: 1, hugepages-2Mi: 4Mi}}
  volumes:
  - {name: my-cache, emptyDir: {medium: Memory, sizeLimit: 64Mi}}
"""
