import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.transforms.pessimism import pessimism
from rewardlab.policy.types import Rollout
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.ensemble import combination as rules
from rewardlab.rm.kinds.ensemble.model import EnsembleRewardModel, load_ensemble
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, content_hash, user_turn
from torch import ones, zeros

from tests.rm.kinds.test_ensemble import fitted

# three members, two answers, one objective
MEMBERS = np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 6.0]])[..., None]
RANDOM = arrays(float, (4, 3, 2), elements=st.floats(-50, 50))


def numbers(found) -> list[float]:
    return found[:, 0].tolist()


def test_mean_lowest_spread_and_softmin_by_hand():
    assert numbers(rules.mean()(MEMBERS, None)) == [2.0, 2.0]
    assert numbers(rules.lowest()(MEMBERS, None)) == [1.0, 0.0]
    # (1 + 1 + 0) / 3 and (4 + 4 + 16) / 3
    assert numbers(rules.deviation(MEMBERS)) == pytest.approx([math.sqrt(2 / 3), math.sqrt(8)])
    assert numbers(rules.mean_std(0.5)(MEMBERS, None)) == pytest.approx(
        [2 - math.sqrt(2 / 3) / 2, 2 - math.sqrt(8) / 2]
    )
    # β = ln 2: -log2((2^-1 + 2^-3 + 2^-2) / 3) = -log2(7 / 24), and -log2((1 + 1 + 2^-6) / 3)
    found = numbers(rules.softmin(math.log(2))(MEMBERS, None))
    assert found == pytest.approx([math.log2(24 / 7), -math.log2((2 + 1 / 64) / 3)])


def test_softmin_goes_from_the_mean_to_the_lowest():
    assert numbers(rules.softmin(0)(MEMBERS, None)) == [2.0, 2.0]
    assert numbers(rules.softmin(math.inf)(MEMBERS, None)) == [1.0, 0.0]
    # mean - β var / 2 near 0: var = 2/3 and 8
    assert numbers(rules.softmin(1e-4)(MEMBERS, None)) == pytest.approx([2 - 1e-4 / 3, 2 - 4e-4], abs=1e-7)
    assert numbers(rules.softmin(1e-14)(MEMBERS, None)) == pytest.approx([2.0, 2.0], abs=1e-10)
    # lowest + log(3 / number of lowest) / β
    assert numbers(rules.softmin(1e6)(MEMBERS, None)) == pytest.approx([1 + math.log(3) / 1e6, math.log(1.5) / 1e6])
    assert numbers(rules.softmin(1e300)(1e9 * MEMBERS, None)) == pytest.approx([1e9, 0.0])


def test_the_nominal_reward_is_that_of_the_surest_head_or_the_mean():
    deviations = np.array([[0.3, 0.3], [0.1, 0.2], [0.2, 0.1]])[..., None]
    # the surest say 3 and 6, the lowest are 1 and 0
    assert numbers(rules.brme(1.0)(MEMBERS, deviations)) == [3.0, 6.0]
    assert numbers(rules.brme(0.25)(MEMBERS, deviations)) == [0.25 * 3 + 0.75 * 1, 0.25 * 6]
    assert numbers(rules.brme(0.0)(MEMBERS, deviations)) == [1.0, 0.0]
    assert numbers(rules.brme(0.25)(MEMBERS, None)) == [0.25 * 2 + 0.75 * 1, 0.25 * 2]


@given(members=RANDOM)
def test_no_rule_depends_on_the_members_order_and_every_one_keeps_agreement(members):
    for name in rules.RULES:
        arguments = {"mean_std": {"weight": 0.7}, "softmin": {"beta": 2.0}, "brme": {"share": 0.4}}.get(name, {})
        rule = rules.combine_by(rules.MemberRule(name, arguments))
        assert rule(members, None) == pytest.approx(rule(members[::-1], None), abs=1e-9), name
        agreed = np.repeat(members[:1], 4, axis=0)
        assert rule(agreed, None) == pytest.approx(members[0], abs=1e-9), name


