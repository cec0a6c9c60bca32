"""The catalogue's methods as `rewardlab rl` names them, alone and one after the other."""

import json

import pytest
import torch
from rewardlab.apps.assembly.policy_training.settings import RlConfig
from rewardlab.policy.advantages.laser import laser
from rewardlab.policy.step.composition import build_algorithm
from rewardlab.policy.types import Rewards, Rollout
from rewardlab.rm.errors import UsageError
from rewardlab.rm.registry.specs import build

TRANSFORMS = [
    "ha_dw(lam=1.3, window=5)",
    "poise(ridge=0.5)",
    "hacpo(floor=0.05, window=3)",
    "nsr(positive=0.1)",
    "ace(alpha=1, of_tokens=True)",
    "resrl(rank=2, most=64)",
    "entropy_mask(share=0.3)",
]


def rollout(rewards: torch.Tensor) -> Rollout:
    """With everything that a formula may ask for."""
    generator = torch.Generator().manual_seed(0)
    response = torch.arange(6) < torch.randint(1, 7, (16, 1), generator=generator)
    logprobs, base = -torch.rand(2, 16, 6, generator=generator) * response
    tokens = torch.randint(3, (16, 6), generator=generator)
    finished = torch.ones(16, dtype=torch.bool)
    made = Rollout(torch.arange(16) // 4, response, finished, tokens=tokens, logprobs=logprobs, base=base)
    entropy, states = torch.rand(16, 6, generator=generator), torch.randn(16, 6, 8, generator=generator)
    return made._replace(total=rewards, entropy=entropy, states=states)


def rewards(seed: int) -> Rewards:
    draw = torch.rand(16, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Rewards(torch.stack([(draw[:, 0] < 0.5).double(), -23 + 10 * draw[:, 1]], 1), ("right", "said"))


def algorithm(**settings):
    config = RlConfig(reward=["right", "said"], **{"weight": ["said=0"]} | settings)
    return build_algorithm(config, ["right", "said"])


def test_an_estimator_keeps_its_own_weights_unless_others_are_given():
    drawn, batch = rewards(0), rollout(rewards(0)["right"])
    for given, weights in (([], None), (["said=0.5"], [1.0, 0.5])):
        scored = algorithm(advantage="laser(reference=-23)", weight=given)(drawn, batch)
        estimate = laser(weights, reference=-23.0)(drawn.values, batch)
        torch.testing.assert_close(scored.advantages["estimate"], estimate)
    with pytest.raises(UsageError, match="got 1; weight both, or use grpo for the verifier"):
        algorithm(advantage="laser(reference=-23)", weight=["said=0"])


def test_all_of_them_one_after_the_other_keep_shape_mask_and_finiteness():
    made = algorithm(advantage="dr_grpo", advantage_transform=TRANSFORMS, scheduler="dars(cap=4)")
    for seed in range(4):
        batch = rollout(rewards(seed)["right"])
        scored = made(rewards(seed), batch)
        assert scored.advantage.shape == (16, 6) and scored.advantage.isfinite().all()
        assert not scored.weights[~batch.response].any()
    other = algorithm(advantage="dr_grpo", advantage_transform=TRANSFORMS, scheduler="dars(cap=4)")
    other.load(json.loads(json.dumps(made.state)))
    batch = rollout(rewards(9)["right"])
    torch.testing.assert_close(made(rewards(9), batch).advantage, other(rewards(9), batch).advantage)


def test_what_could_not_be_read_in_a_paper_has_to_be_given():
    for folder, text, argument in (
        ("losses", "p3o", "epsilon"),
        ("losses", "kimi", "tau"),
        ("losses", "hacpo", "delta"),
        ("transforms", "hacpo(window=3)", "floor"),
        ("advantages", "are", "shape"),
        ("transforms", "ace", "alpha"),
        ("schedulers", "cbs(model=ridge, keep=2)", "longest"),
        ("replays", "cbs(model=mlp, keep=2, longest=9)", "batches"),
    ):
        with pytest.raises(UsageError, match=f"the argument '{argument}' is missing"):
            build(f"policy.{folder}", text)
    with pytest.raises(UsageError, match="missing a required argument: 'shrink'"):
        build("policy.schedulers", "cbs(model=ridge, keep=2, longest=9, penalty=0, ceiling=0)")
