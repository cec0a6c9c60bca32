"""Transforms that weight tokens or completions by what the policy's pass over them shows, worked out by hand."""

import json
import math

import pytest
import torch
from rewardlab.policy.transforms.ccpo_vote import ccpo_vote
from rewardlab.policy.transforms.discriminative import discriminative
from rewardlab.policy.transforms.entropy_performance import entropy_performance
from rewardlab.policy.transforms.lp_reg import lp_reg
from rewardlab.policy.transforms.nthr import nthr
from rewardlab.policy.transforms.prefix import prefix
from rewardlab.policy.transforms.progrpo import progrpo
from rewardlab.policy.transforms.redistribute import redistribute
from rewardlab.policy.types import Rewards, Rollout, Transform

NAN = math.nan


def batch(response, group, **fields) -> Rollout:
    mask = torch.tensor(response, dtype=torch.bool)
    return Rollout(torch.tensor(group), mask, torch.ones(len(group), dtype=torch.bool), **fields)


def changed(transform: Transform, advantages, rollout: Rollout) -> torch.Tensor:
    return transform.change(transform.start, torch.as_tensor(advantages), rollout)[1]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_a_prefix_counts_the_policys_tokens_and_grows_from_step_to_step():
    rollout = batch([[1, 1, 0, 1, 1], [1, 0, 0, 0, 0]], (0, 0))  # a tool wrote the third token
    growing = prefix(first=0.5, last=1.0, steps=2)
    state, kept = growing.start, []
    for _ in range(4):
        state, found = growing.change(json.loads(json.dumps(state)), torch.tensor([1.0, -2.0]), rollout)
        kept.append(found.tolist())
    assert kept[0] == [[1, 1, 0, 0, 0], [-2, 0, 0, 0, 0]]
    assert kept[1] == [[1, 1, 0, 1, 0], [-2, 0, 0, 0, 0]]  # 0.75 of 4 tokens
    assert kept[2] == kept[3] == [[1, 1, 0, 1, 1], [-2, 0, 0, 0, 0]] and state == {"step": 2}
    # 0.1 of 30 tokens are 3, also in floating point
    assert changed(prefix(first=0.1), [1.0], batch([[1] * 30], (0,))).sum() == 3
    assert changed(prefix(first=0.6), [1.0], batch([[1] * 25], (0,))).sum() == 15  # 0.6 · 25 is above 15 in float32
    with pytest.raises(ValueError, match="0 < first <= last <= 1"):
        prefix(first=0.5, last=0.2)


def test_perplexity_and_position_by_hand():
    # log-perplexities 1 and 3 in the first prompt: z = -+ 1/√2; equal ones in the second
    logprobs = torch.tensor([[-1.0, -1.0], [-3.0, 0.0], [-2.0, -2.0], [-2.0, -2.0]])
    rollout = batch([[1, 1], [1, 0], [1, 1], [1, 1]], (0, 0, 1, 1), logprobs=logprobs)
    A = torch.tensor([1.0, -1.0, 2.0, 0.0], dtype=torch.float64)
    found = changed(entropy_performance(alpha=0.1), A, rollout)
    one = 0.1 / math.sqrt(2)
    expected = torch.tensor([[1 + one] * 2, [-1 + one, 0], [2, 2], [0, 0]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)
    found = changed(entropy_performance(gamma=0.5, slope=2.0), A, rollout)
    assert found[0].tolist() == pytest.approx([1 + 0.5 * sigmoid(1), 1 + 0.5 * sigmoid(2)])
    assert found[1].tolist() == pytest.approx([-1 - 0.5 * sigmoid(2), 0]) and not found[3].any()
    # a third completion of the first prompt, without a reward, changes nothing for the others
    more = batch([[1, 1], [1, 0], [1, 1]], (0, 0, 0), logprobs=torch.tensor([[-1.0, -1.0], [-3.0, 0.0], [-9.0, -9.0]]))
    more = more._replace(total=torch.tensor([1.0, 0.0, NAN]))
    found = changed(entropy_performance(alpha=0.1), torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64), more)
    torch.testing.assert_close(found, torch.cat([expected[:2], torch.zeros(1, 2)]))
    with pytest.raises(ValueError, match="not both 0"):
        entropy_performance()


