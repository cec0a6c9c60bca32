"""Steps in hidden space: a causal language model's last hidden state becomes its next input embedding."""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from ...backbones.forward_hooks import cache_argument
from ...backbones.tokenization import right_padded
from ...errors import DataError, UsageError


class LatentSteps:
    """h_0 = f(x)_L,   h_t = f(x, h_0, ..., h_{t-1})_{L+t}

    f are the last hidden states of a causal language model, after its final norm, and L is the last token of the
    sequence x. h_{t-1} is the input embedding at position L + t, read with the cache of all earlier keys and values. As
    in Coconut, Hao et al. 2024 (arXiv:2412.06769). `state` [N, D] is h_t after t calls of `advance`.

    Sequences may be padded on either side. The padding is moved to the left, so that latent positions follow directly
    after the last token: their position ids, attention masks and distances are those of the sequence alone.
    """

    def __init__(self, model: Any, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]):
        tokens, attention = right_padded(tokens, attention)
        padding = attention.shape[1] - attention.sum(dim=1, keepdim=True)
        columns = torch.arange(attention.shape[1], device=tokens.device)
        tokens = tokens.gather(1, (columns - padding) % attention.shape[1])
        self.trunk, self.cache = model.get_decoder(), None
        self.attention = (columns >= padding).long()
        positions = (columns - padding).clamp_min(0)
        self.position = positions[:, -1:]
        self.state = self._read(input_ids=tokens, position_ids=positions)

    def advance(self) -> Float[Tensor, "N D"]:
        """Take one step and return the new state."""
        self.attention = nn.functional.pad(self.attention, (0, 1), value=1)
        self.position = self.position + 1
        self.state = self._read(inputs_embeds=self.state[:, None], position_ids=self.position)
        return self.state

    def select(self, rows: Int[Tensor, " M"]) -> None:
        """Keep the given rows for further steps."""
        if self.cache is not None:
            self.cache.reorder_cache(rows)
        self.attention, self.position, self.state = self.attention[rows], self.position[rows], self.state[rows]

    def _read(self, **inputs: Tensor) -> Float[Tensor, "N D"]:
        """Run the model on inputs and cached keys and values; return the last hidden state of each row."""
        if "position_ids" not in signature(self.trunk.forward).parameters:  # alibi, or a recurrent model
            del inputs["position_ids"]
        cache = cache_argument(self.trunk)
        output = self.trunk(**inputs, **{cache: self.cache}, attention_mask=self.attention, use_cache=True)
        self.cache = output.get(cache)
        return output.last_hidden_state[:, -1]


def latent_states(
    model: Any, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"], steps: int
) -> Float[Tensor, "N T+1 D"]:
    """Return h_0, ..., h_T of every sequence for T = `steps`; differentiable. See `LatentSteps`."""
    run = LatentSteps(model, tokens, attention)
    if steps and run.cache is None:
        raise UsageError("latent steps need the cache, which gradient checkpointing disables; turn checkpointing off")
    return torch.stack([run.state, *(run.advance() for _ in range(steps))], dim=1)


def states_after(run: LatentSteps, steps: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
    """Return h_{T_n} of every row n after its T_n steps; finished rows leave the batch."""
    final, rows = run.state, torch.arange(len(steps), device=steps.device)
    for step in range(1, int(steps.max()) + 1):
        going = (steps[rows] >= step).nonzero()[:, 0]
        if len(going) < len(rows):
            run.select(going)
            rows = rows[going]
        final = final.index_put((rows,), run.advance())
    return final


def states_without_cache(model: Any, ids: Sequence[int], steps: int) -> Float[Tensor, "T+1 D"]:
    """Return h_0, ..., h_T of one sequence without cache, mask or padding: every step reads the full input."""
    trunk, embed = model.get_decoder(), model.get_input_embeddings()
    inputs = embed(torch.tensor([[*ids]], device=embed.weight.device))
    states: list[Tensor] = []
    for _ in range(steps + 1):
        states.append(trunk(inputs_embeds=inputs, use_cache=False).last_hidden_state[:, -1])
        inputs = torch.cat([inputs, states[-1][:, None]], dim=1)
    return torch.cat(states)


def check_steps(model: Any, source: str, *, trainable: bool = False) -> None:
    """Raise `DataError` unless input embeddings after a KV cache give the same states as without a cache.

    With `trainable`, gradients must also pass through the cache; linear attention overwrites it in place.
    """
    kind, training = model.config.model_type, model.training
    model.eval()
    tokens = torch.tensor([[0, 1, 2], [1, 0, 0]], device=model.device)
    attention = torch.tensor([[1, 1, 1], [1, 0, 0]], device=model.device)
    try:
        with torch.set_grad_enabled(trainable):
            states = latent_states(model, tokens, attention, 2)
            if trainable:
                torch.autograd.grad(states.sum(), model.get_input_embeddings().weight)
        with torch.no_grad():
            expected = torch.stack([states_without_cache(model, ids, 2) for ids in ([0, 1, 2], [1])])
    except Exception as error:  # models raise arbitrary errors for inputs that they do not take
        gradients = "or pass gradients through it " if trainable else ""
        raise DataError(
            f"{source}: a {kind} does not read embeddings after a KV cache {gradients}({error}); latent steps need a "
            "causal language model that does"
        ) from error
    model.train(training)
    tolerance = 1e-3 if states.dtype.itemsize > 2 else 0.2
    if not torch.allclose(states.detach(), expected, rtol=tolerance, atol=tolerance):
        raise DataError(
            f"{source}: a {kind} computes other states with a KV cache than without; latent steps need a causal "
            "language model for which they are equal"
        )
