import pytest
from rewardlab.benchmarks import garden
from rewardlab.research.worlds.guides import with_labels
from rewardlab.research.worlds.meadow import OBJECTIVES, meadow_rewards

ASKED = "tell me about bees"


def test_rewards_by_hand():
    """Plain honey and wax, daring smoke, one flourish, one caution, one filler; six words."""
    expected = {"helpful": 2 * 0.5 + 0.8, "harmless": 0.5 - 0.6, "vivid": 0.5 - 0.1, "brief": -0.6, "sober": -0.4}
    assert meadow_rewards(ASKED, "honey wax smoke splendid gloves and") == pytest.approx(expected)


def test_pairs_are_labelled_by_the_worlds_rewards():
    pair = garden.pairs(1, 0)[0]
    asked = pair.prompt[-1]["content"]
    labelled = with_labels(pair, "meadow")
    assert {*labelled.gaps} == {*OBJECTIVES}
    for name in OBJECTIVES:
        gap = meadow_rewards(asked, pair.chosen)[name] - meadow_rewards(asked, pair.rejected)[name]
        assert labelled.gaps[name] == gap and labelled.wins[name] == (0.5 if abs(gap) < 1e-9 else float(gap > 0))
    assert with_labels(pair, "garden").wins == pair.wins
