"""Jobs of the WMSS study: the saturated policy, and its further training by every arm."""

from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor
from transformers import PreTrainedModel

from ....benchmarks import garden
from ....judges.cdrrm.weak_driven import mixed_cross_entropy
from ....policy.schedulers.wmss import shares
from ....policy.step.forward import CompletionBatch
from ....rm.types import Example, prompt_text
from ...worlds.guides import Base, copy_weights
from ...worlds.policies import split_prompts, unseen_prompts
from ...worlds.small_policies import sample_completions
from ...worlds.small_policies.supervised import (
    SupervisedLoop,
    TokenLosses,
    costs_and_entropies,
    nats_per_token,
    plain_losses,
    rows_of_examples,
    train_supervised,
)
from ...worlds.small_policies.trunk import Layout, completion_logits
from ...worlds.verifiable_garden import verify
from .._runs.job_cache import Arrays, Job

SHARE = 0.5
"""λ of the trained model's logits; also the temperature at which cross-entropy is sampled for comparison."""
ALPHA, BETA, GAMMA = 0.1, 0.8, 0.1
MEASURED = "measured "
COOLED = "gold at temperature λ"


# ---- data ----


@dataclass(frozen=True)
class Demonstrations:
    """Completions that gold prefers: the best of some drafts of the garden's supervised texts."""

    texts: int = 8000
    drafts: int = 4

    def examples(self, seed: int, split: str = "train") -> list[Example]:
        """Return about `texts` completions; those of the training split are of prompts that no evaluation uses."""
        by_prompt = defaultdict(list)
        for gold, example in _drafts(self.texts * self.drafts, seed, split):
            by_prompt[prompt_text(example.prompt)].append((gold, example))
        groups = (
            scored[start : start + self.drafts]
            for scored in by_prompt.values()
            for start in range(0, len(scored) - self.drafts + 1, self.drafts)
        )
        return [max(group, key=lambda scored: scored[0])[1] for group in groups]


