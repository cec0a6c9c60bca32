"""judges/cdrrm: synthesis, filter, rulings, generator, training"""

import json
from dataclasses import replace

import pytest
from rewardlab.judges.audit.measures import comparison_flips, first_credits
from rewardlab.judges.backends.chat import Reply, failed_reply
from rewardlab.judges.backends.cost import Prices
from rewardlab.judges.backends.scripted import scripted
from rewardlab.judges.cdrrm.filter import (
    FilteredRubric,
    FilterLimits,
    answer_specific,
    keep_discriminative,
    objection,
    verify,
    without_duplicates,
)
from rewardlab.judges.cdrrm.generator import RubricJudge, generate, generator_records, judge_records, rubric_request
from rewardlab.judges.cdrrm.profile import as_profile
from rewardlab.judges.cdrrm.requests import Rejected, read_part
from rewardlab.judges.cdrrm.ruling import Checked, RulingRequest, check, rule, verdict_request
from rewardlab.judges.cdrrm.synthesise import (
    Sides,
    Synthesis,
    contrast,
    read_rubric,
    sides,
    synthesis_request,
    synthesise,
)
from rewardlab.judges.cdrrm.training import SupervisedSettings, train
from rewardlab.judges.rubrics.rubric import Rubric, Rule, parse, rubric_json
from rewardlab.judges.types import Case, Reason
from rewardlab.rm.errors import DataError
from rewardlab.rm.types import PreferencePair, user_turn

from tests.judges.cdrrm.test_profile import BRIEF, LONG, PROMPT, findings, text_of

RULE = Rule("r1", "must", "The answer is brief.", "Count the words.")
RUBRIC = Rubric((RULE,))
SHOWN = Sides(PROMPT, LONG, BRIEF, "B")


def written(rubric: Rubric = RUBRIC) -> list[Synthesis]:
    return [Synthesis(rubric)]


def judge_of(verdicts, met=(True,)):
    """Verdicts in turn, and whether the brief answer meets each rule; the long one never does."""
    turns = iter(verdicts)

    def reply(asked):
        text = text_of(asked)
        if read_part(text, "answer") is None:
            return f"Winner: {next(turns)}"
        brief = read_part(text, "answer") == BRIEF
        marks = [{"id": f"r{n}", "met": brief and one, "evidence": ""} for n, one in enumerate(met, start=1)]
        return json.dumps({"rules": marks})

    return scripted(reply)


def pair(chosen: str, rejected: str, prompt=PROMPT) -> PreferencePair:
    return PreferencePair("p", prompt, chosen, rejected)


def test_which_side_is_shown_first_follows_from_the_content_and_not_from_the_label():
    for number in range(50):
        prompt = user_turn(f"Name river {number}.")
        one, other = sides(pair(BRIEF, LONG, prompt)), sides(pair(LONG, BRIEF, prompt))
        assert one.answers == other.answers
        assert {one.preferred, other.preferred} == {"A", "B"}
        assert rubric_request(one.prompt, one.answers) == rubric_request(other.prompt, other.answers)
    heads = sum(sides(pair(BRIEF, LONG, user_turn(str(number)))).preferred == "A" for number in range(2000))
    assert abs(heads - 1000) < 3 * 2000**0.5 / 2


def test_synthesis_sees_two_diagnoses_and_neither_answers_nor_label_and_no_pair_with_a_rejected_one():
    good, bad = as_profile(findings(status="pass", evidence="The Seine"), BRIEF), as_profile(findings(), LONG)
    asked = synthesis_request(PROMPT, (bad, good)).messages[-1]["content"]
    assert LONG not in asked and BRIEF not in asked
    assert json.loads(read_part(asked, "diagnosis_a"))["findings"][0]["status"] == "fail"
    chat = scripted(["no JSON here", json.dumps(findings(evidence="The Seine"))])
    (found,) = synthesise(chat, [SHOWN])
    assert found.rubric.reason == "no JSON" and len(chat.asked) == 2


def test_a_rubric_that_names_side_or_winner_or_has_no_rules_is_rejected():
    for criterion, reason in [
        ("Answer A is brief.", "names a side"),
        ("It is as brief as the chosen answer.", "names a winner"),
        ("It reads like the winner.", "names a winner"),
    ]:
        text = rubric_json(Rubric((replace(RULE, criterion=criterion),)))
        assert read_rubric(Reply(text, "stop")).reason == reason
    assert read_rubric(Reply('{"rules": [], "principles": []}', "stop")).reason == "no rules"
    assert read_rubric(Reply('{"rules": [{"id": "r1"}]}', "stop")).reason == "wrong form"
    whole = rubric_json(RUBRIC)
    assert read_rubric(Reply(whole, "length")) == Rejected("cut off", whole[-60:])
    assert read_rubric(Reply("I cannot.", "declined")) == Rejected("declined to decide", "I cannot.")


