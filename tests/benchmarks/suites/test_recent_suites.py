"""Suites of recent benchmarks: figures of their authors' code on the same scores, prompts, baselines and abstentions.

`FIGURES` are what the authors' code computes from `ROWS` and `score`; the commits of that code are with the figures.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.runs.tables import read_items
from rewardlab.benchmarks.baselines import Baseline, judge_by_response
from rewardlab.benchmarks.evaluate import Evaluation, evaluate
from rewardlab.benchmarks.statistics.calibration import auc
from rewardlab.benchmarks.suites.if_rewardbench import kendall_tau_b
from rewardlab.benchmarks.suites.m_rewardbench import SIZES
from rewardlab.benchmarks.suites.prmbench import CLASSES
from rewardlab.judges.audit.attacks import repeat_response, swap_responses
from rewardlab.judges.audit.plan import pair_of
from rewardlab.judges.case_rows import stated_id
from rewardlab.judges.rubrics.files import rubric_of_row
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.data import readers
from rewardlab.rm.errors import DataError
from rewardlab.rm.registry import load
from rewardlab.rm.types import prompt_text, tools_of


def score(text: str) -> float:
    """A score in [0, 1) with many ties."""
    return hashlib.sha256(text.encode()).digest()[0] // 16 / 16


def digit(*parts: Any) -> int:
    """A digit that looks random."""
    return hashlib.sha256(repr(parts).encode()).digest()[1] % 10


def plan_rows() -> list[dict]:
    buckets = ["planning_single_easy", "planning_multi_hard", "refusal", "irrelevance_unavailable", "tool_error"]
    call = {"role": "tool_call", "name": "find", "content": '{"q": "ä"}'}

    def trajectory(text: str) -> dict:
        return {
            "messages": [call, {"role": "tool_response", "content": "none"}, {"role": "assistant", "content": text}]
        }

    return [
        {"query": f"q{n}", "tools": [{"name": "find"}], "uuid": f"u{n % 30}", "_lcp_bucket": buckets[n % 7 % 5]}
        | {"chosen": trajectory(f"a{n}"), "reject": trajectory(f"b{n}")}
        for n in range(40)
    ]


def m_rows() -> list[dict]:
    return [
        {"id": n, "language": language, "subset": subset, "prompt": f"p{n}"}
        | {"chosen": f"a {language} {subset} {n}", "rejected": f"b {language} {subset} {n}"}
        for language in ("eng_Latn", "deu_Latn", "zho_Hans")
        for subset in SIZES
        for n in range(3)
    ]


def if_rows() -> list[dict]:
    def row(n: int) -> dict:
        edges = [(a, b) for a in range(4) for b in range(a + 1, 4) if digit("edge", n, a, b) < 6] or [(0, 1)]
        return {
            "id": n,
            "instruction_type": ["Single_Turn", "Multi_Turn", "System_Prompt"][digit("kind", n) % 3],
            "messages": [{"role": "user", "content": f"p{n}"}],
            "responses": [{"response_id": k, "response": f"{n} {k}"} for k in range(4)],
            "preference_graph": [{"chosen": {"response_id": a}, "rejected": {"response_id": b}} for a, b in edges],
        }

    return [row(n) for n in range(20)]


def long_rows() -> list[dict]:
    return [
        {"prompt": f"p{n}", "subset": ["QA", "Writing", "Chat"][n % 3]}
        | {"chosen": [f"good {n}"], "rejected": [f"bad {n} {k}" for k in range([1, 3][n % 2])]}
        for n in range(30)
    ]


def prm_rows() -> list[dict]:
    def row(kind: str, n: int) -> dict:
        steps = [f"{kind} {n} step {k}" for k in range(5)]
        wrong = [k + 1 for k in range(5) if digit("wrong", kind, n, k) < 4] if kind != "multi_solutions" else []
        row = {"original_question": f"p{n}", "modified_question": f"p{n}", "modified_process": steps}
        return row | {"original_process": steps, "error_steps": [*wrong, 9], "classification": kind, "idx": str(n)}

    rows = [row(kind, n) for kind in CLASSES for n in range(4)]
    return [*rows, rows[5] | {"error_steps": [1, 2, 3]}]  # a repeated item, of which the authors use the first


def profile_rows() -> list[dict]:
    return [
        {"id": f"{n}", "question": f"question {n}?", "narrative": "the narrative", "category": "Film"}
        | {"profile": [{"id": f"{k}", "category": "Film", "text": f"post {k}"} for k in range(12)]}
        | {"rubric_aspects": [{"aspect": "the rubric"}], "chosen": f"fits {n}", "rejected": f"misses {n}"}
        for n in range(25)
    ]


def conflict_rows() -> list[dict]:
    answers = {f"response_{k}": f"answer {k}" for k in range(1, 5)}
    row = {"question_id": "7", "model_name": "m", "prompt": "p", "scores": [True, False, False, True]} | answers
    return [row | {"sampled_conflict_pairs": [[0, 1], [2, 3]]}]


def memory_rows() -> list[dict]:
    return [
        {"question": f"p{n}", "chosen": f"a{n}", "rejected": f"b{n}", "task": "parallel"}
        | {"ctx_length": ["8k", "128k"][n % 2]}
        for n in range(8)
    ]


def arena_rows() -> list[dict]:
    flags = ("is_code", "hard_prompt", "easy_prompt", "if_prompt", "math_prompt")
    winners = ("model_a", "model_b", "tie", "tie (bothbad)")
    return [
        {"question_id": f"{n}", "winner": winners[n % 4], "prompt": f"p{n}", "response_1": f"a{n}"}
        | {"response_2": f"b{n}", "model_a": "m", "model_b": "o"}
        | {flag: digit(flag, n) < 5 for flag in flags}
        for n in range(16)
    ]


ROWS: dict[str, Callable[[], list[dict]]] = {
    "plan_rewardbench": plan_rows, "m_rewardbench": m_rows, "if_rewardbench": if_rows, "prmbench": prm_rows,
    "long_form_rewardbench": long_rows, "personalized_rewardbench": profile_rows, "ppe_correctness": conflict_rows,
    "mem_rewardbench": memory_rows, "ppe_preference": arena_rows,
}  # fmt: skip


def model(score: Callable[[Case, int], float], skipped: str = "") -> Baseline:
    """A model that scores by `score`, and abstains from the case `skipped`."""
    judge = judge_by_response(score)
    scorer = Baseline(
        "m",
        lambda cases: [
            Judgment(case.id, abstained="no reply") if case.id == skipped else judged
            for case, judged in zip(cases, judge(cases), strict=True)
        ],
    )
    scorer.role = "model"
    return scorer


BY_TEXT = model(lambda case, index: score(case.texts[index].rpartition("\n\n")[2]))  # the last message or step


def of(name: str, folder, **settings: Any) -> tuple[Any, list[Case], list[str]]:
    path = folder / "Lifestyle.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[name]()))
    suite = load("benchmarks.suites", name)(**settings)
    return suite, *suite.cases([str(path)])


def evaluated(name: str, folder, scorer: Baseline = BY_TEXT) -> Evaluation:
    suite, cases, notes = of(name, folder)
    return evaluate(suite, cases, [scorer, *suite.baselines(cases)], notes=notes, samples=40)


FIGURES = {
    # thu-coai/IF-RewardBench c192fe968c, calculate_pairwise_metrics
    "if_rewardbench": {"overall": 0.3688888888888889, "Single_Turn": 0.3, "Multi_Turn": 0.64, "System_Prompt": 1 / 6},
    # for-ai/m-rewardbench 5e5a0d3d45, get_scores; the overall mean is over German and Chinese
    "m_rewardbench": {
        "eng_Latn": 0.4544166001470753, "deu_Latn": 0.5725094427436415, "zho_Hans": 0.539081939564394,
        "overall": (0.5725094427436415 + 0.539081939564394) / 2, "Chat": (0.5540540540540541 + 0.6204954954954954) / 2,
    },
    # wyy-1112/Plan-RewardBench ffe6fbe923, _analyze_benchmark and _print_summary
    "plan_rewardbench": {
        "overall": 0.5257575757575758, "planning_single_easy": 0.8181818181818183, "safety_refusal": 5 / 12,
        "planning_multi_hard": 8 / 11, "tool_irrelevance": 1 / 6, "robust_recovery": 0.5,
    },
    # HuihuiChyan/Long-formRMB e30933a580, cal_accuracy_from_file
    "long_form_rewardbench": {"overall": 11 / 30, "Chat": 0.2, "QA": 0.5, "Writing": 0.4},
    # Martin-qyma/Personalized-RewardBench a5c6814d22, compare_scores
    "personalized_rewardbench": {"overall": 14 / 25, "Lifestyle": 14 / 25},
    # ssmisya/PRMBench a1ae4eab80, evaluate_function; sections are means of their classes
    "prmbench": {
        "overall": 0.45734265734265733, "redundency": 0.3939393939393939, "circular": 0.24812030075187974,
        "counterfactual": 0.3350383631713555, "multi_solutions": 0.787878787878788,
        "simplicity": (0.3939393939393939 + 0.24812030075187974) / 2,
        "sensitivity": (0.5488721804511278 + 0.494949494949495 + 0.787878787878788) / 3,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_the_figures_are_those_of_the_authors_code(name, tmp_path):
    report = evaluated(name, tmp_path).report
    row = report.rows[0]
    figures = {"overall": row.overall, **row.sections}
    for area, figure in FIGURES[name].items():
        assert figures[area].value == pytest.approx(figure, abs=1e-12), area
        assert figures[area].low <= figure <= figures[area].high
    assert all(0 <= line.overall.low <= line.overall.high <= 1 for line in report.rows)
    assert {line.role for line in report.rows} == {"model", "baseline"}
    assert ("AUC" in report.findings[-1]) == (name != "if_rewardbench")


def test_kendalls_tau_is_that_of_the_authors_code(tmp_path):
    findings = evaluated("if_rewardbench", tmp_path).report.findings
    assert findings[-1] == "m: Kendall's tau-b of the preferences is -0.231, the mean over the types of instructions."
    # C = 2, D = 1, T = 1: (2 - 1) / sqrt(3 * 4), and 0 rather than 0/0 if all scores tie
    assert kendall_tau_b([1, 2, -1, 0]) == pytest.approx(1 / 12**0.5) and kendall_tau_b([0, 0]) == 0


def test_the_auc_is_over_all_prompts(tmp_path):
    # of the 4 pairs of a right and a wrong score 3 are ordered and one ties
    assert auc(np.array([3.0, 1.0, 1.0, 0.0]), np.array([True, True, False, False])) == 3.5 / 4
    assert np.isnan(auc(np.array([1.0, 2.0]), np.array([True, True])))
    # every pair is ordered rightly, and scores of one prompt lie above those of the other
    right = model(lambda case, index: 2.0 * int(case.cluster.removeprefix("p")) + (index in case.best))
    report = evaluated("mem_rewardbench", tmp_path, right).report
    assert report.rows[0].overall.value == 1
    # scores 0 to 15, even ones wrong: of 64 pairs 8 + 7 + ... + 1 have the right response above
    assert report.findings[-1] == "m: over all prompts together, the AUC of right against wrong is 56.2 (50: chance)."


@pytest.mark.parametrize("name", sorted(ROWS))
def test_an_abstention_does_not_count_and_bounds_the_figure(name, tmp_path):
    suite, cases, _ = of(name, tmp_path)
    perfect = model(
        lambda case, index: (
            case.values[index] if case.values else float(-sum(index == worse for _, worse in case.preferences))
            if case.preferences else float(index in case.best)
        ),
        skipped=cases[-1].id,
    )  # fmt: skip
    report = evaluate(suite, cases, [perfect], samples=20).report
    row = report.rows[0]
    assert (row.scored, row.unscored) == (len(cases) - 1, 1)
    [bounds] = [finding for finding in report.findings if "unscored" in finding]
    assert f"left 1 of {len(cases)} cases unscored" in bounds
    if name != "if_rewardbench":  # the number of better responses is no total order there
        assert row.overall.value == 1 and bounds.endswith("and 100.0.")
        worst = float(bounds.split("would be ")[1].split(" and")[0])
        assert 0 < worst < 100


def test_ppe_pairs_are_those_that_were_sampled(tmp_path):
    suite, cases, _ = of("ppe_correctness", tmp_path)
    assert [case.answers for case in cases] == [("answer 1", "answer 2"), ("answer 3", "answer 4")]
    assert [case.best for case in cases] == [(0,), (1,)] and {case.subset for case in cases} == {"Lifestyle"}
    suite, cases, notes = of("ppe_preference", tmp_path)
    assert len(cases) == 8 and notes == ["8 of 16 pairs are ties and are left out."]
    first = model(lambda case, index: -float(index))
    row = evaluate(suite, cases, [first], samples=20).report.rows[0]
    assert row.overall.value == 0.5 and cases[0].authors == ("m", "o")
    of_code = [case for case in cases if "code" in case.subset.split("/")]
    assert row.sections["code"].value == np.mean([case.best == (0,) for case in of_code])


def test_translations_and_classes_of_one_item_are_one_cluster(tmp_path):
    def clusters(name: str, rows: list[dict]) -> list[str]:
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return [case.cluster for case in load("benchmarks.suites", name)().cases([str(tmp_path / "rows.jsonl")])[0]]

    item = {"id": 7, "subset": "hep-go", "chosen": "a", "rejected": "b"}
    items = [(1, "fra_Latn", "deux"), (1, "deu_Latn", "zwei"), (2, "deu_Latn", "zwei"), (2, "fra_Latn", "deux fois")]
    rows = [item | {"id": id, "language": language, "prompt": prompt} for id, language, prompt in items]
    assert clusters("m_rewardbench", rows) == ["zwei"] * 4  # items 1 and 2 have one prompt
    step = {"original_question": "q", "modified_process": ["s"], "error_steps": [], "idx": "1"}
    kinds = [("redundency", "q"), ("missing_condition", "q without a condition"), ("deception", "")]
    rows = [step | {"classification": kind, "modified_question": question} for kind, question in kinds]
    assert clusters("prmbench", rows) == ["q"] * 3


def test_memory_is_reported_by_length(tmp_path):
    (tmp_path / "Long-form_Generation.jsonl").write_text("\n".join(map(json.dumps, memory_rows())))
    suite = load("benchmarks.suites", "mem_rewardbench")()
    cases, _ = suite.cases([str(tmp_path / "Long-form_Generation.jsonl")])
    short = model(lambda case, index: float((index in case.best) == case.subset.endswith("/8k")))
    row = evaluate(suite, cases, [short], samples=20).report.rows[0]
    assert {area: figure.value for area, figure in row.sections.items()} == {
        "8k": 1.0, "128k": 0.0, "Long-form_Generation": 0.5,
    }  # fmt: skip


def test_a_trajectory_is_shown_as_the_authors_show_it(tmp_path):
    _, cases, notes = of("plan_rewardbench", tmp_path)
    # the format of their RemoteBTRewardEvaluator
    assert '[TOOL_CALL name=find] {"q": "ä"}\n\n[TOOL_RESPONSE] none\n\n[ASSISTANT] a0' in cases[0].answers
    assert prompt_text(cases[0].prompt).endswith("</tool_environment>\n<user_query>\nq0\n</user_query>")
    assert cases[30].id == "u0#2" and notes[-1].startswith("Not the whole benchmark: planning_single_easy 11 of 144")


def test_a_profile_is_in_the_prompt_and_what_decides_the_label_is_not(tmp_path):
    _, [case, *_], notes = of("personalized_rewardbench", tmp_path)
    text = prompt_text(case.prompt)
    assert "question 0?Post 1 (Category: Film):\npost 0\nPost 2" in text and "post 9" in text and "post 10" not in text
    assert "narrative" not in text and "rubric" not in text and "first 10 posts" in notes[-1]
    suite, [bare, *_], _ = of("personalized_rewardbench", tmp_path, posts=0)
    assert prompt_text(bare.prompt) == prompt_text(bare.prompt).replace("post", "")
    assert suite.name == "personalized_rewardbench(posts=0)" and bare.answers == case.answers


def test_functions_are_declared_in_the_prompt(tmp_path):
    tools = json.dumps([{"name": "find", "parameters": {"type": "object"}}])
    row = {"test_id": 3, "error_type": "wrong", "tools": tools, "conversation": [{"role": "user", "content": "p"}]}
    row |= {"chosen_output": [{"find": {"q": "ä"}}], "rejected_output": "find()"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    [case], _ = load("benchmarks.suites", "fc_rewardbench")().cases([str(tmp_path / "rows.jsonl")])
    assert tools_of(case.prompt)[0]["function"]["name"] == "find"
    assert case.answers[case.best[0]] == '[{"find": {"q": "ä"}}]' and case.id == "3"


def test_steps_count_alike_in_solutions_of_any_length(tmp_path):
    rows = [{"modified_question": "p", "classification": "circular", "idx": "1"} for _ in range(2)]
    rows[0] |= {"modified_process": [*"abcdefgh"], "error_steps": [1]}
    rows[1] |= {"modified_process": ["i"], "error_steps": [], "idx": "2"}
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    suite = load("benchmarks.suites", "prmbench")()
    cases, _ = suite.cases([str(tmp_path / "rows.jsonl")])
    # a to d are predicted wrong, e to i correct: TP 5, FN 3, TN 1, FP 0; F1 of correct 10/13, of wrong 2/5
    guess = model(lambda case, index: float(case.texts[index][-1] > "d"))
    row = evaluate(suite, cases, [guess], samples=20).report.rows[0]
    assert row.overall.value == pytest.approx((10 / 13 + 2 / 5) / 2)
    assert row.subsets["circular"].value == pytest.approx(6 / 9)  # of steps


def test_the_answers_to_prmbench_without_an_error_or_with_errors_only_are_baselines(tmp_path):
    rows = {row.scorer: row for row in evaluated("prmbench", tmp_path).report.rows}
    labels = [label for case in of("prmbench", tmp_path)[1] for label in case.values]
    share = float(np.mean(labels))
    assert rows["no error"].overall.value == pytest.approx(share / (1 + share))  # F1 2s / (1 + s), and 0
    assert rows["only errors"].overall.value == pytest.approx((1 - share) / (2 - share))


def test_a_row_with_images_is_refused_with_one_sentence(tmp_path):
    row = memory_rows()[0] | {"image": "cat.png"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    for name in ("mem_rewardbench", "judgebench"):
        with pytest.raises(DataError, match=r"rows.jsonl:1: the row has 'image', but only text is scored"):
            load("benchmarks.suites", name)().cases([str(tmp_path / "rows.jsonl")])


def test_a_configuration_of_the_hub_is_a_part_of_the_benchmark(monkeypatch):
    import datasets

    loaded = []

    def load_dataset(*arguments, **options):
        loaded.append((*arguments, options["split"], options["revision"]))
        return datasets.Dataset.from_list(memory_rows()[:1])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    sources = ["owner/name@v1:Long-form_Generation/test", "owner/other:train"]
    cases, _ = load("benchmarks.suites", "mem_rewardbench")().cases(sources)
    assert loaded == [("owner/name", "Long-form_Generation", "test", "v1"), ("owner/other", None, "train", None)]
    assert [case.subset for case in cases] == ["Long-form_Generation/parallel/8k", "other/parallel/8k"]
    assert readers.dataset_parts("a/b@c:d/e") == ("a/b", "d/e", "c")


def test_the_lines_of_rubricbench_are_criteria_of_the_case_with_their_id():
    row = {"case_id": "case-7", "rubrics": "Is it right?\n\n Is it short? \n"}
    principles = rubric_of_row(row).principles
    assert [(some.description, some.weight) for some in principles] == [("Is it right?", 1), ("Is it short?", 1)]
    assert stated_id(row) == "case-7"
    with pytest.raises(ValueError, match="'rubrics' has no criterion"):
        rubric_of_row({"rubrics": " \n"})


def test_preferences_move_with_their_responses_and_are_stored(tmp_path):
    case = Case("c", (), ("a", "b", "c"), best=(0,), preferences=((0, 2), (1, 2)))
    assert swap_responses(case).preferences == ((2, 0), (1, 0))
    assert repeat_response(case).preferences == pair_of(case).preferences == ()
    with pytest.raises(ValueError, match="a preference must be a pair of its answers"):
        Case("c", (), ("a", "b"), preferences=((0, 2),))
    data, run = tmp_path / "rows.jsonl", tmp_path / "run"
    data.write_text("\n".join(map(json.dumps, if_rows())))
    (tmp_path / "m.jsonl").write_text("\n".join(json.dumps({"id": f"{n}", "scores": [3, 2, 1, 0]}) for n in range(20)))
    arguments = ["--benchmark", "if_rewardbench", "--data", str(data), "--scores", str(tmp_path / "m.jsonl")]
    assert main(["eval", *arguments, "--output", str(run)]) == 0
    stored = {case.id: case.preferences for case in read_items(run)}
    cases, _ = load("benchmarks.suites", "if_rewardbench")().cases([str(data)])
    assert stored == {case.id: case.preferences for case in cases}
    assert main(["verify", str(run)]) == 0
