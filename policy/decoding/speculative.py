"""Speculative guided decoding: a small model drafts and a big one verifies, without changing the output distribution.

    q(v) ∝ exp((z_small(v) + w z_arm(v)) / T)    drafts: one forward of the small backbone, without and with its adapter
    p(v) ∝ exp((z_big(v) + w z_arm(v)) / T)      the target: what `decode` samples from with SeparateModels(big, guide)

    accept a draft x ~ q with probability min(1, p(x) / q(x)), else draw from max(p - q, 0) / Σ_v max(p - q, 0);
    after a fully accepted draft, one more token from p            Leviathan et al. 2023, arXiv:2211.17192, algorithm 1

Every token then has the distribution p given the previous ones, for any q (appendix A.1 there). Our addition: the ARM's
logits are already computed for drafted tokens, so p costs only one parallel forward pass of the big model, and w z_arm
cancels in p / q: a large weight does not make draft and target differ more. Truncation applies to both, and in greedy
decoding both are point masses.

Randomness: token t of a completion uses the three uniform numbers of philox stream 5 at (seed, index 0, position t):
for the draft, for the test, and for the draw after a rejection or a full draft. The completion does not depend on the
random numbers of rejected drafts, so the next draft at these positions may use the same numbers.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import DynamicCache

from ...kernels import philox
from ...kernels.dispatch import wide
from ...kernels.guided_sampler import Truncation, mixed, threshold
from ...rm.backbones.forward_hooks import cache_argument
from ...rm.errors import UsageError
from .engines import (
    GUIDE,
    DecodingModel,
    end_tokens,
    language_model,
    max_completion_lengths,
    preferences_of,
    prompts_of,
    shared_vocabulary,
)
from .guided import CompletionReader
from .requests import FACTS, DecodedCompletion, Request
from .static.steps import Logits, exclusively

STREAM = 5  # philox stream of the random numbers
DRAFT, TEST, REST = range(3)  # their indices


@dataclass(frozen=True)
class Counts:
    """Numbers of forward passes and of drafted and accepted tokens for one completion."""

    big: int
    """Forward passes of the big model."""
    small: int
    """Forward passes of the small model."""
    drafted: int
    """Drafted tokens."""
    accepted: int
    """Accepted tokens."""

    @property
    def acceptance(self) -> float:
        """Share of accepted tokens among drafted tokens, in [0, 1]. Tokens after a rejection are not accepted."""
        return self.accepted / self.drafted if self.drafted else float("nan")


class Speculated(NamedTuple):
    """A completion as returned by `decode`, and the counts of its generation."""

    completion: DecodedCompletion
    counts: Counts


@torch.inference_mode()
def speculate(
    big: DecodingModel, guide: DecodingModel, requests: Sequence[Request], *, draft: int = 4
) -> list[Speculated]:
    """Decode a completion of the big model with the guide for every request, one at a time, for low latency.

    `guide` is an adapter on the small model, which drafts up to `draft` tokens per round. A completion is a function of
    its request and of `draft`; its distribution is that of `decode(SeparateModels(big, guide), ...)`, and at
    temperature 0 its tokens are equal up to ties. At weight 0 the adapter is not run.
    """
    if guide.adapter is None:
        raise UsageError("the small model drafts without its adapter and guides with it; give a guide with an adapter")
    if big.adapter is not None:
        raise UsageError("the big model has an adapter of its own; give a model without adapter, or merge it first")
    if draft < 1:
        raise UsageError(f"draft, a number of tokens, must be at least 1, got {draft}")
    if any(request.annealing for request in requests):
        raise UsageError("speculative decoding does not support annealing; remove it, or use `decode`")
    if not requests:
        return []
    vocabulary, ends, alphas = shared_vocabulary([big, guide]), end_tokens(big), preferences_of(guide, requests)
    prompts = [prompts_of(decoder.encoder, requests) for decoder in (big, guide)]
    capacities = map(min, max_completion_lengths(big, prompts[0]), max_completion_lengths(guide, prompts[1]))
    models, completions = [language_model(decoder) for decoder in (big, guide)], []
    with ExitStack() as stack:
        stack.enter_context(exclusively(models))
        for request, big_prompt, other, capacity, alpha in zip(
            requests, *prompts, capacities, alphas.split(1), strict=True
        ):
            reader = CompletionReader(request, big.encoder.tokenizer, ends, capacity)
            target = CachedLM(models[0], big_prompt, rows=1, vocabulary=vocabulary)
            drafter = CachedLM(models[1], other, rows=1 + (request.weight != 0), vocabulary=vocabulary)
            with guide.adapter.serving(guide.adapter.modulations(alpha), start=1):
                completions.append(Generation(reader, target, drafter, ends, draft).finish(len(big_prompt)))
    return completions


class CachedLM:
    """A language model with a KV cache of one growing text; rows differ only in adapters, and tokens can be removed."""

    def __init__(self, model: Any, prompt: Sequence[int], *, rows: int, vocabulary: int):
        self.model, self.prompt, self.rows, self.vocabulary = model, list(prompt), rows, vocabulary
        self.device = model.device
        self.forwards = 0
        self._read = 0
        self._cache = DynamicCache(config=model.config)
        self._cache_argument = cache_argument(model)
        self._cache.activate_past_recording()  # sliding-window caches keep what a rewind needs
        if not self._cache.is_croppable:
            raise UsageError(f"the cache of a {model.config.model_type} cannot be cropped; use decode instead")

    def read(self, completion: Sequence[int], last: int) -> Logits:
        """Read up to the end of the completion; return logits after each of its `last` tokens, or after the prompt."""
        text = [*self.prompt, *completion]
        new = torch.tensor([text[self._read :]] * self.rows, device=self.device)
        positions = torch.arange(self._read, len(text), device=self.device)
        self.forwards += 1
        self._read = len(text)
        logits = self.model(
            input_ids=new,
            position_ids=positions.expand_as(new),
            **{self._cache_argument: self._cache},
            use_cache=True,
            logits_to_keep=last,
        ).logits[..., : self.vocabulary]
        return Logits(logits[0], logits[1:].transpose(0, 1))

    def rewind(self, length: int) -> None:
        """Remove the completion's tokens from `length` on."""
        keep = min(self._read, len(self.prompt) + length)
        self._cache.crop(keep - self._read)
        self._read = keep