def test_progrpo_compares_the_least_likely_tokens_of_prompt_and_completion():
    logprobs = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, 0.0, 0.0], [-1.0, 0, 0], [-2.0, 0, 0]])
    prompts = torch.tensor([[-1.5, -0.5, NAN], [-1.5, -0.5, NAN], [-1.0, -1.0, -1.0], [-1.0, -1.0, -1.0]])
    rollout = batch([[1, 1, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0]], (0, 0, 1, 1), logprobs=logprobs,
                    prompt_logprobs=prompts, total=torch.tensor([1.0, 0.0, 0.0, 0.0]))  # fmt: skip
    A = torch.tensor([1.0, -1.0, 0.5, -0.5])
    # half of 3 tokens, rounded up: -2 and -1; of the prompt's two tokens -1.5; a prompt without a reward is unchanged
    found = changed(progrpo(alpha=0.3, share=0.5), A, rollout)
    expected = [1 + 0.3 * (math.exp(-1.5) - math.exp(-1.5)), -1 + 0.3 * (math.exp(-1.5) - math.exp(-3)), 0.5, -0.5]
    assert found.tolist() == pytest.approx(expected)
    assert changed(progrpo(alpha=0.0), A, rollout).tolist() == A.tolist()
    missing = rollout._replace(total=torch.tensor([1.0, NAN, 0.0, 0.0]))
    assert changed(progrpo(alpha=0.3), torch.tensor([1.0, 0, 0, 0]), missing)[1] == 0


def test_lp_reg_spares_unlikely_tokens_but_not_noise():
    p = torch.tensor([0.6, 0.3, 0.09, 0.01])
    tokens = torch.tensor([[2, 3, 0, 1], [3, 2, 1, 0]])
    rollout = batch([[1] * 4] * 2, (0, 0), logprobs=p[tokens].log(), states=torch.zeros(2, 4, 1),
                    head=lambda states: p.log().expand(len(states), 4))  # fmt: skip
    A = torch.tensor([[-1.0, -1, -1, -1], [1, 1, 1, 1]])
    # two of the four bad tokens: 0.09 is above 0.1 · 0.6 and gets 1 / 0.99 - 1, 0.01 is noise; good ones are not read
    found = changed(lp_reg(kappa=0.1, share=0.5), A, rollout)
    assert found.tolist() == [pytest.approx([-1 + 1 / 0.99 - 1, -1, -1, -1]), [1, 1, 1, 1]]
    # the gradient of the released code's penalty, k3 of π and the proxy, at π = π_old
    logprob = p[2].log().requires_grad_()
    gap = p[2].log() - math.log(0.99) - logprob
    (gradient,) = torch.autograd.grad(gap.exp() - gap - 1, logprob)
    assert found[0, 0].item() == pytest.approx(-1 - gradient.item(), abs=1e-6)
    assert changed(lp_reg(), A.abs(), rollout).tolist() == A.abs().tolist()


def test_delta_weights_by_the_distance_to_both_sides_and_keeps_the_mean():
    h = torch.tensor([[8.0, 4.0], [2.0, -2.0], [9.0, 0.0]])[..., None]
    half = torch.full((3, 2), math.log(0.5))  # v is half of h
    rollout = batch([[1, 1], [1, 1], [1, 0]], (0, 0, 0), logprobs=half, states=h, total=torch.tensor([1.0, 0, NAN]))
    A = torch.tensor([1.0, -1.0, 0.0])
    # v 4, 2 | 1, -1: means 3 and 0; margins 16 - 1, 4 - 1 | 4 - 1, 16 - 1, both with deviation 6
    found = changed(discriminative(passes=0), A, rollout)
    weight = [0.8 + 0.4 * sigmoid(x) for x in (15 / 6, 3 / 6, 3 / 6, 15 / 6)]
    scale = sum(weight) / 4
    torch.testing.assert_close(found[:2].flatten(), torch.tensor(weight) / scale * torch.tensor([1.0, 1, -1, -1]))
    assert not found[2].any()
    # a pass moves the means towards the tokens that were far from the other side
    far, near = sigmoid(15 / 6), sigmoid(3 / 6)
    good = (4 * far + 2 * near) / (far + near)
    bad = (near - far) / (far + near)
    margin = [(4 - bad) ** 2 - (4 - good) ** 2, (2 - bad) ** 2 - (2 - good) ** 2]
    margin += [(1 - good) ** 2 - (1 - bad) ** 2, (-1 - good) ** 2 - (-1 - bad) ** 2]
    weight = [0.8 + 0.4 * sigmoid(x / 6) for x in margin]
    found = changed(discriminative(), A, rollout)[:2].abs().flatten().tolist()
    assert found == pytest.approx([one / sum(weight) * 4 for one in weight], rel=1e-5)
    assert changed(discriminative(), A.abs(), rollout)[:2].tolist() == [[1, 1], [1, 1]]


