import numpy as np
import pytest
from rewardlab.judges.kinds.route.distilled import distil
from rewardlab.judges.kinds.route.features import case_features
from rewardlab.judges.kinds.route.rule import load_rule
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import DataError
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.training.trainer import RewardArguments

from tests.judges.kinds.asking import case
from tests.judges.kinds.route.test_features import Members


def untrained(features):
    tokenizer = small_tokenizer([each.prompt for each in features] * 5, 300)
    return scalar_from_config(small_config(tokenizer, hidden=32), tokenizer, max_length=160)


def test_a_classifier_that_has_read_margins_needs_them_and_reloads_to_the_same_numbers(tmp_path):
    cases = [case(str(index), ("ab" * (1 + index), "a")) for index in range(8)]
    features = case_features(cases, Members())
    settings = {"num_train_epochs": 1, "learning_rate": 3e-3, "per_device_train_batch_size": 8, "save_strategy": "no"}
    arguments = RewardArguments(output_dir=str(tmp_path / "run"), use_cpu=True, disable_tqdm=True, **settings)
    rule = distil(untrained(features), features, np.linspace(0, 1, 8), arguments)
    assert rule.needs == ("margin", "spread")
    assert np.isnan(rule(case_features(cases[:1]))[0].probability)
    with pytest.raises(DataError, match="8 of 9 cases have a margin"):
        distil(rule.model, [*features, *case_features(cases[:1])], np.zeros(9), arguments)
    probabilities = [need.probability for need in rule(features)]
    assert all(0 <= probability <= 1 for probability in probabilities)
    rule.save(tmp_path / "rule")
    loaded = load_rule(tmp_path / "rule")
    assert [need.probability for need in loaded(features)] == pytest.approx(probabilities, abs=1e-6)
    assert loaded.contract == rule.contract and loaded.needs == rule.needs
