"""Process reward model: a token classifier that scores every step of a completion where the step ends."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from peft import LoraConfig, PeftModel, TaskType
from scipy.special import expit
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...backbones.loading import (
    check_vocabulary,
    classifier_from_config,
    embedding_rows,
    ensure_pad,
    load_config,
    load_tokenizer,
    name_labels,
)
from ...backbones.lora_classifier import head_rows
from ...contract.scoring_contract import Edge
from ...errors import DataError, UsageError, did_you_mean
from ...types import Example
from .._batches import Row, compute_distinct, padded_batches
from .._classifier import SavedClassifier, assemble, determined_fields, load_weights, open_source
from ..scalar.foreign import with_single_output
from . import Aggregate, ProcessContract
from .step_encoding import EncodedSteps, StepEncoder, token_outputs

OBJECTIVES = ("correct",)
LABELS = ("wrong", *OBJECTIVES)  # of TRL's token classifiers
STEP_SEPARATOR, AGGREGATE = "\n\n", "min"
"""Defaults of a new model's scoring contract."""
StepScores = Float[np.ndarray, "T K"]
AGGREGATES: Mapping[Aggregate, Callable[[StepScores], Float[np.ndarray, " K"]]] = {
    "min": lambda scores: scores.min(axis=0),
    "product": lambda scores: scores.prod(axis=0),
    "last": lambda scores: scores[-1],
    "mean": lambda scores: scores.mean(axis=0),
}


class ProcessRewardModel(SavedClassifier[StepEncoder]):
    """p_t = σ(w · h_t + b), the probability that step t is correct, read at the token that ends the step

    Let's Verify Step by Step, Lightman et al. 2023 (arXiv:2305.20050); Math-Shepherd, Wang et al. 2023
    (arXiv:2312.08935). h_t is the last hidden state at that token, w and b are the head. The scoring contract states
    how steps are separated, and whether the reward is the minimum, product, last or mean of the p_t. With a causal
    backbone p_t does not depend on text after step t.
    """

    contract: ProcessContract

    def step_scores(self, examples: Sequence[Example]) -> list[StepScores]:
        """Return p of every step, [T, K] in [0, 1] for each example; NaN for steps beyond the maximal length.

        Completions are split at the contract's separator, unless they are stored as steps (`rm.types.Steps`).
        """
        encoded = self.encoder.encode_steps(examples)
        logits = self.token_logits([some.ids for some in encoded])
        return [_step_scores(*pair) for pair in zip(encoded, logits, strict=True)]

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return rewards [N, K] in [0, 1]; NaN for a completion without steps, or with a truncated step."""
        return self._aggregated(self.step_scores(examples))

    def token_logits(
        self, rows: Sequence[Sequence[int]], *, batch_tokens: int = 16_384
    ) -> list[Float[np.ndarray, "L K"]]:
        """Return the head's outputs at every token of each row, without activation, independent of batching.

        Equal rows are computed once; at most `batch_tokens` tokens per forward pass, and 2,048 on a CPU.
        """
        device = next(self.model.parameters()).device

        def compute(distinct: list[Row]) -> Iterator[tuple[list[Row], list[np.ndarray]]]:
            for some, batch in padded_batches(distinct, device, batch_tokens):
                outputs = self.forward(*batch).double().cpu().numpy()
                yield some, [output[: len(row)] for row, output in zip(some, outputs, strict=True)]

        return compute_distinct(self.model, [tuple(row) for row in rows], compute)

    def forward(self, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]) -> Float[Tensor, "N L K"]:
        """Return the head's outputs of sequences padded on either side, with the padding moved to the right."""
        return token_outputs(self.model, tokens, attention)

    def padded_rewards(
        self, examples: Sequence[Example], tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]
    ) -> np.ndarray:
        """Return the rewards [N, K] of examples from their padded token ids."""
        self.model.eval()
        with torch.inference_mode():
            outputs = self.forward(tokens, attention).double().cpu().numpy()
        encoded = self.encoder.encode_steps(examples)
        return self._aggregated(
            [_step_scores(some, output[: len(some.ids)]) for some, output in zip(encoded, outputs, strict=True)]
        )

    def with_aggregate(self, aggregate: str) -> "ProcessRewardModel":
        """Return a model with the same weights that combines the steps' scores in another way."""
        contract = replace(self.contract, aggregate=_checked_aggregate(aggregate))
        return ProcessRewardModel(self.model, StepEncoder(self.encoder.tokenizer, contract))

    def _aggregated(self, scores: Sequence[StepScores]) -> np.ndarray:
        """Return rewards [N, K], aggregated from the scores of each completion's steps; NaN without steps."""
        aggregate, K = AGGREGATES[self.contract.aggregate], len(self.contract.objectives)
        rewards = [aggregate(some) if len(some) else np.full(K, np.nan) for some in scores]
        return np.array(rewards, float).reshape(len(scores), K)


