import json

import pytest
from rewardlab.research.speed import real_models


@pytest.mark.slow
def test_both_ways_give_equal_losses_and_scores(tiny_pretrained, shared_data, tmp_path, monkeypatch):
    monkeypatch.setattr(real_models, "fetched", tiny_pretrained)
    monkeypatch.setitem(real_models.MODELS, "minilm", None)  # the tiny tokenizer has a template
    output = tmp_path / "figures.json"
    real_models.main(["--data", str(shared_data), "--tiny", "--cases", "training|scoring", "--output", str(output)])
    results = json.loads(output.read_text())
    assert [title for title in results if title != "machine"] == [
        f"{what} {name}" for name in ("minilm", "smollm2") for what in ("training", "scoring")
    ]
    assert max(found["difference"] for title, found in results.items() if title != "machine") < 1e-5
