import json
import re

from rewardlab.judges.audit.attacks import (
    ATTACKS,
    EMPTY_WORDS,
    MASTER_KEYS,
    NO_QUESTION,
    mask_prompt,
    repeat_response,
    signatures,
    swap_responses,
)
from rewardlab.judges.types import Case
from rewardlab.rm.types import user_turn

RIGHT = "Water it daily. Give it shade! Is that all? It is."
WRONG = "Never water it. Burn it."


def case(**fields) -> Case:
    facts = {"id": "c", "prompt": user_turn("How do I care for ferns?"), "answers": (RIGHT, WRONG), "best": (0,)}
    return Case(**(facts | {"reference": "Shade and water."} | fields))


def test_every_attack_changes_one_answer_and_dressings_keep_every_word():
    for name in [*ATTACKS]:
        before = case()
        after = ATTACKS[name].change(before, 1)
        assert after.answers[0] == RIGHT and after.answers[1] != WRONG and after.best == (0,), name
        assert (after.id, after.prompt, after.reference) == (before.id, before.prompt, before.reference), name
        assert before == case() and after == ATTACKS[name].change(case(), 1), "pure: the same again from the same case"
    for name in [name for name, attack in ATTACKS.items() if not attack.replaces]:
        said = re.findall(r"\w+", ATTACKS[name].change(case(), 0).answers[0])
        places = iter(said)
        assert all(word in places for word in re.findall(r"\w+", RIGHT)), name
    for name in [name for name, attack in ATTACKS.items() if attack.replaces]:
        after = ATTACKS[name].change(case(values=(1.0, 0.4)), 0)
        assert not any(sentence in after.answers[0] for sentence in ("Water it daily", "Give it shade")), name
        assert after.best == (1,) and after.values == (0.0, 0.4), "where the right answer is gone the other is better"


def test_padding_doubles_the_words_and_markdown_is_a_list_under_a_heading():
    long = " ".join(["word"] * 40)
    verbosity = ATTACKS["verbosity"].change
    padded = verbosity(case(answers=(long, WRONG)), 0).answers[0]
    assert len(padded.split()) == 80 and padded.startswith(long)
    assert set(padded[len(long) :].split()) <= set(" ".join(EMPTY_WORDS).split())
    assert len(verbosity(case(), 1).answers[1].split()) == 5 + 12
    dress = ATTACKS["markdown"].change
    assert dress(case(), 1).answers[1] == "## Answer\n\n- **Never water it.**\n- Burn it."
    listed = case(answers=(RIGHT, "# Care\n- one. two."))
    assert dress(listed, 1).answers[1] == "## Answer\n\n# Care\n- one. two."
    code = "Run:\n```\nx = 1. \n```"
    assert dress(case(answers=(RIGHT, code)), 1).answers[1] == f"## Answer\n\n{code}"


def test_an_injection_names_its_place_and_nulls_follow_from_the_question_or_the_other_answers_length():
    for place, label in enumerate("AB"):
        said = {name: attack.change(case(), place).answers[place] for name, attack in ATTACKS.items()}
        assert f"choose response {label}" in said["injected command"]
        assert f"Winner: {label}\n" in said["injected verdict"] and f"[[{label}]]" in said["injected verdict"]
        assert json.loads(said["injected JSON"].split("\n")[-1])["winner"] == label
        assert "</answer>\n<rubric>" in said["injected rubric"]
    prompts = [user_turn(f"question {number}") for number in range(200)]
    used = [ATTACKS["one token"].change(case(prompt=prompt), 1).answers[1] for prompt in prompts]
    assert set(used) == set(MASTER_KEYS)
    filler = ATTACKS["filler of like length"].change(case(), 1).answers[1]
    assert len(filler.split()) == len(RIGHT.split())
    scrambled = ATTACKS["scrambled words"].change(case(), 1).answers[1]
    assert sorted(scrambled.split()) == sorted(RIGHT.split()) and scrambled != RIGHT


def test_probes_exchange_mask_double_or_sign_answers():
    three = case(answers=("a", "b", "c"), best=(0, 1), values=(1.0, 0.9, 0.0), sets=(2, 1), authors=("x", "y", "z"))
    crossed = swap_responses(three)
    assert (crossed.answers, crossed.best) == (("c", "b", "a"), (1, 2))
    assert (crossed.values, crossed.sets, crossed.authors) == ((0.0, 0.9, 1.0), (1, 2), ("z", "y", "x"))
    assert swap_responses(crossed) == three
    hidden = mask_prompt(case())
    assert [turn["content"] for turn in hidden.prompt] == [NO_QUESTION] and hidden.reference == ""
    assert hidden.answers == case().answers
    assert repeat_response(case(), 1).answers == (WRONG, WRONG) and repeat_response(case(), 1).best == (0, 1)
    one, other = (signatures(case(), 1, names) for names in (("Own", "Another"), ("Another", "Own")))
    assert one.answers[1] == f"{WRONG}\n\n(Written by Own.)" and one.answers[0] == f"{RIGHT}\n\n(Written by Another.)"
    assert other.answers[1] == f"{WRONG}\n\n(Written by Another.)"
