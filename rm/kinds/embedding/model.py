"""Embedding reward model: a frozen mean-pooled encoder and a linear Bradley-Terry head that trains in seconds."""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from tqdm import tqdm

from ...backbones.loading import load_trunk
from ...backbones.tokenization import pad
from ...contract.scoring_contract import ScoringContract, load_contract
from ...errors import DataError, UsageError
from ...io.cache_folder import cache_folder, create_in_cache
from ...types import OVERALL, Example, PreferencePair, TokenRewards, content_hash, prompt_text
from .._pairwise_logistic import pairwise_logistic

HEAD = "head.safetensors"
ENCODER = "encoder.txt"


class Embedder:
    """Mean-pooled last hidden states of a frozen encoder, cached on disk by weights, length, dtype and text."""

    def __init__(
        self, encoder: str, *, max_length: int, dtype: str, cache: Path | None = None, trust_remote_code: bool = False
    ):
        self.model, self.tokenizer = load_trunk(encoder, dtype=dtype, trust_remote_code=trust_remote_code)
        self.tokenizer.truncation_side = "left"  # keep the end of the text, which is the completion
        self.encoder, self.max_length, self.dtype = encoder, max_length, dtype
        self.cache = cache or cache_folder() / "embeddings.sqlite"
        self.fingerprint = _fingerprint(self.model, self.tokenizer)

    def __call__(self, texts: Sequence[str], *, batch_size: int = 32) -> np.ndarray:
        """Return embeddings [N, D] in float32; only texts missing from the cache are computed."""
        try:
            return np.stack([np.frombuffer(vector, np.float32) for vector in self._from_cache(texts, batch_size)])
        except (sqlite3.Error, OSError) as error:
            raise DataError(
                f"{self.cache}: the cache of embeddings cannot be used ({error}); make room for it, delete it if it is "
                "damaged, or name another folder with the environment variable REWARDLAB_CACHE"
            ) from error

    def _from_cache(self, texts: Sequence[str], batch_size: int) -> list[Any]:
        """Return the embeddings from the cache, after those that were missing in it are added."""
        keys = [self._key(text) for text in texts]
        create_in_cache(self.cache.parent)
        with closing(sqlite3.connect(self.cache, timeout=60)) as store:
            store.execute("create table if not exists embeddings (key text primary key, vector blob not null)")
            absent = {key: text for key, text in zip(keys, texts, strict=True) if self._read(store, key) is None}
            for batch in self._batches(absent, batch_size):
                store.executemany("insert or replace into embeddings values (?, ?)", batch)
                store.commit()
            return [self._read(store, key) for key in keys]

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text before truncation."""
        return [len(ids) for ids in self.tokenizer(list(texts), verbose=False).input_ids] if texts else []

    def over_length(self, texts: Sequence[str]) -> int:
        """Return the number of texts whose beginning is truncated."""
        return sum(length > self.max_length for length in self.lengths(texts))

    def _key(self, text: str) -> str:
        """Return the key of a text in the cache."""
        return hashlib.sha256(f"{self.fingerprint}|{self.max_length}|left|{self.dtype}|{text}".encode()).hexdigest()

    @staticmethod
    def _read(store: sqlite3.Connection, key: str) -> bytes | None:
        """Return the cached embedding of a key; None if there is none."""
        cached = store.execute("select vector from embeddings where key = ?", (key,)).fetchone()
        return cached[0] if cached else None

    def _batches(self, texts: dict[str, str], batch_size: int) -> Iterator[list[tuple[str, bytes]]]:
        """Yield the keys and embeddings of texts in batches of similar length."""
        waiting = sorted(texts, key=lambda key: (len(texts[key]), key))
        for start in tqdm(range(0, len(waiting), batch_size), desc="embedding", disable=None, delay=1):
            keys = waiting[start : start + batch_size]
            vectors = self._embed([texts[key] for key in keys])
            yield [(key, vector.tobytes()) for key, vector in zip(keys, vectors, strict=True)]

    @torch.inference_mode()
    def _embed(self, texts: list[str]) -> np.ndarray:
        """Return the mean-pooled embeddings of a batch of texts."""
        states, attention = self._states(self.tokenizer(texts, truncation=True, max_length=self.max_length).input_ids)
        weight = attention[..., None].to(states.dtype)
        return ((states * weight).sum(1) / weight.sum(1)).float().cpu().numpy()

    def _states(self, ids: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the last hidden states [N, L, D] of token ids, and their mask [N, L]."""
        tokens, attention = (tensor.to(self.model.device) for tensor in pad(ids))
        return self.model(input_ids=tokens, attention_mask=attention.long()).last_hidden_state, attention

    @torch.inference_mode()
    def states(self, text: str) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """Return the last hidden states [L, D] of a text, and each token's offsets in it ((0, 0) if special)."""
        options = {"truncation": True, "max_length": self.max_length, "return_offsets_mapping": True}
        encoded = self.tokenizer(text, **options)
        states, _ = self._states([encoded.input_ids])
        return states[0].double().cpu().numpy(), [*map(tuple, encoded.offset_mapping)]


