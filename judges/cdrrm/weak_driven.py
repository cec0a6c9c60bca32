"""Supervised fine-tuning on the mixed logits of a model and an earlier, weaker checkpoint."""

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
    """Compute the mixed cross-entropy of every token in nats. Targets `IGNORED` have loss 0.

    z_mix = λ z_strong + (1 - λ) stop_gradient(z_weak),   L_t = -log softmax(z_mix,t)[y_t]
    dL_t / dz_strong = λ (softmax(z_mix) - onehot(y_t))             WMSS 2026, arXiv:2602.08222

    z_strong and z_weak are the logits [T, V] of the two models at the position that predicts target y_t. λ = `share`:
    the paper uses 0.5 (best 0.42 to 0.48), and 1 is plain cross-entropy. Tokens that only the strong model predicts
    confidently get a larger gradient than in plain training.
    """
    mixed = share * strong.float() + (1 - share) * weak.detach().float()
    return cross_entropy(mixed, targets, ignore_index=IGNORED, reduction="none")


def mixed_loss(
    outputs: Any, labels: Tensor, weak: Tensor, share: float, num_items_in_batch: Tensor | int | None = None
) -> Tensor:
    """Return the sum of `mixed_cross_entropy` / the number of target tokens (of the whole step, if it is known)."""
    strong, weak = (logits[:, :-1].flatten(0, 1) for logits in (outputs.logits, weak))
    targets = labels[:, 1:].flatten()
    losses = mixed_cross_entropy(strong, weak, targets, share)
    number = (targets != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
    return losses.sum() / torch.as_tensor(number, device=losses.device).clamp_min(1)


class WeakDrivenTrainer(SFTTrainer):
    """TRL's SFTTrainer with the joint training of WMSS. `weak` is frozen, and only the trained model is saved.

    Logged entropy and token accuracy are those of the trained model; the logged loss is the mixed loss. A step
    costs one more forward pass of each model. Both models' logits are fully materialized.
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
        """Return the mixed loss, with TRL's reduction and metrics."""
        read = {name: value for name, value in inputs.items() if name != "labels"} | {"use_cache": False}
        with torch.no_grad():
            weak = self.weak(**read).logits
        self.compute_loss_func = partial(mixed_loss, weak=weak, share=self.share)
        try:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            self.compute_loss_func = None
