"""Transformers classifiers with tokenizer and scoring contract: loading, assembly and saving."""

import copy
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import PreTrainedTokenizerBase

from ..backbones.hub import ADAPTER, origin
from ..backbones.loading import load_classifier
from ..backbones.lora_classifier import check_targets, load_lora
from ..backbones.tokenization import Encoder, describe_tokenizer, edge_tokens, position_limit
from ..contract.scoring_contract import FILE, Edge, ScoringContract, load_contract
from ..errors import UsageError
from ..io.sharded_weights import gathered_state

Reading = TypeVar("Reading", bound=Encoder)
Stated = TypeVar("Stated", bound=ScoringContract)


class SavedClassifier(Generic[Reading]):
    """A classifier of Transformers, its encoder and its contract."""

    def __init__(self, model: Any, encoder: Reading):
        self.model = model
        self.encoder = encoder
        self.contract = encoder.contract

    def save(self, folder: Path) -> None:
        """Save the weights as Transformers (or PEFT) does, the tokenizer, and the contract."""
        folder.mkdir(parents=True, exist_ok=True)
        card = folder / "README.md"
        has_card = card.exists()
        with self._pad_id_for_export():
            self.model.save_pretrained(folder, state_dict=self._state())
        if not has_card:
            card.unlink(missing_ok=True)  # PEFT's template of a card, without a word about the model
        self._tokenizer_for_export().save_pretrained(folder)
        self.contract.save(folder)

    def _state(self) -> dict[str, Any] | None:
        """Return the weights to save; None to save all weights of a model that is not sharded."""
        return gathered_state(self.model)

    def _tokenizer_for_export(self) -> PreTrainedTokenizerBase:
        """Return a tokenizer whose truncation settings match the scoring contract, for other software."""
        tokenizer = copy.deepcopy(self.encoder.tokenizer)
        tokenizer.truncation_side = tokenizer.init_kwargs["truncation_side"] = self.contract.truncation or "left"
        tokenizer.model_max_length = self.contract.max_length or tokenizer.model_max_length
        return tokenizer

    @contextmanager
    def _pad_id_for_export(self):
        """Omit the pad token id from a saved config if pad equals EOS: other software then refuses batches of rows."""
        tokenizer, config = self.encoder.tokenizer, self.model.config.get_text_config()
        pad_id = config.pad_token_id
        if tokenizer.pad_token == edge_tokens(tokenizer)[1]:
            config.pad_token_id = None
        try:
            yield
        finally:
            config.pad_token_id = pad_id


class OpenedModel(NamedTuple, Generic[Stated]):
    """Name, scoring contract and precision of a model to load, as determined by `open_source`."""

    name: str
    """Hub id, or absolute path of the folder: an adapter stores its base model's name."""
    contract: Stated | None
    """Scoring contract of the folder; None for a backbone and for models of other software."""
    adapted: bool
    """Whether the folder holds an adapter."""
    dtype: str
    """Precision in the scoring contract, or else the `dtype` argument."""


def open_source(
    source: str, form: type[Stated], stated: Mapping[str, Any], *, dtype: str, fresh: bool, lora: LoraConfig | None
) -> OpenedModel[Stated]:
    """Return name, scoring contract and precision of a folder or Hub id.

    Raise `UsageError` if the contract is not of the class `form`, or if `stated` settings differ from the contract's
    fields. `dtype` is compared only for training (`fresh`) and if it is not the default, float32.
    """
    folder = Path(source)
    name = str(folder.resolve()) if folder.exists() else source
    contract = load_contract(folder) if (folder / FILE).exists() else None
    if contract and not isinstance(contract, form):
        raise UsageError(f"{name} is a reward model of kind '{contract.kind}'; start from its backbone")
    for setting, value in {**stated, "dtype": dtype if fresh and dtype != "float32" else None}.items():
        if contract and value not in (None, fixed := vars(contract)[setting]):
            raise UsageError(
                f"{name} was trained with {setting} {fixed!r}, which is part of its contract; got {value!r}: remove "
                f"--{setting}, or start from the backbone"
            )
    adapted = (folder / ADAPTER).exists()
    if lora is not None and adapted:
        raise UsageError(f"{name} is an adapter already; remove --lora to train it further, or start from its base")
    return OpenedModel(name, contract, adapted, contract.dtype if contract else dtype)


def load_weights(
    source: OpenedModel[Any],
    objectives: tuple[str, ...],
    *,
    fresh: bool,
    lora: LoraConfig | None,
    per_token: bool = False,
    **loading: Any,
) -> tuple[Any, list[str]]:
    """Return the classifier of a source, and the names of its new parameters, which `lora` trains in full.

    The head of a token classifier is trained in full as well; PEFT's `all-linear` would add an adapter to this head.
    """
    loading |= {"dtype": source.dtype, "per_token": per_token}
    if source.adapted:
        return load_lora(Path(source.name), objectives, trainable=fresh, **loading), []
    model, new = load_classifier(source.name, objectives, fresh_head=fresh, **loading)
    trunk = f"{model.base_model_prefix}."
    head = [name for name, _ in model.named_parameters() if per_token and not name.startswith(trunk)]
    if lora is not None and (trained := [*(key.removeprefix(trunk) for key in new), *head]):
        _train_in_full(lora, trained)
    return model, new


def _train_in_full(lora: LoraConfig, new: list[str]) -> None:
    """Train and save new modules in full: with LoRA, PEFT would not save their random base weights."""
    modules = sorted({key.partition(".")[0] for key in new})
    lora.modules_to_save = sorted({*(lora.modules_to_save or []), *modules})
    lora.exclude_modules = modules


def determined_fields(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int | None = None,
    bos: Edge | None = None,
    eos: Edge | None = None,
) -> dict[str, Any]:
    """Return the fields of a new contract that model and tokenizer determine."""
    length = {"max_length": max_length or context_of(model.config, tokenizer)}
    return length | describe_tokenizer(tokenizer, bos, eos) | origin(model.config)


def context_of(config: Any, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the default maximum length: the model's context length, at most 4,096 tokens."""
    positions = position_limit(config) or 4096
    return min(positions, tokenizer.model_max_length, 4096)


def assemble(
    model: Any, tokenizer: PreTrainedTokenizerBase, lora: LoraConfig | None, task: TaskType, device: str | None
) -> Any:
    """Return the classifier on the device, with the adapters of `lora` and the pad token of its tokenizer."""
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    model = model if lora is None else add_lora(model, lora, task)
    return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def add_lora(model: Any, lora: LoraConfig, task: TaskType) -> Any:
    """Return the model with new adapters."""
    check_targets(model, lora.target_modules)
    lora.task_type = task  # without it PEFT leaves the head out of the saved folder
    return get_peft_model(model, lora)
