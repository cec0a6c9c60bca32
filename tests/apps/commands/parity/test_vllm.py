"""Scores, and scores of steps by token_classify, beside a stand-in of vLLM's /pooling and vLLM's own server.

The stand-in answers as vLLM's documentation describes; `make test-vllm` runs the tests with the server.
"""

import json
import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import torch
from rewardlab.apps.cli import main
from rewardlab.apps.runs.run_folder import MANIFEST, write_json, write_manifest
from rewardlab.benchmarks import garden
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.kinds.process.model import process_from_config
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.parity.model_server import token_classify_options
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from tests.json_server import JsonHandler, running
from tests.stand_ins.scoring_server import serve_in_thread
from tests.vllm_server import vllm_python, vllm_server

CONVERSATIONS = 200
LIMIT = 256
STEP = "<step>"
TEXTS = [f"roba kano {STEP} mino {STEP} suba roba roba {STEP}", f"kano {STEP} mino suba {STEP}", f"suba mino {STEP}"]


@pytest.fixture
def folder(tmp_path):
    """A folder with a tokenizer and random weights of the given class, and conversations with step tokens."""

    def save(auto):
        tokenizer = small_tokenizer([text.replace(STEP, "") for text in TEXTS] * 5, 300)
        tokenizer.add_special_tokens({"additional_special_tokens": [STEP]})
        config = small_config(tokenizer, hidden=64, layers=2, heads=2)
        config.num_labels = 2
        torch.manual_seed(0)
        model = auto.from_config(config)
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.3) if weight.dim() > 1 else None
        for part in (model, tokenizer):
            part.save_pretrained(tmp_path / "prm")
        rows = ({"prompt": "roba", "completion": text} for text in TEXTS)
        (tmp_path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return model.eval(), tokenizer, tmp_path / "prm"

    return save


Pooled = Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor]
"""Logits [L, C], mask of the step tokens [L] and whether to activate -> the rows of the response."""


def as_vllm(logits, steps, activate):
    rows = logits[steps]
    return rows.softmax(-1) if activate else rows


@contextmanager
def pooling_server(model, step_id: int, pooled: Pooled, labels=slice(None)) -> Iterator[str]:
    class StandIn(JsonHandler):
        def do_GET(self):
            self.reply({"data": [{"id": "prm"}]})

        def do_POST(self):
            asked = self.asked()
            assert self.path == "/pooling" and asked["task"] == "token_classify" and asked["model"] == "prm"
            data = []
            for index, ids in enumerate(asked["input"]):
                with torch.no_grad():
                    logits = model(input_ids=torch.tensor([ids])).logits[0][:, labels]
                steps = torch.tensor(ids) == step_id
                rows = pooled(logits, steps, asked.get("use_activation", True))
                data.append({"index": index, "object": "pooling", "data": rows.tolist()})
            self.reply({"object": "list", "model": "prm", "data": data[::-1]})

    with running(StandIn) as url:
        yield url


def words(folder, url, *more):
    return [folder, "--against", "vllm", url, "--step_token", STEP, "--data", folder.parent / "steps.jsonl", *more]


@pytest.mark.parametrize("pooled", [as_vllm, lambda logits, _, activate: logits.softmax(-1) if activate else logits])
def test_the_same_scores_of_steps_or_of_every_token(pooled, folder, run_parity):
    """vLLM's pooling STEP returns the step tokens, its pooling ALL every token."""
    model, tokenizer, path = folder(AutoModelForTokenClassification)
    with pooling_server(model, tokenizer.convert_tokens_to_ids(STEP), pooled) as url:
        run = run_parity(*words(path, url))
    assert run.code == 0 and run.verdicts("vLLM") == dict.fromkeys((RAW, ACTIVATED), "same")
    assert {way["conversations"] for way in run.ways.values()} == {6}  # steps: three, two and one


def test_labels_of_a_causal_language_model(folder, run_parity):
    model, tokenizer, path = folder(AutoModelForCausalLM)
    labels = ["roba", "kano"]
    ids = [tokenizer(label, add_special_tokens=False).input_ids for label in labels]
    tokens = [tokenizer.convert_ids_to_tokens(some[0]) for some in ids]
    columns = [some[0] for some in ids]
    with pooling_server(model, tokenizer.convert_tokens_to_ids(STEP), as_vllm, columns) as url:
        run = run_parity(*words(path, url, "--step_labels", *tokens))
    assert run.code == 0, run.last_line


