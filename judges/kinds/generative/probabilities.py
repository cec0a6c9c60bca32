"""Probability of a verdict: where a reply states it, and how probable each label is there."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from ....rm.errors import UsageError
from ...backends.chat import Chat, ChoosingChat, WrappedChat
from ...backends.scripted import Scripted
from ...parsing.grammars import LABELS
from ...parsing.statements import NoVerdict
from ...parsing.verdicts import Verdict
from .._comparison import Order

Reader = Callable[[str], Verdict | NoVerdict]
"""Function from the text of a reply to its verdict."""


def before_verdict(text: str, read: Reader) -> str | None:
    """Return a reply up to the label that states its verdict; None if there is no such label.

    It is the last label that makes the reply name the other response when it is replaced by the other label; if the
    reply states its verdict several times, the first of these statements, all of which are replaced.

    >>> from ...parsing.verdicts import pair_verdict
    >>> before_verdict('{"reasoning": "A has no source", "winner": "B"}', pair_verdict)
    '{"reasoning": "A has no source", "winner": "'
    """
    verdict = read(text)
    if isinstance(verdict, NoVerdict) or verdict.choice not in LABELS:
        return None
    other = LABELS[1 - LABELS.index(verdict.choice)]
    starts = [match.start() for match in re.finditer(rf"(?<!\w){verdict.choice}(?!\w)", text)]
    changed = text
    for start in reversed(starts):
        changed = changed[:start] + other + changed[start + len(verdict.choice) :]
        now = read(changed)
        if isinstance(now, Verdict) and now.choice == other:
            return text[:start]
    return None


def first_probability(logprobs: Sequence[float]) -> float:
    """p_A / (p_A + p_B) of the log-probabilities of both labels: P(the response shown first is preferred), in [0, 1]

    >>> round(first_probability([math.log(0.6), math.log(0.2)]), 9)
    0.75
    """
    a, b = logprobs
    return 1 / (1 + math.exp(b - a)) if b - a < 700 else 0.0


class Preference(NamedTuple):
    """P(a response is preferred to another), and its spread over replies."""

    value: float
    spread: float
    """Standard deviation (n - 1) over the replies of both orders."""


def preference(first: Mapping[Order, Sequence[float | NoVerdict]]) -> Preference | NoVerdict:
    """P(y_i ≻ y_j) = (mean_k v_k + mean_k (1 - w_k)) / 2, where v_k, w_k are P(shown first) in orders (i, j), (j, i)

    A reply without a verdict is left out of its mean; if not more than half of an order's replies have one, there is no
    preference.

    >>> preference({(0, 1): [0.75, 1.0], (1, 0): [0.25, 0.5]}).value
    0.75
    """
    (i, j), *_ = first
    means, values = [], []
    for order, of_order in first.items():
        shares = [value if order == (i, j) else 1 - value for value in of_order if not isinstance(value, NoVerdict)]
        if 2 * len(shares) <= len(of_order):
            return next(value for value in of_order if isinstance(value, NoVerdict))
        means.append(fmean(shares))
        values += shares
    return Preference(fmean(means), stdev(values))


def choosing(chat: Chat) -> ChoosingChat | None:
    """Return the chat behind stores and counters that knows the probabilities of labels; None for a dry run."""
    inner = chat
    while isinstance(inner, WrappedChat) and not isinstance(inner, ChoosingChat):
        inner = inner.chat
    if isinstance(inner, ChoosingChat):
        return inner
    if isinstance(inner, Scripted):
        return None
    raise UsageError(
        f"{chat.name}: an endpoint does not give the probabilities of both verdicts; run the model in this process "
        "with --local, or take --kind 'pairwise(ties=False)'"
    )
