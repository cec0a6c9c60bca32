import copy
import json
import math
import pickle

import pytest
from rewardlab.rm.data.solutions import Solution, load_solutions, parse_first_error, parse_solutions
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import Steps, user_turn

NAN = math.nan
SHEPHERD = {
    "input": "Two eggs - and three? Step 1: 2 + 3 = 5 ки\nStep 2: 5 - 1 = 3 ки\nStep 3: The answer is: 3 ки",
    "label": "Two eggs - and three? Step 1: 2 + 3 = 5 +\nStep 2: 5 - 1 = 3 -\nStep 3: The answer is: 3 -",
    "task": "GSM8K",
}


def candidate(text, rating):
    return {"text": text, "rating": rating, "flagged": None}


def step(*candidates, human=None, chosen=None):
    answers = [candidate(*one) for one in candidates]
    return {"completions": answers, "human_completion": human, "chosen_completion": chosen}


STEPS = [
    step(("I count.", 0), chosen=0),
    step(("There are 5.", -1), ("There are 3.", -1), human=candidate("There are 4.", None) | {"source": "human"}),
    step(("So 4.", None), ("So 5.", -1), ("So, 4.", 1)),
]
ASKED = {"labeler": "a", "question": {"problem": "How many?", "ground_truth_answer": "4"}}
PRM800K = ASKED | {"label": {"steps": STEPS, "finish_reason": "found_error"}}


def labels_of(row, **options):
    return [(solution.steps, solution.labels) for solution in parse_solutions(row, **options)]


def same(labels, expected):
    return labels == pytest.approx(expected, nan_ok=True)


def test_the_formats_of_trl_and_ours_with_soft_labels_and_unlabelled_steps():
    row = {"prompt": "Which is larger?", "completions": ["11 beats 8.", "So 9.8."], "labels": [True, False]}
    (solution,) = parse_solutions(row | {"id": 7})
    assert solution == Solution("7", user_turn("Which is larger?"), ("11 beats 8.", "So 9.8."), (1.0, 0.0))
    (solution,) = parse_solutions({"prompt": "q", "steps": ["a", "b", "c"], "labels": [0.25, None, NAN]})
    assert same(solution.labels, (0.25, NAN, NAN)) and solution.example("\n").completion == "a\nb\nc"


def test_math_shepherd_reads_signs_only_at_the_tags_and_processbench_up_to_the_first_error():
    ((steps, labels),) = labels_of(SHEPHERD)
    assert steps == ("Step 1: 2 + 3 = 5", "Step 2: 5 - 1 = 3", "Step 3: The answer is: 3")
    assert labels == (1.0, 0.0, 0.0)
    assert parse_solutions(SHEPHERD)[0].prompt == user_turn("Two eggs - and three?")
    for label, labels in [(-1, (1, 1, 1)), (0, (0, NAN, NAN)), (1, (1, 0, NAN)), (2, (1, 1, 0))]:
        row = {"id": "gsm8k-0", "problem": "q", "steps": ["a", "b", "c"], "label": label}
        solution, first = parse_first_error(row)
        assert same(solution.labels, labels) and first == label and solution.id == "gsm8k-0"


def test_prm800k_gives_the_chosen_steps_and_every_alternative_once_with_a_setting_for_neutral_steps():
    chosen, *others = labels_of(PRM800K)
    assert chosen == (("I count.", "There are 4."), (1.0, 1.0))
    # the alternative without a rating is none
    endings = [("There are 5.",), ("There are 3.",), ("There are 4.", "So 5."), ("There are 4.", "So, 4.")]
    assert [steps for steps, _ in others] == [("I count.", *ending) for ending in endings]
    assert same(others[0][1], (NAN, 0.0)) and same(others[3][1], (NAN, NAN, 1.0))
    names = [solution.id for solution in parse_solutions(PRM800K | {"id": "x"})]
    assert names == ["x", "x/1", "x/2", "x/3", "x/4"]
    for neutral, label in [(0.5, 0.5), (0.0, 0.0), (NAN, NAN)]:
        assert same(labels_of(PRM800K, neutral=neutral)[0][1], (label, 1.0))
    with pytest.raises(UsageError, match=r"must lie in \[0, 1\]"):
        load_solutions("a.jsonl", neutral=2.0)


PLAIN = {"prompt": "q", "steps": ["a", "b"], "labels": [1, 0]}


def test_a_row_that_cannot_be_used_is_named_with_its_reason(tmp_path):
    for row, sentence in [
        (PLAIN | {"labels": [1]}, "labels do not fit the steps: 2 steps, and labels: 1"),
        (PLAIN | {"labels": "10"}, "labels do not fit the steps: 2 steps, and labels: '10'"),
        (PLAIN | {"labels": [1, -1]}, r"a label must be true, false, none or a number in \[0, 1\], got -1"),
        (PLAIN | {"labels": [None, None]}, "no step is labelled"),
        (PLAIN | {"steps": ["a", " "]}, "empty completion: 'step 2'"),
        (PLAIN | {"steps": [], "labels": []}, "no steps"),
        (PLAIN | {"steps": "ab"}, "'steps' is a single text"),
        ({"prompt": "q", "labels": [1]}, "no column 'steps'"),
        (SHEPHERD | {"input": "no tag"}, "no tag 'ки' ends the last step"),
        (SHEPHERD | {"label": SHEPHERD["label"].replace("= 3 -", "= 3 ?")}, "they differ at step 2"),
        ({"input": "q 2 ки", "label": "q 2 +"}, "no 'Step 1:' after the question"),
        ({"problem": "q", "steps": ["a"], "label": 1}, "expected -1 to 0, got 1"),
        ({"problem": "q", "steps": ["a"], "label": True}, "expected -1 to 0, got True"),
        (PRM800K | {"label": {"steps": [{"completions": [candidate("a", 2)]}]}}, "step 1 has 2"),
        (PRM800K | {"label": {"steps": [{"completions": [candidate("a", None)]}]}}, "no step has a rating"),
    ]:
        path = tmp_path / "steps.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in (PLAIN, row)))
        with pytest.raises(DataError, match=f"steps.jsonl:2: .*{sentence}"):
            load_solutions(str(path))
        solutions, report = load_solutions(str(path), on_bad_row="skip")
        assert len(solutions) == 1 and report.read == 2 and len(report.dropped) == 1, sentence


def test_all_formats_in_one_call_and_steps_that_keep_their_text(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(SHEPHERD) + "\n" + json.dumps(PRM800K) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps(PLAIN) + "\n")
    solutions, report = load_solutions([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])
    assert len(solutions) == 1 + 5 + 1 and report.ignored["task"] == 1
    steps = Steps(("a", "b"), "\n")
    for other in (copy.deepcopy(steps), pickle.loads(pickle.dumps(steps))):
        assert other == "a\nb" == steps and other.steps == ("a", "b") and isinstance(other, Steps)
