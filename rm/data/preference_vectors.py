"""Preference vectors: weights of named objectives, checked by name and not only by position."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import UsageError, did_you_mean

TOLERANCE = 1e-4
Preference = Mapping[str, float]
Sampler = Callable[[int, torch.Generator], Float[Tensor, "N K"]]


def parse_preference(text: str) -> dict[str, float]:
    """Parse `helpful=0.7,harmless=0.3` into a mapping.

    >>> parse_preference("helpful=0.7, harmless=0.3")
    {'helpful': 0.7, 'harmless': 0.3}
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            share = float(share)
        except ValueError as error:
            raise UsageError(f"a preference is name=share, such as helpful=0.7,harmless=0.3; got '{text}'") from error
        if name.strip() in weights:
            raise UsageError(f"the preference '{text}' names {name.strip()} twice")
        weights[name.strip()] = share
    return weights


def preference_vector(preference: Preference | None, objectives: Sequence[str]) -> np.ndarray:
    """Return α [K] in the order of `objectives`: shares >= 0 that sum to 1; every objective must be named.

    >>> preference_vector({"harmless": 0.25, "helpful": 0.75}, ["helpful", "harmless"]).tolist()
    [0.75, 0.25]
    """
    if preference is None:
        raise UsageError(f"a preference is missing; give shares of {', '.join(objectives)} that sum to 1")
    for name in preference:
        if name not in objectives:
            raise UsageError(f"no objective '{name}' in this model; {did_you_mean(name, objectives)}")
    if absent := [name for name in objectives if name not in preference]:
        raise UsageError(f"preference {dict(preference)} has no share for {', '.join(absent)}; add {absent[0]}=0")
    shares = np.array([preference[name] for name in objectives], float)
    if not (np.isfinite(shares).all() and (shares >= 0).all() and abs(shares.sum() - 1) <= TOLERANCE):
        raise UsageError(f"the preference {dict(preference)} sums to {shares.sum():g}; shares are >= 0 and sum to 1")
    return shares / shares.sum()


def checked_preference(text: str | None, objectives: Sequence[str]) -> dict[str, float] | None:
    """Parse a preference and check it against the objectives of a model, if it has any. None if `text` is empty."""
    preference = parse_preference(text) if text else None
    if objectives:
        preference_vector(preference, objectives)
    return preference


def preference_matrix(preferences: Sequence[Preference | None], objectives: Sequence[str]) -> np.ndarray:
    """Return α [N, K], one row per preference mapping; see `preference_vector`."""
    return np.stack([preference_vector(preference, objectives) for preference in preferences])


def simplex_grid(objectives: int, steps: int) -> np.ndarray:
    """Return all α [A, K] whose shares are multiples of 1/steps, in lexicographic order (first share ascending).

    A = C(steps + K - 1, K - 1): 11 for K = 2 in 10 steps, 21 for K = 3 in 5 steps.

    >>> simplex_grid(2, 2).tolist()
    [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    """
    if objectives < 1 or steps < 1:
        raise UsageError(f"a grid of {objectives} objectives in {steps} steps; both must be at least 1")
    heads = product(range(steps + 1), repeat=objectives - 1)
    return np.array([(*head, steps - sum(head)) for head in heads if sum(head) <= steps]) / steps


def dirichlet(k: int, concentration: float = 0.5, vertices: float = 0.1) -> Sampler:
    """Return a sampler of α: one-hot with probability `vertices`, else α ~ Dirichlet(a, ..., a).

    a is `concentration`; PARM trains with a = 0.5 (arXiv:2505.06274). The share of one-hot α is our addition.
    """
    if not (concentration > 0 and math.isfinite(concentration) and 0 <= vertices <= 1):
        raise UsageError(f"concentration must be > 0 and vertices in [0, 1], got {concentration} and {vertices}")

    def draw(n: int, generator: torch.Generator) -> Float[Tensor, "N K"]:
        gammas = torch._standard_gamma(torch.full((n, k), concentration, dtype=torch.float64), generator)
        blends = gammas.clamp_min(1e-30) / gammas.clamp_min(1e-30).sum(dim=1, keepdim=True)
        single = torch.rand(n, generator=generator) < vertices
        return torch.where(single[:, None], vertex_sampler(k)(n, generator).double(), blends).float()

    return draw


def vertex_sampler(k: int) -> Sampler:
    """Return a uniform sampler of one-hot preferences."""

    def draw(n: int, generator: torch.Generator) -> Float[Tensor, "N K"]:
        return torch.eye(k)[torch.randint(k, (n,), generator=generator)]

    return draw


def grid_sampler(k: int, steps: int = 10) -> Sampler:
    """Return a uniform sampler of `simplex_grid`."""
    grid = torch.tensor(simplex_grid(k, steps), dtype=torch.float32)

    def draw(n: int, generator: torch.Generator) -> Float[Tensor, "N K"]:
        return grid[torch.randint(len(grid), (n,), generator=generator)]

    return draw


def costs_sentence(setting: str, weights: Mapping[str, float]) -> str:
    """Return a sentence about components with negative weights, which lower the reward; empty if there are none."""
    costs = [f"{name}={weight:g}" for name, weight in weights.items() if weight < 0]
    return f"{setting}: {', '.join(costs)} is negative, so larger values lower the reward" if costs else ""
