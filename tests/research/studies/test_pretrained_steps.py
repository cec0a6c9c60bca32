import json

import numpy as np
import pytest
from rewardlab.benchmarks.statistics.first_error import NONE
from rewardlab.research.studies.pretrained_steps import pretrained_steps
from rewardlab.research.studies.pretrained_steps.models import OUTCOME, PROCESS, SHUFFLED, StepModel
from rewardlab.research.studies.pretrained_steps.report import best_of_n, first_errors, split_traces, threshold_of
from rewardlab.research.studies.pretrained_steps.texts import (
    PARTS,
    Candidates,
    Numbers,
    Texts,
    Trace,
    load_texts,
    part_of,
    prepared,
    solution_steps,
)

TEXTS = Texts(
    {},
    {
        "validation": [Trace("v", ["a", "b"], 1), Trace("w", ["a"], NONE)],
        "prm800k": [Trace("p", ["a", "b", "c"], 1), Trace("p", ["a", "b"], NONE)],
        "other": [Trace("q", ["a"], 0), Trace("r", ["a"], NONE)],
    },
    {"gsm8k": [Candidates("p", [["a", "b"], ["c"]], ["1", "2"], [True, False])]},
)


def test_a_problem_is_in_one_part_however_it_is_written_and_labels_are_of_training_problems(shared_data, tmp_path):
    name = prepared(shared_data.parent, tmp_path, Numbers(labels=60, wrong=1, traces=10, problems=3, candidates=4), 0)
    texts = load_texts(tmp_path, name)
    assert part_of("What is 2+2?") == part_of(" what is  2+2") and set(PARTS) == {"train", "validation", "test"}
    for rows in texts.labelled.values():
        assert len(rows) == 60 and sum(row.right for row in rows) == 30
        assert {part_of(row.problem) for row in rows} == {"train"}
    assert {part_of(trace.problem) for trace in texts.traces["prm800k"]} == {"test"}
    wrong = [trace for trace in texts.traces["prm800k"] if trace.first_error != NONE]
    assert wrong and all(trace.first_error == len(trace.steps) - 1 for trace in wrong)
    assert all(len(problem.answers) == 4 and len(set(problem.right)) == 2 for problem in texts.candidates["gsm8k"])


def test_steps_of_a_reply_are_the_sentences_of_its_reasoning():
    assert solution_steps('```json\n{"reasoning": "First. Then 1.5 more!\nSo 2.", "answer": "2"}\n```') == [
        "First.",
        "Then 1.5 more!",
        "So 2.",
    ]
    assert solution_steps("No JSON here. Two.") == ["No JSON here.", "Two."]


def test_labels_are_at_the_last_step_and_shuffled_ones_are_the_same_number(shared_data, tmp_path):
    name = prepared(shared_data.parent, tmp_path, Numbers(labels=40, wrong=1, traces=4, problems=1, candidates=2), 0)
    texts = load_texts(tmp_path, name)
    by_arm = {arm: StepModel(name, "x", 0, arm).solutions(texts) for arm in (PROCESS, OUTCOME, SHUFFLED)}
    for solutions in by_arm.values():
        assert all(np.isnan(solution.labels[:-1]).all() for solution in solutions)
        assert sum(solution.labels[-1] for solution in solutions) == 20
    assert [s.steps for s in by_arm[PROCESS]] == [s.steps for s in by_arm[SHUFFLED]]
    assert [s.labels[-1] for s in by_arm[PROCESS]] != [s.labels[-1] for s in by_arm[SHUFFLED]]
    assert by_arm[PROCESS][0].prompt != by_arm[OUTCOME][0].prompt


def test_first_errors_by_hand_are_found_at_the_validation_sets_threshold():
    scores = np.array([0.9, 0.1, 0.8, 0.9, 0.2, 0.9, 0.9, 0.7, 0.1, 0.9])
    by_set = split_traces(TEXTS, scores)
    assert [len(some) for some in by_set["prm800k"]] == [3, 2] and threshold_of(TEXTS, by_set) == pytest.approx(0.45)
    (row, *_) = first_errors(TEXTS, {PROCESS: scores}).report.rows
    assert row.overall.value == 1.0
    (worse, *_) = first_errors(
        TEXTS, {PROCESS: np.array([0.9, 0.1, 0.8, 0.9, 0.6, 0.9, 0.9, 0.7, 0.1, 0.9])}
    ).report.rows
    assert worse.overall.value == pytest.approx(0.5) and worse.sections["prm800k"].value == 0


def test_a_candidate_is_rewarded_by_its_worst_step_or_after_labels_of_answers_by_its_last():
    scores = np.array([0.2, 0.9, 0.5])
    report = best_of_n(TEXTS, {PROCESS: scores, OUTCOME: scores})["gsm8k"].report
    values = {row.scorer: row.overall.value for row in report.rows}
    assert values[PROCESS] == 0 and values[OUTCOME] == 1


def test_a_dry_run_trains_scores_and_reports(shared_data, tmp_path, small_language_model):
    study = pretrained_steps(
        shared_data.parent,
        tmp_path / "cache",
        rows=8,
        workers=1,
        model=small_language_model,
        log=lambda _: None,
    )
    assert "## First errors" in study.text and "process, seed 0" in study.text
    assert set(study.evaluations) == {"first-errors", "best-of-n-gsm8k", "best-of-n-math-l5"}
    assert json.dumps(study.facts)
