"""Several objectives, heads and members, and the losses of pairs, as a user trains and reads them."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from rewardlab.apps.cli import main
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden.models import tokenizer
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.rm.backbones.loading import small_config
from rewardlab.rm.data.pairs import pair_row
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.parity.parity import own_variants, parity
from rewardlab.rm.registry import trained_kinds
from rewardlab.rm.registry.settings import declarations

from tests.apps.commands.conftest import save_policy
from tests.apps.conftest import write

SMALL = ["--small_hidden", "32", "--small_vocabulary", "300"]
STEPS = ["--max_steps", "8", "--max_length", "64", "--learning_rate", "3e-3", "--per_device_train_batch_size", "8"]
STEPS += ["--disable_tqdm", "True", "--save_strategy", "no", "--use_cpu", "True"]
TAUGHT = garden.pairs(80, 0)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    write(folder / "pairs.jsonl", map(pair_row, TAUGHT))
    write(folder / "held.jsonl", map(pair_row, garden.pairs(30, 1, split="test")))
    for C in ("0.1", "10"):
        words = ["--kind", "linear", "--data", str(folder / "pairs.jsonl"), "--inverse_regularization", C]
        assert main(["train", *words, "--output", str(folder / f"linear-{C}")]) == 0
    return folder


@pytest.fixture
def train(world, tmp_path, capsys):
    """A run of the verb: exit code, last line, what it said, folder."""

    def run(*words, data="pairs.jsonl", output="rm"):
        kind = words[words.index("--kind") + 1] if "--kind" in words else "scalar"
        given = ["--data", str(world / data), "--golden", "4"] if data else []
        given += STEPS if trained_kinds()[kind].by_gradient and data else []
        given += SMALL if "small_hidden" in declarations(trained_kinds()[kind].settings) and data else []
        code = main(["train", *given, *map(str, words), "--output", str(tmp_path / output)])
        out, err = capsys.readouterr()
        return code, json.loads(out.strip().split("\n")[-1]) if code == 0 else {}, err, tmp_path / output

    return run


def manifest(folder) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def rated(world, folder, capsys) -> dict[str, np.ndarray]:
    out = folder.parent / "scores.parquet"
    words = ["score", "--model", str(folder), "--data", str(world / "held.jsonl"), "--output", str(out), "--overwrite"]
    assert main([*words, "--on_long", "truncate"]) == 0
    capsys.readouterr()
    return {name: np.array(column) for name, column in pq.read_table(out).to_pydict().items()}


def test_weighted_objectives_are_trained_scored_judged_and_reinforced_by_name(train, world, tmp_path, capsys):
    code, facts, err, folder = train("--objectives", "helpful", "harmless", "--weights", "helpful=0.7,harmless=-0.3")
    assert code == 0 and facts["weights"] == {"helpful": 0.7, "harmless": -0.3}
    assert "--weights: harmless=-0.3 is negative, so larger values lower the reward" in err
    ties = sum(pair.wins["harmless"] == 0.5 for pair in TAUGHT)
    assert ties and "data: 80 pairs and 0 scores for 'harmless', 0 rows without" in err, "a tie is a label"
    assert manifest(folder)["labels"]["helpful"] == {"pairs": 80, "scores": 0, "unlabelled": 0}
    scores = rated(world, folder, capsys)
    assert [*scores] == ["id", "file", "row", "truncated", "helpful", "harmless", "overall"]
    assert scores["overall"] == pytest.approx(0.7 * scores["helpful"] - 0.3 * scores["harmless"], abs=1e-5)
    run = tmp_path / "run"
    words = ["eval", "--model", str(folder), "--objective", "harmless", "--data", str(world / "held.jsonl")]
    assert main([*words, "--output", str(run), "--bootstrap_samples", "20"]) == 0
    judged = pq.read_table(run / "scores.parquet").to_pylist()
    assert any(abs(value - scores["harmless"][0]) < 1e-9 for row in judged for value in row["scores"] or [])
    assert RewardSources({"rm": load_reward_model(str(folder))}).names == ("rm.helpful", "rm.harmless", "rm.overall")


def test_learned_weights_come_from_held_pairs_and_are_kept(train, world):
    words = ["--objectives", "helpful", "harmless", "--weights", "learned_positive"]
    code, facts, err, folder = train(*words, "--eval_data", world / "held.jsonl")
    assert code == 0 and "learned weights" in err and min(facts["weights"].values()) >= 0
    assert {"eval_accuracy_helpful", "eval_accuracy_harmless"} <= manifest(folder).keys()
    assert load_reward_model(str(folder)).weights == facts["weights"]


def test_files_for_one_objective_each_and_pairs_without_its_label_are_unlabelled_for_the_other(train, world, tmp_path):
    rows = [json.loads(line) for line in (world / "held.jsonl").read_text().splitlines()]
    rows = [row | {"wins": {"harmless": 1.0} if index % 2 else {"other": 1.0}} for index, row in enumerate(rows)]
    write(tmp_path / "own.jsonl", rows)
    words = ["--objectives", "helpful", "harmless", "--data", f"helpful={world / 'pairs.jsonl'}"]
    code, _, _, folder = train(*words, f"harmless={tmp_path / 'own.jsonl'}", *SMALL, "--max_steps", 2, data=None)
    assert code == 0 and load_reward_model(str(folder)).contract.objectives == ("helpful", "harmless")
    labels = manifest(folder)["labels"]
    assert [labels[name]["unlabelled"] for name in ("helpful", "harmless")] == [15, 80]
    assert manifest(folder)["encoding"]["unlabelled"] == 15, "without any label"


@pytest.mark.parametrize("kind", ["scalar", "autoregressive", "latent", "linear", "boosted"])
def test_every_kind_learns_the_objective_of_either_name(kind, train, world, tmp_path):
    """Labels of 'helpful' and 'overall' contradict each other, so that a model of the other label is another one."""
    rows = [{**pair_row(pair), "wins": {"overall": 0.0, "helpful": 1.0}} for pair in TAUGHT[:16]]
    write(tmp_path / "contrary.jsonl", rows)
    words = ["--kind", kind, *(["--max_steps", "2"] if trained_kinds()[kind].by_gradient else [])]
    words += ["--members", world / "linear-0.1", world / "linear-10"] if kind == "boosted" else []
    words += ["--latent_alignment", "0"] if kind == "latent" else []
    if kind == "autoregressive":
        words += ["--model", save_policy(tmp_path / "base"), "--adapter", "genarm"]
    models = {}
    for setting, name in (("--objective", "helpful"), ("--objectives", "helpful"), ("--objective", "overall")):
        code, _, err, folder = train(*words, setting, name, data=tmp_path / "contrary.jsonl", output=setting + name)
        assert code == 0, err
        models[setting, name] = load_reward_model(str(folder))
    rewards = {names: model.rate(TAUGHT[0].examples).tolist() for names, model in models.items()}
    assert rewards["--objective", "helpful"] == rewards["--objectives", "helpful"]
    assert rewards["--objective", "helpful"] != rewards["--objective", "overall"]
    if kind == "scalar":
        assert {model.contract.objectives for model in models.values()} == {("reward",)}


def test_a_loss_takes_its_arguments_and_what_length_explains_is_told(train):
    code, _, err, folder = train("--loss", "length_controlled(learning_rate=0.2)")
    term = manifest(folder)["length_term"]["overall"]
    assert code == 0 and term["weight"] != 0 and term["scale"] > 1 and "the length term" in err
    assert load_reward_model(str(folder)).contract.objectives == ("reward",)


@pytest.fixture
def never_trains(monkeypatch):
    monkeypatch.setattr("rewardlab.rm.training.trainer.RewardTrainer.train", lambda *_, **__: pytest.fail("trained"))


def test_what_does_not_fit_together_is_refused(train, never_trains):
    for words, code, sentence in (
        (["--loss", "robust_bradley_terry(epsilon=0.7)"], 2, "in [0, 0.5), got 0.7"),
        (["--loss", "robust_bradley_terry(eps=0.1)"], 2, "no argument 'eps'"),
        (["--loss", "attribute_regression"], 2, "is not a loss of pairs"),
        (["--weights", "helpful=1"], 2, "need several objectives; name them with --objectives"),
        (
            ["--objectives", "helpful", "overall", "--weights", "helpful=1,overall=1"],
            2,
            "sum that --weights defines",
        ),
        (["--objectives", "helpful", "helpful"], 2, "--objectives: helpful is given twice"),
        (["--kind", "linear", "--objectives", "helpful", "harmless"], 2, "learns one objective"),
        (["--kind", "boosted", "--members", "a", "b", "--objectives", "c", "d"], 2, "learns one objective, got c, d"),
        (["--objective", "helpful", "--objectives", "harmless", "kind"], 2, "helpful is not one of --objectives"),
        (["--heads", "3"], 2, "--heads belongs to --kind multi_head, got scalar"),
        (["--kind", "multi_head", "--combine", "softmin(beta=x)"], 2, "its arguments must be numbers"),
        (["--kind", "ensemble", "--members", "a", "b"], 2, "remove --data and --eval_data"),
        (
            ["--kind", "ensemble", "--members", "a", "b", "--objective", "c"],
            2,
            "--objective belongs to --kind autoregressive, boosted",
        ),
        (
            ["--kind", "ensemble", "--members", "a", "b", "--objectives", "c", "d"],
            2,
            "scalar, got ensemble; leave it out",
        ),
        (["--kind", "ensemble", "--members", "a"], 2, "two or more --members"),
        (["--kind", "ensemble", "--members", "a,1", "b"], 2, "--members a,1, b: a comma separates the members"),
        (["--train_sampling_strategy", "group_by_length"], 2, "is for single texts; use random or sequential"),
        (["--kind", "boosted", "--members", "a"], 2, "or a boosted reward model needs two or more --members, got a"),
        (["--kind", "multi_head", "--heads", "1"], 2, "--heads must be at least 2, got 1"),
        (["--kind", "linear", "--eval_data", "held"], 2, "--eval_data belongs to --kind autoregressive"),
        (
            ["--kind", "boosted", "--members", "a", "b", "--eval_data", "held"],
            2,
            "and scalar, got boosted; leave it out",
        ),
        (
            ["--kind", "ensemble", "--members", "a", "b", "--stream"],
            2,
            "belongs to --kind autoregressive and scalar, got",
        ),
        (["--kind", "process", "--inverse_regularization", "2"], 2, "belongs to --kind embedding and linear, got"),
        (["--train_beta", "0.5"], 2, "--train_beta belongs to --kind autoregressive, got scalar; leave it out"),
        (["--lora_r", "4"], 2, "--lora_r belongs to --lora; add --lora, or remove --lora_r"),
        (["--stream_block", "9"], 2, "belongs to --stream; add --stream, or remove --stream_block"),
        (["--chat_template", "plain"], 2, "--chat_template belongs to --model"),
        (["--loss", "boosted"], 2, "the argument 'share' is missing"),
        (["--loss", "weak_margin"], 3, "80 of 80 pairs have none called 'other'"),
        (["--loss", "weak_margin", "--objectives", "helpful", "harmless"], 2, "remove --objectives"),
    ):
        found, _, err, folder = train(*words)
        assert found == code and sentence in err.strip().split("\n")[-1] and not folder.exists(), words


def test_a_saved_model_keeps_its_precision(train, never_trains, tmp_path):
    scalar_from_config(small_config(tokenizer(), hidden=16, layers=1), tokenizer(), max_length=64).save(tmp_path / "rm")
    code, _, err, _ = train("--model", tmp_path / "rm", "--dtype", "bfloat16", output="again")
    assert code == 2 and "was trained with dtype 'float32'" in err and "remove --dtype" in err


def test_several_heads_are_trained_and_their_spread_is_told(train, world, capsys):
    words = ["--kind", "multi_head", "--heads", "3", "--combine", "brme(share=0.5)", "--head_steps", "40"]
    code, _, _, folder = train(*words)
    assert code == 0
    scores = rated(world, folder, capsys)
    assert [*scores] == ["id", "file", "row", "truncated", "reward", "spread"] and (scores["spread"] > 0).all()
    model = load_reward_model(str(folder))
    held = [example for pair in garden.pairs(6, 1, split="test") for example in pair.examples]
    assert all(one.passed for one in parity(model, held, own_variants(model)))
    assert len((folder / "golden.jsonl").read_text().splitlines()) == 4


def test_members_become_an_ensemble_by_a_rule(train, world, capsys):
    members = ["--kind", "ensemble", "--members", world / "linear-0.1", world / "linear-10"]
    found = {}
    for rule in ("mean", "min"):
        code, facts, _, folder = train(*members, "--combine", rule, data=None, output=rule)
        assert code == 0 and facts["members"] == 2 and (folder / "golden.jsonl").exists()
        found[rule] = rated(world, folder, capsys)
    plain, spread = found["mean"]["reward"], found["mean"]["spread"]
    # two members lie their standard deviation to either side of the mean
    assert spread.max() > 0.1 and found["min"]["reward"] == pytest.approx(plain - spread)


def test_a_stage_is_trained_behind_another_and_both_become_one(train, world, capsys):
    first = world / "linear-0.1"
    code, _, _, stage = train("--loss", f"boosted(share=1.0, before={first})", "--eval_data", world / "held.jsonl")
    assert code == 0 and manifest(stage)["train_loss"] > 0
    code, facts, _, folder = train("--kind", "boosted", "--members", first, stage, output="both")
    assert code == 0 and facts["members"] == 2 and facts["pairs"] == 80 and facts["weights"][0] == 1
    alone, both = facts["losses"]
    assert both <= alone and manifest(folder)["losses"] == facts["losses"]
    held = rated(world, folder, capsys)["reward"]
    parts = [rated(world, one, capsys)["reward"] for one in (first, stage)]
    assert held == pytest.approx(parts[0] + facts["weights"][1] * parts[1], abs=1e-5)
