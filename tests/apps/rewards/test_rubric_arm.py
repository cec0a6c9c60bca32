"""Rubric-ARM's reward of a rubric, with a judge whose verdict depends on the rubric that it reads."""

import json
import math

import pytest
from rewardlab.apps.rewards._open import RunFacts
from rewardlab.apps.rewards.rubric_arm import rubric_arm
from rewardlab.rm.errors import DataError
from rewardlab.rm.types import Example, prompt_text, user_turn
from rewardlab.tests.stand_ins.chat_server import ChatServer

from tests.apps.judging import shown

PROMPTS = [user_turn("Write a rubric for bees."), user_turn("Write a rubric for ponds.")]
ROWS = [{"question": "bees?", "responses": ["wax", "no"]}, {"question": "ponds?", "responses": ["frogs, long", "no"]}]
RUN = RunFacts(None, 1, 0, {}, {prompt_text(p): [row] for p, row in zip(PROMPTS, ROWS, strict=True)})  # type: ignore[arg-type]


def rubric(criterion: str) -> str:
    rule = {"id": "r", "type": "must", "criterion": criterion, "test": "Look for it."}
    return json.dumps({"rules": [rule], "principles": []})


def obedient(asked) -> str:
    """Prefers the response with the word that the rubric demands, the first one without a demand, and may be lost."""
    a, b, criteria = (shown(asked, name) for name in ("answer_a", "answer_b", "rubric"))
    assert a and b and criteria and shown(asked, "instruction") in ("user: bees?", "user: ponds?")
    if "Confuse" in criteria:
        return "I cannot say."
    wanted = next((word for word in ("wax", "frogs", "no") if word in criteria), "")
    return json.dumps({"reasoning": "", "winner": "B" if wanted in b and wanted not in a else "A"})


def test_a_rubric_has_the_verdict_of_the_judge_that_reads_it_as_reward():
    with ChatServer(answer=obedient) as server:
        reward = rubric_arm(run=RUN, endpoint=server.url, model="m")
        written = [rubric(text) for text in ("Says wax.", "Says no.", "Is kind.", "Confuse.", "Has wax.")] + ["wax"]
        examples = [Example(PROMPTS[0], text) for text in written]
        other = [Example(PROMPTS[1], text) for text in (rubric("Names frogs."), rubric("Says no."))]
        assert reward([*examples, *other]) == pytest.approx([1, 0, 0.5, math.nan, 1, 0, 1, 0], nan_ok=True)
        assert reward(examples[5:]) == [0.0] and reward(other[:1]) == [1.0], "rubrics of earlier calls are gone"


def test_a_step_without_a_single_reply_is_an_error():
    with ChatServer(faults=1.0, kinds=["failing"]) as server:
        reward = rubric_arm(run=RUN, endpoint=server.url, model="m", retries=0)
        with pytest.raises(DataError, match="none of the judge's requests has a reply: the server failed"):
            reward([Example(PROMPTS[0], rubric("Says wax."))])
        assert reward([Example(PROMPTS[0], "no rubric")]) == [0.0]


def test_rows_need_a_question_and_two_responses():
    for columns in ({"question": "q"}, {"question": "q", "responses": ["a"]}, {"responses": ["a", "b"]}):
        run = RUN._replace(rows={prompt_text(PROMPTS[0]): [columns]})
        with pytest.raises(DataError, match="the row of the prompt"):
            rubric_arm(run=run, endpoint="http://127.0.0.1:9", model="m")
