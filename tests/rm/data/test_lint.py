from collections import namedtuple
from dataclasses import replace

import pytest
from rewardlab.rm.data import lint as checks
from rewardlab.rm.data.contamination import Shared, overlaps
from rewardlab.rm.data.leakage import leaks
from rewardlab.rm.data.lint import Finding, LintResult, lint, markdown
from rewardlab.rm.types import Message, PreferencePair, user_turn

LONG = "please write a short story about a brown dog who finds a lost red ball in the old park"
Encoded = namedtuple("Encoded", "ids length omitted", defaults=[""])


def pair(prompt="q", chosen="yes it is", rejected="no it is not", **options) -> PreferencePair:
    return PreferencePair("p", user_turn(prompt), chosen, rejected, **options)


def found(pairs, **options) -> list[tuple[int, str]]:
    return [(one.row, one.reason) for one in lint(pairs, **options).findings]


def clean(n: int) -> list[PreferencePair]:
    """Nothing wrong: no word tells, lengths and openings take turns."""
    sides = ("one two", "three four")
    return [pair(f"question {i}", f"{sides[i % 2]} {i}", f"{sides[1 - i % 2]} {i}") for i in range(n)]


def test_near_identical_is_a_share_of_shingles_and_a_tie_is_one_in_every_objective():
    """a..j against a..i k: 8 shingles each, 7 shared, 9 in all: 7/9 = 0.78."""
    answers = {"chosen": "a b c d e f g h i j", "rejected": "a b c d e f g h i k"}
    assert found([pair(**answers)], alike=0.78) == []
    (one,) = lint([pair(**answers)], alike=0.77).findings
    assert one == Finding(0, checks.NEAR_IDENTICAL, "78% of their 3-word shingles are the same")
    assert found([pair(chosen="yes", rejected="no")]) == [], "texts without a shingle are not alike by that"
    assert found([pair(wins={"a": 0.5, "b": 0.5})]) == [(0, checks.TIE)]
    assert found([pair(wins={"a": 0.5, "b": 1.0})]) == [] == found([pair(wins={})])
    assert lint(clean(60)) == LintResult((), ())


def test_duplicates_are_told_of_all_but_the_first_and_contradictions_on_both_sides():
    rows = [pair(), pair("another"), pair(chosen="Yes, it is."), pair()]
    assert lint(rows).findings == tuple(Finding(row, checks.REPEATED, "as", 0) for row in (2, 3))
    swapped = pair(chosen="no it is not", rejected="yes it is")
    both = (Finding(row, checks.CONTRADICTED, "the other completion is preferred by", 2 - row) for row in (0, 2))
    assert lint([pair(), pair("x"), swapped]).findings == tuple(both)
    tie = pair(chosen="no it is not", rejected="yes it is", wins={"overall": 0.5})
    assert found([pair(), tie]) == [(1, checks.TIE)]


def test_rows_are_compared_by_objective_and_by_which_answer_is_more_likely_to_win():
    """A over B at 0.1 says what B over A at 0.9 says, and the opposite of A over B at 0.9."""
    unlikely, likely = pair(wins={"overall": 0.1}), pair(wins={"overall": 0.9})
    turned = pair(chosen="no it is not", rejected="yes it is", wins={"overall": 0.9})
    assert lint([unlikely, turned]).findings == (Finding(1, checks.REPEATED, "as", 0),)
    assert found([unlikely, likely]) == [(0, checks.CONTRADICTED), (1, checks.CONTRADICTED)]
    helpful, harmless = pair(wins={"helpful": 1.0}), pair(wins={"harmless": 0.0})
    assert found([helpful, harmless]) == []
    both = pair(wins={"helpful": 0.0, "harmless": 0.0})
    assert found([helpful, harmless, both]) == [(0, checks.CONTRADICTED), (2, checks.CONTRADICTED)]


FORMATS = {
    "ChatML": "<|im_start|>user\nHi<|im_end|>", "Llama 3": "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "Llama 4": "<|header_start|>user<|header_end|>\n\nHi<|eot|>",
    "gpt-oss": "<|start|>assistant<|channel|>final<|message|>Hi<|return|>", "Phi": "<|user|>\nHi<|end|>",
    "Command R": "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|>",
    "Kimi": "<|im_user|>user<|im_middle|>Hi<|im_end|>", "Granite": "<|fim-prefix|>", "DeepSeek": "<｜User｜>",
    "DeepSeek, end": "Hi<｜end▁of▁sentence｜>", "Gemma 3": "Hi<end_of_turn>", "Gemma 4": "<|turn>user\nHi",
    "Gemma 4, end": "Hi<turn|>", "Llama 2": "<<SYS>>", "Mistral": "[INST]",
    "Mistral, system": "[SYSTEM_PROMPT]Be kind.[/SYSTEM_PROMPT]", "Mistral, tools": '[TOOL_CALLS][{"name": "f"}]',
    "GLM": "[gMASK]<sop>", "MiniMax": "]~b]user\nHi", "MiniMax, end": "Hi[e~[", "Seed": "<seed:bos>user",
    "end": "Hi</s>", "HH": "a\n\nAssistant: b",
}  # fmt: skip
ORDINARY = ["a < b and b > c", "a humane act: b", "x | y", "array[INSTANCE]", "<b>bold</b>", "a[b[~c]]", "x <|> y"]


