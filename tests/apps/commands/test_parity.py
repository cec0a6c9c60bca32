"""`rewardlab parity`: models agree with themselves, planted faults are named, and the exit code says so."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from peft import LoraConfig
from rewardlab.apps.cli import main
from rewardlab.apps.runs.run_folder import to_json_types
from rewardlab.rm.contract.golden_scores import write_golden
from rewardlab.rm.contract.scoring_contract import FILE, ScoringContract
from rewardlab.rm.errors import UsageError
from rewardlab.rm.kinds.ensemble.model import load_ensemble
from rewardlab.rm.kinds.multi_objective.model import with_overall
from rewardlab.rm.kinds.scalar.model import load_scalar
from rewardlab.rm.parity.known_faults import score_ids
from rewardlab.rm.parity.parity import Parity
from rewardlab.rm.parity.report import as_json, junit, markdown
from rewardlab.rm.parity.targets import Against, parse_against
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.json_server import JsonHandler, running
from tests.rm.spread_models import CHATML, LIMIT, examples, make
from tests.stand_ins.scoring_server import serve_in_thread

TOKENS = ["alone", "shuffled", "padded on the left", "padded on the right", "pad is EOS"]


def saved(model, folder: Path) -> Path:
    model.save(folder)
    write_golden(model, examples(), folder)
    return folder


@pytest.fixture(scope="module")
def rm(tmp_path_factory) -> Path:
    return saved(make(), tmp_path_factory.mktemp("parity") / "rm")


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3"])
def test_a_saved_model_is_the_same_through_plain_transformers(architecture, run_parity, tmp_path):
    """Two of the golden conversations are longer than the limit; bfloat16 promises nothing."""
    told = run_parity(saved(make(architecture), tmp_path / "rm"), "--against", "checkpoint")
    assert list(told.ways) == ["kept golden scores", *TOKENS, "bfloat16", "plain Transformers"]
    assert told.code == 0 and {one["verdict"] for name, one in told.ways.items() if name != "bfloat16"} == {"same"}
    assert "12 golden conversations, 0 of --data, 3 generated edge cases" in told.report


def test_several_objectives(run_parity, tmp_path):
    folder = saved(make(objectives=("helpful", "harmless")), tmp_path / "rm")
    (tmp_path / "more.jsonl").write_text(json.dumps({"prompt": "roba", "completion": "kano"}) + "\n")
    told = run_parity(folder, "--against", "checkpoint", folder, "--data", tmp_path / "more.jsonl")
    assert told.code == 0 and told.ways["alone"]["conversations"] == 12 + 1 + 3
    reserved = saved(make(objectives=("row", "low")), tmp_path / "reserved")
    assert run_parity(reserved, "--fresh", True).code == 0, "score writes them as reward_row and reward_low"
    weighted = with_overall(make(objectives=("helpful", "overall")), {"helpful": 2.0})
    assert run_parity(saved(weighted, tmp_path / "weighted"), "--against", "checkpoint").code == 0


def test_a_lora_merged_and_not(run_parity, tmp_path):
    """Plain PEFT, its merge, ours, and the folder that `rewardlab merge` writes."""
    trunk = make()
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(trunk.model.config).save_pretrained(tmp_path / "base")
    trunk.encoder.tokenizer.save_pretrained(tmp_path / "base")
    lora = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    folder = saved(load_scalar(str(tmp_path / "base"), fresh=True, lora=lora, max_length=LIMIT), tmp_path / "lora")
    told = run_parity(folder, "--against", "adapter")
    assert told.code == 0 and {"adapter merged", "plain PEFT", "plain PEFT, merged"} <= {*told.ways}
    assert main(["merge", str(folder), "--output", str(tmp_path / "merged")]) == 0
    assert run_parity(tmp_path / "merged", "--against", "checkpoint", folder).code == 0


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_ensemble_has_the_ways_of_its_kind(run_parity, tmp_path, fresh):
    members = [str(saved(make(seed=seed), tmp_path / f"m{seed}")) for seed in (1, 2)]
    together = run_parity(saved(load_ensemble(",".join(members)), tmp_path / "both"), "--fresh", fresh)
    ways = ["kept golden scores", "alone", "shuffled", *(["fresh process"] if fresh else [])]
    assert together.code == 0 and list(together.ways) == ways


def test_the_model_behind_rewardlab_serve(rm, run_parity):
    with serve_in_thread(make()) as url:
        told = run_parity(rm, "--against", "http", url)
    assert told.code == 0 and told.ways[url]["verdict"] == "same"


def test_conversations_that_only_the_contract_can_cut_are_left_out_and_counted(run_parity, tmp_path):
    """A leading BOS stays in front of what is cut."""
    told = run_parity(saved(make(bos=True), tmp_path / "rm"), "--against", "checkpoint")
    assert told.code == 0 and told.ways["plain Transformers"]["conversations"] == 11
    assert f"4 conversations beyond {LIMIT} tokens are left out" in told.report


def test_other_template(rm, run_parity, tmp_path):
    saved(make(), tmp_path / "other")
    (tmp_path / "other" / FILE).unlink()  # as somebody else's folder
    (tmp_path / "other" / "golden.jsonl").unlink()
    (tmp_path / "other" / "chat_template.jinja").write_text(CHATML)
    told = run_parity(rm, "--against", tmp_path / "other")
    way = told.ways[str(tmp_path / "other")]
    assert told.code == 5 and told.last_line.endswith(f"1 of 8 comparisons failed. {way['way']}: other template")
    assert re.match(r"conversation 1, token 1: \d+ instead of \d+", way["token"]) and way["flips"] > 0


def test_a_bias_that_plain_transformers_leaves_out(run_parity, tmp_path):
    file = saved(make(), tmp_path / "rm") / "model.safetensors"
    save_file(load_file(file) | {"score.bias": torch.tensor([0.7])}, file, metadata={"format": "pt"})
    (tmp_path / "rm" / "golden.jsonl").unlink()
    told = run_parity(tmp_path / "rm", "--against", "checkpoint")
    assert told.code == 5 and told.ways["plain Transformers"]["culprit"] == "head without its bias"


@contextmanager
def pooling_server(scores: Callable[[list[list[int]]], np.ndarray], read) -> Iterator[str]:
    """A stand-in: `scores` of token ids [N, K]; `read` makes ids of messages, without fault."""

    class StandIn(JsonHandler):
        def do_GET(self):
            self.reply({"data": [{"id": "rm"}]})

        def do_POST(self):
            asked = self.asked()
            if self.path == "/tokenize":
                return self.reply({"tokens": read(asked["messages"])})
            found = scores(asked["input"] if "input" in asked else [read(asked["messages"])])
            self.reply({"data": [{"index": n, "probs": row} for n, row in reversed([*enumerate(found.tolist())])]})

    with running(StandIn) as url:
        yield url


def reader(model):
    """Messages to the ids that the contract leaves of them."""

    def read(messages):
        text = model.encoder.tokenizer.apply_chat_template(messages, tokenize=False)
        return model.encoder.truncated(model.encoder.tokenizer(text, add_special_tokens=False).input_ids)

    return read


def test_a_faulty_server_is_named(rm, run_parity):
    model = make()
    with pooling_server(lambda rows: 1 / (1 + np.exp(-score_ids(model, rows))), reader(model)) as url:
        told = run_parity(rm, "--against", "vllm", url)
    fault = "sigmoid activation"
    assert told.code == 5 and told.ways["vLLM"]["culprit"] == told.ways["vLLM, as it activates"]["culprit"] == fault
    assert [one.find("failure").get("message") for one in told.cases if one.get("name") == "vLLM"] == [fault]
    assert sum(one.find("failure") is not None for one in told.cases) == told.report.count("FAILED")


def test_no_text_of_others_breaks_a_report():
    """A server's sentence may hold anything; XML has no place for most control characters."""
    nasty = "a | b\n<script>\x00\x1b[0m\ufffe"
    one = Parity(nasty, 3, np.inf, np.inf, 0.0, 1e-6, 0.5, "", nasty)
    text = markdown(nasty, ScoringContract(kind="scalar"), [one], [nasty])
    assert "<script>" not in text and "\x00" not in text and "a \\| b &lt;script>" in text
    (case,) = ElementTree.fromstring(junit(nasty, [one]))
    assert case.find("failure").get("message").startswith("a | b")
    assert (
        json.loads(json.dumps(to_json_types(as_json("m", ScoringContract(kind="scalar"), [one], []))))["passed"]
        is False
    )


