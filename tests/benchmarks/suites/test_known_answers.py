"""Published figures, added up again from published parts. Expected values are the authors'."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from rewardlab.benchmarks.baselines import Baseline
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.suites import judgebench, llmbar, pandalm, rewardbench2, rm_bench, rmb
from rewardlab.judges.types import Case, Judgment
from rewardlab.rm.types import user_turn

from tests.benchmarks.published import published_cells


def rows(path: Path) -> list[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        text = file.read()
    return json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.split("\n") if line.strip()]


def scored(suite, cases, scores):
    """The report of one scorer with the scores given."""

    def judge(cases):
        return [Judgment(case.id, scores=tuple(map(float, s))) for case, s in zip(cases, scores, strict=True)]

    return evaluate(suite, cases, [Baseline("stored", judge)], samples=20).report.rows[0]


def fake(id: str, answers: int, best, subset: str, **rest) -> Case:
    return Case(id, user_turn(id), tuple(f"answer {i}" for i in range(answers)), tuple(best), subset, id, **rest)


@pytest.fixture(scope="module")
def rewardbench2_fixture(shared_data):
    return json.loads((shared_data / "known_answers" / "rewardbench_v2" / "synthetic_fixture.json").read_text())


def test_rewardbench2_fixture_to_the_last_digit(rewardbench2_fixture):
    known = rewardbench2_fixture
    singles = [fake(f"{r['subset']}/{r['id']}", len(r["scores"]), (0,), r["subset"]) for r in known["best_of_4_rows"]]
    ties = [fake(f"Ties/{r['id']}", len(r["scores"]), range(r["num_correct"]), "Ties") for r in known["ties_rows"]]
    scores = {f"Ties/{r['id']}": r["scores"] for r in known["ties_rows"]}
    joined = rewardbench2._join_ties(ties)
    together = [
        [s for kind in ("ref", "tied") for s in scores.get(f"Ties/{kind}:{case.id.removeprefix('Ties/')}", [])]
        for case in joined
    ]
    suite = rewardbench2.rewardbench2()
    row = scored(suite, [*singles, *joined], [*(r["scores"] for r in known["best_of_4_rows"]), *together])
    for subset, expected in known["subset_expected"].items():
        assert row.sections[subset].value == pytest.approx(expected, abs=1e-9)
    assert row.overall.value == pytest.approx(known["overall_expected_mean_of_subsets_present"], abs=1e-9)
    for case, expected in zip(singles, known["best_of_4_rows"], strict=True):
        assert suite.credit(case, expected["scores"])[0] == pytest.approx(expected["expected_result"])
    expected, parts = rewardbench2_fixture["ties_expected"], defaultdict(dict)
    for row in rewardbench2_fixture["ties_rows"]:
        kind, _, number = row["id"].partition(":")
        n = row["num_correct"]
        parts[number][kind] = rewardbench2.part(row["scores"][:n], row["scores"][n:])
    found = [rewardbench2.ties_measures(one.get("ref"), one.get("tied")) for one in parts.values()]
    means = {name: np.nanmean([one[name] for one in found]) for name in rewardbench2.WEIGHTS}
    names = ["tied_accuracy", "ref_accuracy", *(f"correctness_{name}" for name in [*means][2:])]
    assert list(means.values()) == pytest.approx([expected[name] for name in names], abs=1e-12)


def test_rm_bench_fixture_to_the_last_digit(shared_data):
    known = json.loads((shared_data / "known_answers" / "rm_bench" / "synthetic_fixture.json").read_text())
    cases = [fake(str(row["id"]), 6, (0, 1, 2), row["domain"], sets=(3, 3)) for row in known["rows"]]

    def stored(row):
        return [*row["score_chosen"], *row["score_rejected"]]

    row = scored(rm_bench.rm_bench(), cases, [stored(r) for r in known["rows"]])
    names = {"hard_acc": "hard", "normal_acc": "normal", "easy_acc": "easy"}
    for name, expected in known["expected"].items():
        found = row.overall if name == "total_avg_acc" else row.sections[names.get(name, name)]
        assert found.value == pytest.approx(expected, abs=1e-9), name
    for domain, levels in known["expected_per_domain"].items():
        found = [(c, stored(r)) for c, r in zip(cases, known["rows"], strict=True) if c.subset.startswith(domain)]
        alone = scored(rm_bench.rm_bench(), *zip(*found, strict=True))
        for name, expected in levels.items():
            assert alone.sections[names[name]].value == pytest.approx(expected, abs=1e-9)


def test_rm_bench_leaderboard_rows_that_keep_their_own_identity(shared_data):
    table = json.loads((shared_data / "known_answers" / "rm_bench" / "leaderboard.json").read_text())["rows"]
    consistent = [row for row in table if row["check"] is not None and abs(row["check"]) <= 0.11]
    assert len(consistent) == 32
    for row in consistent:
        domains = published_cells({name: float(row[name.title()]) for name in ("chat", "math", "code", "safety")})
        levels = [float(row[name]) for name in ("Easy", "Normal", "Hard")]
        total = rm_bench.rm_bench().aggregate(_wide(domains))["overall"]
        assert total == pytest.approx(np.mean(levels), abs=0.111)


def _wide(cells):
    """The same figure under every measure, as a leaderboard has no others."""
    measures = rm_bench.RMBench.measures
    total, count = (np.repeat(table, len(measures), 1) for table in (cells.total, cells.count))
    return cells._replace(measures=measures, total=total, count=count)


def test_the_style_matrix_votes_and_margins_by_hand():
    # right answers 3, 1, 2 against wrong ones 2, 2, 0
    assert rm_bench.style_matrix([3, 1, 2, 2, 2, 0]).tolist() == [[1, 1, 1], [0, 0, 1], [0, 0, 1]]
    levels = dict(zip(rm_bench.RMBench.measures, rm_bench.rm_bench().credit(None, [3, 1, 2, 2, 2, 0]), strict=True))
    assert (levels["hard"], levels["normal"], levels["easy"]) == (1.0, pytest.approx(2 / 3), 0.0)
    assert judgebench.votes(["A>B", "B>A"]) == (2.0, 0.0)  # the second is about the answers exchanged
    assert judgebench.votes(["A>B", "A>B"]) == (1.0, 1.0)
    assert judgebench.votes(["A>B", "A=B"]) == (1.0, 0.0)
    assert judgebench.votes([None, None]) == (0.0, 0.0)
    assert [rewardbench2.relative_margin(gap, 0.0) for gap in (-1.0, 0.0, 2.0)] == [-1.0, 0.0, 1.0]
    assert rewardbench2.relative_margin(2.0, 1.0) == pytest.approx(np.tanh(1))


def test_rmb_counts_and_sections(shared_data):
    folder = shared_data / "known_answers" / "rmb"
    model = "RM-R1-Qwen2.5-Instruct-32B"
    published = json.loads((folder / f"{model}.meta.json").read_text())
    figures = {}
    for kind in ("harmlessness", "helpfulness"):
        total, _ = json.loads((folder / f"{model}.bon_{kind}.json").read_text())
        right, items = total["BoN Absolute Number of Correct"], total["BoN Absolute Total Numbers"]
        assert right / items == pytest.approx(published[f"BoN {kind.title()}"], abs=1e-12)
        figures[f"BoN_set/{kind.title()}/all"] = right / items
        overall, _ = json.loads((folder / f"{model}.pairwise_{kind}.json").read_text())
        figures[f"Pairwise_set/{kind.title()}/all"] = overall["Overall_accuracy"]
    found = rmb.rmb().aggregate(published_cells(figures))
    assert found["overall"] == pytest.approx(published["Accuracy Averaged from Four Sections"], abs=1e-12)
    assert found["best of N, harmless"] == pytest.approx(1111 / 1677)
    assert found["best of N, helpful"] == pytest.approx(1372 / 2109)


def test_a_best_of_n_item_counts_only_if_every_other_answer_is_beaten(shared_data):
    folder = shared_data / "rmb_format_sample"
    suite = rmb.rmb()
    cases, _ = suite.cases([str(folder / "pairwise.sample.jsonl.gz"), str(folder / "bon.sample.jsonl.gz")])
    assert len(cases) == 266 + 76
    best_of_n = next(case for case in cases if case.subset.startswith("BoN"))
    others = [0.0] * (len(best_of_n.answers) - 1)
    assert suite.credit(best_of_n, [1.0, *others]) == (1.0,)
    assert suite.credit(best_of_n, [1.0, *others[:-1], 1.0]) == (0.0,)


JUDGEBENCH = {
    "reward_model.Skywork_Skywork-Reward-Gemma-2-27B": 64.29,
    "reward_model.Skywork_Skywork-Reward-Llama-3.1-8B": 62.29,
    "reward_model.internlm_internlm2-7b-reward": 59.43,
    "arena_hard.o1-mini-2024-09-12": 65.71,
}


def test_judgebench_from_every_stored_verdict(shared_data):
    for name in JUDGEBENCH:
        folder = shared_data / "judgebench"
        suite = judgebench.judgebench()
        cases, _ = suite.cases([str(folder / "gpt-4o.jsonl.gz")])
        stored = {row["pair_id"]: row["judgments"] for row in rows(folder / "golden" / f"gpt-4o.{name}.jsonl.gz")}
        votes = [judgebench.votes([one["decision"] if one else None for one in stored[case.id]]) for case in cases]
        row = scored(suite, cases, votes)
        assert 100 * row.overall.value == pytest.approx(JUDGEBENCH[name], abs=0.005)
        assert set(row.sections) == {"knowledge", "reasoning", "math", "coding"}, name
    files = {path.name for path in (shared_data / "judgebench" / "golden").glob("*.jsonl.gz")}
    files.discard("gpt-4o.arena_hard.o1-mini.transcripts.jsonl.gz")  # raw replies behind the verdicts
    assert files == {f"gpt-4o.{name}.jsonl.gz" for name in JUDGEBENCH}


def test_llmbars_files_are_419_cases_and_the_set_is_the_one_that_the_path_names_last(tmp_path, shared_data):
    for path, subset in [
        ("natural-language/GPTInst/dataset.json", "GPTInst"),
        ("manual/LLMBar/Natural/dataset.json", "Natural"),
        ("data/natural/gptout.json", "GPTOut"),
        ("data/mine.json", "mine"),
    ]:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([{"input": "p", "output_1": "a", "output_2": "b", "label": 2}]))
        assert [case.subset for case in llmbar.llmbar().cases([str(file)])[0]] == [subset]
    cases, _ = llmbar.llmbar().cases([str(path) for path in sorted((shared_data / "llmbar").glob("llmbar__*.gz"))])
    assert len(cases) == 419 and {case.subset for case in cases} == set(llmbar.SETS)


def test_pandalm_annotators(shared_data):
    table = rows(shared_data / "pandalm" / "testset-v1.json.gz")
    a, b, c = ([row[name] for row in table] for name in pandalm.ANNOTATORS)
    majority = [pandalm.majority(labels) for labels in zip(a, b, c, strict=True)]
    assert [majority.count(label) for label in (0, 1, 2)] == [105, 422, 472]
