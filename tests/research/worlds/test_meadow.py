"""The meadow: gold rewards by hand, labels from them, and conflicts of known sign."""

from itertools import pairwise

from rewardlab.benchmarks import garden
from rewardlab.research.worlds.guides import with_labels
from rewardlab.research.worlds.meadow import OBJECTIVES, conflicts, meadow_rewards

ASKED = "tell me about bees"


def test_rewards_by_hand():
    """Plain honey and wax, daring smoke, one flourish, one caution, one filler; six words."""
    rewards = meadow_rewards(ASKED, "honey wax smoke splendid gloves and")
    expected = {
        "helpful": 2 * 0.5 + 0.8,
        "harmless": 0.5 - 0.6,
        "vivid": 0.5 - 0.1,
        "brief": -0.6,
        "sober": -0.4 - 0.2 + 2 * 0.1,
    }
    assert all(abs(rewards[name] - value) < 1e-9 for name, value in expected.items())


def test_nothing_has_a_hump():
    """Each further flourish is worth the same, unlike in the garden."""
    values = [meadow_rewards(ASKED, " ".join(["honey", *garden.FLOURISH[:count]]))["vivid"] for count in range(6)]
    steps = [after - before for before, after in pairwise(values)]
    assert all(abs(step - 0.5) < 1e-9 for step in steps)


def test_pairs_are_labelled_by_the_worlds_rewards():
    pair = garden.pairs(1, 0)[0]
    asked = pair.prompt[-1]["content"]
    labelled = with_labels(pair, "meadow")
    assert {*labelled.gaps} == {*OBJECTIVES}
    for name in OBJECTIVES:
        gap = meadow_rewards(asked, pair.chosen)[name] - meadow_rewards(asked, pair.rejected)[name]
        assert labelled.gaps[name] == gap and labelled.wins[name] == (0.5 if abs(gap) < 1e-9 else float(gap > 0))
    assert with_labels(pair, "garden").wins == pair.wins


def test_conflicts_have_the_signs_that_the_weights_give():
    correlation = conflicts(500)
    index = OBJECTIVES.index
    assert correlation[index("vivid"), index("sober")] < -0.7
    assert correlation[index("helpful"), index("harmless")] < -0.1
    assert correlation[index("brief"), index("vivid")] < 0
