"""Multi-objective reward model: one head with an output per objective and an overall reward, their weighted sum."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, TaskType
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from ...backbones.loading import check_vocabulary, load_tokenizer
from ...backbones.tokenization import Encoder, pad
from ...contract.scoring_contract import Edge, load_contract
from ...errors import UNREADABLE, DataError, UsageError, did_you_mean
from ...io.checked_files import from_json
from ...types import OVERALL, PreferencePair, RewardModel, content_hash
from .._classifier import OpenedModel, assemble, load_weights
from .._pairwise_logistic import pairwise_logistic
from ..scalar.foreign import last_linear
from ..scalar.model import ScalarRewardModel, load_scalar, new_contract

WEIGHTS = "objective_weights.json"


class MultiObjectiveRewardModel(ScalarRewardModel):
    """Rewards (r_1, ..., r_K, Σ_k w_k r_k) with weights w_k. The head has a row for each of these rewards."""

    def __init__(self, model: Any, encoder: Encoder, weights: Mapping[str, float]):
        super().__init__(model, encoder)
        self.weights = dict(weights)

    def save(self, folder: Path) -> None:
        """Save a scalar model's files, and the weights of the objectives."""
        super().save(folder)
        (folder / WEIGHTS).write_text(json.dumps(self.weights, indent=2) + "\n", encoding="utf-8")


def load_multi_objective(source: str, **options: Any) -> MultiObjectiveRewardModel:
    """Load the reward model in a folder written by `MultiObjectiveRewardModel.save`; options are those of `scalar`."""
    folder = Path(source)
    body = load_scalar(source, **options)
    try:
        weights = from_json((folder / WEIGHTS).read_text(encoding="utf-8"))
        same = load_contract(folder).backbone == _hash(weights) and (*weights, OVERALL) == body.contract.objectives
    except UNREADABLE as error:
        raise DataError(f"{folder / WEIGHTS}: no weights of objectives ({error}); give the full folder") from error
    if not same:
        raise DataError(
            f"{folder / WEIGHTS}: {weights} are not the weights that the model was saved with; restore the file, or "
            "train again with other --weights"
        )
    model = MultiObjectiveRewardModel(body.model, body.encoder, weights)
    _check_sum(model)
    return model


def load_untrained(
    source: str,
    objectives: Sequence[str],
    *,
    max_length: int | None = None,
    chat_template: str | None = None,
    bos: Edge | None = None,
    eos: Edge | None = None,
    dtype: str = "float32",
    lora: LoraConfig | None = None,
    seed: int = 0,
    trust_remote_code: bool = False,
) -> ScalarRewardModel:
    """Load a backbone with a new, untrained head of one output per objective; see `scalar`."""
    names, opened = tuple(objectives), OpenedModel(source, None, False, dtype)
    tokenizer = load_tokenizer(source, chat_template=chat_template, trust_remote_code=trust_remote_code)
    loading = {"seed": seed, "trust_remote_code": trust_remote_code}
    model, _ = load_weights(opened, names, fresh=True, lora=lora, **loading)
    check_vocabulary(tokenizer, model, source)
    contract = new_contract(model, tokenizer, names, max_length=max_length, dtype=dtype, bos=bos, eos=eos)
    model = assemble(model, tokenizer, lora, TaskType.SEQ_CLS, None)
    return ScalarRewardModel(model, Encoder(tokenizer, contract))


@torch.no_grad()
def with_overall(model: ScalarRewardModel, weights: Mapping[str, float]) -> MultiObjectiveRewardModel:
    """Set the last output of a model's head, `overall`, to the weighted sum of its other outputs."""
    *names, last = model.contract.objectives
    if last != OVERALL:
        raise UsageError(f"the last objective must be '{OVERALL}', got {', '.join(model.contract.objectives)}")
    weights = checked_weights(weights, names)
    head = last_linear(model.model, len(names) + 1)
    if head is None:
        raise UsageError(f"this model has no linear head of {len(names) + 1} outputs; remove --weights")
    w = torch.tensor([*weights.values()], dtype=torch.float64, device=head.weight.device)
    for tensor in [head.weight] + ([] if head.bias is None else [head.bias]):
        tensor[-1] = torch.tensordot(w, tensor[:-1].double(), 1).to(tensor.dtype)
    contract = replace(model.contract, kind="multi_objective", backbone=_hash(weights))
    result = MultiObjectiveRewardModel(model.model, Encoder(model.encoder.tokenizer, contract), weights)
    _check_sum(result)
    return result


