"""The verbs that need no service manager, and their machine interface in full."""

import json
import re
import sys

import pytest

from tests.unit.builders import manifest

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

RENDER_JSON = """\
{
  "version": 1,
  "units": [
    {
      "name": "kubepods.slice",
      "kind": "slice",
      "parent": "-.slice",
      "control_group": "/kubepods.slice",
      "properties": {
        "CPUWeight": 800,
        "MemoryLow": 268435456,
        "MemoryMax": 34359738368
      }
    },
    {
      "name": "kubepods-burstable.slice",
      "kind": "slice",
      "parent": "kubepods.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice",
      "properties": {
        "CPUWeight": 75,
        "MemoryLow": 268435456
      }
    },
    {
      "name": "kubepods-besteffort.slice",
      "kind": "slice",
      "parent": "kubepods.slice",
      "control_group": "/kubepods.slice/kubepods-besteffort.slice",
      "properties": {
        "CPUWeight": 1
      }
    },
    {
      "name": "kubepods-burstable-pod0a1b_2c.slice",
      "kind": "slice",
      "parent": "kubepods-burstable.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice",
      "properties": {
        "CPUQuotaPerSecUSec": 1250000,
        "CPUWeight": 75,
        "MemoryLow": 268435456
      }
    },
    {
      "name": "podslice-pod0a1b_2c-app.scope",
      "kind": "scope",
      "parent": "kubepods-burstable-pod0a1b_2c.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice/podslice-pod0a1b_2c-app.scope",
      "properties": {
        "CPUQuotaPerSecUSec": 1000000,
        "CPUWeight": 50,
        "MemoryLow": 268435456,
        "MemoryMax": 536870912
      }
    },
    {
      "name": "podslice-pod0a1b_2c-log.scope",
      "kind": "scope",
      "parent": "kubepods-burstable-pod0a1b_2c.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice/podslice-pod0a1b_2c-log.scope",
      "properties": {
        "CPUQuotaPerSecUSec": 250000,
        "CPUWeight": 25
      }
    }
  ]
}
"""

RENDER_WIDE = """\
UNIT                                 PROPERTIES
kubepods.slice                       CPUWeight=800 MemoryLow=256Mi MemoryMax=32Gi
kubepods-burstable.slice             CPUWeight=75 MemoryLow=256Mi
kubepods-besteffort.slice            CPUWeight=1
kubepods-burstable-pod0a1b_2c.slice  CPUQuota=125% CPUWeight=75 MemoryLow=256Mi
podslice-pod0a1b_2c-app.scope        CPUQuota=100% CPUWeight=50 MemoryLow=256Mi MemoryMax=512Mi
podslice-pod0a1b_2c-log.scope        CPUQuota=25% CPUWeight=25
"""

NODE_JSON = """\
{
  "version": 1,
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
  "requested": {},
  "memory_hugetlb_accounting": false
}
"""

NODE = """\
RESOURCE           CAPACITY  KUBE  SYSTEM  EVICTION  ALLOCATABLE  REQUESTED
cpu                8         -     -       -         8            -
ephemeral-storage  100Gi     -     -       10Gi      90Gi         -
memory             32Gi      -     -       100Mi     32668Mi      -
pid                32768     -     -       -         32768        -
"""

NODE_YAML = """\
apiVersion: v1
kind: Node
status:
  capacity:
    cpu: '8'
    ephemeral-storage: 100Gi
    memory: 32Gi
  allocatable:
    cpu: '8'
    ephemeral-storage: 90Gi
    memory: 32668Mi
"""


@pytest.fixture
def web(files):
    """The manifest of one pod with two containers."""
    files({"web.yaml": WEB})
    return "web.yaml"


# check


def test_check_of_a_good_manifest(podslice, web):
    assert podslice("check", "-f", web) == (0, "1 pod, 0 errors, 0 warnings\n", "")