def _step_scores(encoded: EncodedSteps, logits: Float[np.ndarray, "L K"]) -> StepScores:
    """Return the probability at the end of every step; NaN for truncated steps."""
    scores = np.full((len(encoded.ends), logits.shape[1]), np.nan)
    read = [end for end in encoded.ends if end < len(encoded.ids)]
    scores[: len(read)] = expit(logits[read])
    return scores


def load_process(
    source: str,
    *,
    fresh: bool = False,
    step_separator: str | None = None,
    step_token: str | None = None,
    aggregate: str | None = None,
    max_length: int | None = None,
    chat_template: str | None = None,
    bos: Edge | None = None,
    dtype: str = "float32",
    lora: LoraConfig | None = None,
    seed: int = 0,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> ProcessRewardModel:
    """Load a process reward model from a folder or Hub id.

    A saved folder includes its scoring contract. Other token classifiers need one output, or two labels (wrong,
    correct) as trained by TRL. For these, the arguments state the separator (default: a blank line), an existing token
    to read in place of the separator, and the aggregate (min, product, last, mean). With `fresh` the source is a
    backbone to be trained, and `lora` adds adapters. `max_length` is in tokens.
    """
    arguments = {"step_separator": step_separator, "step_token": step_token, "aggregate": aggregate}
    arguments |= {"max_length": max_length, "bos": bos}
    opened = open_source(source, ProcessContract, arguments, dtype=dtype, fresh=fresh, lora=lora)
    source, contract, adapted, dtype = opened
    tokenizer = load_tokenizer(source, chat_template=chat_template, trust_remote_code=trust_remote_code)
    if contract:
        objectives = contract.objectives
    else:
        objectives = LABELS[-head_rows(Path(source)) :] if adapted else _labels(source, trust_remote_code)
    loading = {"seed": seed, "trust_remote_code": trust_remote_code, "per_token": True}
    model, _ = load_weights(opened, objectives, fresh=fresh, lora=lora, **loading)
    if len(objectives) == 2 and contract is None:
        with_single_output(model, torch.tensor([-1.0, 1.0]))  # softmax(z)_1 = σ(z_1 - z_0)
        name_labels(model.config, OBJECTIVES, per_token=True)
    check_vocabulary(tokenizer, model, source)
    contract = contract or _new_contract(model, tokenizer, arguments, max_length=max_length, dtype=dtype)
    model = assemble(model, tokenizer, lora, TaskType.TOKEN_CLS, device)
    return ProcessRewardModel(model, StepEncoder(tokenizer, contract))


def process_from_config(
    config: Any,
    tokenizer: PreTrainedTokenizerBase,
    *,
    step_separator: str | None = None,
    step_token: str | None = None,
    aggregate: str | None = None,
    max_length: int | None = None,
    seed: int = 0,
) -> ProcessRewardModel:
    """Create an untrained process reward model with random weights; see `process` for its settings."""
    model = classifier_from_config(config, OBJECTIVES, seed, per_token=True)
    arguments = {"step_separator": step_separator, "step_token": step_token, "aggregate": aggregate}
    contract = _new_contract(model, tokenizer, arguments, max_length=max_length, dtype="float32")
    model = assemble(model, tokenizer, None, TaskType.TOKEN_CLS, None)
    return ProcessRewardModel(model, StepEncoder(tokenizer, contract))


def _labels(source: str, trust_remote_code: bool) -> tuple[str, ...]:
    """Return the label names of a token classifier of other software; a single output for any other backbone."""
    try:
        config = load_config(source, trust_remote_code=trust_remote_code)
    except (OSError, ValueError):
        return OBJECTIVES  # loading raises the proper error
    if not any(name.endswith("ForTokenClassification") for name in config.architectures or ()):
        return OBJECTIVES
    names = tuple(config.id2label[index] for index in sorted(config.id2label))
    if len(names) > 2:
        raise DataError(
            f"{source}: a token classifier of {len(names)} labels ({', '.join(names)}); a process reward model has one "
            "output, or the labels wrong and correct"
        )
    return names if len(names) == 2 else OBJECTIVES


def _new_contract(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    arguments: Mapping[str, Any],
    *,
    max_length: int | None,
    dtype: str,
) -> ProcessContract:
    ensure_pad(tokenizer, embedding_rows(model))
    return ProcessContract(
        kind="process",
        objectives=OBJECTIVES,
        dtype=dtype,
        truncation="right",
        step_separator=arguments["step_separator"] or STEP_SEPARATOR,
        step_token=arguments["step_token"],
        aggregate=_checked_aggregate(arguments["aggregate"] or AGGREGATE),
        **determined_fields(model, tokenizer, max_length=max_length, bos=arguments.get("bos")) | {"eos": None},
    )


def _checked_aggregate(aggregate: str) -> Any:
    if aggregate not in AGGREGATES:
        raise UsageError(f"unknown aggregate '{aggregate}' of step scores; {did_you_mean(aggregate, AGGREGATES)}")
    return aggregate
