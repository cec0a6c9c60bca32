"""A reward model behind vLLM's own server gives the number that it gives here; where vLLM activates, that is named."""

import json
import os
import time
from pathlib import Path

import httpx
import pytest
import torch
from rewardlab.apps.cli import main
from rewardlab.apps.runs.run_folder import MANIFEST, write_json, write_manifest
from rewardlab.benchmarks import garden
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.models.scalar import scalar_from_config

from tests.vllm_server import vllm_python, vllm_server

CONVERSATIONS = 200
LIMIT = 256


@pytest.fixture
def model(tmp_path) -> Path:
    """A Qwen 3 classifier with random weights large enough to tell conversations apart, and its conversations."""
    vllm_python()
    said = list(garden.supervised(CONVERSATIONS, seed=0))
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
