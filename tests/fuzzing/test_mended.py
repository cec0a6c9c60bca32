"""What the fuzzer has found, each file as short as it was told; every one is answered with a sentence now."""

import gzip
import json
from functools import cache, partial
from typing import Any

import pytest
import torch
from rewardlab.rm.data.pairs import load_pairs
from rewardlab.rm.errors import DataError
from safetensors.torch import save

from tests.fuzzing.running import targets
from tests.fuzzing.shapes import PARQUET, SIGNED
from tests.fuzzing.target import Target, attempt, prepare
from tests.fuzzing.targets.run_folders import EXCHANGED

DEEP = b"[" * 3000
HUGE = b"9" * 400
ROLLOUTS = "runs/rl/rollouts/step-000002.parquet"


@cache
def known() -> dict[str, Target]:
    return {one.name: one for one in targets()}


def changed(name: str, **values: Any) -> bytes:
    """A target's valid JSON with other values."""
    return json.dumps(json.loads(known()[name].seeds[0]) | values).encode()


def signed(**values: Any) -> bytes:
    """A scoring contract with other values and the hash that belongs to them."""
    return SIGNED.write(json.loads(known()["models/scalar/scoring.json"].seeds[0]) | values)


def rows(name: str, **values: Any) -> bytes:
    """A table whose first row has other values; None takes the column away."""
    first, *rest = PARQUET.read(known()[name].seeds[0])
    first = first | values
    kept = [key for key in first if values.get(key, "") is not None]
    return PARQUET.write([{key: row[key] for key in kept} for row in (first, *rest)])


def pair(**values: Any) -> bytes:
    return json.dumps({"prompt": "p", "chosen": "c", "rejected": "d"} | values).encode()


READ_AS_A_WHOLE = (
    *("data/pairs.json", "settings/rubric.json", "settings/levels.json", "runs/rl/config.yaml", "replies/completion"),
    *("models/scalar/scoring.json", "models/scalar/golden.jsonl", "models/arm/preference_adapter.json"),
)
REFUSED = [
    # brackets without an end
    ("data/pairs.jsonl", lambda: DEEP, "not JSON"),
    ("settings/rubric.toml", lambda: b"n = " + DEEP, "nested too deeply"),
    ("settings/typed rubric", lambda: b'{"a":' * 3000, "nested too deeply"),
    ("settings/checklist.toml", lambda: b"n = " + DEEP, "nested too deeply"),
    ("settings/gate.yaml", lambda: b"{a: " * 3000, "nested too deeply"),
    ("settings/config.yaml", lambda: b"[" * 20_000, "nested too deeply"),
    ("replies/store", lambda: DEEP + b"\n", "nested too deeply"),
    *((name, lambda: DEEP, "nested too deeply") for name in READ_AS_A_WHOLE),
    # numbers that no type holds
    ("data/pairs.jsonl", lambda: pair(margin=10**400), "is not a finite number"),
    ("data/scored.jsonl", lambda: b'{"prompt": "p", "response": "r", "helpfulness": ' + HUGE + b"}", "no usable row"),
    ("replies/prices.toml", lambda: b"[small]\nprompt = " + HUGE, "int too large"),
    ("replies/completion", lambda: b'{"choices":[{"message":{"content":1e999}}]}', "no completion"),
    (
        "settings/rubric.toml",
        lambda: known()["settings/rubric.toml"].seeds[0].replace(b"3.0", HUGE),
        "weight is too large",
    ),
    ("settings/rubrics.jsonl", lambda: b'{"case":"1","rubrics":[{"criterion":"c","points":' + HUGE + b"}]}", "points"),
    # values of another kind
    (
        "suites/rmb",
        lambda: b'{"conversation_input":[1],"chosen":{},"reject":{},"category_path":"x"}',
        "a value of an unexpected type",
    ),
    ("suites/rewardbench2", lambda: ties(id="ref:1", rejected=[]), "no usable row"),
    ("suites/rewardbench2", lambda: ties(id="x"), "ref:NUMBER"),
    ("settings/levels.json", lambda: b"false", "levels need criteria"),
    ("settings/checklist.toml", lambda: b"\xfe", "can't decode"),
    ("settings/rubrics.jsonl", lambda: b'{"case": "1", "rubrics": [null]}', "list of objects"),
    ("settings/rubrics.jsonl", lambda: b'{"case": "1", "rubrics": 3}', "list of objects"),
    ("settings/gate.yaml", lambda: b"\x00", "not allowed"),
    # model folders
    ("models/scalar/scoring.json", lambda: signed(dtype="x" * 50), "dtype: of the wrong type"),
    ("models/scalar/scoring.json", lambda: signed(dtype={"value": "float32"}), "dtype: of the wrong type"),
    ("models/scalar/scoring.json", lambda: signed(objectives=[["reward"]]), "objectives: of the wrong type"),
    ("models/scalar/scoring.json", lambda: signed(max_length=-1), "max_length: of the wrong type"),
    ("models/scalar/config.json", lambda: changed("models/scalar/config.json", vocab_size=2**64), "vocab_size = "),
    ("models/scalar/config.json", lambda: changed("models/scalar/config.json", hidden_size=2**40), "hidden_size = "),
    ("models/scalar/config.json", lambda: layers(10**9), "num_hidden_layers = 1000000000"),
    ("models/a template for a model", lambda: b"\xe1", "not a readable chat template"),
    ("models/lora/adapter_config.json", lambda: b"", "not the settings of a LoRA"),
    ("models/lora/adapter_config.json", lambda: lora(task_type=""), "not the settings of a LoRA"),
    ("models/lora/adapter_config.json", lambda: lora(base_model_name_or_path=[]), "has no base model"),
    ("models/lora/adapter_config.json", lambda: lora(layer_replication=0.5), "does not fit its base"),
    ("models/lora/adapter_config.json", lambda: lora(modules_to_save=["[["]), "does not fit its base"),
    ("models/lora/adapter_config.json", lambda: lora(r=10**9), "a rank is a whole number"),
    ("models/ensemble/ensemble.json", lambda: ensemble(pessimism={}), "not the settings of an ensemble"),
    ("models/ensemble/ensemble.json", lambda: ensemble(members=["/" + "(" * 300] * 2), "is not a folder"),
    ("models/linear/vocabulary.json", lambda: b'["r", [[]]]', "not a list of distinct words"),
    # runs of others
    ("runs/eval/verify: summary.json", lambda: summary(samples=[]), "samples must be a whole number"),
    ("runs/eval/verify: summary.json", lambda: summary(samples=2**62), "samples must be a whole number"),
    ("runs/eval/verify: summary.json", lambda: summary(seed=-0.0), "seed must be a whole number"),
    ("runs/eval/verify: summary.json", lambda: summary(notes=3), "damaged"),
    ("runs/eval/verify: items.parquet", lambda: items(subset=None), "has no column 'subset'"),
    ("runs/eval/verify: items.parquet", lambda: items(messages=""), "cannot be read"),
    ("runs/eval/verify: scores.parquet", lambda: scores(abstained="x"), "either scores or a reason"),
    (
        "runs/eval/verify: scores.parquet",
        lambda: scores(scores=[1.0, 2.0, 3.0]),
        "'rm' lacks a score for each response",
    ),
    ("runs/eval/verify: scores.parquet", lambda: scores(abstained=None), "has no column 'abstained'"),
    ("runs/eval/items.parquet", lambda: items(best=[7]), "damaged|is there"),
    ("runs/judge/judgments.parquet", lambda: in_every_row("runs/judge/judgments.parquet", cost="much"), "is damaged"),
    (ROLLOUTS, lambda: in_every_row(ROLLOUTS, **{"reward/sources/rm": {"value": 1.0}}), "lack a column"),
    ("runs/exchange", lambda: exchange(), "the completion lengths do not add up to the number of tokens"),
]


