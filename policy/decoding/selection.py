"""Selection of training data from sampled completions by their rewards, and matched random selections.

Rewards are [P, M]: M completions of each of P prompts, NaN for a missing reward. A `usable` mask [P, M] marks the
completions that may be selected.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float


class Pick(NamedTuple):
    """Indices of a prompt and of one of its completions."""

    prompt: int
    completion: int


class PickedPair(NamedTuple):
    """Indices of a prompt and of its chosen and rejected completion."""

    prompt: int
    chosen: int
    rejected: int


def usable_completions(
    completions: Sequence[Sequence[str]], rewards: Float[np.ndarray, "P M"]
) -> tuple[Bool[np.ndarray, "P M"], Counter[str]]:
    """Return a mask of the completions that may be selected, and the number of unusable completions by reason.

    Of equal completions of a prompt only the first is usable. Blank and unrewarded completions are not usable.
    """
    usable, dropped = np.zeros(rewards.shape, bool), Counter[str]()
    for row, texts in enumerate(completions):
        seen: set[str] = set()
        for column, text in enumerate(texts):
            if not text.strip():
                dropped["blank"] += 1
            elif np.isnan(rewards[row, column]):
                dropped["missing reward"] += 1
            elif text in seen:
                dropped["duplicate"] += 1
            else:
                usable[row, column] = True
                seen.add(text)
    return usable, dropped


# ---- by reward ----


def without_length(
    rewards: Float[np.ndarray, "P M"], lengths: Float[np.ndarray, "P M"], penalty: float, *, relative: bool
) -> Float[np.ndarray, "P M"]:
    """Return r - λ n for completions of n characters, or r - λ n / (the prompt's largest n) if `relative`.

    The first formula is from RLHF Workflow 2024, arXiv:2405.07863; the second has the length term of Optima 2024,
    arXiv:2410.08115. λ = `penalty`.

    >>> without_length(np.array([[1.0, 0.5]]), np.array([[40, 10]]), 0.8, relative=True).round(2).tolist()
    [[0.2, 0.3]]
    """
    return rewards - penalty * lengths / (np.maximum(lengths.max(1, keepdims=True), 1) if relative else 1)


def select_best(rewards: Float[np.ndarray, "P M"], usable: Bool[np.ndarray, "P M"]) -> list[Pick]:
    """Return each prompt's usable completion of highest reward, the first of equals; prompts without any are absent."""
    return [Pick(row, _best(rewards[row], usable[row])) for row in np.flatnonzero(usable.any(1)).tolist()]


def select_top(rewards: Float[np.ndarray, "P M"], usable: Bool[np.ndarray, "P M"], share: float) -> list[Pick]:
    """Return the best `share` (rounded up) of all usable completions by reward, in the order of prompts.

    Of ties at the threshold, the first are taken.
    """
    positions = np.argwhere(usable)
    number = int(np.ceil(round(share * len(positions), 9)))
    order = np.argsort(-rewards[usable], kind="stable")[:number]
    return _picks_at(positions[np.sort(order)])


def select_pairs(
    rewards: Float[np.ndarray, "P M"],
    usable: Bool[np.ndarray, "P M"],
    rng: np.random.Generator,
    *,
    rejected: Literal["worst", "random"] = "worst",
    margin: float = 0.0,
    ranking: Float[np.ndarray, "P M"] | None = None,
) -> tuple[list[PickedPair], Counter[str]]:
    """Return pairs of each prompt's best and worst (or a random other) completion, and counts of prompts without one.

    Prompts have no pair if they have fewer than two usable completions ("single"), the two rewards are equal ("tie"),
    or they differ by less than `margin` ("margin"). With a `ranking`, best and worst are those of the ranking, and the
    one with the higher reward is chosen: RLHF Workflow 2024, arXiv:2405.07863, for a ranking by `without_length`.
    """
    ranking = rewards if ranking is None else ranking
    pairs, dropped = [], Counter[str]()
    for row, columns in enumerate(map(np.flatnonzero, usable)):
        if len(columns) < 2:
            dropped["single"] += 1
            continue
        best = _best(ranking[row], usable[row])
        others = columns[columns != best]
        other = int(rng.choice(others) if rejected == "random" else others[np.argmin(ranking[row, others])])
        best, other = (other, best) if rewards[row, other] > rewards[row, best] else (best, other)
        gap = rewards[row, best] - rewards[row, other]
        if gap > 0 and gap >= margin:
            pairs.append(PickedPair(row, best, other))
        else:
            dropped["margin" if gap > 0 else "tie"] += 1
    return pairs, dropped


def win_shares(pairs: Sequence[Sequence[int]], parts: Float[np.ndarray, "P M E"]) -> Float[np.ndarray, " Q"]:
    """Return the share of E rewards or ensemble members that prefer the chosen completion of a pair; ties count 1/2."""
    rows, chosen, rejected = np.array(pairs, int).reshape(-1, 3).T
    return (1 + np.sign(parts[rows, chosen] - parts[rows, rejected])).mean(1) / 2


def _best(rewards: Float[np.ndarray, " M"], usable: Bool[np.ndarray, " M"]) -> int:
    return int(np.argmax(np.where(usable, rewards, -np.inf)))


def _picks_at(positions: np.ndarray) -> list[Pick]:
    return [Pick(*position) for position in positions.tolist()]


# ---- at random, in the same numbers ----


def random_of_prompts(picks: Sequence[Pick], usable: Bool[np.ndarray, "P M"], rng: np.random.Generator) -> list[Pick]:
    """Return a random usable completion of each prompt in `picks`."""
    return [Pick(pick.prompt, int(rng.choice(np.flatnonzero(usable[pick.prompt])))) for pick in picks]


def random_of_all(number: int, usable: Bool[np.ndarray, "P M"], rng: np.random.Generator) -> list[Pick]:
    """Return `number` different usable completions at random, in the order of prompts."""
    positions = np.argwhere(usable)
    return _picks_at(positions[np.sort(rng.choice(len(positions), number, replace=False))])


def random_pairs(
    pairs: Sequence[PickedPair], usable: Bool[np.ndarray, "P M"], rng: np.random.Generator
) -> list[PickedPair]:
    """Return two different usable completions in random order for each prompt in `pairs`."""
    samples = [rng.choice(np.flatnonzero(usable[pair.prompt]), 2, replace=False).tolist() for pair in pairs]
    return [PickedPair(pair.prompt, *both) for pair, both in zip(pairs, samples, strict=True)]
