"""Fronts of guided decoding in the garden: completions at every preference of a grid, with their gold rewards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ....benchmarks import garden
from ....benchmarks.garden.models import tokenizer
from ....policy.decoding.engines import Engine, SeparateModels, SharedBackbone
from ....policy.decoding.guided import decode
from ....policy.decoding.language_models import DecodingModel, decoding_model, prompts_of
from ....policy.decoding.requests import DecodedCompletion, Request
from ....rm.backbones.logprobs import completion_logprobs
from ....rm.backbones.tokenization import pad
from ....rm.data.preference_vectors import simplex_grid
from ....rm.data.text_diversity import repetition
from ....rm.types import Messages, prompt_text
from ...studies._runs.job_cache import Arrays, Job
from . import REWARDS, Base, Guide, copy_weights

TEMPERATURE = 1.0
LONGEST = 32
BATCH_SIZE = 512


@dataclass(frozen=True)
class Front(Job):
    """Completions of a base model under guides, at every preference of a grid, scored by a world's gold rewards.

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
    world: str = "garden"

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
            "rewards": self._gold(requests, decoded.answers).reshape(*shape, -1),
            "length": lengths.reshape(shape),
            "repetition": np.array([repetition(answer.tokens) for answer in decoded.answers]).reshape(shape),
            "divergence": ((sampled - base) / lengths).reshape(shape),
            "base_logprob": (base / lengths).reshape(shape),
            "forwards": np.array(decoded.forwards),
            "parameters": np.array(decoded.parameters),
        }

    def _gold(self, requests: Sequence[Request], answers: Sequence[DecodedCompletion]) -> np.ndarray:
        """Return the gold rewards of all completions [N, K]."""
        reward, both = REWARDS[self.world], zip(requests, answers, strict=True)
        golds = [reward(prompt_text(request.prompt), answer.text) for request, answer in both]
        return np.array([[gold[name] for name in self.objectives] for gold in golds])


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
        copy_weights(dict(soup.named_parameters()), {name: _mean(policies, alpha, name) for name in policies[0]})
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
    adapters = [decoder.adapter for guide, decoder in both if guide.recipe.steps and decoder.adapter]
    return sum(weight.numel() for adapter in adapters for weight in adapter.model.parameters() if weight.requires_grad)


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
