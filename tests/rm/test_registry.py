import json
import sys
from functools import partial

import pytest
import torch
from rewardlab.apps.cli import main
from rewardlab.benchmarks.suites.pairs import open_suite
from rewardlab.judges.types import Case
from rewardlab.rm.errors import UsageError
from rewardlab.rm.losses._pair_batch import PairBatch
from rewardlab.rm.losses._pair_losses import named_pair_loss
from rewardlab.rm.registry import load, names, plugins, reference
from rewardlab.rm.registry.specs import build
from rewardlab.rm.types import user_turn


def make(factor):
    def score(completions):
        return [factor * len(text) for text in completions]

    return score


class Scorer:
    def __call__(self, completions):
        return [0.0 for _ in completions]


def test_each_object_has_a_reference_of_its_own_which_loads_it():
    objects = [make(1), make(-1), lambda completions: [], partial(make(2)), Scorer(), Scorer(), Scorer().__call__]
    references = [reference(given) for given in objects]
    assert len({*references}) == len(objects)
    assert [load("rm.losses", name) for name in references] == objects
    assert [reference(given) for given in objects] == references
    assert [name.rpartition(":")[2] for name in references[:5]] == ["score", "score", "lambda", "score", "Scorer"]


def test_a_function_of_a_module_is_found_in_its_module_after_a_nested_one_of_its_name(monkeypatch):
    nested = make(1)
    reference(nested)

    def score(completions):
        return [-len(text) for text in completions]

    monkeypatch.setitem(globals(), "score", score)
    assert reference(score) == f"{__name__}:score" and load("rm.losses", reference(score)) is score
    assert load("rm.losses", reference(nested)) is nested


def test_an_edited_file_is_read_again_and_an_unchanged_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for factor in (2, 3):
        file.write_text(f"def score(x):\n    return {factor} * x\n")
        score = load("rm.losses", f"{file}:score")
        assert score(1) == factor and load("rm.losses", f"{file}:score") is score


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """An installed package that adds a loss, an estimator that cannot be imported, and a name that exists."""
    (tmp_path / "plugged.py").write_text(
        "from rewardlab.rm.losses.bradley_terry import bradley_terry\n\n\n"
        "def centred(center=0.0):\n    return bradley_terry(center)\n\n\n"
        "def hinge(pairs, margin=1.0):\n    return (margin - pairs.gap).clamp(min=0)\n\n\n"
        "def longest(prompt, responses):\n    return [len(text) for text in responses]\n\n\n"
        "def mean_gap(rewards, rollout):\n    return rewards - rewards.nanmean()\n\n\n"
        "def case(row):\n    return {'prompt': 'a', 'answers': [row['good'], 'bad'], 'best': 0}\n"
    )
    info = tmp_path / "plugged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rewardlab.losses]\ncentred = plugged:centred\nbradley_terry = plugged:centred\n"
        "hinge = plugged:hinge\n[rewardlab.suites]\ncase = plugged:case\n"
        "[rewardlab.judges]\nlongest = plugged:longest\n"
        "[rewardlab.advantages]\nbroken = plugged:absent\nmean_gap = plugged:mean_gap\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plugins.cache_clear()
    yield
    plugins.cache_clear()


def test_an_installed_package_adds_names_and_replaces_none(plugin):
    assert "centred" in names("rm.losses") and "centred" not in names("rm.kinds")
    assert load("rm.losses", "centred").__module__ == "plugged"
    assert load("rm.losses", "bradley_terry").__module__ == "rewardlab.rm.losses.bradley_terry"
    with pytest.raises(
        UsageError, match="the entry point broken = plugged:absent of an installed package cannot be loaded"
    ):
        load("policy.advantages", "broken")


def test_plain_functions_of_an_installed_package_are_used_as_those_of_a_file(plugin, tmp_path):
    half = torch.full((2,), 0.5)
    assert named_pair_loss("hinge(margin=2)")(PairBatch(half * 2, half, half)).tolist() == [1.5, 1.5]
    (judgment,) = build("judges.kinds", "longest")([Case("a", user_turn("a"), ("one", "seven"), (1,))])
    assert judgment.scores == (3.0, 5.0)
    assert build("policy.advantages", "mean_gap")(half * 2, None).tolist() == [0.0, 0.0]
    (tmp_path / "rows.jsonl").write_text('{"good": "fine"}\n')
    (case,), _ = open_suite("case", "refuse").cases([str(tmp_path / "rows.jsonl")])
    assert case.answers == ("fine", "bad")


def test_a_name_that_is_no_function_and_a_module_that_ends_the_program_are_refused(tmp_path):
    (tmp_path / "mine.py").write_text("LIMIT = 3\n")
    (tmp_path / "script.py").write_text("import sys\nsys.exit(7)\n")
    for name, message in (("mine.py:LIMIT", "'LIMIT' in .* is 3 and not a function"), ("script.py:f", "SystemExit: 7")):
        with pytest.raises(UsageError, match=message):
            load("policy.losses", f"{tmp_path}/{name}")


def test_an_error_in_a_users_factory_is_a_sentence(tmp_path):
    (tmp_path / "mine.py").write_text("def scorer(path='absent'):\n    return open(path)\n")
    with pytest.raises(UsageError, match=r"mine.py:scorer fails \(FileNotFoundError: .*'absent'\)"):
        build("policy.schedulers", f"{tmp_path}/mine.py:scorer")


def test_a_method_has_one_reference():
    scorer = Scorer()
    assert reference(scorer.__call__) == reference(scorer.__call__) != reference(Scorer().__call__)


def test_a_plug_ins_loss_trains_a_model(plugin, tmp_path):
    pairs = [{"prompt": f"Name {index}.", "chosen": "A fern.", "rejected": "No."} for index in range(8)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    small = ["--small_hidden", "8", "--small_layers", "1", "--small_vocabulary", "300", "--max_steps", "1"]
    data, output = str(tmp_path / "pairs.jsonl"), str(tmp_path / "model")
    assert main(["train", "--data", data, "--loss", "centred", *small, "--use_cpu", "True", "--output", output]) == 0