@lru_cache(maxsize=2)
def _drafts(number: int, seed: int, split: str) -> list[tuple[float, Example]]:
    """Return about `number` texts with their gold; no start policy has learned them."""
    questions, prompts = garden.questions(), split_prompts()[split != "train"]
    allowed = {prompt_text(prompt) for prompt in prompts}
    drafts = garden.supervised_examples(number * len(questions) // len(prompts), 50_000 + seed, split)
    asked = [draft for draft in drafts if prompt_text(draft.prompt) in allowed]
    return [(float(gold), draft) for gold, draft in zip(garden.gold().rate(asked)[:, 0], asked, strict=True)]


# ---- measurement ----


@cache
def gold_deviation() -> float:
    """Return the standard deviation of gold over supervised texts, the unit of gold in this study."""
    return float(garden.gold().rate(garden.supervised_examples(3000, seed=0))[:, 0].std())


@dataclass(frozen=True)
class Evaluation:
    """Numbers of sampled completions and held-out texts."""

    completions: int = 4096
    texts: int = 1000

    def __call__(self, policy: PreTrainedModel, seed: int) -> dict[str, float]:
        """Measure a policy on the unseen prompts."""
        held_out = Demonstrations(self.texts).examples(seed, "test")
        sampled, gold = self.sample(policy, seed)
        tokens = sampled.rows.response.sum()
        return {
            "gold": gold,
            "right": float(np.mean(verify(sampled.examples))),
            "held_out": nats_per_token(policy, rows_of_examples(held_out)),
            "entropy": float(-sampled.logprob.sum() / tokens),
            "tokens": float(tokens) / self.completions,
        }

    def sample(self, policy: PreTrainedModel, seed: int, temperature: float = 1.0) -> tuple[Any, float]:
        """Return completions and their mean gold in its standard deviations."""
        prompts = unseen_prompts(self.completions)
        sampled = sample_completions(policy, prompts, seed=60_000 + seed, temperature=temperature)
        return sampled, float(garden.gold().rate(sampled.examples)[:, 0].mean() / gold_deviation())


# ---- training ----


@dataclass(frozen=True)
class SaturatedPolicy(Job):
    """The start policy after supervised fine-tuning on demonstrations."""

    base: Base
    loop: SupervisedLoop = field(default_factory=lambda: SupervisedLoop(steps=400))
    data: Demonstrations = field(default_factory=Demonstrations)
    evaluation: Evaluation = field(default_factory=Evaluation)

    def __str__(self) -> str:
        return f"fine-tuning of {self.loop.steps} steps, seed {self.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the weights, the loss of every step, and measurements with the loss on all training texts."""
        seed, policy = self.base.seed, self.base.load(cache)
        rows = rows_of_examples(self.data.examples(seed))
        history = train_supervised(policy, rows, self.loop, seed=seed)
        measured = self.evaluation(policy, seed) | {"training": nats_per_token(policy, rows)}
        named = {f"{MEASURED}{name}": np.array(value) for name, value in ({"loss": history} | measured).items()}
        return {name: weight.detach().numpy() for name, weight in policy.named_parameters()} | named

    def measured(self, cache: Path) -> Arrays:
        """Return the measurements and the loss of every step."""
        stored = self.result(cache).items()
        return {name.removeprefix(MEASURED): values for name, values in stored if name.startswith(MEASURED)}

    def load(self, cache: Path) -> PreTrainedModel:
        """Load the trained policy."""
        policy, stored = self.base.load(cache), self.result(cache)
        weights = {name: values for name, values in stored.items() if not name.startswith(MEASURED)}
        copy_weights(dict(policy.named_parameters()), weights)
        return policy


@dataclass(frozen=True)
class Arm:
    """What further training differs in."""

    weak: Literal["", "previous", "start", "own", "constant"] = ""
    """Logits in the mixture: none, of the model of the round before, of the start policy in all rounds, of the model
    itself at the start of the round, or 0."""
    sampling: Literal["uniform", "entropy", "shuffled"] = "uniform"
    """Probabilities of texts: equal, by WMSS from the entropies of the two models, or those in random order."""
    drafts: int = 4
    """Drafts of which each text is the best, of equally many drafts in all."""
    cooled: bool = False
    """Whether the last model is also sampled at temperature λ."""


@dataclass(frozen=True)
class WeakDrivenArm(Job):
    """Rounds of further training of the saturated policy by one arm."""

    saturated: SaturatedPolicy
    arm: Arm
    loop: SupervisedLoop = field(default_factory=lambda: SupervisedLoop(steps=100))
    rounds: int = 3

    def __str__(self) -> str:
        return f"{self.arm.weak or 'no'} weak logits, {self.arm.sampling} sampling, seed {self.saturated.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the measurements [rounds] after every round."""
        base, seed, measure = self.saturated.base, self.saturated.base.seed, self.saturated.evaluation
        rows = rows_of_examples(self._data().examples(seed))
        start, current = base.load(cache), self.saturated.load(cache)
        previous = start
        measured: list[dict[str, float]] = []
        for index in range(self.rounds):
            sampling = self.probabilities(current, previous, rows, seed)
            losses = mixed_losses(self.arm.weak, {"previous": previous, "start": start, "own": current})
            trained = deepcopy(current)
            draws = (seed + 1) * 100 + index
            train_supervised(trained, rows, self.loop, seed=draws, losses=losses, probabilities=sampling)
            previous, current = current, trained
            effective = float(1 / (len(sampling) * sampling.square().sum()))
            measured.append(measure(current, seed) | {"effective": effective})
        results = {name: np.array([row[name] for row in measured]) for name in measured[0]}
        cooled = {COOLED: np.array(measure.sample(current, seed, SHARE)[1])} if self.arm.cooled else {}
        return results | cooled

    def _data(self) -> Demonstrations:
        data = self.saturated.data
        return Demonstrations(data.texts * data.drafts // self.arm.drafts, self.arm.drafts)

    def probabilities(self, strong: Any, weak: Any, rows: CompletionBatch, seed: int) -> Float[Tensor, " N"]:
        """Return the texts' probabilities of being drawn."""
        number = len(rows.start)
        if self.arm.sampling == "uniform":
            return torch.full((number,), 1 / number)
        entropies = [costs_and_entropies(model, rows)[1].double() for model in (strong, weak)]
        weights = shares(*entropies, ALPHA, BETA, GAMMA).float()
        if self.arm.sampling == "entropy":
            return weights
        return weights[torch.randperm(number, generator=Generator().manual_seed(seed))]


def mixed_losses(weak: str, models: Mapping[str, Any]) -> TokenLosses:
    """Return an arm's loss; with constant logits in the mixture it reads those of the model at λ times their size."""
    if not weak:
        return plain_losses

    def losses(logits: Float[Tensor, "C V"], layout: Layout) -> Float[Tensor, " C"]:
        with torch.no_grad():
            others = torch.zeros_like(logits) if weak == "constant" else completion_logits(models[weak], layout)
        return mixed_cross_entropy(logits, others, layout.targets, SHARE)

    return losses