FAULTS: dict[str, tuple[Pooled, str]] = {
    "labels in the opposite order": (lambda *given: as_vllm(*given).flip(-1), "both"),
    "read one token before the step token": (lambda x, steps, activate: as_vllm(x, steps.roll(-1), activate), "both"),
    "no activation: logits, not probabilities": (lambda logits, steps, _: logits[steps], "activated"),
    "activation applied twice": (
        lambda x, steps, on: as_vllm(x, steps, on).softmax(-1) if on else x[steps],
        "activated",
    ),
    "sigmoid instead of softmax": (lambda x, steps, on: x[steps].sigmoid() if on else x[steps], "activated"),
    "activated: probabilities, not logits": (lambda logits, steps, _: logits[steps].softmax(-1), "raw"),
}
RAW, ACTIVATED = "vLLM, token_classify", "vLLM, token_classify, as it activates"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_server_is_named(fault, folder, run_parity):
    model, tokenizer, path = folder(AutoModelForTokenClassification)
    pooled, where = FAULTS[fault]
    with pooling_server(model, tokenizer.convert_tokens_to_ids(STEP), pooled) as url:
        run = run_parity(*words(path, url))
    assert run.code == 5
    expected = {RAW: {"raw": fault, "both": fault}, ACTIVATED: {"activated": fault, "both": fault}}
    culprits = {name: faults.get(where, "") for name, faults in expected.items()}
    assert {name: way["culprit"] for name, way in run.ways.items()} == culprits


def test_a_missing_step_is_counted(folder, run_parity):
    model, tokenizer, path = folder(AutoModelForTokenClassification)
    with pooling_server(
        model, tokenizer.convert_tokens_to_ids(STEP), lambda *given: as_vllm(*given)[:-1] if len(given[0]) else 0
    ) as url:
        run = run_parity(*words(path, url))
    assert run.code == 5 and run.ways[RAW]["culprit"].startswith("conversation 1: 2 rows, where the conversation has ")
    assert run.ways[RAW]["culprit"].endswith("and 3 steps")


def test_what_cannot_be_compared_is_a_sentence(folder, run_parity):
    for change, sentence in (
        (["--against", "sglang", "http://127.0.0.1:9"], "--step_token compares with --against vllm URL"),
        (["--step_token", "roba kano"], "--step_token roba kano: "),
        (["--step_token", "suba"], "no token "),
    ):
        *_, path = folder(AutoModelForTokenClassification)
        (path.parent / "steps.jsonl").write_text(json.dumps({"prompt": "roba", "completion": "kano"}) + "\n")
        run = run_parity(*words(path, "http://127.0.0.1:9", *change))
        assert run.code in (2, 3) and sentence in run.last_line, change


def test_a_server_that_does_not_answer_is_told_the_options_of_these_labels(folder, run_parity):
    *_, path = folder(AutoModelForCausalLM)
    run = run_parity(*words(path, "http://127.0.0.1:9", "--step_labels", "roba", "kano"))
    assert run.code == 3 and run.last_line.endswith(
        f"is vLLM running, with {token_classify_options(['roba', 'kano'])}?"
    )


@pytest.fixture
def ours(tmp_path):
    tokenizer = small_tokenizer(["roba kano\n\nmino suba" * 9], 280)
    model = process_from_config(small_config(tokenizer, hidden=64, layers=2, heads=2), tokenizer, max_length=64)
    torch.nn.init.normal_(model.model.eval().score.weight, std=2.0)
    model.save(tmp_path / "ours")
    texts = ["roba kano\n\nmino\n\nsuba", "kano\n\nmino suba", "suba " * 9, "suba " * 90]
    rows = ({"prompt": "roba", "completion": text} for text in texts)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return model, [tmp_path / "ours", "--data", tmp_path / "data.jsonl"]


def of_tokens(logits, _, activate):
    return logits.sigmoid() if activate else logits


def test_our_folder_needs_no_step_token_beside_vllm(ours, run_parity):
    model, words = ours
    del words[1:]  # the last conversation of the data is too long for the model
    with pooling_server(model.model, -1, of_tokens) as url:
        run = run_parity(*words, "--against", "vllm", url)
    assert run.code == 0 and run.verdicts("vLLM") == dict.fromkeys((RAW, ACTIVATED), "same")


def test_our_server_gives_the_same_steps_and_rewards(ours, run_parity):
    model, words = ours
    with serve_in_thread(model) as url:
        run = run_parity(*words, "--against", "http", url)
    assert run.code == 0 and {*run.verdicts("").values()} == {"same", "reported"}, run.last_line
    assert {"rewardlab serve, token_classify", "alone", "padded on the left", url} <= {*run.ways}
    report = run.report
    assert "0 golden conversations, 3 of --data" in report, "the last one is too long for the model"
    assert "because they have no score (no step, or a truncated one): 1." in report


def write_long_conversations(path) -> int:
    """Write conversations of up to 300 tokens, each the beginning of the next, and return the number of their steps."""
    texts = [" ".join(TEXTS * size) for size in range(1, 16)]
    path.write_text("".join(json.dumps({"prompt": "roba", "completion": text}) + "\n" for text in texts))
    return sum(text.count(STEP) for text in texts)


