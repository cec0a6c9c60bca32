# pyright: standard
"""Typed use of the Python API, and code of a user that implements its protocols. Checked by pyright, never run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pandas as pd
from torch import Tensor

from .... import compare, decode, evaluate, judge, lint, load, plan, reinforce, score, train, train_judge
from ....apps.api.results import (
    Comparison,
    Decoded,
    Evaluation,
    LintReport,
    LoadedModel,
    MemoryPlan,
    Scores,
    TrainedJudge,
    TrainedModel,
    TrainedPolicy,
)
from ....benchmarks.types import Interval, Report, Row, Scorer
from ....judges.types import Case, Judgment, judgment_from_scores
from ....policy.types import AdvantageEstimator, Aggregation, RewardFunction, RewardSource, Rollout
from ....rm.contract.scoring_contract import ScoringContract
from ....rm.types import Example, Labeller, Messages, ReportsSpread, RewardModel, TakesPreference

PAIRS = [{"prompt": "How do I water a fern?", "chosen": "With rain water.", "rejected": "No."}]

# ---- results ----


def train_and_score(frame: pd.DataFrame) -> None:
    trained = train(PAIRS, output="runs/rm", kind="linear", eval_data=Path("valid.jsonl"))
    assert_type(trained, TrainedModel)
    assert_type(trained.metrics, dict[str, Any])
    assert_type(trained.to_pandas(), pd.DataFrame)
    loaded = load(Path("runs/rm"), check=False)
    assert_type(loaded, LoadedModel)
    assert_type(loaded.objectives, tuple[str, ...])
    assert_type(loaded.model, RewardModel)
    rewards: np.ndarray = loaded.rate(["How?"], ["So."])
    scores = score(trained, frame, output="scores.jsonl")
    assert_type(scores, Scores)
    assert_type(scores.path, Path | None)
    assert_type(score(loaded.model, prompts=["How?"], completions=["So."]), Scores)
    print(rewards.mean(), scores[0]["reward"], len(scores))


def evaluate_and_compare(model: TrainedModel) -> None:
    evaluation = evaluate([model, "org/model"], ["test.jsonl"], bootstrap_samples=100)
    assert_type(evaluation, Evaluation)
    assert_type(evaluation.report, Report)
    assert_type(evaluation.report.rows, tuple[Row, ...])
    assert_type(evaluation.overall, dict[str, Interval])
    assert_type(evaluation.overall["rm"].low, float)
    judged = judge(PAIRS, kind=["pairwise"], local=["Qwen/Qwen3-0.6B"])
    assert_type(judged, Evaluation)
    assert_type(compare(evaluation, judged), Comparison)
    assert_type(train_judge(PAIRS, base="Qwen/Qwen3-0.6B", output="runs/judge"), TrainedJudge)
    assert_type(lint({"helpful": "a.jsonl", "harmless": "b.jsonl"}).ok, bool)
    assert_type(lint("pairs.jsonl"), LintReport)


def decode_and_reinforce(model: TrainedModel) -> None:
    decoded = decode({"helpful": model, "harmless": "runs/h"}, ["How?"], preference={"helpful": 1.0})
    assert_type(decoded, Decoded)
    assert_type(decoded.completions, list[str])
    policy = reinforce("Qwen/Qwen3-0.6B", PAIRS, reward={"rm": model, "short": brevity}, output="runs/policy")
    assert_type(policy, TrainedPolicy)
    assert_type(policy.to_pandas(), pd.DataFrame)
    assert_type(reinforce(policy, PAIRS, reward=[model, brevity], output="runs/more"), TrainedPolicy)
    assert_type(plan("7b", gpus=8), MemoryPlan)


# ---- code of a user ----


def brevity(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
    return [-float(len(completion)) for completion in completions]


class LengthModel:
    """A reward model with a preference and a spread."""

    def __init__(self, sign: float = -1.0) -> None:
        self.sign = sign
        self.contract = ScoringContract(kind="length")

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        return np.array([[self.sign * len(example.text)] for example in examples])

    def spread(self, examples: Sequence[Example]) -> np.ndarray:
        return np.zeros((len(examples), 1))

    def at(self, preference: Any) -> "LengthModel":
        return LengthModel(preference["long"])


class FirstJudge:
    name, role, contract = "first", "model", ""

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        return [judgment_from_scores(case, [-float(index) for index, _ in enumerate(case.answers)]) for case in cases]


def centred(rewards: Tensor, rollout: Rollout) -> Tensor:
    return rewards - rewards.mean()


def token_mean(response: Tensor, completions: float, tokens: float) -> Tensor:
    return response / tokens


def shorter(prompt: Messages, completions: tuple[str, str]) -> float:
    return float(len(completions[0]) < len(completions[1]))


async def later(examples: Sequence[Example]) -> list[float | None]:
    return [None for _ in examples]


MODEL: RewardModel = LengthModel()
SPREAD: ReportsSpread = LengthModel()
PREFERENCE: TakesPreference = LengthModel()
JUDGE: Scorer = FirstJudge()
ESTIMATOR: AdvantageEstimator = centred
AGGREGATION: Aggregation = token_mean
LABELLER: Labeller = shorter
REWARD: RewardFunction = later
SOURCES: list[RewardSource] = [LengthModel(), later]
