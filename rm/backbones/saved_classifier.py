"""A classifier with its tokenizer and scoring contract, and the folder that holds the three."""

import copy
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from transformers import PreTrainedTokenizerBase

from ..training.sharded_weights import gathered_state
from .tokenization import Encoder, edge_tokens

Reading = TypeVar("Reading", bound=Encoder)


class SavedClassifier(Generic[Reading]):
    """A classifier of Transformers, its encoder and its contract."""

    def __init__(self, model: Any, encoder: Reading):
        self.model = model
        self.encoder = encoder
        self.contract = encoder.contract

    def save(self, folder: Path) -> None:
        """Save the weights as Transformers (or PEFT) does, the tokenizer, and the contract."""
        folder.mkdir(parents=True, exist_ok=True)
        with self._pad_for_others():
            self.model.save_pretrained(folder, state_dict=gathered_state(self.model))
        self._cut_for_others().save_pretrained(folder)
        self.contract.save(folder)

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
