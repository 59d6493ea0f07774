"""`explain`."""

import json
from pathlib import Path

from tests.unit.builders import manifest
from tests.unit.cli.pods import FULL

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
EXPLAIN_JSON = """\
{
  "version": 1,
  "node": {
    "capacity": {
      "cpu_milli": 8000,
      "memory_bytes": 34359738368,
      "ephemeral_storage_bytes": 107374182400,
      "pids": 32768
    },
    "reserved": {
      "kube": {},
      "system": {},
      "eviction": {
        "memory_bytes": 104857600,
        "ephemeral_storage_bytes": 10737418240
      },
      "hugepages": {}
    },
    "allocatable": {
      "cpu_milli": 8000,
      "memory_bytes": 34254880768,
      "ephemeral_storage_bytes": 96636764160,
      "pids": 32768
    },
    "requested": {
      "cpu_milli": 750,
      "memory_bytes": 268435456
    },
    "free": {
      "cpu_milli": 7250,
      "memory_bytes": 33986445312,
      "ephemeral_storage_bytes": 96636764160,
      "pids": 32768
    },
    "memory_hugetlb_accounting": false
  },
  "pods": [
    {
      "namespace": "shop",
      "name": "web",
      "uid": "0a1b-2c",
      "qos_class": "Burstable",
      "requests": {
        "cpu_milli": 750,
        "memory_bytes": 268435456
      },
      "limits": {
        "cpu_milli": 1250,
        "memory_bytes": 536870912
      },
      "grace_period_sec": 30,
      "slice": "kubepods-burstable-pod0a1b_2c.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice",
      "properties": [
        {
          "name": "CPUQuotaPerSecUSec",
          "value": 1250000,
          "why": "limits.cpu 1 + 250m = 1250m → 1250000 µs per second"
        },
        {
          "name": "CPUWeight",
          "value": 75,
          "why": "requests.cpu 500m + 250m (limit) = 750m → 768 shares → ×100/1024"
        },
        {
          "name": "MemoryLow",
          "value": 268435456,
          "why": "requests.memory 256Mi"
        }
      ],
      "containers": [
        {
          "name": "app",
          "kind": "container",
          "scope": "podslice-pod0a1b_2c-app.scope",
          "oom_score_adj": 993,
          "properties": [
            {
              "name": "CPUQuotaPerSecUSec",
              "value": 1000000,
              "why": "limits.cpu 1 → 1000000 µs per second"
            },
            {
              "name": "CPUWeight",
              "value": 50,
              "why": "requests.cpu 500m → 512 shares → ×100/1024"
            },
            {
              "name": "MemoryLow",
              "value": 268435456,
              "why": "requests.memory 256Mi"
            },
            {
              "name": "MemoryMax",
              "value": 536870912,
              "why": "limits.memory 512Mi"
            }
          ]
        },
        {
          "name": "log",
          "kind": "container",
          "scope": "podslice-pod0a1b_2c-log.scope",
          "oom_score_adj": 999,
          "properties": [
            {
              "name": "CPUQuotaPerSecUSec",
              "value": 250000,
              "why": "limits.cpu 250m → 250000 µs per second"
            },
            {
              "name": "CPUWeight",
              "value": 25,
              "why": "requests.cpu 250m → 256 shares → ×100/1024"
            }
          ]
        }
      ],
      "volumes": [],
      "notes": [
        "Burstable: in container app the cpu request is not the limit",
        "no MemoryMax: container log has no memory limit"
      ],
      "problems": []
    }
  ],
  "problems": []
}
"""