def ties(**values: Any) -> bytes:
    return json.dumps({"prompt": "p", "chosen": ["a", "e"], "rejected": ["b"], "subset": "Ties"} | values).encode()


def layers(number: int) -> bytes:
    return changed("models/scalar/config.json", num_hidden_layers=number, layer_types=None)


lora, ensemble = (partial(changed, f"models/{name}.json") for name in ("lora/adapter_config", "ensemble/ensemble"))
summary = partial(changed, "runs/eval/summary.json")
items, scores = (partial(rows, f"runs/eval/{name}.parquet") for name in ("items", "scores"))


def in_every_row(name: str, **values: Any) -> bytes:
    return PARQUET.write([row | values for row in PARQUET.read(known()[name].seeds[0])])


def exchange() -> bytes:
    tensors = {"tokens": torch.tensor([1, 2, 3]), "lengths": torch.tensor([2, 67108865]), "logprobs": torch.zeros(3)}
    return save(tensors, metadata=EXCHANGED._asdict())


@pytest.mark.parametrize("family", sorted({name.partition("/")[0] for name, *_ in REFUSED}))
def test_a_file_that_broke_a_loader_is_refused_with_a_sentence(family, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name, data, why in REFUSED:
        if name.startswith(family):
            target = known()[name]
            found = attempt(target, data(), prepare(target, tmp_path / "folder"), deadline=20.0)
            assert found.kind == "refused", (name, why, found)
            assert any(part in found.why for part in why.split("|")), (name, why, found.why)


LONG = b"- " * 20_000 + b"1", b'{"id": "short", "met": "no", "evidence": ""}]}, ' * 1000, "✅ - ".encode() * 4000


def test_a_long_reply_of_marks_is_read_in_time(tmp_path):
    """Each took time with the square of its length: 17 s, 11 s and more."""
    target = known()["replies/verdicts"]
    for data in LONG:
        assert attempt(target, data, prepare(target, tmp_path / "folder"), deadline=5.0).kind == "opened"


def test_a_gzip_file_that_unpacks_to_gigabytes_is_refused_before(tmp_path):
    path = tmp_path / "pairs.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" * (80 << 20)))
    with pytest.raises(DataError, match=r"unpacks to more than 200 times its \d+,\d+ bytes"):
        load_pairs(str(path))
