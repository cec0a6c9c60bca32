"""Supervised training on the mixed logits of the model and of an earlier, weaker one."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy
from trl import SFTTrainer

from ...rm.backbones.loading import embedding_rows
from ...rm.errors import UsageError

IGNORED = -100  # the label of a token that is not learnt, as in Transformers


def mixed_cross_entropy(
    strong: Float[Tensor, "T V"], weak: Float[Tensor, "T V"], targets: Int[Tensor, " T"], share: float
) -> Float[Tensor, " T"]:
    """Return the loss of every token in nats, 0 where the target is `IGNORED`; logits are those that predict it.

    z_mix = λ z_strong + (1 - λ) stop_gradient(z_weak),   L_t = -log softmax(z_mix,t)[y_t]
    dL_t / dz_strong = λ (softmax(z_mix) - onehot(y_t))             WMSS 2026, arXiv:2602.08222

    λ = `share`; the paper's is 0.5 (best 0.42 to 0.48), and 1 is plain cross-entropy. A token of which the strong model
    is sure, and the weak one is not, gets gradient again.
    """
    mixed = share * strong.float() + (1 - share) * weak.detach().float()
    return cross_entropy(mixed, targets, ignore_index=IGNORED, reduction="none")


def mixed_loss(
    outputs: Any, labels: Tensor, weak: Tensor, share: float, num_items_in_batch: Tensor | int | None = None
) -> Tensor:
    """Return the sum of `mixed_cross_entropy` over the number of learnt tokens, of the whole step where it is known."""
    strong, weak = (logits[:, :-1].flatten(0, 1) for logits in (outputs.logits, weak))
    targets = labels[:, 1:].flatten()
    losses = mixed_cross_entropy(strong, weak, targets, share)
    number = (targets != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
    return losses.sum() / torch.as_tensor(number, device=losses.device).clamp_min(1)


class WeakDrivenTrainer(SFTTrainer):
    """TRL's SFTTrainer with the joint training of WMSS: `weak` is frozen, and only the model itself is saved.

    Entropy and token accuracy in the logs are the model's own, the loss is that of the mixture. A step costs one
    forward of the weak model and one more of the model itself. Both models' logits exist as a whole.
    """

    def __init__(self, *args: Any, weak: Any, share: float = 0.5, **options: Any):
        super().__init__(*args, **options)
        rows, vocabulary = embedding_rows(weak), embedding_rows(self.model)
        if rows != vocabulary:
            raise UsageError(
                f"the weaker model has logits for {rows} tokens and the trained one for {vocabulary}; give an earlier "
                "checkpoint of the same model"
            )
        self.share = share
        self.weak = self.accelerator.prepare_model(weak.requires_grad_(False).eval(), evaluation_mode=True)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Compute TRL's reduction and metrics with the loss of the mixture."""
        read = {name: value for name, value in inputs.items() if name != "labels"} | {"use_cache": False}
        with torch.no_grad():
            weak = self.weak(**read).logits
        self.compute_loss_func = partial(mixed_loss, weak=weak, share=self.share)
        try:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            self.compute_loss_func = None
