"""Verdict probabilities: the position of the verdict in a reply, and the probability of each label there."""

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
    """Return the text of a reply before the label that states its verdict; None if there is no such label.

    The label is the last one whose replacement by the other label changes the parsed verdict. If the reply states its
    verdict several times, so that only replacing all statements changes it, the label is that of the first statement.

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
    """Return p_A / (p_A + p_B), in [0, 1], from the log-probabilities of both labels.

    It is the probability that the response shown first is preferred.

    >>> round(first_probability([math.log(0.6), math.log(0.2)]), 9)
    0.75
    """
    a, b = logprobs
    return 1 / (1 + math.exp(b - a)) if b - a < 700 else 0.0


class Preference(NamedTuple):
    """P(one response is preferred to another), and its spread over replies."""

    value: float
    spread: float
    """Standard deviation (n - 1) over the replies of both orders."""


def preference(first: Mapping[Order, Sequence[float | NoVerdict]]) -> Preference | NoVerdict:
    """Return the probability that response i is preferred to response j.

        P(y_i ≻ y_j) = (mean_k v_k + mean_k (1 - w_k)) / 2

    v_k and w_k are the probabilities of the response shown first, in reply k of order (i, j) and of order (j, i).

    A reply without a verdict is left out of the mean. Return a `NoVerdict` unless more than half of the replies in each
    order have a verdict.

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


def choosing_chat(chat: Chat) -> ChoosingChat | None:
    """Return the chat that computes label probabilities, without the wrappers around it. None for a dry run."""
    inner = chat
    while isinstance(inner, WrappedChat) and not isinstance(inner, ChoosingChat):
        inner = inner.chat
    if isinstance(inner, ChoosingChat):
        return inner
    if isinstance(inner, Scripted):
        return None
    raise UsageError(
        f"{chat.name}: an endpoint does not give the probabilities of both verdicts; run the model in this process "
        "with --local, or use --kind 'pairwise(ties=False)'"
    )
