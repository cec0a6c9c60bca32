"""`rewardlab merge` gives the same scores without PEFT; `rewardlab card` shows figures of this model's runs only."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import rewardlab as rl_api
import torch
import yaml
from peft import LoraConfig
from rewardlab.apps.cli import main
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.contract.golden_scores import GOLDEN, read_golden, write_golden
from rewardlab.rm.contract.scoring_contract import load_contract
from rewardlab.rm.kinds.autoregressive.model import load_autoregressive
from rewardlab.rm.kinds.ensemble.combination import MemberRule
from rewardlab.rm.kinds.multi_head.model import MultiHeadRewardModel
from rewardlab.rm.kinds.multi_head.uncertain_heads import Heads
from rewardlab.rm.kinds.scalar.model import load_scalar
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.types import Example, user_turn
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from tests.apps.commands.conftest import judged_pairs
from tests.apps.conftest import write

EXAMPLES = [Example(user_turn("roba kano"), "misu " * n) for n in (1, 2, 5, 9)]
PAIRS = [{"prompt": f"roba {n}", "chosen": "misu " * n, "rejected": "suli " * n} for n in range(1, 7)]
LEAN = {"helpful": 0.75, "harmless": 0.25}


def refused(words, code: int, sentence: str, capsys) -> None:
    assert main([*map(str, words)]) == code
    said = capsys.readouterr().err.strip().split("\n")[-1]
    assert re.search(sentence, said), said


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    words = small_tokenizer(["roba kano misu suli teke"] * 40, 300)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(small_config(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture
def lora(base, tmp_path) -> Path:
    settings = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    model = load_scalar(str(base), fresh=True, lora=settings)
    model.save(tmp_path / "lora")
    write_golden(model, EXAMPLES, tmp_path / "lora")
    return tmp_path / "lora"


def test_a_merged_lora_is_a_plain_folder_with_the_same_contract_and_scores(lora, tmp_path, capsys):
    assert main(["merge", str(lora), "--output", str(tmp_path / "plain")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["contract"] == load_contract(lora).hash() and facts["golden_difference"] < 1e-5
    assert not list((tmp_path / "plain").glob("adapter*"))
    model = load_reward_model(str(tmp_path / "plain"))
    assert np.allclose(model.rate(EXAMPLES), read_golden(lora)[1], atol=1e-5)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain").eval()
    ids = torch.tensor([model.encoder.encode(EXAMPLES[2]).ids])
    assert plain(ids).logits.item() == pytest.approx(read_golden(lora)[1][2, 0], abs=1e-5)


def test_the_lora_below_several_heads_is_merged(lora, tmp_path):
    torch.manual_seed(0)
    heads = Heads(64, 3).requires_grad_(False)
    MultiHeadRewardModel(load_scalar(str(lora)), heads, MemberRule("mean", {})).save(tmp_path / "heads")
    assert main(["merge", str(tmp_path / "heads"), "--output", str(tmp_path / "plain")]) == 0
    assert not list((tmp_path / "plain").rglob("adapter*"))
    before, after = (load_reward_model(str(tmp_path / name)) for name in ("heads", "plain"))
    assert after.contract == before.contract and np.ptp(before.rate(EXAMPLES)) > 1e-3
    assert np.allclose(after.rate(EXAMPLES), before.rate(EXAMPLES), atol=1e-5)


def test_a_value_head_checkpoint_becomes_a_plain_folder(base, tmp_path, capsys):
    shutil.copytree(base, tmp_path / "trl")
    file = tmp_path / "trl" / "model.safetensors"
    weight = 0.3 * torch.randn(1, 64, generator=torch.Generator().manual_seed(1))
    head = {"v_head.summary.weight": weight, "v_head.summary.bias": torch.tensor([0.7])}
    save_file(load_file(file) | head, file, metadata={"format": "pt"})
    assert main(["merge", str(tmp_path / "trl"), "--output", str(tmp_path / "plain")]) == 0
    assert "saved as score.bias" in capsys.readouterr().err
    kept = load_file(tmp_path / "plain" / "model.safetensors")
    assert torch.equal(kept["score.weight"], weight) and kept["score.bias"].tolist() == [pytest.approx(0.7)]
    before, after = (load_reward_model(str(tmp_path / name)).rate(EXAMPLES) for name in ("trl", "plain"))
    assert np.array_equal(before, after)


def test_scores_that_changed_leave_no_folder_and_without_golden_scores_some_are_made(lora, tmp_path, capsys):
    rows = [json.loads(line) for line in (lora / GOLDEN).read_text().splitlines()]
    rows[0]["rewards"] = [9.0]
    write(lora / GOLDEN, rows)
    refused(["merge", lora, "--output", tmp_path / "plain"], 5, r"now scores .* was saved with \[9.0\]", capsys)
    assert not (tmp_path / "plain").exists()
    (lora / GOLDEN).unlink()
    assert main(["merge", str(lora), "--output", str(tmp_path / "plain")]) == 0
    assert len(read_golden(tmp_path / "plain")[0]) == 4


def test_what_has_nothing_to_merge_is_refused(lora, base, guide, tmp_path, capsys):
    assert main(["merge", str(lora), "--output", str(tmp_path / "plain")]) == 0
    out, shifted = ["--output", tmp_path / "again"], guide(kind="moslora")
    refused(
        ["merge", shifted, *out],
        2,
        "depends on a preference over helpful, harmless; choose one with --preference",
        capsys,
    )
    refused(["merge", shifted, *out, "--preference", "helpful=1"], 2, "its shift needs biases", capsys)
    refused(["merge", tmp_path / "plain", *out], 2, "no adapter in it .kind 'scalar'., so there is nothing", capsys)
    refused(["merge", lora, *out, "--preference", "a=1"], 2, "takes no preference", capsys)
    refused(["merge", base, *out], 3, "lack score.weight", capsys)
    assert not (tmp_path / "again").exists()


@pytest.fixture
def guide(base, tmp_path):
    """An adapter that follows two objectives, with weights that do something."""

    def make(**settings) -> Path:
        chosen = AdapterSettings(objectives=("helpful", "harmless"), embedding="one_hot", **settings)
        model = load_autoregressive(str(base), adapter=chosen)
        for place, one in enumerate(one for one in model.adapter.model.parameters() if one.requires_grad):
            torch.nn.init.normal_(one, std=0.2, generator=torch.Generator().manual_seed(place))
        model.save(tmp_path / "guide")
        write_golden(model, EXAMPLES, tmp_path / "guide")
        return tmp_path / "guide"

    return make


def test_a_guide_is_merged_at_one_preference(guide, tmp_path):
    folder = guide(kind="pblora")
    wanted = load_reward_model(str(folder)).at(LEAN).rate(EXAMPLES)
    words = ["merge", str(folder), "--output", str(tmp_path / "plain"), "--preference", "helpful=0.75,harmless=0.25"]
    assert main(words) == 0
    plain = load_reward_model(str(tmp_path / "plain"))
    assert plain.adapter is None and plain.contract.objectives == ("helpful=0.75,harmless=0.25",)
    assert np.allclose(plain.rate(EXAMPLES), wanted, rtol=1e-5)
    elsewhere = load_reward_model(str(folder)).at({"helpful": 0.25, "harmless": 0.75}).rate(EXAMPLES)
    assert np.abs(elsewhere - wanted).max() > 1e-3  # the preference does something
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "plain").config.model_type == "qwen3"


@pytest.fixture(scope="module")
def sentiment(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("foreign") / "sentiment"
    words = small_tokenizer(["roba kano misu suli teke 123456"] * 40, 300)
    words.truncation_side = words.init_kwargs["truncation_side"] = (
        "left"  # as the contract cuts, for a comparison with plain Transformers
    )
    config = small_config(words)
    config.id2label, config.label2id = {0: "NEGATIVE", 1: "POSITIVE"}, {"NEGATIVE": 0, "POSITIVE": 1}
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def merged(sentiment, tmp_path_factory) -> str:
    """The positive class as a reward model with a contract."""
    folder = tmp_path_factory.mktemp("merged") / "positive"
    assert main(["merge", sentiment, "--objective", "POSITIVE", "--eos", "once", "--output", str(folder)]) == 0
    return str(folder)


def rewards(model, **settings) -> np.ndarray:
    scores = rl_api.score(model, PAIRS, **settings)
    return scores.to_pandas()["POSITIVE"].to_numpy()


def test_the_named_class_is_the_reward_of_every_verb_and_of_what_merge_writes(sentiment, merged):
    contract = load_contract(Path(merged))
    assert (contract.objectives, contract.eos) == (("POSITIVE",), "once")
    assert rewards(merged) == pytest.approx(rewards(sentiment, objective="POSITIVE", eos="once"), abs=1e-6)
    assert rl_api.load(merged).objectives == rl_api.load(sentiment, objective="POSITIVE").objectives
    evaluation = rl_api.evaluate(sentiment, PAIRS, objective="POSITIVE", bootstrap_samples=20, baselines="none")
    scores = rewards(sentiment, objective="POSITIVE").reshape(-1, 2)
    assert evaluation.overall["sentiment"].value == (scores[:, 0] > scores[:, 1]).mean()


def test_parity_compares_the_named_class_with_plain_transformers(sentiment, tmp_path):
    words = [sentiment, "--objective", "POSITIVE", "--eos", "template", "--fresh", "False", "--against", "checkpoint"]
    report = tmp_path / "parity.md"
    assert main(["parity", *words, "--output", str(report)]) == 0
    ways = {way["way"]: way for way in json.loads(report.with_suffix(".json").read_text())["ways"]}
    assert ways["plain Transformers"]["largest"] < 1e-5


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """Two linear models of the same contract, one of hostile name, and a run of each."""
    folder = tmp_path_factory.mktemp("card")
    test = write(folder / "test.jsonl", judged_pairs(2, 120, 0.9))
    for name, good in (("<b>rm", 0.95), ("other", 0.5)):
        train = write(folder / "train.jsonl", judged_pairs(1, 120, good))
        assert main(["train", "--kind", "linear", "--data", train, "--output", str(folder / name)]) == 0
        words = ["--model", str(folder / name), "--data", test, "--output", str(folder / f"eval-{name}")]
        assert main(["eval", *words, "--bootstrap_samples", "50"]) == 0
    return folder


@pytest.fixture
def model(measured, tmp_path) -> Path:
    return Path(shutil.copytree(measured / "<b>rm", tmp_path / "<b>rm"))


def test_every_figure_of_the_card_stands_in_a_file(model, measured):
    run = measured / "eval-<b>rm"
    assert main(["card", str(model), "--runs", str(run)]) == 0
    card = (model / "README.md").read_text()
    summary, manifest = (json.loads((run / name).read_text()) for name in ("summary.json", "manifest.json"))
    header = yaml.safe_load(card.split("---\n")[1])
    (result,) = header["model-index"][0]["results"]
    by_name = {row["scorer"]: row for row in summary["rows"]}
    assert result["metrics"][0]["value"] == by_name["<b>rm"]["overall"][0]
    for name in ("longest", "shortest", "random", "prompt-blind tf-idf"):
        value, low, high = (100 * one for one in by_name[name]["overall"])
        assert f"| {name} | baseline | {value:.1f} [{low:.1f}, {high:.1f}] |" in card
    assert f"changes by {by_name['<b>rm']['style']['length_slope']:+.2f} standard deviations" in card
    assert next(iter(manifest["data"].values())) in card
    assert load_contract(model).hash() in card and "120 rows of training data read, 0 dropped" in card
    assert next(iter(json.loads((model / "manifest.json").read_text())["data"].values())) in card
    assert_calibrated(model, measured, card)


def test_a_part_of_a_benchmark_is_named_and_no_figure_of_the_model_index(model, measured, tmp_path):
    run = Path(shutil.copytree(measured / "eval-<b>rm", tmp_path / "run"))
    summary = json.loads((run / "summary.json").read_text())
    note = "Not the whole benchmark: chat 92 of 358. Its figures are not official totals."
    row = next(row for row in summary["rows"] if row["scorer"] == "<b>rm")
    row["truncated"] = 7
    (run / "summary.json").write_text(json.dumps(summary | {"notes": [note]}))
    assert main(["card", str(model), "--runs", str(run)]) == 0
    card = (model / "README.md").read_text()
    assert "model-index" not in yaml.safe_load(card.split("---\n")[1])
    assert f"### pairs (a part of it)\n\n**{note}**" in card and "unscored, 7 truncated." in card


def assert_calibrated(model: Path, measured: Path, card: str) -> None:
    """Σ n_b/n |accuracy_b - confidence_b| over ten bins of σ(|margin|) in [0.5, 1]; names are no markup."""
    kept = load_reward_model(str(model))
    pairs = [json.loads(line) for line in (measured / "test.jsonl").read_text().splitlines()]
    chosen, rejected = (kept.rate([Example(user_turn(row["prompt"]), row[side]) for row in pairs])[:, 0]
                        for side in ("chosen", "rejected"))  # fmt: skip
    sure = 1 / (1 + np.exp(-np.abs(chosen - rejected)))
    bins, right = np.minimum(((sure - 0.5) * 20).astype(int), 9), chosen > rejected
    gaps = [abs(right[bins == b].mean() - sure[bins == b].mean()) * (bins == b).mean() for b in set(bins)]
    assert f"calibration error of σ(margin): {sum(gaps):.3f}." in card
    prose = re.sub(r"```.*?```|`[^`]*`", "", card.split("---\n", 2)[2], flags=re.S)
    assert "# &lt;b&gt;rm\n" in prose and "<b>" not in prose


def test_a_run_of_another_model_is_refused(model, measured, capsys, tmp_path):
    """The other linear model has the same contract and other scores."""
    other = measured / "eval-other"
    assert load_contract(model).hash() == load_contract(measured / "other").hash()
    refused(["card", model, "--runs", other], 3, "has the contract of .*<b>rm, but different scores", capsys)
    run = Path(shutil.copytree(measured / "eval-<b>rm", tmp_path / "run"))
    (run / "summary.json").write_text((run / "summary.json").read_text().replace(load_contract(model).hash(), "feed"))
    refused(["card", model, "--runs", run], 3, "no model with the contract .*, only feed", capsys)
    assert not (model / "README.md").exists()


def test_a_card_separates_training_from_evaluation_data(tmp_path):
    (tmp_path / "lr=1").mkdir()
    held = write(tmp_path / "lr=1" / "held.jsonl", judged_pairs(2, 9, 0.9))
    words = ["--data", write(tmp_path / "rows.jsonl", judged_pairs(1, 9, 0.9)), "--eval_data", held, "--max_steps", "1"]
    small = ["--small_hidden", "16", "--small_vocabulary", "300", "--disable_tqdm", "True"]
    assert main(["train", *words, *small, "--output", str(tmp_path / "rm")]) == 0
    assert main(["card", str(tmp_path / "rm")]) == 0
    card = (tmp_path / "rm" / "README.md").read_text()
    assert re.search(r"^- training data: .*rows\.jsonl", card, flags=re.M)
    assert re.search(r"^- evaluation data: .*lr=1/held\.jsonl", card, flags=re.M)


def test_the_first_card_of_an_adapter_needs_no_overwrite(lora, capsys):
    """PEFT writes an empty card of its own beside an adapter; one that somebody wrote is kept."""
    assert main(["card", str(lora)]) == 0

    load_scalar(str(lora)).save(lora)
    assert "accuracy is not known" in (lora / "README.md").read_text()
    refused(["card", lora], 2, "exists already", capsys)


def test_a_card_without_runs_claims_nothing(model, tmp_path, capsys):
    assert main(["card", str(model), "--output", str(tmp_path / "card.md")]) == 0
    card = (tmp_path / "card.md").read_text()
    assert "## Measured" not in card and "so the model's accuracy is not known" in card
    assert "model-index" not in card
    refused(["card", model, "--output", tmp_path / "card.md"], 2, "exists already.*--overwrite", capsys)


def test_the_last_parity_is_shown_if_it_is_of_this_contract(model, capsys):
    words = ["parity", str(model), "--fresh", "False", "--output", str(model / "parity.md")]
    assert main(words) == 0 and main(["card", str(model)]) == 0
    assert re.search(r"\| kept golden scores \| 0 \| \S+ \| same \|", (model / "README.md").read_text())
    found = json.loads((model / "parity.json").read_text())
    (model / "parity.json").write_text(json.dumps(found | {"contract": "feed"}))
    refused(
        ["card", model, "--overwrite", "True"], 3, "parity.json: results of contract feed, .*run parity again", capsys
    )
