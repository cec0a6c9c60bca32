import pytest
from rewardlab.rm.types import PreferencePair, user_turn


def pair(**options) -> PreferencePair:
    return PreferencePair("a", user_turn("q"), "one", "two", **options)


def test_the_preferred_answer_is_the_one_more_likely_to_win_if_there_is_one():
    told = pair(wins={"overall": 0.2, "kind": 0.5, "short": 0.9}, gaps={"overall": -1.5}, margin=1.5)
    turned = told.preferred()
    assert turned and (turned.chosen, turned.rejected) == ("two", "one")
    assert turned.wins == pytest.approx({"overall": 0.8, "kind": 0.5, "short": 0.1})
    assert turned.gaps == {"overall": 1.5} and turned.margin == 1.5
    assert turned.preferred() is turned and told.preferred("short") is told
    assert pair(wins={"kind": 0.5}).preferred("kind") is None and pair().preferred("absent") is None
