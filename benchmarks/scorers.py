"""Scorers of cases: reward models, functions and stored scores. A reward that is not finite is an abstention."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..judges.kinds.reward_model import RewardScorer
from ..judges.types import Case, Judgment, Reason, judgment_from_scores
from ..rm.contract.scoring_contract import FILE, ScoringContract
from ..rm.data.pairs import collect, column, is_number
from ..rm.data.preference_vectors import Preference
from ..rm.data.readers import source_name
from ..rm.errors import DataError, UsageError
from ..rm.io.coroutines import resolve
from ..rm.load import load_reward_model
from ..rm.registry import kind_of, load
from ..rm.registry.specs import bind_arguments, call, check_ordered, is_function, is_reward_function, parse_spec, takes
from ..rm.types import Example, TakesPreference, completion_turns
from .suites._suite import dropped_note
from .suites.judgebench import votes
from .types import Suite


def open_scorer(
    source: str,
    *,
    role: str = "model",
    objective: str | None = None,
    kind: str | None = None,
    preference: Preference | None = None,
    on_long: Literal["refuse", "truncate"] = "truncate",
    on_bad_row: Literal["refuse", "skip"] = "skip",
    **options: Any,
) -> RewardScorer:
    """Open a scorer from a reward model's folder, a Hub id, a reward function or a factory of reward models.

    Functions and factories are given as `"file.py:name"` or `"pkg.module:name"`. `kind` overrides the kind in the
    model's configuration, such as `autoregressive` or `implicit` for a causal LM. An autoregressive reward model with
    preferences is evaluated at `preference`; without one, it has one reward per objective. For a classifier without a
    scoring contract, `objective` is the output that is the reward. `on_long` and `on_bad_row` are those of
    `RewardScorer`.
    """
    if kind is not None:
        loader = kind_of(kind).load
        _refuse_special_tokens(source, options.keys() - signature(loader).parameters.keys())
        model = loader(source, **options)
    elif ":" in source and not Path(source).exists():
        _refuse_special_tokens(source, options.keys())
        model: Any = _open_function(source)
    else:
        stated = {} if (Path(source) / FILE).exists() else {"objective": objective}
        model = load_reward_model(source, **stated, **options)
    if preference is not None:
        if not isinstance(model, TakesPreference):
            raise UsageError(f"{source} takes no preference, got {dict(preference)}; remove the preference")
        model = model.at(preference)
    refusals: Any = {"on_long": on_long, "on_bad_row": on_bad_row}
    return RewardScorer(source.rstrip("/"), model, role=role, objective=objective, **refusals)


def _open_function(source: str) -> Any:
    """Return a reward function as a model, or the reward model that a factory returns."""
    function = load("rm.kinds", parse_spec(source).name if is_function(source) else source)
    if not is_reward_function(function):
        return call(function, source)
    return FunctionModel(bind_arguments(function, source), source)


def _refuse_special_tokens(source: str, options: Iterable[str]) -> None:
    """Raise a `UsageError` if the options contain settings of BOS and EOS that the model does not support."""
    if untaken := sorted({"bos", "eos"} & {*options}):
        raise UsageError(f"--{untaken[0]}: {source} does not use this token; remove this option")


FUNCTION_SIGNATURE = "(prompts, completions) -> list of numbers, or None where a reward is missing"


class FunctionModel:
    """Rewards by a function with the signature of TRL's reward functions. A missing reward is NaN.

    Where the prompt is a single user message, prompt and completion are strings, else lists of messages.
    """

    def __init__(self, function: Callable[..., Any], name: str):
        self.function, self.name = function, name
        self.contract = ScoringContract(kind="function")

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return rewards [N, 1]."""
        prompts, completions = [], []
        for example in examples:
            as_text = len(example.prompt) == 1 and example.prompt[0]["role"] == "user"
            prompts.append(example.prompt[0]["content"] if as_text else [*example.prompt])
            completions.append(example.text if as_text else [*completion_turns(example.completion)])
        more = {"prompts": prompts} if takes(self.function, "prompts") else {}
        try:
            values = check_ordered(resolve(self.function(completions=completions, **more)))
            rewards = [np.nan if value is None else float(value) for value in values]
        except Exception as error:  # user functions raise arbitrary errors
            raise UsageError(
                f"{self.name} fails ({type(error).__name__}: {error}); its signature must be {FUNCTION_SIGNATURE}"
            ) from error
        if len(rewards) != len(examples):
            raise UsageError(f"{self.name} returns {len(rewards)} values for {len(examples)} completions")
        return np.array(rewards, dtype=np.float64)[:, None]


