"""Sampling of many completions in one batch: each distinct prompt is read once, finished rows are dropped."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import linear, pad, scaled_dot_product_attention

from ....benchmarks.garden.models import tokenizer
from ....policy.step.forward import CompletionBatch
from ....rm.backbones.tokenization import Encoder, describe_tokenizer
from ....rm.contract.scoring_contract import ScoringContract
from ....rm.types import Example, Messages
from ..policies import LONGEST
from .trunk import Attention, Trunk, completion_readings, last_states, trunk_of

Cache = Float[Tensor, "layers 2 N H W E"]
"""Keys and values; the tokens of a row end with the column of the last token, without gaps."""


@cache
def policy_encoder() -> Encoder:
    """Return the encoder of the worlds' policies."""
    words = tokenizer()
    return Encoder(words, ScoringContract(kind="policy", **describe_tokenizer(words)))


class Completions(NamedTuple):
    """Sampled completions of N prompts; prompts may repeat."""

    rows: CompletionBatch
    finished: Bool[Tensor, " N"]
    """Whether the completion ended by itself; the others were truncated."""
    logprob: Float[Tensor, "N L"]
    """Log-probability of every sampled token in nats, 0 outside completions."""
    examples: list[Example]


@torch.no_grad()
def sample_completions(
    policy: Any,
    prompts: Sequence[Messages],
    *,
    seed: int,
    longest: int = LONGEST,
    temperature: float = 1.0,
    size: int = 1024,
    encoder: Encoder | None = None,
) -> Completions:
    """Sample one completion of every prompt, of at most `longest` tokens, `size` at a time.

    Log-probabilities are those at the temperature. `encoder` is by default that of the worlds' policies.
    """
    encoder = encoder or policy_encoder()
    generator, trunk, words = Generator().manual_seed(seed), trunk_of(policy), encoder.tokenizer
    ids = prompt_ids(prompts, encoder)
    head = policy.lm_head.weight / temperature
    parts = [
        _sampled(trunk, head, ids[start : start + size], longest, words.eos_token_id, generator)
        for start in range(0, len(ids), size)
    ]
    tokens, response, logprob = (torch.cat(columns) for columns in zip(*parts, strict=True))
    ends = (tokens == words.eos_token_id) & response
    lengths = response.sum(1).tolist()
    texts = words.batch_decode(
        [row[:length] for row, length in zip(tokens.tolist(), lengths, strict=True)], skip_special_tokens=True
    )
    examples = [Example(prompt, text) for prompt, text in zip(prompts, texts, strict=True)]
    return Completions(completion_rows(ids, tokens, response), ends.any(1), logprob, examples)


def _sampled(
    trunk: Trunk, head: Tensor, ids: list[list[int]], longest: int, end: int, generator: Generator
) -> tuple[Int[Tensor, "N L"], Bool[Tensor, "N L"], Float[Tensor, "N L"]]:
    """Return tokens, the mask of completions (end of text included) and log-probabilities."""
    N, (cache, state, start, real) = len(ids), _read_prompts(trunk, ids, longest)
    P = real.shape[1] - longest
    tokens = torch.full((N, longest), end)
    response, logprob = torch.zeros(N, longest, dtype=torch.bool), torch.zeros(N, longest)
    live, running = torch.arange(N), torch.ones(N, dtype=torch.bool)
    for step in range(longest):
        logp = linear(state, head).log_softmax(-1)
        sampled = _draw(logp, generator)
        tokens[live, step] = torch.where(running, sampled, end)
        response[live, step] = running
        logprob[live, step] = torch.where(running, logp.gather(1, sampled[:, None])[:, 0], 0)
        running = running & (sampled != end)
        if step + 1 == longest or not running.any():
            break
        if 4 * running.sum() < 3 * len(live):
            index = running.nonzero().squeeze(1)
            live, sampled, start, real = live[index], sampled[index], start[index], real[index]
            cache, running = cache.index_select(2, index), running[index]
        attention = _cached_attention(cache, real[:, None, None, : P + step + 1], P + step)
        state = last_states(trunk, sampled, start + step, attention)
    return tokens * response, response, logprob


def _draw(logp: Float[Tensor, "N V"], generator: Generator) -> Int[Tensor, " N"]:
    """Draw a token of every row by the inverse of its distribution function."""
    summed = logp.exp().cumsum(1)
    level = torch.rand(len(logp), 1, generator=generator) * summed[:, -1:]
    return (summed <= level).sum(1).clamp_max(logp.shape[1] - 1)


