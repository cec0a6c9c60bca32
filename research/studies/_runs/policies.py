"""Policies trained in the garden world, with proxy and gold rewards of their completions during training."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel, PrinterCallback, TrainerCallback

from ....benchmarks import garden
from ....benchmarks.garden.gold_reward import features
from ....benchmarks.garden.models import tokenizer
from ....policy.composition.algorithm import Algorithm, Penalty
from ....policy.decoding.language_models import decoding_model, prompts_of
from ....policy.decoding.requests import DecodedCompletion, Request
from ....policy.rewards.sources import RewardSources
from ....policy.training.arguments import PolicyArguments
from ....policy.training.critic import CriticArguments
from ....policy.training.trainer import PolicyTrainer
from ....rm.backbones.logprobs import completion_logprobs
from ....rm.backbones.tokenization import pad
from ....rm.models.scalar import ScalarRewardModel
from ....rm.registry import load
from ....rm.types import Example, Messages
from ...statistics.overoptimisation import MEASURED, SPREADS, best_of_n_records
from ...worlds.guides import Base
from ...worlds.policies import GOOD, LONGEST, WEAK, answered, gold_accuracy, proxy, sample, untaught
from .job_cache import Arrays, Job

CRITIC = CriticArguments(learning_rate=1e-3, hidden=64, passes=8)
PROXIES = {"good": GOOD, "weak": WEAK}
HELD_OUT, OWN_SAMPLES = "accuracy on held-out pairs", "accuracy on own samples"
JUDGED = 1000
EVALUATIONS = 16  # of a critic, each on one group of completions of every unseen prompt


@dataclass(frozen=True)
class Proxy(Job):
    """A reward model of the garden world, and its accuracy."""

    base: Base
    quality: str
    share: float = 1.0
    """Fraction of the pairs and steps of its quality; below 1 for a dry run."""
    member: int = 0
    """Index in an ensemble on one start policy: each member has its own head and pairs."""

    def __str__(self) -> str:
        """Return the label in progress messages."""
        return f"{self.quality} proxy, seed {self.base.seed}" + (f", member {self.member}" if self.member else "")

    @property
    def seed(self) -> int:
        """Return the seed of its head and its pairs."""
        return self.base.seed + 1000 * self.member

    def work(self, cache: Path) -> Arrays:
        """Return its weights, and its accuracy on held-out pairs and on pairs that the start policy writes."""
        start, settings = self.base.load(cache), PROXIES[self.quality]
        reduced = replace(settings, pairs=int(self.share * settings.pairs), steps=int(self.share * settings.steps))
        model = proxy(start, reduced, self.seed)
        first, second = zip(*(pair.examples for pair in garden.pairs(JUDGED, 1, split="test")), strict=True)
        samples = sample(start, [prompt for prompt in garden.prompts(JUDGED, 1) for _ in range(2)], seed=1)
        return weights(model) | {
            HELD_OUT: np.array(gold_accuracy(model, first, second)),
            OWN_SAMPLES: np.array(gold_accuracy(model, samples[::2], samples[1::2])),
        }

    def load(self, cache: Path) -> ScalarRewardModel:
        """Load the trained model."""
        return with_weights(untaught(self.base.load(cache), self.seed), self.result(cache))


def weights(model: ScalarRewardModel) -> Arrays:
    """Return the weights by name."""
    return {name: weight.detach().numpy() for name, weight in model.model.named_parameters()}


@torch.no_grad()
def with_weights(model: ScalarRewardModel, arrays: Arrays) -> ScalarRewardModel:
    """Replace the model's weights in place and return it."""
    for name, weight in model.model.named_parameters():
        weight.copy_(torch.from_numpy(arrays[name]))
    return model


Judged = Callable[[PreTrainedModel, list[Example], np.ndarray], dict[str, float]]
"""Maps the policy, its completions and their gold [N] to metrics; `proxy` and `proxy_std` at least."""


