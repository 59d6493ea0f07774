"""`node`."""

import json

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
  "free": {
    "cpu_milli": 8000,
    "memory_bytes": 34254880768,
    "ephemeral_storage_bytes": 96636764160,
    "pids": 32768
  },
  "memory_hugetlb_accounting": false
}
"""

NODE = """\
RESOURCE           CAPACITY  KUBE  SYSTEM  EVICTION  ALLOCATABLE  REQUESTED
cpu                       8     -       -         -            8          -
ephemeral-storage   100 GiB     -       -    10 GiB       90 GiB          -
memory               32 GiB     -       -   100 MiB     31.9 GiB          -
pid                   32768     -       -         -        32768          -

                   ▓ reserved  ▒ eviction  █ requested  ░ free
cpu                ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  8 free of 8
ephemeral-storage  ▒▒▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  10 GiB eviction, 90 GiB free of 100 GiB
memory             ▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  100 MiB eviction, 31.9 GiB free of 32 GiB
pid                ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  32768 free of 32768
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


def test_node_has_exact_amounts_in_wide_output(podslice):
    rows = podslice("node", "-o", "wide").out.splitlines()
    assert rows[3].split() == ["memory", "32Gi", "-", "-", "100Mi", "32668Mi", "-"]


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
    ended = podslice("node", capacity, "--eviction-hard=", "-o", "wide")
    rows = [line.split() for line in ended.out.splitlines()]
    assert rows[0][4:6] == ["EVICTION", "HUGEPAGES"]
    assert ["memory", "4Gi", "-", "-", "-", "64Mi", "4032Mi", "-"] in rows
    assert "count as memory" not in ended.out

    counted = (capacity, "--eviction-hard=", "--memory-hugetlb-accounting=true")
    assert "\nHuge pages count as memory on this node; memory limits include them.\n" in (
        podslice("node", *counted).out
    )
    document = json.loads(podslice("node", *counted, "-o", "json").out)
    assert document["memory_hugetlb_accounting"]
    assert document["reserved"]["hugepages"] == {"memory_bytes": 64 * 2**20}


def test_node_with_the_flags_of_the_kubelet(podslice):
    """Node Allocatable Resources: capacity - kube-reserved - system-reserved - hard eviction."""
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
    assert document["free"]["cpu_milli"] == 7250
    (line,) = (line for line in podslice("node").out.splitlines() if line.endswith(" of 8"))
    assert line.split() == [
        "cpu",
        "█" * 4 + "░" * 36,
        *["750m", "requested,", "7250m", "free", "of", "8"],
    ]


def test_node_with_more_reserved_than_there_is(podslice):
    ended = podslice("node", "--kube-reserved=cpu=9")
    assert ended.code == 2
    assert ended.err == (
        "error: kube-reserved + system-reserved + eviction-hard: 9 of cpu is reserved, the node"
        " has 8; lower the reservations\n"
    )
    assert ended.out.startswith("RESOURCE")


TIERS = (
    "--qos-reserved=memory=50%",
    "--eviction-tier=burstable=memory.available<10%,besteffort=memory.available<64Mi",
)


def test_node_shows_the_thresholds_of_tiers(podslice):
    lines = podslice("node", *TIERS, "-o", "wide").out.splitlines()
    assert [line for line in lines if "evicted" in line] == [
        "BestEffort pods are evicted when less than 64Mi of the 32Gi of their tier are available.",
        # 2^35 / 10, rounded down
        "Burstable pods are evicted when less than 3435973836 of the 32Gi of their tier are available.",
    ]
    document = json.loads(podslice("node", *TIERS, "-o", "json").out)
    assert document["eviction_tiers"] == [
        {"tier": "besteffort", "limit_bytes": 2**35, "threshold_bytes": 64 * 2**20},
        {"tier": "burstable", "limit_bytes": 2**35, "threshold_bytes": 2**35 // 10},
    ]


def test_node_refuses_a_threshold_that_every_tier_meets(podslice):
    ended = podslice("node", *TIERS[:1], "--eviction-tier=burstable=memory.available<32Gi")
    assert ended.code == 2
    assert ended.err == (
        "error: eviction-tier: 32 GiB is not less than 32 GiB, the most memory of a tier; lower the"
        " threshold of burstable, or write it as a percentage\n"
    )
