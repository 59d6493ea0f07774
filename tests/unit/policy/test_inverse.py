"""The inverse of the conversion: from weights, shares and quotas back to requests and limits."""

import pytest

from podslice.model.config import WeightMapping
from podslice.policy.convert import (
    limit_of_quota,
    quota_from_milli,
    requests_of_shares,
    requests_of_weight,
    shares_from_milli,
    weight_from_shares,
)
from tests.cases.tables import cases

EVERY = [(mapping, container) for mapping in WeightMapping for container in (False, True)]


def weight_of(milli, mapping, container):
    return weight_from_shares(shares_from_milli(milli), mapping, container=container)


@pytest.mark.parametrize(("mapping", "container"), EVERY)
def test_the_requests_of_a_weight_are_exactly_those_that_have_it(mapping, container):
    for weight in (*range(1, 120), 199, 200, 201, 999, 1000, 5000, 9998, 9999, 10_000):
        span = requests_of_weight(weight, mapping, container=container)
        assert span.is_exact
        found = {weight_of(milli, mapping, container) for milli in (span.least, span.most)}
        assert found == {weight}
        assert span.least == 0 or weight_of(span.least - 1, mapping, container) < weight
        if span.most < 256_000:
            assert weight_of(span.most + 1, mapping, container) > weight


@pytest.mark.parametrize(("mapping", "container"), EVERY)
def test_a_request_has_the_weight_of_the_request_that_it_becomes(mapping, container):
    for milli in (*range(1, 300), 333, 999, 1000, 1001, 2500, 64_000, 256_000):
        weight = weight_of(milli, mapping, container)
        again = requests_of_weight(weight, mapping, container=container).roundest()
        assert weight_of(again, mapping, container) == weight


@cases
def test_among_requests_with_one_weight_it_is_the_roundest(weight, milli):
    assert requests_of_weight(weight, WeightMapping.SYSTEMD).roundest() == milli


def test_the_roundest_is_within_bounds():
    span = requests_of_weight(50, WeightMapping.SYSTEMD)
    assert (span.least, span.most) == (500, 510)
    assert span.roundest(at_least=0) == 500
    assert span.roundest(at_least=501) == 510
    assert span.roundest(at_least=511) is None
    # 0 has the least shares, too
    assert (requests_of_shares(2).least, requests_of_shares(2).roundest()) == (0, 1)
    assert requests_of_shares(262_144).most == 256_000


def test_shares_are_those_of_the_request():
    for shares in (2, 3, 102, 256, 512, 1024, 2048, 102_400, 262_144):
        span = requests_of_shares(shares)
        assert span.is_exact
        assert shares_from_milli(span.roundest()) == shares
    assert requests_of_shares(1024).roundest() == 1000
    # a thousandth of a CPU is more than one share, so that some numbers have no request
    between = requests_of_shares(42)
    assert (between.is_exact, between.roundest()) == (False, 42)
    assert [shares_from_milli(milli) for milli in (41, 42)] == [41, 43]


@pytest.mark.parametrize("period_usec", [10_000, 100_000])
def test_a_limit_has_the_quota_that_it_is_from(period_usec):
    for milli in range(1, 2000):
        quota = quota_from_milli(milli, period_usec=period_usec).per_sec_usec
        limit = limit_of_quota(quota)
        assert quota_from_milli(limit, period_usec=period_usec).per_sec_usec == quota


def test_a_finer_quota_is_rounded_up():
    # 12.5 % of a CPU is 125 ms per second
    assert limit_of_quota(125_000) == 130
    assert limit_of_quota(1) == 10
