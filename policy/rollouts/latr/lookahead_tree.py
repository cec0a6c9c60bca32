"""Tree of completions that branch at uncertain tokens, without branches that are similar to their parents."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float

Tokens = tuple[int, ...]
Write = Callable[[Sequence[Tokens], int], list[Tokens]]
"""(prefixes, n) -> the prefixes, continued by at most n tokens; complete prefixes are unchanged."""
LONGEST = 10**9  # tokens: up to the end of a completion


def tree(
    points: Callable[[Tokens], list[Tokens]], write: Write, size: int, lookahead: int, least: float
) -> list[Tokens]:
    """Return at most `size` chains: a sample, and continuations of the prefixes that `points` returns for chains."""
    chains, starts = write([()], LONGEST), [0]
    for chain, start in zip(chains, starts, strict=False):  # both grow
        prefixes = [prefix for prefix in points(chain) if len(prefix) > start]
        while prefixes and len(chains) < size:
            some, prefixes = prefixes[: size - len(chains)], prefixes[size - len(chains) :]
            heads = [
                (head, len(prefix))
                for prefix, head in zip(some, write(some, lookahead), strict=True)
                if differ(head[len(prefix) - 1 :], chain[len(prefix) - 1 :][: lookahead + 1], least)
            ]
            chains += write([head for head, _ in heads], LONGEST)
            starts += [length for _, length in heads]
    return chains


def branches(probabilities: Float[torch.Tensor, "T V"], chain: Tokens, second: float, gap: float) -> list[Tokens]:
    """Return a prefix for each uncertain token of a chain: the tokens before it, then the other of the two likeliest.

    >>> branches(torch.tensor([[0.5, 0.4, 0.1], [0.9, 0.1, 0.0], [0.3, 0.31, 0.39]]), (1, 0, 1), 0.25, 0.15)
    [(0,), (1, 0, 2)]
    """
    top, tokens = probabilities.topk(2)
    uncertain = (top[:, 1] > second) & (top[:, 0] - top[:, 1] < gap)
    columns = uncertain.nonzero().flatten().tolist()
    others = [next(token for token in tokens[column].tolist() if token != chain[column]) for column in columns]
    return [(*chain[:column], token) for column, token in zip(columns, others, strict=True)]


def differ(a: Tokens, b: Tokens, least: float) -> bool:
    """Return whether the edit distance of two token sequences is at least `least` times the length of the longer.

    >>> differ((1, 2, 3, 4), (1, 3, 4, 5), 0.5), differ((1, 2, 3, 4), (1, 3, 4, 5), 0.6)
    (True, False)
    """
    row = [*range(len(b) + 1)]
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1] >= least * max(len(a), len(b), 1)
