"""Measures of judges on pairs in both orders: accuracy, order consistency, missing verdicts, position, evidence."""

from collections.abc import Sequence

import numpy as np

from ....judges.backends.chat import Chat, Reply
from ....judges.judge import ask_all
from ....judges.kinds._comparison import Order, orders_of
from ....judges.kinds.generative.rewards import verdict_reward
from ....judges.kinds.generative.traces import right_label
from ....judges.parsing.grammars import LABELS
from ....judges.types import Case
from .._runs.job_cache import Arrays
from .demands import PROMPT, demands_of, marks_of, met

ACCURACY, CONSISTENCY, NO_VERDICT, FIRST, EVIDENCE = "accuracy", "consistency", "no_verdict", "first", "evidence"
"""Shares of right verdicts, of pairs with the same verdict in both orders, of replies without a verdict, of verdicts
for the response shown first, and of right marks. A reply without a verdict is not right."""


def measures(verdicts: np.ndarray) -> Arrays:
    """Return measures of verdicts [M, 2] in the two orders of M pairs: 1 right, 0 wrong, 1/2 a tie, NaN none.

    >>> {name: value.item() for name, value in measures(np.array([[1.0, 1.0], [0.0, np.nan]])).items()}
    {'accuracy': 0.5, 'consistency': 0.5, 'no_verdict': 0.25}
    """
    return {
        ACCURACY: np.array(np.nansum(verdicts) / verdicts.size),
        CONSISTENCY: np.array(np.mean(verdicts[:, 0] == verdicts[:, 1])),
        NO_VERDICT: np.array(np.isnan(verdicts).mean()),
    }


def measure(chat: Chat, pairs: Sequence[Case]) -> Arrays:
    """Ask a generative judge greedily in both orders and measure its verdicts and its marks."""
    replies = ask_all(chat, [[PROMPT.ask(pair, order) for order in orders_of(pair)] for pair in pairs])
    read = [
        [_verdict(pair, order, reply) for order, reply in zip(orders_of(pair), of_pair, strict=True)]
        for pair, of_pair in zip(pairs, replies, strict=True)
    ]
    verdicts = np.array([[right for right, _ in of_pair] for of_pair in read])
    first = np.array([[first for _, first in of_pair] for of_pair in read])
    marks = [mark for pair, of_pair in zip(pairs, replies, strict=True) for mark in _right_marks(pair, of_pair)]
    of_replies = {FIRST: _known_mean(first), EVIDENCE: _known_mean(np.array(marks, float))}
    return measures(verdicts) | of_replies


def _verdict(pair: Case, order: Order, reply: Reply) -> tuple[float, float]:
    """Return whether the verdict is right and whether it is for the response shown first; NaN without one."""
    verdict = PROMPT.verdict(pair, order, reply)
    right, first = (verdict_reward(verdict, label, np.nan) for label in (right_label(pair, order), LABELS[0]))
    return right, first


def _right_marks(pair: Case, replies: Sequence[Reply]) -> list[bool]:
    """Return whether each mark of the replies is right; none of a reply without marks."""
    demands = demands_of(pair)
    return [
        mark == truth
        for order, reply in zip(orders_of(pair), replies, strict=True)
        for index, marks in zip(order, marks_of(reply.text, demands) or (), strict=False)
        for mark, truth in zip(marks, met(demands, pair.texts[index]), strict=True)
    ]


def _known_mean(values: np.ndarray) -> np.ndarray:
    return np.array(np.nanmean(values) if np.isfinite(values).any() else np.nan)


def verdicts_of_scores(scores: np.ndarray) -> Arrays:
    """Return measures of scores [M, 2], the better response first; a tie is half right, NaN no verdict."""
    gaps = scores[:, 0] - scores[:, 1]
    right = np.where(np.isnan(gaps), np.nan, (np.sign(gaps) + 1) / 2)
    return measures(np.stack([right, right], axis=1))
