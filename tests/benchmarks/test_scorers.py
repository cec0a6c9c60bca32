"""Scores that somebody else computed, read from a file: which score belongs to which response."""

import json
import math

import pytest
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.scorers import FunctionModel, load_stored, open_scorer
from rewardlab.benchmarks.suites import judgebench, pairs, rewardbench, rm_bench
from rewardlab.judges.types import Case
from rewardlab.rm.errors import DataError
from rewardlab.rm.types import Example, user_turn


def case(id: str, best: tuple[int, ...] = (0,), responses: int = 2, subset: str = "", **fields) -> Case:
    return Case(id, user_turn(id), tuple(f"response {i}" for i in range(responses)), best, subset, id, **fields)


def write(path, content) -> str:
    path.write_text(content if isinstance(content, str) else "\n".join(map(json.dumps, content)))
    return str(path)


def row_of(suite, cases, path):
    """The report's row of the scores in a file."""
    return evaluate(suite, cases, [load_stored(path, suite, cases)], samples=20).report.rows[0]


def test_score_chosen_is_of_the_right_response_wherever_it_stands(tmp_path):
    cases = [case("a", (0,)), case("b", (1,)), case("c", (1,)), case("d", (0,))]
    right = [{"id": name, "score_chosen": 2.0, "score_rejected": 1.0} for name in "abc"]
    path = write(tmp_path / "s.jsonl", [*right, {"id": "d", "score_chosen": 0.5, "score_rejected": 0.75}])
    stored = load_stored(path, judgebench.judgebench(), cases)
    assert [judgment.scores for judgment in stored(cases)] == [(2, 1), (1, 2), (1, 2), (0.5, 0.75)]
    assert row_of(judgebench.judgebench(), cases, path).overall.value == 0.75
    suite = pairs.pairs("short")  # an objective that prefers the response in `rejected`
    path = write(tmp_path / "s.jsonl", [{"id": "a", "score_chosen": 2.0, "score_rejected": 1.0}])
    assert load_stored(path, suite, [case("a", (1,))])([case("a", (1,))])[0].scores == (2.0, 1.0)
    for best, responses in [((0, 1), 2), ((0, 2), 4)]:
        path = write(tmp_path / "s.jsonl", [{"id": "a", "score_chosen": 2.0, "score_rejected": 1.0}])
        with pytest.raises(DataError, match=r"s.jsonl:1: chosen and rejected scores do not fit .*: 1 and 1 scores"):
            load_stored(path, judgebench.judgebench(), [case("a", best, responses)])


def test_result_files_of_judgebench_are_read_as_they_are(tmp_path):
    cases = [case(name, (index,)) for name, index in (("a", 0), ("b", 1), ("c", 0))]
    rows = [
        {"pair_id": "a", "judgments": [{"decision": "A>B", "scores": [3, 1]}, {"decision": "B>A", "scores": [1, 3]}]},
        {"pair_id": "b", "judgments": [{"decision": "B>A"}, {"decision": "B>A"}]},  # one vote each
        {"pair_id": "c", "judgments": [{"decision": "A>B"}, None]},
    ]
    path = write(tmp_path / "theirs.jsonl", rows)
    judged = load_stored(path, judgebench.judgebench(), cases)(cases)
    assert [judgment.scores for judgment in judged] == [(3, 1), (1, 1), (1, 0)]
    assert row_of(judgebench.judgebench(), cases, path).overall.value == pytest.approx(2 / 3)


