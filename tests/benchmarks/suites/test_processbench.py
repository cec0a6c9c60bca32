"""ProcessBench by hand, its baselines, and the scores of a process reward model against those of its prefixes."""

import json

import numpy as np
import pytest
from rewardlab.apps.cli import main
from rewardlab.apps.runs.tables import read_items
from rewardlab.benchmarks.evaluate import evaluate
from rewardlab.benchmarks.scorers import StoredScores
from rewardlab.benchmarks.suites.processbench import label_of, processbench
from rewardlab.judges.kinds.reward_model import reward_model
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import DataError
from rewardlab.rm.kinds.process.model import process_from_config
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, Steps

ROWS = [
    {"id": "gsm8k-0", "problem": "p0", "steps": ["a", "b", "c"], "label": 1, "final_answer_correct": False},
    {"id": "gsm8k-1", "problem": "p1", "steps": ["a"], "label": 0},
    {"id": "gsm8k-2", "problem": "p2", "steps": ["a", "b"], "label": -1},
    {"id": "gsm8k-3", "problem": "p3", "steps": ["a", "b"], "label": -1},
    {"id": "math-0", "problem": "p4", "steps": ["a", "b\n\nc"], "label": 1},
    {"id": "math-1", "problem": "p5", "steps": ["a"], "label": -1},
]
SCORES = {
    "gsm8k-0": (0.9, 0.4, 0.1),  # found
    "gsm8k-1": (0.6,),  # missed
    "gsm8k-2": (0.9, 0.5),  # right: at the threshold is not below it
    "gsm8k-3": (0.9, 0.4),  # a false alarm
    "math-0": (0.8, 0.2),
    "math-1": (0.7,),
}


@pytest.fixture
def path(tmp_path) -> str:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(tmp_path / "rows.jsonl")


def test_f1_by_hand_beside_fixed_answers(path):
    suite = processbench()
    cases, _ = suite.cases([path])
    assert [label_of(case) for case in cases] == [row["label"] for row in ROWS]
    report = evaluate(suite, cases, [StoredScores("m", SCORES), *suite.baselines(cases)], samples=50).report
    rows = {row.scorer: row for row in report.rows}
    m = rows["m"]
    assert m.subsets["gsm8k/erroneous"].value == 0.5 and m.subsets["gsm8k/correct"].value == 0.5
    assert m.sections["gsm8k"].value == 0.5 and m.sections["math"].value == 1.0
    assert m.overall.value == 0.75 and m.ties == 0
    assert rows["no error"].subsets["gsm8k/correct"].value == 1 and rows["no error"].overall.value == 0
    assert rows["first step"].subsets["gsm8k/erroneous"].value == 0.5 and rows["first step"].overall.value == 0
    assert rows["last step"].subsets["math/erroneous"].value == 1
    assert {*m.minus_baseline} == {"no error", "first step", "last step", "random"}
    assert any("F1 is highest, " in finding for finding in report.findings)
    suite = processbench(threshold=0.3)
    cases, notes = suite.cases([path])
    assert suite.name == "processbench(threshold=0.3)" and "below 0.3" in notes[-1]
    (row,) = evaluate(suite, cases, [StoredScores("m", SCORES)], samples=50).report.rows
    assert row.sections["gsm8k"].value == 0  # correct ones are found, and no error any more
    cases, _ = processbench().cases([path])
    assert isinstance(cases[4].answers[1], Steps) and cases[4].answers[1].steps == ("a", "b\n\nc")


def test_margins_are_distances_from_the_threshold_by_hand(path):
    suite = processbench()
    cases, _ = suite.cases([path])
    margins = [suite.margin(case, SCORES[case.id]) for case in cases]
    assert margins == pytest.approx([0.1, -0.1, 0.0, -0.1, 0.3, 0.2])
    assert suite.margin(cases[0], (0.2, 0.9, 0.9)) == pytest.approx(-0.4)
    baselines = suite.baselines(cases)
    evaluation = evaluate(suite, cases, [StoredScores("m", SCORES), *baselines], samples=10)
    assert evaluation.margins["m"] == margins and evaluation.margins["last step"] == [-1, 1, -1, -1, 1, -1]
    assert not evaluation.report.compares and all(row.style == {} for row in evaluation.report.rows)


def test_a_group_of_one_kind_has_no_f1(tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[:-1]))
    with pytest.raises(DataError, match="no correct solution of math"):
        processbench().cases([str(tmp_path / "rows.jsonl")])


@pytest.fixture(scope="module")
def model():
    tokenizer = small_tokenizer(["a b c p0 p1 p2 " * 30], 270)
    return process_from_config(small_config(tokenizer, hidden=32, layers=1), tokenizer, step_separator="\n")


def test_a_process_model_reads_each_solution_once_and_gives_the_scores_of_its_prefixes(model, path, monkeypatch):
    cases, _ = processbench().cases([path])
    last = model.with_aggregate("last")
    expected = [[last.rate([Example(case.prompt, answer)])[0, 0] for answer in case.answers] for case in cases]
    read: list[int] = []
    logits = type(model).token_logits
    monkeypatch.setattr(type(model), "token_logits", lambda self, rows: read.append(len(rows)) or logits(self, rows))
    judged = reward_model(model)(cases)
    assert read == [len(cases)]
    for judgment, scores in zip(judged, expected, strict=True):
        assert np.allclose(judgment.scores, scores, atol=1e-6)


def test_the_minimum_over_prefixes_predicts_the_same_first_error(model, path):
    suite = processbench(threshold=0.48)
    cases, _ = suite.cases([path])
    steps = reward_model(model)(cases)

    class OnlyRewards:
        contract = model.contract
        rate = staticmethod(model.rate)

    for case, first, second in zip(cases, steps, reward_model(OnlyRewards())(cases), strict=True):
        assert suite.credit(case, first.scores) == suite.credit(case, second.scores)


def test_the_verb_evaluates_verifies_and_shows_the_figures(model, path, tmp_path, capsys):
    model.save(tmp_path / "prm")
    assert load_reward_model(str(tmp_path / "prm")).contract == model.contract
    run = tmp_path / "run"
    words = ["eval", "--benchmark", "processbench(threshold=0.4)", "--model", str(tmp_path / "prm")]
    assert main([*words, "--data", path, "--output", str(run), "--bootstrap_samples", "50"]) == 0
    report = (run / "report.md").read_text()
    assert "gsm8k/erroneous" in report and "no error" in report and "a tie is wrong" not in report
    assert main(["verify", str(run)]) == 0
    assert "## Style" not in report and not (run / "calibration.png").exists()
    assert read_items(run) == (cases := processbench().cases([path])[0])
    assert [answer.steps for answer in read_items(run)[4].answers] == [answer.steps for answer in cases[4].answers]
    assert main(["card", str(tmp_path / "prm"), "--runs", str(run)]) == 0
    capsys.readouterr()
    assert main([*words[:2], "processbench(thresh=0.4)", *words[3:], "--data", path, "--output", str(run)]) == 2
    assert "did you mean 'threshold'?" in capsys.readouterr().err
