"""Log-probabilities of completions under a causal language model, token by token."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...kernels.linear_logprob import LinearLogprob, linear_logprob
from ..io.sharded_weights import is_partitioned
from .forward_hooks import language_model_of
from .hub import text_option
from .loading import embedding_rows
from .tokenization import right_padded

LOGITS = 2**24  # elements in one chunk of logits: 64 MB in float32
_READABLE: "WeakKeyDictionary[nn.Module, bool]" = WeakKeyDictionary()


def completion_logprobs(
    model: Any,
    tokens: Int[Tensor, "N L"],
    attention: Shaped[Tensor, "N L"],
    start: Int[Tensor, " N"],
    *,
    logits: int = LOGITS,
) -> Float[Tensor, "N L"]:
    """Return log π(y_t | x, y_<t) in nats for every token of the completion, and 0 elsewhere; differentiable.

    log π(y_t | x, y_<t) = z_t[y_t] - log Σ_v exp z_t[v],   z_t the logits that the model gives at t - 1

    Column t belongs to token t of `tokens`, padded on either side. `start` counts tokens without padding: the
    completion is everything from there to the end. The first token of a sequence gets 0. If the head is a linear layer
    on the last hidden states, at most `logits` logits exist at a time, for completion tokens only.
    """
    real = right_padded(tokens, attention)
    in_completion = _completion_mask(real.attention, start)
    before = in_completion[:, 1:]
    targets = real.tokens[:, 1:][before]
    model = language_model_of(model)
    if head_reads_last_states(model, len(tokens)):
        states = model.get_decoder()(
            input_ids=real.tokens, attention_mask=real.attention.long(), use_cache=False
        ).last_hidden_state
        values = head_logprobs(model, states[:, :-1][before], targets, chunk=logits).logprob
    else:
        values = _logprobs_from_logits(model, real.tokens, real.attention, logits)[:, 1:][before]
    return _scatter_values(values, in_completion, real.attention, attention)


def centred_logprobs(
    model: Any,
    base: Callable[[], AbstractContextManager[Any]],
    tokens: Int[Tensor, "N L"],
    attention: Shaped[Tensor, "N L"],
    start: Int[Tensor, " N"],
    *,
    logits: int = LOGITS,
) -> Float[Tensor, "N L"]:
    """Return log π(y_t | s_t) - Σ_v π_0(v | s_t) log π(v | s_t) in nats for every token of the completion, 0 elsewhere.

    s_t = (x, y_<t), and π_0 is the base model: `model` within `base()`, such as `PreferenceAdapter.disabled`, with the
    same output head. Under π_0 every term has mean 0. Differentiable in π. Runs both models once; shapes and padding
    are those of `completion_logprobs`.
    """
    real = right_padded(tokens, attention)
    in_completion = _completion_mask(real.attention, start)
    before = in_completion[:, 1:]
    targets = real.tokens[:, 1:][before]
    model = language_model_of(model)
    options = {"input_ids": real.tokens, "attention_mask": real.attention.long(), "use_cache": False}
    by_state = head_reads_last_states(model, len(tokens))

    def read() -> Tensor:
        """Return the last hidden states, or the logits, from which the completions' tokens are predicted."""
        if by_state:
            return model.get_decoder()(**options).last_hidden_state[:, :-1][before]
        return model(**options).logits[:, :-1][before]

    with torch.no_grad(), base():
        of_base = read()
    rows = max(1, logits // embedding_rows(model))
    head = partial(head_logits, model) if by_state else Tensor.float
    parts = zip(read().split(rows), of_base.split(rows), targets.split(rows), strict=True)
    values = torch.cat([checkpoint(_centred, head, *part, use_reentrant=False) for part in parts])
    return _scatter_values(values, in_completion, real.attention, attention)


def _centred(head: Callable[[Tensor], Tensor], states: Tensor, of_base: Tensor, targets: Tensor) -> Tensor:
    """Return log π(target) minus the mean of log π under the base model's distribution, for every row."""
    logprobs = head(states).log_softmax(dim=-1)
    with torch.no_grad():
        chances = head(of_base).softmax(dim=-1)
    return logprobs.gather(-1, targets[:, None]).squeeze(-1) - (chances * logprobs).sum(dim=-1)


def head_logits(model: Any, states: Float[Tensor, "*M D"]) -> Float[Tensor, "*M V"]:
    """Return the logits that the output head reads from last hidden states; requires `head_reads_last_states`."""
    head = model.get_output_embeddings()
    logits = head(states).float()
    softcap = text_option(model.config, "final_logit_softcapping")
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def _completion_mask(attention: Bool[Tensor, "N L"], start: Int[Tensor, " N"]) -> Bool[Tensor, "N L"]:
    """Return the mask of the completion tokens that are predicted, for right-padded sequences."""
    columns = torch.arange(attention.shape[1], device=attention.device)
    return (columns >= start[:, None].clamp_min(1)) & attention


def _scatter_values(values: Tensor, in_completion: Tensor, right: Tensor, attention: Tensor) -> Float[Tensor, "N L"]:
    """Return the values of completion tokens at their columns of the original padding, and 0 elsewhere."""
    placed = values.new_zeros(attention.shape).masked_scatter(in_completion, values)
    return torch.zeros_like(placed).masked_scatter(attention.bool(), placed[right])


def head_logprobs(
    model: Any,
    states: Float[Tensor, "M D"],
    targets: Int[Tensor, " M"],
    *,
    temperature: float = 1.0,
    chunk: int | None = None,
) -> LinearLogprob:
    """Return log π(target) and entropy from last hidden states; requires `head_reads_last_states`."""
    head = model.get_output_embeddings()
    softcap = text_option(model.config, "final_logit_softcapping")
    return linear_logprob(
        states, head.weight, targets, bias=head.bias, temperature=temperature, softcap=softcap, chunk=chunk
    )


@torch.no_grad()
def head_reads_last_states(model: Any, rows: int = 1) -> bool:
    """Return whether logits are head(last hidden state), tested once on `rows` rows, as some models scale logits."""
    # partitioned weights are empty outside of a forward pass, so the head cannot be applied by itself
    if any(is_partitioned(parameter) for parameter in model.parameters()):
        return False
    if model not in _READABLE:
        head = model.get_output_embeddings()
        readable = type(head) is nn.Linear and model.get_decoder() is not model
        if readable:
            training = model.training
            model.eval()
            few = torch.linspace(0, embedding_rows(model) - 1, 8, device=head.weight.device).long()
            tokens = few.expand(rows, -1)
            states = model.get_decoder()(input_ids=tokens).last_hidden_state[0]
            computed = head_logprobs(model, states, few).logprob
            logits = model(input_ids=tokens).logits[0]
            direct = _log_softmax_at(logits, few)
            readable = torch.allclose(computed, direct, atol=1e-3 if logits.dtype.itemsize > 2 else 0.2)
            model.train(training)
        _READABLE[model] = readable
    return _READABLE[model]


def _logprobs_from_logits(
    model: Any, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"], logits: int
) -> Float[Tensor, "N L"]:
    """Compute log-probabilities from the model's logits, in chunks of at most `logits` elements (at least one row)."""
    rows, parts = max(1, logits // (tokens.shape[1] * embedding_rows(model))), []
    for ids, mask in zip(tokens.split(rows), attention.split(rows), strict=True):
        predicted = model(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits[:, :-1]
        parts.append(nn.functional.pad(_log_softmax_at(predicted, ids[:, 1:]), (1, 0)))
    return torch.cat(parts)


def _log_softmax_at(logits: Float[Tensor, "*M V"], tokens: Int[Tensor, "*M"]) -> Float[Tensor, "*M"]:
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return logits.gather(-1, tokens[..., None]).squeeze(-1) - logits.logsumexp(dim=-1)
