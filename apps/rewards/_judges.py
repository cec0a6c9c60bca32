"""Judges as rewards and as labellers of pairs: an abstention is a missing reward, and requests are counted."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ...judges.backends.chat import Arrived, Ask, Reply
from ...judges.backends.cost import FREE
from ...judges.store import Store, StoredReplies, key
from ...judges.types import BatchJudge, Case, Judgment
from ...rm.errors import DataError, UsageError
from ...rm.registry.specs import parse_spec
from ...rm.types import Example, Labeller, Messages, prompt_text
from ..commands.judge.chats import Asked, count_stored, open_chats, prices_of, short_names
from ..commands.judge.kinds import Materials, open_judge
from ..commands.judge.settings import ChatConfig
from ..runs.processes import launched
from ..runs.run_folder import log

ALONE = ("pointwise", "rubric", "checklist")
"""Kinds that show one completion at a time."""
SHOWN = 160  # characters of an error in a message

# ---- from settings ----


class OpenJudge(NamedTuple):
    """A judge and its chat."""

    judge: BatchJudge
    asked: Asked
    compares: bool
    """Whether the judge compares completions."""


def open_one(kind: str, given: Materials, replies: str, settings: Mapping[str, Any]) -> OpenJudge:
    """Open a judge with a single model; `settings` are those of `ChatConfig` or arguments of the kind.

    With a folder `replies`, replies are stored there and not requested again. Each of several processes has its share
    of a limit of cost, and a folder of its own within that of the replies.
    """
    rank, processes = launched()
    known = {setting.name for setting in fields(ChatConfig)}
    config = ChatConfig(**{name: value for name, value in settings.items() if name in known})
    if len(config.names) != 1:
        raise UsageError(
            f"a judge as a reward asks one model, got {len(config.names)}; give endpoint=URL and model=NAME, or "
            "local=FOLDER"
        )
    config.validate()
    config.max_cost = config.max_cost and config.max_cost / processes
    spec = parse_spec(kind)
    written = spec.arguments | {name: str(value) for name, value in settings.items() if name not in known}
    source = f"{spec.name}({', '.join(f'{name}={value}' for name, value in written.items())})"
    ((short, chat),) = open_chats(config).items()
    prices = prices_of(short_names(config.names)[short], config)
    folder = Path(replies) / f"rank-{rank}" if processes > 1 else Path(replies)
    if replies:
        store = _store(folder)
        count_stored([chat], store)
        chat = StoredReplies(chat, store, prices=prices or FREE)
    asked = Asked(chat, prices)
    return OpenJudge(
        open_judge(source, Once(asked), given, name=f"{short} {spec.short}"), asked, spec.name not in ALONE
    )


_OPEN: WeakValueDictionary[Path, Store] = WeakValueDictionary()


def _store(folder: Path) -> Store:
    """Return the store of a folder, which all judges of this process share."""
    path = folder.resolve()
    opened = _OPEN.get(path)
    if opened is None or opened.closed:
        opened = _OPEN[path] = Store(folder)
    return opened


class Once:
    """A chat that sends repeated requests of a call once."""

    def __init__(self, chat: Asked):
        self.chat, self.name, self.prices = chat, chat.name, chat.prices

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`."""
        keys = [key(self.name, ask, 0) for ask in asks]
        distinct = dict(zip(keys, asks, strict=True))
        replies = dict(zip(distinct, self.chat.ask([*distinct.values()]), strict=True))
        repeated = [replies[name] for name in keys]
        for index, reply in enumerate(repeated) if arrived else ():
            arrived(index, reply)  # type: ignore[misc]
        return repeated


# ---- a reward ----


