import json

import numpy as np
import pytest
from rewardlab.rm.contract.golden_scores import write_golden
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.kinds.ensemble.model import EnsembleRewardModel, load_ensemble
from rewardlab.rm.kinds.linear.model import new_linear
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, PreferencePair, user_turn


class Fixed:
    def __init__(self, rewards, objectives=("reward",)):
        self.contract = ScoringContract(kind="fixed", objectives=objectives)
        self.rewards = np.array(rewards, float)[:, None]

    def rate(self, examples):
        return self.rewards[: len(examples)]


EXAMPLES = [Example(user_turn("q"), answer) for answer in ("kind stone", "rude stone")]


def test_mean_minus_disagreement_by_hand_of_members_of_the_same_objectives():
    members = [Fixed([1.0, 0.0]), Fixed([3.0, 0.0])]
    plain = EnsembleRewardModel(members, ["a", "b"])
    assert plain.rate(EXAMPLES)[:, 0].tolist() == [2.0, 0.0]
    # the members disagree by ±1 on the first answer
    assert EnsembleRewardModel(members, ["a", "b"], 0.5).rate(EXAMPLES)[:, 0].tolist() == [1.5, 0.0]
    with pytest.raises(UsageError, match="two or more members"):
        EnsembleRewardModel([Fixed([1.0])], ["a"])
    with pytest.raises(UsageError, match="same objectives"):
        EnsembleRewardModel([Fixed([1.0]), Fixed([1.0], ("harmless",))], ["a", "b"])
    with pytest.raises(UsageError, match="pessimism"):
        EnsembleRewardModel([Fixed([1.0]), Fixed([1.0])], ["a", "b"], -1.0)


def test_every_objective_is_standardised_by_its_own_golden_scores(tmp_path):
    """One member rates 'b' 100 times as coarsely as 'a', the other 'a' 100 times as coarsely as 'b'."""
    columns = np.array([[1.0, 300.0], [3.0, 100.0]]), np.array([[100.0, 3.0], [300.0, 1.0]])
    members = []
    for name, rewards in zip("xy", columns, strict=True):
        members.append(Fixed([0.0], ("a", "b")))
        members[-1].rewards = rewards
        (tmp_path / name).mkdir()
        write_golden(members[-1], EXAMPLES, tmp_path / name)
    both = EnsembleRewardModel(members, [str(tmp_path / name) for name in "xy"])
    assert both.spread(EXAMPLES).tolist() == [[[-1.0, 1.0], [1.0, -1.0]]] * 2


def fitted(folder, golden=True) -> str:
    """Two linear members of different scales in `folder`, as `ensemble` takes them."""
    random = np.random.default_rng(0)
    for name, C in (("a", 0.3), ("b", 30.0)):
        texts = [" ".join(random.choice(["stone", "river", "cloud"], 4)) for _ in range(40)]
        pairs = [PreferencePair(str(i), user_turn("q"), f"kind {t}", f"rude {t}") for i, t in enumerate(texts)]
        model = new_linear().fit(pairs, C=C)
        model.save(folder / name)
        if golden:
            write_golden(model, [pair.examples[i % 2] for i, pair in enumerate(pairs[:8])], folder / name)
    return f"{folder / 'a'},{folder / 'b'}"


def test_an_ensemble_standardises_its_members_saves_and_loads(tmp_path):
    both = load_ensemble(fitted(tmp_path), pessimism=0.5)
    spread = both.spread(EXAMPLES)[..., 0]
    assert np.abs(spread[0] - spread[1]).max() < 0.5, "members of other scales speak alike once standardised"
    assert both.rate(EXAMPLES)[0] > both.rate(EXAMPLES)[1]
    both.save(tmp_path / "both")
    assert load_reward_model(str(tmp_path / "both")).rate(EXAMPLES) == pytest.approx(both.rate(EXAMPLES))
    settings = json.loads((tmp_path / "both" / "ensemble.json").read_text())
    (tmp_path / "both" / "ensemble.json").write_text(json.dumps(settings | {"pessimism": 0.1}))
    with pytest.raises(DataError, match="have changed since it was built"):
        load_reward_model(str(tmp_path / "both"))
