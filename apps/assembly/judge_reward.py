"""Judges as reward functions and as labellers of pairs. An abstention is a missing reward; requests are counted."""

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
from ...judges.backends.open import LanguageModels
from ...judges.backends.settings import ChatConfig
from ...judges.judge import POINTWISE_KINDS
from ...judges.open import Materials, open_judge
from ...judges.run import ERROR_LENGTH, CountedChat, count_stored
from ...judges.store import Store, StoredReplies, key
from ...judges.types import BatchJudge, Case, Judgment
from ...rm.errors import DataError, UsageError
from ...rm.registry.specs import parse_spec, typed_values
from ...rm.types import AnyCompletion, Example, Labeller, Messages, prompt_text
from ..runs.processes import rank_and_size
from ..runs.run_folder import log

# ---- from settings ----


class OpenJudge(NamedTuple):
    """A judge and the chat client of its model."""

    judge: BatchJudge
    chat: CountedChat
    compares: bool
    """Whether the judge compares completions, as opposed to scoring each completion separately."""

    def ask(self, cases: Sequence[Case]) -> list[Judgment]:
        """Return the judgments of the cases. Raise `DataError` if requests fail and none has a reply."""
        replies, faults = self.chat.replies, self.chat.faults.total()
        judgments = self.judge(cases) if cases else []
        if self.chat.faults.total() > faults and self.chat.replies == replies:
            last = next(reversed(self.chat.faults))
            raise DataError(f"{self.judge.name}: none of the judge's requests has a reply: {last[:ERROR_LENGTH]}")
        return judgments


def open_reward_judge(kind: str, materials: Materials, replies: str, settings: Mapping[str, Any]) -> OpenJudge:
    """Open a judge with a single model; `settings` are fields of `ChatConfig` or arguments of `kind`.

    With a folder `replies`, replies are stored there, and stored replies are not requested again. Several processes
    share the cost limit equally, and each has its own subfolder of `replies`.
    """
    rank, processes = rank_and_size()
    chat_settings = {setting.name for setting in fields(ChatConfig)}
    of_chat = {name: value for name, value in settings.items() if name in chat_settings}
    config = ChatConfig(**typed_values("judge", of_chat, ChatConfig))
    if len(config.names) != 1:
        raise UsageError(
            f"a judge as a reward must have one model, got {len(config.names)}; give endpoint=URL and model=NAME, or "
            "local=FOLDER"
        )
    config.validate()
    config.max_cost = config.max_cost and config.max_cost / processes
    spec = parse_spec(kind)
    arguments = spec.arguments | {name: str(value) for name, value in settings.items() if name not in chat_settings}
    source = f"{spec.name}({', '.join(f'{name}={value}' for name, value in arguments.items())})"
    models = LanguageModels(config)
    ((short, chat),) = models.open().items()
    prices = models.prices[short]
    folder = Path(replies) / f"rank-{rank}" if processes > 1 else Path(replies)
    if replies:
        store = _reply_store(folder)
        count_stored([chat], store)
        chat = StoredReplies(chat, store, prices=prices or FREE)
    counting_chat = CountedChat(chat, prices)
    return OpenJudge(
        open_judge(source, DistinctRequests(counting_chat), materials, name=f"{short} {spec.short}"),
        counting_chat,
        spec.name not in POINTWISE_KINDS,
    )


_OPEN: WeakValueDictionary[Path, Store] = WeakValueDictionary()


def _reply_store(folder: Path) -> Store:
    """Return the reply store of a folder. All judges of this process share one store per folder."""
    path = folder.resolve()
    store = _OPEN.get(path)
    if store is None or store.closed:
        store = _OPEN[path] = Store(folder)
    return store


class DistinctRequests:
    """A chat client that sends identical requests of a call only once."""

    def __init__(self, chat: CountedChat):
        self.chat, self.name, self.prices = chat, chat.name, chat.prices

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """Send the distinct requests, and return one reply per request, in order; see `Chat.ask`."""
        keys = [key(self.name, ask, 0) for ask in asks]
        distinct = dict(zip(keys, asks, strict=True))
        by_key = dict(zip(distinct, self.chat.ask([*distinct.values()]), strict=True))
        replies = [by_key[name] for name in keys]
        for index, reply in enumerate(replies):
            if arrived is not None:
                arrived(index, reply)
        return replies


# ---- a reward ----


