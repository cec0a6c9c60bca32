"""Loss of autoregressive reward models: logistic loss of the difference of two completions' log-probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..errors import UsageError

FORMS = ("scalarised", "mixed_label", "vertices", "scores")


@dataclass(frozen=True)
class SequenceLogistic:
    """Loss returned by `sequence_logistic`."""

    beta: tuple[float, ...]
    """One β_r for all objectives, or one per objective."""
    weight: float
    form: str
    label_smoothing: float
    margin: float
    ignore_ties: bool

    @property
    def needs_vertices(self) -> bool:
        """Whether the loss also needs Δ with all weight on one objective (a vertex) for every pair."""
        return self.weight > 0 and self.form == "vertices"

    @property
    def needs_scores(self) -> bool:
        """Whether the loss needs differences of stored scores."""
        return self.weight > 0 and self.form == "scores"

    def __call__(
        self,
        gap: Float[Tensor, " B"],
        wins: Float[Tensor, "B K"],
        preference: Float[Tensor, "B K"],
        *,
        vertex_gap: Float[Tensor, " B"] | None = None,
        vertex: Float[Tensor, "B K"] | None = None,
        scores: Float[Tensor, "B K"] | None = None,
    ) -> Float[Tensor, " B"]:
        """Return the loss of each pair in nats; Δ = `gap`, P(y0 better) = `wins` (NaN: unlabelled), α = `preference`.

        The form `vertices` needs `vertex` and `vertex_gap`; the form `scores` needs `scores` q_i(y0) - q_i(y1) [B, K].
        """
        wins = wins.masked_fill(wins == 0.5, float("nan")) if self.ignore_ties else wins
        value = self._per_dimension(gap, wins, preference)
        if self.weight == 0:
            return value
        if self.form == "vertices":
            assert vertex_gap is not None and vertex is not None
            return value + self.weight * self._per_dimension(vertex_gap, wins, vertex)
        mixed_gap = (preference @ self._beta_tensor(preference)) * gap
        if self.form == "scores":
            assert scores is not None
            aim = (preference * scores.nan_to_num(0.0)).sum(dim=1)
            return value + self.weight * torch.where(aim == 0, 0, -logsigmoid(aim.sign() * mixed_gap - aim.abs()))
        lean = (preference * (2 * wins - 1).nan_to_num(0.0)).sum(dim=1)
        lean = torch.where(lean.abs() < 1e-6, 0, lean.sign()) if self.form == "mixed_label" else lean
        return value + self.weight * torch.where(lean == 0, 0, -logsigmoid(lean * mixed_gap))

    def _beta_tensor(self, like: Tensor) -> Float[Tensor, " K"]:
        return like.new_tensor(self.beta).expand(like.shape[1])

    def _per_dimension(self, gap: Tensor, wins: Tensor, preference: Tensor) -> Tensor:
        """Compute Σ_i α_i β̄ / β_i l_i over the labelled objectives; see `sequence_logistic`."""
        betas = self._beta_tensor(preference)
        smooth = (1 - self.label_smoothing) * wins + self.label_smoothing * (1 - wins)
        scaled = gap[:, None] * betas
        first = -smooth.nan_to_num(0.0) * logsigmoid(scaled - self.margin)
        second = -(1 - smooth).nan_to_num(0.0) * logsigmoid(-scaled - self.margin)
        return (preference * (first + second) * (betas.mean() / betas)).sum(dim=1)


def sequence_logistic(
    beta: float | Sequence[float] = 0.01,
    *,
    weight: float = 0.5,
    form: str = "scalarised",
    label_smoothing: float = 0.0,
    margin: float = 0.0,
    ignore_ties: bool = False,
) -> SequenceLogistic:
    """L = Σ_i α_i β̄ / β_i l_i + λ L_global,   l_i = -t_i log σ(β_i Δ - m) - (1 - t_i) log σ(-β_i Δ - m)

    Δ = log π(y0 | x) - log π(y1 | x), summed over each completion's tokens; t_i = P(y0 better | objective i) in [0, 1].
    `beta` is one β_r for all objectives or one β_i each, with the mean β̄: a larger β_i makes a weaker guide for that
    objective, and the factor β̄ / β_i equalises the gradients at Δ = 0. With λ = `weight` = 0 and one objective this is
    GenARM's loss (Xu et al. 2024, arXiv:2410.08193); with several objectives, PARM's (Lin et al. 2025,
    arXiv:2505.06274). UniARM (arXiv:2602.09538) adds a global term whose form is not known to us, so several forms are
    offered; with s = Σ_i α_i (2 t_i - 1) and β_r = Σ_i α_i β_i:

        scalarised   -log σ(β_r s Δ)
        mixed_label  -log σ(β_r sign(s) Δ)
        vertices     the first sum again, at one objective drawn per pair
        scores       -log σ(sign(q) β_r Δ - |q|),  q = Σ_i α_i (q_i(y0) - q_i(y1)) from stored scores

    A term with s, or q, of 0 is left out. There is no reference model, so Δ is not 0 at the start. `margin` m >= 0 in
    nats; `label_smoothing` in [0, 0.5). A tie t_i = 0.5 favours equal log-probabilities; with `ignore_ties` such an
    objective counts as unlabelled.
    """
    betas = (beta,) if isinstance(beta, (int, float)) else tuple(beta)
    if form not in FORMS:
        raise UsageError(f"the global form must be one of {', '.join(FORMS)}, got '{form}'")
    if not (betas and min(betas) > 0 and weight >= 0 and margin >= 0 and 0 <= label_smoothing < 0.5):
        raise UsageError(
            f"beta must be > 0, weight and margin >= 0, label_smoothing in [0, 0.5); got {beta}, {weight}, {margin}, "
            f"{label_smoothing}"
        )
    return SequenceLogistic(betas, weight, form, label_smoothing, margin, ignore_ties)
