"""Cost and accuracy of choosing between a cheap and a strong judge by a ranking of the cases; pure NumPy."""

from typing import NamedTuple

import numpy as np

from ...benchmarks.statistics.cluster_bootstrap import Draws


class CostCurve(NamedTuple):
    """Accuracy against cost as more cases go to the strong judge; points [..., G + 1], joined by straight lines."""

    cost: np.ndarray
    """Share of the strong judge's cost of all cases, from 0 to 1."""
    accuracy: np.ndarray

    def at(self, share: float) -> np.ndarray:
        """Return the accuracy at a share of the cost in [0, 1], [...]."""
        shape = self.cost.shape
        rows = zip(self.cost.reshape(-1, shape[-1]), self.accuracy.reshape(-1, shape[-1]), strict=True)
        return np.array([np.interp(share, cost, accuracy) for cost, accuracy in rows]).reshape(shape[:-1])


def cost_curve(
    cheap: np.ndarray,
    strong: np.ndarray,
    priority: np.ndarray,
    *,
    costs: np.ndarray | None = None,
    counts: np.ndarray | None = None,
) -> CostCurve:
    """Compute the cost-accuracy curve of sending cases [M] to the strong judge in descending order of priority.

    A(x) = Σ_i n_i [cheap_i + 1(i sent) (strong_i - cheap_i)] / Σ_i n_i,   x = Σ_{i sent} n_i cost_i / Σ_i n_i cost_i

    `cheap` and `strong` are the judges' credits in [0, 1], `costs` > 0 the strong judge's (default 1 each, so that x is
    the share of cases). Cases of equal priority are sent together, so that the curve does not depend on their order:
    between its points it is the expectation over random orders. `counts` n [S, M] are weights of the cases, such as
    bootstrap samples; the curve then has a leading axis.
    """
    counts = np.ones(len(cheap)) if counts is None else counts
    order = np.argsort(-priority, kind="stable")
    starts = np.flatnonzero(np.diff(priority[order], prepend=np.inf))

    def cumulated(values: np.ndarray) -> np.ndarray:
        sums = np.add.reduceat((counts * values)[..., order], starts, axis=-1)
        return np.concatenate([np.zeros((*sums.shape[:-1], 1)), sums.cumsum(-1)], axis=-1)

    cost = cumulated(np.ones(len(cheap)) if costs is None else costs)
    gains = cumulated(strong - cheap)
    total = counts.sum(-1, keepdims=True)
    return CostCurve(cost / cost[..., -1:], ((counts * cheap).sum(-1, keepdims=True) + gains) / total)


def area_above_line(curve: CostCurve) -> np.ndarray:
    """Compute ∫_0^1 A(x) dx - (A(0) + A(1)) / 2, the area above the line of sending cases at random [...]."""
    middle = (curve.accuracy[..., 1:] + curve.accuracy[..., :-1]) / 2
    return (np.diff(curve.cost) * middle).sum(-1) - (curve.accuracy[..., 0] + curve.accuracy[..., -1]) / 2


def routing_area(
    cheap: np.ndarray,
    strong: np.ndarray,
    priority: np.ndarray,
    *,
    costs: np.ndarray | None = None,
    counts: np.ndarray | None = None,
) -> np.ndarray:
    """Compute the normalised area of a ranking: 0 for a random one, 1 for the oracle, -1 for the oracle reversed.

    U = (∫ A - ∫ A_random) / (∫ A_oracle - ∫ A_random)

    The random ranking's curve is the line from all cheap to all strong. The oracle knows both credits and sends cases
    in descending order of (strong_i - cheap_i) / cost_i, which no ranking exceeds at any cost. NaN if every case has
    the same gain per cost. Arguments as in `cost_curve`; one value for each row of `counts`.
    """
    oracle = strong - cheap if costs is None else (strong - cheap) / costs
    area, best = (area_above_line(cost_curve(cheap, strong, p, costs=costs, counts=counts)) for p in (priority, oracle))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(best > 1e-12, area / best, np.nan)


def sampled_areas(cheap: np.ndarray, strong: np.ndarray, priorities: np.ndarray, draws: Draws) -> np.ndarray:
    """Return the mean normalised area over rankings [F, M], such as those of several folds, in bootstrap samples [S].

    Clusters of cases are drawn; the rankings are not fitted again.
    """
    counts = draws.counts[:, draws.cluster].astype(np.float64)
    return np.mean([routing_area(cheap, strong, each, counts=counts) for each in priorities], axis=0)


# ---- shares at a price ----


def pre_route_share(price: float, cheap: float, always: float = 0.0) -> float:
    """Return the share x of cases that may go to the strong judge where one judge is chosen before asking.

    price = a + (1 - x) q + x, per case in units of the strong judge's price: q is the cheap judge's, `always` a the
    rule's own. x is clipped to [0, 1].
    """
    return min(1.0, max(0.0, (price - always - cheap) / (1 - cheap)))


def cascade_share(price: float, cheap: float) -> float:
    """Return the share x of cases that may go to the strong judge where the cheap one is asked first: price = q + x."""
    return min(1.0, max(0.0, price - cheap))
