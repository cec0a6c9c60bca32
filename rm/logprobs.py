"""How likely a causal language model finds an answer, token by token."""

from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from .encode import right_padded
from .trunks import embedding_rows

LOGITS = 2**26  # numbers in one chunk of logits: 256 MB in float32


def answer_logprobs(
    model: Any,
    tokens: Int[Tensor, "N L"],
    attention: Shaped[Tensor, "N L"],
    start: Int[Tensor, " N"],
    *,
    logits: int = LOGITS,
) -> Float[Tensor, "N L"]:
    """log π(y_t | x, y_<t) in nats for every token of the answer, and 0 everywhere else; differentiable.

    log π(y_t | x, y_<t) = z_t[y_t] - log Σ_v exp z_t[v],   z_t the logits that the model gives at t - 1

    Column t belongs to token t of `tokens`, padded on either side. `start` counts real tokens: the answer is all from
    there to the end. The very first token of a sequence has nothing before it and counts 0. Logits are computed for so
    many rows at a time that a chunk holds `logits` numbers or one row.
    """
    real = right_padded(tokens, attention)
    rows = max(1, logits // (tokens.shape[1] * embedding_rows(model)))
    chunks = zip(real.tokens.split(rows), real.attention.split(rows), strict=True)
    logprobs = torch.cat([_next_token_logprobs(model, *chunk) for chunk in chunks])
    answer = torch.arange(tokens.shape[1], device=tokens.device) >= start[:, None]
    said = torch.where(answer, logprobs, 0)[real.attention]
    return torch.zeros_like(logprobs).masked_scatter(attention.bool(), said)  # back to the caller's side


def _next_token_logprobs(
    model: Any, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]
) -> Float[Tensor, "N L"]:
    logits = model(input_ids=tokens, attention_mask=attention.long(), use_cache=False).logits[:, :-1]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    said = logits.gather(2, tokens[:, 1:, None]).squeeze(2) - logits.logsumexp(dim=2)
    return torch.nn.functional.pad(said, (1, 0))
