"""policy/step/algorithm.py: from rewards to what the loss reads, by hand."""

import json
import math

import pytest
import torch
from rewardlab.policy.advantages._groups import as_float, masked_advantages
from rewardlab.policy.step.algorithm import Algorithm, Penalty
from rewardlab.policy.training.critic import critic_returns
from rewardlab.policy.types import Rewards, Rollout, Transform
from rewardlab.rm.registry import load
from trl.trainer.utils import nanstd

NAN = math.nan


def made(advantage="dr_grpo", **changes) -> Algorithm:
    estimator = load("policy.advantages", advantage)()
    return Algorithm(estimator, load("policy.losses", "ppo")(), load("policy.aggregations", "token_mean")(), **changes)


def rollout(**changes) -> Rollout:
    response = torch.arange(3) < torch.tensor([2, 1, 3, 1])[:, None]
    logprobs = torch.tensor([[-1.0, -2.0, 0], [-1.0, 0, 0], [-1.0, -1.0, -1.0], [-2.0, 0, 0]])
    base = torch.tensor([[-1.5, -2.0, 0], [-1.0, 0, 0], [-1.0, -3.0, -1.0], [-1.0, 0, 0]])
    finished = torch.ones(4, dtype=torch.bool)
    return Rollout(torch.tensor([0, 0, 1, 1]), response, finished, logprobs=logprobs, base=base)._replace(**changes)


def rewards(*columns: list[float]) -> Rewards:
    names = ("right", "style")[: len(columns)]
    return Rewards(torch.tensor(columns, dtype=torch.float64).T.contiguous(), names)


def test_shares_decide_what_is_trained_on_and_a_missing_reward_weighs_nothing():
    both = rewards([1, 3, 0, 4], [10, 0, 0, 0])
    assert made(shares={"right": 1.0})(both, rollout()).advantages["estimate"].tolist() == [-1, 1, -2, 2]
    assert made(shares={"right": 2.0, "style": 0.5})(both, rollout()).total.tolist() == [7, 6, 0, 8]
    assert made()(both, rollout()).total.tolist() == [11, 3, 0, 4]
    scored = made(shares={"right": 1.0, "style": 0.0})(rewards([1, 3, 0, 4], [NAN, 0, NAN, NAN]), rollout())
    assert scored.total.tolist() == [1, 3, 0, 4]
    scored = made()(rewards([1, 3, NAN, 4]), rollout())
    assert scored.advantages["estimate"].tolist() == [-1, 1, 0, 0]
    assert scored.weights.tolist() == [[0.25, 0.25, 0], [0.25, 0, 0], [0, 0, 0], [0.25, 0, 0]]


ROUTED = rewards([1, 3, NAN, NAN], [NAN, NAN, 5, 2])  # each for the prompts of one group
PARTLY = rewards([1, 3, 4, NAN], [10, NAN, NAN, NAN])  # the second row lacks what the first has; the last lacks both


def test_what_a_completion_that_lacks_one_of_several_rewards_is_trained_on():
    for rule, routed, partly in (
        ("group", [1, 3, 5, 2], [11, None, 4, None]),
        ("strict", [None] * 4, [11, None, None, None]),
        ("sum", [1, 3, 5, 2], [11, 3, 4, None]),
    ):
        for given, expected in ((ROUTED, routed), (PARTLY, partly)):
            scored = made(on_missing=rule)(given, rollout())
            totals = [None if math.isnan(total) else total for total in scored.total.tolist()]
            assert totals == expected, rule
            assert scored.trained.any(1).tolist() == [total is not None for total in expected], rule


def test_routed_rewards_summed_or_apart_are_advantages_as_trl_has_them():
    # TRL 1.16, `sum_then_normalize`: nansum, NaN where all are missing, then nanmean and nanstd of the group
    for given in (ROUTED, PARTLY):
        total = (given.values * torch.tensor([1.0, 0.5])).nansum(1)
        total[given.values.isnan().all(1)] = NAN
        grouped = total.view(-1, 2)
        advantages = (grouped - grouped.nanmean(1, keepdim=True)) / (nanstd(grouped, dim=1)[:, None] + 1e-4)
        scored = made("grpo", on_missing="sum", shares={"right": 1.0, "style": 0.5})(given, rollout())
        torch.testing.assert_close(scored.advantages["estimate"], advantages.view(-1).nan_to_num(0))
    # TRL 1.16, `normalize_then_sum`, whose std over the step has an epsilon too
    parts = ROUTED.values.view(2, 2, 2)
    parts = (parts - parts.nanmean(1, keepdim=True)) / (nanstd(parts, dim=1)[:, None] + 1e-4)
    total = parts.view(4, 2).nansum(1)
    algorithm = made("gdpo", apart=True, on_missing="sum")
    algorithm.advantage = load("policy.advantages", "gdpo")(partial=True)
    scored = algorithm(ROUTED, rollout())
    torch.testing.assert_close(scored.advantages["estimate"], (total - total.mean()) / (total.std() + 1e-4))