@dataclass(frozen=True)
class Loop(Job):
    """A policy trained on a reward; every `every` steps its completions of unseen prompts are scored."""

    libraries = (*Job.libraries, "trl")
    base: Base
    reward: Proxy | None = None
    """None: gold minus the bar of the prompt."""
    advantage: str = "grpo"
    settings: tuple[tuple[str, float], ...] = ()
    """Settings of the advantage that differ from its defaults."""
    beta: float = 0.0
    place: str = "loss"
    critic: bool = False
    white: bool = False
    """Whether to whiten the advantages over the step's tokens."""
    passes: int = 1
    """Optimizer steps on each batch of completions."""
    steps: int = 100
    every: int = 10
    learning_rate: float = 5e-4
    rows: int = 64
    group: int = 8
    asked: int = 256
    """Number of scored completions of unseen prompts."""

    def __str__(self) -> str:
        """Return the label in progress messages."""
        on = "gold" if self.reward is None else f"the {self.reward}"
        return f"{self.advantage} on {on}, β = {self.beta:g}, seed {self.base.seed}"

    def work(self, cache: Path) -> Arrays:
        """Train and return the curves of `train`."""
        reward = self.reward.load(cache) if self.reward else garden.beyond_the_bar

        def judged(policy: PreTrainedModel, answers: list[Example], gold: np.ndarray) -> dict[str, float]:
            earned = rate(reward, answers)
            return {"proxy": earned.mean(), "proxy_std": earned.std(ddof=1)}

        return self.train(self.base.load(cache), reward, judged)

    def train(self, start: PreTrainedModel, reward: Any, judged: Judged) -> Arrays:
        """Train and return the curves [T] over the measured steps, and a critic's explained variances."""
        with TemporaryDirectory() as folder:
            trainer = self._trainer(deepcopy(start), reward, folder)
            curve = _Curve(self, start, judged)
            trainer.add_callback(curve)
            trainer.train()
            facts = _of_critic([trainer.evaluate() for _ in range(EVALUATIONS)]) if self.critic else {}
        return {name: np.array([row[name] for row in curve.rows]) for name in curve.rows[0]} | facts

    def _trainer(self, policy: PreTrainedModel, reward: Any, folder: str) -> PolicyTrainer:
        white = {"white": load("policy.transforms", "whiten")()} if self.white else {}
        algorithm = Algorithm(
            load("policy.advantages", self.advantage)(**dict(self.settings)),
            load("policy.losses", "ppo")(),
            load("policy.aggregations", "token_mean")(),
            penalty=Penalty(self.beta, self.place, "k3" if self.place == "loss" else "k1", corrected=False),
            advantage_transforms=white,
        )
        arguments = PolicyArguments(
            output_dir=folder,
            max_steps=self.steps,
            learning_rate=self.learning_rate,
            lr_scheduler_type="constant",
            per_device_train_batch_size=self.rows,
            per_device_eval_batch_size=self.group * len(split_prompts()[1]),  # explained variances are of a batch
            num_generations=self.group,
            num_iterations=self.passes,
            max_completion_length=LONGEST,
            gradient_checkpointing=False,
            save_strategy="no",
            measure_kl=False,
            seed=self.base.seed,
            use_cpu=True,
            disable_tqdm=True,
        )
        seen, unseen = split_prompts()
        trainer = PolicyTrainer(
            policy,
            RewardSources({"proxy": reward}),
            algorithm,
            arguments,
            _rows(seen),
            eval_dataset=_rows(unseen),
            tokenizer=tokenizer(),
            critic=CRITIC if self.critic else None,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer


class _Curve(TrainerCallback):
    """Score the policy's completions of unseen prompts at step 0 and then every `loop.every` steps."""

    def __init__(self, loop: Loop, start: PreTrainedModel, judged: Judged):
        self.loop, self.start, self.judged = loop, start, judged
        self.prompts = unseen_prompts(loop.asked)
        self.rows: list[dict[str, float]] = []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self._rate(model, 0)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.loop.every == 0:
            self._rate(model, state.global_step)

    def _rate(self, model: Any, step: int) -> None:
        model.eval()
        with torch.random.fork_rng():  # measuring more often must not change the training's random numbers
            completions = answered(model, self.prompts, seed=10_000 * (self.loop.base.seed + 1) + step)
        trained = np.array([completion.base.sum() for completion in completions])
        # log π - log π_start of the policy's samples: their mean is an unbiased estimate of the KL
        ratio = trained - logprobs(self.start, self.prompts, completions)
        rows = zip(self.prompts, completions, strict=True)
        answers = [Example(prompt, completion.text) for prompt, completion in rows]
        gold = garden.gold().rate(answers)[:, 0]
        words = [len(answer.completion.split()) for answer in answers]
        flourish = [features(answer.prompt[-1]["content"], answer.completion).flourish for answer in answers]
        self.rows.append(
            {
                "step": step,
                "kl": ratio.mean(),
                "gold": gold.mean(),
                "gold_std": gold.std(ddof=1),
                "words": float(np.mean(words)),
                "flourish": float(np.mean(flourish)),
            }
            | self.judged(model, answers, gold)
        )
        model.train()


@dataclass(frozen=True)
class BestOfN(Job):
    """Best of n completions of the start policy on unseen prompts by a proxy, a reference for training."""

    proxy: Proxy
    asked: int
    samples: int = 16

    def __str__(self) -> str:
        """Return the label in progress messages."""
        return f"best of n by the {self.proxy}"

    def work(self, cache: Path) -> Arrays:
        """Return the curves [T] over n = 1, 2, 4, ..."""
        unseen = split_prompts()[1]
        prompts = unseen[: max(1, self.asked // self.samples)]
        base, repeated = self.proxy.base, [prompt for prompt in prompts for _ in range(self.samples)]
        answers = sample(base.load(cache), repeated, base.seed)
        gold, earned = (
            rate(reward, answers).reshape(len(prompts), self.samples)
            for reward in (garden.gold(), self.proxy.load(cache))
        )
        rows = best_of_n_records(base.seed, earned, gold)
        spreads = {name: rows[0][name] for name in SPREADS}
        return {name: np.array([(spreads | row)[name] for row in rows]) for name in ("step", *MEASURED, *SPREADS)}


def rate(reward: Any, answers: list[Example]) -> np.ndarray:
    """Return the rewards [N] by a reward model or a function."""
    return reward.rate(answers)[:, 0] if hasattr(reward, "rate") else np.array(reward(answers))


def split_prompts() -> tuple[list[Messages], list[Messages]]:
    """Return the training prompts (three openings of every question) and the unseen prompts (the fourth)."""
    prompts = garden.questions()
    return [prompt for index, prompt in enumerate(prompts) if index % 4], prompts[::4]


def unseen_prompts(number: int) -> list[Messages]:
    """Return that number of unseen prompts; they are repeated in turn."""
    unseen = split_prompts()[1]
    return [unseen[index % len(unseen)] for index in range(number)]


def _rows(prompts: list[Messages]) -> Dataset:
    return Dataset.from_list([{"prompt": [dict(turn) for turn in prompt]} for prompt in prompts])


@torch.no_grad()
def logprobs(model: PreTrainedModel, prompts: list[Messages], completions: list[DecodedCompletion]) -> np.ndarray:
    """Compute Σ log π over the tokens of every completion, in nats."""
    prompt_ids = prompts_of(decoding_model(model, tokenizer()).encoder, [Request(prompt) for prompt in prompts])
    batch = pad([[*prompt, *completion.tokens] for prompt, completion in zip(prompt_ids, completions, strict=True)])
    start = torch.tensor([len(prompt) for prompt in prompt_ids])
    return completion_logprobs(model, batch.tokens, batch.attention, start).sum(1).double().numpy()


def _of_critic(evaluations: list[dict[str, float]]) -> Arrays:
    names = ("explained_variance_first", "explained_variance_of_others")
    return {name: np.array(np.mean([facts[f"eval_critic/{name}"] for facts in evaluations])) for name in names}
