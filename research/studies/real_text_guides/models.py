"""Data, base model, guides and completions of the study of guides on human preferences."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from ....benchmarks.garden.models import pretrain
from ....policy.decoding.engines import DecodingModel, Engine, SeparateModels, SharedBackbone, decoding_model
from ....policy.decoding.guided import decode
from ....policy.decoding.requests import Request
from ....rm.backbones.loading import small_config, small_tokenizer
from ....rm.backbones.tokenization import Encoder
from ....rm.data.conversation_split import first_turn
from ....rm.data.pairs import load_pairs
from ....rm.data.preference_vectors import simplex_grid
from ....rm.kinds.autoregressive.diagnostics import GuideDiagnostics, base_context_sensitivity, guide_diagnostics
from ....rm.kinds.autoregressive.preference_task import PreferenceRow, encode_preferences
from ....rm.types import OVERALL, Messages, PreferencePair, content_hash
from ...worlds.guides import Recipe, copy_weights, train
from .._runs.job_cache import Arrays, Job
from ..human_preferences import SOURCES

OBJECTIVES = ("helpful", "harmless")
PREFERENCES = simplex_grid(2, 2)
"""Preferences α [3, 2] of the completions."""
SHARE_OF_GUIDES = 0.6
"""Share of the first turns whose pairs train base model and guides; the others train raters and test guides."""
VOCABULARY, POSITIONS = 4096, 512


class Corpus(NamedTuple):
    """HH pairs of both objectives and UltraFeedback's, as files below a folder; `rows` shortens every source."""

    folder: str
    digest: str
    """Hash of the files, so that results of other data are not taken for these."""
    rows: int | None = None

    @property
    def files(self) -> list[str]:
        """Return the files."""
        return [str(Path(self.folder, file)) for files in SOURCES.values() for file in files]


class Halves(NamedTuple):
    """Pairs labelled for one objective each, split by first turn, and texts that only train the base model."""

    guides: list[PreferencePair]
    raters: list[PreferencePair]
    texts: list[PreferencePair]


def corpus(folder: Path, rows: int | None) -> Corpus:
    """Return the corpus below a folder."""
    named = Corpus(str(folder), "", rows)
    hashes = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in named.files]
    return named._replace(digest=content_hash(hashes))


@lru_cache
def halves(data: Corpus) -> Halves:
    """Load and split the pairs."""
    labelled = [replace(pair, wins={OVERALL: 1.0, name: 1.0}) for name in OBJECTIVES for pair in _load(data, name)]
    first = [_share_of(first_turn(pair.prompt)) < SHARE_OF_GUIDES for pair in labelled]
    guides = [pair for pair, of_guides in zip(labelled, first, strict=True) if of_guides]
    raters = [pair for pair, of_guides in zip(labelled, first, strict=True) if not of_guides]
    return Halves(guides, raters, _load(data, "UltraFeedback"))


def _load(data: Corpus, name: str) -> list[PreferencePair]:
    files = SOURCES[name if name in SOURCES else f"HH {name}"]
    return load_pairs([str(Path(data.folder, file)) for file in files], on_bad_row="skip")[0][: data.rows]


def _share_of(text: str) -> float:
    """Return a number in [0, 1) that is determined by the text and looks random."""
    return int(content_hash(text), 16) / 16**16


@lru_cache
def words(data: Corpus) -> PreTrainedTokenizerBase:
    """Train the tokenizer on the texts of the base model."""
    split = halves(data)
    turns = [turn["content"] for pair in split.guides + split.texts for turn in pair.prompt]
    return small_tokenizer([*turns, *(pair.texts[0] for pair in split.guides + split.texts)], VOCABULARY)