EXPLAIN = """\
pod shop/web  Burstable
  slice     kubepods-burstable-pod0a1b_2c.slice
  requests  cpu=750m,memory=256Mi
  limits    cpu=1250m,memory=512Mi
  grace     30s
  Burstable: in container app the cpu request is not the limit
  no MemoryMax: container log has no memory limit
  CPUQuota=125%    limits.cpu 1 + 250m = 1250m → 1250000 µs per second
  CPUWeight=75     requests.cpu 500m + 250m (limit) = 750m → 768 shares → ×100/1024
  MemoryLow=256Mi  requests.memory 256Mi
  container app
    podslice-pod0a1b_2c-app.scope  oom_score_adj 993
    CPUQuota=100%    limits.cpu 1 → 1000000 µs per second
    CPUWeight=50     requests.cpu 500m → 512 shares → ×100/1024
    MemoryLow=256Mi  requests.memory 256Mi
    MemoryMax=512Mi  limits.memory 512Mi
  container log
    podslice-pod0a1b_2c-log.scope  oom_score_adj 999
    CPUQuota=25%  limits.cpu 250m → 250000 µs per second
    CPUWeight=25  requests.cpu 250m → 256 shares → ×100/1024
"""


def test_explain_as_json(podslice, web):
    assert podslice("explain", "-f", web, "-o", "json") == (0, EXPLAIN_JSON, "")


def test_explain(podslice, web):
    assert podslice("explain", "-f", web) == (0, EXPLAIN, "")


DIFFERENCES = """\
pod default/init-request-above-pod
                                                              PROPOSAL  KUBERNETES
  CPUQuotaPerSecUSec until the init containers have finished  200%      100%
  MemoryLow until the init containers have finished           1Gi       512Mi
  MemoryMax until the init containers have finished           1Gi       512Mi
  spec.resources.limits[memory]: 512Mi is less than the containers' requests of 1Gi: fine\
 (proposal), error (kubernetes)
"""


def test_differences_of_the_rules_are_values_and_problems(podslice, web):
    manifest = EXAMPLES / "rules/init-request-above-pod.yaml"
    diff = ("--diff-rules", "--memory-swap-behavior", "unlimited")
    assert podslice("explain", "-f", str(manifest), *diff) == (0, DIFFERENCES, "")
    ended = podslice("explain", "-f", web, *diff)
    assert ended == (0, "pod shop/web\n  no differences\n", "")


def test_explain_of_one_of_several(podslice, files, web):
    files({"b.yaml": manifest("b")})
    files_ = ("-f", web, "-f", "b.yaml")
    assert podslice("explain", *files_, "shop/web").out == EXPLAIN
    assert podslice("explain", *files_, "web", "-n", "shop").out == EXPLAIN
    assert podslice("explain", *files_, "b", "-o", "name").out == "default/b\n"
    both = podslice("explain", *files_).out
    assert both.startswith("pod default/b  BestEffort\n")
    assert both.endswith("\n\n" + EXPLAIN)


def test_explain_of_a_pod_that_is_not_there(podslice, web):
    assert podslice("explain", "-f", web, "shop/wep") == (
        2,
        "",
        "error: shop/wep: no such pod in the manifests; did you mean shop/web?\n",
    )
    assert podslice("explain", "-f", web, "database") == (
        2,
        "",
        "error: default/database: no such pod in the manifests\n",
    )


def test_explain_prints_invalid_pods_with_their_problems(podslice, files):
    files({"a.yaml": manifest("a", {"cpu": "1", "memory": "1Gii"}), "b.yaml": "just text"})
    ended = podslice("explain", "-f", "a.yaml", "-f", "b.yaml")
    assert ended.code == 2
    assert "  CPUWeight=100  requests.cpu 1 → 1024 shares → ×100/1024\n" in ended.out
    assert ended.out.endswith(
        "  error: a.yaml: spec.containers[0].resources.requests[memory]: '1Gii' is not a quantity;"
        " write 1Gi (2^30) or 1G (10^9)\n"
    )
    assert ended.err.startswith("error: b.yaml")
    document = json.loads(podslice("explain", "-f", "a.yaml", "-f", "b.yaml", "-o", "json").out)
    assert [len(each["problems"]) for each in (document, *document["pods"])] == [1, 1]