def test_half_precision_fails_only_where_it_was_asked_for(rm, run_parity):
    told = run_parity(rm)
    assert told.code == 0 and told.ways["bfloat16"]["verdict"] == "reported"
    asked = run_parity(rm, "--half", "True")
    assert asked.code == 5 and asked.last_line.endswith("bfloat16: bfloat16 itself")
    assert asked.ways["bfloat16"]["largest"] > 0.02 * asked.ways["bfloat16"]["deviation"]


def test_what_is_compared_is_read_word_by_word():
    url = "http://127.0.0.1:8000"
    found = parse_against(["checkpoint", "vllm", url, "runs/rm", "http", url])
    assert found == [Against("checkpoint"), Against("vllm", url), Against("model", "runs/rm"), Against("http", url)]
    for words, message in (([url], f"name the server, vllm {url}"), (["vllm", "rm"], "an address such as")):
        with pytest.raises(UsageError, match=message):
            parse_against(words)


def test_what_cannot_be_run_is_one_sentence(rm, capsys):
    for words, code, sentence in (
        (["--against", "vllm", "http://127.0.0.1:9"], 3, "no answer .*is vLLM running, with --runner pooling"),
        (["--against", "adapter"], 2, "holds no adapter_config.json"),
        (["--output", "x.txt"], 2, "--output must end with .md"),
    ):
        assert main(["parity", str(rm), "--fresh", "False", *words]) == code, words
        assert re.search(sentence, capsys.readouterr().err.strip().split("\n")[-1]), words
