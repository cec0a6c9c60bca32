"""Forward pass of the worlds' small Qwen 3 models on the module's own weights, without padding."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding, linear, pad, scaled_dot_product_attention

from ....policy.step.forward import CompletionBatch, PolicyOutputs
from ....rm.backbones.tokenization import right_padded
from ....rm.errors import UsageError
from ....rm.kinds.scalar.model import ScalarRewardModel
from .operations import Gated, Normalised, Rotated


class Layer(NamedTuple):
    """Weights of a decoder layer; those of a norm are multiplied into the parallel projections that follow it."""

    qkv: Float[Tensor, "3D D"]
    qk_norm: Float[Tensor, "2 1 E"]
    out: Tensor
    gate_up: Float[Tensor, "2F D"]
    down: Tensor


class Trunk(NamedTuple):
    """Weights of a small decoder; gradients reach the module that they were taken from."""

    embedding: Float[Tensor, "V D"]
    layers: tuple[Layer, ...]
    norm: Float[Tensor, " D"]
    head_size: int
    epsilon: float
    cos: Float[Tensor, "P E"]
    sin: Float[Tensor, "P E"]
    """Rotation at every position; `sin` has the sign of the swapped halves."""


Attention = Callable[[int, Tensor], Tensor]
"""(layer index, rotated q, k and v [T, 3, H, E]) -> attended values [T, H E]."""


def trunk_of(model: Any) -> Trunk:
    """Return the weights of a Qwen 3 decoder with as many key heads as query heads; raise UsageError for another."""
    decoder, config = model.base_model, model.config
    if config.model_type != "qwen3" or config.num_key_value_heads != config.num_attention_heads:
        raise UsageError(f"the fast forward pass of the worlds is of small Qwen 3 models, got '{config.model_type}'")
    positions = torch.arange(config.max_position_embeddings)[None]
    with torch.no_grad():
        cos, sin = (table[0] for table in decoder.rotary_emb(decoder.embed_tokens.weight, positions))
    half = sin.shape[1] // 2
    return Trunk(
        decoder.embed_tokens.weight,
        tuple(_layer_of(layer) for layer in decoder.layers),
        decoder.norm.weight,
        config.head_dim,
        config.rms_norm_eps,
        cos,
        torch.cat([-sin[:, :half], sin[:, half:]], 1),
    )


def _layer_of(layer: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return Layer(
        torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        * layer.input_layernorm.weight,
        torch.stack([attention.q_norm.weight, attention.k_norm.weight])[:, None],
        attention.o_proj.weight,
        torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * layer.post_attention_layernorm.weight,
        mlp.down_proj.weight,
    )


def last_states(
    trunk: Trunk, tokens: Int[Tensor, " T"], positions: Int[Tensor, " T"], attention: Attention
) -> Float[Tensor, "T D"]:
    """Return the last hidden states of T tokens; `attention` knows which tokens see which."""
    T, E = len(tokens), trunk.head_size
    x = embedding(tokens, trunk.embedding)
    cos, sin = (table.index_select(0, positions)[:, None, None] for table in (trunk.cos, trunk.sin))
    for index, layer in enumerate(trunk.layers):
        qkv = linear(Normalised.apply(x, trunk.epsilon), layer.qkv).view(T, 3, -1, E)
        rotated = Rotated.apply(qkv, layer.qk_norm, cos, sin, trunk.epsilon)
        x = x + linear(attention(index, rotated), layer.out)
        x = x + linear(Gated.apply(linear(Normalised.apply(x, trunk.epsilon), layer.gate_up)), layer.down)
    return Normalised.apply(x, trunk.epsilon) * trunk.norm


# ---- prompts and completions without padding ----


class Layout(NamedTuple):
    """Tokens of prompts and completions as one sequence of T, each distinct prompt once.

    Index matrices have T where there is no token.
    """

    tokens: Int[Tensor, " T"]
    positions: Int[Tensor, " T"]
    prompts: Int[Tensor, "M P"]
    """Tokens of every distinct prompt."""
    completions: Int[Tensor, "N L"]
    """Tokens of every completion."""
    prompt_of: Int[Tensor, " N"]
    """Row of each completion's prompt."""

    @property
    def before(self) -> Int[Tensor, "N L"]:
        """The token before each token of the completions."""
        ends = (self.prompts < len(self.tokens)).sum(1) - 1
        last = self.prompts.gather(1, ends[:, None])[self.prompt_of]
        return torch.cat([last, self.completions[:, :-1]], 1)

    @property
    def targets(self) -> Int[Tensor, " C"]:
        """The tokens of all completions, row by row."""
        return self.tokens[self.completions[self.completions < len(self.tokens)]]

    @property
    def context(self) -> Int[Tensor, "N S"]:
        """The tokens of every prompt, followed by those of the completion."""
        return torch.cat([self.prompts[self.prompt_of], self.completions], 1)