def test_a_rubric_is_kept_if_the_judge_recovers_the_label_and_its_rules_tell_the_answers_apart():
    # LONG is in slot A first: B is right, then A; the bare judge says A twice, so is wrong once
    (kept,) = verify(judge_of(["B", "A", "A", "A"]), [SHOWN], written())
    assert kept == FilteredRubric(SHOWN, RUBRIC, useful=True)
    (kept,) = verify(judge_of(["B", "A", "B", "A"]), [SHOWN], written())
    assert not kept.useful
    for verdicts in [["B", "B"], ["A", "A"], ["A", "B"], ["B", "?"]]:
        (found,) = verify(judge_of([*verdicts, "B", "A"]), [SHOWN], written())
        assert found.reason == "label not recovered", verdicts
    judge = judge_of(["A", "B", "A", "B"])
    verify(judge, [SHOWN], written(replace(RUBRIC, source="predicts B, as expected")))
    assert not any("predicts" in text_of(asked) for asked in judge.asked)
    words = ("Few", "Plain")
    rules = tuple(replace(RULE, id=f"r{n}", criterion=f"{word} words are there.") for n, word in enumerate(words, 1))
    (kept,) = verify(judge_of(["B", "A", "B", "A"], met=(False, True)), [SHOWN], written(Rubric(rules)))
    assert [(one.id, one.criterion) for one in kept.rubric.rules] == [("r1", "Plain words are there.")]
    (found,) = verify(judge_of([], met=(False, False)), [SHOWN], written(Rubric(rules)))
    assert found.reason == "not discriminative"
    rubric = Rubric(tuple(replace(RULE, id=f"x{n}", criterion=word) for n, word in enumerate("abcd")))
    left = keep_discriminative(rubric, [True, True, False, False], [False, True, False, True])
    assert [one.criterion for one in left.rules] == ["a"]


def test_twins_and_answer_specific_rules_go_opposites_stay_and_too_many_are_rejected_without_a_call():
    twin = replace(RULE, id="r2", criterion="The answer is very brief.")
    opposite = replace(RULE, id="r3", type="forbid")
    left = without_duplicates(Rubric((RULE, twin, opposite)), alike=0.5)  # {answer, brief} of {answer, very, brief}
    assert [one.id for one in left.rules] == ["r1", "r3"]
    assert len(without_duplicates(Rubric((RULE, twin)), alike=0.7).rules) == 2
    rule = replace(RULE, criterion="It flows through Paris.")
    assert answer_specific(rule, SHOWN) == 1.0  # flows, through and Paris are in LONG alone
    assert answer_specific(replace(RULE, criterion="It names a brief river, the Seine."), SHOWN) == 0.0
    assert objection(Rubric((rule,)), SHOWN, FilterLimits()).reason == "answer-specific"
    rules = tuple(replace(RULE, id=f"r{n}", criterion=f"Criterion number{n} holds{n}.") for n in range(7))
    judge = judge_of([])
    (found,) = verify(judge, [SHOWN], written(Rubric(rules)))
    assert found.reason == "too many rules" and not judge.asked


def test_winners_are_mapped_back_from_the_slots_and_a_check_without_an_answer_is_unread():
    replies = ["Winner: A", "Winner: B", "Winner: A", "Winner: A"]
    first, second = rule(scripted(replies), [RulingRequest(PROMPT, ("x", "y"))] * 2)
    assert (first.first, first.second, first.winner, first.flipped) == (0, 0, 0, False)
    assert (second.first, second.second, second.winner, second.flipped) == (0, 1, None, True)
    (found,) = rule(scripted(["Winner: A", "no"]), [RulingRequest(PROMPT, ("Winner: B", "y"))])
    assert (found.first, found.second) == (0, None)
    text = text_of(verdict_request(RulingRequest(PROMPT, (BRIEF, LONG), RUBRIC), (1, 0)))
    assert "Count the words." in text and "MUST" in text
    assert read_part(text, "answer_a") == LONG
    rules = ("", '{"id": "r1", "met": "yes"}', '{"id": "r2", "met": true}')
    for marks in [*(f'{{"rules": [{mark}]}}' for mark in rules), "yes"]:
        (found,) = check(scripted([marks]), [Checked(PROMPT, BRIEF, RUBRIC)])
        assert isinstance(found, Rejected), marks


DIAGNOSES = as_profile(findings(), LONG), as_profile(findings(status="pass", evidence=""), BRIEF)
KEPT = FilteredRubric(SHOWN, RUBRIC, True, DIAGNOSES)


