"""Manifests and expected output that several verbs' tests share."""

from podslice.cli.verb_table import VERBS


def of_present_verbs(commands):
    """Return the command lines whose verb there is: a feature may be absent."""

    def is_present(words):
        verb = words[0] if words else "-"
        below = " ".join(words[:2])
        return verb[0] in "-_" or (below if below in BELOW_NODE else verb) in VERBS

    return [each for each in commands if is_present([*each])]


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

PLAN_JSON = """\
{
  "version": 1,
  "changed": true,
  "steps": [
    {
      "action": "start",
      "unit": "kubepods.slice",
      "properties": [
        {
          "name": "CPUWeight",
          "old": null,
          "new": 800,
          "why": "capacity - kube-reserved - system-reserved, cpu → 8192 shares → ×100/1024"
        },
        {
          "name": "MemoryLow",
          "old": null,
          "new": 268435456,
          "why": "the sum over all pods' slices"
        },
        {
          "name": "MemoryMax",
          "old": null,
          "new": 34359738368,
          "why": "capacity - kube-reserved - system-reserved, memory"
        }
      ]
    },
    {
      "action": "start",
      "unit": "kubepods-besteffort.slice",
      "properties": [
        {
          "name": "CPUWeight",
          "old": null,
          "new": 1,
          "why": "the BestEffort tier → 2 shares → ×100/1024 = 0, clamped to 1: systemd accepts 1 to 10000"
        }
      ]
    },
    {
      "action": "start",
      "unit": "kubepods-burstable.slice",
      "properties": [
        {
          "name": "CPUWeight",
          "old": null,
          "new": 75,
          "why": "requests.cpu of Burstable pods 750m → 768 shares → ×100/1024"
        },
        {
          "name": "MemoryLow",
          "old": null,
          "new": 268435456,
          "why": "the sum over Burstable pods' slices"
        }
      ]
    },
    {
      "action": "start",
      "unit": "kubepods-burstable-pod0a1b_2c.slice",
      "properties": [
        {
          "name": "CPUQuotaPerSecUSec",
          "old": null,
          "new": 1250000,
          "why": "limits.cpu 1 + 250m = 1250m → 1250000 µs per second"
        },
        {
          "name": "CPUWeight",
          "old": null,
          "new": 75,
          "why": "requests.cpu 500m + 250m (limit) = 750m → 768 shares → ×100/1024"
        },
        {
          "name": "MemoryLow",
          "old": null,
          "new": 268435456,
          "why": "requests.memory 256Mi"
        }
      ]
    }
  ],
  "skipped": [],
  "refused": []
}
"""

STARTS = """\
start kubepods.slice with CPUWeight=800, MemoryLow=256Mi, MemoryMax=32Gi
start kubepods-besteffort.slice with CPUWeight=1
start kubepods-burstable.slice with CPUWeight=75, MemoryLow=256Mi
start kubepods-burstable-pod0a1b_2c.slice (shop/web) with CPUQuota=125%, CPUWeight=75, MemoryLow=256Mi
""".splitlines()

POD = "kubepods-burstable-pod0a1b_2c.slice"


def lines(*parts):
    return "".join(f"{line}\n" for line in parts)


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
