"""A classifier with its tokenizer and scoring contract, and the folder that holds the three."""

import copy
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from peft import LoraConfig
from transformers import PreTrainedTokenizerBase

from ..contract.scoring_contract import FILE, ScoringContract, load_contract
from ..errors import UsageError
from ..io.sharded_weights import gathered_state
from .lora_classifier import ADAPTER
from .tokenization import Encoder, edge_tokens

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
        with self._pad_for_others():
            self.model.save_pretrained(folder, state_dict=self._state())
        if not has_card:
            card.unlink(missing_ok=True)  # PEFT's template of a card, without a word about the model
        self._cut_for_others().save_pretrained(folder)
        self.contract.save(folder)

    def _state(self) -> dict[str, Any] | None:
        """Return the weights to save; None for all weights of a model that is not sharded."""
        return gathered_state(self.model)

    def _cut_for_others(self) -> PreTrainedTokenizerBase:
        """Return a tokenizer that truncates as the contract does when other software uses it."""
        tokenizer = copy.deepcopy(self.encoder.tokenizer)
        tokenizer.truncation_side = tokenizer.init_kwargs["truncation_side"] = self.contract.truncation or "left"
        tokenizer.model_max_length = self.contract.max_length or tokenizer.model_max_length
        return tokenizer

    @contextmanager
    def _pad_for_others(self):
        """Save no pad token id in the config if pad equals EOS: other software then refuses batches of rows."""
        tokenizer, config = self.encoder.tokenizer, self.model.config.get_text_config()
        pad_id = config.pad_token_id
        if tokenizer.pad_token == edge_tokens(tokenizer)[1]:
            config.pad_token_id = None
        try:
            yield
        finally:
            config.pad_token_id = pad_id


class Source(NamedTuple, Generic[Stated]):
    """Where a classifier is loaded from."""

    name: str
    """Hub id, or absolute path of the folder: an adapter stores the name of its base."""
    contract: Stated | None
    """None for a backbone and for models of other software."""
    adapted: bool
    """Whether the folder holds an adapter."""


def asked_dtype(dtype: str, *, fresh: bool) -> str | None:
    """Return the precision that a training asks for; None without a training, and for the default, float32."""
    return dtype if fresh and dtype != "float32" else None


def open_source(source: str, form: type[Stated], asked: Mapping[str, Any], lora: LoraConfig | None) -> Source[Stated]:
    """Return what a folder or Hub id holds.

    `UsageError` if its contract is not of the class `form`, or if `asked` settings differ from the contract's fields.
    """
    folder = Path(source)
    name = str(folder.resolve()) if folder.exists() else source
    contract = load_contract(folder) if (folder / FILE).exists() else None
    if contract and not isinstance(contract, form):
        raise UsageError(f"{name} is a reward model of kind '{contract.kind}'; start from its backbone")
    for setting, value in asked.items():
        if contract and value not in (None, fixed := getattr(contract, setting)):
            raise UsageError(
                f"{name} was trained with {setting} {fixed!r}, which is part of its contract; got {value!r}: leave "
                f"--{setting} out, or start from the backbone"
            )
    adapted = (folder / ADAPTER).exists()
    if lora is not None and adapted:
        raise UsageError(f"{name} is an adapter already; leave --lora out to train it on, or start from its base")
    return Source(name, contract, adapted)
