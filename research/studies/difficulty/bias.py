"""Expected advantages of right and wrong completions by exact enumeration, against the exact 1 - p and -p."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import binom

from ....benchmarks.report import table
from ....policy.advantages.debiased import debiased
from ....policy.advantages.dr_grpo import dr_grpo
from ....policy.advantages.grpo import grpo
from ....policy.transforms.ha_dw import ha_dw
from ....policy.types import AdvantageEstimator, Rollout

PASS_RATES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
ANCHOR = 0.2
"""C of HA-DW: about the mean pass rate of the study's prompts."""
METHODS: Mapping[str, tuple[AdvantageEstimator, float | None]] = {
    "Dr. GRPO": (dr_grpo(), None),
    "HA-DW on Dr. GRPO": (dr_grpo(), ANCHOR),
    "bias inversion": (debiased(), None),
    "GRPO": (grpo(), None),
    "HA-DW on GRPO": (grpo(), ANCHOR),
}
"""Name -> advantage and C of HA-DW, None without it."""


class Expected(NamedTuple):
    """Expected advantages of a method at pass rates [P]; the exact ones are 1 - p and -p."""

    right: np.ndarray
    wrong: np.ndarray
    right_mixed: np.ndarray
    """Given that the group has right and wrong completions."""
    wrong_mixed: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        """Factor w(p) of the expected gradient of a prompt; 1 for the exact advantage.

        Given its verdict, a completion's advantage depends on the group's other verdicts alone. With E[∇ log π] = 0,
        so p E[∇ log π | right] = -(1 - p) E[∇ log π | wrong], the expected gradient is p E[∇ log π | right] w(p) with
        w(p) = E[A | right] - E[A | wrong].
        """
        return self.right - self.wrong


def expected_advantages(
    advantage: AdvantageEstimator, size: int, rates: Sequence[float] | np.ndarray, anchor: float | None = None
) -> Expected:
    """Enumerate groups of `size` independent verdicts with pass rate p, for each p in (0, 1) of `rates`.

    E[A | right] = Σ_k Bin(k; G, p) k A_k(right) / Σ_k Bin(k; G, p) k, over k = 1..G right completions, and for mixed
    groups over k = 1..G - 1; wrong ones with G - k. `anchor` is C of HA-DW, which weights the advantages; None without.
    """
    right, wrong = _advantages_by_count(advantage, size, anchor)
    k = np.arange(size + 1)
    chances = binom.pmf(k, size, np.array(rates)[:, None])
    mixed = chances * ((k > 0) & (k < size))
    counts = (k, size - k)  # right and wrong completions
    return Expected(
        *(
            np.average(np.broadcast_to(values, chances.shape), axis=1, weights=groups * count)
            for groups in (chances, mixed)
            for values, count in zip((right, wrong), counts, strict=True)
        )
    )


def _advantages_by_count(
    advantage: AdvantageEstimator, size: int, anchor: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the advantage of a right and of a wrong completion in groups with k = 0..G right ones [G + 1]."""
    rewards = torch.tril(torch.ones(size + 1, size, dtype=torch.float64), -1)  # row k: k ones
    N = rewards.numel()
    mask = torch.ones(N, 1, dtype=torch.bool)
    rollout = Rollout(torch.arange(N) // size, mask, mask[:, 0], total=rewards.flatten())
    values = advantage(rewards.flatten(), rollout)
    if anchor is not None:
        values = ha_dw().change({"anchors": [anchor]}, values, rollout)[1]
    by_group = values.reshape(size + 1, size).numpy()
    return by_group[:, 0], by_group[:, -1]  # not of use, and weighted 0, where no completion is right or wrong


def bias_tables(sizes: Sequence[int] = (4, 8), rates: Sequence[float] = PASS_RATES) -> str:
    """Return expected advantages in mixed groups and in all groups beside the exact ones, and weights, in Markdown."""
    expected = {
        size: {
            name: expected_advantages(advantage, size, rates, anchor) for name, (advantage, anchor) in METHODS.items()
        }
        for size in sizes
    }
    p = np.array(rates)
    exact = Expected(1 - p, -p, 1 - p, -p)
    shown = {
        "Advantage of a right / wrong completion, mixed groups": lambda row: (row.right_mixed, row.wrong_mixed),
        "Advantage of a right / wrong completion, all groups": lambda row: (row.right, row.wrong),
        "Weight of a prompt": lambda row: (row.weight,),
    }
    header = ["G", "p", "exact", *METHODS]
    parts = []
    for title, columns in shown.items():
        lines = [
            [str(size), f"{rates[index]:g}", *(_cell(columns(row), index) for row in (exact, *expected[size].values()))]
            for size in sizes
            for index in range(len(rates))
        ]
        parts += [f"{title}:", table(header, lines, right={*header})]
    return "\n\n".join(parts)


def _cell(columns: Sequence[np.ndarray], index: int) -> str:
    return " / ".join(f"{column[index]:.3f}" for column in columns)
