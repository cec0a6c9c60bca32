"""Rubric dropout: which criteria are left, for whom, and until when."""

from random import Random

import pytest
from rewardlab.judges.rubrics.dropout import reduced, with_dropout
from rewardlab.judges.rubrics.rubric import Principle, Rubric, Rule
from rewardlab.judges.types import Case
from rewardlab.rm.errors import UsageError
from rewardlab.rm.types import user_turn

RULES = (Rule("m", "must", "Names wax.", "Find it."), Rule("f", "forbid", "Lies.", "Find a lie."))
WHOLE = Rubric(
    RULES, tuple(Principle(f"p{k}", f"Is {k}.", 1.0) for k in range(5)) + (Principle("bad", "Is bad.", -1.0),)
)


def case(id: str, question: str, *texts: str) -> Case:
    return Case(id, user_turn(question), texts)


def test_half_of_the_rewarded_criteria_go_and_penalties_stay():
    """Of six rewarded ones three are left; of four, three, as no fewer are kept."""
    for seed in range(20):
        left = reduced(WHOLE, 0.5, 3, Random(seed)).ids
        assert len(left) == 5 and {"f", "bad"} <= {*left}
        assert len(reduced(WHOLE, 0.9, 5, Random(seed)).ids) == 7
    many = Rubric((), tuple(Principle(f"p{k}", f"Is {k}.", 1.0) for k in range(50)))
    assert len(reduced(many, 0.58, 3, Random(0)).ids) == 21  # 0.58 * 50 is 28.999999999999996 in floating point
    penalties = Rubric(RULES[1:])
    assert reduced(penalties, 0.5, 1, Random(0)) == penalties


def test_a_group_shares_its_criteria_and_other_responses_have_others():
    source = with_dropout(WHOLE, 0.5, seed=1)
    cases = [case("0", "a", "x", "y"), case("1", "a", "z", "z"), case("2", "b", "x", "y")]
    first, second, _ = source(cases)
    assert first == second and source(cases) == source(cases)
    ids = {source([case("0", "a", str(step), "y")])[0].ids for step in range(20)}
    assert len(ids) > 5
    assert with_dropout(lambda cases: [None] * len(cases), 0.5)(cases) == [None] * 3


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(UsageError, match="dropout must lie in"):
        with_dropout(WHOLE, share)
