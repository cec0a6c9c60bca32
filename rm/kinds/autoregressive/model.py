"""Autoregressive reward model: the log-probability of a completion under a causal language model is its reward."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...adapters.adapter import PreferenceAdapter, attach, load_adapter
from ...adapters.settings import SETTINGS as ADAPTER
from ...adapters.settings import AdapterSettings, load_settings
from ...backbones.loading import load_causal_lm, load_tokenizer
from ...backbones.logprobs import centred_logprobs, completion_logprobs
from ...backbones.tokenization import EncodedCompletion, Encoder, pad
from ...contract.scoring_contract import FILE, Edge, ScoringContract, contract_class, load_contract
from ...data.preference_vectors import Preference, preference_vector
from ...errors import UNREADABLE, DataError, UsageError
from ...io.checked_files import from_json
from ...io.sharded_weights import gathered_state
from ...types import Example
from .._batches import batches_of
from .._classifier import context_of, determined_fields

SETTINGS = "autoregressive.json"


class AutoregressiveRewardModel:
    """r(x, y) = β Σ_t (log π_r(y_t | x, y_<t) + c_t), over the tokens of the completion          Xu et al. 2024,
    arXiv:2410.08193, with c_t = 0

    π_r is the language model, y_t token t of completion y to prompt x. The completion includes EOS or end of turn. The
    sum is not divided by the length. `token_offset` sets a constant c_t in nats; `centred` sets
    c_t = -Σ_v π_0(v | x, y_<t) log π_r(v | x, y_<t) with the base model π_0. Neither changes guided decoding. With an
    adapter conditioned on a preference (PARM, UniARM) there is one reward per objective, computed with all weight on
    that objective, or a single reward for `preference`.
    """

    def __init__(
        self,
        model: Any,
        encoder: Encoder,
        *,
        beta: float = 1.0,
        token_offset: float = 0.0,
        centred: bool = False,
        adapter: PreferenceAdapter | None = None,
        preference: Preference | None = None,
    ):
        self.model = model
        self.encoder = encoder
        self.beta = beta
        self.token_offset, self.centred = token_offset, centred
        self.adapter = adapter
        self.preference = preference
        self.contract = encoder.contract
        if preference is not None:
            name = ",".join(f"{objective}={share:g}" for objective, share in preference.items())
            self.contract = replace(self.contract, objectives=(name,))

    def logprobs(
        self, examples: Sequence[Example], *, preference: Preference | None = None, batch_tokens: int = 16_384
    ) -> list[np.ndarray]:
        """Return log π_r + c_t in nats of every completion token: the last tokens of `encoder.encode(example).ids`."""
        if self.adapter is not None and self.adapter.settings.follows_preference:
            with torch.inference_mode():
                self.adapter.set_preference(preference or self.preference)
        rows = [self.encoder.encode_completion(example) for example in examples]
        base = self.adapter.disabled if self.adapter is not None and self.centred else None
        return model_logprobs(self.model, rows, batch_tokens, self.token_offset, base)

    def rate(self, examples: Sequence[Example], *, batch_tokens: int = 16_384) -> np.ndarray:
        """Return rewards [N, K] in float64; examples of similar length are batched up to `batch_tokens` tokens."""
        logprobs = partial(self.logprobs, examples, batch_tokens=batch_tokens)
        return np.concatenate([sums(logprobs(preference=p), self.beta) for p in self._preferences()], axis=1)

    def at(self, preference: Preference) -> "AutoregressiveRewardModel":
        """Return the model with a fixed preference: it has one reward, named after the preference."""
        if self.adapter is None or not self.adapter.settings.follows_preference:
            raise UsageError(f"this reward model takes no preference, got {dict(preference)}; pass none")
        preference_vector(preference, self.adapter.objectives)
        return self._copy_with(preference=preference)

    def with_token_offset(self, token_offset: float) -> "AutoregressiveRewardModel":
        """Return the model with another constant `token_offset`, also in its scoring contract."""
        contract = replace(self.contract, token_offset=token_offset or None)
        return self._copy_with(encoder=Encoder(self.encoder.tokenizer, contract), token_offset=token_offset)

    def _copy_with(self, **changes: Any) -> "AutoregressiveRewardModel":
        names = ("model", "encoder", "beta", "token_offset", "centred", "adapter")
        return AutoregressiveRewardModel(**{name: vars(self)[name] for name in names} | changes)

    def _preferences(self) -> list[Preference | None]:
        """Return the preference of every reward: the fixed one, or all one-hot preferences."""
        if self.adapter is None or not self.adapter.settings.follows_preference or self.preference is not None:
            return [self.preference]
        names = self.adapter.objectives
        return [{name: float(name == objective) for name in names} for objective in names]

    def save(self, folder: Path) -> None:
        """Save the language model as Transformers does, or only the adapter, with tokenizer, β and contract."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.adapter is None:
            self.model.save_pretrained(folder, state_dict=gathered_state(self.model))
        else:
            self.adapter.save_pretrained(folder)
        self.encoder.tokenizer.save_pretrained(folder)
        settings = {"beta": self.beta, "token_offset": self.token_offset, "centred": self.centred}
        (folder / SETTINGS).write_text(json.dumps(settings) + "\n", encoding="utf-8")
        self.encoder.contract.save(folder)