# ---- rounds ----


class _Draft(NamedTuple):
    tokens: list[int]
    q: Float[Tensor, "D V"]
    guides: Float[Tensor, "D G V"]


class _Target(NamedTuple):
    base: Float[Tensor, "L V"]
    guides: Float[Tensor, "L G V"]
    u: Float[Tensor, "L V"]
    p: Float[Tensor, "L V"]


class Generation:
    """Generates one completion in rounds of drafting and verification."""

    def __init__(self, reader: CompletionReader, big: CachedLM, small: CachedLM, ends: frozenset[int], draft: int):
        self.reader, self.big, self.small, self.draft = reader, big, small, draft
        self.request = reader.request
        self.ends = frozenset() if self.request.ignore_eos else ends
        self.drafted = self.accepted = 0
        self._facts: list[np.ndarray] = []

    def finish(self, prompt_tokens: int) -> Speculated:
        """Generate to the end."""
        while self.reader.finished is None:
            self._round()
        columns = np.concatenate(self._facts).T
        guide = columns[-1] if len(columns) > len(FACTS) else np.full(columns.shape[1], np.nan)
        completion = self.reader.completion(prompt_tokens, {GUIDE: guide}, columns[: len(FACTS)])
        return Speculated(completion, Counts(self.big.forwards, self.small.forwards, self.drafted, self.accepted))

    def _round(self) -> None:
        """Draft, verify, and sample one more token unless the completion has ended."""
        written = [*self.reader.tokens]
        number = min(self.draft, self.reader.budget - len(written))
        noise = uniforms(self.request.seed, len(written), number + 1)
        draft = self._drafted(written, noise[DRAFT, :number].tolist())
        text = [*written, *draft.tokens]
        base = self.big.read(text, len(draft.tokens) + 1).base
        target = self._target(base[:-1], draft.guides)
        number_accepted = accepted(target.p, draft.q, draft.tokens, noise[TEST])
        new = draft.tokens[:number_accepted]
        self.reader.read(new)
        if self.reader.finished is None:
            if number_accepted < len(draft.tokens):
                rest = residual(target.p[number_accepted], draft.q[number_accepted])
            else:
                target = self._target(base, torch.cat([draft.guides, self._guides_after(text, draft)]))
                rest = target.p[number_accepted]
            new = [*new, draw(rest, float(noise[REST, number_accepted]))]
            self.reader.read(new[-1:])
        self._facts.append(facts(*target, new[: len(self.reader.tokens) - len(written)]))
        for model in (self.big, self.small):
            model.rewind(len(written) + number_accepted)
        self.drafted, self.accepted = self.drafted + len(draft.tokens), self.accepted + number_accepted

    def _drafted(self, written: Sequence[int], noise: Sequence[float]) -> _Draft:
        """Draft one token after `written` for each random number; stop at a token that ends the completion."""
        tokens, q, guides = [], [], []
        for number in noise:
            here = self._target(*self.small.read([*written, *tokens], 1))
            q.append(here.p)
            guides.append(here.guides)
            tokens.append(draw(here.p[0], number))
            if tokens[-1] in self.ends:
                break
        return _Draft(tokens, torch.cat(q).to(self.big.device), torch.cat(guides).to(self.big.device))

    def _guides_after(self, text: Sequence[int], draft: _Draft) -> Float[Tensor, "1 G V"]:
        """Return the guide's logits after a full draft; the small model's step is reused by the next round."""
        if self.request.weight == 0:
            return draft.guides[:1]
        return self.small.read(text, 1).guides.to(self.big.device)

    def _target(self, base: Float[Tensor, "L V"], guides: Float[Tensor, "L G V"]) -> _Target:
        """Return the logits of base and guide with their mixture u and its probabilities p."""
        u = mixture(base, guides, self.request.weight)
        return _Target(base, guides, u, probabilities(u, self.request))