def test_template_tokens_are_found_everywhere_and_ordinary_text_is_none():
    for text in ["hi<|im_end|>", "</s> more", "[INST] do", "<start_of_turn>", "a\n\nHuman: b"]:
        for place in ["prompt", "chosen", "rejected"]:
            assert found([pair(**{place: text})]) == [(0, checks.MARKUP)]
    for text in FORMATS.values():
        assert found([pair(chosen=text)]) == [(0, checks.MARKUP)]
    for text in ORDINARY:
        assert found([pair(text)]) == []
    assert found([pair("say [EOT] now")], special=["[EOT]", ""]) == [(0, checks.MARKUP)]


def test_what_truncation_or_a_template_makes_alike_is_found():
    def encode(examples):
        return [Encoded(one.completion.split()[:3], len(one.completion.split())) for one in examples]

    rows = [pair(chosen="a b c d", rejected="a b c e"), pair(chosen="a b", rejected="b a")]
    long = Finding(0, checks.TOO_LONG, "4 tokens and the limit is 3")
    same = Finding(0, checks.SAME_WHEN_CUT, "the same 3 tokens")
    assert lint(rows, encode=encode, max_length=3).findings == (long, same)

    def render(examples):
        return [Encoded([1], 1, one.completion.partition("|")[0]) for one in examples]

    omitted, same = Finding(0, checks.OMITTED, "'moss'"), Finding(0, checks.SAME_WHEN_RENDERED, "the same 1 tokens")
    rows = [pair(chosen="moss|a b", rejected="fern|a b")]
    assert lint(rows, encode=render, max_length=3).findings == (omitted, same)


DIFFERENT = [
    ("दिन", "दीन"), ("3 > 2", "3 < 2"), ("-5", "5"), ("what is 3 + 4", "what is 3 - 4"), ("2*3", "2 / 3"),
    ("🙂", "!!!"), ("$5", "5"), ("2^3", "23"), ("C++", "C"),
]  # fmt: skip
EQUAL = [
    ("Yes, it is!", "yes it   is"), ("3+4", "3 + 4?"), ("(-5)", "−5"), ("covid-19", "COVID 19"), ("- 5 eggs", "5 eggs"),
    ("**bold** `x`", "bold x"), ("!!!", " !!! "), ("Straße", "straße"), ("don't", "don’t"),
]  # fmt: skip


def test_combining_marks_and_symbols_make_texts_different_and_punctuation_alone_equals_itself():
    for text, other in DIFFERENT:
        assert found([pair(chosen=text, rejected=other)]) == []
        assert list(overlaps([user_turn(text)], {"b": [other]})) == []
        assert found([pair(text), pair(other)]) == []
    assert found([pair(chosen="!!!", rejected="???")]) == []
    assert [overlap.row for overlap in overlaps([*map(user_turn, ("!!!", "???"))], {"b": ["?? ?", "???"]})] == [1]


def test_case_punctuation_and_blanks_do_not_and_a_blank_turn_is_no_prompt():
    for text, other in EQUAL:
        assert found([pair(chosen=text, rejected=other)]) == [(0, checks.NEAR_IDENTICAL)]
        assert [overlap.likeness for overlap in overlaps([user_turn(text)], {"b": [other]})] == [1.0]
    assert list(overlaps([], {"b": ["no prompt to compare it with"]})) == []
    assert list(overlaps([(*user_turn(" "), *user_turn("hi"))], {"b": ["", "hello"]})) == []


def test_the_same_prompt_is_found_whatever_its_case_and_in_any_user_turn():
    turns = (*user_turn("hi"), Message(role="assistant", content=LONG), *user_turn(LONG.upper() + "!!"))
    rows = [user_turn(LONG), turns, user_turn("hi")]
    shared = [(one.row, one.benchmark, one.likeness) for one in overlaps(rows, {"b": [LONG], "c": ["other"]})]
    assert shared == [(0, "b", 1.0), (1, "b", 1.0)]
    rows = [*map(user_turn, ("how are you today", "How are you"))]
    assert [one.row for one in overlaps(rows, {"b": ["how are you"]})] == [1]


