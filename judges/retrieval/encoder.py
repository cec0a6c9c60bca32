"""Bi-encoder of texts: any Hugging Face backbone, with facet or mean pooling of its hidden states."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoModel

from ...rm.backbones.loading import fingerprint, load_trunk, small_config, small_tokenizer
from ...rm.backbones.tokenization import pad
from ...rm.errors import UNREADABLE, DataError
from ...rm.io.checked_files import from_json
from ...rm.types import content_hash
from .pooling import FacetPooling, MeanPooling
from .settings import EncoderSettings

POOLING, SETTINGS = "pooling.safetensors", "encoder.json"
SENTENCE_END = re.compile(r"[.!?。！？…]+[\"'”’)\]]*\s+|\s*\n\s*")
"""Separator of sentences: closing punctuation before a space, or a line break."""


def sentence_starts(text: str) -> list[int]:
    """Return the indices of the characters at which sentences start; the first is 0.

    >>> sentence_starts("One. Two?\\n- Three")
    [0, 5, 10]
    """
    return [0, *(match.end() for match in SENTENCE_END.finditer(text) if match.end() < len(text) and match.start())]


def sentences_of_tokens(text: str, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Return the index of each token's sentence, 0, 1, 2, ... in order, from its character offsets (start, end).

    A token belongs to the sentence of its last character, so a leading space does not matter. A token without
    characters (BOS, EOS) belongs to the sentence of the previous token.

    >>> sentences_of_tokens("One. Two", [(0, 0), (0, 3), (3, 4), (4, 8), (0, 0)])
    [0, 0, 0, 1, 1]
    """
    if not offsets:
        return []
    last = np.array([max(end - 1, 0) for _, end in offsets])
    sentences = np.searchsorted(sentence_starts(text), np.maximum.accumulate(last), side="right") - 1
    return np.unique(sentences, return_inverse=True)[1].tolist()


class TokenizedText(NamedTuple):
    """Token ids of a text after truncation, and the index of each token's sentence."""

    ids: list[int]
    sentences: list[int]


class TextBatch(NamedTuple):
    """Texts as padded tensors."""

    tokens: Int[Tensor, "N L"]
    attention: Bool[Tensor, "N L"]
    sentence: Int[Tensor, "N L"]


def batch_of(texts: Sequence[TokenizedText]) -> TextBatch:
    """Pad texts on the right. Padded positions have sentence index 0 and attention mask 0."""
    tokens, attention = pad([text.ids for text in texts])
    return TextBatch(tokens, attention, pad([text.sentences for text in texts]).tokens)