def layout_of(rows: CompletionBatch) -> Layout:
    """Arrange right-padded rows."""
    N, P = len(rows.tokens), int(rows.start.max())
    columns = torch.arange(rows.tokens.shape[1])
    in_prompt = columns[:P] < rows.start[:, None]
    prompts, prompt_of = torch.where(in_prompt, rows.tokens[:, :P], -1).unique(dim=0, return_inverse=True)
    real = prompts >= 0
    in_completion = rows.attention & (columns >= rows.start[:, None])
    lengths = in_completion.sum(1)
    in_row = torch.arange(int(lengths.max())) < lengths[:, None]
    T, n_prompt = int(real.sum() + lengths.sum()), int(real.sum())
    starts = rows.start[:, None] + torch.arange(in_row.shape[1])
    return Layout(
        torch.cat([prompts[real], rows.tokens[in_completion]]),
        torch.cat([torch.arange(P).expand_as(real)[real], starts[in_row]]),
        torch.full(real.shape, T).masked_scatter(real, torch.arange(n_prompt)),
        torch.full((N, in_row.shape[1]), T).masked_scatter(in_row, torch.arange(n_prompt, T)),
        prompt_of,
    )


def layout_states(trunk: Trunk, layout: Layout) -> Float[Tensor, "T D"]:
    """Return the last hidden states of all tokens; differentiable."""
    T, context, L = len(layout.tokens), layout.context, layout.completions.shape[1]
    P = context.shape[1] - L
    future = torch.ones(L, L, dtype=torch.bool).triu(1).expand(len(context), L, L)
    hidden = torch.cat([(context[:, None, :P] == T).expand(-1, L, -1), future], 2)[:, None]
    mask = torch.zeros(hidden.shape).masked_fill_(hidden, -math.inf)
    # where there is no token, another one is read: it is hidden from all tokens
    gathers = [(matrix.shape, matrix.clamp_max(T - 1).flatten()) for matrix in (layout.prompts, context)]
    tokens = torch.cat([layout.prompts.flatten(), layout.completions.flatten()]) < T
    live = tokens.nonzero().squeeze(1)

    def attention(index: int, qkv: Float[Tensor, "T 3 H E"]) -> Float[Tensor, "T HE"]:
        flat = qkv.view(T, -1)
        of_prompts, of_rows = (
            flat.index_select(0, index).view(*shape, *qkv.shape[1:]).permute(2, 0, 3, 1, 4) for shape, index in gathers
        )
        first = scaled_dot_product_attention(*of_prompts, is_causal=True)
        second = scaled_dot_product_attention(of_rows[0, :, :, P:], *of_rows[1:], attn_mask=mask)
        parts = [attended.transpose(1, 2).reshape(-1, flat.shape[1] // 3) for attended in (first, second)]
        return torch.cat(parts).index_select(0, live)

    return last_states(trunk, layout.tokens, layout.positions, attention)


def completion_readings(model: Any, rows: CompletionBatch, layout: Layout | None = None) -> PolicyOutputs:
    """Return log-probabilities and entropies [N, L] of completions, the first differentiable, and all last states.

    The same numbers as those of `policy.step.forward.install` at temperature 1, up to rounding.
    """
    layout = layout or layout_of(rows)
    states = layout_states(trunk_of(model), layout)
    logp = _distributions(model, layout, states)
    entropy = -(logp.detach().exp() * logp.detach()).sum(1)
    columns = torch.arange(rows.tokens.shape[1])
    everything = torch.where(
        columns < rows.start[:, None],
        pad(layout.prompts[layout.prompt_of], (0, len(columns)))[:, : len(columns)],
        layout.completions.gather(1, (columns - rows.start[:, None]).clamp(0, layout.completions.shape[1] - 1)),
    )
    return PolicyOutputs(
        _in_rows(_of_tokens(logp, layout), layout, rows),
        _in_rows(entropy, layout, rows),
        pad(states.detach(), (0, 0, 0, 1))[everything],
    )


def completion_logprobs(model: Any, rows: CompletionBatch, layout: Layout | None = None) -> Float[Tensor, "N L"]:
    """Return the log-probabilities of `completion_readings` alone."""
    layout = layout or layout_of(rows)
    logp = _distributions(model, layout, layout_states(trunk_of(model), layout))
    return _in_rows(_of_tokens(logp, layout), layout, rows)


def _distributions(model: Any, layout: Layout, states: Float[Tensor, "T D"]) -> Float[Tensor, "C V"]:
    """Return the log-probabilities of all tokens of the vocabulary at every token of the completions."""
    return _logits(model, layout, states).log_softmax(-1)


def _of_tokens(logp: Float[Tensor, "C V"], layout: Layout) -> Float[Tensor, " C"]:
    return logp.gather(1, layout.targets[:, None]).squeeze(1)


def _in_rows(values: Float[Tensor, " C"], layout: Layout, rows: CompletionBatch) -> Float[Tensor, "N L"]:
    live = layout.completions < len(layout.tokens)
    padded = values.new_zeros(live.shape).masked_scatter(live, values)
    return pad(padded, (0, rows.response.shape[1] - live.shape[1])) * rows.response


def completion_logits(model: Any, layout: Layout) -> Float[Tensor, "C V"]:
    """Return the logits for the tokens of all completions, `layout.targets`; differentiable."""
    return _logits(model, layout, layout_states(trunk_of(model), layout))


def _logits(model: Any, layout: Layout, states: Float[Tensor, "T D"]) -> Float[Tensor, "C V"]:
    before = layout.before[layout.completions < len(layout.tokens)]
    return linear(states.index_select(0, before), model.lm_head.weight)


@torch.no_grad()
def proxy_rewards(model: ScalarRewardModel, rows: CompletionBatch) -> Float[Tensor, " N"]:
    """Return the rewards of a small scalar reward model: those of `model.rate` on the texts, up to rounding."""
    return proxy_tokens(model, rows) @ model.model.score.weight[0]


@torch.no_grad()
def proxy_tokens(model: ScalarRewardModel, rows: CompletionBatch) -> Float[Tensor, "N D"]:
    """Return the inputs of the head: those of `rm.kinds.r2m.model.reward_tokens` on the texts, up to rounding."""
    tokenizer = model.encoder.tokenizer
    layout = layout_of(_as_text(rows, torch.tensor(tokenizer.all_special_ids), tokenizer.eos_token_id))
    states = layout_states(trunk_of(model.model), layout)
    last = (layout.completions < len(layout.tokens)).sum(1) - 1
    return states[layout.completions.gather(1, last[:, None]).squeeze(1)]


def _as_text(rows: CompletionBatch, special: Int[Tensor, " _"], end: int) -> CompletionBatch:
    """Drop the special tokens of completions, which their texts lack, and let every row end with the end of text."""
    in_completion = torch.arange(rows.tokens.shape[1]) >= rows.start[:, None]
    attention = rows.attention & ~(in_completion & torch.isin(rows.tokens, special))
    ended = torch.ones(len(attention), 1, dtype=torch.bool)
    tokens = torch.cat([rows.tokens, torch.full((len(attention), 1), end)], 1)
    return rows._replace(**right_padded(tokens, torch.cat([attention, ended], 1))._asdict())
