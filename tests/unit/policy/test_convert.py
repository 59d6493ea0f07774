import itertools
import math

import pytest

from podslice.model.config import WeightMapping
from podslice.policy.convert import (
    MAX_SHARES,
    MIN_SHARES,
    curve_of,
    quota_from_milli,
    shares_from_milli,
    weight_from_shares,
)


def test_more_cpu_never_means_fewer_shares():
    shares = [shares_from_milli(milli) for milli in range(5000)]
    assert shares == sorted(shares)
    assert shares[0] == MIN_SHARES


@pytest.mark.parametrize("mapping", WeightMapping)
def test_more_shares_never_mean_less_weight(mapping):
    shares = [*range(MIN_SHARES, 5000), *range(5000, MAX_SHARES + 1, 997), MAX_SHARES]
    weights = [weight_from_shares(each, mapping) for each in shares]
    assert weights == sorted(weights)
    assert weights[0] == 1
    assert weights[-1] == 10_000


@pytest.mark.parametrize("mapping", WeightMapping)
def test_every_weight_is_one_that_systemd_takes(mapping):
    for milli in range(0, 400_000, 37):
        assert 1 <= weight_from_shares(shares_from_milli(milli), mapping) <= 10_000


def test_by_default_one_cpu_weighs_what_a_unit_without_a_request_does():
    assert weight_from_shares(1024) == weight_from_shares(1024, WeightMapping.OCI) == 100


def test_by_default_ratios_between_requests_survive():
    for one, other in itertools.combinations((100, 250, 500, 1000, 2000, 8000, 64_000), 2):
        asked = other / one
        given = weight_from_shares(shares_from_milli(other)) / weight_from_shares(
            shares_from_milli(one)
        )
        assert math.isclose(asked, given, rel_tol=0.12)


@pytest.mark.parametrize("mapping", WeightMapping)
def test_slices_and_containers_differ_only_in_what_a_current_node_does(mapping):
    curves = [curve_of(mapping, container=container) for container in (False, True)]
    assert (curves[0] is curves[1]) == (mapping is not WeightMapping.KUBELET)


@pytest.mark.parametrize("period_usec", [1000, 5000, 10_000, 30_000, 100_000, 1_000_000])
def test_a_quota_is_enough_whole_percents_and_not_one_too_many(period_usec):
    for milli in range(1, 3000):
        quota = quota_from_milli(milli, period_usec=period_usec)
        assert quota.asked_usec == milli * 1000
        assert quota.per_sec_usec % 10_000 == 0
        assert quota.per_sec_usec >= quota.asked_usec
        # never less than 1 ms per period, and never a whole percent more than needed
        per_period = quota.per_sec_usec * period_usec / 1_000_000
        assert per_period >= 1000
        least = max(quota.asked_usec, 1000 * 1_000_000 / period_usec)
        assert quota.per_sec_usec - least < 10_000