def test_a_penalty_is_added_to_the_completions_reward_or_where_it_arose():
    scored = made(penalty=Penalty(0.1, "completion", "k1"))(rewards([1, 3, 0, 4]), rollout())
    # Σ log pi - log base: 0.5, 0, 2, -1
    assert scored.total.tolist() == [1, 3, 0, 4]
    expected = [1 - 0.05 - 1.975, 3 - 1.975, -0.2 - 1.95, 4.1 - 1.95]
    assert scored.advantages["estimate"].tolist() == pytest.approx(expected)
    values = torch.zeros(4, 3)
    made_so = made("gae", penalty=Penalty(0.1, "token", "k1"))
    scored = made_so(rewards([1, 3, 0, 4]), rollout(values=values, after=torch.zeros(4)))
    first = scored.advantage[0].tolist()
    assert first[1] == pytest.approx(1.0)  # the second token costs nothing and brings the reward
    assert first[0] == pytest.approx(-0.05 + 0.95 * 1.0)


def test_steps_rewards_join_the_completions_and_are_summed_for_an_estimator_of_completions():
    steps = torch.full((4, 3), NAN, dtype=torch.float64)
    steps[0, 0] = 0.5
    process = Rewards(torch.ones(4, 1, dtype=torch.float64), ("right",), steps)
    scored = made("gae")(process, rollout(values=torch.zeros(4, 3), after=torch.zeros(4)))
    assert scored.advantage[0, :2].tolist() == pytest.approx([0.5 + 0.95, 1.0])
    steps = torch.full((4, 3), NAN, dtype=torch.float64)
    steps[0, 0], steps[0, 1], steps[2, 2] = 0.5, 0.25, 1.0
    process = Rewards(torch.ones(4, 1, dtype=torch.float64), ("right",), steps)
    assert made("dr_grpo")(process, rollout()).advantages["estimate"].tolist() == [0.375, -0.375, 0.5, -0.5]


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_missing_steps_are_a_missing_reward_whatever_the_share_of_their_source(share):
    """Rows 0 and 2 have a step; at λ = 1 and with values of 0 their advantages are the rewards that follow."""
    steps = torch.full((4, 3), NAN, dtype=torch.float64)
    steps[0, 1], steps[2, 0] = 0.5, 0.25
    of_steps = torch.tensor([[0.0], [NAN], [0.0], [NAN]], dtype=torch.float64)
    process = Rewards(of_steps, ("steps",), steps, step_names=("steps",))
    algorithm = made("gae", shares={"steps": share})
    algorithm.advantage = load("policy.advantages", "gae")(lam=1.0)
    scored = algorithm(process, rollout(values=torch.zeros(4, 3), after=torch.zeros(4)))
    assert scored.total.isnan().tolist() == [False, True, False, True]
    assert scored.weights.sum(1).tolist() == pytest.approx([2 / 5, 0, 3 / 5, 0])
    expected = torch.tensor([[0.5, 0.5, 0], [0, 0, 0], [0.25, 0, 0], [0, 0, 0]])
    torch.testing.assert_close(scored.advantage, expected, check_dtype=False)


def test_a_truncated_completion_is_bootstrapped_where_only_its_steps_are_rewarded():
    """Completions 0 of two tokens and 2 of three are cut off; the critic expects 10 after them, γ = λ = 1."""
    steps = torch.full((4, 3), NAN, dtype=torch.float64)
    steps[0, 1], steps[1, 0], steps[2, 0], steps[3, 0] = 0.5, 1.0, 0.25, 2.0
    both = Rewards(torch.zeros(4, 2, dtype=torch.float64), ("right", "steps"), steps, step_names=("steps",))
    cut = rollout(
        finished=torch.tensor([False, True, False, True]), values=torch.zeros(4, 3), after=torch.full((4,), 10.0)
    )
    estimator = load("policy.advantages", "gae")(lam=1.0)
    found = {}
    for name, shares in (("steps", {"steps": 1.0}), ("both", {"right": 1.0, "steps": 1.0}), ("none", {"steps": 0.0})):
        algorithm = made("gae", shares=shares)
        algorithm.advantage = estimator
        scored = algorithm(both, cut)
        assert scored.terminal == (name == "both")
        returns = critic_returns(scored, cut, gamma=1.0, lam=1.0)
        torch.testing.assert_close(returns, scored.advantage, check_dtype=False)
        found[name] = scored.advantage.tolist()
    assert found["steps"] == found["none"] == [[10.5, 10.5, 0], [1, 0, 0], [10.25, 10, 10], [2, 0, 0]]
    assert found["both"] == [[0.5, 0.5, 0], [1, 0, 0], [0.25, 0, 0], [2, 0, 0]]


