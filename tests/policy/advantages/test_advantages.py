"""policy/advantages: every formula against plain loops, and what all of them promise."""

import math
from statistics import mean, stdev

import pytest
import torch
from rewardlab.policy.advantages._groups import last_token
from rewardlab.policy.types import Rollout
from rewardlab.rm.registry import load, names
from torch import Tensor

NAN = math.nan
LENGTHS = (4, 2, 3, 1, 4, 3, 2, 4)
GROUP = (7, 7, 7, 7, 2, 2, 2, 9)  # the last prompt has one answer
REWARDS = (1.0, 0.0, NAN, 2.0, 0.5, 0.5, 0.5, 3.0)
ESTIMATORS = names("policy.advantages")
SETTINGS = {
    "are": {"shape": 1.0},
    "dacr": {"gamma": 0.5},
    "laser": {"reference": -23.0},
    "noise_forward": {"false_negative": 0.25},
    "pav": {"alpha": 0.5},
}
COMPONENTS = {"ccpo": 2, "dacr": 4, "gdpo": 2, "laser": 2}
STEPS = {"pav", "positionwise"}
TOKENS = {"gae", "gigpo", "reinforce_pp"} | STEPS
VERDICTS = {"debiased", "noise_forward"}
UNCENTRED = {"fixed_baseline", "noise_forward"}


def made(name: str, **settings):
    return load("policy.advantages", name)(**SETTINGS.get(name, {}) | settings)


def rollout(lengths=LENGTHS, group=GROUP, prompt: int = 2, width: int = 8, **fields) -> Rollout:
    place = torch.arange(width)
    response = (place >= prompt) & (place < prompt + torch.tensor(lengths)[:, None])
    generator = torch.Generator().manual_seed(0)
    fields_made = {
        "finished": torch.arange(len(lengths)) % 3 != 1,
        "values": torch.randn(len(lengths), width, generator=generator, dtype=torch.float64),
        "after": torch.randn(len(lengths), generator=generator, dtype=torch.float64),
        "tokens": torch.randint(2, (len(lengths), width), generator=generator),
        # one step, which ends in the last token and has no reward of its own
        "steps": torch.where(last_token(response), 0.0, NAN),
    }
    return Rollout(torch.tensor(group, dtype=torch.long), response, **fields_made | fields)


def rewards_for(name: str, rewards=REWARDS) -> Tensor:
    one = torch.tensor(rewards, dtype=torch.float64)
    if name in VERDICTS:
        return torch.where(one.isfinite(), (one > 0.6).double(), one)
    columns = [one, 10 * one.square() - 20 * (name == "laser"), -one, 2 * one]
    return torch.stack(columns[: COMPONENTS[name]], 1) if name in COMPONENTS else one


def estimate(name: str, rewards=REWARDS, **fields) -> Tensor:
    return made(name)(rewards_for(name, rewards), rollout(**fields))


def by_loop(formula, rewards=REWARDS, group=GROUP) -> list[float]:
    """`formula(reward, rewards of the group, rewards of all that count)` of every row that counts, else 0."""
    members = {g: [r for r, h in zip(rewards, group, strict=True) if h == g and not math.isnan(r)] for g in group}
    everyone = [r for g in dict.fromkeys(group) for r in members[g] if len(members[g]) > 1]
    return [
        0.0 if math.isnan(r) or len(members[g]) < 2 else formula(r, members[g], everyone)
        for r, g in zip(rewards, group, strict=True)
    ]


GROUP_FORMULAS = {
    "grpo": lambda r, mine, _: (r - mean(mine)) / (stdev(mine) + 1e-4),
    "dr_grpo": lambda r, mine, _: r - mean(mine),
    "rloo": lambda r, mine, _: r - (sum(mine) - r) / (len(mine) - 1),
    "lite_ppo": lambda r, mine, everyone: (r - mean(mine)) / (stdev(everyone) + 1e-4),
}


def test_a_group_formula_is_its_plain_loop():
    for name, formula in GROUP_FORMULAS.items():
        assert estimate(name).tolist() == pytest.approx(by_loop(formula)), name
    # rewards 1, 0, 2 in a group: 1 - (0 + 2)/2 = 0, 0 - (1 + 2)/2 = -1.5, 2 - (1 + 0)/2 = 1.5
    assert estimate("rloo")[[0, 1, 3]].tolist() == [0.0, -1.5, 1.5]


def test_gdpo_normalises_each_reward_before_it_adds_them():
    mine = [1.0, 0.0, 2.0]
    squares = [10 * r * r for r in mine]
    parts = [
        (r - mean(mine)) / (stdev(mine) + 1e-4) + (s - mean(squares)) / (stdev(squares) + 1e-4)
        for r, s in zip(mine, squares, strict=True)
    ]
    everyone = [*parts, 0.0, 0.0, 0.0]  # the second group's rewards are all equal
    expected = [(one - mean(everyone)) / (stdev(everyone) + 1e-4) for one in everyone]
    found = estimate("gdpo")
    torch.testing.assert_close(found[[0, 1, 3, 4, 5, 6]].tolist(), expected)
    assert found[2] == found[7] == 0


