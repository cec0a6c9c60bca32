"""Policy forward passes over completions: log-probabilities, entropies and hidden states; reference policies."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...kernels.dispatch import wide
from ...rm.backbones.forward_hooks import handle_keyword
from ...rm.backbones.logprobs import head_logits, head_logprobs, head_reads_last_states
from ...rm.backbones.tokenization import Batch as PaddedRows
from ...rm.backbones.tokenization import Encoder, pad, right_padded
from ...rm.errors import DataError, UsageError
from ...rm.types import Example
from ..advantages._groups import last_token

Batch = dict[str, Any]
"""Columns of a batch of completions by name, as tensors with one row per completion."""
STATE_DTYPE = torch.bfloat16  # of states on the CPU: changes R2M's rewards by at most 1 % of the largest


class CompletionBatch(NamedTuple):
    """Right-padded rows of prompt and completion tokens, with the start of each completion."""

    tokens: Int[Tensor, "N W"]
    attention: Bool[Tensor, "N W"]
    start: Int[Tensor, " N"]
    """Number of prompt tokens."""
    response: Bool[Tensor, "N L"]
    """Mask of the tokens that the policy generated. Column 0 is the token at `start`."""


class PolicyOutputs(NamedTuple):
    """Outputs of a policy on completions. Log-probabilities and entropies are 0 outside completions."""

    logprob: Float[Tensor, "N L"]
    entropy: Float[Tensor, "N L"]
    states: Float[Tensor, "N W D"]
    """Last hidden states, prompts included. `completion_states` selects the states that predict completion tokens."""


def completion_batch(
    prompt: Int[Tensor, "N P"],
    prompt_mask: Int[Tensor, "N P"],
    completions: Int[Tensor, "N L"],
    completion_mask: Int[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
) -> CompletionBatch:
    """Concatenate left-padded prompts and right-padded completions, with positions independent of the padding."""
    rows = right_padded(torch.cat([prompt, completions], 1), torch.cat([prompt_mask, completion_mask], 1))
    return CompletionBatch(*rows, prompt_mask.sum(1), response)


def batch_of(batch: Mapping[str, Any]) -> CompletionBatch:
    """Return the rows of a TRL batch. Tokens from tools or environments are in the input but not in `response`."""
    mask = batch["completion_mask"]
    response = (mask * batch["tool_mask"] if "tool_mask" in batch else mask).bool()
    return completion_batch(batch["prompt_ids"], batch["prompt_mask"], batch["completion_ids"], mask, response)


def finished_rows(batch: Batch, response: Bool[Tensor, "N L"], eos_token_ids: Sequence[int]) -> Bool[Tensor, " N"]:
    """Return a mask of the completions in a TRL batch that end with an EOS token that the policy generated."""
    ends = torch.isin(batch["completion_ids"], torch.tensor(eos_token_ids, device=response.device))
    return (ends & response & last_token(batch["completion_mask"].bool())).any(1)


def install(model: Any, *, temperature: float = 1.0) -> None:
    """Patch the unwrapped model to return `PolicyOutputs` for the keyword argument `completions`.

    Log-probabilities and entropies are at the sampling temperature.
    """
    head_reads_last_states(model)  # test now and cache the result, before the model is wrapped

    def read(inner: Any, rows: CompletionBatch) -> PolicyOutputs:
        return (_outputs_from_states if head_reads_last_states(inner) else _outputs_from_logits)(
            inner, rows, temperature
        )

    handle_keyword(model, "completions", read)


def _outputs_from_states(model: Any, rows: CompletionBatch, temperature: float) -> PolicyOutputs:
    states = model.get_decoder()(
        input_ids=rows.tokens, attention_mask=rows.attention.long(), use_cache=False
    ).last_hidden_state
    states_of_tokens = completion_states(states, rows)[:, :-1][rows.response]
    computed = head_logprobs(model, states_of_tokens, _targets(rows), temperature=temperature)
    return PolicyOutputs(*(_to_columns(tensor, rows) for tensor in computed), states)


def _outputs_from_logits(model: Any, rows: CompletionBatch, temperature: float) -> PolicyOutputs:
    """Compute the outputs from the model's logits, for output heads that are not a single linear layer."""
    output = model.forward(
        input_ids=rows.tokens, attention_mask=rows.attention.long(), use_cache=False, output_hidden_states=True
    )
    logits = completion_states(output.logits, rows)[:, :-1][rows.response]
    logp = (logits.to(wide(logits.dtype)) / temperature).log_softmax(-1)
    logprob = logp.gather(1, _targets(rows)[:, None]).squeeze(1)
    entropy = -(logp.exp() * logp).sum(1)
    return PolicyOutputs(_to_columns(logprob, rows), _to_columns(entropy, rows), output.hidden_states[-1])