def model_logprobs(
    model: PreTrainedModel,
    rows: Sequence[EncodedCompletion],
    batch_tokens: int,
    offset: float = 0.0,
    base: Callable[[], AbstractContextManager[Any]] | None = None,
) -> list[np.ndarray]:
    """Return log-probabilities of each completion's tokens plus `offset`, in nats, as one float64 array per row.

    With `base`, they are centred on the base model's expectation (`centred_logprobs`). Tokens of tool results get 0.
    """
    device = next(model.parameters()).device
    values_by_row: list[np.ndarray] = [np.empty(0)] * len(rows)
    model.eval()
    with torch.inference_mode():
        for indices in tqdm(
            batches_of([len(row.ids) for row in rows], batch_tokens), desc="scoring", disable=None, delay=1
        ):
            batch = pad([rows[position].ids for position in indices])
            start = torch.tensor([rows[position].start for position in indices])
            sequences = batch.tokens.to(device), batch.attention.to(device), start.to(device)
            logprobs = centred_logprobs(model, base, *sequences) if base else completion_logprobs(model, *sequences)
            for index, values in zip(indices, logprobs.double().cpu().numpy() + offset, strict=True):
                for span in rows[index].tool_results:
                    values[span.start : span.stop] = 0.0
                values_by_row[index] = values[rows[index].start : len(rows[index].ids)]
    return values_by_row


def sums(logprobs: Sequence[np.ndarray], beta: float) -> np.ndarray:
    """Return β times the sum of each completion's log-probabilities, as rewards [N, 1]."""
    return beta * np.array([values.sum() for values in logprobs], float)[:, None]