def test_a_rule_that_makes_no_sense_is_refused():
    for rule, sentence in [
        (
            rules.MemberRule("softmax", {"beta": 1}),
            "unknown rule 'softmax' for combining members; did you mean 'softmin'",
        ),
        (rules.MemberRule("softmin"), r"must be written as softmin\(beta=...\), got {}"),
        (rules.MemberRule("min", {"beta": 1}), "'min' must be written as min, got"),
        (rules.MemberRule("softmin", {"beta": -1.0}), "beta must be >= 0, got -1"),
        (rules.MemberRule("mean_std", {"weight": math.nan}), "weight must be >= 0, got nan"),
        (rules.MemberRule("brme", {"share": 1.5}), r"share must lie in \[0, 1\], got 1.5"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            rules.combine_by(rule)


class Fixed:
    def __init__(self, **rewards):
        self.contract = ScoringContract(kind="fixed")
        self.rewards, self.asked = rewards, 0

    def rate(self, examples):
        self.asked += 1
        return np.array([[self.rewards[example.completion]] for example in examples], float)


EXAMPLES = [Example(user_turn("q"), answer) for answer in ("a", "b")]


def three() -> list[Fixed]:
    return [Fixed(a=a, b=b) for a, b in MEMBERS[..., 0]]


def test_contracts_of_ensembles_without_a_rule_are_what_they_were():
    members = three()
    hashes = [member.contract.hash() for member in members]
    for weight in (0.0, 0.5):
        assert EnsembleRewardModel(members, [*"xyz"], weight).contract.backbone == content_hash([hashes, weight])
    softest = [rules.MemberRule("softmin", {"beta": beta}) for beta in (1.0, 2.0, math.inf)]
    ruled = {EnsembleRewardModel(members, [*"xyz"], rule=rule).contract.hash() for rule in softest}
    assert len(ruled | {EnsembleRewardModel(members, [*"xyz"]).contract.hash()}) == 4
    with pytest.raises(UsageError, match="a pessimism or a rule, not both; got 0.5 and 'min'"):
        EnsembleRewardModel(three(), [*"xyz"], 0.5, rule=rules.MemberRule("min"))


def test_the_spread_after_a_reward_asks_nobody_twice():
    members = three()
    model = EnsembleRewardModel(members, [*"xyz"])
    model.rate(EXAMPLES)
    assert model.spread(EXAMPLES)[..., 0].tolist() == MEMBERS[..., 0].tolist()
    assert [member.asked for member in members] == [1, 1, 1]
    assert model.spread(EXAMPLES[1:])[..., 0].tolist() == [[0.0], [0.0], [6.0]]
    model.rate(EXAMPLES)
    model.rate(EXAMPLES)
    assert [member.asked for member in members] == [4, 4, 4], "a reward is always asked for"


def test_a_policys_loop_sees_members_and_logs_their_spread_once_there_is_one():
    sources = RewardSources({"rm": EnsembleRewardModel(three(), [*"xyz"])})
    rewards, faults = sources(EXAMPLES)
    assert not faults and rewards.members[:, 0].tolist() == MEMBERS[..., 0].T.tolist()
    spread = [math.sqrt(2 / 3), math.sqrt(8)]
    assert sources.facts() == {
        "rm/spread": pytest.approx(sum(spread) / 2),
        "rm/spread_max": pytest.approx(spread[1]),
        "rm/range": pytest.approx((2 + 6) / 2),
    }
    rollout = Rollout(zeros(2).long(), ones(2, 1).bool(), ones(2).bool())
    moved = pessimism(reward="rm", share=0.25).change({}, rewards, rollout)[1]["rm"]
    assert moved.tolist() == numbers(rules.brme(0.25)(MEMBERS, None)), "the transform and the rule are one formula"
    assert EnsembleRewardModel(three(), [*"xyz"]).facts() == {}


@pytest.fixture
def folders(tmp_path) -> str:
    return fitted(tmp_path, golden=False)


SAID = [Example(user_turn("q"), answer) for answer in ("kind stone", "rude river")]


def test_a_folder_keeps_the_rule_which_cannot_be_edited(folders, tmp_path):
    for rule in (
        rules.MemberRule("softmin", {"beta": 2.0}),
        rules.MemberRule("softmin", {"beta": math.inf}),
        rules.MemberRule("min"),
    ):
        made = load_ensemble(folders, rule=rule)
        made.save(tmp_path / str(rule))
        again = load_reward_model(str(tmp_path / str(rule)))
        assert again.rule == rule and again.contract == made.contract
        assert again.rate(SAID).tolist() == made.rate(SAID).tolist() != load_ensemble(folders).rate(SAID).tolist(), rule
    made = load_ensemble(folders, pessimism=1)
    made.save(tmp_path / "both")
    settings = json.loads((tmp_path / "both" / "ensemble.json").read_text())
    assert settings == {"members": folders.split(","), "pessimism": 1}
    assert load_reward_model(str(tmp_path / "both")).contract.hash() == made.contract.hash()
    load_ensemble(folders, rule=rules.MemberRule("min")).save(tmp_path / "both")
    file = tmp_path / "both" / "ensemble.json"
    settings = json.loads(file.read_text())
    for edited, sentence in (
        ({"name": "mean"}, "have changed since it was built"),
        ({"name": "softmin"}, "not the settings of an ensemble"),
        ("min", "not the settings of an ensemble"),
    ):
        file.write_text(json.dumps(settings | {"rule": edited}))
        with pytest.raises(DataError, match=sentence):
            load_reward_model(str(tmp_path / "both"))
