"""Modulation of an adapter's rank-r features by a preference: core matrix (PBLoRA), or scale and shift (MoSLoRA)."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..backbones.tokenization import pad
from ..errors import UsageError

Generator = Literal["linear", "trunk", "alpha"]
Embedding = Literal["text", "one_hot", "random"]


class Modulation(NamedTuple):
    """Modulation u -> M u + δ of each row's rank-r features u: M = diag(scale), core or identity; δ = shift or 0."""

    scale: Float[Tensor, "N r"] | None = None
    core: Float[Tensor, "N r r"] | None = None
    shift: Float[Tensor, "N r"] | None = None

    @property
    def rows(self) -> int | None:
        """Number of rows; None if scale, core and shift are all absent."""
        return next((len(tensor) for tensor in self if tensor is not None), None)

    def map(self, change: Any) -> "Modulation":
        """Apply a function to every tensor that is not None."""
        return Modulation(*(None if tensor is None else change(tensor) for tensor in self))

    @staticmethod
    def side_by_side(parts: "Sequence[Modulation]") -> "Modulation":
        """Concatenate the modulations of several adapters' features; all must be of one kind."""
        scale, core, shift = zip(*parts, strict=True)
        return Modulation(
            scale=None if scale[0] is None else torch.cat(scale, 1),
            core=None if core[0] is None else torch.stack([torch.block_diag(*row) for row in zip(*core, strict=True)]),
            shift=None if shift[0] is None else torch.cat(shift, 1),
        )

    def matrix(self, rank: int) -> Float[Tensor, "r r"]:
        """Return the matrix M of the first row."""
        if self.core is not None:
            return self.core[0]
        return torch.eye(rank) if self.scale is None else self.scale[0].diag()


class Preferences(nn.Module):
    """Identity module: α itself weights PBLoRA's cores."""

    def __init__(self, k: int):
        super().__init__()
        self.width = k

    def forward(self, alpha: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """Return α unchanged."""
        return alpha


class MixedVector(nn.Module):
    """Preference vector p(α) = Σ_i α_i o_i of frozen objective vectors o_i; with `hidden`, SiLU(W p + b)."""

    objectives: Tensor

    def __init__(self, objectives: Float[Tensor, "K E"], hidden: int | None = None):
        super().__init__()
        self.register_buffer("objectives", objectives.float())
        self.trunk = None if hidden is None else nn.Sequential(nn.Linear(objectives.shape[1], hidden), nn.SiLU())
        self.width = objectives.shape[1] if hidden is None else hidden

    def forward(self, alpha: Float[Tensor, "N K"]) -> Float[Tensor, "N H"]:
        """Return the input of every layer's generator."""
        mixed = alpha.to(self.objectives.dtype) @ self.objectives
        return mixed if self.trunk is None else self.trunk(mixed)


def random_objectives(k: int, width: int, seed: int = 0) -> Float[Tensor, "K E"]:
    """Return orthogonal directions of unit RMS, drawn from the seed, without information about the objectives."""
    if width < k:
        raise UsageError(f"{k} orthogonal directions need a width of at least {k}, got {width}")
    gaussian = torch.randn(width, k, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(gaussian).Q.T * width**0.5


def span_coordinates(objectives: Float[Tensor, "K E"]) -> Float[Tensor, "K K"]:
    """Return the objective vectors in coordinates of their span: G^(1/2) of G = O O^T, scaled to a mean norm of 1.

    Inner products keep their ratios, so a linear generator can compute the same functions of α from the K coordinates
    as from the E original ones. It trains as fast as on α itself: a step of Adam moves the output of a generator by
    the learning rate times the 1-norm of its input: at most √K here, while it grows with √E for the original vectors.
    """
    gram = objectives.double() @ objectives.double().T
    values, vectors = torch.linalg.eigh(gram)
    root = vectors @ values.clamp_min(0).sqrt().diag() @ vectors.T
    return (root / root.norm(dim=1).mean()).float()


@torch.no_grad()
def text_objectives(model: Any, tokenizer: Any, texts: Sequence[str], *, centred: bool = True) -> Float[Tensor, "K E"]:
    """Compute o_i, the mean of the frozen model's last hidden states over the description of objective i.

    These embeddings have nearly the same direction; `centred` subtracts their mean and scales each to unit RMS.
    """
    batch = pad(tokenizer(list(texts), add_special_tokens=False).input_ids)
    device = next(model.parameters()).device
    states = model(
        input_ids=batch.tokens.to(device), attention_mask=batch.attention.long().to(device), output_hidden_states=True
    ).hidden_states[-1]
    weight = batch.attention[..., None].to(states)
    means = ((states * weight).sum(1) / weight.sum(1)).float().cpu()
    if not centred:
        return means
    means = means - means.mean(dim=0) if len(means) > 1 else means
    size = means.pow(2).mean(dim=1, keepdim=True).sqrt()
    if not (size > 1e-6).all():
        raise UsageError(
            f"the descriptions {list(texts)} have the same embedding; give others with --texts, or take --embedding "
            "one_hot"
        )
    return means / size
