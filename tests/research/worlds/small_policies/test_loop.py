from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from rewardlab.benchmarks.garden import questions
from rewardlab.policy.advantages.gae import gae
from rewardlab.policy.advantages.rloo import rloo
from rewardlab.policy.aggregations.token_mean import token_mean
from rewardlab.policy.losses.kimi import kimi
from rewardlab.policy.losses.ppo import ppo
from rewardlab.policy.step.algorithm import Algorithm
from rewardlab.policy.training.critic import CriticArguments
from rewardlab.policy.training.prompts import spread_over_variants
from rewardlab.research.worlds.small_policies import PolicyLoop, completion_readings, sample_completions, train_policy
from rewardlab.rm.errors import UsageError
from torch.optim.optimizer import register_optimizer_step_post_hook

PROMPTS = questions()[:16]
LOOP = PolicyLoop(cycles=2, prompts=2, group=4, learning_rate=1e-3, longest=8)


def odd(completions) -> torch.Tensor:
    """Reward: the number of tokens with an odd id."""
    rows = completions.rows
    after = torch.arange(rows.tokens.shape[1]) >= rows.start[:, None]
    return (rows.tokens % 2 * (rows.attention & after)).sum(1).double()


def last_batch(state, total, past):
    """A replay of all completions of the last batch."""
    return state, past.advantage


def run(policy, reward=odd, loop=LOOP, **options):
    algorithm = options.pop("algorithm", None) or Algorithm(rloo(), ppo(), token_mean())
    return [*train_policy(policy, reward, algorithm, loop, PROMPTS, seed=0, **options)]


def test_a_step_is_adamw_on_the_policy_gradient(policy):
    """First cycle by hand: ratio 1, so the loss is -Σ w A log π with A of RLOO and w = 1 / tokens."""
    start = deepcopy(policy)
    cycles = train_policy(policy, odd, Algorithm(rloo(), ppo(), token_mean()), LOOP, PROMPTS, seed=0)
    next(cycles)
    scored = next(cycles).scored
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))[:2]
    prompts = [PROMPTS[index] for index in order for _ in range(4)]
    drawn = sample_completions(start, prompts, seed=1_000_003, longest=8)
    assert scored.total.tolist() == odd(drawn).tolist()
    rewards = odd(drawn).view(2, 4)
    advantage = (rewards - (rewards.sum(1, keepdim=True) - rewards) / 3).flatten()
    read = completion_readings(start, drawn.rows)
    loss = -(advantage[:, None] * read.logprob).sum() / drawn.rows.response.sum()
    optimizer = torch.optim.AdamW(start.parameters(), lr=1e-3, weight_decay=0.0)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(start.parameters(), 1.0)
    optimizer.step()
    moved = torch.cat([weight.flatten() for weight in policy.parameters()])
    assert advantage.any()
    expected = torch.cat([weight.flatten() for weight in start.parameters()])
    assert (abs(moved - expected) < 1e-4).double().mean() > 0.999  # Adam's first step is the sign where g is near 0


def test_a_missing_reward_has_no_effect_and_is_no_zero(policy):
    def some(completions):
        rewards = odd(completions).numpy().copy()
        rewards[1] = np.nan
        return rewards

    scored = run(policy, some)[1].scored
    assert scored.total.isnan().nonzero().flatten().tolist() == [1]
    assert scored.advantage[1].abs().sum() == 0 and scored.weights[1].sum() == 0


def test_passes_and_replays_take_one_more_step_each(policy):
    def count(passes=1, **options):
        steps = []
        hook = register_optimizer_step_post_hook(lambda *_: steps.append(1))
        run(deepcopy(policy), loop=replace(LOOP, cycles=4, passes=passes), **options)
        hook.remove()
        return len(steps)

    assert count() == 4
    assert count(passes=3) == 12
    assert count(replay=last_batch) == 4 + 3  # there is no last batch in the first cycle


def test_a_cycle_that_replays_nothing_has_no_update_of_past_completions(policy):
    """AdamW moves weights by its momentum even where the gradient is 0."""
    plain, without = policy, deepcopy(policy)
    run(plain)
    run(without, replay=lambda state, total, past: (state, None))
    for weight, expected in zip(without.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(weight, expected)


def test_the_critic_learns_the_reward(policy):
    loop = replace(LOOP, cycles=10)
    algorithm = Algorithm(gae(lam=0.95), ppo(), token_mean())
    critic = CriticArguments(learning_rate=1e-2, passes=8)
    reports = run(
        policy, lambda completions: np.ones(len(completions.examples)), loop, algorithm=algorithm, critic=critic
    )
    first, last = (reports[index].scored.advantage.abs().mean() for index in (1, -1))
    assert last < 0.3 * first  # of a constant reward no advantage is left


def test_an_online_reward_reads_states_and_learns_after_every_cycle(policy):
    class Online:
        def __init__(self):
            self.rated, self.learned = [], []

        def rate(self, examples, states):
            self.rated.append([len(state) for state in states])
            return np.arange(len(examples), dtype=float)[:, None]

        def learn(self, cycle):
            self.learned.append((len(cycle.examples), [len(state) for state in cycle.states]))
            return {"accuracy": 0.5}

    online = Online()
    reports = run(policy, online)
    assert [report.metrics.get("accuracy") for report in reports] == [None, 0.5, 0.5]
    assert [count for count, _ in online.learned] == [8, 8]
    assert [lengths for _, lengths in online.learned] == online.rated


KIMI = Algorithm(rloo(), kimi(tau=0.1), token_mean())
ENTROPY = Algorithm(rloo(), ppo(), token_mean(), entropy=0.1)


@pytest.mark.parametrize("algorithm", [KIMI, ENTROPY])
def test_what_the_loop_does_not_compute_is_refused(policy, algorithm):
    with pytest.raises(UsageError, match="clip rules and losses of single tokens without an entropy bonus"):
        run(policy, algorithm=algorithm)


def test_variants_of_a_prompt_share_a_group_in_equal_parts(policy):
    """With prompts 2 k and 2 k + 1 as variants, the groups are those of `spread_over_variants`."""
    asked = []

    def reward(completions):
        asked.append([example.prompt for example in completions.examples])
        return odd(completions)

    loop = replace(LOOP, cycles=1, variants=2)
    scored = run(policy, reward, loop)[1].scored
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))[:2]
    rows = [{"prompt": PROMPTS[2 * k], "variants": PROMPTS[2 * k : 2 * k + 2]} for k in order for _ in range(4)]
    assert asked == [[row["prompt"] for row in spread_over_variants(rows, 4)]]
    totals, advantages = scored.total.reshape(2, 4), scored.advantage[:, 0].reshape(2, 4)
    assert torch.allclose(advantages, (4 * totals - totals.sum(1, keepdim=True)) / 3)
