"""tests/stand_ins/checks.py, verifiable_prompts.py, check_models.py, simulated_judge.py, simulated_teacher.py"""

from dataclasses import replace

import pytest
from rewardlab.judges.cdrrm.ruling import RulingRequest, rule
from rewardlab.judges.cdrrm.synthesise import sides, synthesise
from rewardlab.judges.rubrics.rubric import Rubric, Rule
from rewardlab.judges.rubrics.rubric import render as render_rubric
from rewardlab.rm.data.text_style import markdown_marks
from rewardlab.rm.types import content_hash, prompt_text, user_turn
from rewardlab.tests.stand_ins.checks import CHECKS, broken, demanded, satisfied
from rewardlab.tests.stand_ins.simulated_judge import Biases, SimulatedJudge, rubric_of, stated_rules, utility
from rewardlab.tests.stand_ins.simulated_teacher import SimulatedTeacher, Teacher
from rewardlab.tests.stand_ins.verifiable_prompts import NEUTRAL, PADDING, items, pairs

EXACT = Biases(reads=0.0, position=0.0, length=0.0, style=0.0, error=0.0, failure=0.0)
NEVER_ERRS = Teacher(notices=1.0, invents=0.0, misreads=0.0)
ITEMS = items(60, seed=0)


def test_a_sentence_is_found_by_its_own_check_alone_and_style_changes_nothing():
    for name in CHECKS:
        for sentence in CHECKS[name].sentences:
            assert [other for other, check in CHECKS.items() if check.detects(sentence)] == [name]
    for item in ITEMS:
        assert 2 <= len(demanded(item.prompt)) <= 4
        assert all(broken(item.prompt, text) == () for text in item.chosen)
        assert all(broken(item.prompt, text) == (item.missed,) for text in item.rejected)
    for item in ITEMS:
        assert len({satisfied(text) for text in item.chosen}) == 1
        lengths, marks = [len(text.split()) for text in item.chosen], [markdown_marks(text) for text in item.chosen]
        assert lengths[0] < lengths[1] and marks[0] == marks[1] == 0 < marks[2]


def test_utility_by_hand():
    biases = Biases(reads=0.5, position=0.25, length=1.0, style=0.125)
    answer = "# " + "word " * 98 + "Friday"  # 100 words, Markdown, one demand of two
    found = utility(biases, "Name a day of the week for it. Cite a source.", answer, True, 0.0)
    assert found == pytest.approx(1.0 + 0.25 + 1.0 + 0.125)
    assert utility(biases, "", "word " * 50, False, 2.0) == pytest.approx(2**0.5)


def test_the_judge_reads_rules_and_their_polarity_from_a_rendered_rubric():
    inverted = Rule("x", "forbid", CHECKS["source"].criterion, "Look.")
    unknown = Rule("y", "must", "It is charming.", "Feel.")
    rules = stated_rules(render_rubric(Rubric((*rubric_of(["slang"]).rules, inverted, unknown))))
    assert [(one.id, one.forbids) for one in rules] == [("r1", True), ("x", True)]
    assert not rules[1].met("Source: me.") and rules[0].met("It grows.")


def questions(rubric_for) -> tuple[list[RulingRequest], list[int]]:
    shown = [sides(one) for one in pairs(30, 1)]
    return (
        [RulingRequest(one.prompt, one.answers, rubric_for(one)) for one in shown],
        ["AB".index(one.preferred) for one in shown],
    )


def test_without_error_the_true_rubric_is_always_right():
    asked, labels = questions(lambda one: rubric_of(demanded(prompt_text(one.prompt))))
    assert [ruling.winner for ruling in rule(SimulatedJudge(EXACT), asked)] == labels


def test_each_bias_moves_the_bare_judge_its_own_way():
    long, short = " ".join(PADDING), NEUTRAL[0]
    asked = [RulingRequest(user_turn(f"Help me with moss {n}."), (short, long)) for n in range(40)]
    by_length = rule(SimulatedJudge(replace(EXACT, length=5.0)), asked)
    assert all(ruling.winner == 1 for ruling in by_length)
    by_position = rule(SimulatedJudge(replace(EXACT, position=50.0)), asked)
    assert all((ruling.first, ruling.second) == (0, 1) for ruling in by_position)
    styled = [one._replace(answers=(f"# {short}", short)) for one in asked]
    assert all(ruling.winner == 0 for ruling in rule(SimulatedJudge(replace(EXACT, style=50.0)), styled))
    demand = [one._replace(prompt=user_turn("Avoid slang."), answers=("It is gonna grow.", short)) for one in asked]
    assert all(ruling.winner == 1 for ruling in rule(SimulatedJudge(replace(EXACT, reads=50.0)), demand))


def test_replies_follow_from_seed_and_content():
    asked, _ = questions(lambda one: rubric_of(["source", "slang"]))
    one, again, other = (rule(SimulatedJudge(seed=seed), asked) for seed in (0, 0, 1))
    assert one == again != other
    assert rule(SimulatedJudge(), asked[::-1])[::-1] == one


def test_a_teacher_without_error_writes_exactly_the_missed_check():
    made = pairs(40, 2)
    found = synthesise(SimulatedTeacher(NEVER_ERRS), [sides(one) for one in made])
    for one, written in zip(made, found, strict=True):
        assert [rule.criterion for rule in written.rubric.rules] == [CHECKS[one.subset].criterion]


def test_a_rubric_is_a_handful_of_tokens_and_is_read_back():
    from rewardlab.judges.rubrics.rubric import rubric_json
    from rewardlab.tests.stand_ins.check_models import tokenizer

    words = tokenizer()
    text = rubric_json(rubric_of(["source", "slang", "json"]))
    ids = words(text, add_special_tokens=False)["input_ids"]
    assert words.decode(ids) == text and len(ids) < 25
    assert words.unk_token_id not in words(ITEMS[0].chosen[2])["input_ids"]


def test_lessons_hold_no_preference_and_tell_the_truth():
    from rewardlab.judges.cdrrm.requests import read_part
    from rewardlab.tests.stand_ins.check_models import APART, NOTHING, STATED, lessons

    for record in lessons(60, 0):
        asked, told = record["prompt"][0]["content"], record["completion"][0]["content"]
        assert "rules" not in told and "Winner" not in told
        lines = [line for line in told.split("\n") if not line.startswith(APART)]
        if (prompt := read_part(asked, "instruction")) is not None:
            assert {STATED[name] for name in demanded(prompt)} == {line.split(" | ")[0] for line in lines}
        apart = []
        for line in lines if "<answer_a>" in asked else []:
            criterion, *said = line.split(" | ")
            name = next(name for name, text in STATED.items() if text == criterion)
            answers = [read_part(asked, f"answer_{side}") for side in "ab"]
            found = [any(one in answer for one in CHECKS[name].sentences) for answer in answers]
            assert said == [
                f"{side}: {'pass' if one != CHECKS[name].forbids else 'fail'}"
                for side, one in zip("AB", found, strict=True)
            ]
            apart += [criterion] if len(set(found)) == 2 else []
        if prompt is not None and "<answer_a>" in asked:
            assert told.split("\n")[-1] == APART + (" ".join(apart) or NOTHING)


def test_the_texts_of_the_checks_are_those_that_committed_results_rest_on():
    """A reworded demand changes every figure of the study of CDRRM: run it again before this number is changed."""
    texts = [[check.name, check.criterion, *check.demands, *check.sentences] for check in CHECKS.values()]
    assert content_hash(texts) == "b9758729c966b3b1"
