"""Linear heads on the reward token that each predict a mean and a standard deviation."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from ...errors import UsageError
from ...losses.bradley_terry import preference_nll

FORMS = ("regression", "bradley_terry")
SUREST = 1e-4  # lower bound of the standard deviation, in standard deviations of the target


class Gaussians(NamedTuple):
    """Means and standard deviations that M heads predict for N completions, in units of reward."""

    means: Float[Tensor, "N M"]
    deviations: Float[Tensor, "N M"]


class Heads(nn.Module):
    """μ_m = s (w_m · z + b_m) + c,   σ_m = s (softplus(v_m · z + d_m) + 1e-4),   z = (h - mean) / std

    h is the reward token (input of the head) of width D; w_m, v_m, b_m, d_m are the parameters of head m. The mean and
    std of h, and the mean c and standard deviation s of the target rewards, are those of the training data.
    """

    center: Tensor
    scale: Tensor
    target_center: Tensor
    target_scale: Tensor

    def __init__(self, width: int, heads: int):
        super().__init__()
        for name, shape in (("center", width), ("scale", width), ("target_center", ()), ("target_scale", ())):
            self.register_buffer(name, torch.zeros(shape) if "center" in name else torch.ones(shape))
        self.mean, self.uncertainty = nn.Linear(width, heads), nn.Linear(width, heads)

    def forward(self, tokens: Float[Tensor, "N D"]) -> Gaussians:
        """Return every head's prediction for every completion."""
        z = self._standardised(tokens)
        return self._in_reward_units(self.mean(z), self.uncertainty(z))

    def each(self, tokens: Float[Tensor, "B M D"]) -> Gaussians:
        """Return the predictions of each head m for its own completions, `tokens[:, m]`."""
        z = self._standardised(tokens)
        raw = [torch.einsum("bmd,md->bm", z, layer.weight) + layer.bias for layer in (self.mean, self.uncertainty)]
        return self._in_reward_units(*raw)

    def _standardised(self, tokens: Tensor) -> Tensor:
        return (tokens.to(self.center.dtype) - self.center) / self.scale

    def _in_reward_units(self, mean: Tensor, uncertainty: Tensor) -> Gaussians:
        deviations = softplus(uncertainty) + SUREST
        return Gaussians(self.target_scale * mean + self.target_center, self.target_scale * deviations)


@dataclass(frozen=True)
class HeadFit:
    """Hyperparameters of fitting the heads, among them choices that the paper does not specify."""

    heads: int = 5
    form: str = "regression"
    steps: int = 300
    learning_rate: float = 1e-2
    batch: int = 64
    bootstrap: bool = True
    """Each head is fitted to its own bootstrap sample of the training pairs."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise `UsageError` for invalid values."""
        if self.form not in FORMS:
            raise UsageError(f"the form of the heads' loss must be one of {', '.join(FORMS)}, got '{self.form}'")
        if not (self.heads >= 2 and self.steps >= 1 and self.batch >= 1 and self.learning_rate > 0):
            raise UsageError(
                f"heads must be >= 2, steps and batch >= 1, learning_rate > 0; got {self.heads}, {self.steps}, "
                f"{self.batch}, {self.learning_rate}"
            )


def sampled_loss(
    form: str,
    chosen: Gaussians,
    rejected: Gaussians,
    noise: Float[Tensor, "2 B M"],
    target: Float[Tensor, "2 B M"],
    wins: Float[Tensor, "B M"],
) -> Float[Tensor, "B M"]:
    """Compute the loss of every pair and head on sampled rewards r = μ + σ ε (w: chosen, l: rejected).

    regression      ((r_w - t_w)² + (r_l - t_l)²) / 2 with the targets t; over ε, the mean is the error of μ plus σ²
    bradley_terry   -p log sigmoid(r_w - r_l) - (1 - p) log sigmoid(r_l - r_w) with p = `wins`, in nats
    """
    first, second = (head.means + head.deviations * e for head, e in zip((chosen, rejected), noise, strict=True))
    if form == "regression":
        return ((first - target[0]).square() + (second - target[1]).square()) / 2
    return preference_nll(first - second, wins)


def fit_heads(
    chosen: Float[Tensor, "B D"],
    rejected: Float[Tensor, "B D"],
    target: Float[Tensor, "2 B"],
    wins: Float[Tensor, " B"],
    fit: HeadFit,
) -> Heads:
    """Fit heads on the reward tokens of pairs; `target` are the trained head's rewards, `wins` the labels.

    The trunk is not trained: its outputs are precomputed. Errors are in standard deviations of the target.
    """
    generator = torch.Generator().manual_seed(fit.seed)
    both = torch.cat([chosen, rejected])
    heads = Heads(both.shape[1], fit.heads)
    spread = both.std(0, correction=0)
    heads.center, heads.scale = both.mean(0), torch.where(spread > 0, spread, 1)
    heads.target_center, heads.target_scale = target.mean(), target.std(correction=0).clamp_min(1e-6)
    for layer in (heads.mean, heads.uncertainty):
        nn.init.normal_(layer.weight, std=both.shape[1] ** -0.5, generator=generator)
        nn.init.zeros_(layer.bias)
    B, M = len(wins), fit.heads
    sample = torch.randint(B, (B, M), generator=generator) if fit.bootstrap else torch.arange(B)[:, None].expand(B, M)
    optimizer = torch.optim.Adam(heads.parameters(), fit.learning_rate)
    unit = heads.target_scale.square() if fit.form == "regression" else torch.ones(())
    for _ in range(fit.steps):
        rows = sample[
            torch.randint(B, (min(fit.batch, B),), generator=generator)
        ]  # [b, M]: pairs of each head's sample
        noise = torch.randn((2, *rows.shape), generator=generator)
        outputs = heads.each(chosen[rows]), heads.each(rejected[rows])
        loss = sampled_loss(fit.form, *outputs, noise, target[:, rows], wins[rows])
        optimizer.zero_grad()
        (loss / unit).mean().backward()
        optimizer.step()
    return heads.eval().requires_grad_(False)
