"""The catalogue's formulas in `rewardlab rl`: each trains a policy of the toy world, or is refused before it starts."""

import math

import pytest

from tests.apps.conftest import steps_of

VERDICT = "verdict=tests.apps.assembly.policy_training.test_methods:verdict"
NOISY = "noise_backward(reward=verdict, false_positive=0.1, false_negative=0.2)"
TRANSFORMS = ["ha_dw", "nsr(positive=0.1)", "ace(alpha=1.0)", "resrl(rank=4)", "entropy_mask"]
ANSWERS = ["--advantage", "dr_grpo", "--aggregation", "completion_mean", "--num_iterations", 2]
BANDIT = "longest=16, penalty=0.1, ceiling=2.0, warm_up=1"
REPLAY = f"learning_rate=0.1, {BANDIT}"
METHODS = {
    "noise backward": ["--advantage", "fixed_baseline(baseline=0.5)", "--reward_transform", NOISY],
    "transforms": ["--advantage", "dr_grpo", "--advantage_transform", *TRANSFORMS],
    "wmss": ["--scheduler", "wmss(gained=0.7, lost=0.2)"],
    "cbs in groups": ["--scheduler", f"cbs(model=ridge, shrink=1.0, bonus=0.5, keep=2, {BANDIT})"],
    "cbs of past answers": ["--num_iterations", 2, "--replay", f"cbs(model=mlp, over=10, keep=8, batches=2, {REPLAY})"],
    "pipo": ["--replay", "pipo(window=2, damping=1.0)", "--num_iterations", 2, "--steps_per_generation", 2],
    "kimi": [*ANSWERS, "--loss", "kimi(tau=0.1)"],
    "rpo": [*ANSWERS, "--loss", "rpo(beta=0.1, eta=0.01)"],
    "p3o beside a KL": [*ANSWERS, "--loss", "p3o(epsilon=0.2)", "--kl", 0.1],
}

QUICK = ("noise backward", "transforms", "pipo", "kimi", "rpo")
"""Tried in `make test`; the others in `make test-all`."""


def verdict():
    """Right where an answer has an even number of words, which about half of them have."""
    return lambda examples: [float(len(one.completion.split()) % 2 == 0) for one in examples]


@pytest.mark.parametrize(
    "name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in METHODS]
)
def test_a_method_trains_a_policy(name, rl):
    steps = {"pipo": 8, "cbs of past answers": 6}.get(name, 3)
    code, _, told, folder = rl("--reward", VERDICT, *METHODS[name], "--max_steps", steps)
    assert code == 0, told
    rows = steps_of(folder)
    assert len(rows) == steps and all(math.isfinite(row["loss"]) for row in rows)
    assert any(row["grad_norm"] > 0 for row in rows)


def test_what_cannot_work_is_refused_before_anything_is_trained(rl):
    for flags, reason in (
        (["--advantage", "lite_ppo", "--reward_transform", NOISY], "cancels the correction"),
        (["--loss", "rewardlab.rm.types:user_turn(text=x)"], "neither a clip rule nor a loss of whole completions"),
        (["--advantage", "dr_grpo", "--advantage_transform", "entropy_mask", "ha_dw"], "comes after"),
    ):
        code, _, told, folder = rl("--reward", VERDICT, *flags, "--max_steps", 1)
        assert code == 2 and reason in str(told) and not folder.exists(), flags
