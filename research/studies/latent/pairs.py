"""Pairs of a right and a wrong final answer to a chain of arithmetic, with rationales that write out its results."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

from ....rm.types import PreferencePair, user_turn
from ..process.chains import DIGITS, OPERATIONS, Problem, write_steps

OPERATIONS_OF_A_PROBLEM = 4
RIGHT, WRONG = "right", "wrong"
VOCABULARY = (*DIGITS, *OPERATIONS, RIGHT, WRONG)
RATIONALE = OPERATIONS_OF_A_PROBLEM + 1
"""Number of words of a rationale: the result of every operation, and whether the answer is right."""


def draw_pairs(train: int, test: int, seed: int) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Draw pairs for training and for testing, of as many different problems; there are 6,250."""
    random = Random(f"pairs {seed}")
    problems = random.sample([*product(DIGITS, *[OPERATIONS] * OPERATIONS_OF_A_PROBLEM)], train + test)
    pairs = [draw_pair(words, random) for words in problems]
    return pairs[:train], pairs[train:]


def draw_pair(words: Sequence[str], random: Random) -> PreferencePair:
    """Return the pair of a problem, given as a digit and operations; the wrong answer is any other digit.

    >>> draw_pair(("7", "+5", "*3"), Random(0)).rationales
    ('2 6 right', '2 6 wrong')
    """
    problem = Problem(int(words[0]), tuple((word[0], word[1:]) for word in words[1:]))
    results = [step[-1] for step in write_steps(problem, None, random)]
    wrong = random.choice([digit for digit in DIGITS if digit != results[-1]])
    rationales = " ".join([*results, RIGHT]), " ".join([*results, WRONG])
    prompt = " ".join(words)
    return PreferencePair(prompt, user_turn(prompt), results[-1], wrong, rationales=rationales)


def shuffled(pairs: Sequence[PreferencePair], seed: int) -> list[PreferencePair]:
    """Return the pairs with the rationales of others, in random order: other results, and the same last words."""
    others = Random(f"shuffled {seed}").sample(pairs, len(pairs))
    return [replace(pair, rationales=other.rationales) for pair, other in zip(pairs, others, strict=True)]
