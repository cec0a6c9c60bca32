import json
import math
from dataclasses import replace

import numpy as np
import pytest
from rewardlab.rm.data.pairs import RowReport
from rewardlab.rm.data.scored_rows import Judged
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.boosted import BoostedSettings
from rewardlab.rm.kinds.boosted.model import BoostedRewardModel, load_boosted, pair_losses, stage_weight, stage_weights
from rewardlab.rm.kinds.boosted.training import BoostedTraining
from rewardlab.rm.kinds.linear.model import new_linear
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.parity.parity import own_variants, parity
from rewardlab.rm.training.protocol import TrainingData
from rewardlab.rm.training.trainer import RewardArguments
from rewardlab.rm.types import Example, PreferencePair, user_turn

from tests.rm.kinds.test_ensemble import Fixed

EXAMPLES = [Example(user_turn("q"), answer) for answer in ("kind stone", "rude stone")]


def array(*values) -> np.ndarray:
    return np.array(values, float)


def test_a_stage_weight_by_hand_is_0_where_it_leads_away():
    """Gaps of 1 that are right in 3 of 4 pairs: σ(λ) = 3/4 and λ = log 3; behind gaps of 1 already, log 3 - 1."""
    own, wins = np.ones(4), array(1, 1, 1, 0)
    assert stage_weight(np.zeros(4), own, wins, 1e-9) == pytest.approx(math.log(3), abs=1e-6)
    assert stage_weight(np.ones(4), own, wins, 1e-9) == pytest.approx(math.log(3) - 1, abs=1e-6)
    # half as large gaps weigh twice as much
    assert stage_weight(np.zeros(4), own / 2, wins, 1e-9) == pytest.approx(2 * math.log(3), abs=1e-6)
    assert stage_weight(np.zeros(4), np.ones(4), array(0, 0, 0, 1), 1e-3) == 0
    assert stage_weight(np.full(4, 5.0), np.ones(4), array(1, 1, 1, 0), 1e-3) == 0
    assert stage_weight(np.zeros(2), np.zeros(2), array(1, 0), 1e-3) == 0
    assert stage_weights([own] * 3, wins, 1e-9) == pytest.approx([1, math.log(3) - 1, 0], abs=1e-5)
    assert pair_losses(array(0, 1000, -1000), array(1, 1, 0.5)).tolist() == pytest.approx([math.log(2), 0, 500])


def test_a_stage_that_is_always_right_has_a_finite_weight_that_shrinking_sets():
    """σ(-λ) = s λ: at s = 0.1, 1 / (1 + e^λ) = λ / 10."""
    found = stage_weight(np.zeros(3), np.ones(3), np.ones(3), 0.1)
    assert 1 / (1 + math.exp(found)) == pytest.approx(found / 10)
    less, more = (stage_weight(np.zeros(3), np.ones(3), np.ones(3), shrink) for shrink in (1e-3, 1.0))
    assert less > found > more
    with pytest.raises(ValueError, match="shrink must be above 0, got 0"):
        stage_weight(np.zeros(2), np.ones(2), np.ones(2), 0.0)


def test_it_is_the_weighted_sum_and_what_makes_no_chain_is_refused():
    made = BoostedRewardModel([Fixed([1.0, 0.0]), Fixed([3.0, -1.0])], ["a", "b"], [1.0, 0.5])
    assert made.rate(EXAMPLES)[:, 0].tolist() == [2.5, -0.5]
    assert made.contract.objectives == ("reward",)
    with pytest.raises(UsageError, match="two or more stages"):
        BoostedRewardModel([Fixed([1.0])], ["a"], [1.0])
    with pytest.raises(UsageError, match="same objectives"):
        BoostedRewardModel([Fixed([1.0]), Fixed([1.0], ("harmless",))], ["a", "b"], [1.0, 1.0])
    with pytest.raises(UsageError, match=r"as many finite weights, got \[1.0\]"):
        BoostedRewardModel([Fixed([1.0]), Fixed([1.0])], ["a", "b"], [1.0])
    several = Fixed([1.0, 2.0], ("helpful", "harmless"))
    pair = PreferencePair("p", user_turn("q"), "kind stone", "rude stone")
    with pytest.raises(UsageError, match="a stage must have one objective, got helpful, harmless"):
        BoostedRewardModel.fitted([several, several], ["a", "b"], [pair])
    with pytest.raises(DataError, match="no pair has a label for 'harmless'"):
        BoostedRewardModel.fitted([Fixed([1.0, 0.0])] * 2, ["a", "b"], [pair], objective="harmless")


