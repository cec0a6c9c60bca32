"""Jobs that train base models and guides in the garden, and that measure fronts of guided decoding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, TrainerCallback

from ...policy.decoding.engines import Engine, SeparateModels, SharedBackbone
from ...policy.decoding.guided import decode
from ...policy.decoding.language_models import DecodingModel, decoding_model, prompts_of
from ...policy.decoding.requests import DecodedCompletion, Request
from ...rm.adapters.adapter import PreferenceAdapter, attach
from ...rm.adapters.modulation import Embedding, Generator
from ...rm.adapters.settings import AdapterSettings, Kind
from ...rm.backbones.loading import small_config
from ...rm.backbones.logprobs import completion_logprobs
from ...rm.backbones.tokenization import Encoder, pad
from ...rm.data.preference_vectors import at_vertices, dirichlet, on_grid, simplex_grid
from ...rm.data.text_diversity import repetition
from ...rm.losses.sequence_logistic import sequence_logistic
from ...rm.training.autoregressive_task import PreferenceRow, PreferenceTask, encode_preferences
from ...rm.training.guide_diagnostics import CollapseMonitor
from ...rm.types import Messages, PreferencePair, prompt_text
from ..studies._job_cache import Arrays, Job
from . import garden
from .models import Fit, fit, pretrain, tokenizer

MONITOR, MONITORED = "monitor ", 128
"""Prefix of a guide's stored diagnostics, and the number of held-out pairs that they are measured on."""
TEMPERATURE = 1.0
LONGEST = 32
BATCH_SIZE = 512
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


# ---- base models ----


@dataclass(frozen=True)
class Base(Job):
    """A language model trained on the garden's supervised texts, the base model to be guided."""

    seed: int
    hidden: int = 64
    layers: int = 2
    steps: int = 600
    texts: int = 6000

    def __str__(self) -> str:
        return f"base {self.hidden} x {self.layers}, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the trained weights."""
        model = self._untrained()
        pretrain(model, tokenizer(), garden.supervised(self.texts, self.seed), steps=self.steps, seed=self.seed)
        return {name: weight.detach().numpy() for name, weight in model.named_parameters()}

    def load(self, cache: Path) -> PreTrainedModel:
        """Load the trained model."""
        model, stored = self._untrained(), self.result(cache)
        _copy(dict(model.named_parameters()), stored)
        return model.eval()

    def _untrained(self) -> PreTrainedModel:
        config = small_config(tokenizer(), hidden=self.hidden, layers=self.layers, positions=256)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return AutoModelForCausalLM.from_config(config).float()