def test_check_tells_every_mistake_of_every_file(podslice, files):
    files(
        {
            "a.yaml": manifest("a", {"cpu": "1core"}, {"memory": "512MiB"}),
            "b.yaml": manifest("b", {"cpu": 2}, {"cpu": 1}),
            "c.yaml": "just text",
        }
    )
    ended = podslice("check", "-f", ".", "-f", "d.yaml")
    assert ended.code == 2
    lines = ended.out.splitlines()
    at = "spec.containers[0].resources"
    assert [line.partition(" ")[0] for line in lines[:-1]] == ["error:"] * (len(lines) - 1)
    assert any(
        f"a.yaml: {at}.requests[cpu]: '1core' is not a quantity; write 1" in x for x in lines
    )
    assert any(f"a.yaml: {at}.limits[memory]: '512MiB'" in line for line in lines)
    assert any(f"b.yaml: {at}.requests[cpu]: 2 is more than the limit of 1" in x for x in lines)
    assert "error: d.yaml: no such file or directory" in lines
    assert lines[-1] == "2 pods, 5 errors, 0 warnings"


def test_check_of_warnings_is_good(podslice, files):
    files({"a.yaml": manifest("a", {"cpu": "100m"}, {"cpu": "333m"})})
    ended = podslice("check", "-f", "a.yaml")
    assert ended == (
        0,
        (
            "warning: a.yaml: spec.containers[0].resources.limits[cpu]: 333m is not a whole percent"
            " of a CPU, the precision that systemd stores; it counts as 340m\n"
            "1 pod, 0 errors, 1 warning\n"
        ),
        "",
    )


