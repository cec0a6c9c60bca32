"""Jobs that train base models and guides in the garden."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, TrainerCallback

from ....benchmarks import garden
from ....benchmarks.garden.models import pretrain, tokenizer
from ....policy.decoding.engines import DecodingModel, decoding_model
from ....rm.adapters.adapter import PreferenceAdapter, attach
from ....rm.adapters.modulation import Embedding, Generator
from ....rm.adapters.settings import AdapterSettings, Kind
from ....rm.backbones.loading import small_config
from ....rm.backbones.tokenization import Encoder
from ....rm.data.preference_vectors import dirichlet
from ....rm.kinds.autoregressive.diagnostics import CollapseMonitor, GuideDiagnostics, guide_diagnostics
from ....rm.kinds.autoregressive.preference_task import PreferenceRow, PreferenceTask, encode_preferences
from ....rm.losses.sequence_logistic import sequence_logistic
from ....rm.types import OVERALL, PreferencePair, prompt_text
from ....tests.stand_ins.small_training import Fit, fit
from ...studies._runs.job_cache import Arrays, Job
from ..meadow import meadow_rewards

MONITOR, MONITORED = "monitor ", 128
"""Prefix of a guide's stored diagnostics, and the number of held-out pairs that they are measured on."""
REWARDS: Mapping[str, Callable[[str, str], Mapping[str, float]]] = {
    "garden": lambda prompt, answer: garden.gold_rewards(prompt, answer)._asdict(),
    "meadow": meadow_rewards,
}
"""Gold rewards of a completion by objective, for every world on the garden's texts."""
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


# ---- base models ----


@dataclass(frozen=True)
class Base(Job):
    """A language model trained on the garden's supervised texts, the base model to be guided."""

    seed: int
    steps: int = 600
    texts: int = 6000

    @classmethod
    def part(cls, seed: int, share: float) -> "Base":
        """Return the model of a seed, trained on a share of the texts for a share of the steps; 1: all of them."""
        return cls(seed, steps=max(1, int(share * cls.steps)), texts=max(64, int(share * cls.texts)))

    def __str__(self) -> str:
        return f"base, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the trained weights."""
        model = self._untrained()
        pretrain(
            model, tokenizer(), garden.supervised_examples(self.texts, self.seed), steps=self.steps, seed=self.seed
        )
        return {name: weight.detach().numpy() for name, weight in model.named_parameters()}

    def load(self, cache: Path) -> PreTrainedModel:
        """Load the trained model."""
        model, stored = self._untrained(), self.result(cache)
        copy_weights(dict(model.named_parameters()), stored)
        return model.eval()

    def _untrained(self) -> PreTrainedModel:
        config = small_config(tokenizer(), hidden=64, layers=2, positions=256)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return AutoModelForCausalLM.from_config(config).float()


@torch.no_grad()
def copy_weights(adapter_state: dict[str, torch.Tensor], stored: Arrays) -> None:
    """Copy stored arrays into the tensors of the same names."""
    assert {*adapter_state} == {*stored}
    for name, weight in adapter_state.items():
        weight.copy_(torch.from_numpy(stored[name]))


# ---- guides ----


@dataclass(frozen=True)
class Recipe:
    """An adapter, its loss and its training; the defaults are our reading of UniARM."""

    kind: Kind = "moslora"
    rank: int = 8
    shared_rank: int = 0
    generator: Generator = "alpha"
    embedding: Embedding = "random"
    texts: tuple[str, ...] = ()
    span: bool = False
    beta: float = 0.02
    """β_r, the temperature of the loss."""
    ignore_ties: bool = False
    """Whether an objective for which a pair ties counts as unlabelled."""
    weight: float = 0.5
    """λ, the weight of the loss's global term."""
    centred: bool = False
    """Whether the base model's expectation is subtracted from every token's log-probability."""
    steps: int = 400
    learning_rate: float = 1e-2
    rate_of_a: float = 1.0
    """Learning rate of A relative to `learning_rate`."""
    average: float = 0.0
    """Decay of the weight average; 0: none."""
    batch: int = 32

    def adapt(self, model: Any, objectives: Sequence[str], seed: int, words: Any = None) -> PreferenceAdapter:
        """Attach a new adapter to a model, which is changed in place; the default tokenizer is the garden's."""
        settings = AdapterSettings(
            self.kind,
            tuple(objectives),
            texts=self.texts,
            rank=self.rank,
            shared_rank=self.shared_rank,
            targets=LINEAR,
            generator=self.generator,
            embedding=self.embedding,
            span=self.span,
            seed=seed,
        )
        return attach(model, settings, words or tokenizer())

    def task(self, adapter: PreferenceAdapter, seed: int) -> PreferenceTask:
        """Return the adapter's training task."""
        k = len(adapter.objectives)
        return PreferenceTask(
            adapter,
            adapter.objectives,
            sequence_logistic(self.beta, weight=self.weight if k > 1 else 0.0, ignore_ties=self.ignore_ties),
            dirichlet(k),
            centred=self.centred,
            seed=seed,
            rates={"A": self.rate_of_a},
        )