def test_explain_of_an_applied_pod_needs_no_manifest(podslice, memory, web):
    name = podslice("explain", "-f", web, "-o", "name").out.split()[0]
    assert (
        podslice("explain", name).err
        == f"error: {name}: no such pod; to list pods: podslice status\n"
    )
    assert podslice("apply", "-f", web).code == 0
    assert podslice("explain", name) == podslice("explain", "-f", web, name)
    near = podslice("explain", f"{name}x")
    assert (near.code, near.err) == (
        2,
        f"error: {name}x: no such pod; did you mean {name}?\n",
    )


def test_explain_of_other_rules(podslice, web):
    ended = podslice("explain", "-f", web, "--cpu-weight-mapping=kubelet", "-o", "json")
    weights = [
        property_["value"]
        for property_ in json.loads(ended.out)["pods"][0]["properties"]
        if property_["name"] == "CPUWeight"
    ]
    assert weights == [1 + 766 * 9999 // 262142]


OF_VOLUME = (
    "the least of sizeLimit 64 MiB, the pod's memory limit 1 GiB and allocatable memory 31.9 GiB"
)


def test_explain_of_a_pod_with_everything(podslice, files):
    files({"web.yaml": FULL})
    lines = podslice("explain", "-f", "web.yaml").out.splitlines()
    assert "  grace     5s" in lines
    assert "  init container setup" in lines
    assert "  sidecar container proxy" in lines
    assert (
        "  huge pages of 2Mi: 4Mi, enforced if the kernel's hugetlb controller is available"
        " (see podslice doctor)"
    ) in lines
    helpers = lines.index("  helper container overhead")
    assert lines[helpers + 1].startswith("    podslice-pod12_34-overhead.scope  oom_score_adj ")
    assert lines[helpers + 2 : helpers + 4] == [
        "    CPUWeight=9     overhead.cpu 100m → 102 shares → ×100/1024",
        "    MemoryLow=16Mi  overhead.memory 16Mi",
    ]
    volume = lines.index("  volume my-cache")
    assert lines[volume + 1 : volume + 3] == [
        "    /run/podslice/pods/12-34/volumes/my-cache",
        f"    size=64Mi  {OF_VOLUME}",
    ]


def test_explain_as_json_of_a_pod_with_everything(podslice, files):
    files({"web.yaml": FULL})
    (pod,) = json.loads(podslice("explain", "-f", "web.yaml", "-o", "json").out)["pods"]
    assert pod["grace_period_sec"] == 5
    assert [(each["name"], each["kind"]) for each in pod["containers"]] == [
        ("app", "container"),
        ("setup", "init"),
        ("proxy", "sidecar"),
        ("overhead", "overhead"),
    ]
    assert pod["volumes"] == [
        {
            "name": "my-cache",
            "unit": "run-podslice-pods-12\\x2d34-volumes-my\\x2dcache.mount",
            "path": "/run/podslice/pods/12-34/volumes/my-cache",
            "size_bytes": 64 * 2**20,
            "why": OF_VOLUME,
        }
    ]


def test_explain_of_volumes_where_a_user_s_manager_is_asked(podslice, files):
    files({"web.yaml": FULL})
    lines = podslice("explain", "-f", "web.yaml", "--user").out.splitlines()
    volume = lines.index("  volume my-cache")
    assert lines[volume + 1 : volume + 3] == [
        "    $XDG_RUNTIME_DIR/podslice/pods/12-34/volumes/my-cache",
        "    no size  a plain directory without a size limit: a user manager can't mount",
    ]


HUGE = """\
apiVersion: v1
kind: Pod
metadata: {name: huge, uid: huge}
spec:
  containers:
  - {name: app, resources: {limits: {cpu: 1, memory: 32Mi, hugepages-2Mi: 64Mi}}}
"""


def test_explain_notes_that_a_limit_includes_huge_pages(podslice, files):
    files({"huge.yaml": HUGE})
    ended = podslice("explain", "-f", "huge.yaml", "--memory-hugetlb-accounting=true")
    plus = "+ 64 MiB of huge pages, which count as memory here = 96 MiB"
    (limit,) = {line.strip() for line in ended.out.splitlines() if "MemoryMax=96Mi" in line[:30]}
    assert limit.endswith(f"limits.memory 32Mi {plus}")