class FacetEncoder(nn.Module):
    """Encode each text as F unit vectors, with the same encoder for queries and documents.

    A bi-encoder after UniFAR (arXiv:2602.23766): the backbone's last hidden states, then `pooling.FacetPooling`. The
    backbone is an encoder, or a decoder with causal attention.
    """

    def __init__(self, backbone: Any, tokenizer: Any, settings: EncoderSettings):
        super().__init__()
        if not tokenizer.is_fast:
            raise DataError(f"the tokenizer of '{tokenizer.name_or_path}' gives no offsets; use a fast tokenizer")
        tokenizer.truncation_side = "right"
        self.backbone, self.tokenizer, self.settings = backbone, tokenizer, settings
        hidden = backbone.config.hidden_size
        if settings.pooling == "mean":
            self.pooling: nn.Module = MeanPooling(hidden, settings.width)
        else:
            self.pooling = FacetPooling(
                hidden, settings.width, settings.facets, settings.granularities, settings.segment_sentences
            )

    def forward(
        self, tokens: Int[Tensor, "N L"], attention: Bool[Tensor, "N L"], sentence: Int[Tensor, "N L"]
    ) -> Float[Tensor, "N F W"]:
        """Return the vectors of a batch, in float32."""
        states = self.backbone(input_ids=tokens, attention_mask=attention.long()).last_hidden_state
        return self.pooling(states.float(), attention, sentence)

    def tokenize(self, texts: Sequence[str]) -> list[TokenizedText]:
        """Tokenize texts. An empty text is replaced by a space."""
        inputs = [text if text.strip() else " ." for text in texts]
        if not inputs:
            return []
        limits = {"truncation": True, "max_length": self.settings.max_length}
        encoded = self.tokenizer(inputs, return_offsets_mapping=True, **limits)
        return [
            TokenizedText(ids, sentences_of_tokens(text, offsets))
            for text, ids, offsets in zip(inputs, encoded["input_ids"], encoded["offset_mapping"], strict=True)
        ]

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], *, batch_size: int = 32) -> np.ndarray:
        """Return the vectors [N, F, W] in float32. Texts of similar length share a batch."""
        self.eval()
        tokenized = self.tokenize(texts)
        order = sorted(range(len(texts)), key=lambda index: len(tokenized[index].ids))
        device, parts = next(self.parameters()).device, []
        for start in tqdm(range(0, len(order), batch_size), desc="encoding", disable=None, delay=2):
            batch = batch_of([tokenized[index] for index in order[start : start + batch_size]])
            parts.append(self(*(tensor.to(device) for tensor in batch)).cpu())
        facets = 1 if self.settings.pooling == "mean" else self.settings.facets
        vectors = torch.empty(len(texts), facets, self.settings.width)
        if parts:
            vectors[order] = torch.cat(parts)
        return vectors.numpy()

    def over_length(self, texts: Sequence[str]) -> int:
        """Return the number of texts that exceed the maximum length and are truncated."""
        lengths = self.tokenizer(list(texts), verbose=False).input_ids if texts else []
        return sum(len(ids) > self.settings.max_length for ids in lengths)

    @property
    def contract(self) -> str:
        """Hash of settings, vocabulary and weights, which determine the vectors."""
        words = content_hash(sorted(self.tokenizer.get_vocab().items()))
        return content_hash([asdict(self.settings), words, fingerprint(self)])

    def save(self, folder: Path) -> None:
        """Save the backbone as Transformers does, the pooling and the settings."""
        folder.mkdir(parents=True, exist_ok=True)
        self.backbone.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        save_file({name: weight.contiguous() for name, weight in self.pooling.state_dict().items()}, folder / POOLING)
        values = asdict(self.settings) | {"contract": self.contract}
        (folder / SETTINGS).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def load_encoder(source: str | Path, *, trust_remote_code: bool = False) -> FacetEncoder:
    """Load a saved encoder. Raise `DataError` if its settings or weights have changed since it was saved."""
    folder = Path(source)
    try:
        values = from_json((folder / SETTINGS).read_text(encoding="utf-8"))
        stated = values.pop("contract")
        settings = EncoderSettings(**values | {"granularities": tuple(values["granularities"])})
        weights = load_file(folder / POOLING)
    except (*UNREADABLE, SafetensorError) as error:
        raise DataError(f"{folder}: no retrieval encoder ({error}); train one with rewardlab retriever") from error
    backbone, tokenizer = load_trunk(str(folder), trust_remote_code=trust_remote_code)
    encoder = FacetEncoder(backbone, tokenizer, settings)
    try:
        encoder.pooling.load_state_dict(weights)
    except RuntimeError as error:
        raise DataError(f"{folder / POOLING}: the weights do not fit the settings ({error}); train again") from error
    if encoder.contract != stated:
        raise DataError(
            f"{folder}: the settings or weights have changed since saving (contract {encoder.contract}, saved with "
            f"{stated}); restore the folder, or train it again"
        )
    return encoder.eval()


def new_encoder(
    settings: EncoderSettings, source: str | None, texts: Sequence[str], *, seed: int = 0, hidden: int = 128,
    layers: int = 2, vocabulary: int = 4096, trust_remote_code: bool = False,
) -> FacetEncoder:  # fmt: skip
    """Return an encoder with untrained pooling on a given backbone, or on a small new one for `texts`."""
    if source:
        backbone, tokenizer = load_trunk(source, trust_remote_code=trust_remote_code)
    else:
        tokenizer = small_tokenizer(texts, vocabulary)
        config = small_config(tokenizer, hidden=hidden, layers=layers, positions=max(2048, settings.max_length))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            backbone = AutoModel.from_config(config).float()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return FacetEncoder(backbone, tokenizer, settings).train()