class JudgeReward:
    """Reward function by a judge: one score per completion, or None for an abstention.

    The reward of a pointwise judge is its score of the completion. A judge that compares completions plays a tournament
    among the completions of a prompt in one data row: the reward s_i of completion i is its share of wins
    against all others, where equal texts get 1/2. The reward is missing if a comparison is missing or there is
    no other completion. `facts` are metrics of the last call, in which stored replies count like new requests.
    """

    def __init__(self, opened: OpenJudge, references: Mapping[str, str] | None = None):
        self.opened = opened
        self.judge, self.chat, self.compares = opened
        self.reads_rows = self.compares
        self.references = references or {}
        """Reference responses for the judge, by the prompt's text."""
        self.completions = self.missing = self.judgments = self.abstentions = 0
        self._earlier = self._usage_totals()

    def __call__(self, examples: Sequence[Example], rows: Sequence[int] = ()) -> list[float | None]:
        """Return a score per completion; `rows` are the prompts' data rows. Raise `DataError` if all requests fail."""
        self._earlier = self._usage_totals()
        judgments = self._tournaments(examples, rows) if self.compares else self._pointwise(examples)
        self.completions += len(judgments)
        self.missing += judgments.count(None)
        log(self.status())
        return judgments

    def facts(self) -> dict[str, float]:
        """Return the numbers of requests, failures, tokens, judgments and abstentions, and the cost if it is known."""
        so_far = {name: value for name, value in self._usage_totals().items() if value is not None}
        return {name: value - self._earlier[name] for name, value in so_far.items()}

    def _usage_totals(self) -> dict[str, Any]:
        return self.chat.account() | {"judgments": self.judgments, "abstentions": self.abstentions}

    def _judge_cases(self, cases: Sequence[Case]) -> list[Judgment]:
        with_references = [replace(case, reference=self.references.get(prompt_text(case.prompt), "")) for case in cases]
        judgments = self.opened.ask(with_references)
        self.judgments += len(judgments)
        self.abstentions += sum(bool(judgment.abstained) for judgment in judgments)
        return judgments

    def status(self) -> str:
        """Return the number of requests so far and their cost as text."""
        usage = self.chat.account()
        return (
            f"{self.judge.name}: {self.completions:,} completions, {self.missing:,} without a verdict; "
            f"{usage['calls']:,} requests, {usage['prompt_tokens']:,} + {usage['completion_tokens']:,} tokens"
            + ("" if usage["cost"] is None else f", cost {usage['cost']:.4g}")
            + (f"; the tokens of {usage['estimated']:,} requests are upper bounds" if usage["estimated"] else "")
        )

    def _pointwise(self, examples: Sequence[Example]) -> list[float | None]:
        distinct = {_key(example): example for example in examples}
        cases = [  # a case has two responses; the chat sends the request about the same text once
            Case(str(index), example.prompt, (example.completion, example.completion), best=(0, 1))
            for index, example in enumerate(distinct.values())
        ]
        scores = {text: _score(judgment, 0) for text, judgment in zip(distinct, self._judge_cases(cases), strict=True)}
        return [scores[_key(example)] for example in examples]

    def _tournaments(self, examples: Sequence[Example], rows: Sequence[int]) -> list[float | None]:
        prompts = zip(rows or [0] * len(examples), (prompt_text(example.prompt) for example in examples), strict=True)
        group_of, groups = [*prompts], defaultdict[tuple[int, str], list[int]](list)
        for index, name in enumerate(group_of):
            groups[name].append(index)
        duels = [duel for indices in groups.values() for duel in _pairs_to_compare(examples, indices)]
        judgments = self._judge_cases(
            [
                Case(str(name), examples[i].prompt, (examples[i].completion, examples[j].completion))
                for name, (i, j) in enumerate(duels)
            ]
        )
        shares: dict[tuple[str, AnyCompletion, AnyCompletion], float | None] = {}
        for (i, j), judgment in zip(duels, judgments, strict=True):
            shares[(*_key(examples[i]), examples[j].completion)] = _score(judgment, 0)
            shares[(*_key(examples[j]), examples[i].completion)] = _score(judgment, 1)

        def reward(i: int) -> float | None:
            others = [examples[j].completion for j in groups[group_of[i]] if j != i]
            text = examples[i].completion
            return win_share([0.5 if text == other else shares[(*_key(examples[i]), other)] for other in others])

        return [reward(i) for i in range(len(examples))]


def win_share(shares: Sequence[float | None]) -> float | None:
    """Return a completion's mean share over its comparisons. None if a comparison is missing or there are none.

    >>> win_share([1.0, 0.5]), win_share([1.0, None]), win_share([])
    (0.75, None, None)
    """
    present = [share for share in shares if share is not None]
    return fmean(present) if present and len(present) == len(shares) else None


def _key(example: Example) -> tuple[str, AnyCompletion]:
    return prompt_text(example.prompt), example.completion


def _pairs_to_compare(examples: Sequence[Example], indices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return all pairs of different texts among the completions of a prompt."""
    distinct = list({examples[index].completion: index for index in indices}.values())
    return combinations(distinct, 2)


def _score(judgment: Judgment, index: int) -> float | None:
    return judgment.scores[index] if judgment.scores else None


# ---- a labeller ----


def judge_labeller(judge: BatchJudge) -> Labeller:
    """Return a labeller that compares a judge's scores: P(first better) is 1, 0 or 0.5 (tie), NaN for an abstention."""

    def label(prompt: Messages, completions: tuple[str, str]) -> float:
        if completions[0] == completions[1]:
            return 0.5
        return first_preferred(*judge([Case("pair", prompt, completions)]))

    return label


def first_preferred(judgment: Judgment) -> float:
    """Return 1 / number of best responses if the first response is one of these, else 0; NaN for an abstention."""
    best = max(judgment.scores, default=math.nan)
    return math.nan if judgment.abstained else (judgment.scores[0] == best) / judgment.scores.count(best)
