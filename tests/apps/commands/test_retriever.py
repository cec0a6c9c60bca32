"""`rewardlab retriever` as a user runs it."""

import json

import pytest
from rewardlab.judges.retrieval.encoder import load_encoder

from tests.apps.judging import call, write

WORDS = ("roses", "bees", "mulch", "frost", "pond", "herbs", "moss", "birds")
SMALL = ["--small_hidden", 16, "--small_layers", 1, "--small_vocabulary", 300, "--facets", 2, "--width", 8]
SMALL += ["--max_length", 32, "--per_device_train_batch_size", 4, "--max_steps", 6, "--save_steps", 2]
SMALL += ["--use_cpu", "True", "--disable_tqdm", "True"]


def rows() -> list[dict]:
    """Rubrics in both formats, a labelled case and a pair; two themes and a row without one."""
    rubric = {"principles": [{"id": "p", "description": "Says when."}]}
    return [
        *({"prompt": f"Care of {word}?", "rubric": rubric, "theme": n % 2} for n, word in enumerate(WORDS)),
        {"prompt": "Care of ants?", "rubrics": [{"criterion": "Names sugar.", "points": 3}], "theme": "0"},
        {"prompt": "Care of elms?", "answers": ["Cut them.", "Sing."], "best": [0], "theme": "1"},
        {"id": "x", "prompt": "Care of oaks?", "chosen": "Wait.", "rejected": "Run."},
    ]


@pytest.fixture
def train(tmp_path, capsys):
    data = write(tmp_path / "rows.jsonl", rows())

    def run(*words, output="encoder", data=data):
        words = ["retriever", data, "--group_by", "theme", *SMALL, *words, "--output", tmp_path / output]
        return *call(capsys, *words), tmp_path / output

    return run


def test_an_encoder_is_trained_on_every_kind_of_row_and_loads(train):
    code, facts, err, folder = train()
    assert code == 0, err
    assert facts["pairs"] == {"prompt -> rubric": 11, "case -> case": 10} and facts["over_length"] > 0
    encoder = load_encoder(folder)
    assert encoder.contract == facts["contract"] and encoder.embed(["Care of bees?"]).shape == (1, 2, 8)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["arguments"]["case_weight"] == 0.5 and manifest["train_loss"] == facts["train_loss"]


def test_what_cannot_be_trained_is_one_sentence(train):
    for words, code, message in (
        (["--case_weight", "2"], 2, "--case_weight must be a share in [0, 1]"),
        (["--model", "no_such_folder/x/y"], 3, "cannot be loaded as an encoder"),
    ):
        found, _, err, folder = train(*words)
        assert found == code and message in err and not folder.exists(), words


def test_rows_without_a_document_are_refused_with_their_line(train, tmp_path):
    data = write(tmp_path / "bad.jsonl", [*rows(), {"prompt": "alone"}])
    code, _, err, _ = train(data=data)
    assert code == 3 and "bad.jsonl:12: no column" in err
