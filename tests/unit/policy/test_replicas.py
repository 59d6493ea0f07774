"""Replicas share the decision on their template, and are decided as if alone."""

from dataclasses import replace

from podslice.policy.decide import decide, decide_each
from tests.unit.policy.desired_worlds import CONFIGS, NODE, PLAIN, pods

OTHER_NAMES = ("b-2", "b-3", "longer-name-4", "b5")


def templates_and_replicas():
    for each in pods():
        yield each
        for name in OTHER_NAMES:
            yield replace(each, name=name, uid=f"{each.uid}-{name}")
        yield replace(each, name="urgent", uid=f"{each.uid}-b-6", priority=7)


def test_replicas_are_decided_as_if_alone():
    several = list(templates_and_replicas())
    for config in (PLAIN, CONFIGS[-1], CONFIGS[-3]):
        shared = list(decide_each(several, NODE, config))
        alone = [decide(each, NODE, config) for each in several]
        assert shared == alone
        assert [each.units for each in shared] == [each.units for each in alone]
        assert [each.elsewhere for each in shared] == [each.elsewhere for each in alone]


def test_replicas_share_what_does_not_have_their_names():
    template = next(pods())
    replicas = [replace(template, name=f"r{n}", uid=f"u{n}") for n in range(5)]
    decisions = list(decide_each(replicas, NODE, PLAIN))
    assert len({id(each.properties) for each in decisions}) == 1
    assert len({each.slice for each in decisions}) == 5
