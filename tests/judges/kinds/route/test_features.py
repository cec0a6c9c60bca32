import numpy as np
import pytest
from rewardlab.judges.kinds.route.features import case_features, describe_features, feature_numbers, prompt_kind
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import UsageError
from rewardlab.rm.kinds.ensemble.combination import MemberRewards, MemberRule, UncertainRewardModel
from rewardlab.rm.types import user_turn

from tests.judges.kinds.asking import case


class Members(UncertainRewardModel):
    """Two members: the length of a completion, and three times that; a question mark has no reward."""

    contract = ScoringContract(kind="members")

    def __init__(self):
        super().__init__(MemberRule("mean"))

    def member_rewards(self, examples):
        lengths = np.array([np.nan if "?" in example.completion else len(example.completion) for example in examples])
        return MemberRewards(np.stack([lengths, 3 * lengths])[:, :, None])


def test_the_kind_of_a_prompt_and_features_by_hand():
    for text, kind in [
        ("Fix this:\n```\nx = 1\n```", "code"), ("  import numpy as np\nWhat is $x$?", "code"),
        ("Sort a list in C++.", "code"), ("Read an integer from standard input.", "code"),
        (r"Compute \frac{1}{2} + 1.", "maths"), ("Solve for x: the equation is x = 2.", "maths"),
        ("It costs $5 and $ 6 in cash\n or so$.", "other"), ("A class of pupils imports javanese tea.", "other"),
    ]:  # fmt: skip
        assert prompt_kind(text) == kind
    features = case_features([case(answers=("- a\n- b\n- c", "x" * 40), prompt=user_turn("Use Python."))])[0]
    assert (features.kind, features.prompt_length) == ("code", len(features.prompt))
    assert features.response_length == 25.5 and features.length_difference == pytest.approx(np.log2(40 / 11))
    assert features.markdown == 1.5 and features.markdown_difference == 2.0  # three marks and none: log2(4 / 1)
    assert np.isnan([features.margin, features.spread]).all()
    numbers = feature_numbers([features])
    assert numbers.shape == (1, 7) and numbers[0, :2].tolist() == [1.0, 0.0] and numbers[0, -1] == 2.0
    assert "code" in describe_features(features) and "margin" not in describe_features(features)
    assert case_features([case(answers=("", "ab"))])[0].length_difference == 1.0
    with pytest.raises(UsageError, match="unknown feature 'lenght'"):
        feature_numbers([features], ["lenght"])


def test_margin_and_spread_are_those_of_the_best_two_responses():
    cases = [case("1", ("abcd", "a", "ab")), case("2", ("a?", "abc"))]
    first, missing = case_features(cases, Members())
    # combined rewards 8, 2, 4: margin 4; the members' margins are 2 and 6
    assert (first.margin, first.spread) == (4.0, 2.0) and np.isnan([missing.margin, missing.spread]).all()
    assert feature_numbers([first], ["spread", "margin"]).tolist() == [[2.0, 4.0]]
    assert "margin of a reward model: 4" in describe_features(first)
    (single,) = case_features([case(answers=("alone",), values=(0.7,))], Members())
    assert np.isnan([single.margin, single.spread]).all() and single.response_length == 5
    turned = case_features([case("1", ("a", "ab", "abcd"))], Members())[0]
    assert (turned.margin, turned.spread) == (4.0, 2.0)
