import json
import math

import pytest
from rewardlab.judges.backends.chat import failed_reply
from rewardlab.judges.backends.cost import Prices
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.judge import Judging
from rewardlab.judges.kinds.route import ROUTED, choose_strong, route, routing_counts
from rewardlab.judges.kinds.route.features import case_features
from rewardlab.judges.kinds.route.guideline import Guideline
from rewardlab.judges.kinds.route.rule import Need
from rewardlab.judges.types import Judgment
from rewardlab.rm.errors import UsageError

from tests.judges.kinds.asking import case, shown
from tests.judges.kinds.route.test_features import Members

CASES = [case(name) for name in "abcd"]


def asked_judge(name, scores, asked, cost=1.0):
    """A judge that records which cases it was asked about."""

    def judge(cases):
        asked.extend(each.id for each in cases)
        return [Judgment(each.id, scores=scores, raw=(name,), orders=((0, 1),), cost=cost) for each in cases]

    return Judging(name, {"name": name}, judge)


class Given:
    """A rule with given probabilities by the case's id."""

    name, contract, needs = "given rule", "given", ()

    def __init__(self, **probabilities):
        self.probabilities = probabilities

    def __call__(self, features):
        return [Need(self.probabilities[each.case.id], f"It is {each.case.id}.") for each in features]


def test_each_case_asks_one_judge_and_keeps_the_reason():
    cheap_asked, strong_asked = [], []
    cheap = asked_judge("small", (1.0, 0.0), cheap_asked)
    strong = asked_judge("large", (0.0, 1.0), strong_asked, cost=10.0)
    judge = route(cheap, strong, rule=Given(a=0.1, b=0.5, c=0.9, d=0.49), threshold=0.5)
    judged = judge(CASES)
    assert (cheap_asked, strong_asked) == (["a", "d"], ["b", "c"])
    assert [each.scores for each in judged] == [(1.0, 0.0), (0.0, 1.0), (0.0, 1.0), (1.0, 0.0)]
    assert [each.cost for each in judged] == [1.0, 10.0, 10.0, 1.0] and judge.name == "small or large"
    criterion = judged[1].criteria[0]
    assert (criterion.answer, criterion.name, criterion.value) == (1, ROUTED, 0.5)
    assert criterion.evidence == "strong judge, by the given rule: It is b."
    assert routing_counts(judged) == {"routed": 4, "to_strong": 2, "undecided": 0}


def test_a_budget_sends_the_highest_probabilities_whatever_the_order():
    rule = Given(a=0.1, b=0.2, c=0.2, d=0.05)

    def sent(cases, budget):
        asked = []
        small, large = asked_judge("small", (1.0, 0.0), []), asked_judge("large", (0.0, 1.0), asked)
        route(small, large, rule=rule, budget=budget)(cases)
        return {*asked}

    assert [len(sent(CASES, budget)) for budget in (0.0, 0.24, 0.25, 0.5, 1.0)] == [0, 0, 1, 2, 4]
    assert sent(CASES, 0.5) == {"b", "c"} and sent(CASES, 0.25) == sent(CASES[::-1], 0.25)
    assert choose_strong(CASES, [math.nan] * 4, None, 0.25).all()


def test_an_abstention_stands_and_both_settings_are_refused():
    nothing = Judging("none", {}, lambda cases: [Judgment(each.id, abstained="no reply: down") for each in cases])
    judged = route(nothing, nothing, rule=Given(a=0.0, b=1.0), threshold=0.5)(CASES[:2])
    assert [each.abstained for each in judged] == ["no reply: down"] * 2 and judged[0].criteria[0].value == 0.0
    for settings in ({}, {"threshold": 0.5, "budget": 0.5}, {"budget": 1.5}):
        with pytest.raises(UsageError, match="either threshold or budget in \\[0, 1\\]"):
            route(nothing, nothing, rule=Given(), **settings)


def test_the_contract_names_everything_that_decides_and_a_rule_that_reads_rewards_needs_a_reward_model():
    cheap, strong = asked_judge("small", (1.0, 0.0), []), asked_judge("large", (0.0, 1.0), [])
    contracts = {
        route(cheap, strong, rule=Given(), threshold=0.5).contract,
        route(cheap, strong, rule=Given(), budget=0.5).contract,
        route(strong, cheap, rule=Given(), threshold=0.5).contract,
        route(cheap, strong, rule=Given(), threshold=0.5, reward_model=Members()).contract,
    }
    assert len(contracts) == 4

    class Lengths:
        contract = Members.contract

    judge = asked_judge("small", (1.0, 0.0), [])
    rule = Given()
    rule.needs = ("spread",)
    with pytest.raises(UsageError, match="reads the spread of a reward model; give reward_model"):
        route(judge, judge, rule=rule, threshold=0.5)
    with pytest.raises(UsageError, match="give an ensemble"):
        route(judge, judge, rule=rule, threshold=0.5, reward_model=Lengths())
    assert route(judge, judge, rule=rule, threshold=0.5, reward_model=Members())


def test_a_guideline_is_shown_no_response_and_its_choice_is_read_or_falls_to_the_strong_judge():
    chat = scripted([json.dumps({"reasoning": "It has to be worked out.", "choice": "STRONG"})])
    need = Guideline(chat, longest=12)(case_features([case("a")]))[0]
    assert (need.probability, need.reason) == (1.0, "It has to be worked out.")
    text = chat.asked[0].messages[-1]["content"]
    assert shown(chat.asked[0], "instruction").endswith(" [...]")
    assert "length of the prompt" in shown(chat.asked[0], "metadata") and "long good answer" not in text
    for reply, probability in [
        ('{"reasoning": "Easy.", "choice": "CHEAP"}', 0.0), ("A proof must be checked.\nDecision: STRONG", 1.0),
        ("Hard to say.", math.nan), ("Decision: CHEAP\nDecision: STRONG", math.nan), ('{"choice": "MEDIUM"}', math.nan),
        (failed_reply("429 after 5 tries"), math.nan),
    ]:  # fmt: skip
        need = Guideline(scripted([reply]))(case_features([case("a")]))[0]
        assert need.probability == probability or (math.isnan(need.probability) and math.isnan(probability))
        assert need.reason, reply
    chat = scripted(['{"reasoning": "Easy.", "choice": "CHEAP"}', "Hard to say."])
    chat.prices = Prices(1e6, 1e6)  # one a token
    cheap, strong = asked_judge("small", (1.0, 0.0), []), asked_judge("large", (0.0, 1.0), [], cost=10.0)
    judged = route(cheap, strong, rule=Guideline(chat), threshold=0.5)(CASES[:2])
    assert [each.scores for each in judged] == [(1.0, 0.0), (0.0, 1.0)]
    assert routing_counts(judged) == {"routed": 2, "to_strong": 1, "undecided": 1}
    assert judged[0].raw == ('{"reasoning": "Easy.", "choice": "CHEAP"}', "small") and judged[0].orders == ((), (0, 1))
    assert judged[0].tokens[0] > 0 and judged[1].cost == 10 + sum(judged[1].tokens)
    assert "The reply has no choice (no verdict in the reply" in judged[1].criteria[0].evidence
