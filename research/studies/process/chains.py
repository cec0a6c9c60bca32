"""Chains of arithmetic on last digits, written out step by step, with a known first error that is carried on.

A problem is a digit and a few operations; a solution writes each operation with its result. A wrong solution has one
wrong result, and everything behind it is computed correctly from there. Multipliers are 3 and 7, which have an inverse
modulo 10, so that a wrong result never becomes right again: a final answer is right if and only if there is no
error.
"""

import math
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ....rm.data.solutions import Solution
from ....rm.types import Messages, user_turn

SEPARATOR = " ; "
DIGITS = tuple(map(str, range(10)))
ADDENDS, MULTIPLIERS = ("1", "2", "5"), ("3", "7")
OPERATIONS = (*(f"+{operand}" for operand in ADDENDS), *(f"*{operand}" for operand in MULTIPLIERS))
VOCABULARY = (*DIGITS, *OPERATIONS, *(f"{digit}{operation}" for digit in DIGITS for operation in OPERATIONS), "=", ";")
SHORTEST, LONGEST = 1, 5
"""Number of steps of a problem. A final answer labels the step of a problem of one step: so outcomes can be learned."""
RIGHT = 0.3
"""Share of solutions without an error."""


class Problem(NamedTuple):
    """A digit, and operations (sign, digit) on it."""

    start: int
    operations: tuple[tuple[str, str], ...]

    @property
    def prompt(self) -> Messages:
        """The problem as a user turn, such as `7 ; + 5 ; * 3`."""
        return user_turn(SEPARATOR.join([str(self.start), *map("".join, self.operations)]))


def draw_problem(random: Random) -> Problem:
    """Draw a problem of 1 to 5 operations: additions and multiplications with equal probability."""
    kinds = (("+", ADDENDS), ("*", MULTIPLIERS))
    operations = [random.choice(kinds) for _ in range(random.randint(SHORTEST, LONGEST))]
    return Problem(random.randrange(10), tuple((sign, random.choice(operands)) for sign, operands in operations))


def write_steps(problem: Problem, error: int | None, random: Random) -> tuple[str, ...]:
    """Return the steps of a solution whose result at step `error` is wrong (None: no error), and carried on.

    >>> write_steps(Problem(7, (("+", "5"), ("*", "3"))), None, Random(0))
    ('7+5 = 2', '2*3 = 6')
    """
    value, steps = problem.start, []
    for index, (sign, operand) in enumerate(problem.operations):
        result = (value + int(operand) if sign == "+" else value * int(operand)) % 10
        if index == error:
            result = (result + random.randint(1, 9)) % 10
        steps.append(f"{value}{sign}{operand} = {result}")
        value = result
    return tuple(steps)


def draw_solution(problem: Problem, name: str, random: Random) -> Solution:
    """Draw a solution: right with probability 0.3, else with an error at any step; steps behind it are unlabelled."""
    error = None if random.random() < RIGHT else random.randrange(len(problem.operations))
    steps = write_steps(problem, error, random)
    labels = [1.0] * len(steps) if error is None else [1.0] * error + [0.0] + [math.nan] * (len(steps) - error - 1)
    return Solution(name, problem.prompt, steps, tuple(labels))


def draw_solutions(number: int, seed: int, split: str) -> list[Solution]:
    """Draw solutions of as many problems."""
    random = Random(f"{split} {seed}")
    return [draw_solution(draw_problem(random), f"{split}-{index}", random) for index in range(number)]


def draw_candidates(problems: int, candidates: int, seed: int) -> list[list[Solution]]:
    """Draw several solutions for each of some problems."""
    random = Random(f"candidates {seed}")
    drawn = [draw_problem(random) for _ in range(problems)]
    return [
        [draw_solution(problem, f"{row}-{column}", random) for column in range(candidates)]
        for row, problem in enumerate(drawn)
    ]


def first_errors(solutions: Sequence[Solution]) -> list[int]:
    """Return the index of the first error of each solution, -1 where there is none."""
    return [solution.labels.index(0.0) if 0.0 in solution.labels else -1 for solution in solutions]