def _cached_attention(cache: Cache, real: Bool[Tensor, "N 1 1 S"], column: int) -> Attention:
    """Store keys and values of one token a row at `column`, and attend to what is there up to it."""
    mask = torch.zeros(real.shape).masked_fill_(~real, -math.inf)

    def attention(index: int, qkv: Float[Tensor, "N 3 H E"]) -> Float[Tensor, "N HE"]:
        keys_values = cache[index]
        keys_values[:, :, :, column] = qkv[:, 1:].transpose(0, 1)
        keys, values = keys_values[..., : column + 1, :]
        attended = scaled_dot_product_attention(qkv[:, 0, :, None], keys, values, attn_mask=mask)
        return attended.reshape(len(qkv), -1)

    return attention


def _read_prompts(
    trunk: Trunk, ids: list[list[int]], longest: int
) -> tuple[Cache, Float[Tensor, "N D"], Int[Tensor, " N"], Bool[Tensor, "N W"]]:
    """Return the cache of all rows, the state behind every prompt, its length, and the mask of columns in use.

    Prompts end at the same column of the cache; each distinct one is read once.
    """
    distinct = {prompt: row for row, prompt in enumerate(dict.fromkeys(map(tuple, ids)))}
    index = torch.tensor([distinct[tuple(prompt)] for prompt in ids])
    M, P, E, layers = len(distinct), max(map(len, distinct)), trunk.head_size, len(trunk.layers)
    lengths = torch.tensor([len(prompt) for prompt in distinct])
    real = torch.arange(P) >= P - lengths[:, None]
    flat = torch.tensor([token for prompt in distinct for token in prompt])
    causal = torch.ones(P, P, dtype=torch.bool).tril() & real[:, None, None]
    causal |= torch.eye(P, dtype=torch.bool)  # padding attends to itself: no row of the softmax is empty
    cache = torch.zeros(layers, 2, M, trunk.embedding.shape[1] // E, P + longest, E)

    def attention(layer: int, qkv: Float[Tensor, "T 3 H E"]) -> Float[Tensor, "T HE"]:
        padded = qkv.new_zeros(M, P, *qkv.shape[1:])
        padded[real] = qkv
        q, k, v = padded.permute(2, 0, 3, 1, 4)
        cache[layer, 0, :, :, :P], cache[layer, 1, :, :, :P] = k, v
        return scaled_dot_product_attention(q, k, v, attn_mask=causal).transpose(1, 2)[real].flatten(1)

    positions = torch.arange(P) - (P - lengths[:, None])
    states = last_states(trunk, flat, positions[real], attention)[lengths.cumsum(0) - 1]
    return cache[:, :, index], states[index], lengths[index], pad(real, (0, longest), value=True)[index]


def prompt_ids(prompts: Sequence[Messages], encoder: Encoder) -> list[list[int]]:
    """Encode prompts, each distinct one once."""
    names = [repr(prompt) for prompt in prompts]
    encoded = {name: encoder.encode_prompt(prompt) for name, prompt in dict(zip(names, prompts, strict=True)).items()}
    return [encoded[name] for name in names]


def completion_rows(ids: list[list[int]], tokens: Int[Tensor, "N L"], response: Bool[Tensor, "N L"]) -> CompletionBatch:
    """Join prompts and completions into right-padded rows."""
    start, lengths = torch.tensor([len(prompt) for prompt in ids]), response.sum(1)
    columns = torch.arange(int((start + lengths).max()))
    attention, in_prompt = columns < (start + lengths)[:, None], columns < start[:, None]
    padded = torch.zeros(attention.shape, dtype=torch.long)
    padded.masked_scatter_(in_prompt, torch.tensor([token for prompt in ids for token in prompt]))
    padded.masked_scatter_(attention & ~in_prompt, tokens[response])
    return CompletionBatch(padded, attention, start, response)


@torch.no_grad()
def kl_from(start: Any, completions: Completions) -> float:
    """Return the mean of log π - log π_start over a policy's completions, an unbiased estimate of the KL in nats."""
    ratio = completions.logprob - completion_readings(start, completions.rows).logprob
    return float(ratio.sum(1).double().mean())
