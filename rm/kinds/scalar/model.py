"""Scalar reward model: any Hugging Face decoder or encoder backbone with a linear head on the sequence."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from threading import RLock
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from peft import LoraConfig, PeftModel, TaskType
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...backbones.loading import check_vocabulary, classifier_from_config, embedding_rows, ensure_pad, load_tokenizer
from ...backbones.packing import Packed, packed_attention, packed_scores, packing_limit, prefix_batches
from ...backbones.sequence_scores import decoder_head, sequence_scores
from ...backbones.tokenization import Encoder
from ...contract.scoring_contract import Edge, ScoringContract
from ...errors import UsageError
from ...types import Example
from .._batches import Row, compute_distinct, computed_at_once, padded_batches
from .._classifier import SavedClassifier, assemble, determined_fields, load_weights, open_source
from . import ScalarContract
from .foreign import OBJECTIVES, Outputs, apply_normalisation, edges_of, keep_output, outputs_of, reward_index

_TURN = RLock()  # packed attention is switched on in the model itself, so calls on other rows have to wait


class ScalarRewardModel(SavedClassifier[Encoder]):
    """Reward r(x, y) = w · h_last, a linear head on the last hidden state, with encoder and scoring contract."""

    def score(self, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]) -> Float[Tensor, "N K"]:
        """Return the rewards of tokenised sequences, padded on either side; differentiable."""
        return sequence_scores(self.model, tokens, attention)

    def rate(self, examples: Sequence[Example], *, batch_tokens: int = 16_384) -> np.ndarray:
        """Return rewards [N, K] in float64, independent of batching; at most `batch_tokens` tokens per forward pass.

        Equal sequences are computed once. If the model supports it, common prefixes are computed once too, without
        padding (see `packing`); otherwise sequences of similar length share a batch. On a CPU at most 2,048 tokens are
        computed at once, which is faster because they fit its caches.
        """
        rows = [tuple(encoded.ids) for encoded in self.encoder.encode_all(examples)]
        with _TURN:
            rewards = compute_distinct(self.model, rows, partial(self._compute, batch_tokens))
        return np.array(rewards).reshape(len(rows), len(self.contract.objectives))

    def _compute(self, batch_tokens: int, distinct: list[Row]) -> Iterator[tuple[Sequence[Row], list[list[float]]]]:
        """Yield batches of distinct rows with their scores, packed if the model supports it, else padded."""
        rows = sorted(distinct)
        device = next(self.model.parameters()).device
        limit = packing_limit(self.model) if len(rows) > 1 else 0
        short, long = ([row for row in rows if (0 < len(row) <= limit) == packed] for packed in (True, False))
        with packed_attention(self.model) if short else nullcontext():
            for some in prefix_batches(short, computed_at_once(device, batch_tokens)):
                yield some, packed_scores(self.model, Packed(some, device)).double().tolist()
        for some, batch in padded_batches(long, device, batch_tokens):
            yield some, self.score(*batch).double().tolist()


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

    A saved folder includes its scoring contract. For other sequence classifiers the contract is derived from the
    tokenizer and from files of the software that trained them; `bos` and `eos` override it, and `objective` names the
    output that is the reward if there are several classes. With `fresh` the source is a backbone to be trained: a
    missing head, otherwise an error, is initialised from `seed`, and `lora` adds adapters. `max_length` is in tokens.
    """
    arguments = {"max_length": max_length, "bos": bos, "eos": eos}
    opened = open_source(source, ScoringContract, arguments, dtype=dtype, fresh=fresh, lora=lora)
    source, contract, adapted, dtype = opened
    if fresh and contract and contract.kind not in ("scalar", "multi_objective"):
        raise UsageError(f"{source} is a reward model of kind '{contract.kind}'; start from its backbone")
    outputs = Outputs(contract.objectives if contract else OBJECTIVES, False)
    if not (contract or fresh):
        outputs = outputs_of(source, adapted=adapted, trust_remote_code=trust_remote_code)
    index, names = reward_index(source, outputs, objective), outputs.names
    tokenizer = load_tokenizer(source, chat_template=chat_template, trust_remote_code=trust_remote_code)
    loading = {"seed": seed, "trust_remote_code": trust_remote_code}
    model, new = load_weights(opened, names, fresh=fresh, lora=lora, **loading)
    check_vocabulary(tokenizer, model, source)
    if index is not None:
        keep_output(model, names, index)
    if contract is None:
        objectives = names if index is None else (names[index],)
        stated = edges_of(source, model.config) | {k: v for k, v in (("bos", bos), ("eos", eos)) if v is not None}
        stated |= {} if adapted or new else apply_normalisation(model, source)
        contract = new_contract(model, tokenizer, objectives, max_length=max_length, dtype=dtype, **stated)
    model = assemble(model, tokenizer, lora, TaskType.SEQ_CLS, device)
    return ScalarRewardModel(model, Encoder(tokenizer, contract))


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
    contract = new_contract(model, tokenizer, objectives, max_length=max_length, dtype="float32")
    model = assemble(model, tokenizer, lora, TaskType.SEQ_CLS, None)
    return ScalarRewardModel(model, Encoder(tokenizer, contract))


def new_contract(
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
    """Create the scoring contract of a model without one; `stated` are further fields."""
    ensure_pad(tokenizer, embedding_rows(model))
    return ScalarContract(
        kind="scalar",
        objectives=objectives,
        dtype=dtype,
        truncation="left",
        pooling="model" if decoder_head(model) is None else "last",
        **determined_fields(model, tokenizer, max_length=max_length, bos=bos, eos=eos),
        **stated,
    )
