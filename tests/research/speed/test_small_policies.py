"""research/speed/small_policies.py at toy size: that both paths do the same work, not how fast."""

import json

import pytest
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.research.speed.small_policies import Setting, Size, main, n_words, rates_of, sampling
from rewardlab.research.studies._runs.policies import unseen_prompts
from rewardlab.research.worlds.policies import untaught
from rewardlab.rm.types import Example, user_turn

TOY = Size(samples=(24,), rows=(16,), cycles=1, repeats=2, study_cycles=1, asked=64, seeds=2)


@pytest.fixture(scope="module")
def setting() -> Setting:
    start = causal_lm(tokenizer()).eval()
    reward = untaught(start, 0)
    reward.model.eval()
    return Setting(start, reward)


def test_rates_alternate_and_their_ratio_is_the_mean_of_pairs():
    calls = []

    def path(name: str, rate: float):
        return lambda repeat: (calls.append((name, repeat)), rate)[1]

    measured = rates_of(2, path("fast", 6.0), path("today", 2.0))
    assert calls == [("fast", 0), ("today", 0), ("fast", 1), ("today", 1)]
    assert measured["ratio"]["mean"] == pytest.approx(3) and measured["ratio"]["pairs"] == 2


def test_both_paths_sample_from_one_distribution(setting):
    measured = sampling(setting, 256, 1)
    assert measured["completions"] == 256
    assert min(measured["Kolmogorov-Smirnov p"].values()) > 1e-3


def test_words_and_prompts_are_counted():
    assert n_words([Example(user_turn("a"), "b c"), Example(user_turn("a"), "")]) == 2
    prompts = unseen_prompts(100)
    assert len(prompts) == 100 and prompts[0] == prompts[len({str(prompt) for prompt in prompts})]


@pytest.mark.slow
def test_the_script_writes_every_repeat_and_prints_ratios(setting, tmp_path, capsys):
    main(["--output", str(tmp_path / "measured.json")], setting, TOY)
    measured = json.loads((tmp_path / "measured.json").read_text())
    assert len(measured["training"]["16"]["fast"]) == len(measured["training"]["16"]["today"]) == 2
    assert {*measured["study"]["64"]["fast - today"]} == {"gold", "kl", "proxy", "words"}
    assert all(curve["kl"] > -1 for curve in measured["study"]["64"]["after training"]["today"])
    printed = capsys.readouterr().out
    assert "| sampling | 24 |" in printed and "| training | 16 |" in printed and "| study | 64 |" in printed
