"""The common promise of every suite, on the real data where they are."""

import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rewardlab.benchmarks.baselines import Baseline, baselines_for, longest, tfidf
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.judges.types import Case
from rewardlab.rm.errors import DataError
from rewardlab.rm.registry import load, names

from tests.fuzzing.targets.suites import ROWS


class Data(NamedTuple):
    """Files of a suite under the data folder, and what to do with rows that cannot be read."""

    patterns: tuple[str, ...]
    on_bad_row: str = "refuse"


DATA = {
    "auto_j": Data(("auto_j/testdata_pairwise.jsonl.gz",)),
    "best_of_16": Data(("bon16_tulu2_alpacaeval/bon16.jsonl.gz",)),
    "evalbiasbench": Data(("evalbiasbench/biasbench.json",)),
    "ifbench": Data(("ifbench_pref/data.converted.jsonl.gz",)), "judgebench": Data(("judgebench/gpt-4o.jsonl.gz",)),
    "llmbar": Data(("llmbar/llmbar__*.gz",)), "pairs": Data(("ultrafeedback_sample/eval.jsonl.gz",), "skip"),
    "pandalm": Data(("pandalm/testset-v1.json.gz",), "skip"), "rewardbench": Data(("rewardbench_v1/*.parquet",)),
    "rm_bench": Data(("rm_bench_public/*.gz",)), "rmb": Data(("rmb_format_sample/*.gz",)),
    "xstest": Data(("xstest/xstest_v2_completions_*.csv.gz",)),
}  # fmt: skip
OF_2026 = {
    "fc_rewardbench", "if_rewardbench", "long_form_rewardbench", "m_rewardbench", "mem_rewardbench", "plan_rewardbench",
    "personalized_rewardbench", "ppe_correctness", "ppe_preference", "prmbench", "rubricbench",
}  # fmt: skip
WITHOUT_DATA = {"processbench", "rewardbench2", *OF_2026}
"""test_processbench.py, test_known_answers.py and test_recent_suites.py have their figures."""


@cache
def read(name: str, folder: Path):
    """The suite, its cases and its notes; read once for all tests."""
    suite = load("benchmarks.suites", name)(on_bad_row=DATA[name].on_bad_row)
    sources = sorted(str(path) for pattern in DATA[name].patterns for path in folder.glob(pattern))
    return suite, *suite.cases(sources)


def test_every_suite_is_tried():
    assert {*DATA, *WITHOUT_DATA} == {*names("benchmarks.suites")}


def scores_of(case: Case, right: float, wrong: float) -> list[float]:
    """Scores that say right or wrong of every answer; where all are right, agreement is to score them alike."""
    if len(case.best) == len(case.answers):
        return [0.0] * len(case.answers) if right > wrong else [float(place) for place in range(len(case.answers))]
    return [right if place in case.best else wrong for place in range(len(case.answers))]