# ---- acceptance rule ----


def uniforms(seed: int, start: int, number: int) -> Float[Tensor, "3 N"]:
    """Return random numbers in (0, 1) for the completion tokens from `start` on; the rows are DRAFT, TEST and REST."""
    positions = torch.arange(start, start + number)
    return philox.uniform(philox.words(torch.tensor(seed), torch.tensor(0), positions, STREAM))[:3]


def mixture(base: Float[Tensor, "L V"], guides: Float[Tensor, "L G V"], weight: float) -> Float[Tensor, "L V"]:
    """Return u = z_0 + w z_arm, in at least float32; G is 0 or 1."""
    base = base.to(wide(base.dtype))
    if not guides.shape[1]:
        return base
    return mixed(base, guides, torch.full(guides.shape[:2], weight, dtype=base.dtype, device=base.device))


def probabilities(u: Float[Tensor, "L V"], request: Request) -> Float[Tensor, "L V"]:
    """Return softmax(u / T), truncated as in `guided_sampler`, in float64; at temperature 0, one-hot vectors."""
    if request.temperature == 0:
        return torch.nn.functional.one_hot(u.argmax(1), u.shape[1]).double()
    x = (u - u.amax(1, keepdim=True)) / request.temperature
    row = x.new_ones(len(x), dtype=torch.float64)
    limits = Truncation(row.long() * request.top_k, row * request.top_p, row * request.min_p)
    if limits.on(x.shape[1]).any():
        tau, _ = threshold(x.sort(descending=True).values, x, limits)
        x = x.masked_fill(x < tau[:, None], -torch.inf)
    return x.double().softmax(1)


def accepted(
    p: Float[Tensor, "D V"], q: Float[Tensor, "D V"], tokens: Sequence[int], uniform: Float[Tensor, " N"]
) -> int:
    """Return the number of accepted drafts: those before the first with U >= p(x) / q(x)."""
    token_ids = torch.tensor(tokens, device=p.device)[:, None]
    of_p, of_q = (probabilities.gather(1, token_ids).squeeze(1) for probabilities in (p, q))
    return int((uniform[: len(tokens)].to(p.device) * of_q < of_p).long().cumprod(0).sum())


def residual(p: Float[Tensor, " V"], q: Float[Tensor, " V"]) -> Float[Tensor, " V"]:
    """Return max(p - q, 0), unnormalised; p if p and q are equal up to rounding."""
    rest = (p - q).clamp_min(0)
    return rest if rest.any() else p


def draw(mass: Float[Tensor, " V"], uniform: float) -> int:
    """Return the first token whose cumulative mass exceeds U Σ mass: token v with probability mass_v / Σ mass."""
    reached = mass.cumsum(0)
    return int(torch.searchsorted(reached, uniform * reached[-1:], right=True).clamp_max(len(mass) - 1))


def facts(
    base: Float[Tensor, "L V"],
    guides: Float[Tensor, "L G V"],
    u: Float[Tensor, "L V"],
    p: Float[Tensor, "L V"],
    tokens: Sequence[int],
) -> np.ndarray:
    """Return the statistics `FACTS` of T tokens, then the log-probabilities under G guides: [T, 5 + G], in nats."""
    token_ids = torch.tensor(tokens, dtype=torch.long, device=u.device)[:, None]
    base, guides, u, p = (logits[: len(tokens)] for logits in (base, guides, u, p))
    logs, logs_base = u.log_softmax(1), base.to(u.dtype).log_softmax(1)
    probabilities = logs.exp()
    entropy = torch.special.entr(probabilities).sum(1, keepdim=True)
    kl = torch.where(probabilities > 0, probabilities * (logs - logs_base), 0).sum(1, keepdim=True).clamp_min(0)
    at = [logs_base.gather(1, token_ids), logs.gather(1, token_ids), p.gather(1, token_ids).log()]
    others = [logits.to(u.dtype).log_softmax(1).gather(1, token_ids) for logits in guides.unbind(1)]
    return torch.cat([*at, entropy, kl, *others], 1).double().cpu().numpy()