class JudgeReward:
    """Reward function by a judge: one score per completion, None for an abstention.

    A judge that shows answers alone gives its score of each. One that compares plays a tournament within the answers to
    one prompt: s_i = mean over the others j of i's share of the comparison with j, 1/2 where both texts are the same;
    an answer that lacks one of its comparisons, or any other answer, has no reward. `facts` are about the answers that
    were rated last; replies that were kept from before count as if they were asked now.
    """

    def __init__(self, opened: OpenJudge, references: Mapping[str, str] | None = None):
        self.judge, self.asked, self.compares = opened
        self.references = references or {}
        """Reference responses that the judge is shown, by the prompt's text."""
        self.answers = self.missing = self.judgments = self.abstentions = 0
        self._before = self._so_far()

    def __call__(self, examples: Sequence[Example]) -> list[float | None]:
        """Return one score per completion; raise a `DataError` if no reply arrives at all."""
        self._before, replies_before = self._so_far(), self.asked.replies
        judgments = self._tournaments(examples) if self.compares else self._alone(examples)
        if self.facts()["without_reply"] and self.asked.replies == replies_before:
            last = next(reversed(self.asked.faults))
            raise DataError(f"{self.judge.name}: none of the judge's requests has a reply: {last[:SHOWN]}")
        self.answers += len(judgments)
        self.missing += judgments.count(None)
        log(self.status())
        return judgments

    def facts(self) -> dict[str, float]:
        """Return the numbers of requests, failures, tokens, judgments and abstentions, and with prices the cost."""
        so_far = {name: value for name, value in self._so_far().items() if value is not None}
        return {name: value - self._before[name] for name, value in so_far.items()}

    def _so_far(self) -> dict[str, Any]:
        return self.asked.account() | {"judgments": self.judgments, "abstentions": self.abstentions}

    def _judged(self, cases: Sequence[Case]) -> list[Judgment]:
        shown = [replace(case, reference=self.references.get(prompt_text(case.prompt), "")) for case in cases]
        judged = self.judge(shown) if shown else []
        self.judgments += len(judged)
        self.abstentions += sum(bool(judgment.abstained) for judgment in judged)
        return judged

    def status(self) -> str:
        """Return the requests so far and their cost."""
        done = self.asked.account()
        return (
            f"{self.judge.name}: {self.answers:,} answers, {self.missing:,} without a verdict; {done['calls']:,} "
            f"requests, {done['prompt_tokens']:,} + {done['completion_tokens']:,} tokens"
            + ("" if done["cost"] is None else f", cost {done['cost']:.4g}")
            + (f"; the tokens of {done['estimated']:,} requests are upper bounds" if done["estimated"] else "")
        )

    def _alone(self, examples: Sequence[Example]) -> list[float | None]:
        distinct = {_text(example): example for example in examples}
        cases = [  # a case has two answers; the judge is asked once about the same text
            Case(str(index), example.prompt, (example.completion, example.completion), best=(0, 1))
            for index, example in enumerate(distinct.values())
        ]
        scores = {text: _score(judgment, 0) for text, judgment in zip(distinct, self._judged(cases), strict=True)}
        return [scores[_text(example)] for example in examples]

    def _tournaments(self, examples: Sequence[Example]) -> list[float | None]:
        groups: dict[str, list[int]] = defaultdict(list)
        for index, example in enumerate(examples):
            groups[prompt_text(example.prompt)].append(index)
        duels = [duel for indices in groups.values() for duel in _duels(examples, indices)]
        judged = self._judged(
            [
                Case(str(name), examples[i].prompt, (examples[i].completion, examples[j].completion))
                for name, (i, j) in enumerate(duels)
            ]
        )
        shares: dict[tuple[str, str, str], float | None] = {}
        for (i, j), judgment in zip(duels, judged, strict=True):
            shares[(*_text(examples[i]), examples[j].completion)] = _score(judgment, 0)
            shares[(*_text(examples[j]), examples[i].completion)] = _score(judgment, 1)

        def won(i: int) -> float | None:
            others = [examples[j].completion for j in groups[prompt_text(examples[i].prompt)] if j != i]
            text = examples[i].completion
            return win_share([0.5 if text == other else shares[(*_text(examples[i]), other)] for other in others])

        return [won(i) for i in range(len(examples))]


def win_share(shares: Sequence[float | None]) -> float | None:
    """Return the mean of a completion's shares of its comparisons; None if one is missing or there is none.

    >>> win_share([1.0, 0.5]), win_share([1.0, None]), win_share([])
    (0.75, None, None)
    """
    known = [share for share in shares if share is not None]
    return fmean(known) if known and len(known) == len(shares) else None


def _text(example: Example) -> tuple[str, str]:
    return prompt_text(example.prompt), example.completion


def _duels(examples: Sequence[Example], indices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return all pairs of different texts among the completions of a prompt."""
    distinct = list({examples[index].completion: index for index in indices}.values())
    return combinations(distinct, 2)


def _score(judgment: Judgment, index: int) -> float | None:
    return judgment.scores[index] if judgment.scores else None


# ---- a labeller ----


def by_judge(judge: BatchJudge) -> Labeller:
    """Return P(first better): 1, 0, or 0.5 for a tie, by the judge's scores; NaN for an abstention."""

    def label(prompt: Messages, completions: tuple[str, str]) -> float:
        if completions[0] == completions[1]:
            return 0.5
        (judgment,) = judge([Case("pair", prompt, completions)])
        if judgment.abstained:
            return math.nan
        return (1 + (judgment.scores[0] > judgment.scores[1]) - (judgment.scores[0] < judgment.scores[1])) / 2

    return label