@pytest.mark.parametrize("name", sorted(DATA))
def test_the_perfect_scorer_has_every_credit_and_longest_wins_no_more_than_longest(name, shared_data):
    suite, cases, notes = read(name, shared_data)
    assert cases and len({case.id for case in cases}) == len(cases)
    assert all(case.cluster for case in cases), "a case without a cluster would pass for independent evidence"
    assert suite.name in names("benchmarks.suites") and suite.version and suite.measures
    for case in cases:
        perfect, reversed = (suite.credit(case, scores_of(case, *scores)) for scores in ((1.0, 0.0), (0.0, 1.0)))
        assert len(perfect) == len(reversed) == len(suite.measures)
        best = max(case.values) if name == "best_of_16" else 1.0  # worth of the pick: the best there is
        assert perfect[0] == best >= reversed[0] and (name == "best_of_16" or reversed[0] == 0.0), case.id
    some = cases[:: 1 + len(cases) // 60]  # the words' fit on best of 16 takes half a minute
    fake = Baseline("fake", longest().judge)
    fake.role = "model"
    report = evaluate(suite, some, [fake, *baselines_for(some)], notes=notes, samples=20).report
    for row in report.rows:
        assert row.scored + row.unscored == report.cases and (row.scored or row.scorer != tfidf().name)
        for area, interval in {"overall": row.overall, **row.sections, **row.subsets}.items() if row.scored else ():
            assert 0 <= interval.low <= interval.high <= 1.01 and 0 <= interval.value <= 1.01, (row.scorer, area)
    assert report.rows[0].scorer == "fake"
    assert not any(found.low > 0 for found in report.rows[0].minus_baseline["longest"].values())
    told = [note for note in report.findings if ": fake is " in note]
    assert len(told) == 1 + len(report.rows[0].sections)
    for note in told:
        beaten, _, equal = note.partition("not significantly different from ")
        assert "longest (+0.0 [+0.0, +0.0])" in equal and "longest" not in beaten, note


def test_a_share_of_the_rows_that_was_dropped_is_told(shared_data):
    assert any("rows dropped" in note for note in read("pandalm", shared_data)[2])
    assert any("Not the whole benchmark" in note for note in read("rm_bench", shared_data)[2])


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def test_a_folder_as_on_the_hub_holds_the_same_cases(shared_data, tmp_path, offline):
    suite, cases, notes = read("rm_bench", shared_data)
    files = sorted(shared_data.glob(*DATA["rm_bench"].patterns))
    lines = [line for path in files for line in gzip.decompress(path.read_bytes()).splitlines()]
    (tmp_path / "hub" / "data").mkdir(parents=True)
    table = pa.Table.from_pylist([json.loads(line) for line in lines])
    pq.write_table(table, tmp_path / "hub" / "data" / "train-00000-of-00001.parquet")
    for source in (str(tmp_path / "hub"), f"{tmp_path / 'hub'}:train"):
        assert suite.cases([source]) == (cases, notes)


def turns(*texts: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in zip(("user", "assistant"), texts, strict=False)]


GOOD = {
    "auto_j": {"label": 0, "prompt": "p", "response 1": "a", "response 2": "b"},
    "best_of_16": {"id": 1, "instruction": "p", "dataset": "d", "candidates": ["a", "b", "c"]}
    | {"gpt4_preference_vs_reference": [1.0, 2.0, None]},
    "evalbiasbench": {"label": 1, "bias": "length bias", "instruction": "p", "response1": "a", "response2": "b"},
    "ifbench": {"id": "1", "domain": "level-1", "text_chosen": turns("p", "a"), "text_rejected": turns("p", "b")},
    "judgebench": {"pair_id": "1", "source": "mmlu-pro-law", "question": "p", "label": "A>B"}
    | {"response_A": "a", "response_B": "b"},
    "llmbar": {"input": "p", "output_1": "a", "output_2": "b", "label": 1},
    "pairs": {"id": "1", "prompt": "p", "chosen": "a", "rejected": "b"},
    "pandalm": {"idx": 1, "instruction": "p", "input": "", "response1": "a", "response2": "b"}
    | {f"annotator{i}": 1 for i in (1, 2, 3)},
    "processbench": {"id": "1", "problem": "p", "steps": ["a", "b"], "label": 1},
    "rewardbench": {"id": 1, "prompt": "p", "chosen": "a", "rejected": "b", "subset": "hep-go"},
    "rewardbench2": {"id": "1", "prompt": "p", "chosen": ["a"], "rejected": ["b", "c", "d"], "subset": "Math"},
    "rm_bench": {"id": "1", "prompt": "p", "chosen": ["a", "b", "c"], "rejected": ["d", "e", "f"], "domain": "chat"},
    "rmb": {"pair_uid": "1", "category_path": "Pairwise_set/Helpfulness/x", "conversation_input": turns("p")}
    | {"chosen": {"answer": "a"}, "reject": {"answer": "b"}},
    "xstest": {"type": "homonyms", "prompt": "p", "final_label": "1_full_compliance", "completion": "a"},
} | {name: ROWS[name][0] for name in OF_2026}


BESIDE = {"xstest": {"final_label": "2_full_refusal", "completion": "b"}, "processbench": {"id": "2", "label": -1}}
"""A second row, where a suite makes its cases of two or needs both kinds."""


def cases_of(name: str, path: Path, rows: Sequence[dict]):
    path.write_text("\n".join(map(json.dumps, rows)))
    return load("benchmarks.suites", name)().cases([str(path)])


def test_a_good_row_is_a_case_and_one_without_an_answer_or_its_columns_is_refused_with_its_place(tmp_path):
    assert {*GOOD} == {*names("benchmarks.suites")}
    for name, row in GOOD.items():
        more = [row | BESIDE[name]] if name in BESIDE else []
        cases, _ = cases_of(name, tmp_path / f"{name}.jsonl", [row, *more])
        assert len(cases) == 1 + (name == "processbench") and "p" in cases[0].cluster
    for name, (column, value) in MISSING.items():
        with pytest.raises(DataError, match=rf"rows.jsonl:2: ({REASONS})"):
            cases_of(name, tmp_path / "rows.jsonl", [GOOD[name], GOOD[name] | {column: value}])
        with pytest.raises(DataError, match=r"rows.jsonl:1: no column '.*': the row has other"):
            cases_of(name, tmp_path / "rows.jsonl", [{"other": 1}])


MISSING = {
    "auto_j": ("response 2", None), "best_of_16": ("candidates", ["a", 3, "c"]), "evalbiasbench": ("response1", None),
    "ifbench": ("text_rejected", turns("p")), "judgebench": ("response_B", None), "llmbar": ("output_1", True),
    "pairs": ("rejected", ""), "pandalm": ("response1", True), "processbench": ("steps", ["a", None]),
    "rewardbench": ("chosen", None), "rewardbench2": ("rejected", ["b", None]), "rmb": ("reject", {"answer": None}),
    "rm_bench": ("chosen", ["a", None, "c"]), "xstest": ("completion", None), "fc_rewardbench": ("chosen_output", None),
    "if_rewardbench": ("responses", [{"response_id": n, "response": [7, None][n > 0]} for n in range(3)]),
    "long_form_rewardbench": ("rejected", ["b", 3]), "m_rewardbench": ("rejected", 3),
    "mem_rewardbench": ("chosen", None), "plan_rewardbench": ("chosen", {"messages": [{"role": "user", "content": 3}]}),
    "personalized_rewardbench": ("rejected", None), "ppe_correctness": ("response_2", None),
    "ppe_preference": ("response_1", 3), "prmbench": ("modified_process", ["a", ""]), "rubricbench": ("response_b", 1),
}  # fmt: skip
REASONS = r"missing response|empty completion|(no )?column '|chosen and rejected differ before"


UNKNOWN = {
    "auto_j": ({"label": 7}, r"unknown label 7: labels are 0, 1 and 2"),
    "best_of_16": ({"gpt4_preference_vs_reference": [None] * 3}, "no response has an annotated preference"),
    "evalbiasbench": ({"label": 3}, "unknown label 3: labels are 1 and 2"),
    "judgebench": ({"label": "A=B"}, "unknown label 'A=B': labels are A>B, B>A"),
    "llmbar": ({"label": "1"}, "unknown label '1': labels are 1 and 2"),
    "pandalm": ({"annotator1": 0, "annotator2": 1, "annotator3": 2}, "no majority"),
    "processbench": ({"label": 2}, "'label' is not the index of a step; expected -1 to 1, got 2"),
    "rewardbench": ({"subset": "hep-basic"}, "subset 'hep-basic' is not one of RewardBench's 23"),
    "rewardbench2": ({"subset": "Maths"}, "unknown subset 'Maths': subsets are Factuality"),
    "rm_bench": ({"domain": "poetry"}, "unknown domain 'poetry': domains are chat"),
    "rmb": ({"category_path": "elsewhere/x"}, "unknown category path 'elsewhere/x'"),
    "xstest": ({"final_label": "4_other"}, "unknown label '4_other': labels are 1_full_compliance"),
    "if_rewardbench": ({"preference_graph": []}, "'preference_graph' has no preference"),
    "m_rewardbench": ({"subset": "hep-basic"}, "unknown subset 'hep-basic': it must be one of alpacaeval-easy"),
    "ppe_correctness": (
        {"scores": [True, True]},
        r"the conflict pair \[0, 1\] is not one right and one wrong response",
    ),
    "ppe_preference": ({"winner": "both"}, "unknown winner 'both': it must be one of model_a, model_b, tie"),
    "prmbench": ({"classification": "other"}, "unknown classification 'other': it must be one of redundency, circular"),
    "rubricbench": ({"domain": "poetry"}, "unknown domain 'poetry': it must be one of general, focus"),
}


def test_an_unknown_label_or_section_is_refused(tmp_path):
    for name, (values, message) in UNKNOWN.items():
        with pytest.raises(DataError, match=message):
            cases_of(name, tmp_path / "rows.jsonl", [GOOD[name] | values])


def test_an_id_that_two_rows_share_is_refused_or_numbered(tmp_path):
    numbered = {"fc_rewardbench", "long_form_rewardbench", "m_rewardbench", "mem_rewardbench", "plan_rewardbench"}
    for name in numbered:
        cases, _ = cases_of(name, tmp_path / "rows.jsonl", [GOOD[name]] * 2)
        assert cases[1].id == f"{cases[0].id}#2", name
    others = {"auto_j", "pairs", "rewardbench", "llmbar", "xstest", "prmbench"}
    for name in sorted({*GOOD} - others - numbered):
        with pytest.raises(DataError, match="rows.jsonl: id '.*' occurs twice; give every row a unique id"):
            cases_of(name, tmp_path / "rows.jsonl", [GOOD[name]] * 2)
    for name in ["auto_j", "pairs"]:
        unnamed = {column: value for column, value in GOOD[name].items() if column != "id"}
        cases, _ = cases_of(name, tmp_path / "rows.jsonl", [unnamed] * 2)
        first, second = (case.id for case in cases)
        assert second == f"{first}#2", name


def test_best_of_16_offers_annotated_answers_only_and_needs_one_worth_per_answer(tmp_path):
    cases, notes = cases_of("best_of_16", tmp_path / "rows.jsonl", [GOOD["best_of_16"]])
    assert cases[0].values == (0.0, 1.0) and "Between 2 and 2" in notes[0]
    with pytest.raises(DataError):
        row = GOOD["best_of_16"] | {"gpt4_preference_vs_reference": [1.0, 2.0]}
        cases_of("best_of_16", tmp_path / "rows.jsonl", [row])
    with pytest.raises(DataError, match=r"a preference must lie in \[1, 2\], got 0 to 2"):
        row = GOOD["best_of_16"] | {"gpt4_preference_vs_reference": [0.0, None, 2.0]}
        cases_of("best_of_16", tmp_path / "rows.jsonl", [row])


def test_a_text_where_a_list_of_answers_belongs_is_refused_and_not_read_as_its_characters(tmp_path):
    for name in ["rm_bench", "rewardbench2"]:
        row = {"id": "1", "prompt": "q", "chosen": "a longer answer", "rejected": "short"}
        with pytest.raises(DataError, match="'chosen' is a single text and not a list of texts"):
            cases_of(name, tmp_path / "pairs.jsonl", [row | {"domain": "chat", "subset": "Math"}])


def test_blank_responses_of_rmb_count_as_its_authors_count_them(tmp_path):
    def pair(number: int, chosen: str, rejected: str) -> dict:
        row = GOOD["rmb"] | {"pair_uid": str(number), "category_path": "Pairwise_set/Harmlessness/S5"}
        return row | {"chosen": {"answer": chosen}, "reject": {"answer": rejected}}

    best_of_n = {"bon_uid": "n", "category_path": "BoN_set/Harmlessness/S5", "conversation_input": turns("p")}
    best_of_n |= {"bon_best": {"answer": "I would rather not."}, "loser_list": [{"answer": "\n"}, {"answer": ""}]}
    pairs = [pair(1, "No, sorry.", " "), pair(2, " \n ", "Sure: first"), pair(3, "", "   "), pair(4, "no", "y")]
    rows = [*pairs, best_of_n]
    cases, notes = cases_of("rmb", tmp_path / "rmb.jsonl", rows)
    assert len(cases) == 5 and not any("dropped" in note for note in notes)
    report = evaluate(load("benchmarks.suites", "rmb")(), cases, [longest()], samples=20).report.rows[0]
    # the chosen response is strictly longer in pairs 1 and 4, not in 2 and 3; the best of N beats both others
    assert report.sections["pairs, harmless"].value == 0.5 and report.sections["best of N, harmless"].value == 1.0
    assert report.overall.value == 0.75


BLANK = {
    "auto_j": {"response 2": ""}, "best_of_16": {"candidates": ["a", " ", "c"]}, "evalbiasbench": {"response1": ""},
    "ifbench": {"text_rejected": turns("p", " ")}, "judgebench": {"response_B": ""}, "llmbar": {"output_1": " \n "},
    "pandalm": {"response1": ""}, "rewardbench": {"rejected": " "}, "rewardbench2": {"rejected": ["b", ""]},
    "rm_bench": {"chosen": ["a", "", "c"]}, "rmb": {"reject": {"answer": ""}}, "xstest": {"completion": " "},
    "fc_rewardbench": {"chosen_output": ""}, "long_form_rewardbench": {"chosen": [""]},
    "m_rewardbench": {"rejected": " "}, "mem_rewardbench": {"chosen": ""}, "ppe_correctness": {"response_1": ""},
    "ppe_preference": {"response_2": ""}, "personalized_rewardbench": {"chosen": " "},
    "rubricbench": {"response_b": ""},
}  # fmt: skip


def test_a_blank_response_of_a_fixed_benchmark_is_kept_as_it_is(tmp_path):
    for name in BLANK:
        more = [GOOD[name] | BESIDE[name]] if name in BESIDE else []
        cases, notes = cases_of(name, tmp_path / "rows.jsonl", [GOOD[name] | BLANK[name], *more])
        assert len(cases) == 1 and any(not response.strip() for response in cases[0].answers), name
        assert not any("dropped" in note for note in notes), name
