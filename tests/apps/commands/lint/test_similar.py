"""`rewardlab lint --encoder`: prompts that say the same as a benchmark's in other words."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from rewardlab.apps.cli import main
from rewardlab.judges.retrieval import encoder as encoders
from rewardlab.judges.retrieval.encoder import new_encoder
from rewardlab.judges.retrieval.settings import EncoderSettings

from tests.apps.judging import write

ANGLES = {"How long do bees live?": 0.0, "Tell me a bee's lifespan": 0.3, "Name a river": 1.4, "Thanks": 1.2}
"""Prompt -> direction of its vector in radians."""


class Known:
    """An encoder that knows what some prompts mean."""

    contract = "known"
    settings = SimpleNamespace(similarity="mean", pooling="mean")

    def embed(self, texts):
        return np.array([[[np.cos(ANGLES[text]), np.sin(ANGLES[text])]] for text in texts], np.float32)


@pytest.fixture
def files(tmp_path):
    def pair(prompt):
        return {"prompt": prompt, "chosen": "a fine answer", "rejected": "none at all"}

    said = {"user": "Thanks", "assistant": "You are welcome."}
    turns = [{"role": role, "content": text} for role, text in [*said.items(), ("user", "Tell me a bee's lifespan")]]
    data = write(tmp_path / "data.jsonl", [pair("Name a river"), pair(turns), pair("Tell me a bee's lifespan")])
    return data, f"pairs={write(tmp_path / 'benchmark.jsonl', [pair('How long do bees live?')])}"


def findings(folder) -> list[dict]:
    rows = [json.loads(line) for line in (folder / "findings.jsonl").read_text().splitlines()]
    return [row for row in rows if row["reason"] == "similar to a prompt of a benchmark"]


def test_the_nearest_turn_of_a_row_decides(files, tmp_path, monkeypatch):
    """cos(0.3) = 0.955; the river and the thanks are at 0.17 and 0.36."""
    monkeypatch.setattr(encoders, "load_encoder", lambda source, **options: Known())
    data, against = files
    words = ["lint", data, "--against", against, "--encoder", "e"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 5
    rows = findings(tmp_path / "out")
    assert [row["place"] for row in rows] == [f"{data}:2", f"{data}:3"]
    assert rows[0]["detail"] == "pairs, similarity 0.96: 'How long do bees live?'"
    assert "similar to a prompt of a benchmark" in (tmp_path / "out" / "report.md").read_text()
    main([*words, "--similar", "0.96", "--output", str(tmp_path / "strict")])
    assert findings(tmp_path / "strict") == []


def test_an_encoders_folder_is_read_and_equal_prompts_are_similar(files, tmp_path):
    encoder = new_encoder(EncoderSettings(facets=2, width=8), None, [*ANGLES] * 9, hidden=16, layers=1, vocabulary=300)
    encoder.save(tmp_path / "encoder")
    data, _ = files
    words = ["--against", f"pairs={data}", "--encoder", str(tmp_path / "encoder"), "--similar", "0.999"]
    assert main(["lint", data, *words, "--output", str(tmp_path / "out")]) == 5
    assert len(findings(tmp_path / "out")) == 3
