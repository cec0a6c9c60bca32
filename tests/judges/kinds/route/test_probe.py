import json

import numpy as np
import pytest
import torch
from rewardlab.judges.kinds.route import strong_needed
from rewardlab.judges.kinds.route.features import case_features
from rewardlab.judges.kinds.route.probe import LinearProbe, Probe, fit_logistic, fit_probe, open_embedder
from rewardlab.judges.kinds.route.rule import load_rule
from rewardlab.judges.types import Judgment
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import DataError
from rewardlab.rm.types import user_turn
from scipy.optimize import minimize
from scipy.special import expit
from transformers import AutoModelForCausalLM

from tests.judges.kinds.asking import case
from tests.judges.kinds.route.test_features import Members

WORDS = "sum a list of numbers tell the story short"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The folder of a small language model with random weights."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = small_tokenizer([WORDS] * 20, 300)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(small_config(tokenizer, hidden=32)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def code_and_stories(number):
    """Cases whose prompt is about code in every second one, and labels that say that code needs the strong judge."""
    texts = [f"{'Python: sum a list' if index % 2 else 'tell the short story'} {index}" for index in range(number)]
    cases = [case(str(index), prompt=user_turn(text)) for index, text in enumerate(texts)]
    return case_features(cases), np.arange(number) % 2


def test_the_strong_judge_is_needed_where_it_alone_is_right():
    cases = [case(str(index)) for index in range(5)]

    def judgments(*scores):
        return [Judgment("c", scores=s) if s else Judgment("c", abstained="no") for s in scores]

    right, wrong, tie = (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)
    needed = strong_needed(cases, judgments(right, wrong, tie, (), wrong), judgments(right, right, right, right, ()))
    assert needed.tolist() == [0, 1, 1, 1, 0]


def test_the_fit_minimises_the_stated_loss():
    draw = np.random.default_rng(0)
    inputs = draw.normal(3, 2, (60, 2))
    labels = (inputs[:, 0] + draw.normal(0, 2, 60) > 3).astype(int)
    linear, C = fit_logistic(inputs, labels, [str(i) for i in range(60)], C=0.3)
    z = (inputs - inputs.mean(0)) / inputs.std(0)

    def loss(values):
        logits = z @ values[:2] + values[2]
        return values[:2] @ values[:2] / 2 - 0.3 * np.log(expit(np.where(labels == 1, logits, -logits))).sum()

    expected = minimize(loss, np.zeros(3)).x
    assert C == 0.3 and [*linear.weights, *linear.bias] == pytest.approx(expected, abs=1e-3)


def test_a_probability_and_its_reason_by_hand_and_none_where_the_margin_is_missing():
    linear = LinearProbe(np.array([0.0, 2.0]), np.array([1.0, 2.0]), np.array([1.0, -1.0]), np.array([-1.0]))
    probe = Probe(["code", "Markdown difference"], linear)
    features = case_features([case(answers=("- a\n- b\n- c", "d"), prompt=user_turn("Use Python."))])
    # log-odds: -1 + 1 · (1 - 0) / 1 - 1 · (2 - 2) / 2 = 0
    need = probe(features)[0]
    assert need.probability == 0.5 and need.reason == "The main reason for the strong judge is code (+1.00)."
    assert probe.needs == () and probe([]) == []
    linear = LinearProbe(np.zeros(1), np.ones(1), np.ones(1), np.zeros(1))
    probe = Probe(["margin"], linear)
    known, missing = probe(case_features([case("1", ("abcd", "a")), case("2", ("a?", "b"))], Members()))
    assert known.probability == pytest.approx(expit(6.0)) and probe.needs == ("margin",)
    assert np.isnan(missing.probability) and missing.reason == "The case has no margin."
    with pytest.raises(DataError, match="1 of 2 cases have a missing value"):
        fit_probe(case_features([case("1"), case("2", ("a?", "b"))], Members()), np.array([0, 1]), inputs=["margin"])


def test_a_probe_learns_and_reloads_to_the_same_numbers(tmp_path):
    features, needed = code_and_stories(30)
    probe = fit_probe(features, needed)
    probabilities = np.array([need.probability for need in probe(features)])
    assert (probabilities[needed == 1].min() > 0.8) and (probabilities[needed == 0].max() < 0.2)
    assert [need.probability for need in probe(features[::-1])] == probabilities[::-1].tolist()
    probe.save(tmp_path / "probe")
    loaded = load_rule(tmp_path / "probe")
    assert loaded(features) == probe(features) and loaded.contract == probe.contract
    settings = json.loads((tmp_path / "probe/route.json").read_text())
    assert settings["facts"]["cases"] == 30 and settings["facts"]["needed"] == 15


def test_a_probe_on_hidden_states_reads_the_prompt_alone(encoder, tmp_path):
    features, needed = code_and_stories(30)
    embedder = open_embedder(str(encoder), cache=tmp_path / "cache.sqlite")
    probe = fit_probe(features, needed, inputs=(), embedder=embedder, C=1.0)
    needs = probe(features)
    assert np.corrcoef([need.probability for need in needs], needed)[0, 1] > 0.9
    assert "hidden states" in needs[0].reason
    other = case_features([case("9", ("quite other", "responses"), prompt=features[9].case.prompt)])
    assert probe(other)[0].probability == pytest.approx(needs[9].probability)
    probe.save(tmp_path / "probe")
    loaded = load_rule(tmp_path / "probe", cache=tmp_path / "cache.sqlite")
    assert loaded(features) == needs
    settings = json.loads((tmp_path / "probe/route.json").read_text())
    settings["encoder"]["fingerprint"] = "another"
    (tmp_path / "probe/route.json").write_text(json.dumps(settings))
    with pytest.raises(DataError, match="is not the one that the probe was fitted with"):
        load_rule(tmp_path / "probe")


def test_labels_that_teach_nothing_and_files_that_are_no_rule(tmp_path):
    features, needed = code_and_stories(12)
    with pytest.raises(DataError, match="0 of 12 cases need the strong judge; a probe needs at least 5"):
        fit_probe(features, 0 * needed)
    with pytest.raises(DataError, match="no routing rule"):
        load_rule(tmp_path)
    (tmp_path / "route.json").write_text('{"rule": "os"}')
    with pytest.raises(DataError, match="unknown rule 'os'; the rules are probe, distilled"):
        load_rule(tmp_path)
    fit_probe(features, needed).save(tmp_path)
    (tmp_path / "probe.safetensors").write_bytes(b"cut off")
    with pytest.raises(DataError, match="not a complete probe"):
        load_rule(tmp_path)