def load_autoregressive(
    source: str,
    *,
    beta: float | None = None,
    token_offset: float | None = None,
    centred: bool | None = None,
    adapter: AdapterSettings | None = None,
    base: PreTrainedModel | None = None,
    max_length: int | None = None,
    chat_template: str | None = None,
    dtype: str = "float32",
    device: str | None = None,
    trust_remote_code: bool = False,
    bos: Edge | None = None,
    eos: Edge | None = None,
) -> AutoregressiveRewardModel:
    """Load a causal language model from a folder or Hub id as a reward model, or load a saved reward model.

    A saved folder includes β and the scoring contract; otherwise β defaults to 1. With `adapter` the source is a base
    model that gets a new adapter: kind `lora` is GenARM, `pblora` PARM, `moslora` UniARM. `base` is a base model that
    is already loaded, and is changed in place. `max_length` is in tokens.
    """
    folder = Path(source)
    contract = load_contract(folder) if (folder / FILE).exists() else None
    saved = read_settings(folder / SETTINGS) if contract and contract.kind == "autoregressive" else {}
    settings: dict[str, Any] = {"beta": 1.0, "token_offset": 0.0, "centred": False}
    settings |= resolve_settings(source, saved, beta=beta, token_offset=token_offset, centred=centred)
    check_beta(settings["beta"])
    fixed = vars(contract) if contract else {}
    limits = resolve_settings(source, fixed, max_length=max_length, bos=bos, eos=eos)
    dtype = contract.dtype if contract else dtype
    tokenizer = load_tokenizer(source, chat_template=chat_template, trust_remote_code=trust_remote_code)
    loading = {"dtype": dtype, "device": device, "trust_remote_code": trust_remote_code}
    model, over = _with_adapter(source, base, adapter, tokenizer, loading)
    if settings["centred"] and over is None:
        raise UsageError("centred rewards need a guide that is an adapter of its base model; choose an adapter")
    contract = contract or completion_contract(
        "autoregressive",
        tokenizer,
        [model],
        dtype=dtype,
        beta=settings["beta"],
        token_offset=settings["token_offset"] or None,
        token_baseline="base" if settings["centred"] else None,
        backbone=over.settings.base_fingerprint if over else None,
        objectives=over.objectives if over else ("reward",),
        **limits,
    )
    return AutoregressiveRewardModel(
        over.model if over else model, Encoder(tokenizer, contract), **settings, adapter=over
    )


def _with_adapter(
    source: str,
    model: PreTrainedModel | None,
    adapter: AdapterSettings | None,
    tokenizer: PreTrainedTokenizerBase,
    loading: Mapping[str, Any],
) -> tuple[PreTrainedModel, PreferenceAdapter | None]:
    """Return the base model (loaded unless passed as `model`) and its adapter: saved, new, or None."""
    folder = Path(source)
    adapted = (folder / ADAPTER).exists()
    if adapted and adapter is not None:
        raise UsageError(f"{source} is an adapter already; start from its base, {load_settings(folder).base}")
    if model is None:
        model = load_causal_lm(load_settings(folder).base if adapted else source, tokenizer, **loading)
    return model, load_adapter(model, folder) if adapted else attach(model, adapter, tokenizer) if adapter else None


def completion_contract(
    kind: str,
    tokenizer: PreTrainedTokenizerBase,
    models: Sequence[PreTrainedModel],
    *,
    max_length: int | None = None,
    bos: Edge | None = None,
    eos: Edge | None = None,
    **stated: Any,
) -> ScoringContract:
    """Return the contract of a reward summed over tokens; `max_length` defaults to the models' shortest context."""
    length = max_length or min(context_of(model.config, tokenizer) for model in models)
    determined = determined_fields(models[0], tokenizer, max_length=length, bos=bos, eos=eos)
    return contract_class(kind)(kind=kind, truncation="left", **determined, **stated)


def read_settings(path: Path) -> dict[str, Any]:
    """Load settings that are stored beside the weights, from a JSON file."""
    try:
        settings = from_json(path.read_text(encoding="utf-8"))
        numbers = {"beta": float(settings["beta"]), "token_offset": float(settings.get("token_offset", 0.0))}
        return settings | numbers | {"centred": settings.get("centred") is True}
    except UNREADABLE as error:
        raise DataError(f"{path}: missing or damaged ({error}); restore it, or save the model again") from error


def resolve_settings(source: str, saved: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
    """Return the settings that are saved or given as arguments; raise an error if the two differ."""
    for name, value in arguments.items():
        if saved.get(name) is not None and value not in (None, saved[name]):
            stated = f"{source} was saved with {name} {saved[name]}, got {value}"
            raise UsageError(f"{stated}; remove the argument, or start from the base model")
    values = {name: value if saved.get(name) is None else saved[name] for name, value in arguments.items()}
    return {name: value for name, value in values.items() if value is not None}


def check_beta(beta: float) -> float:
    """Return β; raise `UsageError` unless it is finite and positive."""
    if not (math.isfinite(beta) and beta > 0):
        raise UsageError(f"beta must be a finite number above 0, got {beta}")
    return beta
