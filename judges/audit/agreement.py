"""Agreement of raters beyond chance, from arrays: Cohen's kappa and Krippendorff's alpha.

A rating is the number of a category. NaN is a missing rating, such as a judge's abstention.
"""

import numpy as np


def cohen_kappa(first: np.ndarray, second: np.ndarray) -> float:
    """Compute Cohen's kappa of two raters' categories [M] (Cohen 1960).

        κ = 1 - (1 - p_o) / (1 - p_e),   p_e = Σ_k p_k q_k

    p_o is the share of items with equal ratings; p_k and q_k are the shares of category k in each rater's ratings.

    Items that either rater did not rate are left out. NaN if both raters always chose one and the same category.

    >>> cohen_kappa(np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0]))
    0.5
    """
    first, second = np.asarray(first, float), np.asarray(second, float)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"two raters must rate the same items, got shapes {first.shape} and {second.shape}")
    rated = ~(np.isnan(first) | np.isnan(second))
    first, second = first[rated], second[rated]
    if not len(first):
        return float("nan")
    names = np.unique([first, second])
    shares, other_shares = ((ratings == names[:, None]).mean(1) for ratings in (first, second))
    by_chance = 1 - float(shares @ other_shares)
    return 1 - float((first != second).mean()) / by_chance if by_chance > 0 else float("nan")


def krippendorff_alpha(ratings: np.ndarray) -> float:
    """Compute Krippendorff's alpha for nominal ratings (Krippendorff 2011, part D).

        α = 1 - D_o / D_e = 1 - (n - 1) Σ_{c≠k} o_ck / Σ_{c≠k} n_c n_k

    D_o and D_e are the observed and the expected disagreement. `ratings` is [raters, M] with NaN for a missing rating;
    items with fewer than two ratings are left out. Item u has m_u ratings; o_ck = Σ_u (ordered pairs of c and k in item
    u) / (m_u - 1), n_c = Σ_k o_ck, n = Σ_c n_c. NaN if all ratings are equal, since no disagreement is possible.
    """
    ratings = np.asarray(ratings, float)
    if ratings.ndim != 2 or len(ratings) < 2:
        raise ValueError(f"ratings must be [raters, items] with at least two raters, got shape {ratings.shape}")
    ratings = ratings[:, (~np.isnan(ratings)).sum(0) >= 2]
    values = np.unique(ratings[~np.isnan(ratings)])
    in_unit = (ratings[None] == values[:, None, None]).sum(1).astype(float)  # [V, M]
    pairs = in_unit / (in_unit.sum(0) - 1)
    coincidences = pairs @ in_unit.T - np.diag(pairs.sum(1))
    counts = coincidences.sum(1)
    apart = (values[:, None] != values[None, :]).astype(float)
    by_chance = float(counts @ apart @ counts)
    return 1 - (counts.sum() - 1) * float((coincidences * apart).sum()) / by_chance if by_chance > 0 else float("nan")