def test_a_constant_reward_and_one_of_weight_0_change_nothing_under_gdpo():
    """The reward of weight 0 is missing everywhere."""
    gdpo, one = load("policy.advantages", "gdpo"), torch.tensor([1.0, 0, 3, 2, 0.5, 0.2, 0.1, 3], dtype=torch.float64)
    expected = gdpo()(one[:, None], rollout())
    torch.testing.assert_close(gdpo()(torch.stack([one, torch.full_like(one, 1000.0)], 1), rollout()), expected)
    missing = torch.stack([torch.full_like(one, NAN), one], 1)
    torch.testing.assert_close(gdpo([0.0, 1.0])(missing, rollout()), expected)
    with pytest.raises(ValueError, match="all rewards have weight 0"):
        gdpo([0.0, 0.0])(missing, rollout())
    with pytest.raises(ValueError, match="1 weights for 2 rewards; .* also for a reward that a transform adds"):
        gdpo([1.0])(missing, rollout())


def test_gae_bootstraps_a_truncated_completion_only_without_a_terminal_reward():
    """Two tokens, V = (1, 2), gamma = 1, lambda = 1/2."""
    gae = load("policy.advantages", "gae")(lam=0.5)
    batch = rollout((2,), (0,), values=torch.tensor([[9.0, 9, 1, 2, 9, 9, 9, 9]]), after=torch.tensor([7.0]),
                    finished=torch.tensor([False]))  # fmt: skip
    ended = batch._replace(finished=torch.tensor([True]))
    # a reward of 5 for the completion ends it, cut off or not: delta = (2 - 1, 5 - 2); A = (1 + 3/2, 3)
    assert [gae(torch.tensor([5.0]), one)[0, 2:4].tolist() for one in (batch, ended)] == [[2.5, 3.0]] * 2
    # a step's reward of 5 at the last token does not: delta = (2 - 1, 5 + 7 - 2)
    steps = torch.zeros(1, 8).index_fill(1, torch.tensor([3]), 5.0)
    assert gae(steps, batch)[0, 2:4].tolist() == [6.0, 10.0]
    assert gae(steps, ended)[0, 2:4].tolist() == gae(steps, batch._replace(after=None))[0, 2:4].tolist() == [2.5, 3.0]


def test_gae_reads_past_what_a_tool_wrote():
    """The same completion with and without three tokens of a tool between its first and second token."""
    gae = load("policy.advantages", "gae")(gamma=0.9, lam=0.5)
    own = torch.tensor([[True, True, True]]), torch.tensor([[1.0, 2.0, 3.0]])
    interrupted = torch.tensor([[True, False, False, False, True, True]]), torch.tensor([[1.0, 8, 8, 8, 2.0, 3.0]])
    plain, apart = (
        gae(torch.tensor([5.0]), Rollout(torch.tensor([0]), response, torch.tensor([True]), values=values))
        for response, values in (own, interrupted)
    )
    assert apart[:, [0, 4, 5]].tolist() == plain.tolist() and not apart[:, 1:4].any()


@pytest.mark.parametrize("name", ["gigpo", "reinforce_pp"])
def test_a_discount_is_per_token_of_the_policy_not_of_a_tool(name):
    """Three completions of three tokens, one with three tokens of a tool between its first and second token.

    Their first tokens differ, so that they share the state before it, and no later one.
    """
    estimator, first = load("policy.advantages", name)(gamma=0.5), torch.tensor([[1, 1, 1, 0, 0, 0]])
    tokens = torch.arange(3)[:, None].expand(3, 6)
    plain, apart = (
        estimator(
            torch.tensor([8.0, 4.0, 0.0]),
            Rollout(torch.zeros(3, dtype=torch.long), mask.bool(), torch.ones(3, dtype=torch.bool), tokens=tokens),
        )
        for mask in (first.repeat(3, 1), torch.cat([first, torch.tensor([[1, 0, 0, 0, 1, 1]]), first]))
    )
    assert apart[1, [0, 4, 5]].tolist() == plain[1, :3].tolist() and not apart[1, 1:4].any()
    assert apart[[0, 2]].tolist() == plain[[0, 2]].tolist()