def test_a_pair_that_a_stage_cannot_score_and_a_folder_without_one_are_told(tmp_path):
    pairs = [PreferencePair(name, user_turn("q"), "kind stone", "rude stone") for name in "ab"]
    with pytest.raises(DataError, match="stage 2 has no finite reward for 1 of 2 pairs, first 'b'"):
        BoostedRewardModel.fitted([Fixed([1.0, 0, 1, 0]), Fixed([1.0, 0, np.nan, 0])], ["x", "y"], pairs)
    with pytest.raises(DataError, match="train one with rewardlab train --kind boosted"):
        load_boosted(str(tmp_path))


def taught(words, n=40, seed=0) -> list[PreferencePair]:
    draw = np.random.default_rng(seed)
    made = [(" ".join(draw.choice(["stone", "river", "cloud"], 3)), draw.choice(words)) for _ in range(n)]
    return [PreferencePair(str(i), user_turn("q"), f"{w} {t}", f"un{w} {t}") for i, (t, w) in enumerate(made)]


def test_stages_that_know_different_things_are_put_together_saved_and_loaded(tmp_path):
    """One stage knows kindness, the other truth; pairs are about both."""
    for name in ("kind", "true"):
        new_linear().fit(taught([name]), C=10.0).save(tmp_path / name)
    folders = [str(tmp_path / name) for name in ("kind", "true")]
    both, stages = taught(["kind", "true"], seed=1), [load_reward_model(one) for one in folders]
    made = BoostedRewardModel.fitted(stages, folders, both)
    first, together = made.losses(both)
    assert made.weights[0] == 1 and made.weights[1] > 0.5 and together < 0.6 * first
    alone = stages[0].rate([pair.examples[0] for pair in both]) - stages[0].rate([pair.examples[1] for pair in both])
    assert first == pytest.approx(np.log1p(np.exp(-alone)).mean())
    lines: list[str] = []
    training = BoostedTraining(BoostedSettings(members=folders), RewardArguments(use_cpu=True), report=lines.append)
    unlabelled = replace(both[0], wins={"kind": 1.0})
    read = TrainingData(Judged([*both, unlabelled], []), Judged([], []), RowReport(), RowReport())
    assert training.prepare(read).facts["encoding"] == {"pairs": 41, "unlabelled": 1, "kept": 40}
    assert lines == ["data: 1 of 41 pairs unlabelled for 'overall', left out"]
    made.save(tmp_path / "both")
    again = load_reward_model(str(tmp_path / "both"))
    examples = [example for pair in both[:6] for example in pair.examples]
    assert again.rate(examples).tolist() == made.rate(examples).tolist()
    assert [one.passed for one in parity(again, examples, own_variants(again))] == [True, True]
    settings = json.loads((tmp_path / "both" / "boosted.json").read_text())
    (tmp_path / "both" / "boosted.json").write_text(json.dumps(settings | {"weights": [1.0, 7.0]}))
    with pytest.raises(DataError, match="have changed since it was built"):
        load_reward_model(str(tmp_path / "both"))
    (tmp_path / "both" / "boosted.json").write_text("{}")
    with pytest.raises(DataError, match="not the settings of a boosted model"):
        load_reward_model(str(tmp_path / "both"))