def short_names(scorers: Sequence[RewardScorer]) -> None:
    """Shorten each path or Hub id in scorers' names (an ensemble has several) to its last part, if that is unique."""
    last = [_short_name(scorer.name) for scorer in scorers]
    for scorer, short in zip(scorers, last, strict=True):
        if last.count(short) == 1:
            scorer.name = short


def _short_name(name: str) -> str:
    """Return the last part of each path.

    >>> _short_name("runs/a,runs/b/"), _short_name("my_rewards.py:near(to=runs/a, by=2)")
    ('a,b', 'near(to=runs/a, by=2)')
    """
    if is_function(name):
        function, sign, arguments = name.partition("(")
        return function.rpartition(":")[2] + sign + arguments
    return ",".join(re.split("[/:]", member.rstrip("/"))[-1] for member in name.split(","))


@dataclass
class StoredScores:
    """Precomputed scores by case id. A case without scores is an abstention."""

    name: str
    scores: Mapping[str, tuple[float, ...] | str]
    role: str = field(default="model", kw_only=True)
    contract: str = field(default="", kw_only=True)
    both_orders: bool = field(default=False, kw_only=True)
    """Whether the scores come from a judge that compared the responses in both orders."""
    unread: Mapping[str, Judgment] = field(default_factory=dict, kw_only=True)
    """Judgments by case id, which state the text that the scorer did not read."""
    dropped: Sequence[str] = field(default=(), kw_only=True)
    """Notes on rows of the file that were dropped."""

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """Return one judgment per case."""
        judged = [self._judge(case) for case in cases]
        pairs = ((judgment, self.unread.get(judgment.case, judgment)) for judgment in judged)
        return [replace(judgment, truncated=stored.truncated, omitted=stored.omitted) for judgment, stored in pairs]

    def _judge(self, case: Case) -> Judgment:
        stored = self.scores.get(case.id, "no stored score")
        straight = tuple(range(len(case.answers)))
        orders = (straight, straight[::-1]) if self.both_orders else ()
        if isinstance(stored, str):
            return Judgment(case.id, abstained=stored, orders=orders)
        if len(stored) != len(case.answers):
            raise DataError(
                f"{self.name}: case '{case.id}' has {len(case.answers)} answers and {len(stored)} stored scores; "
                "give one score per answer, in the answers' order"
            )
        return replace(judgment_from_scores(case, stored), orders=orders)

    def notes(self, cases: Sequence[Case]) -> list[str]:
        """Return notes on scores without a case and on dropped rows. Raise an error if no id matches."""
        ids = {case.id for case in cases}
        extra = [name for name in self.scores if name not in ids]
        if len(extra) == len(self.scores):
            example = next(iter(ids))
            raise DataError(f"{self.name}: none of the {len(extra)} ids is a case id; use ids such as '{example}'")
        notes = [f"{self.name} has {len(extra)} scores without a case, such as '{extra[0]}'."] if extra else []
        return [*notes, *(f"{self.name}: {note}" for note in self.dropped)]