def completion_states(states: Float[Tensor, "N W D"], rows: CompletionBatch) -> Float[Tensor, "N M D"]:
    """Return the hidden states [N, L + 1, D] of completions. Column t is the state that predicts token t (from 0)."""
    return states.gather(1, _state_positions(rows)[..., None].expand(-1, -1, states.shape[-1]))


def _state_positions(rows: CompletionBatch) -> Int[Tensor, "N M"]:
    """Return the positions of a completion's states: the position before each token, and the last token's position."""
    columns = torch.arange(rows.response.shape[1] + 1, device=rows.tokens.device)
    return (rows.start[:, None] - 1 + columns).clamp_max(rows.tokens.shape[1] - 1)


def own_states(states: Float[Tensor, "N W D"], rows: CompletionBatch | PaddedRows) -> list[Float[Tensor, "S D"]]:
    """Copy to the CPU, in bfloat16, each row's states that predict a token of the prompt or the completion."""
    pairs = zip(states, rows.attention.sum(1).tolist(), strict=True)
    return [state[: length - 1].to("cpu", STATE_DTYPE, copy=True) for state, length in pairs]


@torch.no_grad()
def states_of(
    model: Any, encoder: Encoder, examples: Sequence[Example], *, batch_size: int = 256
) -> list[Float[Tensor, "S D"]]:
    """Return the states of `own_states` for prompts and completions given as text.

    Each completion is encoded as finished, not as truncated.
    """
    rows, hidden_states = [encoded.ids for encoded in encoder.encode_all(examples)], []
    device = next(model.parameters()).device
    for index in range(0, len(rows), batch_size):
        batch = pad(rows[index : index + batch_size])
        tokens, attention = batch.tokens.to(device), batch.attention.to(device)
        states = model.get_decoder()(input_ids=tokens, attention_mask=attention.long(), use_cache=False)
        hidden_states += own_states(states.last_hidden_state, batch)
    return hidden_states


def _targets(rows: CompletionBatch) -> Int[Tensor, " T"]:
    """Return the ids of the tokens that the policy generated in all rows."""
    return rows.tokens.gather(1, _state_positions(rows)[:, 1:])[rows.response]


def _to_columns(values: Float[Tensor, " T"], rows: CompletionBatch) -> Float[Tensor, "N L"]:
    """Return the values of the generated tokens as [N, L], with 0 elsewhere."""
    return values.new_zeros(rows.response.shape).masked_scatter(rows.response, values)


def prompt_logprobs(read: Callable[[CompletionBatch], PolicyOutputs], rows: CompletionBatch) -> Float[Tensor, "N P"]:
    """Return the log-probabilities of the prompt's tokens after the first; NaN outside the prompt."""
    columns = torch.arange(1, int(rows.start.max()), device=rows.start.device)
    prompt = columns < rows.start[:, None]
    read_prompts = read(rows._replace(start=torch.ones_like(rows.start), response=prompt))
    return read_prompts.logprob.masked_fill(~prompt, torch.nan)


def vocabulary_logprobs(model: Any, temperature: float) -> Callable[[Float[Tensor, "T D"]], Float[Tensor, "T V"]]:
    """Return the function `Rollout.head` of an unwrapped model, at the sampling temperature."""
    if not head_reads_last_states(model):
        raise UsageError(
            "a formula needs an output head that is a linear layer on the last hidden states with weights on one "
            "device; this policy's head differs; remove the formula"
        )
    return lambda states: (head_logits(model, states) / temperature).log_softmax(-1)


def frozen_copy(model: Any) -> Any:
    """Return a frozen deep copy of the model; it doubles the memory for weights."""
    return copy.deepcopy(model).requires_grad_(False).eval()


@torch.no_grad()
def soup(model: Any, other: Any, share: float) -> Any:
    """θ = (1 - λ) θ_model + λ θ_other, frozen                               SALSA: Chegini 2024, arXiv:2411.01798

    θ are the weights of two models fine-tuned from the same base model; λ = `share`.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"soup: share must be in [0, 1], got {share}")
    mixed, theirs = frozen_copy(model), other.state_dict()
    for name, ours in mixed.state_dict().items():
        if name not in theirs or theirs[name].shape != ours.shape:
            raise DataError(f"soup: the other model has no '{name}' of this shape; pass two fine-tunings of one model")
        if ours.dtype.is_floating_point:
            ours.lerp_(theirs[name].to(ours), share)
    return mixed
