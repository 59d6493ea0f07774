"""Reservations as the providers document them."""

import pytest

from podslice.features.node.providers import (
    GI,
    MI,
    Reservation,
    aks,
    by_provider,
    eks,
    explain_provider,
    explain_system,
    gke,
    system_reservation,
)
from podslice.model.node import Node
from tests.cases.tables import cases


@pytest.mark.parametrize(
    ("cpus", "milli"),
    # GKE, "Plan GKE node sizes": 6 %, 1 %, 0.5 %, 0.5 %, 0.25 % of each further one
    [(0, 0), (1, 60), (2, 70), (3, 75), (4, 80), (5, 83), (8, 90), (16, 110), (96, 310)],
)
def test_gke_keeps_less_of_every_further_cpu(cpus, milli):
    assert gke(cpus, 8 * GI, 30).cpu_milli == milli
    assert eks(cpus, 8 * GI, 30).cpu_milli == milli


@cases
def test_gke_keeps_less_of_more_memory(memory, kept):
    assert gke(4, memory, 30).memory_bytes == kept


def test_eks_counts_pods():
    assert eks(2, 8 * GI, 29).memory_bytes == (255 + 11 * 29) * MI


@cases
def test_aks_has_a_table(cpus, milli):
    assert aks(cpus, 8 * GI, 30).cpu_milli == milli


def test_aks_keeps_a_quarter_at_most():
    assert aks(2, 8 * GI, 30).memory_bytes == 650 * MI
    assert aks(2, 2 * GI, 110).memory_bytes == GI // 2


def test_all_are_shown_in_whole_mebibytes():
    capacity = {"cpu": 2_000, "memory": (5 * GI + 12_345) * 1000}
    assert by_provider(capacity, 30) == {
        # a quarter of 4Gi, a fifth of 1Gi and 12345 bytes: 1228.8Mi
        "gke": Reservation(cpu_milli=70, memory_bytes=1229 * MI),
        "eks": Reservation(cpu_milli=70, memory_bytes=(255 + 11 * 30) * MI),
        "aks": Reservation(cpu_milli=100, memory_bytes=(50 + 20 * 30) * MI),
    }


@cases
def test_the_system_gets_what_it_uses_and_half_of_it(memory, used, kept):
    node = Node(capacity={"cpu": 2_000, "memory": memory * 1000})
    assert system_reservation(node, used) == Reservation(cpu_milli=100, memory_bytes=kept)


def test_each_proposal_is_explained_with_its_source():
    assert explain_provider("eks", 29).endswith(
        "255 MiB of memory and 11 MiB for each of 29 pods (EKS, amazon-eks-ami, bootstrap.sh)"
    )
    assert explain_system(200 * MI).endswith("slice use now, 200 MiB, in steps of 64 MiB")
    assert explain_system(None) == (
        "100m of CPU; 5% of the memory, 128 MiB to 1 GiB, because the use of the slices is unknown"
    )
