"""`train_policy` with a replay: cycles that replay nothing, and fields of the rollout that a replay reads."""

import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.policy.composition.algorithm import Algorithm, Penalty
from rewardlab.research.worlds.small_policies import PolicyLoop, train_policy
from rewardlab.rm.registry import load


def train(replay, cycles: int = 3) -> dict[str, torch.Tensor]:
    """Return the weights after training with a KL in the loss."""
    policy, start = (causal_lm(tokenizer(), seed=0) for _ in range(2))
    names = {"advantages": "grpo", "losses": "ppo", "aggregations": "token_mean"}
    algorithm = Algorithm(
        *(load(f"policy.{folder}", name)() for folder, name in names.items()), penalty=Penalty(0.1, "loss", "k3")
    )
    reports = train_policy(
        policy,
        lambda completions: [float(len(example.completion)) for example in completions.examples],
        algorithm,
        PolicyLoop(cycles, prompts=2, group=2, longest=4),
        garden.questions()[:4],
        seed=0,
        reference=start,
        replay=replay,
    )
    assert [report.cycle for report in reports] == [*range(cycles + 1)]
    return {name: weight.detach() for name, weight in policy.named_parameters()}


def test_a_cycle_that_replays_nothing_has_no_update_of_past_completions():
    """AdamW moves weights by its momentum even where the gradient is 0."""
    plain, without = train(None), train(lambda state, total, past: (state, None))
    for name, weight in plain.items():
        torch.testing.assert_close(without[name], weight)
    again = train(lambda state, total, past: (state, past.advantage))
    assert any((again[name] - weight).abs().max() > 1e-5 for name, weight in plain.items())