def test_a_near_prompt_is_told_by_its_share():
    """19 words, 17 shingles; the last word changed: 16 shared of 18 in all = 0.889; of 17 in the benchmark = 0.941."""
    changed = LONG.removesuffix("park") + "garden"
    (one,) = overlaps([user_turn(changed)], {"b": [LONG]})
    assert one.likeness == pytest.approx(16 / 17) and one.text == LONG
    assert list(overlaps([user_turn(changed)], {"b": [LONG]}, near=0.95)) == []
    (inside,) = overlaps([user_turn(f"my teacher asked me this just now: {LONG}. what would you say?")], {"b": [LONG]})
    assert inside.likeness == pytest.approx(0.999)  # all of it, and yet not the same


COPIES = {
    "Chinese": ("请用通俗易懂的语言解释光合作用的过程，并举{}个生活中的例子", "两", "三"),
    "Japanese": ("光合作用の仕組みを小学生にもわかるように説明してください。例も{}つ", "二", "三"),
    "Thai": ("ช่วยอธิบายการสังเคราะห์ด้วยแสงให้เด็กประถมเข้าใจพร้อมตัวอย่าง{}ข้อ", "สอง", "สาม"),
}


def test_near_prompts_are_found_in_scripts_without_blanks():
    for script in COPIES:
        text, changed = (COPIES[script][0].format(number) for number in COPIES[script][1:])
        others = [other for name, (other, *_) in COPIES.items() if name != script]
        (near,) = overlaps([user_turn(changed), *map(user_turn, others)], {"b": [text]})
        assert near.row == 0 and 0.7 <= near.likeness < 1, script
        assert found([pair(chosen=text, rejected=changed)], alike=0.6) == [(0, checks.NEAR_IDENTICAL)], script
    text = COPIES["Chinese"][0].format("两")
    (near,) = overlaps([user_turn(f"My teacher asked me this: {text} What would you say?")], {"b": [text]})
    assert near.likeness == pytest.approx(0.999)
    # 日本 against 韓国: 5 of 7 character shingles are the same, as few words as are not compared in English
    assert list(overlaps([user_turn("日本の首都はどこですか")], {"b": ["韓国の首都はどこですか"]})) == []


TEMPLATE = "read the following review of a product and say in one word whether its writer liked it or not review number"


def test_a_template_that_most_prompts_share_is_no_evidence_and_a_copy_of_its_filling_is():
    """21 words of template and 2 that differ: all 12 prompts of the benchmark share the template's 19 shingles."""
    prompts = [f"{TEMPLATE} {n} good{n}" for n in range(12)]
    rows = [user_turn(f"{TEMPLATE} {n} bad{n}") for n in range(100, 200)]
    assert list(overlaps(rows, {"b": prompts})) == []
    assert len(list(overlaps(rows, {"b": prompts[:9]}))) == 100, "nine prompts are too few to tell a template"
    assert [one.row for one in overlaps([user_turn(prompts[3]), *rows], {"b": prompts})] == [0]
    long = [f"{TEMPLATE} {n}: {LONG.replace('park', f'city{n}')}" for n in range(12)]
    assert list(overlaps(rows, {"b": long})) == []
    filled = " ".join(f"word{n}" for n in range(20))
    prompts = [f"{TEMPLATE} {n}" for n in range(12)] + [f"{TEMPLATE} {filled}"]
    (near,) = overlaps([user_turn(f"{TEMPLATE} {filled} indeed")], {"b": prompts})
    assert near.likeness == pytest.approx(0.999) and near.text == prompts[-1]


def test_what_is_shared_with_benchmarks_is_counted_and_found():
    later = (*user_turn("hi"), Message(role="assistant", content="yes"), Message(role="user", content="How are you?"))
    rows = [pair(LONG, str(n), "no") for n in range(2)] + [PreferencePair("p", later, "a", "b")]
    rows.append(pair(LONG.replace("park", "garden"), "c", "d"))
    told = lint(rows, benchmarks={"b": [LONG, "how are you"], "other": ["nothing of it"]})
    assert told.shared == (Shared("b", 3, 2, 1, 1), Shared("other", 0, 0, 0, 0))
    assert "| b | 3 | 2 | 1 | 1 |\n| other | 0 | 0 | 0 | 0 |" in markdown(told, str, 4)
    rows = [pair(LONG), pair(LONG.replace("park", "garden"), "other answer", "and another")]
    (first, second) = lint(rows, benchmarks={"rewardbench": [LONG]}).findings
    assert first == Finding(0, checks.OVERLAP, "rewardbench")
    assert second.reason == checks.NEAR_OVERLAP and second.detail.startswith("rewardbench, 94% alike: 'please write")