def test_every_pair_is_learnt_from_in_both_orders_with_one_rubric_and_perhaps_the_contrast_before_it(tmp_path):
    first, second = generator_records([KEPT])
    assert first["completion"] == second["completion"] == [{"role": "assistant", "content": rubric_json(RUBRIC)}]
    slots = [read_part(one["prompt"][1]["content"], "answer_a") for one in (first, second)]
    assert slots == [LONG, BRIEF]
    assert parse(first["completion"][0]["content"]) == RUBRIC
    assert first["prompt"] == [dict(turn) for turn in rubric_request(PROMPT, (LONG, BRIEF)).messages]
    right, flipped = scripted(["Winner: B", "Winner: A"]), scripted(["Winner: B", "Winner: B"])
    assert [one["completion"][0]["content"] for one in judge_records(right, [KEPT])] == ["Winner: B", "Winner: A"]
    assert judge_records(flipped, [KEPT]) == []
    first, second = (one["completion"][0]["content"] for one in generator_records([KEPT], contrast_first=True))
    assert first.startswith("The answer is brief. | A: fail | B: pass\n{")
    assert second.startswith("The answer is brief. | A: pass | B: fail\n{")
    assert read_rubric(Reply(first, "stop")) == RUBRIC
    with pytest.raises(DataError, match="no stored diagnoses"):
        generator_records([KEPT._replace(diagnoses=None)], contrast_first=True)
    other = as_profile(findings(criterion="It names a river.", status="pass", evidence="The Seine"), BRIEF)
    lines = ["The answer is brief. | A: fail | B: not said", "It names a river. | A: not said | B: pass"]
    assert contrast((KEPT.diagnoses[0], other)).splitlines() == lines
    with pytest.raises(DataError, match="no records to train on"):
        train("any", [], tmp_path)


CASE = Case("c", PROMPT, (BRIEF, LONG))


def test_a_rubric_judge_falls_back_to_the_bare_judge_abstains_and_counts():
    judge = scripted(["Winner: A", "Winner: B"])
    scorer = RubricJudge(scripted(["sorry"]), judge)
    (found,) = scorer([CASE])
    assert found.scores == (1.0, 0.0) and found.raw == ("Winner: A", "Winner: B")
    assert scorer.fallbacks == {"no JSON": 1}
    assert not any("<rubric>" in text_of(asked) for asked in judge.asked)
    for on_flip, scores in (("tie", (0.5, 0.5)), ("abstain", ())):
        scorer = RubricJudge(scripted([rubric_json(RUBRIC)]), scripted(["Winner: A", "Winner: A"]), on_flip=on_flip)
        (found,) = scorer([CASE])
        assert found.scores == scores and bool(found.abstained) == (on_flip == "abstain")
    scorer = RubricJudge(scripted([rubric_json(RUBRIC)]), scripted(["Winner: A", "I cannot say."]))
    (found,) = scorer([CASE])
    assert found.abstained and found.tokens[0] > 0
    judge = scripted(["Winner: A", "Winner: B"])
    judge.prices = Prices(prompt=1_000_000, completion=10_000_000)
    (found,) = RubricJudge(scripted([rubric_json(RUBRIC)]), judge)([CASE])
    assert found.cost == found.tokens[0] + 10 * found.tokens[1] > 0
    (found,) = RubricJudge(scripted([]), scripted([]))([Case("c", PROMPT, ("a", "b", "c"))])
    assert "3 responses" in found.abstained


def test_a_rubric_judge_states_single_verdicts_and_why_one_is_missing():
    def judged(*replies):
        return RubricJudge(scripted([rubric_json(RUBRIC)]), scripted(replies))([CASE])

    assert judged("Winner: A", "Winner: B")[0].comparisons == (((0, 1), 1.0), ((1, 0), 0.0))
    flipped = judged("Winner: A", "Winner: A")
    assert flipped[0].comparisons == (((0, 1), 1.0), ((1, 0), 1.0))
    assert comparison_flips(flipped[0]) == [1.0] and first_credits(flipped[0]) == [1.0, 1.0]
    (cut,) = judged("Winner: A", Reply("I think", "length"))
    assert cut.reason == Reason.CUT_OFF and first_credits(cut) == [1.0]
    (lost,) = judged(failed_reply("no connection"), "Winner: A")
    assert lost.abstained == "no reply: no connection"


@pytest.mark.parametrize("lora_rank", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_a_generator_is_trained_and_read_back_as_a_chat(tmp_path, lora_rank):
    from rewardlab.judges.backends.local_model import local
    from rewardlab.tests.stand_ins.check_models import causal_lm, tokenizer

    words = tokenizer()
    model = causal_lm(words)
    before = model.lm_head.weight.detach().clone()
    size = {"steps": 2, "batch": 2, "accumulate": 1, "max_length": 512}
    how = SupervisedSettings(**size, learning_rate=1e-2, lora_rank=lora_rank, attn_implementation="eager")
    folder = train(model, generator_records([KEPT]), tmp_path / "generator", how, words)
    chat = local(str(folder))
    after = chat.model.lm_head.weight.detach()
    assert (model.config._attn_implementation, chat.model.config._attn_implementation) == ("eager", "sdpa")
    assert after.shape == before.shape
    if not lora_rank:
        assert (after - before).abs().max() > 1e-3
    assert not list(folder.glob("adapter*"))
    (found,) = generate(chat, [SHOWN])
    assert isinstance(found, Rubric | Rejected)
