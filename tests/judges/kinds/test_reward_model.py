"""A reward model as a judge: what it does not read of a case is counted, and never a tie."""

from collections.abc import Sequence

import numpy as np
import pytest
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.kinds.reward_model import RewardScorer, reward_model
from rewardlab.judges.types import Case, Reason
from rewardlab.rm.contract.readings import Rated, Reading
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import Example, user_turn


class FourLetters:
    """Reads the first four letters; its reward is the last one of them. A thought before `|` is left out."""

    contract = ScoringContract(kind="letters", max_length=4)

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        return self.rated(examples).rewards

    def rated(self, examples: Sequence[Example]) -> Rated:
        texts = [example.completion.rpartition("|") for example in examples]
        read = [Reading(len(text) > 4, thought, ids=(tuple(map(ord, text[:4])),)) for thought, _, text in texts]
        return Rated(np.array([[float(reading.ids[0][-1])] for reading in read]), read)


TEXTS = {"short": ("b", "a"), "cut": ("aaabx", "aaaax"), "equal": ("aaaax", "aaaay"), "tie": ("a", "a ")}
CASES = [Case(name, user_turn(name), answers) for name, answers in TEXTS.items()]
THOUGHT = Case("thought", user_turn("thought"), ("moss|a", "fern|a"))


def test_what_is_equal_after_truncation_abstains_and_a_report_counts_what_was_not_read():
    judged = RewardScorer("rm", FourLetters())(CASES)
    assert [judgment.truncated for judgment in judged] == [False, True, True, False]
    assert judged[2].reason == Reason.ALIKE and "after truncation" in judged[2].abstained
    assert [bool(judgment.scores) for judgment in judged] == [True, True, False, True]
    report = evaluate(pairs(), [*CASES, THOUGHT], [RewardScorer("rm", FourLetters())], samples=20).report
    (row,) = report.rows
    assert (row.truncated, row.omitted, row.scored, row.unscored) == (2, 1, 3, 2)
    findings = " ".join(report.findings)
    assert "rm: 2 of 5 cases exceed the maximum length and were truncated." in findings
    assert "the chat template leaves out text of 1 of 5 cases, such as 'moss'" in findings
    assert "rm: 2 cases are unscored: right and wrong responses were identical to the model." in findings


def test_long_cases_and_responses_that_the_template_makes_equal_are_refused_or_skipped():
    with pytest.raises(DataError, match="response of case 'thought' .* leaves out 'moss'; .* --on_bad_row skip"):
        RewardScorer("rm", FourLetters(), on_bad_row="refuse")([THOUGHT])
    (judgment,) = RewardScorer("rm", FourLetters())([THOUGHT])
    assert judgment.reason == Reason.ALIKE and judgment.omitted == "moss"
    with pytest.raises(DataError, match="case 'cut' is longer than the 4 tokens .* --on_long truncate"):
        RewardScorer("rm", FourLetters(), on_long="refuse")(CASES)


def test_objectives_are_named_and_what_is_not_a_number_abstains():
    class Lengths:
        contract = ScoringContract(kind="lengths", objectives=("length", "half"))

        def rate(self, examples):
            lengths = [float("nan") if e.completion == "?" else len(e.completion) for e in examples]
            return np.array([[length, length / 2] for length in lengths])

    cases = [Case(name, user_turn(name), answers) for name, answers in (("1", ("abc", "ab")), ("2", ("?", "a")))]
    judged = reward_model(Lengths(), objective="half")(cases)
    assert judged[0].scores == (1.5, 1.0) and judged[1].reason == Reason.NOT_FINITE
    assert reward_model(Lengths())(cases)[0].scores == (2.25, 1.5)
    with pytest.raises(UsageError, match="no objective 'hlf'; the model has length, half"):
        reward_model(Lengths(), objective="hlf")
