import json

import numpy as np
import pytest
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.suites.pairs import as_cases, pairs
from rewardlab.judges.backends.chat import Ask, Reply, failed_reply
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.kinds.cascade import cascade
from rewardlab.judges.kinds.checklist import Question, checklist
from rewardlab.judges.kinds.consistent import consistent
from rewardlab.judges.kinds.generative import generative
from rewardlab.judges.kinds.pairwise import pairwise
from rewardlab.judges.kinds.panel import panel
from rewardlab.judges.kinds.pointwise import pointwise
from rewardlab.judges.kinds.reward_model import reward_model
from rewardlab.judges.kinds.route import route
from rewardlab.judges.kinds.route.guideline import Guideline
from rewardlab.judges.kinds.rubric import rubric
from rewardlab.judges.rubrics.rubric import Principle, Rubric
from rewardlab.judges.types import Case, Reason
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.types import PreferencePair, user_turn

from tests.judges.kinds.asking import Chooser, by_length, longer, shown


def suite_cases(count: int) -> list[Case]:
    made = [PreferencePair(str(i), user_turn(f"q{i}"), f"{i} the right answer", f"{i} wrong") for i in range(count)]
    return as_cases(made)[0]


def sometimes(ask: Ask) -> str | Reply:
    """The longer answer, but for question 0 (no verdict), 1 (an error), 2 (wrong) and 3 (always the first slot)."""
    number = int(shown(ask, "answer_a").split()[0])
    if number == 0:
        return "Hard to say."
    if number == 1:
        return failed_reply("timeout")
    a_is_right = "right" in shown(ask, "answer_a")
    if number == 2:
        return "Winner: B" if a_is_right else "Winner: A"
    return "Winner: A" if number == 3 or a_is_right else "Winner: B"


def test_a_benchmark_counts_abstentions_and_bounds_the_accuracy():
    judge = pairwise(scripted(sometimes), flip="abstain", name="judge")
    found = evaluate(pairs(), suite_cases(10), [judge], samples=20)
    row = found.report.rows[0]
    # 0, 1 and 3 abstain; of the other seven one is wrong
    assert (row.scored, row.unscored, row.contract) == (7, 3, judge.contract)
    assert row.overall.value == pytest.approx(6 / 7)
    assert "3 of 10 cases unscored" in found.report.findings[0]
    assert "overall would be 60.0 and 90.0" in found.report.findings[0]
    reasons = [one.reason for one in found.judgments["judge"] if one.abstained]
    assert reasons == [Reason.NO_VERDICT, Reason.NO_REPLY, Reason.FLIP]


def test_every_kind_scores_a_benchmark_unchanged():
    class Lengths:
        contract = ScoringContract(kind="lengths")

        def rate(self, examples):
            return np.array([[len(example.completion)] for example in examples], dtype=float)

    compared, rated = pairwise(scripted(longer)), pointwise(scripted(by_length), high=100)
    short = Rubric((), (Principle("right", "Is right."),))
    right = scripted(lambda ask: json.dumps({"right": "right" in shown(ask, "answer")}))
    ticked = scripted(lambda ask: json.dumps({"q": "right" in shown(ask, "conversation")}))
    scorers = [
        compared, rated, generative(Chooser(longer, "chooser")), rubric(right, short),
        checklist(ticked, [Question("q", "Is it right?")]), reward_model(Lengths()), panel([compared, rated]),
        cascade(compared, rated, gap=0.5), consistent(rated, compared),
        route(compared, rated, rule=Guideline(scripted(lambda ask: "Decision: CHEAP")), threshold=0.5),
    ]  # fmt: skip
    report = evaluate(pairs(), suite_cases(12), scorers, samples=20).report
    values = {row.scorer: (row.overall.value, row.unscored) for row in report.rows}
    assert len(values) == 10 and set(values.values()) == {(1.0, 0)}