def test_reinforce_pp_is_the_return_in_units_of_all_tokens():
    gamma, batch = 0.5, rollout()
    found = load("policy.advantages", "reinforce_pp")(gamma=gamma)(torch.tensor(REWARDS, dtype=torch.float64), batch)
    returns = {
        (row, t): reward * gamma ** (length - 1 - t)
        for row, (length, reward) in enumerate(zip(LENGTHS, REWARDS, strict=True))
        if not math.isnan(reward)
        for t in range(length)
    }
    centre, spread = mean(returns.values()), stdev(returns.values()) + 1e-8
    for (row, t), one in returns.items():
        assert found[row, 2 + t].item() == pytest.approx((one - centre) / spread)


def test_rewards_of_tokens_are_taken_as_they_are():
    batch = rollout(after=None)
    rewards = torch.tensor([0.0 if math.isnan(r) else r for r in REWARDS], dtype=torch.float64)
    last = torch.zeros(8, 8, dtype=torch.float64)
    last[torch.arange(8), 1 + torch.tensor(LENGTHS)] = rewards
    for name in ("gae", "reinforce_pp"):
        estimator = load("policy.advantages", name)()
        torch.testing.assert_close(estimator(rewards, batch), estimator(last, batch))


def taken(batch: Rollout, rows) -> Rollout:
    return Rollout(*(one[rows] if isinstance(one, Tensor) else one for one in batch))


def test_a_missing_reward_counts_for_nobody_and_rows_may_come_in_any_order():
    """Whatever else is in the row without a reward, and whether the row is there at all."""
    rows = [0, 1, 3, 4, 5, 6, 7]
    for name in ESTIMATORS:
        found = estimate(name)
        assert found.isfinite().all() and not found[2].any(), name
        assert torch.allclose(found[rows], made(name)(rewards_for(name)[rows], taken(rollout(), rows))), name
    order = torch.tensor([5, 0, 7, 2, 1, 6, 3, 4])
    for name in ESTIMATORS:
        found = made(name)(rewards_for(name)[order], taken(rollout(), order))
        assert torch.allclose(found, estimate(name)[order]), name


def test_equal_rewards_are_worth_exactly_nothing():
    """Twelve rewards of -23.1 differ from their float32 mean; divided by a tiny deviation that was 0.77."""
    batch = rollout((3,) * 12, (0,) * 12)

    def equal(name: str, dtype: torch.dtype) -> Tensor:
        shape = (12, COMPONENTS[name]) if name in COMPONENTS else (12,)
        return torch.full(shape, 1.0 if name in VERDICTS else -23.1, dtype=dtype)

    for name in sorted({*ESTIMATORS} - {"gae", "reinforce_pp"} - UNCENTRED):
        for dtype in (torch.float32, torch.bfloat16):
            assert not made(name)(equal(name, dtype), batch).any(), (name, dtype)
    for name in ("grpo", "gdpo", "gigpo", "laser"):
        assert not made(name, epsilon=0.0)(equal(name, torch.float32), batch).any(), f"{name} without an epsilon"


def test_another_group_never_matters():
    changed = (*REWARDS[:4], 9.0, -4.0, NAN, 1.0)
    for name in sorted({*ESTIMATORS} - {"are", "dacr", "gae", "reinforce_pp", "lite_ppo", "gdpo"}):
        assert torch.allclose(estimate(name, changed)[:4], estimate(name)[:4]), name


def test_an_infinite_reward_is_refused_by_its_place_and_a_token_outside_the_answer_has_no_advantage():
    for name in ESTIMATORS:
        with pytest.raises(ValueError, match=r"the reward at \(4,.*is inf; a missing reward must be NaN"):
            estimate(name, (*REWARDS[:4], math.inf, *REWARDS[5:]))
        found = estimate(name)
        assert found.dim() == 1 or not found[~rollout().response].any(), name


def test_blocks_of_are_may_be_random_and_are_the_same_each_time():
    rewards = torch.tensor([0.0, 0.1, 0.2, 5.0, 5.1, 5.2], dtype=torch.float64)
    batch = rollout((1,) * 6, (0,) * 6)
    blocks = [load("policy.advantages", "are")(shape=1.0, blocks=2, seed=seed) for seed in (None, 0, 0, 1)]
    consecutive, first, again, other = (estimator(rewards, batch) for estimator in blocks)
    assert torch.equal(first, again) and not torch.equal(first, consecutive) and not torch.equal(first, other)
    gaps = [found - found[0] for found in (consecutive, first, other)]  # only the centre differs
    torch.testing.assert_close(gaps[0], gaps[1])
    torch.testing.assert_close(gaps[0], gaps[2])


def test_an_empty_answer_and_an_empty_step_are_no_trouble():
    for name in sorted(TOKENS):
        batch = rollout((0, 2), (0, 0))
        assert not made(name)(torch.tensor([1.0, 2.0]), batch)[0].any()
    for name in sorted({*ESTIMATORS} - TOKENS - {*COMPONENTS}):
        assert made(name)(torch.zeros(0), rollout((), ())).shape == (0,)