def test_replicas_share_the_mistakes_of_their_template(podslice, files):
    pod = json.loads(manifest("a", {"cpu": 2}, {"cpu": 1}))
    spec = {"replicas": 3, "template": {"spec": pod["spec"]}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
    files({"a.yaml": json.dumps({**deployment, "spec": spec})})
    ended = podslice("check", "-f", "a.yaml")
    assert ended.out.endswith("\n3 pods, 1 error, 0 warnings\n")
    assert ended.out.count("\n") == 2


def test_check_as_json(podslice, files):
    files({"a.yaml": manifest("a", {"cpu": 2}, {"cpu": 1}), "b.yaml": manifest("b")})
    ended = podslice("check", "-f", "a.yaml", "-f", "b.yaml", "-o", "json")
    assert ended.code == 2
    assert json.loads(ended.out) == {
        "version": 1,
        "pods": [
            {"namespace": "default", "name": "a", "valid": False},
            {"namespace": "default", "name": "b", "valid": True},
        ],
        "problems": [
            {
                "severity": "error",
                "where": "a.yaml: spec.containers[0].resources.requests[cpu]",
                "message": "2 is more than the limit of 1",
                "hint": "a request is at most its limit",
            }
        ],
    }
    assert podslice("check", "-f", ".", "-o", "name").out == "default/b\n"


# explain


def test_explain_as_json(podslice, web):
    assert podslice("explain", "-f", web, "-o", "json") == (0, EXPLAIN_JSON, "")


def test_explain(podslice, web):
    assert podslice("explain", "-f", web) == (0, EXPLAIN, "")


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


def test_explain_prints_what_it_can_of_a_pod_with_mistakes(podslice, files):
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


def test_explain_of_other_rules(podslice, web):
    ended = podslice("explain", "-f", web, "--cpu-weight-mapping=kubelet", "-o", "json")
    weights = [
        property_["value"]
        for property_ in json.loads(ended.out)["pods"][0]["properties"]
        if property_["name"] == "CPUWeight"
    ]
    assert weights == [1 + 766 * 9999 // 262142]


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


OF_VOLUME = (
    "the least of sizeLimit 64Mi, the pod's memory limit 1040Mi and allocatable memory 32668Mi"
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


# render


def test_render_of_a_pod_with_everything(podslice, files):
    """The mount has its structure, and the slice what holds once init containers have finished."""
    files({"web.yaml": FULL})
    document = json.loads(podslice("render", "-f", "web.yaml", "-o", "json").out)
    units = {unit["name"]: unit for unit in document["units"]}
    slice_ = units["kubepods-burstable-pod12_34.slice"]
    assert slice_["properties"]["MemoryMax"] == 1040 * 2**20
    assert slice_["hugetlb_bytes"] == {str(2**21): 2**22}
    mount = units["run-podslice-pods-12\\x2d34-volumes-my\\x2dcache.mount"]
    assert mount["kind"] == "mount"
    assert mount["parent"] == slice_["name"]
    assert mount["properties"] == {}
    assert mount["structure"]["Options"] == f"mode=1777,nosuid,nodev,size={64 * 2**20}"
    assert "podslice-pod12_34-overhead.scope" in units
    wide = podslice("render", "-f", "web.yaml", "-o", "wide").out
    assert re.search(
        r"^run-\S+\.mount +What=tmpfs Type=tmpfs Options=mode=1777,.* LazyUnmount=yes$",
        wide,
        re.MULTILINE,
    )
    assert ".mount" not in podslice("render", "-f", "web.yaml").out
    assert ".mount" not in podslice("render", "-f", "web.yaml", "--user", "-o", "name").out


def test_render_writes_no_files_for_scopes_and_mounts(podslice, files, tmp_path):
    files({"web.yaml": FULL})
    podslice("render", "-f", "web.yaml", "--output-dir", str(tmp_path / "units"))
    names = [path.name for path in (tmp_path / "units").iterdir()]
    assert "kubepods-burstable-pod12_34.slice" in names
    assert {name.rpartition(".")[2] for name in names} == {"slice"}
    text = (tmp_path / "units/kubepods-burstable-pod12_34.slice").read_text()
    assert "MemoryMax=1090519040\n" in text


def test_render_as_json(podslice, web):
    assert podslice("render", "-f", web, "-o", "json") == (0, RENDER_JSON, "")


def test_render_as_table(podslice, web):
    assert podslice("render", "-f", web, "-o", "wide") == (0, RENDER_WIDE, "")
    slices = [line for line in RENDER_WIDE.splitlines() if ".scope" not in line]
    assert podslice("render", "-f", web).out.splitlines() == slices


def test_render_into_a_directory(podslice, web, tmp_path):
    ended = podslice("render", "-f", web, "--output-dir", "units")
    assert ended == (
        0,
        (
            "units/kubepods.slice\n"
            "units/kubepods-burstable.slice\n"
            "units/kubepods-besteffort.slice\n"
            "units/kubepods-burstable-pod0a1b_2c.slice\n"
        ),
        "",
    )
    pod = tmp_path / "work/units/kubepods-burstable-pod0a1b_2c.slice"
    assert "Description=Pod shop/web (Burstable)\n" in pod.read_text()
    assert podslice("render", "-f", web, "--output-dir", "units").code == 0


def test_render_leaves_foreign_files_alone(podslice, web, files):
    files({"units/kubepods.slice": "[Slice]\n"})
    ended = podslice("render", "-f", web, "--output-dir", "units")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(
        "error: units/kubepods.slice: the file exists and was not generated by podslice"
    )


def test_render_into_a_file_is_an_error(podslice, web):
    ended = podslice("render", "-f", web, "--output-dir", web)
    assert ended == (1, "", f"error: {web}: File exists\n")


def test_render_of_mistakes_writes_no_files(podslice, files, tmp_path):
    files({"a.yaml": manifest("a", {"cpu": 2}, {"cpu": 1})})
    ended = podslice("render", "-f", "a.yaml", "--output-dir", "units")
    assert (ended.code, ended.out) == (2, "")
    assert not (tmp_path / "work/units").exists()


def test_render_tells_who_does_not_fit(podslice, files):
    files({"a.yaml": manifest("a", {"cpu": 9}), "b.yaml": manifest("b")})
    ended = podslice("render", "-f", ".", "-o", "name")
    assert ended.code == 1
    assert ended.err == (
        "pod default/a refused: OutOfcpu: requests 9 of cpu, 8 is free (0 of 8 is requested)\n"
    )
    assert "besteffort-pod" in ended.out


# node


def test_node_as_json(podslice):
    assert podslice("node", "-o", "json") == (0, NODE_JSON, "")


def test_node(podslice):
    assert podslice("node") == (0, NODE, "")


def test_node_as_the_status_of_a_node(podslice):
    assert podslice("node", "-o", "yaml") == (0, NODE_YAML, "")


def test_node_names_its_resources(podslice):
    assert podslice("node", "-o", "name").out == "cpu\nephemeral-storage\nmemory\npid\n"


def test_node_shows_memory_that_is_set_aside_as_huge_pages(podslice):
    capacity = "--capacity=cpu=4,memory=4Gi,hugepages-2Mi=64Mi"
    ended = podslice("node", capacity, "--eviction-hard=")
    rows = [line.split() for line in ended.out.splitlines()]
    assert rows[0][4:6] == ["EVICTION", "HUGEPAGES"]
    assert ["memory", "4Gi", "-", "-", "-", "64Mi", "4032Mi", "-"] in rows
    assert "count as memory" not in ended.out

    counted = (capacity, "--eviction-hard=", "--memory-hugetlb-accounting=true")
    assert podslice("node", *counted).out.splitlines()[-1] == (
        "Huge pages count as memory on this node; memory limits include them."
    )
    document = json.loads(podslice("node", *counted, "-o", "json").out)
    assert document["memory_hugetlb_accounting"]
    assert document["reserved"]["hugepages"] == {"memory_bytes": 64 * 2**20}


HUGE = """\
apiVersion: v1
kind: Pod
metadata: {name: huge, uid: huge}
spec:
  containers:
  - {name: app, resources: {limits: {cpu: 1, memory: 32Mi, hugepages-2Mi: 64Mi}}}
"""


def test_explain_tells_that_a_limit_includes_huge_pages(podslice, files):
    files({"huge.yaml": HUGE})
    ended = podslice("explain", "-f", "huge.yaml", "--memory-hugetlb-accounting=true")
    plus = "+ 64Mi of huge pages, which count as memory here = 96Mi"
    (limit,) = {line.strip() for line in ended.out.splitlines() if "MemoryMax=96Mi" in line[:30]}
    assert limit.endswith(f"limits.memory 32Mi {plus}")


def test_node_with_the_flags_of_the_kubelet(podslice):
    """Seed 004: Allocatable = capacity - kube-reserved - system-reserved - hard eviction."""
    ended = podslice(
        "node",
        "--capacity=cpu=16,memory=32Gi",
        "--kube-reserved=cpu=1,memory=2Gi",
        "--system-reserved=cpu=500m,memory=1Gi",
        "--eviction-hard=memory.available<500Mi",
        "-o",
        "json",
    )
    document = json.loads(ended.out)
    assert document["reserved"] == {
        "kube": {"cpu_milli": 1000, "memory_bytes": 2 * 2**30},
        "system": {"cpu_milli": 500, "memory_bytes": 2**30},
        "eviction": {"memory_bytes": 500 * 2**20},
        "hugepages": {},
    }
    assert document["allocatable"]["cpu_milli"] == 14_500
    assert document["allocatable"]["memory_bytes"] == 29 * 2**30 - 500 * 2**20


def test_node_without_eviction(podslice):
    document = json.loads(podslice("node", "--eviction-hard=", "-o", "json").out)
    assert document["reserved"]["eviction"] == {}
    assert document["allocatable"] == document["capacity"]


def test_node_counts_the_pods_that_were_applied(podslice, web, memory):
    podslice("apply", "-f", web)
    document = json.loads(podslice("node", "-o", "json").out)
    assert document["requested"] == {"cpu_milli": 750, "memory_bytes": 2**28}


def test_node_with_more_reserved_than_there_is(podslice):
    ended = podslice("node", "--kube-reserved=cpu=9")
    assert ended.code == 2
    assert ended.err == (
        "error: kube-reserved + system-reserved + eviction-hard: 9 of cpu is reserved, the node"
        " has 8; lower the reservations\n"
    )
    assert ended.out.startswith("RESOURCE")


# All of them


@pytest.mark.parametrize("format_", ["table", "wide", "json", "yaml", "name"])
@pytest.mark.parametrize("verb", ["check", "explain", "render", "plan"])
def test_every_format_of_every_verb_is_stable(podslice, files, no_systemd, verb, format_):
    """The same bytes for the files in any order, and again."""
    files({f"{name}.yaml": manifest(name, {"cpu": "100m"}) for name in "abc"})
    first = podslice(verb, "-f", ".", "-o", format_)
    other = podslice(verb, "-f", "c.yaml", "-f", "a.yaml", "-f", "b.yaml", "-o", format_)
    assert first.code in (0, 3)
    assert first.out
    assert other == first


def test_the_list_of_files_may_come_from_stdin(podslice, monkeypatch, tmp_path):
    (tmp_path / "stdin").write_text(WEB)
    with (tmp_path / "stdin").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert podslice("check", "-f", "-").out == "1 pod, 0 errors, 0 warnings\n"