def test_result_files_of_rewardbench_and_rm_bench_are_read_as_they_are(tmp_path):
    subsets = ["hep-go", "hep-go", "math-prm"]
    cases = [case(f"{subset}/{id}", subset=subset) for subset, id in zip(subsets, (0, 1, 0), strict=True)]
    table = {"id": [0, 1, 0], "subset": subsets, "scores_chosen": [[2.0], [1.0], [0.5]]}
    table |= {"scores_rejected": [[1.0], [1.5], [0.0]], "results": [1, 0, 1], "model": "theirs", "model_type": "Seq"}
    path = write(tmp_path / "theirs.json", json.dumps(table))
    row = row_of(rewardbench.rewardbench(), cases, path)
    # code: 1 of 2, maths: 1 of 1, both weigh the same by the official weights 164 and 984 for one language
    assert row.sections["Reasoning"].value == pytest.approx((164 * 0.5 + 984) / (164 + 984))
    cases = [case("chat/7", (0, 1, 2), 6, "chat", sets=(3, 3))]
    rows = [{"id": 7, "domain": "chat", "score_chosen": [3, 1, 2], "score_rejected": [2, 2, 0]}]
    row = row_of(rm_bench.rm_bench(), cases, write(tmp_path / "theirs.json", json.dumps(rows)))
    assert row.sections["hard"].value == 1.0 and row.sections["normal"].value == pytest.approx(2 / 3)
    assert row.sections["easy"].value == 0.0


def test_a_coroutine_function_rates_responses():
    async def words(completions):
        return [None if not text else len(text.split()) for text in completions]

    rewards = FunctionModel(words, "words").rate([Example(user_turn("a"), text) for text in ("two words", "")])
    assert rewards[0] == [2.0] and math.isnan(rewards[1, 0])


def test_a_function_gets_each_conversation_in_the_same_form_beside_any_others():
    def size(completions, **more):
        return [len(text) + 100 * len(prompt) for text, prompt in zip(completions, more["prompts"], strict=True)]

    system = {"role": "system", "content": "Be brief."}
    examples = [Example(user_turn("abc"), "four"), Example((system, *user_turn("abc")), "four")]
    model = FunctionModel(size, "size")
    alone = [model.rate([example])[0, 0] for example in examples]
    assert alone == [304.0, 201.0] and model.rate(examples)[:, 0].tolist() == alone  # texts, lists of messages


def test_a_folder_whose_name_has_a_colon_is_a_model(tmp_path):
    folder = tmp_path / "rm-10:30"
    folder.mkdir()
    with pytest.raises(DataError, match="neither scoring.json nor config.json in it"):
        open_scorer(str(folder))


def test_names_keep_their_dots(tmp_path):
    rows = [{"id": "a", "scores": [1.0, 0.0]}]
    names = [
        load_stored(write(tmp_path / file, content), judgebench.judgebench(), [case("a")]).name
        for file, content in (("Llama-3.1-8B.jsonl", rows), ("Llama-3.2-3B.v1.json", json.dumps(rows)))
    ]
    assert names == ["Llama-3.1-8B", "Llama-3.2-3B.v1"]


def test_a_score_that_is_null_is_missing(tmp_path):
    cases = [case(name) for name in "abcd"]
    rows = [{"id": "a", "scores": [1.0, None]}, {"id": "b", "score_chosen": 1.0, "score_rejected": None}]
    rows += [{"id": "c", "scores": None}, {"id": "d", "scores": [2.0, 1.0], "score_chosen": None}]
    judged = load_stored(write(tmp_path / "s.jsonl", rows), judgebench.judgebench(), cases)(cases)
    assert [judgment.reason for judgment in judged] == ["the reward is not a finite number"] * 3 + [""]
    assert judged[3].scores == (2.0, 1.0)


def test_a_row_of_scores_that_cannot_be_used_may_be_skipped_and_is_counted(tmp_path):
    cases = [case(name) for name in "ab"]
    path = write(tmp_path / "s.jsonl", [{"id": "a", "scores": "high"}, {"id": "b", "scores": [2.0, 1.0]}])
    with pytest.raises(DataError, match="or drop such rows with --on_bad_row skip"):
        load_stored(path, judgebench.judgebench(), cases)
    stored = load_stored(path, judgebench.judgebench(), cases, "skip")
    assert [judgment.abstained for judgment in stored(cases)] == ["no stored score", ""]
    assert stored.notes(cases) == ["s: 1 of 2 rows dropped: {\"'scores' is not a list of numbers\": 1}."]
