"""Each entry of the registries of policy training trains two steps of the toy policy."""

import math

import pytest
import torch
from rewardlab.apps.assembly.policy_training.settings import RlConfig
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.rewards.step_rewards import StepReward
from rewardlab.policy.step.composition import build_algorithm
from rewardlab.policy.training.critic import CriticArguments
from rewardlab.rm.errors import UsageError
from rewardlab.rm.registry import names

from tests.policy.advantages.test_advantages import COMPONENTS, STEPS
from tests.policy.toy_training import logged
from tests.policy.transforms.test_transforms import ADVANTAGES

SPECS = {
    "advantages/are": "are(shape=1, blocks=2, seed=0)",
    "advantages/dacr": "dacr(gamma=0.5)",
    "advantages/laser": "laser(reference=-23)",
    "advantages/noise_forward": "noise_forward(false_negative=0.25)",
    "advantages/pav": "pav(alpha=0.5)",
    "losses/cispo": "cispo(high=1.3)",
    "losses/dispo": "dispo(right_low=0, right_high=1.3, wrong_low=0.5, wrong_high=2)",
    "losses/hacpo": "hacpo(delta=0.8)",
    "losses/laser": "laser(verdict=right, token=5, reference=-3, loss=dapo(high=0.3))",
    "losses/kimi": "kimi(tau=0.1)",
    "losses/p3o": "p3o(epsilon=0.2)",
    "losses/rpo": "rpo(beta=0.1, eta=0.01, scale=0.5, rate=0.5, margin=0.1)",
    "transforms/ace": "ace(alpha=1)",
    "transforms/hacpo": "hacpo(floor=0.1)",
    "transforms/entropy_performance": "entropy_performance(alpha=0.1, gamma=0.1)",
    "transforms/prefix": "prefix(first=0.5, steps=2)",
    "transforms/progrpo": "progrpo(alpha=0.3)",
    "transforms/calibrated": "calibrated(reward=right, baseline=style)",
    "transforms/clip": "clip(eta=0.5)",
    "transforms/format_gate": "format_gate(reward=style, by=right)",
    "transforms/gate": "gate(reward=style, by=right, threshold=1)",
    "transforms/length": "length(correct=right)",
    "transforms/missing_eos": "missing_eos(reward=right, cost=0.5)",
    "transforms/noise_backward": "noise_backward(reward=right, false_positive=0.1, false_negative=0.2)",
    "transforms/redistribute": "redistribute(reward=right, ridge=1)",
    "transforms/std_filter": "std_filter(reward=right)",
    "transforms/ccpo_vote": "ccpo_vote(reward=right)",
    "transforms/ccpo_thinker": "ccpo_thinker(joint=right, solo=style)",
    "transforms/ccpo_solver": "ccpo_solver(reward=right)",
    "schedulers/cbs": "cbs(model=ridge, keep=2, longest=16, penalty=0.1, ceiling=2, shrink=1.0, bonus=0.5)",
    "schedulers/mpo": "mpo(gap=0.5, side=large)",
    "schedulers/rorecomp": "rorecomp(share=0.5)",
    "schedulers/pf_ppo": "pf_ppo(kind=best_worst)",
}
"""Entries with required arguments."""
ELSEWHERE = {"transforms/pessimism"}
"""Needs an ensemble: tests/policy/rewards/test_sources.py."""
FOLDERS = ("advantages", "losses", "transforms", "schedulers")
ENTRIES = [f"{folder}/{name}" for folder in FOLDERS for name in names(f"policy.{folder}")]
OF_STEPS = {*(f"advantages/{name}" for name in STEPS), *(f"transforms/{name}" for name in ("clip", "delta"))}
OF_STEPS |= {"transforms/redistribute"}


def right(examples):
    """Verdicts that differ within a prompt and that no training changes."""
    return [float(len(example.text) % 2) for example in examples]


def style(examples):
    return [len(example.text) / 10 for example in examples]


class Halves:
    """The first and the second half of a text are its steps."""

    def __call__(self, examples):
        return [0.0] * len(examples)

    def step_rewards(self, examples):
        ends = [sorted({max(1, len(example.text) // 2), max(1, len(example.text))}) for example in examples]
        return [[StepReward(end, 1 / (1 + end % 3)) for end in row] for row in ends]


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry not in ELSEWHERE])
@pytest.mark.filterwarnings("ignore:are")
def test_an_entry_trains_two_steps(entry, make_trainer):
    folder, _, name = entry.partition("/")
    number = COMPONENTS.get(name, 1) if folder == "advantages" else 2
    sources = {"right": right, "style": style, "third": style, "fourth": right}
    sources = {name: sources[name] for name in [*sources][:number]}
    sources |= {"steps": Halves()} if entry in OF_STEPS else {}
    settings = {"reward": [*sources], "advantage": "dr_grpo", "weight": ["style=0"] if number == 2 else []}
    spec = SPECS.get(entry, name)
    match folder:
        case "advantages":
            settings |= {"advantage": spec, "weight": []}
        case "losses":
            settings["loss"] = spec
        case "schedulers":
            settings["scheduler"] = spec
        case "transforms" if name in ADVANTAGES:
            settings["advantage_transform"] = [spec]
        case "transforms":
            settings |= {"reward_transform": [spec], "weight": ["style=0"] * (name == "ccpo_thinker")}
    algorithm = build_algorithm(RlConfig(**settings), [*sources])
    critic = {"critic": CriticArguments()} if name == "gae" else {}
    trainer = make_trainer(algorithm, RewardSources(sources), max_steps=2, **critic)
    before = [weight.detach().clone() for weight in trainer.language_model.parameters()]
    trainer.train()
    assert len(logged(trainer, "loss")) == 2 and all(map(math.isfinite, logged(trainer, "loss")))
    pairs = zip(before, trainer.language_model.parameters(), strict=True)
    moved = [not torch.equal(old, new) for old, new in pairs]
    assert any(moved) and all(weight.isfinite().all() for weight in trainer.language_model.parameters())


def test_a_weight_of_rewards_of_steps_is_refused_before_the_first_step(make_trainer):
    sources = {"right": right, "steps": Halves()}
    algorithm = build_algorithm(RlConfig(reward=[*sources], advantage="gae", weight=["steps=0.5"]), [*sources])
    with pytest.raises(UsageError, match="the weight of 'steps' is 0.5, but its rewards are of single steps"):
        make_trainer(algorithm, RewardSources(sources), max_steps=2, critic=CriticArguments())