@torch.no_grad()
def _copy(adapter_state: dict[str, torch.Tensor], stored: Arrays) -> None:
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
    scale: bool = True
    shift: bool = True
    from_layer: int = 0
    beta: float | tuple[float, ...] = 0.02
    """β_r, the temperature of the loss: one number, or one for each of the garden's objectives."""
    ignore_ties: bool = False
    """Whether an objective for which a pair ties counts as unlabelled."""
    weight: float = 0.5
    """λ, the weight of the loss's global term."""
    form: str = "scalarised"
    preferences: Literal["dirichlet", "vertices", "grid"] = "dirichlet"
    """Distribution of α in training; the grid has `preference_steps`."""
    preference_steps: int = 4
    concentration: float = 0.5
    """Concentration of the Dirichlet distribution of α."""
    vertices: float = 0.1
    """Share of α at a vertex, beside the Dirichlet distribution."""
    per_batch: bool = False
    reference: bool = False
    """Whether log-probabilities are relative to the base model; with one objective this is DPO."""
    token_offset: float = 0.0
    """Nats added to the log-probability of every token."""
    centred: bool = False
    """Whether the base model's expectation is subtracted from every token's log-probability."""
    normalised: bool = False
    """Whether log-probabilities are means per token."""
    steps: int = 400
    learning_rate: float = 1e-2
    rate_of_a: float = 1.0
    """Learning rate of A relative to `learning_rate`."""
    rate_of_modulation: float = 1.0
    """Learning rate of generators or cores relative to `learning_rate`."""
    average: float = 0.0
    """Decay of the weight average; 0: none."""
    weight_decay: float = 0.0
    batch: int = 32
    targets: tuple[str, ...] = LINEAR

    def adapt(self, model: Any, objectives: Sequence[str], seed: int) -> PreferenceAdapter:
        """Attach a new adapter to a model, which is changed in place."""
        settings = AdapterSettings(
            self.kind,
            tuple(objectives),
            texts=self.texts,
            rank=self.rank,
            shared_rank=self.shared_rank,
            targets=self.targets,
            from_layer=self.from_layer,
            generator=self.generator,
            embedding=self.embedding,
            span=self.span,
            scale=self.scale,
            shift=self.shift,
            seed=seed,
        )
        return attach(model, settings, tokenizer())

    def task(self, adapter: PreferenceAdapter, seed: int) -> PreferenceTask:
        """Return the adapter's training task."""
        k = len(adapter.objectives)
        samplers = {
            "dirichlet": lambda: dirichlet(k, self.concentration, self.vertices),
            "vertices": lambda: at_vertices(k),
            "grid": lambda: on_grid(k, self.preference_steps),
        }
        return PreferenceTask(
            adapter,
            adapter.objectives,
            sequence_logistic(
                self._betas(adapter.objectives),
                weight=self.weight if k > 1 else 0.0,
                form=self.form,
                ignore_ties=self.ignore_ties,
            ),
            samplers[self.preferences](),
            reference=self.reference,
            normalised=self.normalised,
            token_offset=self.token_offset,
            centred=self.centred,
            per_batch=self.per_batch,
            seed=seed,
            rates={"A": self.rate_of_a, "modulation": self.rate_of_modulation},
        )

    def _betas(self, objectives: Sequence[str]) -> list[float]:
        if isinstance(self.beta, tuple):
            return [self.beta[garden.OBJECTIVES.index(name)] for name in objectives]
        return [self.beta]


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
    how = Fit(recipe.steps, recipe.learning_rate, recipe.batch, seed, recipe.average, recipe.weight_decay)
    learner = SimpleNamespace(model=adapter.model, encoder=SimpleNamespace(tokenizer=None))  # rows are token ids
    fit(learner, task, rows, how, *callbacks)


@dataclass(frozen=True)
class Guide(Job):
    """An autoregressive reward model for the garden, adapted from its base model."""

    base: Base
    objectives: tuple[str, ...]
    recipe: Recipe = field(default_factory=Recipe)
    pairs: int = 6000
    seed: int = 0

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
        held_out = encode_preferences(
            _encoder(), garden.pairs(MONITORED, self.seed, "validation"), self.objectives
        ).rows
        monitor = CollapseMonitor(task, held_out, report=lambda _: None)
        train(guide.adapter, task, _rows(self.pairs, self.seed, self.objectives), self.recipe, self.seed, monitor)
        return {name: weight.numpy() for name, weight in weights.items()} | {
            f"{MONITOR}{name}": values for name, values in monitor.arrays(guide.adapter.model).items()
        }

    def diagnostics(self, cache: Path) -> Arrays:
        """Return the arrays of `CollapseMonitor.arrays`, on held-out pairs; empty for an untrained guide."""
        stored = self.result(cache).items()
        return {name.removeprefix(MONITOR): values for name, values in stored if name.startswith(MONITOR)}

    def load(self, cache: Path) -> DecodingModel:
        """Load the trained guide."""
        guide, stored = self._untrained(cache), self.result(cache)
        assert guide.adapter is not None
        weights = {name: values for name, values in stored.items() if not name.startswith(MONITOR)}
        _copy(guide.adapter.state(), weights)
        return guide

    def _untrained(self, cache: Path) -> DecodingModel:
        model = self.base.load(cache)
        return decoding_model(model, tokenizer(), self.recipe.adapt(model, self.objectives, self.seed))


@lru_cache
def _rows(pairs: int, seed: int, objectives: tuple[str, ...]) -> list[PreferenceRow]:
    scored = [_with_gaps(pair) for pair in garden.pairs(pairs, seed)]
    return encode_preferences(_encoder(), scored, objectives).rows


