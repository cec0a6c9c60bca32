import pytest
from rewardlab.research.studies.human_preferences import human_preferences, without_prompts
from rewardlab.rm.types import PreferencePair, user_turn


@pytest.mark.slow
def test_the_study_runs_on_a_part_and_finds_its_results_again(shared_data, tmp_path):
    told: list[str] = []
    first, second = (human_preferences(shared_data, tmp_path, workers=1, rows=30, log=told.append) for _ in range(2))
    assert [line for line in told if "in the cache" in line] == [f"{n} of 12 models are in the cache" for n in (0, 12)]
    assert first.text == second.text
    held_out = first.evaluations["held-out"].report
    assert set(held_out.sizes) == {"HH harmless", "HH helpful", "UltraFeedback"}
    assert {row.scorer for row in held_out.rows} >= {"linear", "small LM", "longest", "prompt-blind tf-idf"}
    assert all(row.unscored == 0 for row in held_out.rows)
    assert "bad rows" in first.text and list(first.figures) == ["held-out", "rewardbench"]


def test_training_prompts_that_stand_in_rewardbench_are_dropped(shared_data):
    from rewardlab.research.studies.human_preferences import REWARDBENCH, _folds, training_pairs
    from rewardlab.rm.data.conversation_split import first_turn
    from rewardlab.rm.data.pairs import load_pairs

    bench, _ = load_pairs(str(shared_data / REWARDBENCH))
    pairs, dropped, reports = training_pairs(shared_data, [pair.prompt for pair in bench])
    assert len(pairs) + len(dropped) == sum(report.read - len(report.dropped) for report in reports.values())
    assert len(dropped) == 7 and sum(report.read for report in reports.values()) == 3772
    for fold in _folds(pairs, 0):
        seen = {first_turn(pairs[i].prompt) for i in fold.train}
        assert not seen & {first_turn(pairs[i].prompt) for i in fold.held_out}


def test_pairs_whose_prompt_stands_in_a_benchmark_are_dropped():
    def pair(text):
        return PreferencePair(text, user_turn(text), "x", "y")

    kept, dropped = without_prompts(
        [pair("How do I detail a car?"), pair("Other")], [user_turn("how do I  detail a car")]
    )
    assert [p.id for p in kept] == ["Other"] and [p.id for p in dropped] == ["How do I detail a car?"]
