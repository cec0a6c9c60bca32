"""Bad input over all verbs: one sentence with the value and the remedy, the right exit code, nothing left behind."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from rewardlab.apps.cli import VERBS, main
from rewardlab.apps.verbs import split_verb
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden import models
from rewardlab.rm.backbones.loading import classifier_from_config, small_config, small_tokenizer
from rewardlab.rm.data.pairs import pair_row
from rewardlab.rm.kinds.autoregressive import AutoregressiveContract

from tests.apps.conftest import write

TEXTS = [f"the quick brown fox number {number} jumps over the lazy dog" for number in range(60)]
TRAIN = "train --kind linear --data {w}/pairs.jsonl --output {w}/new"
SCALAR = "train --data {w}/pairs.jsonl --output {w}/new"
RL = "rl --model {w}/policy --data {w}/prompts.jsonl --reward {w}/rm --use_cpu True --output {w}/new"
DECODE = "decode --base {w}/policy --data {w}/prompts.jsonl"
SAMPLE = "sample --data {w}/prompts.jsonl --reward {w}/rm --output {w}/new"
SFT = "sft --model {w}/policy --data {w}/pairs.jsonl --use_cpu True --output {w}/new"
DPO = SFT.replace("sft", "dpo")
LABEL = "label --data {w}/pairs.jsonl --reward {w}/rm --output {w}/new"
EVAL = "eval --model {w}/rm --data {w}/pairs.jsonl --output {w}/new"
SCORE = "score --model {w}/rm --data {w}/pairs.jsonl --output {w}/new.jsonl"
JUDGE = "judge --data {w}/pairs.jsonl --endpoint http://127.0.0.1:9/v1 --model M --output {w}/new"
TRAIN_JUDGE = "judge train --data {w}/pairs.jsonl --base {w}/policy --use_cpu True --output {w}/new"
RUBRICS = "rubrics build --data {w}/pairs.jsonl --endpoint http://127.0.0.1:9/v1 --model M --output {w}/new"
CASES = [
    # numbers outside their range
    (f"{SCALAR} --learning_rate -1", 2, "--learning_rate must be at least 0 and finite, got -1.0"),
    (f"{SCALAR} --lora --lora_r 0", 2, "--lora_r must be a rank in 1..65536, got 0"),
    (f"{SCALAR} --weight_average_start 0.5", 2, "needs --weight_average; add it, or remove --weight_average_start"),
    (
        f"{SCALAR} --kind autoregressive --model {{w}}/policy --preferences grid --concentration 2",
        2,
        "--concentration 2 is for --preferences dirichlet",
    ),
    (f"{SCALAR} --max_steps 0", 2, "--max_steps must be at least 1, or -1"),
    (f"{SCALAR} --seed -1", 2, "--seed must be a whole number in 0..4294967295, got -1"),
    (f"{RL} --temperature 0", 2, "--temperature must be above 0 and finite, got 0.0"),
    (f"{RL} --weight rm=0 --max_completion_length 8", 2, "all rewards have weight 0, so nothing would be learned"),
    (f"{RL} --use_vllm True --max_completion_length 8", 2, "--use_vllm needs the package vllm"),
    (RL.replace("{w}/rm", "my.py") + " --max_completion_length 8", 2, "name a function in it, as my.py:FUNCTION"),
    (f"{RL} --weight rm=inf", 2, "--weight must be NAME=number with a finite number, got 'rm=inf'"),
    (f"{DECODE} --max_new_tokens 0", 2, "--max_new_tokens must be at least 1, got 0"),
    (f"{SAMPLE} --base {{w}}/policy --n 0", 2, "--n must be at least 1, got 0"),
    (f"{SAMPLE} --base {{w}}/policy --share 0", 2, "--share must be a share in (0, 1], got 0.0"),
    (f"{SAMPLE} --base {{w}}/policy --temperature 0", 2, "--temperature 0 makes all 8 completions of a prompt equal"),
    (f"{SAMPLE}", 2, "--base is missing; name a language model, or a server with --endpoint and --model"),
    (f"{SAMPLE} --endpoint http://127.0.0.1:9/v1", 2, "--endpoint and --model are given together"),
    (f"{SAMPLE} --base {{w}}/nowhere", 3, "nowhere: no tokenizer there (no such file or folder here; check the path)"),
    (f"{LABEL} --agreement 2", 2, "--agreement must be a share in [0, 1], got 2.0"),
    (f"{LABEL} --batch_size 0", 2, "--batch_size must be at least 1, got 0"),
    (f"{SFT} --max_length 0", 2, "--max_length must be at least 1, got 0"),
    (f"{SFT} --assistant_only_loss True", 2, "assistant_only_loss is not read here; set nothing, since only"),
    (f"{DPO} --label_smoothing 2", 2, "--label_smoothing must be a share in [0, 1], got 2.0"),
    (f"{DPO} --padding_free True", 2, "padding_free is not read here; set nothing, since TRL's DPO pads"),
    (f"{EVAL} --limit 0", 2, "--limit must be at least 1, got 0"),
    (f"{EVAL} --samples 20", 2, "no setting '--samples'; did you mean '--bootstrap_samples'?"),
    (f"{EVAL} --bootstrap_samples 0", 2, "--bootstrap_samples must be at least 1, got 0"),
    (f"{JUDGE} --timeout nan", 2, "--timeout must be above 0 seconds, got nan"),
    (f"{TRAIN_JUDGE} --sft_batch 0", 2, "--sft_batch must be at least 1, got 0"),
    (f"{TRAIN_JUDGE} --teacher nowhere", 2, "--teacher: no folder 'nowhere'"),
    (f"{RUBRICS} --overlap 2", 2, "--overlap must be a share in [0, 1], got 2.0"),
    ("retriever {w}/pairs.jsonl --output {w}/new --facets 0", 2, "--facets must be at least 1, got 0"),
    ("lint {w}/pairs.jsonl --near 0", 2, "--near must be a share in (0, 1], got 0.0"),
    ("serve {w}/rm --port 70000", 2, "--port must be a port in 0..65535, got 70000"),
    ("inspect {w} --port -1", 2, "--port must be a port in 0..65535, got -1"),
    ("world --output {w}/new --pairs 0", 2, "--pairs must be at least 1, got 0"),
    ("plan --model 7b --lora_r 0", 2, "--lora_r must be a rank in 1..65536, got 0"),
    ("compare {w}/a {w}/b --bootstrap_samples 0", 2, "--bootstrap_samples must be at least 1, got 0"),
    # packages, layers and settings that are not there
    (f"{SCALAR} --report_to wandb", 2, "--report_to wandb needs the package wandb, which is not installed"),
    (f"{SCALAR} --report_to wandbb", 2, "--report_to: no 'wandbb'; did you mean 'wandb'?"),
    (f"{SCALAR} --optim adamw_bnb_8bit", 2, "--optim adamw_bnb_8bit needs the package bitsandbytes"),
    (f"{SCALAR} --optim adamv", 2, "adamv"),
    (f"{SCALAR} --model {{w}}/policy --lora --lora_target_modules nope", 2, "the model has no layer 'nope'"),
    (f"{RL} --lora --lora_target_modules nope --max_completion_length 8", 2, "the model has no layer 'nope'"),
    (f"{RL} --lora_r 8", 2, "--lora_r belongs to --lora; add --lora, or remove --lora_r"),
    (f"{RL} --critic_hidden 8", 2, "--critic_hidden belongs to --critic"),
    (f"{RL} --soup_share 0.1", 2, "--soup_share belongs to --soup"),
    (f"{DECODE} --weight 2", 2, "--weight belongs to --arm; add --arm, or remove --weight"),
    (f"{DECODE} --resume", 2, "--resume belongs to --output; add --output, or remove --resume"),
    (
        "world --output {w}/new --config",
        2,
        "--config is the last argument; add the path of a YAML file of settings after it",
    ),
    ("doctor --jsn", 2, "no setting '--jsn'; did you mean '--json'?"),
    # places that cannot be written to
    (f"{TRAIN}/../pairs.jsonl/x", 2, "pairs.jsonl is a file, so nothing can be written below it"),
    ("train --kind linear --data {w}/pairs.jsonl --output /proc/x", 2, "/proc cannot be written to"),
    ("merge {w}/rm --output {w}/pairs.jsonl/x", 2, "is a file"),
    ("world --output /proc/x", 2, "/proc cannot be written to"),
    ("world --output / --overwrite", 2, "--output / is the root of all folders; name a path below it"),
    (f"{SCORE.replace('new', 'folder')} --overwrite", 2, "folder.jsonl is a folder; name a file for the scores"),
    # files that are not there, or there twice
    (f"{TRAIN} --data {{w}}/nowhere.jsonl", 2, "no file"),
    (f"{TRAIN} --eval_data {{w}}/nowhere.jsonl", 2, "nowhere.jsonl; check the path"),
    (f"{TRAIN} --data {{w}}/pairs.jsonl", 2, "is given twice and would count twice; name it once"),
    (f"{DECODE} --data {{w}}/pairs.jsonl", 2, "--data takes one file here"),
    (f"{EVAL} --data {{w}}/./pairs.jsonl", 2, "is given twice"),
    (f"{RL} --reward {{w}}/rm", 2, "is given twice"),
    (f"{SCALAR} --model {{w}}/no/such/model", 3, "no such file or folder here; check the path"),
    ("parity {w}/no/such/model", 3, "no such file or folder here; check the path"),
    ("merge {w}/no/such/model --output {w}/new", 3, "no such file or folder"),
    ("card {w}/nowhere", 2, "nowhere"),
    ("verify {w}/nowhere", 2, "nowhere"),
    ("board {w}/rm --output {w}/new", 2, "no finished run of rewardlab eval under"),
    ("serve {w}/empty", 3, "give the folder of a trained reward model"),
    (f"{SCORE.replace('--model {w}/rm', '--servers http://127.0.0.1:9')}", 2, "is rewardlab serve running"),
    # rows
    (f"{TRAIN.replace('pairs', 'null')}", 3, "column 'chosen' is null"),
    (f"{TRAIN.replace('pairs', 'same_ids')}", 3, "duplicate id: 'a' is the id of"),
    (f"{SCORE.replace('pairs', 'same_ids')}", 3, "duplicate id: 'a' is the id of"),
    (f"{TRAIN.replace('pairs', 'same_keys')}", 3, "duplicate key: 'chosen' occurs twice in one object"),
    (f"{SCALAR.replace('pairs', 'bad')} --model {{w}}/policy", 3, "3 of 5 rows cannot be used"),
    (f"{RL.replace('prompts', 'blank')}", 3, "empty prompt; correct the row, or drop such rows with --on_bad_row skip"),
    (DPO.replace("pairs", "bad"), 3, "3 of 5 rows cannot be used"),
    (DPO.replace("pairs", "prompts"), 3, "no column 'chosen': the row has prompt"),
    (SFT.replace("pairs", "prompts"), 3, "no column 'completion': the row has prompt"),
    (f"{SFT} --max_length 2", 3, "none of 60 conversations is left to train on: 60 over 2 tokens; raise --max_length"),
    (f"{DPO} --max_length 2", 3, "none of 60 pairs is left to train on"),
    (f"{EVAL} --benchmark rm_bench", 3, "'chosen' is a single text and not a list of texts"),
    ("rubrics lint {w}/nowhere.toml", 2, "nowhere.toml"),
    # models
    ("score --model {w}/classes --data {w}/pairs.jsonl --output {w}/new.jsonl", 3, "a classifier of 2 classes"),
    ("eval --model {w}/classes --data {w}/pairs.jsonl --output {w}/new", 3, "(LABEL_0, LABEL_1), none named as reward"),
    ("parity {w}/classes", 3, "say which output is the reward with --objective NAME, or for every command with"),
    ("serve {w}/classes --port 0", 3, "rewardlab merge {w}/classes --objective NAME --output FOLDER"),
    ("merge {w}/classes --output {w}/new", 3, "none named as reward"),
    ("lint {w}/pairs.jsonl --model {w}/classes --output {w}/new", 3, "none named as reward"),
    (f"{RL.replace('{w}/rm', '{w}/classes')} --max_completion_length 8", 3, "none named as reward"),
    (RL.replace("policy", "untemplated").replace("prompts", "blank"), 3, "has no chat template to render"),
    (TRAIN_JUDGE.replace("policy", "untemplated").replace("pairs", "bad"), 3, "has no chat template to render"),
    (SFT.replace("policy", "untemplated"), 3, "has no chat template to render"),
    (
        f"{DPO} --reference {{w}}/nowhere",
        3,
        "nowhere: no tokenizer there (no such file or folder here; check the path)",
    ),
    (f"{SCALAR} --teacher {{w}}/nowhere", 3, "no such file or folder here; check the path"),
    (f"{SCALAR} --teacher {{w}}/rm --loss smoothed_bradley_terry", 2, "does not learn from --teacher"),
    ("train --model {w}/untemplated --data {w}/bad.jsonl --output {w}/new", 3, "has no chat template to render"),
    (
        "train --kind linear --bos once --data {w}/pairs.jsonl --output {w}/new",
        2,
        "--bos belongs to --kind autoregressive",
    ),
    (f"{SCALAR} --eos once", 2, "--eos belongs to --model; add --model, or remove --eos"),
    (f"{SCALAR} --kind process --model {{w}}/policy --eos once", 2, "--eos belongs to"),
    (f"{SCORE} --bos once", 2, "says None; remove --bos"),
    (f"{SCORE} --objective good", 2, "says reward; remove --objective"),
    (f"{SCORE} --eos never", 2, "invalid choice: 'never'"),
    ("score --model {w}/short --data {w}/pairs.jsonl --output {w}/new.jsonl", 3, "with --on_long truncate"),
    ("inspect {w} --port 0 --model {w}/no/such/model", 2, "--model {w}/no/such/model: no such file or folder here"),
    ("inspect {w} --port 0 --model nowhere", 2, "--model nowhere: no such folder here, and no model or data set of"),
    ("inspect {w} --port 0 --model {w}/pairs.jsonl", 2, "--model {w}/pairs.jsonl is a file; give the folder of a"),
    ("inspect {w} --port 0 --model {w}/empty", 3, "{w}/empty: neither scoring.json nor config.json in it"),
    ("inspect {w} --port 0 --arm {w}/no/such/arm", 2, "--arm {w}/no/such/arm: no such folder here; check the path"),
    ("decode --data {w}/prompts.jsonl --arm {w}/no/such/arm", 2, "--arm {w}/no/such/arm: no such folder here; check"),
    (
        "decode --data {w}/prompts.jsonl --arm {w}/policy",
        2,
        "--base is missing: only an adapter names its base model, and {w}/policy is not one",
    ),
    (f"{DECODE} --arm {{w}}/no/such/arm", 2, "--arm {w}/no/such/arm: no such folder here; check the path"),
    (f"{DECODE} --arm helpful={{w}}/harmless harmless={{w}}/harmless", 2, "it was trained for harmless"),
    ("score --model {w}/changed --data {w}/pairs.jsonl --output {w}/new.jsonl", 5, "was saved with"),
    # what a verb needs, and what belongs to another one
    ("train --output {w}/new", 2, "--data is missing"),
    ("train --kind linear --data {w}/pairs.jsonl", 2, "--output is missing"),
    ("train --config nowhere.yaml", 2, "cannot read the file given with --config"),
    ("eval --modle x", 2, "no setting '--modle'; did you mean '--model'?"),
    ("eval --model {w}/rm --output {w}/new", 2, "--data is missing; 'pairs' has no data set of its own"),
    (f"{EVAL} --benchmark rewardbanch", 2, "no 'rewardbanch' in benchmarks.suites; did you mean 'rewardbench'?"),
    (f"{EVAL} --on_bad_row keep", 2, "invalid choice: 'keep' (choose from 'refuse', 'skip')"),
    (f"{SCALAR} --kind liner", 2, "process, scalar, got 'liner'"),
    (f"{TRAIN} --model x", 2, "--model belongs to --kind"),
    (f"{SCALAR} --lora", 2, "--lora belongs to --model; add --model"),
    ("score --model {w}/rm --data {w}/pairs.jsonl --output x.csv", 2, "--output must end with .parquet or .jsonl"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Tiny data and models: a linear one, a policy, and what is wrong with others of each."""
    folder = tmp_path_factory.mktemp("bad")
    rows = [dict(pair_row(pair)) for pair in garden.pairs(60, 0)]
    write(folder / "pairs.jsonl", rows)
    write(folder / "prompts.jsonl", ({"prompt": list(prompt)} for prompt in garden.prompts(8, 0)))
    row = {"prompt": "q", "chosen": "good", "rejected": "bad"}
    write(folder / "null.jsonl", [row | {"chosen": None}])
    write(folder / "same_ids.jsonl", [row | {"id": "a", "chosen": f"good {n}"} for n in range(2)])
    (folder / "same_keys.jsonl").write_text('{"prompt": "q", "chosen": "a", "chosen": "b", "rejected": "c"}\n')
    write(folder / "bad.jsonl", [row, row | {"chosen": ""}, row | {"chosen": ""}, {"prompt": "q"}, row])
    write(folder / "blank.jsonl", [{"prompt": "q"}, {"prompt": " "}])
    (folder / "empty").mkdir()
    (folder / "folder.jsonl").mkdir()
    assert main(shlex.split(f"train --kind linear --data {folder}/pairs.jsonl --output {folder}/rm")) == 0
    _change_golden(folder / "rm", folder / "changed")
    words = models.tokenizer()
    policy = models.causal_lm(words, seed=3)
    policy.save_pretrained(folder / "policy")
    words.save_pretrained(folder / "policy")
    words.chat_template = None
    policy.save_pretrained(folder / "untemplated")
    words.save_pretrained(folder / "untemplated")
    (folder / "harmless").mkdir()
    AutoregressiveContract(kind="autoregressive", objectives=("harmless",), beta=1.0).save(folder / "harmless")
    tokenizer = small_tokenizer(TEXTS, 300)
    for name, labels in (("classes", ("LABEL_0", "LABEL_1")), ("short", ("reward",))):
        tokenizer.model_max_length = 8 if name == "short" else 64
        classifier_from_config(small_config(tokenizer), labels, 0).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def _change_golden(model: Path, changed: Path) -> None:
    shutil.copytree(model, changed)
    rows = [json.loads(line) for line in (changed / "golden.jsonl").read_text().splitlines()]
    rows[0]["rewards"][0] += 1
    write(changed / "golden.jsonl", rows)


def _listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("verb", sorted({words.split()[0] for words, *_ in CASES}))
def test_bad_input_is_one_sentence_and_leaves_nothing_behind(world, verb, capsys, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(world)
    before = _listing(world)
    for words, code, says in (case for case in CASES if case[0].split()[0] == verb):
        found = main(shlex.split(words.format(w=world)))
        out, err = capsys.readouterr()
        assert (found, out) == (code, ""), (words, err)
        assert says.replace("{w}", str(world)) in err.strip().split("\n")[-1], (words, err)
        assert "Traceback" not in err and "Warning" not in err, (words, err)
    assert _listing(world) == before


def test_the_bad_inputs_are_of_all_verbs():
    assert {split_verb(words.split())[0] for words, *_ in CASES} == {*VERBS}
