"""Scalar reward model: any Hugging Face decoder or encoder backbone with a linear head on the sequence."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...backbones.gguf import origin
from ...backbones.loading import (
    check_vocabulary,
    classifier_from_config,
    decoder_head,
    embedding_rows,
    ensure_pad,
    load_classifier,
    load_tokenizer,
    sequence_scores,
)
from ...backbones.lora_classifier import check_targets, load_lora
from ...backbones.packing import Packed, packed_attention, packed_scores, packing_limit, prefix_batches
from ...backbones.saved_classifier import SavedClassifier, asked_dtype, open_source
from ...backbones.tokenization import Batch, Encoder, describe_tokenizer, pad
from ...contract.scoring_contract import Edge, ScoringContract
from ...errors import UsageError
from ...types import Example
from .contract import ScalarContract
from .foreign import OBJECTIVES, Outputs, apply_normalisation, edges_of, keep_output, outputs_of, reward_index

CPU_TOKENS = 2048
_TURN = RLock()  # packed attention is switched on in the model itself, so calls on other rows have to wait
Row = tuple[int, ...]


class ScalarRewardModel(SavedClassifier[Encoder]):
    """A sequence classifier, its encoder and its contract: r(x, y) = w · h_last, one row per sequence."""

    def score(self, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]) -> Float[Tensor, "N K"]:
        """Rewards of tokenised sequences, padded on either side; differentiable."""
        return sequence_scores(self.model, tokens, attention)

    def rate(self, examples: Sequence[Example], *, batch_tokens: int = 16_384) -> np.ndarray:
        """Return rewards [N, K] in float64, independent of batching; at most `batch_tokens` tokens per forward pass.

        Equal sequences are computed once. If the model supports it, common prefixes are computed once too, without
        padding (see `packing`); otherwise sequences of similar length share a batch. On a CPU at most 2,048 tokens are
        computed at once, which is faster because they fit its caches.
        """
        rows = [tuple(encoded.ids) for encoded in self.encoder.encode_all(examples)]
        distinct, rewards = sorted(set(rows)), {}
        progress = tqdm(total=len(distinct), desc="scoring", disable=None, delay=1)
        with _TURN, torch.inference_mode(), progress:
            self.model.eval()
            for some, scores in self._batches(distinct, batch_tokens):
                rewards |= zip(some, scores.double().tolist(), strict=True)
                progress.update(len(some))
        return np.array([rewards[row] for row in rows]).reshape(len(rows), len(self.contract.objectives))

    def _batches(self, rows: Sequence[Row], batch_tokens: int) -> Iterator[tuple[Sequence[Row], Float[Tensor, "N K"]]]:
        """Yield groups of the sorted, distinct rows with their scores: packed if the model supports it, else padded."""
        device = next(self.model.parameters()).device
        limit = packing_limit(self.model) if len(rows) > 1 else 0
        short, long = ([row for row in rows if (0 < len(row) <= limit) == packed] for packed in (True, False))
        with packed_attention(self.model) if short else nullcontext():
            for some in prefix_batches(short, _computed_at_once(device, batch_tokens)):
                yield some, packed_scores(self.model, Packed(some, device))
        for some, batch in padded_batches(long, device, batch_tokens):
            yield some, self.score(*batch)


def padded_batches(
    rows: Sequence[Row], device: torch.device, batch_tokens: int = 16_384
) -> Iterator[tuple[list[Row], Batch]]:
    """Yield rows of similar length with their padded batch on the device; at most 2,048 tokens at once on a CPU."""
    for indices in batches_of([*map(len, rows)], _computed_at_once(device, batch_tokens)):
        some = [rows[index] for index in indices]
        yield some, Batch(*(tensor.to(device) for tensor in pad(some)))


def _computed_at_once(device: torch.device, batch_tokens: int) -> int:
    return min(batch_tokens, CPU_TOKENS) if device.type == "cpu" else batch_tokens


def batches_of(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Group indices into batches of similar length; padded size at most `batch_tokens`, or a single row."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batches and (len(batches[-1]) + 1) * lengths[index] <= batch_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def load_scalar(
    source: str,
    *,
    fresh: bool = False,
    max_length: int | None = None,
    chat_template: str | None = None,
    objective: str | None = None,
    bos: Edge | None = None,
    eos: Edge | None = None,
    dtype: str = "float32",
    lora: LoraConfig | None = None,
    seed: int = 0,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> ScalarRewardModel:
    """Load a reward model from a folder or Hub id.

    A saved folder has its own contract. For other sequence classifiers the contract is derived from the tokenizer and
    from what the software that trained them left in the folder; `bos` and `eos` override both, and `objective` names
    the output that is the reward where there are several classes. With `fresh` the source is a backbone to be trained:
    a missing head, otherwise an error, is initialised from `seed`, and `lora` adds adapters. `max_length` in tokens.
    """
    asked = {"max_length": max_length, "dtype": asked_dtype(dtype, fresh=fresh), "bos": bos, "eos": eos}
    source, contract, adapted = open_source(source, ScoringContract, asked, lora)
    if fresh and contract and contract.kind not in ("scalar", "multi_objective"):
        raise UsageError(f"{source} is a reward model of kind '{contract.kind}'; start from its backbone")
    outputs = Outputs(contract.objectives if contract else OBJECTIVES, False)
    if not (contract or fresh):
        outputs = outputs_of(source, adapted=adapted, trust_remote_code=trust_remote_code)
    index, names = reward_index(source, outputs, objective), outputs.names
    dtype = contract.dtype if contract else dtype
    tokenizer = load_tokenizer(source, chat_template=chat_template, trust_remote_code=trust_remote_code)
    loading = {"dtype": dtype, "seed": seed, "trust_remote_code": trust_remote_code}
    if adapted:
        model, new = load_lora(Path(source), names, trainable=fresh, **loading), []
    else:
        model, new = load_classifier(source, names, fresh_head=fresh, **loading)
        if lora is not None and new:
            _keep_whole(lora, [key.removeprefix(f"{model.base_model_prefix}.") for key in new])
    check_vocabulary(tokenizer, model, source)
    if index is not None:
        keep_output(model, names, index)
    if contract is None:
        objectives = names if index is None else (names[index],)
        stated = edges_of(source, model.config) | {k: v for k, v in (("bos", bos), ("eos", eos)) if v is not None}
        stated |= {} if adapted or new else apply_normalisation(model, source)
        contract = _new_contract(model, tokenizer, objectives, max_length=max_length, dtype=dtype, **stated)
    return _assemble(model, tokenizer, contract, lora=lora, device=device)


def scalar_from_config(
    config: Any,
    tokenizer: PreTrainedTokenizerBase,
    *,
    objectives: tuple[str, ...] = OBJECTIVES,
    max_length: int | None = None,
    lora: LoraConfig | None = None,
    seed: int = 0,
) -> ScalarRewardModel:
    """Create an untrained reward model with random weights, for example from `backbones.loading.small_config`."""
    model = classifier_from_config(config, objectives, seed)
    contract = _new_contract(model, tokenizer, objectives, max_length=max_length, dtype="float32")
    return _assemble(model, tokenizer, contract, lora=lora, device=None)


def _new_contract(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    objectives: tuple[str, ...],
    *,
    max_length: int | None,
    dtype: str,
    bos: Edge | None = None,
    eos: Edge | None = None,
    **stated: Any,
) -> ScoringContract:
    """Return the contract of a model that has none; `stated` are further fields of it."""
    ensure_pad(tokenizer, embedding_rows(model))
    return ScalarContract(
        kind="scalar",
        objectives=objectives,
        dtype=dtype,
        truncation="left",
        max_length=max_length or context_of(model.config, tokenizer),
        pooling="model" if decoder_head(model) is None else "last",
        **describe_tokenizer(tokenizer, bos, eos),
        **origin(model.config),
        **stated,
    )


def _assemble(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    contract: ScoringContract,
    *,
    lora: LoraConfig | None,
    device: str | None,
) -> ScalarRewardModel:
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    if lora is not None:
        check_targets(model, lora.target_modules)
        lora.task_type = TaskType.SEQ_CLS  # without it PEFT leaves the head out of the saved folder
        model = get_peft_model(model, lora)
    model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return ScalarRewardModel(model, Encoder(tokenizer, contract))


def context_of(config: Any, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the model's context length, at most 4,096 tokens; `max_length` overrides it."""
    positions = getattr(config.get_text_config(), "max_position_embeddings", None) or 4096
    return min(positions, tokenizer.model_max_length, 4096)


def _keep_whole(lora: LoraConfig, new: list[str]) -> None:
    """Train and save new modules in full: PEFT does not save base weights, so LoRA on random ones would lose them."""
    modules = sorted({key.partition(".")[0] for key in new})
    lora.modules_to_save = sorted({*(lora.modules_to_save or []), *modules})
    lora.exclude_modules = modules
