"""One score per sequence: the output of a classifier's head at the last token of the mask."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from .hub import HEAD
from .tokenization import right_padded


def decoder_head(model: nn.Module) -> nn.Module | None:
    """Return the head that a decoder applies at every position; None for an encoder, whose head does the pooling."""
    return next((module for name, module in model.named_modules() if name.rpartition(".")[2] == HEAD), None)


def sequence_scores(
    model: nn.Module, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]
) -> Float[Tensor, "N K"]:
    """Return the head's output at the last token (found by mask, not by token id), from the model's own forward.

    Transformers reads the output at the last token that is not the pad token, which is the wrong one if pad equals EOS,
    and refuses batches without a pad token. Transformers' head runs at every position anyway; we select the position
    given by the mask. Padding is moved to the right first, so that the caller's padding side does not matter.
    """
    tokens, attention = right_padded(tokens, attention)
    if decoder_head(model) is None:
        return model(input_ids=tokens, attention_mask=attention.long()).logits
    last = attention.sum(dim=1) - 1
    return head_outputs(model, tokens, attention)[torch.arange(len(tokens), device=tokens.device), last]


def head_outputs(
    model: nn.Module, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]
) -> Float[Tensor, "N L K"]:
    """Return the outputs of a decoder's head at every position; the model must have a `decoder_head`."""
    head = decoder_head(model)
    assert head is not None
    everywhere: list[Tensor] = []
    hook = head.register_forward_hook(lambda _module, _inputs, output: everywhere.append(output))
    try:
        model(input_ids=tokens, attention_mask=attention.long(), use_cache=False)
    finally:
        hook.remove()
    return everywhere[0]
