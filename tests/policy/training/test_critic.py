import math

import pytest
import torch
from rewardlab.policy.step.algorithm import Algorithm, Penalty
from rewardlab.policy.step.metrics import explained_variance
from rewardlab.policy.training.critic import Critic, CriticArguments, CriticLearner, Targets, critic_returns, value_loss
from rewardlab.policy.types import Rewards, Rollout
from rewardlab.rm.registry import load

HERE = torch.ones(1, 4, dtype=torch.bool)


def test_a_value_loss_worked_out_by_hand_with_a_bound_and_without():
    old = torch.zeros(1, 4)
    values = torch.tensor([[0.1, 0.5, 0.5, -0.5]], requires_grad=True)
    returns = torch.tensor([[1.0, 1.0, 0.0, 1.0]])
    # clipped at 0.2: the second counts as 0.2, ½ 0.8²; the third as itself, further off; the fourth as itself
    loss = value_loss(values, old, returns, HERE, clip=0.2)
    assert loss[0].tolist() == pytest.approx([0.5 * 0.81, 0.5 * 0.64, 0.5 * 0.25, 0.5 * 2.25])
    (gradient,) = torch.autograd.grad(loss.sum(), values)
    assert gradient[0].tolist() == pytest.approx([-0.9, 0.0, 0.5, -1.5])
    values, returns = torch.tensor([[1.0, 2.0, 3.0, 9.0]]), torch.zeros(1, 4)
    inside = torch.tensor([[True, True, False, False]])
    assert value_loss(values, 100 + values, returns, inside, clip=math.inf)[0].tolist() == [0.5, 2.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="a distance > 0, or inf for no clipping, got 0.0"):
        value_loss(values, values, returns, inside, clip=0.0)


def test_explained_variance_worked_out_by_hand():
    returns = torch.tensor([[0.0, 2.0, 4.0, 99.0]])
    inside = torch.tensor([[True, True, True, False]])
    assert explained_variance(returns, returns, inside) == 1
    assert explained_variance(torch.full_like(returns, 7.0), returns, inside) == 0
    # residuals 0, 1, 2: variance 1 of 4
    assert explained_variance(returns / 2, returns, inside) == pytest.approx(0.75)
    assert math.isnan(explained_variance(returns, torch.ones(1, 4), inside))


def test_a_critic_starts_at_nothing_learns_in_float32_and_never_moves_the_states():
    critic, states = Critic(3), torch.randn(2, 5, 3, requires_grad=True)
    assert not critic(states).any()
    loss = (critic(states) - 1).square().sum()
    loss.backward()
    assert states.grad is None and critic.head.bias.grad.item() == pytest.approx(-20.0)
    assert Critic(3)(torch.zeros(1, 2, 3, dtype=torch.bfloat16)).dtype == torch.float32


def scored_by(steps: list[float] | None = None, penalty: Penalty | None = None, share: float = 1.0, **fields):
    """One completion of three tokens with a reward of 10, and the critic's targets for it at λ = 1."""
    given = {"logprobs": torch.tensor([[-1.0, -2.0, -3.0]]), "base": torch.tensor([[-2.0, -2.0, -5.0]])}
    rollout = Rollout(
        torch.zeros(1, dtype=torch.long), torch.ones(1, 3, dtype=torch.bool), torch.tensor([True]),
        **given, values=torch.zeros(1, 3), after=torch.tensor([7.0]),
    )._replace(**fields)  # fmt: skip
    algorithm = Algorithm(
        load("policy.advantages", "gae")(lam=1.0), load("policy.losses", "ppo")(),
        load("policy.aggregations", "token_mean")(), penalty=penalty or Penalty(), shares={"right": share},
    )  # fmt: skip
    rewards = Rewards(torch.tensor([[10.0]]), ("right",), None if steps is None else torch.tensor([steps]))
    scored = algorithm(rewards, rollout)
    returns = critic_returns(scored, rollout, gamma=1.0, lam=1.0)
    assert torch.equal(returns, scored.advantage), "with values of 0 both are the rewards that follow"
    return returns[0].tolist()


def test_the_critics_targets_are_the_rewards_that_advantages_are_made_of():
    assert scored_by() == [10.0, 10.0, 10.0]
    assert scored_by([1.0, math.nan, 2.0]) == [13.0, 12.0, 12.0]
    # log π - log base is 1, 0, 2: half of it is what the tokens cost
    assert scored_by(penalty=Penalty(0.5, "token", "k1")) == [8.5, 9.0, 9.0]
    assert scored_by([1.0, math.nan, 2.0], penalty=Penalty(0.5, "token", "k1")) == [11.5, 11.0, 11.0]
    cut = {"finished": torch.tensor([False])}
    assert scored_by([1.0, 0.0, 2.0], **cut) == [13.0, 12.0, 12.0]
    assert scored_by([1.0, 0.0, 2.0], share=0.0, **cut) == [10.0, 9.0, 9.0]  # the critic's 7 follows the steps' 3


def test_the_critics_targets_are_discounted_like_the_advantages():
    """Under values with γ = 1, δ = r + γ V' - V would be below 0 for a reward that the critic knows exactly."""
    gae = load("policy.advantages", "gae")(gamma=0.5, lam=1.0)
    formulas = (load("policy.losses", "ppo")(), load("policy.aggregations", "token_mean")())
    algorithm = Algorithm(gae, *formulas)
    rollout = Rollout(
        torch.zeros(1, dtype=torch.long), torch.ones(1, 3, dtype=torch.bool), torch.tensor([True]),
        values=torch.zeros(1, 3), after=torch.zeros(1),
    )  # fmt: skip
    scored = algorithm(Rewards(torch.tensor([[8.0]]), ("right",)), rollout)
    returns = critic_returns(scored, rollout, algorithm.gamma, lam=1.0)
    assert returns[0].tolist() == [2.0, 4.0, 8.0]
    learned = rollout._replace(values=returns)
    assert not algorithm(Rewards(torch.tensor([[8.0]]), ("right",)), learned).advantage.any()


def test_passes_are_so_many_steps_on_all_micro_batches_of_a_step():
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(6, 5, 8, generator=generator)  # one state behind the 4 tokens
    returns = torch.randn(6, 4, generator=generator)
    response = torch.ones(6, 4, dtype=torch.bool)
    targets = Targets(torch.zeros(6, 4), returns, response, 1 / 24)
    whole = CriticLearner(8, CriticArguments(learning_rate=0.1), torch.device("cpu"))
    split = CriticLearner(8, CriticArguments(learning_rate=0.1, passes=3), torch.device("cpu"))
    losses = []
    for _ in range(3):
        losses.append(whole.learn(states, targets))
        whole.step()
    for part in (slice(0, 2), slice(2, 6)):
        split.learn(states[part], Targets(*(one[part] for one in targets[:3]), 1 / 24))
    split.step()
    torch.testing.assert_close(split.critic.head.weight, whole.critic.head.weight)
    assert losses[0] > losses[1] > losses[2] and split.batches == []
    other = CriticLearner(8, CriticArguments(learning_rate=0.1), torch.device("cpu"))
    other.load(split.state())
    torch.testing.assert_close(other.critic(states), split.critic(states))