@pytest.mark.parametrize("share", [0.1, -1.0, 2.0])
def test_a_weight_that_would_not_scale_the_rewards_of_steps_is_refused(share):
    process = Rewards(torch.zeros(4, 1).double(), ("steps",), torch.zeros(4, 3).double(), step_names=("steps",))
    batch = rollout(values=torch.zeros(4, 3), after=torch.zeros(4))
    with pytest.raises(ValueError, match=r"the weight of 'steps' is .*, but its rewards are of single steps.*scale="):
        made("gae", shares={"steps": share})(process, batch)


def test_masked_truncated_completions_are_read_by_rewards_and_left_out_of_the_loss():
    """The first of the four, of 2 tokens, is cut off: 5 of 7 tokens are trained on, and its advantage stays."""
    seen, cut = rewards([1, 3, 0, 4]), rollout(finished=torch.tensor([False, True, True, True]))
    plain, masked = made()(seen, cut), made()(seen, cut, mask_truncated=True)
    assert masked.trained.sum(1).tolist() == [0, 1, 3, 1]
    assert masked.weights.sum(1).tolist() == pytest.approx([0, 1 / 5, 3 / 5, 1 / 5])
    assert masked.advantage.tolist() == plain.advantage.tolist()
    lengths = load("policy.transforms", "length")(correct="right")
    found = made(reward_transforms={"length": lengths})(rewards([1, 1, 0, 0]), cut, mask_truncated=True)
    assert found.rewards["length"].values[:2, -1].tolist() == [-0.5, 0.5], "the truncated one is the longer one"


@pytest.mark.parametrize(
    ("shares", "expected"), [({}, 1.0), ({"right": 2.0}, 1.0), ({"right": 2.0, "length": 3.0}, 3.0)]
)
def test_a_reward_that_a_transform_adds_has_weight_1_by_default(shares, expected):
    """Lengths 2 and 1 of the first group: -1/2 and 1/2 for right completions."""
    lengths = {"length": load("policy.transforms", "length")(correct="right")}
    total = made(reward_transforms=lengths, shares=shares)(rewards([1, 1, 0, 0]), rollout()).total.tolist()
    right = shares.get("right", 1.0)
    assert total[:2] == [right - expected / 2, right + expected / 2]


def test_a_kl_at_the_tokens_is_one_at_the_completion_where_the_estimator_is_of_completions():
    for name in ("are", "canon", "dr_grpo", "fixed_baseline", "grpo", "lite_ppo", "rloo"):
        found = []
        for place in ("token", "completion"):
            algorithm = made(penalty=Penalty(0.1, place, "k1"))
            algorithm.advantage = load("policy.advantages", name)(**({"shape": 0.5} if name == "are" else {}))
            found.append(algorithm(rewards([1, 3, 0, 4]), rollout()).advantages["estimate"])
        assert torch.allclose(*found) and found[0].shape == (4,), name


