"""benchmarks/accounts.py: accounts of judges, counted by hand."""

import pytest
from rewardlab.benchmarks.accounts import account
from rewardlab.benchmarks.suites.pairs import pairs
from rewardlab.judges.types import Case, Comparison, Judgment
from rewardlab.rm.types import user_turn


def test_a_judge_without_answers_or_comparisons_in_both_orders_has_no_figures_of_them():
    case = Case("0", user_turn("q"), ("a", "b"))
    for requests in ({}, {"orders": ((0, 1),), "comparisons": (Comparison((0, 1), 1.0),)}):
        found = account(pairs(), [case], [Judgment("0", scores=(1.0, 0.0), **requests)])
        assert found.facts["flip_rate"] is None and found.facts["first_position_rate"] is None, requests
        assert "lip rate" not in found.sentence("it") and "position" not in found.sentence("it"), requests
    found = account(pairs(), [case], [Judgment("0", abstained="no reply")])
    assert found.facts["accuracy"] is None and (found.facts["worst"], found.facts["best"]) == (0.0, 1.0)
    assert "was right in none of them" in found.sentence("it")


def test_an_account_counts_by_hand():
    cases = [Case(str(n), user_turn("q"), ("a", "b")) for n in range(4)]
    scores = [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5)]
    judgments = [Judgment(str(n), scores=one, tokens=(10, 1), cost=0.5, requests=1) for n, one in enumerate(scores)]
    judgments.append(Judgment("3", abstained="no reply: gone", tokens=(10, 0), requests=2, estimated=2))
    found = account(pairs(), cases, judgments)
    assert (found.answered, found.right, found.reasons) == (3, 1.0, {"no reply": 1})
    assert (found.requests, found.prompt_tokens, found.completion_tokens, found.cost) == (5, 40, 3, 1.5)
    assert "it answered 3 of 4 cases (coverage 75.0%) and was right in 33.3% of them" in found.sentence("it")
    assert "counting the others as wrong or as right gives 25.0% or 50.0%" in found.sentence("it")
    assert found.sentence("it").endswith(
        "5 requests, 40 + 3 tokens, cost 1.5. The server reported no token counts for 2 requests, such as "
        "lost ones; upper bounds of their tokens and cost are used."
    )
    assert found._replace(cost=0.0, estimated=0).sentence("it").endswith(" 5 requests, 40 + 3 tokens.")
    facts = found.facts
    assert facts["accuracy"] == pytest.approx(1 / 3) and (facts["worst"], facts["best"]) == (0.25, 0.5)
