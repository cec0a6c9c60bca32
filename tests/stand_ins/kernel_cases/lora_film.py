"""Sizes that the tests run the adapter at, and its arguments for them."""

from typing import Any

import torch
from torch import Tensor

from .strides import columns, repeated, spread

CASES = [
    {"N": 1, "L": 1, "m": 1, "n": 1, "r": 1, "start": 0, "kind": "scale"},
    {"N": 2, "L": 1, "m": 129, "n": 17, "r": 4, "start": 1, "kind": "scale"},
    {"N": 5, "L": 17, "m": 17, "n": 129, "r": 8, "start": 2, "kind": "scale", "rows": 1},
    {"N": 3, "L": 1, "m": 33, "n": 64, "r": 8, "start": 1, "kind": "core"},
    {"N": 4, "L": 17, "m": 64, "n": 33, "r": 3, "start": 0, "kind": "core"},
    {"N": 3, "L": 2, "m": 17, "n": 17, "r": 8, "start": 1, "kind": "core", "rows": 1},
    {"N": 2, "L": 3, "m": 17, "n": 17, "r": 2, "start": 0, "kind": "plain"},
    {"N": 2, "L": 1, "m": 17, "n": 17, "r": 2, "start": 2, "kind": "plain"},
    {"N": 3, "L": 2, "m": 33, "n": 17, "r": 4, "start": 1, "kind": "scale", "views": True},
    {"N": 3, "L": 1, "m": 17, "n": 33, "r": 8, "start": 1, "kind": "core", "views": True},
]


def example(case: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Arguments of the sizes in `case`, always the same ones."""
    generator = torch.Generator().manual_seed(0)
    N, L, m, n, r, start = (case[letter] for letter in ("N", "L", "m", "n", "r", "start"))
    rows = case.get("rows", N - start)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype=dtype, device=device)

    film: dict[str, Any] = {"scale": draw(rows, r), "shift": draw(rows, r)} if case["kind"] == "scale" else {}
    film = {"core": draw(rows, r, r)} if case["kind"] == "core" else film
    y, x, A, B = draw(N, L, n), draw(N, L, m), draw(r, m), draw(n, r)
    if case.get("views"):
        A, B = columns(A), columns(B)
        film = {name: repeated(tensor) if name == "shift" else spread(tensor) for name, tensor in film.items()}
    return {"y": y, "x": x, "A": A, "B": B, "factor": 0.5, "start": start, **film}
