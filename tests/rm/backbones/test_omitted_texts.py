from types import SimpleNamespace

import numpy as np
import pytest
from rewardlab.rm.backbones.loading import SMALL_TEMPLATE
from rewardlab.rm.backbones.unrendered_parts import omissions, system_in_user
from rewardlab.rm.contract.readings import Rated, Reading, rate_with_readings, readings
from rewardlab.rm.contract.scoring_contract import PLAIN_TEMPLATE
from rewardlab.rm.errors import DataError
from rewardlab.rm.kinds.scalar.training import encode_pairs
from rewardlab.rm.types import Completion, Example, PreferencePair, user_turn

from tests.rm.backbones.test_unrendered_parts import encoder

NO_SYSTEM = SMALL_TEMPLATE.replace("in messages", "in messages if m.role != 'system'", 1)
NO_THOUGHT = """{% for m in messages %}{{ '<' + m.role + '>' }}{% set c = m.content %}
{%- if m.role == 'assistant' and '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}
{{- c + '</s>' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"""
OWN = "[THINK]{{ c.split('</think>')[0][7:] }}\n[/THINK]{% set c = c.split"
OWN_MARKS = NO_THOUGHT.replace("{% set c = c.split", OWN)
TRIMMED = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}"
JSON = "{% for m in messages %}<{{ m.role }}>{{ m.content | tojson }}{% endfor %}"
FIRST_ONLY = "{% for m in messages %}<{{ m.role }}>{{ m.content[:9] }}</s>{% endfor %}"
QUESTION = {"role": "user", "content": "Name a plant."}
THOUGHTS = ("<think>moss</think>\nfragrance", "<think>fern</think>\nfragrance")


def system(text: str, completion: str = "Moss.") -> Example:
    return Example(({"role": "system", "content": text}, QUESTION), completion)


def pair(chosen: str, rejected: str) -> PreferencePair:
    return PreferencePair("p1", user_turn("Name a plant."), chosen, rejected)


def test_nothing_is_omitted_where_only_blanks_marks_and_escapes_differ():
    for text in [" Be brief.\n", "two  blanks\n\nand a line", 'a "quoted" line\nof text', THOUGHTS[0]]:
        for template in [SMALL_TEMPLATE, PLAIN_TEMPLATE, TRIMMED, JSON, OWN_MARKS]:
            assert encoder(template).rendered(Example(user_turn(text), text).turns).omitted == ""


def test_each_text_needs_an_occurrence_of_its_own_and_the_part_that_is_omitted_is_named():
    turns = [{"role": "system", "content": "moss"}, {"role": "user", "content": "moss and fern"}]
    assert omissions(turns, "<user>moss and fern</s>") == [(0, "moss")]
    assert omissions(turns, "<user>moss and fern, moss</s>") == []
    turns = [QUESTION, {"role": "assistant", "content": THOUGHTS[0]}]
    assert omissions(turns, "<user>Name a plant.</s><assistant>fragrance</s>") == [(1, "moss")]
    assert encoder(FIRST_ONLY).rendered([QUESTION]).omitted == "Name a plant."


def test_a_system_turn_that_the_template_omits_is_read_in_the_user_turn_beside_it():
    read = encoder(NO_SYSTEM)
    short, long = read.encode_all([system("Be brief."), system("Be long.")])
    assert read.render(system("Be brief.")).startswith("<|user|>Be brief.\n\nName a plant.<|eos|>")
    assert short.ids != long.ids and short.omitted == ""
    completion, prompt = read.encode_completion(system("Be brief.")), read.encode_prompt(system("Be brief.").prompt)
    assert completion.ids == short.ids and prompt == short.ids[: completion.start]
    first, later = ({"role": "system", "content": text} for text in ("A", "B"))
    answer = {"role": "assistant", "content": "yes"}
    joined = [turn["content"] for turn in system_in_user([first, QUESTION, answer, QUESTION, later, answer])]
    assert joined == ["A\n\nName a plant.", "yes", "Name a plant.\n\nB", "yes"]
    assert system_in_user([answer, later, answer]) == [answer, later, answer]
    assert encoder(NO_SYSTEM).rendered([QUESTION, answer, later, answer]).omitted == "B"


def test_a_thought_that_the_template_omits_is_reported_and_one_of_its_own_field_refused():
    encoded, plain = encoder(NO_THOUGHT).encode_all([Example(user_turn("Name"), text) for text in (THOUGHTS[0], "x")])
    assert (encoded.omitted, plain.omitted) == ("moss", "")
    thinking = Completion(({"role": "assistant", "content": "Moss.", "reasoning_content": "It is green."},))
    with pytest.raises(DataError, match="leaves out reasoning in .*--chat_template"):
        encoder(NO_THOUGHT).render(Example(user_turn("Name a plant."), thinking))


def test_pairs_that_differ_in_an_omitted_text_alone_are_refused_and_others_counted():
    read = encoder(NO_THOUGHT)
    with pytest.raises(DataError, match=r"pair 'p1' .* same tokens, since the chat template leaves out 'moss'.*--fix"):
        encode_pairs(read, [pair(*THOUGHTS)], "overall")
    counts = encode_pairs(read, [pair(THOUGHTS[0], "moss"), pair("moss", "fern")], "overall").account()
    assert (counts["kept"], counts["omitted"], counts["omitted_text"]) == (2, 1, "moss")


def test_rewards_come_with_what_was_read_which_tells_conversations_that_are_alike(monkeypatch):
    read = encoder(NO_THOUGHT, max_length=8)
    model = SimpleNamespace(encoder=read, contract=read.contract)
    model.rate = lambda examples: np.array([[len(one.ids)] for one in read.encode_all(examples)], float)
    examples = [Example(user_turn("Name"), text) for text in (*THOUGHTS, "a b c d e f g h i j")]
    tokenised = []
    finish = model.encoder._encoded
    monkeypatch.setattr(model.encoder, "_encoded", lambda *given: tokenised.append(given) or finish(*given))
    result = rate_with_readings(model, examples)
    assert len(tokenised) == 3
    assert [(reading.truncated, reading.omitted) for reading in result.readings][2] == (True, "")
    assert result.readings == readings(model, examples)
    assert result.alike(0, 1) and not result.alike(0, 2)
    rewards = np.array([[1.0], [1.0], [2.0]])
    assert not Rated(rewards, [Reading(False)] * 3).alike(0, 1)
    cut = Rated(rewards, [Reading(True), Reading(False), Reading(True)])
    assert cut.alike(0, 1) and not cut.alike(0, 2)
    known = Rated(rewards, [Reading(True, ids=((1,),)), Reading(True, ids=((2,),)), Reading(True, ids=((1,),))])
    assert not known.alike(0, 1) and known.alike(0, 2)
