"""Other ways to compute scores: plain Transformers or PEFT, a fresh process, another folder."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import AutoPeftModelForSequenceClassification
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ....rm.backbones.hub import parse_source, tokenizer_source
from ....rm.backbones.lora_classifier import ADAPTER
from ....rm.errors import UsageError
from ....rm.kinds.scalar.model import ScalarRewardModel
from ....rm.load import load_reward_model
from ....rm.parity.known_faults import Scored, device_of, whole_ids
from ....rm.parity.parity import BATCH_SIZE, Way
from ....rm.types import Example, completion_json, tools_of
from ... import cli


def cut_plainly(model: Any, examples: Sequence[Example]) -> list[Example]:
    """The conversations that a tokenizer's own truncation leaves as the contract does.

    The contract keeps a leading BOS when it cuts the beginning, which no tokenizer's setting can say.
    """
    contract, sequences = model.contract, []
    for example, encoded in zip(examples, model.encoder.encode_all(examples), strict=True):
        full_ids, limit = whole_ids(model, example), contract.max_length or encoded.length
        if encoded.ids == (full_ids[:limit] if contract.truncation == "right" else full_ids[-limit:]):
            sequences.append(example)
    return sequences


# ---- other libraries ----


def checkpoint(source: str, model: Any, **options: Any) -> dict[str, Way]:
    """The folder through plain Transformers: its template, its tokenizer's padding and truncation, batches of eight."""
    _check_scalar(source, model)
    if (Path(source) / ADAPTER).exists():
        return {"plain PEFT": plain(source, _peft(source, model, options), options)}
    location = parse_source(source)
    revision = {"revision": location.revision or "main"}
    other = AutoModelForSequenceClassification.from_pretrained(
        location.name, use_safetensors=True, **revision, **options
    )
    outputs = [other.config.label2id.get(name, row) for row, name in enumerate(model.contract.objectives)]
    return {"plain Transformers": plain(source, other.to(device_of(model)), options, outputs)}


def adapter(source: str, model: Any, **options: Any) -> dict[str, Way]:
    """Score with base and adapter through plain PEFT, unmerged and merged."""
    _check_scalar(source, model)
    if not (Path(source) / ADAPTER).exists():
        raise UsageError(f"--against adapter: {source} holds no {ADAPTER}; give the folder of a LoRA, or leave it out")
    merged = _peft(source, model, options).merge_and_unload()
    return {
        "plain PEFT": plain(source, _peft(source, model, options), options),
        "plain PEFT, merged": plain(source, merged, options),
    }


def _peft(source: str, model: Any, options: dict[str, Any]) -> Any:
    labels = len(model.contract.objectives)
    other = AutoPeftModelForSequenceClassification.from_pretrained(source, num_labels=labels, **options)
    return other.to(device_of(model))


def _check_scalar(source: str, model: Any) -> None:
    if not isinstance(model, ScalarRewardModel):
        raise UsageError(
            f"--against checkpoint and adapter read a sequence classifier, and {source} is of kind "
            f"'{model.contract.kind}'; compare it with http URL or another folder"
        )


def plain(source: str, other: Any, options: dict[str, Any], outputs: Sequence[int] = ()) -> Way:
    """What a loop over `apply_chat_template` and a sequence classifier gives; without a pad token one by one.

    `outputs` are the columns that are rewards, of all that the classifier has.
    """
    location = parse_source(tokenizer_source(source))
    tokenizer = AutoTokenizer.from_pretrained(location.name, revision=location.revision, **options)
    batch_size = 1 if other.config.get_text_config().pad_token_id is None else BATCH_SIZE
    other.eval()

    def way(examples: Sequence[Example]) -> Scored:
        scores, tokens = [], []
        has_tools = any(tools_of(example.prompt) for example in examples)
        size = 1 if has_tools else batch_size  # a call takes one set of tools
        try:
            for start in range(0, len(examples), size):
                some = examples[start : start + size]
                batch = tokenizer.apply_chat_template(
                    [encoded_turns.turns for encoded_turns in some],
                    tools=tools_of(some[0].prompt) or None,
                    padding=size > 1,
                    truncation=True,
                    return_tensors="pt",
                    return_dict=True,
                ).to(other.device)
                with torch.inference_mode():
                    logits = other(**batch).logits.double().cpu().numpy()
                scores.append(logits[:, [*outputs]] if outputs else logits)
                real = batch["attention_mask"].bool()
                tokens += [row[mask].tolist() for row, mask in zip(batch["input_ids"], real, strict=True)]
        except Exception as error:  # templates and models raise what they like
            return Scored(np.empty(0), because=f"refused: {str(error).strip().splitlines()[0]}")
        return Scored(np.concatenate(scores), tokens)

    return way


# ---- this package, elsewhere ----


def other_model(source: str, **options: Any) -> dict[str, Way]:
    """Another folder, by its own tokenizer and contract."""
    other: Any = load_reward_model(source, check=False, **options)

    def way(examples: Sequence[Example]) -> Scored:
        has_encoder = hasattr(other, "encoder")
        tokens = [encoded.ids for encoded in other.encoder.encode_all(examples)] if has_encoder else None
        return Scored(other.rate(examples), tokens)

    return {source: way}


def fresh_process(source: str, objectives: Sequence[str], **options: Any) -> dict[str, Way]:
    """`rewardlab score` in a process of its own, with the options as its settings."""
    module = cli.__name__

    def way(examples: Sequence[Example]) -> Scored:
        with tempfile.TemporaryDirectory() as folder:
            data, out = Path(folder) / "conversations.jsonl", Path(folder) / "scores.jsonl"
            rows = (
                {"prompt": list(example.prompt), "completion": completion_json(example.completion)}
                for example in examples
            )
            data.write_text("".join(json.dumps(row) + "\n" for row in rows))
            command = [sys.executable, "-m", module, "score", "--model", source, "--check", "False"]
            command += ["--on_long", "truncate"]
            command += ["--data", str(data), "--output", str(out)]
            command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                return Scored(np.empty(0), because=f"refused: {(run.stderr.strip().splitlines() or ['?'])[-1]}")
            rows_read = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n") if line]
        return Scored(np.array([[row[name] for name in objectives] for row in rows_read], float))

    return {"fresh process": way}