def _fingerprint(model: torch.nn.Module, tokenizer) -> str:
    """Return a hash of the encoder's weights and vocabulary, to distinguish models of the same name."""
    digest = hashlib.sha256(content_hash(sorted(tokenizer.get_vocab().items())).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy() if tensor.dim() else str(tensor.item()).encode())
    return digest.hexdigest()[:16]


class EmbeddingRewardModel:
    """r(x, y) = w · mean_t h_t(x, y) of a frozen encoder; w is fitted by Bradley-Terry on standardised embeddings."""

    def __init__(self, embedder: Embedder, weights: np.ndarray | None = None):
        self.embedder = embedder
        self.weights = weights
        self.contract = ScoringContract(
            kind="embedding",
            dtype=embedder.dtype,
            max_length=embedder.max_length,
            truncation="left",
            pooling="mean",
            backbone=embedder.fingerprint,
        )

    def fit(
        self, pairs: Sequence[PreferencePair], *, C: float = 0.01, objective: str = OVERALL
    ) -> "EmbeddingRewardModel":
        """Fit the head to pairs. C is the inverse regularisation strength, as in scikit-learn."""
        vectors = self._vectors([example for pair in pairs for example in pair.examples])
        differences = vectors[::2] - vectors[1::2]
        scale = differences.std(axis=0) + 1e-8
        wins = np.array([pair.chance(objective) for pair in pairs])
        self.weights = pairwise_logistic(differences / scale, wins, C=C) / scale
        return self

    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return rewards [N, 1]."""
        weights = self._fitted_weights()
        if not examples:
            return np.zeros((0, 1))
        return (self._vectors(examples) @ weights)[:, None]

    def token_rewards(self, example: Example) -> TokenRewards:
        """Return w · h_t(x, y) of every token."""
        (text,) = _texts([example])
        states, spans = self.embedder.states(text)
        rewards, start = states @ self._fitted_weights(), len(text) - len(example.text)
        inside = np.array([end > start for _, end in spans])
        ends = [start, *(end for _, end in spans if end > start)]
        return TokenRewards(rewards[~inside], rewards[inside], tuple(text[a:b] for a, b in pairwise(ends)))

    def _fitted_weights(self) -> np.ndarray:
        if self.weights is None:
            raise UsageError("the embedding reward model has not been fitted; call fit(pairs) or load a saved folder")
        return self.weights

    def lengths(self, examples: Sequence[Example]) -> list[int]:
        """Return the number of tokens of each example before truncation."""
        return self.embedder.lengths(_texts(examples))

    def over_length(self, examples: Sequence[Example]) -> int:
        """Return the number of examples whose prompt is truncated at the beginning."""
        return self.embedder.over_length(_texts(examples))

    def _vectors(self, examples: Sequence[Example]) -> np.ndarray:
        return self.embedder(_texts(examples)).astype(np.float64)

    def save(self, folder: Path) -> None:
        """Save the head, the encoder's name, and the contract with the encoder's fingerprint, but not the encoder."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"weights": np.asarray(self.weights)}, folder / HEAD)
        (folder / ENCODER).write_text(self.embedder.encoder + "\n", encoding="utf-8")
        self.contract.save(folder)


def _texts(examples: Sequence[Example]) -> list[str]:
    return [f"{prompt_text(example.prompt)}\n\nassistant: {example.text}" for example in examples]


def new_embedding(
    encoder: str | None,
    *,
    max_length: int = 256,
    dtype: str = "float32",
    cache: Path | None = None,
    trust_remote_code: bool = False,
) -> EmbeddingRewardModel:
    """Create an unfitted embedding reward model with an encoder (path or Hub id)."""
    if encoder is None:
        raise UsageError("an embedding reward model needs an encoder; give a path or Hub id with --model")
    name = str(Path(encoder).resolve()) if Path(encoder).exists() else encoder
    options = {"max_length": max_length, "dtype": dtype, "cache": cache}
    return EmbeddingRewardModel(Embedder(name, **options, trust_remote_code=trust_remote_code))


def load_embedding(source: str, *, cache: Path | None = None, trust_remote_code: bool = False) -> EmbeddingRewardModel:
    """Load the embedding reward model in a folder."""
    folder = Path(source)
    contract = load_contract(folder)
    try:
        weights = load_file(folder / HEAD)["weights"]
        name = (folder / ENCODER).read_text(encoding="utf-8").strip()
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DataError(f"{folder}: not a complete embedding reward model ({error}); train it again") from error
    options = {"max_length": contract.max_length or 256, "dtype": contract.dtype, "cache": cache}
    model = EmbeddingRewardModel(Embedder(name, **options, trust_remote_code=trust_remote_code), weights)
    if model.contract != contract:
        raise DataError(
            f"{folder}: the encoder '{name}' has changed since the training (now {model.contract.backbone}, "
            f"trained with {contract.backbone}); restore the encoder, or train again"
        )
    return model