def assert_same_through_vllm(run, steps: int) -> None:
    assert run.code == 0 and run.verdicts("vLLM") == dict.fromkeys((RAW, ACTIVATED), "same"), run.last_line
    assert {run.ways[name]["conversations"] for name in (RAW, ACTIVATED)} == {steps}
    print(
        "\n", *(f"{run.ways[name]['largest']:.2g} of {run.ways[name]['deviation']:.2g}\n" for name in (RAW, ACTIVATED))
    )


def test_vllms_own_server_gives_the_same_scores_of_steps(folder, run_parity, tmp_path):
    vllm_python()
    _, tokenizer, path = folder(AutoModelForTokenClassification)
    steps = write_long_conversations(path.parent / "steps.jsonl")
    pooler = {"pooling_type": "STEP", "step_tag_id": tokenizer.convert_tokens_to_ids(STEP)}
    with vllm_server(path, tmp_path / "log", "--runner", "pooling", "--pooler-config", json.dumps(pooler)) as url:
        run = run_parity(*words(path, url))
    assert_same_through_vllm(run, steps)


def test_vllms_own_server_gives_the_same_steps_of_our_folder(ours, run_parity, tmp_path):
    vllm_python()
    _, words = ours
    with vllm_server(words[0], tmp_path / "log", *shlex.split(token_classify_options())) as url:
        run = run_parity(*words, "--against", "vllm", url)
    assert_same_through_vllm(run, 9)


def test_vllms_own_server_gives_the_same_scores_of_label_tokens(folder, run_parity, tmp_path):
    vllm_python()
    *_, path = folder(AutoModelForCausalLM)
    steps, labels = write_long_conversations(path.parent / "steps.jsonl"), ["roba", "kano", "mino"]
    with vllm_server(path, tmp_path / "log", *shlex.split(token_classify_options(labels))) as url:
        run = run_parity(*words(path, url, "--step_labels", *labels))
    assert_same_through_vllm(run, steps)


@pytest.fixture
def model(tmp_path) -> Path:
    """A Qwen 3 classifier with random weights large enough to tell conversations apart, and its conversations."""
    vllm_python()
    said = list(garden.supervised_examples(CONVERSATIONS, seed=0))
    words = small_tokenizer([one.completion for one in said], 600)
    made = scalar_from_config(small_config(words, hidden=64, layers=2, heads=2, positions=512), words, max_length=LIMIT)
    for weight in made.model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.1, generator=torch.Generator().manual_seed(0))
    made.save(tmp_path / "rm")
    rows = ({"prompt": list(one.prompt), "completion": one.completion} for one in said)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "rm"


def ways_beside(model: Path, url: str, capsys) -> tuple[int, dict, str]:
    """The exit code, what is in the report about each way, and the last line that was said."""
    folder = model.parent
    words = ["parity", str(model), "--data", str(folder / "data.jsonl"), "--against", "vllm", url, "--fresh", "False"]
    code = main([*words, "--output", str(folder / "parity.md")])
    found = json.loads((folder / "parity.json").read_text())
    return code, {one["way"]: one for one in found["ways"]}, capsys.readouterr().err.strip().split("\n")[-1]


def keep(ways: dict, url: str, started: float, folder: Path) -> None:
    """Write the figures where REWARDLAB_RESULTS says, with what they were measured with."""
    results = os.environ.get("REWARDLAB_RESULTS")
    if not results:
        return
    version = httpx.get(f"{url}/version").json()["version"]
    write_manifest(folder, data=[], seed=0, started=started, vllm=version, ways=[*ways.values()])
    kept = json.loads((folder / MANIFEST).read_text()) | {"command": ["make", "test-vllm"]}
    write_json(Path(results) / "vllm-parity.json", kept)


def test_vllms_own_server_gives_the_same_scores(model, tmp_path, capsys):
    started = time.time()
    with vllm_server(model, tmp_path / "log", "--runner", "pooling", "--max-model-len", "512") as url:
        code, ways, said = ways_beside(model, url, capsys)
        keep(ways, url, started, tmp_path)
    assert code == 0, said
    theirs = [ways[name] for name in ("vLLM", "vLLM, as it activates", "vLLM, its template")]
    print("\n", *(f"{one['way']}: {one['largest']:.2g} of {one['deviation']:.2g}\n" for one in theirs))
    assert all(one["conversations"] >= CONVERSATIONS and one["flips"] == 0 for one in theirs)


def test_vllms_own_server_that_activates_is_named(model, tmp_path, capsys):
    activates = ["--hf-overrides", json.dumps({"problem_type": "single_label_classification"})]
    options = ["--runner", "pooling", "--max-model-len", "512", *activates]
    with vllm_server(model, tmp_path / "log", *options) as url:
        code, ways, said = ways_beside(model, url, capsys)
    assert code == 5 and said.endswith("vLLM, as it activates: sigmoid activation")
    expected = {"vLLM": "same", "vLLM, as it activates": "FAILED", "vLLM, its template": "same"}
    assert {name: one["verdict"] for name, one in ways.items() if "vLLM" in name} == expected