def test_nthr_lowers_the_penalty_of_tokens_that_resemble_good_ones():
    uniform = torch.full((3,), 1 / 3).log()
    rollout = batch([[1, 0], [1, 1], [1, 0]], (0, 0, 0), tokens=torch.tensor([[0, 2], [0, 1], [1, 2]]),
                    states=torch.tensor([[1.0, 9], [2, 1], [1, 9]])[..., None],
                    head=lambda states: uniform.expand(len(states), 3))  # fmt: skip
    # over the used tokens 0 and 1: g = (2/3, -1/3) of token 0, (-1/3, 2/3) of token 1; s of the good token 5/9 = τ,
    # of the bad ones 10/9 and -4/9; one of three is right: 2 |1/2 - 1/3| = 1/3
    found = changed(nthr(), torch.tensor([2.0, -1.0, -1.0]), rollout)
    assert found.tolist() == [[2.0, 2.0], [pytest.approx(-1 / 3), -1.0], [-1.0, -1.0]]
    alone = rollout._replace(total=torch.tensor([1.0, 0.0, NAN]))  # one of two is right
    assert changed(nthr(), torch.tensor([2.0, -1.0, 0.0]), alone)[1].tolist() == [0, -1]
    found = changed(nthr(beta=3.0), torch.tensor([2.0, -1.0, -1.0]), rollout)
    assert found[1].tolist() == [-1, -1]
    assert changed(nthr(), torch.tensor([0.0, -1.0, -1.0]), rollout)[1].tolist() == [-1, -1]


def test_a_reward_is_spread_over_the_steps_and_the_sum_stays():
    steps = torch.tensor([[0.9, NAN, 0.2], [NAN, 0.4, NAN], [NAN, NAN, NAN], [NAN, 0.5, NAN]], dtype=torch.float64)
    values = torch.tensor([[1.0], [0.0], [1.0], [NAN]], dtype=torch.float64)
    rollout = batch([[1] * 3] * 4, (0, 0, 0, 0))
    plain = redistribute(reward="right")
    found = plain.change(plain.start, Rewards(values, ("right",), steps), rollout)[1]
    assert found.steps is not None
    torch.testing.assert_close(found.steps[0, [0, 2]], torch.tensor([0.85, 0.15], dtype=torch.float64))
    assert found.steps[1, 1] == 0 and found.steps[3, 1] == 0.5
    assert found["right"][:3].tolist() == [0, 0, 1] and found["right"][3].isnan()
    # fitted: in the first step equal shares; then w from (S, Σ s) = (2, 1.1) with R = 1 and (1, 0.4) with R = 0
    fitted = redistribute(reward="right", ridge=1.0)
    state, found = fitted.change(fitted.start, Rewards(values, ("right",), steps), rollout)
    assert found.steps is not None and found.steps[0, [0, 2]].tolist() == pytest.approx([0.5, 0.5])
    moments = torch.tensor([[5.0, 2.6], [2.6, 1.37]], dtype=torch.float64) + torch.eye(2)
    weights = torch.linalg.solve(moments, torch.tensor([2.0, 1.1], dtype=torch.float64))
    assert json.loads(json.dumps(state))["weights"] == pytest.approx(weights.tolist())
    found = fitted.change(state, Rewards(values, ("right",), steps), rollout)[1]
    assert found.steps is not None and found.steps[0].nansum().item() == pytest.approx(1)
    assert (found.steps[0, 0] - found.steps[0, 2]).item() == pytest.approx(0.7 * weights[1].item())


def test_a_vote_credits_who_decides_it():
    # 2 of 3 right: without a right one 1 of 2, a tie, is wrong; without the wrong one 2 of 2 stays right
    verdicts = [1.0, 1, 0, NAN] + [1, 0, NAN] + [1] + [0, 0, 1]
    values = torch.tensor(verdicts, dtype=torch.float64)[:, None]
    rollout = batch([[1]] * 11, (0, 0, 0, 0, 1, 1, 1, 2, 3, 3, 3))
    found = ccpo_vote(reward="right").change({}, Rewards(values, ("right",)), rollout)[1]["right"].tolist()
    # a tie of two is wrong and right without the wrong one; the one alone decides; without a wrong one 1 of 2
    assert [None if math.isnan(one) else one for one in found] == [1, 1, 0, None, 0, -1, None, 1, 0, 0, 0]
    scaled = ccpo_vote(reward="right", threshold=2.0).change({}, Rewards(values * 3, ("right",)), rollout)[1]
    assert scaled["right"][[0, 2, 5]].tolist() == [1, 0, -1]


def test_a_vote_of_29_is_counted_exactly():
    """15 of 29 are right, and 14 of 28 without one of them, which is a tie; 29 * (15 / 29) is above 15 in floats."""
    verdicts = torch.tensor([1.0] * 15 + [0.0] * 14, dtype=torch.float64)[:, None]
    rollout = batch([[1]] * 29, (0,) * 29)
    found = ccpo_vote(reward="right").change({}, Rewards(verdicts, ("right",)), rollout)[1]["right"]
    assert found.tolist() == [1] * 15 + [0] * 14