def test_an_estimator_that_cannot_read_its_rewards_is_refused():
    with pytest.raises(
        ValueError, match="debiased: rewards must be verdicts of 0 or 1, got 0.95; .* add a KL penalty to the loss"
    ):
        made("debiased", penalty=Penalty(0.1, "token", "k1"))(rewards([1, 0, 0, 1]), rollout())
    algorithm = made(penalty=Penalty(0.1, "token", "k1"))
    algorithm.advantage = lambda rewards, rollout: rewards[:, None] * rollout.response
    with pytest.raises(ValueError, match="wrap it in policy.types.TokenEstimator"):
        algorithm(rewards([1, 3, 0, 4]), rollout())
    process = Rewards(torch.ones(4, 1, dtype=torch.float64), ("right",), torch.zeros(4, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match="cannot use step rewards"):
        made("gdpo", apart=True)(process, rollout())
    with pytest.raises(ValueError, match="one of loss, token, completion, got 'reward'"):
        Penalty(0.1, "reward")
    with pytest.raises(ValueError, match="a KL penalty in the reward: the rollout has no log-probabilities"):
        made(penalty=Penalty(0.1, "completion"))(rewards([1, 3, 0, 4]), rollout(base=None))
    with pytest.raises(ValueError, match="cannot use a KL penalty in the reward; move it to the loss"):
        made(apart=True, penalty=Penalty(0.1, "completion"))
    with pytest.raises(ValueError, match="no reward is called 'rihgt'"):
        made(shares={"rihgt": 1.0})(rewards([1, 3, 0, 4]), rollout())


def test_a_loss_of_whole_completions_refuses_advantages_of_tokens():
    kimi, values = load("policy.losses", "kimi")(tau=0.1), {"values": torch.zeros(4, 3), "after": torch.zeros(4)}
    algorithm = made("gae")
    algorithm.rule = kimi
    with pytest.raises(ValueError, match="reads one advantage per completion, but the estimator returns one per token"):
        algorithm(rewards([1, 3, 0, 4]), rollout(**values))
    algorithm = made(advantage_transforms={"masked": load("policy.transforms", "entropy_mask")()})
    algorithm.rule = kimi
    with pytest.raises(ValueError, match="but 'masked' returns one per token; replace it, or use a clip rule"):
        algorithm(rewards([1, 3, 0, 4]), rollout(entropy=torch.rand(4, 3)))


def test_components_apart_are_weighed_by_the_estimator_itself_and_none_is_read_where_a_reward_is_missing():
    gdpo = load("policy.advantages", "gdpo")([1.0, 1.0])
    algorithm = made(shares={"style": 1.0, "right": 1.0}, apart=True)
    algorithm.advantage = gdpo
    seen = rewards([1, 3, 0, 4], [0, 0, 5, 0])
    direct = gdpo(seen.values[:, [1, 0]], rollout())
    torch.testing.assert_close(algorithm(seen, rollout()).advantages["estimate"], direct)
    seen = []

    def estimate(components, rollout):
        seen.append(components)
        return torch.zeros(4)

    algorithm = made(apart=True)
    algorithm.advantage = estimate
    algorithm(PARTLY, rollout())
    assert seen[0].isnan().tolist() == [[False, False], [True, True], [False, True], [True, True]]


def test_every_stage_is_kept():
    double = Transform("advantage", lambda state, a, _: ({"calls": state.get("calls", 0) + 1}, 2 * a), stage=2)
    cut = load("policy.transforms", "missing_eos")(reward="right", cost=1.0)
    algorithm = made(reward_transforms={"cut": cut}, advantage_transforms={"double": double})
    scored = algorithm(rewards([1, 3, 0, 4]), rollout(finished=torch.tensor([True, False, True, True])))
    assert [*scored.rewards] == ["sources", "cut"]
    assert scored.rewards["cut"]["right"].tolist() == [1, 2, 0, 4]
    assert scored.advantages["double"].tolist() == [-1, 1, -4, 4]
    assert scored.advantage[0].tolist() == [-1, -1, -1]
    algorithm(rewards([1, 3, 0, 4]), rollout())
    state = json.loads(json.dumps(algorithm.state))
    assert state["advantages"] == {"double": {"calls": 2}}
    other = made(reward_transforms={"cut": cut}, advantage_transforms={"double": double})
    other.load(state)
    assert other.state == algorithm.state


def test_a_scheduler_weighs_answers():
    scored = made(scheduler=load("policy.schedulers", "pf_ppo")("best_worst"))(rewards([1, 3, 0, 4]), rollout())
    torch.testing.assert_close(scored.weights, rollout().response.double() / 7)
    three = rollout(group=torch.tensor([0, 0, 0, 1]))
    often = made(scheduler=load("policy.schedulers", "pf_ppo")("best_worst"))(rewards([1, 3, 2, 4]), three).weights
    assert (often * 7)[:, 0].tolist() == pytest.approx([1.5, 1.5, 0, 1])


def test_advantages_of_integer_rewards_are_not_truncated():
    verdicts = torch.tensor([1, 0, 1])
    found = masked_advantages(torch.tensor([0.25, -0.5, 9.0]), torch.tensor([True, True, False]), verdicts)
    assert found.tolist() == [0.25, -0.5, 0] and as_float(verdicts).dtype == torch.float64
    assert masked_advantages(found, torch.tensor([True, True, False]), verdicts.bfloat16()).dtype == torch.bfloat16
    batch, integers = rollout(group=torch.tensor([0, 0, 0, 9])), Rewards(torch.tensor([[1], [0], [0], [5]]), ("right",))
    scored = made(shares={"right": 1.0})(integers, batch)
    torch.testing.assert_close(scored.advantages["estimate"], torch.tensor([2.0, -1, -1, 0], dtype=torch.float64) / 3)
    assert made("gdpo", apart=True)(integers, batch).advantages["estimate"][0] > 1
