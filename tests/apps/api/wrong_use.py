# pyright: standard
"""Wrong use of the Python API: pyright reports every line with a comment, by the rule that it names; never run."""

from collections.abc import Sequence

import numpy as np

from .... import compare, decode, evaluate, reinforce, score, train, trian  # reportAttributeAccessIssue
from ....benchmarks.types import Scorer
from ....judges.types import Case
from ....policy.types import AdvantageEstimator
from ....rm.types import Example, RewardModel

trian("pairs.jsonl", output="runs/rm")
train("pairs.jsonl")  # reportCallIssue
train(3, output="runs/rm")  # reportArgumentType
train([1, 2], output="runs/rm")  # reportArgumentType
score("runs/rm", prompts="How?", completions=3)  # reportArgumentType
evaluate(3, "test.jsonl")  # reportArgumentType
evaluate("runs/rm", "test.jsonl", benchmark=None)  # reportArgumentType
print(evaluate("runs/rm", "test.jsonl").overal)  # reportAttributeAccessIssue
compare("runs/before")  # reportCallIssue
decode("runs/arm", ["How?"], weight="1")  # reportArgumentType
print(decode("runs/arm", ["How?"]).completions + 1)  # reportOperatorIssue
reinforce("runs/policy", "prompts.jsonl", output="runs/more")  # reportCallIssue
print(score("runs/rm", "pairs.jsonl")["reward"])  # reportArgumentType


class WithoutContract:
    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        return np.zeros((len(examples), 1))


class OneCaseJudge:
    name, role, contract = "one", "model", ""

    def __call__(self, cases: Case) -> list[float]:
        return []


def without_rollout(rewards: np.ndarray) -> np.ndarray:
    return rewards


MODEL: RewardModel = WithoutContract()  # reportAssignmentType
JUDGE: Scorer = OneCaseJudge()  # reportAssignmentType
ESTIMATOR: AdvantageEstimator = without_rollout  # reportAssignmentType
