"""Other backends of a parity check: plain Transformers or PEFT, another folder, and a file of scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from peft import AutoPeftModelForSequenceClassification
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ..backbones.hub import parse_source, tokenizer_source
from ..backbones.lora_classifier import ADAPTER
from ..data.pairs import as_number, collect, column, parse_examples
from ..data.scored_rows import reward_columns
from ..errors import UsageError
from ..kinds.latent.model import LatentRewardModel
from ..kinds.process.model import ProcessRewardModel
from ..kinds.scalar.model import ScalarRewardModel
from ..load import load_reward_model
from ..types import Example, ReadsTokens, tools_of
from .known_faults import BackendScores, device_of, untruncated_ids
from .model_server import sglang, vllm
from .parity import BATCH_SIZE, Backend
from .targets import NATIVE_KINDS, Against


class Group(NamedTuple):
    """Backends that score the same conversations."""

    examples: Sequence[Example]
    backends: dict[str, Backend]
    theirs: bool = False
    """Whether another program computes the scores."""


def target_groups(
    target: Against, source: str, model: Any, examples: list[Example], plain: list[Example], **options: Any
) -> list[Group]:
    """Return a target's backends with their conversations; `plain` are those of `with_plain_truncation`."""
    if target.kind == "scores":
        return [stored_scores(target.target, model.contract.objectives)]
    if isinstance(model, ProcessRewardModel) and target.kind != "model":
        if target.kind == "vllm":
            return []  # compared step by step, by `process_parities`
        raise UsageError(
            f"--against {target.kind} gives one score for a conversation; the steps of a process reward model are "
            "compared with --against vllm URL or http URL"
        )
    if isinstance(model, LatentRewardModel) and target.kind in ("vllm", "sglang"):
        raise UsageError(
            f"--against {target.kind} does not support the latent steps of this model; compare it with "
            "http URL of rewardlab serve, or with another folder"
        )
    if target.kind in NATIVE_KINDS:
        read = checkpoint if target.kind == "checkpoint" else adapter
        return [Group(plain, read(source, model, **options), True)]
    if target.kind == "vllm":
        by_ids, by_messages = vllm(target.target, model)
        return [Group(examples, by_ids, True), Group(plain, by_messages, True)]
    if target.kind == "sglang":
        by_ids, by_text = sglang(target.target, model)
        lengths = [encoded.length for encoded in model.encoder.encode_all(examples)]
        limit = model.contract.max_length or max(lengths)
        short = [example for example, length in zip(examples, lengths, strict=True) if length <= limit]
        return [Group(examples, by_ids, True), Group(short, by_text, True)]
    return [Group(examples, folder_backend(target.target, **options), True)]


def with_plain_truncation(model: Any, examples: Sequence[Example]) -> list[Example]:
    """Return the conversations that a tokenizer truncates as the contract does (which always keeps a leading BOS)."""
    contract, sequences = model.contract, []
    for example, encoded in zip(examples, model.encoder.encode_all(examples), strict=True):
        full_ids, limit = untruncated_ids(model, example), contract.max_length or encoded.length
        if encoded.ids == (full_ids[:limit] if contract.truncation == "right" else full_ids[-limit:]):
            sequences.append(example)
    return sequences


def stored_scores(source: str, objectives: Sequence[str]) -> Group:
    """Return the conversations of a file with the scores that another program gave them.

    A row has `prompt` and `completion`, or `messages`, and one number per objective, or a single `score`.
    """

    def parse(values: Mapping[str, Any]) -> tuple[Example, list[float]]:
        examples = parse_examples(values)
        if len(examples) != 1:
            raise ValueError("a row of scores must have one conversation: prompt and completion, or messages")
        columns = zip(objectives, reward_columns(objectives), strict=True)
        names = [renamed if renamed in values else name for name, renamed in columns]
        if len(names) == 1:
            names = [next((name for name in (*names, "score", "reward") if name in values), names[0])]
        scores = [as_number(column(values, name), f"the score '{name}'") for name in names]
        if None in scores:
            raise ValueError(f"no score: '{names[scores.index(None)]}' is empty")
        return examples[0][1], [score for score in scores if score is not None]

    rows, _ = collect(source, parse)
    examples, scores = zip(*rows, strict=True)
    return Group([*examples], {source: lambda _: BackendScores(np.array(scores))}, True)


def checkpoint(source: str, model: Any, **options: Any) -> dict[str, Backend]:
    """Score with plain Transformers: the folder's chat template, padding and truncation, in batches of eight."""
    _check_scalar(source, model)
    if (Path(source) / ADAPTER).exists():
        return {"plain PEFT": plain(source, _load_peft(source, model, options), options)}
    location = parse_source(source)
    revision = {"revision": location.revision or "main"}
    other = AutoModelForSequenceClassification.from_pretrained(
        location.name, use_safetensors=True, **revision, **options
    )
    outputs = [other.config.label2id.get(name, row) for row, name in enumerate(model.contract.objectives)]
    return {"plain Transformers": plain(source, other.to(device_of(model)), options, outputs)}


def adapter(source: str, model: Any, **options: Any) -> dict[str, Backend]:
    """Score with base and adapter through plain PEFT, unmerged and merged."""
    _check_scalar(source, model)
    if not (Path(source) / ADAPTER).exists():
        raise UsageError(f"--against adapter: {source} holds no {ADAPTER}; give a LoRA's folder, or remove 'adapter'")
    merged = plain(source, _load_peft(source, model, options).merge_and_unload(), options)
    return {"plain PEFT": plain(source, _load_peft(source, model, options), options), "plain PEFT, merged": merged}


def _load_peft(source: str, model: Any, options: dict[str, Any]) -> Any:
    """Load a LoRA folder with plain PEFT on the device of `model`."""
    labels = len(model.contract.objectives)
    other = AutoPeftModelForSequenceClassification.from_pretrained(source, num_labels=labels, **options)
    return other.to(device_of(model))


def _check_scalar(source: str, model: Any) -> None:
    if not isinstance(model, ScalarRewardModel):
        raise UsageError(
            f"--against checkpoint and adapter read a sequence classifier, but {source} is of kind "
            f"'{model.contract.kind}'; compare it with http URL or another folder"
        )


def plain(source: str, other: Any, options: dict[str, Any], outputs: Sequence[int] = ()) -> Backend:
    """Score with `apply_chat_template` and a classifier's columns `outputs`; without a pad token one at a time."""
    location = parse_source(tokenizer_source(source))
    tokenizer = AutoTokenizer.from_pretrained(location.name, revision=location.revision, **options)
    batch_size = 1 if other.config.get_text_config().pad_token_id is None else BATCH_SIZE
    other.eval()

    def score(examples: Sequence[Example]) -> BackendScores:
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
            return BackendScores(np.empty(0), because=f"refused: {str(error).strip().splitlines()[0]}")
        return BackendScores(np.concatenate(scores), tokens)

    return score


def folder_backend(source: str, **options: Any) -> dict[str, Backend]:
    """Score with the reward model in another folder, by its tokenizer and scoring contract."""
    other: Any = load_reward_model(source, check=False, **options)

    def score(examples: Sequence[Example]) -> BackendScores:
        reads_tokens = isinstance(other, ReadsTokens)
        tokens = [encoded.ids for encoded in other.encoder.encode_all(examples)] if reads_tokens else None
        return BackendScores(other.rate(examples), tokens)

    return {source: score}
