"""Language models of guided decoding: prompts, preferences and shared vocabulary of base model and guides."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ...rm.adapters.adapter import PreferenceAdapter
from ...rm.backbones.loading import embedding_rows
from ...rm.backbones.tokenization import Encoder, context_length, end_token_ids
from ...rm.data.preference_vectors import Preference, preference_matrix
from ...rm.errors import DataError, UsageError
from ...rm.kinds.autoregressive.model import AutoregressiveRewardModel as DecodingModel
from ...rm.kinds.autoregressive.model import completion_contract
from .requests import Request


def decoding_model(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    adapter: PreferenceAdapter | None = None,
    *,
    preference: Preference | None = None,
) -> DecodingModel:
    """Wrap a language model and tokenizer as base model or guide. Autoregressive reward models need no wrapper."""
    contract = completion_contract(
        "autoregressive", tokenizer, [model], dtype=str(model.dtype).rpartition(".")[2], max_length=None, beta=1.0
    )
    return DecodingModel(
        adapter.model if adapter else model, Encoder(tokenizer, contract), adapter=adapter, preference=preference
    )


def language_model(decoder: DecodingModel) -> Any:
    """Return the causal language model without its PEFT wrapper."""
    return decoder.adapter.model.base_model.model if decoder.adapter else decoder.model


def end_tokens(decoder: DecodingModel) -> frozenset[int]:
    """Return the ids that end a completion, according to config, generation config and tokenizer."""
    return end_token_ids(language_model(decoder), decoder.encoder.tokenizer)


# ---- prompts ----


def prompts_of(encoder: Encoder, requests: Sequence[Request]) -> list[list[int]]:
    """Return the prompts' token ids, as in `Encoder.encode_completion`, followed by each request's prefix."""
    for request in requests:
        if any(id >= len(encoder.tokenizer) for id in request.prefix):
            raise UsageError(
                f"the prefix {request.prefix} has ids without a token; give ids below {len(encoder.tokenizer)}"
            )
    return [[*encoder.encode_prompt(request.prompt), *request.prefix] for request in requests]


def positions(decoder: DecodingModel) -> int:
    """Return the maximum number of tokens of prompt and completion together."""
    return context_length(language_model(decoder), decoder.encoder.tokenizer)


def room_of(decoder: DecodingModel, prompts: Sequence[Sequence[int]]) -> list[int]:
    """Return the maximum number of tokens of each completion; raise `DataError` if a prompt leaves no room."""
    limit = positions(decoder)
    for prompt in prompts:
        if len(prompt) >= limit:
            raise DataError(
                f"a prompt has {len(prompt)} tokens and the context of '{language_model(decoder).config.name_or_path}' "
                f"{limit}; shorten it to {limit - 1} at most"
            )
    return [limit - len(prompt) for prompt in prompts]


# ---- preferences ----


def preferences_of(guide: DecodingModel, requests: Sequence[Request]) -> Float[Tensor, "N K"]:
    """Return the preferences α [N, K] for the guide's adapter. Ones [N, 1] for a guide without preference."""
    preferences = [guide.preference if request.preference is None else request.preference for request in requests]
    adapter = guide.adapter
    if adapter is not None and adapter.settings.follows_preference:
        return torch.tensor(preference_matrix(preferences, adapter.objectives), dtype=torch.float32)
    for preference in preferences:
        if preference is not None and (adapter is None or {*preference} != {*adapter.objectives}):
            raise UsageError(f"the guide takes no preference, got {dict(preference)}; leave it out")
    return torch.ones(len(preferences), 1)


# ---- vocabulary ----


def shared_vocabulary(decoders: Sequence[DecodingModel]) -> int:
    """Return the number n of token ids that all models share: ids 0 to n - 1 are the same tokens in all models.

    n is the size of the smallest vocabulary. Raise `DataError` if an id below n is another token in one of the models.
    """
    tokens = [_tokens(decoder.encoder.tokenizer) for decoder in decoders]
    size = min(*map(len, tokens), *(embedding_rows(language_model(decoder)) for decoder in decoders))
    for follower, other in zip(decoders[1:], tokens[1:], strict=True):
        differing = next((id for id in range(size) if tokens[0][id] != other[id]), None)
        if differing is not None:
            raise DataError(
                f"token {differing} is {tokens[0][differing]!r} to '{decoders[0].encoder.tokenizer.name_or_path}' and "
                f"{other[differing]!r} to '{follower.encoder.tokenizer.name_or_path}'; "
                "base and guide need one vocabulary"
            )
    return size


def _tokens(tokenizer: PreTrainedTokenizerBase) -> list[str | None]:
    """Return the token of every id; None for unused ids."""
    ids = tokenizer.get_vocab()
    tokens: list[str | None] = [None] * (max(ids.values()) + 1)
    for token, id in ids.items():
        tokens[id] = token
    return tokens
