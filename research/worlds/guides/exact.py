"""Guides of the enumerable language, where the optimum of guided decoding is known exactly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel, TrainerCallback

from ....rm.adapters.adapter import PreferenceAdapter
from ....rm.data.preference_vectors import simplex_grid
from ....rm.training.autoregressive_task import PreferenceRow, PreferenceTask
from ...studies._runs.job_cache import Arrays, Job
from .. import enumerable
from . import Recipe, train

EXACT_BETA = 1.0  # β of the optimum π* ∝ π_base exp(r / β)


@dataclass(frozen=True)
class Exact(Job):
    """Train guides of the enumerable language and measure how far decoding under them is from the optimum.

    Results are KL(π* || π̃) in nats at every preference of the grid: `guided` [C, A] at C checkpoints of the training,
    the first before it (the base model guides itself), `base` [A] of the base model alone, and `ideal` [A] of the guide
    with the least loss, which still cannot look ahead. A plain LoRA is one guide per objective, mixed as in GenARM.
    """

    recipe: Recipe
    objectives: int = 2
    steps: int = 12
    """Steps of the grid of preferences at which it is measured."""
    moments: int = 4
    pairs: int = 4000
    seed: int = 0

    def __str__(self) -> str:
        return f"exact {self.recipe.kind}, {self.objectives} objectives, seed {self.seed}"

    @property
    def preferences(self) -> np.ndarray:
        """Preferences α [A, K]."""
        return simplex_grid(self.objectives, self.steps)

    @property
    def seen(self) -> np.ndarray:
        """Whether each preference lies on the grid that training draws from, [A]."""
        scaled = self.preferences * self.recipe.preference_steps
        return np.all(np.abs(scaled - scaled.round()) < 1e-9, axis=1)

    def work(self, cache: Path) -> Arrays:
        """Return the divergences; see the class."""
        language = Language.of(self.objectives, self.seed)
        logits = self._logits(language)
        optima = [language.optimum(alpha) for alpha in self.preferences]

        def divergence(guide: torch.Tensor, weight: float = 1.0) -> list[float]:
            both = zip(optima, guide, strict=True)
            return [enumerable.kl(best, language.guided(logits, weight)).item() for best, logits in both]

        ideal = torch.stack(
            [enumerable.ideal_guide(language.worth, torch.tensor(alpha), EXACT_BETA) for alpha in self.preferences]
        )
        return {
            "guided": np.array([divergence(logit) for logit in logits]),
            "base": np.array(divergence(ideal, weight=0.0)),  # at weight 0 the guide has no effect
            "ideal": np.array(divergence(ideal)),
        }

    def _logits(self, language: "Language") -> torch.Tensor:
        """Return logits of the guide at every checkpoint and preference, [C, A, M, T, V]."""
        names = tuple(f"objective {index}" for index in range(self.objectives))
        if self.recipe.kind != "lora":
            rows = language.rows(self.pairs, self.seed)
            return exact_guide(language, self.recipe, names, rows, self.seed, self.preferences, self.moments).logits
        alone, labelled = [], language.rows(self.pairs, self.seed)
        for index, name in enumerate(names):
            rows = [row._replace(wins=row.wins[index : index + 1], gaps=row.gaps[:1]) for row in labelled]
            alone.append(
                exact_guide(language, self.recipe, (name,), rows, self.seed, np.ones((1, 1)), self.moments).logits[:, 0]
            )
        return torch.einsum("ak,kcmtv->camtv", torch.tensor(self.preferences), torch.stack(alone))


class Language(NamedTuple):
    """An enumerable language with its base model and true rewards."""

    model: PreTrainedModel
    answers: torch.Tensor
    worth: torch.Tensor
    rewards: torch.Tensor
    logits: torch.Tensor
    log_base: torch.Tensor

    @classmethod
    def of(cls, objectives: int, seed: int) -> "Language":
        """Return the language with a base model of this seed; the words' rewards are the same for all seeds."""
        model, answers, worth = (
            enumerable.language_model(seed=seed),
            enumerable.answers(),
            enumerable.word_rewards(objectives),
        )
        with torch.no_grad():
            logits = enumerable.next_logits(model, answers)
        log_base = enumerable.sequence_logprobs(logits, answers)
        return cls(model, answers, worth, enumerable.rewards(answers, worth), logits, log_base)

    def rows(self, pairs: int, seed: int) -> list[PreferenceRow]:
        """Return pairs of different completions, labelled by the probability that the first is better."""
        pairs_drawn = enumerable.labelled_pairs(pairs, seed, self.answers, self.rewards, self.log_base)
        unscored = (float("nan"),) * self.rewards.shape[1]
        numbered = enumerate(zip(*(tensor.tolist() for tensor in pairs_drawn), strict=True))
        return [
            PreferenceRow(
                [enumerable.PROMPT, *first], [enumerable.PROMPT, *second], (1, 1), tuple(wins), unscored, index
            )
            for index, (first, second, wins) in numbered
            if first != second
        ]

    def optimum(self, alpha: np.ndarray) -> torch.Tensor:
        """Compute log π* [M] at one preference."""
        return enumerable.optimum(self.log_base, self.rewards, torch.tensor(alpha), EXACT_BETA)

    def guided(self, guide: torch.Tensor, weight: float) -> torch.Tensor:
        """Compute log π̃ [M] under a guide's logits."""
        return enumerable.guided_distribution(self.logits, guide, self.answers, weight)


class ExactGuide(NamedTuple):
    """A trained guide of the enumerable language, and its logits [C, A, M, T, V] at checkpoints of the training."""

    adapter: PreferenceAdapter
    task: PreferenceTask
    logits: torch.Tensor


def exact_guide(
    language: Language,
    recipe: Recipe,
    names: Sequence[str],
    rows: Sequence[PreferenceRow],
    seed: int,
    preferences: np.ndarray,
    moments: int,
) -> ExactGuide:
    """Train a guide on a copy of the base model; record its logits at equal distances, first and last step included."""
    model = enumerable.language_model(seed=seed).float()
    adapter = recipe.adapt(model, names, seed)
    task = recipe.task(adapter, seed)
    spaced = {round(index * recipe.steps / (moments - 1)) for index in range(1, moments)}
    listener = Listener(lambda: _guide_logits(adapter, names, preferences, language.answers), spaced)
    train(adapter, task, rows, recipe, seed, listener)
    return ExactGuide(adapter, task, torch.stack(listener.heard))


@torch.no_grad()
def _guide_logits(
    adapter: PreferenceAdapter, names: Sequence[str], preferences: np.ndarray, answers: torch.Tensor
) -> torch.Tensor:
    """Compute logits of the guide at every preference, [A, M, T, V]."""
    spans = []
    for alpha in torch.tensor(preferences, dtype=torch.float32):
        adapter.set_preference(alpha, names)
        spans.append(enumerable.next_logits(adapter.model, answers))
    return torch.stack(spans)


class Listener(TrainerCallback):
    """Record values returned by `listen` before the training and after some of its steps."""

    def __init__(self, listen: Callable[[], torch.Tensor], steps: set[int]):
        self.listen, self.steps, self.heard = listen, steps, []

    def on_train_begin(self, args, state, control, **kwargs):
        """Record the value before the first step."""
        self.heard.append(self.listen())

    def on_step_end(self, args, state, control, **kwargs):
        """Record the value after a step in `steps`."""
        if state.global_step in self.steps:
            self.heard.append(self.listen())