def _with_gaps(pair: PreferencePair) -> PreferencePair:
    """Add the differences of the pair's gold rewards, for losses that need more than labels."""
    asked = prompt_text(pair.prompt)
    differences = np.subtract(garden.gold_rewards(asked, pair.chosen), garden.gold_rewards(asked, pair.rejected))
    return replace(pair, gaps=dict(zip(garden.OBJECTIVES, differences.tolist(), strict=True)))


@lru_cache
def _encoder() -> Encoder:
    return decoding_model(Base(0)._untrained(), tokenizer()).encoder


# ---- fronts ----


@dataclass(frozen=True)
class Front(Job):
    """Completions of a base model under guides, at every preference of a grid, scored by the garden's gold reward.

    Noise depends on the seed, the prompt and the token only: it is the same for all methods and preferences. Results
    are rewards [A, P, K], and for each completion [A, P] its length in tokens, its repetition, the nats per token by
    which the policy's log-probability exceeds the base model's (an unbiased estimate of the KL where the completion has
    ended), and the base model's log-probability per token; guide forwards per token, and the number of trainable
    parameters.
    """

    base: Base
    guides: tuple[Guide, ...]
    objectives: tuple[str, ...]
    way: Literal["guided", "soup", "mixture"] = "guided"
    weight: float = 1.0
    steps: int = 10
    prompts: int = 200
    seed: int = 0

    def __str__(self) -> str:
        guides = f"{len(self.guides)} {self.guides[0].recipe.kind}"
        return f"front of {self.base} under {guides}, {self.way}, w = {self.weight:g}"

    @property
    def preferences(self) -> np.ndarray:
        """Preferences α [A, K]."""
        return simplex_grid(len(self.objectives), self.steps)

    def work(self, cache: Path) -> Arrays:
        """Return the rewards and measures; see the class."""
        asked = garden.prompts(self.prompts, self.seed)
        decoded = WAYS[self.way](self, cache, asked)
        shape = len(self.preferences), self.prompts
        requests = [Request(prompt) for _ in self.preferences for prompt in asked]
        base = _base_logprobs(decoding_model(self.base.load(cache), tokenizer()), requests, decoded.answers)
        lengths = np.array([len(answer.tokens) for answer in decoded.answers])
        sampled = np.array([answer.sampled.sum() for answer in decoded.answers])
        return {
            "rewards": _gold(requests, decoded.answers, self.objectives).reshape(*shape, -1),
            "length": lengths.reshape(shape),
            "repetition": np.array([repetition(answer.tokens) for answer in decoded.answers]).reshape(shape),
            "divergence": ((sampled - base) / lengths).reshape(shape),
            "base_logprob": (base / lengths).reshape(shape),
            "forwards": np.array(decoded.forwards),
            "parameters": np.array(decoded.parameters),
        }


class DecodedFront(NamedTuple):
    """Completions, by preference and then by prompt; guide forwards per token; number of trainable parameters."""

    answers: list[DecodedCompletion]
    forwards: float
    parameters: int


def _guided(front: Front, cache: Path, asked: Sequence[Messages]) -> DecodedFront:
    guides = [guide.load(cache) for guide in front.guides]
    engine = _engine(front, guides, cache)
    requests = [
        _request(front, prompt, index, preference=dict(zip(front.objectives, alpha.tolist(), strict=True)))
        for alpha in front.preferences
        for index, prompt in enumerate(asked)
    ]
    answers = decode(engine, requests, batch_size=BATCH_SIZE, progress=False)
    return DecodedFront(answers, engine.counters.guide / engine.counters.base, _trainable(front, guides))


def _engine(front: Front, guides: Sequence[DecodingModel], cache: Path) -> Engine:
    """Return a shared backbone if the guide was trained on the base model that it guides, else separate models."""
    if len(guides) == 1 and front.guides[0].base == front.base:
        return SharedBackbone(guides[0], late=front.guides[0].recipe.from_layer > 0)
    base = decoding_model(front.base.load(cache), tokenizer())
    named = dict(zip(front.objectives, guides, strict=True)) if len(guides) > 1 else guides[0]
    return SeparateModels(base, named)