def train(
    adapter: PreferenceAdapter,
    task: PreferenceTask,
    rows: Sequence[PreferenceRow],
    recipe: Recipe,
    seed: int,
    *callbacks: TrainerCallback,
) -> None:
    """Train a guide in place."""
    task.check(rows)
    how = Fit(recipe.steps, recipe.learning_rate, recipe.batch, seed, recipe.average)
    learner = SimpleNamespace(model=adapter.model, encoder=SimpleNamespace(tokenizer=None))  # rows are token ids
    fit(learner, task, rows, how, *callbacks)


@dataclass(frozen=True)
class Guide(Job):
    """An autoregressive reward model for a world of `REWARDS`, adapted from its base model."""

    base: Base
    objectives: tuple[str, ...]
    recipe: Recipe = field(default_factory=Recipe)
    pairs: int = 6000
    seed: int = 0
    world: str = "garden"

    def __str__(self) -> str:
        return f"guide {self.recipe.kind} for {' and '.join(self.objectives)}, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the adapter's trained weights, and its diagnostics during training; see `diagnostics`."""
        guide = self._untrained(cache)
        assert guide.adapter is not None
        weights = guide.adapter.state()
        if not self.recipe.steps:
            return {name: weight.numpy() for name, weight in weights.items()}
        task = self.recipe.task(guide.adapter, self.seed)
        rows = _rows(self.pairs, self.seed, self.objectives, self.world)
        held_out = _rows(MONITORED, self.seed, self.objectives, self.world, "validation")
        monitor = CollapseMonitor(task, held_out, every=50, report=lambda _: None)
        train(guide.adapter, task, rows, self.recipe, self.seed, monitor)
        return {name: weight.numpy() for name, weight in weights.items()} | {
            f"{MONITOR}{name}": values for name, values in monitor_arrays(monitor, guide.adapter.model).items()
        }

    def diagnostics(self, cache: Path) -> Arrays:
        """Return the arrays of `monitor_arrays`, on held-out pairs; empty for an untrained guide."""
        stored = self.result(cache).items()
        return {name.removeprefix(MONITOR): values for name, values in stored if name.startswith(MONITOR)}

    def load(self, cache: Path) -> DecodingModel:
        """Load the trained guide."""
        guide, stored = self._untrained(cache), self.result(cache)
        assert guide.adapter is not None
        weights = {name: values for name, values in stored.items() if not name.startswith(MONITOR)}
        copy_weights(guide.adapter.state(), weights)
        return guide

    def _untrained(self, cache: Path) -> DecodingModel:
        model = self.base.load(cache)
        return decoding_model(model, tokenizer(), self.recipe.adapt(model, self.objectives, self.seed))


@lru_cache
def monitor_arrays(monitor: CollapseMonitor, model: Any) -> Arrays:
    """Return every measure at the vertices, in training [T, K] with its steps [T] and at the end [K].

    `base` is the base model's context sensitivity, `collapsed_at` the step of a collapse, 0 without one.
    """
    last = guide_diagnostics(monitor.task, model, monitor.rows).values()
    arrays = {"steps": np.array([step for step, _ in monitor.history])}
    arrays |= {"base": np.array(monitor.base), "collapsed_at": np.array(monitor.collapsed_at or 0)}
    for k, name in enumerate(GuideDiagnostics._fields):
        arrays[name] = np.array([[at[k] for at in measured.values()] for _, measured in monitor.history])
        arrays[f"final {name}"] = np.array([at[k] for at in last])
    return arrays


def _rows(pairs: int, seed: int, objectives: tuple[str, ...], world: str, split: str = "train") -> list[PreferenceRow]:
    labelled = [with_labels(pair, world) for pair in garden.pairs(pairs, seed, split)]
    return encode_preferences(_encoder(), labelled, objectives).rows


def with_labels(pair: PreferencePair, world: str) -> PreferencePair:
    """Label a pair by a world's gold rewards, and add their differences for losses that need more than labels."""
    prompt = prompt_text(pair.prompt)
    chosen, rejected = (REWARDS[world](prompt, text) for text in pair.texts)
    gaps = {name: chosen[name] - rejected[name] for name in chosen}
    wins = {name: garden.sign_label(gap) for name, gap in gaps.items()}
    return replace(pair, wins={OVERALL: pair.wins[OVERALL], **wins}, gaps=gaps)


@lru_cache
def _encoder() -> Encoder:
    return decoding_model(Base(0)._untrained(), tokenizer()).encoder