def load_stored(
    source: str, suite: Suite, cases: Sequence[Case], on_bad_row: Literal["refuse", "skip"] = "refuse"
) -> StoredScores:
    """Load scores of cases from a file: rows of this project, or results published by a benchmark's authors.

    A row names its case by `case`, `id` or JudgeBench's `pair_id`, together with its `subset` (RewardBench) or `domain`
    (RM-Bench) where ids repeat. It has one of: `scores` in the responses' order; `score_chosen` and `score_rejected`
    (or `scores_chosen`, `scores_rejected`), a number or a list of numbers for each side; JudgeBench's `judgments`. A
    score that is null or not finite is missing, and makes the case an abstention.
    """
    case_by_id = {case.id: case for case in cases}
    rows, report = collect(source, lambda values: _stored_row(values, suite, case_by_id), on_bad_row)
    scores: dict[str, tuple[float, ...] | str] = {}
    for name, stored in rows:
        if name in scores:
            raise DataError(f"{source}: id '{name}' occurs twice; keep one of its scores")
        scores[name] = stored
    return StoredScores(source_name(source), scores, dropped=dropped_note(report))


def _stored_row(
    values: Mapping[str, Any], suite: Suite, case_by_id: Mapping[str, Case]
) -> tuple[str, tuple[float, ...] | str]:
    """Return the case id and the stored scores of a row, or the reason why the case has no score."""
    name = _case_name(values, case_by_id)
    if values.get("abstained"):
        return name, str(values["abstained"])
    if "judgments" in values:
        return name, _both_order_scores(column(values, "judgments"))
    for prefix in ("score", "scores"):
        if f"{prefix}_chosen" in values and not (values[f"{prefix}_chosen"] is None and values.get("scores")):
            chosen, rejected = (_numbers(values, f"{prefix}_{side}") for side in ("chosen", "rejected"))
            case = case_by_id.get(name)
            return name, _in_order(case, suite, chosen, rejected) if case else (*chosen, *rejected)
    if values.get("scores", "") is None:
        return name, str(Reason.NOT_FINITE)
    if not isinstance(column(values, "scores"), list):
        raise ValueError(f"'scores' is not a list of numbers: {str(values['scores'])[:60]}")
    return name, _numbers(values, "scores")


def _case_name(values: Mapping[str, Any], case_by_id: Mapping[str, Case]) -> str:
    """Return the case id of a stored row. Ids of RewardBench and RM-Bench are unique only within a subset."""
    stated = str(column(values, next((name for name in ("case", "pair_id") if name in values), "id")))
    group = values.get("subset", values.get("domain"))
    in_group = f"{group}/{stated}"
    return in_group if group and (in_group in case_by_id or stated not in case_by_id) else stated


def _numbers(values: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """Return a number, or a list of numbers, as a tuple. Null becomes NaN, a missing score."""
    value = values[name] if name in values else column(values, name)
    numbers = [float("nan") if item is None else item for item in (value if isinstance(value, list) else [value])]
    if not all(isinstance(number, float) or is_number(number) for number in numbers):
        raise ValueError(f"'{name}' is not a list of numbers: {str(value)[:60]}")
    return tuple(map(float, numbers))


def _in_order(case: Case, suite: Suite, chosen: Sequence[float], rejected: Sequence[float]) -> tuple[float, ...]:
    """Return scores of chosen and rejected responses in the order of the case's responses."""
    right = sorted(suite.chosen(case))
    wrong = [index for index in range(len(case.answers)) if index not in right]
    if (len(chosen), len(rejected)) != (len(right), len(wrong)):
        raise ValueError(
            f"chosen and rejected scores do not fit the case: {len(chosen)} and {len(rejected)} scores, but "
            f"{len(right)} of the {len(case.answers)} responses of '{case.id}' are right; give 'scores', one "
            "per response in the order of the responses"
        )
    scores = dict(zip([*right, *wrong], [*chosen, *rejected], strict=True))
    return tuple(scores[index] for index in range(len(case.answers)))


def _both_order_scores(judgments: Any) -> tuple[float, ...]:
    """Return the scores in JudgeBench's two judgments of a pair, or votes if scores are missing or contradictory.

    A judgment has a `decision` (A>B, B>A, A=B, null) and perhaps two `scores`; the second has the reverse order.
    """
    rows = [judgment or {} for judgment in judgments]
    scores = [tuple(row.get("scores") or ()) for row in rows]
    if len(rows) == 2 and len(scores[0]) == 2 and scores[0] == scores[1][::-1]:
        return _numbers({"scores": list(scores[0])}, "scores")
    return votes([row.get("decision") for row in rows])