def planted(kind: str, n: int = 200, strays: int = 0) -> list[PreferencePair]:
    told = []
    for place, row in enumerate(clean(n)):
        ending = {"marker": " indeed so", "length": f" w{place}" * 6}.get(kind, "")
        answers = row.chosen + ending, ("hello " if kind == "opening" else "") + row.rejected
        told.append(pair(f"question {place}", *(answers[::-1] if place < strays else answers)))
    return told


def test_a_word_length_or_position_is_a_leak_and_chance_is_none():
    (found, *_) = [one for one in leaks(planted("marker", strays=10)) if one.sign.endswith("says 'indeed'")]
    assert found.kind == "marker" and found.pairs == 200 and found.right == 0.95 and found.rows == tuple(range(200))
    assert found.sentence == "the chosen completion says 'indeed': right in 95.0% of 200 pairs"
    signs = {one.sign for one in leaks(planted("opening"))}
    assert "the rejected completion begins with 'hello'" in signs
    assert leaks(planted("marker", strays=100)) == []
    assert leaks(planted("marker", n=200)[:19]) == []  # too few to say
    (one,) = [one for one in leaks(planted("length")) if one.kind == "length"]
    assert one.sign == "the longer completion is chosen" and one.right == 1
    (one,) = leaks(clean(60), first=[True] * 55 + [False] * 5)
    assert (one.kind, one.sign, one.pairs, one.right) == ("position", "the first completion is chosen", 60, 55 / 60)
    assert leaks(clean(60), first=[None] * 60) == [] == leaks(clean(60), first=[True, False] * 30)


def test_a_leak_is_found_in_a_script_without_blanks_but_no_punctuation():
    rows = [pair(f"问题{n}", f"答案{n}很好", f"答案{n}") for n in range(60)]
    signs = {one.sign for one in leaks(rows)}
    assert {"the longer completion is chosen", "the chosen completion says '好'"} <= signs
    assert "the chosen completion ends with '好'" in signs
    for mark in ["$", "^{", "^", "first=", "x$"]:
        rows = [pair(f"q {i}", f"w{i} costs {mark} {i} w{i}", f"w{i} costs {i} w{i}") for i in range(60)]
        told = {one.sign for one in leaks(rows) if one.kind in ("opening", "ending", "marker")}
        assert told and {one.partition(" completion ")[2].partition(" ")[0] for one in told} == {"says"}, mark


def test_a_leak_is_of_the_preferred_answer_whichever_is_called_chosen():
    rows = planted("marker", n=60)
    turned = [replace(one, chosen=one.rejected, rejected=one.chosen, wins={"overall": 0.1}) for one in rows]
    half = [other if place % 2 else one for place, (one, other) in enumerate(zip(rows, turned, strict=True))]
    assert leaks(half) == leaks(rows) != []
    ties = [pair(f"more {n}", "w indeed so", "w", wins={"overall": 0.5}) for n in range(60)]
    assert {one.pairs for one in leaks([*rows, *ties])} == {60}
    (one,) = leaks([replace(one, wins={"overall": 0.0}) for one in clean(60)], first=[True] * 60)
    assert one.sign == "the second completion is chosen"


def test_rows_are_left_out_for_their_first_reason_and_ties_stay():
    findings = [(0, "a"), (0, "b"), (2, checks.TIE), (3, checks.TIE)]
    found = LintResult(tuple(Finding(row, reason, "") for row, reason in findings), ())
    assert found.reasons == {checks.TIE: 2, "a": 1, "b": 1}
    assert found.left_out() == {0: "a"}
    assert found.left_out(reasons=["a"]) == {0: "b", 2: checks.TIE, 3: checks.TIE}


def test_the_report_tells_places():
    swapped = pair(chosen="no it is not", rejected="yes it is")
    told = markdown(lint([pair(), swapped]), lambda row: f"line {row + 1}", 2)
    assert "| contradictory duplicate | 2 | line 1 (the other completion is preferred by line 2); line 2 (" in told
    assert "No word, position or length predicts the label." in told
    assert "Nothing is wrong with any of 60 rows." in markdown(lint(clean(60)), str, 60)
    told = markdown(lint(planted("length")), str, 200)
    assert "- the longer completion is chosen: right in 100.0% of 200 pairs (first at 0)" in told