def checked_weights(weights: Mapping[str, float], objectives: Sequence[str]) -> dict[str, float]:
    """Return a finite weight for every objective, in the objectives' order; a negative weight marks a cost."""
    for name in weights:
        if name not in objectives:
            raise UsageError(f"unknown objective '{name}' in the weights; {did_you_mean(name, objectives)}")
    if absent := [name for name in objectives if name not in weights]:
        raise UsageError(f"the weights {dict(weights)} lack {', '.join(absent)}; add {absent[0]}=0 for no weight")
    if not all(np.isfinite(weight) for weight in weights.values()) or not any(weights.values()):
        raise UsageError(f"weights must be finite numbers and not all 0, got {dict(weights)}")
    return {name: float(weights[name]) for name in objectives}


def learned_weights(
    model: RewardModel,
    objectives: Sequence[str],
    pairs: Sequence[PreferencePair],
    *,
    positive: bool = False,
    C: float = 1.0,
) -> dict[str, float]:
    """Fit w of P(chosen is better overall) = σ(Σ_k w_k (r_k(y_w) - r_k(y_l))), without an intercept.

    A logistic regression of the `overall` labels; with `positive` all w >= 0; C as in scikit-learn (penalty |w|² / 2).
    """
    labelled = labelled_overall(pairs)
    rewards = model.rate([example for pair in labelled for example in pair.examples])[:, : len(objectives)]
    differences, wins = rewards[::2] - rewards[1::2], np.array([pair.chance(OVERALL) for pair in labelled])
    weights = pairwise_logistic(differences, wins, C=C)
    if positive and (weights < 0).any():
        weights = _positive_logistic(differences, wins, C)
    return dict(zip(objectives, weights.tolist(), strict=True))


def labelled_overall(pairs: Sequence[PreferencePair]) -> list[PreferencePair]:
    """Return the pairs with an `overall` label, to learn weights from; raise `DataError` if there are none."""
    labelled = [pair for pair in pairs if not np.isnan(pair.chance(OVERALL))]
    if not labelled:
        raise DataError(
            f"none of {len(pairs)} pairs has an '{OVERALL}' label to learn weights from; add labels, or give the "
            "weights with --weights NAME=NUMBER,..."
        )
    return labelled


def _positive_logistic(differences: np.ndarray, wins: np.ndarray, C: float) -> np.ndarray:
    """Minimise the objective of `pairwise_logistic` over w >= 0."""

    def cost(w: np.ndarray) -> tuple[float, np.ndarray]:
        logits = differences @ w
        value = -(wins * log_expit(logits) + (1 - wins) * log_expit(-logits)).sum()
        return w @ w / 2 + C * value, w + C * differences.T @ (expit(logits) - wins)

    start = np.ones(differences.shape[1]) / differences.shape[1]
    return minimize(cost, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(start)).x


def _hash(weights: Mapping[str, float]) -> str:
    return content_hash({"weights": [[name, float(weight)] for name, weight in weights.items()]})


def _check_sum(model: MultiObjectiveRewardModel) -> None:
    """Raise `DataError` unless the overall reward of a test input is the weighted sum, within the dtype's precision."""
    device = next(model.model.parameters()).device
    ids = [index % model.model.config.get_text_config().vocab_size for index in range(1, 9)]
    batch = pad([ids, ids[:3]])
    model.model.eval()
    with torch.inference_mode():
        *single, overall = model.score(batch.tokens.to(device), batch.attention.to(device)).double().cpu().unbind(1)
    parts = [weight * reward for weight, reward in zip(model.weights.values(), single, strict=True)]
    size = torch.stack([part.abs() for part in parts]).sum(0) + 1e-6
    tolerance = 1e-4 if model.contract.dtype in ("float32", "float64") else 5e-2
    if not ((overall - torch.stack(parts).sum(0)).abs() <= tolerance * size).all():
        raise DataError(
            f"the overall reward is not the sum of the objectives weighted by {model.weights}; the head has been "
            "changed; train again"
        )