def _soup(front: Front, cache: Path, asked: Sequence[Messages]) -> DecodedFront:
    """Decode by rewarded soups: the policy of weights Σ_i α_i θ_i             Ramé et al. 2023, arXiv:2306.04488

    The merged weights W + s B_i A_i are averaged, not A and B separately as in some public code.
    """
    guides = [guide.load(cache) for guide in front.guides]
    parameters, answers = _trainable(front, guides), []
    policies = [dict(_merged(guide).named_parameters()) for guide in guides]
    for alpha in front.preferences.tolist():
        soup = front.base.load(cache)  # a model with the right shapes; its weights are overwritten
        _copy(dict(soup.named_parameters()), {name: _mean(policies, alpha, name) for name in policies[0]})
        requests = [_request(front, prompt, index) for index, prompt in enumerate(asked)]
        engine = SeparateModels(decoding_model(soup, tokenizer()))
        answers += decode(engine, requests, batch_size=BATCH_SIZE, progress=False)
    return DecodedFront(answers, 0.0, parameters)


def _merged(guide: DecodingModel) -> Any:
    assert guide.adapter is not None
    return guide.adapter.merge({name: 1.0 for name in guide.adapter.objectives})


def _mean(policies: Sequence[dict[str, torch.Tensor]], alpha: Sequence[float], name: str) -> np.ndarray:
    return sum(share * policy[name].detach() for share, policy in zip(alpha, policies, strict=True)).numpy()  # type: ignore


def _mixture(front: Front, cache: Path, asked: Sequence[Messages]) -> DecodedFront:
    """Decode by MOD for two objectives: log π̃ = Σ_i α_i log π_i - log Z       Shi et al. 2024, arXiv:2406.18853

    The policy with the larger weight α_i is the engine's base model and the other its guide with w = α_j / α_i, sampled
    at temperature 1 / α_i, which is the same distribution.
    """
    guides = [guide.load(cache) for guide in front.guides]
    parameters, answers = _trainable(front, guides), []
    policies = [decoding_model(_merged(guide), tokenizer()) for guide in guides]
    for alpha in front.preferences:
        first, second = np.argsort(-alpha, kind="stable")
        requests = [
            _request(front, prompt, index, weight=alpha[second] / alpha[first], temperature=TEMPERATURE / alpha[first])
            for index, prompt in enumerate(asked)
        ]
        engine = SeparateModels(policies[first], policies[second])
        answers += decode(engine, requests, batch_size=BATCH_SIZE, progress=False)
    return DecodedFront(answers, 1.0, parameters)


WAYS: dict[str, Callable[[Front, Path, Sequence[Messages]], DecodedFront]] = {
    "guided": _guided,
    "soup": _soup,
    "mixture": _mixture,
}


def _request(front: Front, prompt: Messages, index: int, **changes: Any) -> Request:
    options = {"weight": front.weight, "temperature": TEMPERATURE, "max_new_tokens": LONGEST} | changes
    return Request(prompt, seed=front.seed * 100_000 + index, **options)


def _trainable(front: Front, guides: Sequence[DecodingModel]) -> int:
    both = zip(front.guides, guides, strict=True)
    return sum(decoder.adapter.parameter_count() for guide, decoder in both if guide.recipe.steps and decoder.adapter)


def _gold(requests: Sequence[Request], answers: Sequence[DecodedCompletion], objectives: Sequence[str]) -> np.ndarray:
    both = zip(requests, answers, strict=True)
    golds = [garden.gold_rewards(prompt_text(request.prompt), answer.text) for request, answer in both]
    return np.array([[getattr(gold, name) for name in objectives] for gold in golds])


@torch.inference_mode()
def _base_logprobs(
    base: DecodingModel, requests: Sequence[Request], answers: Sequence[DecodedCompletion]
) -> np.ndarray:
    """Compute log π_base of every completion, in nats."""
    prompts, logprobs = prompts_of(base.encoder, requests), []
    for first in range(0, len(answers), BATCH_SIZE):
        starts = [len(prompt) for prompt in prompts[first : first + BATCH_SIZE]]
        both = zip(prompts[first : first + BATCH_SIZE], answers[first : first + BATCH_SIZE], strict=True)
        batch = pad([[*prompt, *answer.tokens] for prompt, answer in both])
        logprobs.append(completion_logprobs(base.model, batch.tokens, batch.attention, torch.tensor(starts)).sum(1))
    return torch.cat(logprobs).double().numpy()