@dataclass(frozen=True)
class TextBase(Job):
    """A language model trained from scratch on the prompts and chosen completions of the guides' half."""

    data: Corpus
    seed: int = 0
    hidden: int = 96
    layers: int = 3
    steps: int = 300
    longest: int = 160

    def __str__(self) -> str:
        return f"base {self.hidden} x {self.layers}, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the trained weights, and the mean loss of the last tenth of the steps in nats per token."""
        model, split = self._untrained(), halves(self.data)
        examples = [pair.examples[0] for pair in split.guides + split.texts]
        options: dict[str, Any] = {"steps": self.steps, "seed": self.seed, "longest": self.longest, "batch_size": 32}
        losses = pretrain(model, words(self.data), examples, **options)
        weights = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
        return weights | {"loss": np.array(losses[-max(1, self.steps // 10) :]).mean(keepdims=True)}

    def load(self, cache: Path) -> Any:
        """Load the trained model."""
        model, stored = self._untrained(), self.result(cache)
        copy_weights(dict(model.named_parameters()), {name: stored[name] for name in stored if name != "loss"})
        return model.eval()

    def _untrained(self) -> Any:
        config = small_config(words(self.data), hidden=self.hidden, layers=self.layers, positions=POSITIONS)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return AutoModelForCausalLM.from_config(config).float()


@dataclass(frozen=True)
class TextGuide(Job):
    """A guide adapted from the base model on the pairs of some objectives; without steps it stays untrained."""

    base: TextBase
    objectives: tuple[str, ...]
    recipe: Recipe
    seed: int = 0

    def __str__(self) -> str:
        return f"guide {self.recipe.kind} for {' and '.join(self.objectives)}, {self.recipe.steps} steps"

    def work(self, cache: Path) -> Arrays:
        """Return the adapter's weights, and what `measures` reads."""
        guide = self._untrained(cache)
        assert guide.adapter is not None
        task, split = self.recipe.task(guide.adapter, self.seed), halves(self.base.data)
        held_out = self._rows(guide, split.raters)
        sensitivity = base_context_sensitivity(task, guide.adapter.model, held_out)
        if self.recipe.steps:
            train(guide.adapter, task, self._rows(guide, split.guides), self.recipe, self.seed)
        measured = {}
        for shift in range(len(self.objectives)):  # at each vertex with the labels of the objective `shift` after it
            rolled = [row._replace(wins=row.wins[shift:] + row.wins[:shift]) for row in held_out]
            at_vertices = guide_diagnostics(task, guide.adapter.model, rolled).values()
            measured[f"measures {shift}"] = np.array([[*at] for at in at_vertices])
        weights = {name: weight.numpy() for name, weight in guide.adapter.state().items()}
        return weights | measured | {"measures base": np.array(sensitivity)}

    def measures(self, cache: Path) -> dict[tuple[str, str], GuideDiagnostics]:
        """Return the diagnostics on held-out pairs by vertex and by the objective of the labels."""
        stored, k = self.result(cache), len(self.objectives)
        return {
            (vertex, self.objectives[(index + shift) % k]): GuideDiagnostics(*stored[f"measures {shift}"][index])
            for index, vertex in enumerate(self.objectives)
            for shift in range(k)
        }

    def load(self, cache: Path) -> DecodingModel:
        """Load the trained guide."""
        guide, stored = self._untrained(cache), self.result(cache)
        assert guide.adapter is not None
        copy_weights(guide.adapter.state(), {name: stored[name] for name in stored if not name.startswith("measures")})
        return guide

    def _untrained(self, cache: Path) -> DecodingModel:
        model, tokenizer = self.base.load(cache), words(self.base.data)
        return decoding_model(model, tokenizer, self.recipe.adapt(model, self.objectives, self.seed, tokenizer))

    def _rows(self, guide: DecodingModel, pairs: Sequence[PreferencePair]) -> list[PreferenceRow]:
        contract = replace(guide.encoder.contract, max_length=self.base.longest)
        encoder = Encoder(guide.encoder.tokenizer, contract)
        return encode_preferences(encoder, pairs, self.objectives).rows


@dataclass(frozen=True)
class Completions(Job):
    """Completions of held-out prompts at `PREFERENCES`, by a base model under guides; without guides, its own."""

    base: TextBase
    guides: tuple[TextGuide, ...] = ()
    prompts: int = 100
    longest: int = 48
    seed: int = 0

    def __str__(self) -> str:
        return f"completions under {' and '.join(map(str, self.guides)) or 'no guide'}"

    @property
    def asked(self) -> list[Messages]:
        """Return the prompts, in turns of both objectives."""
        by_objective = [
            [pair.prompt for pair in halves(self.base.data).raters if name in pair.wins] for name in OBJECTIVES
        ]
        short = [[prompt for prompt in prompts if _characters(prompt) < 400] for prompts in by_objective]
        return [prompt for both in zip(*short, strict=False) for prompt in both][: self.prompts]

    def work(self, cache: Path) -> Arrays:
        """Return the texts and their lengths in tokens [A, P]."""
        requests = [
            Request(
                prompt,
                dict(zip(OBJECTIVES, alpha.tolist(), strict=True)) if self.guides else None,
                seed=self.seed * 100_000 + index,
                max_new_tokens=self.longest,
            )
            for alpha in PREFERENCES
            for index, prompt in enumerate(self.asked)
        ]
        answers = decode(self._engine(cache), requests, batch_size=64, progress=False)
        shape = len(PREFERENCES), len(self.asked)
        return {
            "texts": np.array([answer.text for answer in answers]).reshape(shape),
            "lengths": np.array([len(answer.tokens) for answer in answers]).reshape(shape),
        }

    def _engine(self, cache: Path) -> Engine:
        guides = [guide.load(cache) for guide in self.guides]
        if len(guides) == 1:
            return SharedBackbone(guides[0])
        base = decoding_model(self.base.load(cache), words(self.base.data))
        return SeparateModels(base, dict(zip(OBJECTIVES, guides, strict=True)) if guides else None)


def _characters(prompt: Messages) -> int:
    return sum(len(turn["content"]) for turn in prompt)
