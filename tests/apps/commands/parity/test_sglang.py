"""Parity with a stand-in of SGLang's server: its formats, and the faults that its versions have had.

The stand-in answers as SGLang's documentation and source describe; no server of SGLang was run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
import torch
from rewardlab.rm.backbones.forward_hooks import head_inputs
from rewardlab.rm.backbones.sequence_scores import decoder_head
from rewardlab.rm.contract.golden_scores import write_golden
from rewardlab.rm.parity.known_faults import score_ids
from scipy.special import softmax

from tests.json_server import JsonHandler, running
from tests.rm.spread_models import examples, make

Scores = Callable[[list[list[int]]], np.ndarray]


@contextmanager
def sglang_server(scores: Scores, tokenize: Callable[[str], list[int]]) -> Iterator[str]:
    """`scores` of token ids [N, K]; `tokenize` is what the server makes of a text."""

    class StandIn(JsonHandler):
        def do_GET(self):
            self.reply({"object": "list", "data": [{"id": "rm", "object": "model"}]})

        def do_POST(self):
            asked = self.asked()
            assert asked["model"] == "rm"
            if self.path == "/tokenize":
                return self.reply({"tokens": tokenize(asked["prompt"]), "count": 1, "max_model_len": 40})
            if self.path == "/classify":
                rows = asked["input_ids"] if "input_ids" in asked else [tokenize(text) for text in asked["text"]]
                meta = {"id": "1", "finish_reason": None, "prompt_tokens": 3}
                return self.reply([{"embedding": row, "meta_info": meta} for row in scores(rows).tolist()])
            if self.path == "/v1/embeddings":
                rows = enumerate(scores(asked["input"]).tolist())
                data = [{"embedding": row, "index": index, "object": "embedding"} for index, row in rows]
                return self.reply({"data": data[::-1], "model": "rm", "object": "list", "usage": {}})
            assert self.path == "/v1/classify"
            (row,) = scores([asked["input"]])
            probs = softmax(row).tolist()
            self.reply({"data": [{"index": 0, "label": "reward", "probs": probs, "num_classes": len(probs)}]})

    with running(StandIn) as url:
        yield url


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model, its folder, and a tokenizer's reading of its rendered texts."""

    @cache
    def save(**options):
        model, folder = make(**options), tmp_path_factory.mktemp("sglang") / "rm"
        model.save(folder)
        write_golden(model, examples(), folder)
        return model, folder, lambda text: model.encoder.tokenizer(text, add_special_tokens=False).input_ids

    return save


def before_head(model, rows, change: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
    """The head's output for hidden states at the last token that a server changes."""
    head, scores = decoder_head(model.model), []
    for ids in rows:
        with torch.no_grad():
            states = head_inputs(model.model, input_ids=torch.tensor([ids]))
            scores.append(change(states[:, -1]) if change is hidden else head(change(states[:, -1])))
    return torch.cat(scores).double().numpy()


def hidden(states: torch.Tensor) -> torch.Tensor:
    return states


def unit(states: torch.Tensor) -> torch.Tensor:
    return states / states.square().sum(-1, keepdim=True).sqrt()


def test_a_sound_server_gives_the_same_scores_through_each_endpoint(saved, run_parity):
    """Its own classification endpoint is a softmax over one label, which says nothing: reported with that reason."""
    model, folder, tokenize = saved()
    with sglang_server(lambda rows: score_ids(model, rows), tokenize) as url:
        run = run_parity(folder, "--against", "sglang", f"{url}/v1")
    same = dict.fromkeys(("SGLang", "SGLang, /v1/embeddings", "SGLang, its tokenizer"), "same")
    assert run.code == 0 and run.verdicts("SGLang") == same | {"SGLang, /v1/classify": "reported"}
    assert run.ways["SGLang, /v1/classify"]["culprit"].startswith("softmax activation (of a single score, which is")
    counts = [run.ways[name]["conversations"] for name in ("SGLang", "SGLang, its tokenizer")]
    assert counts == [15, 11]  # four are too long for its tokenizer


FAULTS = {
    "L2 normalisation before the head": lambda model, rows: before_head(model, rows, unit),
    "L2 normalisation of the scores": lambda model, rows: np.sign(score_ids(model, rows)),
    "hidden states of width 32: the head was not applied, as by a server of embeddings": lambda model, rows: (
        before_head(model, rows, hidden)
    ),
    "0.25 added to every score, as by a head whose bias the weights lack": lambda model, rows: (
        score_ids(model, rows) + 0.25
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_server_is_named(fault, saved, run_parity):
    model, folder, tokenize = saved()
    with sglang_server(lambda rows: FAULTS[fault](model, rows), tokenize) as url:
        run = run_parity(folder, "--against", "sglang", url)
    assert run.code == 5 and run.ways["SGLang"]["culprit"] == run.ways["SGLang, /v1/embeddings"]["culprit"] == fault


def test_a_tokenizer_that_adds_bos_to_a_rendered_text_is_named(saved, run_parity):
    """SGLang tokenizes `text` with special tokens, and a rendered conversation has them already."""
    model, folder, tokenize = saved(bos=True)
    bos = model.encoder.tokenizer.bos_token_id
    with sglang_server(lambda rows: score_ids(model, rows), lambda text: [bos, *tokenize(text)]) as url:
        run = run_parity(folder, "--against", "sglang", url)
    assert run.code == 5 and run.ways["SGLang"]["verdict"] == "same"
    way = run.ways["SGLang, its tokenizer"]
    assert way["culprit"] == "double BOS" and way["token"].startswith("conversation 1, token 2: ")


def test_a_server_that_does_not_answer_is_a_sentence(saved, run_parity):
    run = run_parity(saved()[1], "--against", "sglang", "http://127.0.0.1:9")
    assert run.code == 3 and "is SGLang running, with --is-embedding?" in run.last_line
