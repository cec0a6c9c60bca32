"""Implicit reward of a policy trained from preferences (DPO): its log-ratio to the reference policy."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...backbones.loading import load_causal_lm, load_tokenizer
from ...backbones.tokenization import Encoder
from ...contract.scoring_contract import FILE, Edge, load_contract
from ...errors import DataError, UsageError
from ...io.hub_names import absolute_name
from ...types import Example, content_hash
from ..autoregressive.model import (
    check_beta,
    completion_contract,
    model_logprobs,
    read_settings,
    resolve_settings,
    sums,
)

SETTINGS = "implicit.json"


class ImplicitRewardModel:
    """r(x, y) = β Σ_t [log π(y_t | x, y_<t) - log π_ref(y_t | x, y_<t)]

    Rafailov et al. 2023, arXiv:2305.18290, eq. 5. The paper's term β log Z(x) is omitted: it is equal for all
    completions of a prompt, and intractable. Rewards are therefore comparable within a prompt, but not between prompts.
    """

    def __init__(self, policy: PreTrainedModel, reference: PreTrainedModel, encoder: Encoder, settings: dict[str, Any]):
        self.policy = policy
        self.reference = reference
        self.encoder = encoder
        self.settings = settings
        self.contract = encoder.contract

    def logprobs(self, examples: Sequence[Example], *, batch_tokens: int = 16_384) -> list[np.ndarray]:
        """Return log π - log π_ref in nats of every completion token (the last of `encoder.encode(x).ids`)."""
        rows = [self.encoder.encode_completion(example) for example in examples]
        both = (model_logprobs(model, rows, batch_tokens) for model in (self.policy, self.reference))
        return [policy - reference for policy, reference in zip(*both, strict=True)]

    def rate(self, examples: Sequence[Example], *, batch_tokens: int = 16_384) -> np.ndarray:
        """Return rewards [N, 1] in float64; examples of similar length are batched up to `batch_tokens` tokens."""
        return sums(self.logprobs(examples, batch_tokens=batch_tokens), self.settings["beta"])

    def save(self, folder: Path) -> None:
        """Save the names of the two models, β, the tokenizer and the contract, but not the models."""
        folder.mkdir(parents=True, exist_ok=True)
        self.encoder.tokenizer.save_pretrained(folder)
        (folder / SETTINGS).write_text(json.dumps(self.settings, indent=2) + "\n", encoding="utf-8")
        self.contract.save(folder)


def load_implicit(
    source: str,
    *,
    reference: str | None = None,
    beta: float | None = None,
    max_length: int | None = None,
    chat_template: str | None = None,
    bos: Edge | None = None,
    eos: Edge | None = None,
    dtype: str = "float32",
    device: str | None = None,
    trust_remote_code: bool = False,
) -> ImplicitRewardModel:
    """Load the implicit reward of the policy `source` against `reference` (β 0.1 by default), or a saved folder."""
    folder = Path(source)
    contract = load_contract(folder) if (folder / SETTINGS).exists() else None
    saved = _read(folder) if contract else {}
    if reference is None and not saved:
        raise UsageError(f"the implicit reward of {source} needs a reference; give the model that it was trained from")
    reference = reference and absolute_name(reference)
    settings: dict[str, Any] = {"policy": saved.get("policy") or absolute_name(source), "reference": None, "beta": 0.1}
    settings |= resolve_settings(source, saved, reference=reference, beta=beta)
    check_beta(settings["beta"])
    backbone = content_hash([settings["policy"], settings["reference"], settings["beta"]])
    if contract and contract.backbone != backbone:
        raise DataError(f"{folder / SETTINGS}: its models and beta differ from {FILE}; restore the saved file")
    fixed = vars(contract) if contract else {}
    limits = resolve_settings(source, fixed, max_length=max_length, bos=bos, eos=eos)
    tokenizer = load_tokenizer(source, chat_template=chat_template, trust_remote_code=trust_remote_code)
    other = load_tokenizer(settings["reference"], trust_remote_code=trust_remote_code)
    _check_same_vocabulary(tokenizer, other, settings)
    dtype = contract.dtype if contract else dtype
    loading = {"dtype": dtype, "device": device, "trust_remote_code": trust_remote_code}
    models = [load_causal_lm(settings[role], tokenizer, **loading) for role in ("policy", "reference")]
    stated = {"dtype": dtype, "beta": settings["beta"], "backbone": backbone}
    contract = contract or completion_contract("implicit", tokenizer, models, **stated, **limits)
    return ImplicitRewardModel(*models, Encoder(tokenizer, contract), settings)


def _read(folder: Path) -> dict[str, Any]:
    """Load the settings of a saved folder; raise `DataError` unless they name policy and reference."""
    settings = read_settings(folder / SETTINGS)
    if not all(isinstance(settings.get(role), str) for role in ("policy", "reference")):
        raise DataError(f"{folder / SETTINGS}: does not name a policy and a reference; save the model again")
    return settings


def _check_same_vocabulary(
    policy: PreTrainedTokenizerBase, reference: PreTrainedTokenizerBase, names: dict[str, Any]
) -> None:
    """Raise `DataError` if the vocabularies differ: log-probabilities can only be subtracted for the same tokens."""
    ours, theirs = policy.get_vocab(), reference.get_vocab()
    if content_hash(sorted(ours.items())) == content_hash(sorted(theirs.items())):
        return
    token, _number = min({*ours.items()} ^ {*theirs.items()}, key=lambda item: (item[1], item[0]))
    raise DataError(
        f"the policy {names['policy']} and the reference {names['reference']} do not share a vocabulary: token "
        f"'{token}' is {ours.get(token, 'absent')} in the first and {theirs.get(token, 'absent')} in the second; "
        "give the model that the policy was trained from, with its own tokenizer"
    )
