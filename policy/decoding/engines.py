"""Engines of guided decoding: logits of base model and guides from one shared backbone or from separate models.

    log π̃(v | x, y_<t) = log π_base(v | x, y_<t) + w Σ_i α_i log π_i(v | x, y_<t) - log Z

v is the next token, x the prompt, w the guidance weight, α the preference and Z the normaliser. A guide π_i is an
autoregressive reward model that guides decoding. GenARM (arXiv:2410.08193) has one guide per objective i. PARM
(arXiv:2505.06274) and UniARM (arXiv:2602.09538) have a single guide π_α that is conditioned on the preference: one
forward pass per token for any number of objectives.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ...rm.adapters.adapter import PreferenceAdapter
from ...rm.adapters.settings import SETTINGS, load_settings
from ...rm.backbones.loading import embedding_rows, fingerprint, load_causal_lm, load_tokenizer, share_weights
from ...rm.backbones.tokenization import Encoder, context_length, end_token_ids
from ...rm.contract.scoring_contract import FILE, load_contract
from ...rm.data.preference_vectors import Preference, preference_matrix
from ...rm.errors import DataError, UsageError
from ...rm.io.hub_names import is_path
from ...rm.kinds.autoregressive.model import AutoregressiveRewardModel as DecodingModel
from ...rm.kinds.autoregressive.model import completion_contract, load_autoregressive
from ...rm.types import OVERALL, Messages
from .requests import Request
from .static.forward import Forward, branching
from .static.steps import Counters, Session, SessionModel, exclusively

GUIDE = "guide"
UNNAMED = ("reward",)  # the objectives of a model that was trained for none by name


# ---- language models ----


def decoding_model(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    adapter: PreferenceAdapter | None = None,
    *,
    preference: Preference | None = None,
) -> DecodingModel:
    """Wrap a language model and its tokenizer as base model or guide. Autoregressive reward models need no wrapper."""
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
                f"the prefix {request.prefix} has ids outside the vocabulary; use ids below {len(encoder.tokenizer)}"
            )
    return [[*encoder.encode_prompt(request.prompt), *request.prefix] for request in requests]


def positions(decoder: DecodingModel) -> int:
    """Return the model's maximum number of tokens, prompt and completion together."""
    return context_length(language_model(decoder), decoder.encoder.tokenizer)


def max_completion_lengths(decoder: DecodingModel, prompts: Sequence[Sequence[int]]) -> list[int]:
    """Return the maximum number of tokens of each completion; raise `DataError` if a prompt leaves no room."""
    limit = positions(decoder)
    for prompt in prompts:
        if len(prompt) >= limit:
            raise DataError(
                f"a prompt has {len(prompt)} tokens, but '{language_model(decoder).config.name_or_path}' has a context "
                f"of {limit}; shorten it to at most {limit - 1}"
            )
    return [limit - len(prompt) for prompt in prompts]


# ---- preferences ----


def preferences_of(guide: DecodingModel, requests: Sequence[Request]) -> Float[Tensor, "N K"]:
    """Return the preferences α [N, K] for the guide's adapter. Return ones [N, 1] for a guide without preferences."""
    preferences = [guide.preference if request.preference is None else request.preference for request in requests]
    adapter = guide.adapter
    if adapter is not None and adapter.settings.follows_preference:
        return torch.tensor(preference_matrix(preferences, adapter.objectives), dtype=torch.float32)
    for preference in preferences:
        if preference is not None and (adapter is None or {*preference} != {*adapter.objectives}):
            raise UsageError(f"the guide takes no preference, got {dict(preference)}; remove the preference")
    return torch.ones(len(preferences), 1)


# ---- vocabulary ----


def shared_vocabulary(decoders: Sequence[DecodingModel]) -> int:
    """Return the size n of the smallest vocabulary of several models.

    Raise `DataError` if an id below n is not the same token in all models.
    """
    tokens = [_tokens(decoder.encoder.tokenizer) for decoder in decoders]
    size = min(*map(len, tokens), *(embedding_rows(language_model(decoder)) for decoder in decoders))
    for follower, other in zip(decoders[1:], tokens[1:], strict=True):
        differing = next((id for id in range(size) if tokens[0][id] != other[id]), None)
        if differing is not None:
            raise DataError(
                f"token {differing} is {tokens[0][differing]!r} in '{decoders[0].encoder.tokenizer.name_or_path}' and "
                f"{other[differing]!r} in '{follower.encoder.tokenizer.name_or_path}'; "
                "base and guide need the same vocabulary"
            )
    return size


def _tokens(tokenizer: PreTrainedTokenizerBase) -> list[str | None]:
    """Return the token of every id; None for unused ids."""
    ids = tokenizer.get_vocab()
    tokens: list[str | None] = [None] * (max(ids.values()) + 1)
    for token, id in ids.items():
        tokens[id] = token
    return tokens


# ---- engines ----


class Engine(Protocol):
    """Interface of an engine that `decode` can use."""

    base: DecodingModel
    """Base model. Completions use its tokenizer and end-of-sequence tokens."""
    models: tuple[DecodingModel, ...]
    """The base model, then the guides."""
    guides: tuple[str, ...]
    """Names of the guides."""
    eos: frozenset[int]
    counters: Counters

    def session(self, requests: Sequence[Request]) -> AbstractContextManager[Session]:
        """Open a session for a batch of requests. A model can serve only one session at a time."""
        ...


class SharedBackbone:
    """Engine for a guide that is an adapter on the base model: one forward pass of 2N rows per token.

    The first N rows are for the base model, the others for the guide, so that each weight is read once. `encoder` is
    the base model's encoder, if its chat template differs from the guide's. With `late`, the decoder layers below the
    adapter's first layer b > 0 run only once for both; base model and guide must then have the same prompt.
    """

    def __init__(self, guide: DecodingModel, *, encoder: Encoder | None = None, late: bool = False):
        if guide.adapter is None:
            raise UsageError("a shared backbone needs a guide with an adapter; use SeparateModels for two models")
        self.guide, self.late, self.adapter = guide, late, guide.adapter
        self.base = DecodingModel(guide.model, encoder or guide.encoder, adapter=guide.adapter)
        self.models = (self.base, guide)
        self.guides, self.eos, self.counters = (GUIDE,), end_tokens(self.base), Counters()
        self.vocabulary = shared_vocabulary([self.base, guide])

    @contextmanager
    def session(self, requests: Sequence[Request]) -> Iterator[Session]:
        """Open a session; see `Engine`."""
        base, guide = (prompts_of(decoder.encoder, requests) for decoder in (self.base, self.guide))
        if self.late and base != guide:
            raise UsageError("with late=True, base and guide must read the same prompt; use one chat template for both")
        alpha = preferences_of(self.guide, requests)
        weights = torch.tensor([[float(request.weight)] for request in requests])
        used = _used_guides(weights)
        capacity = _row_minima(max_completion_lengths(self.base, base), max_completion_lengths(self.guide, guide))
        model = language_model(self.base)
        with ExitStack() as stack:
            stack.enter_context(exclusively([model]))
            rows = self.adapter.modulations(alpha if used else alpha[:1])
            stack.enter_context(self.adapter.serving(rows, start=len(base)))
            if used and self.late:
                stack.enter_context(branching(model, self.adapter.settings.from_layer))
            prompts = base if self.late or not used else base + guide
            part = SessionModel(_forward(self.base, prompts, requests, capacity), base=1, guides=len(used))
            yield Session([part], weights[:, used], used, [*map(len, base)], capacity, self.vocabulary, self.counters)


class SeparateModels:
    """Engine for a base model and separate guides: causal language models with the same vocabulary.

    Each model has its own prompt template. Without guides, decoding is plain; weights and preferences are ignored. A
    single guide gives weak-to-strong guidance and may have an adapter conditioned on the preference. A mapping from
    objectives to guides is GenARM: guide i has weight w α_i and does not run if the weight is 0 for the whole batch. An
    adapter of the base is disabled. All contexts limit a completion, so that it does not depend on the batch.
    """

    def __init__(self, base: DecodingModel, guides: DecodingModel | Mapping[str, DecodingModel] | None = None):
        self.base = base
        self.by_objective = isinstance(guides, Mapping)
        by_name = dict(guides) if isinstance(guides, Mapping) else {} if guides is None else {GUIDE: guides}
        for name, decoder in by_name.items() if self.by_objective else ():
            if decoder.adapter is not None and decoder.adapter.settings.follows_preference:
                raise UsageError(f"the guide '{name}' is conditioned on a preference; pass it as the only guide")
        self.guides, self.guide_models = tuple(by_name), list(by_name.values())
        self.models = (base, *self.guide_models)
        self.eos, self.counters = end_tokens(base), Counters()
        self.vocabulary = shared_vocabulary(self.models)

    @contextmanager
    def session(self, requests: Sequence[Request]) -> Iterator[Session]:
        """Open a session; see `Engine`."""
        weights = self._weights(requests)
        used = _used_guides(weights)
        prompts = [prompts_of(decoder.encoder, requests) for decoder in self.models]
        capacity = _row_minima(*map(max_completion_lengths, self.models, prompts))
        running = [0, *(index + 1 for index in used)]
        decoders, prompts = [self.models[index] for index in running], [prompts[index] for index in running]
        with ExitStack() as stack:
            stack.enter_context(exclusively([language_model(decoder) for decoder in decoders]))
            stack.enter_context(_adapted(self.base, None, start=len(requests)))
            for guide_index in used:
                guide = self.guide_models[guide_index]
                alpha = torch.ones(1, 1) if self.by_objective else preferences_of(guide, requests)
                stack.enter_context(_adapted(guide, alpha))
            parts = [
                SessionModel(
                    _forward(decoder, prompt_ids, requests, capacity), base=int(index == 0), guides=int(index > 0)
                )
                for index, (decoder, prompt_ids) in enumerate(zip(decoders, prompts, strict=True))
            ]
            lengths = [*map(len, prompts[0])]
            yield Session(parts, weights[:, used], used, lengths, capacity, self.vocabulary, self.counters)

    def _weights(self, requests: Sequence[Request]) -> Float[Tensor, "N G"]:
        weights = torch.tensor([[float(request.weight)] for request in requests])
        if not self.by_objective:
            return weights.expand(-1, len(self.guide_models))
        shares = preference_matrix([request.preference for request in requests], self.guides)
        return weights * torch.tensor(shares, dtype=weights.dtype)


# ---- parts ----


def _adapted(
    decoder: DecodingModel, alpha: Float[Tensor, "_ K"] | None, *, start: int = 0
) -> AbstractContextManager[None]:
    """Apply the model's adapter, if any, to the rows from `start` on. A missing `alpha` means equal preferences."""
    if decoder.adapter is None:
        return nullcontext()
    alpha = torch.ones(1, len(decoder.adapter.objectives)) if alpha is None else alpha
    return decoder.adapter.serving(decoder.adapter.modulations(alpha), start=start)


def _used_guides(weights: Float[Tensor, "N G"]) -> list[int]:
    """Return the indices of the guides with a non-zero weight in at least one row."""
    return [index for index, column in enumerate(weights.T) if column.any()]


def _row_minima(*capacities: Sequence[int]) -> list[int]:
    """Return the smallest capacity of each row."""
    return [min(row) for row in zip(*capacities, strict=True)]


def _forward(
    decoder: DecodingModel, prompts: Sequence[list[int]], requests: Sequence[Request], capacity: Sequence[int]
) -> Forward:
    steps = max(min(request.max_new_tokens, limit) for request, limit in zip(requests, capacity, strict=True))
    return Forward(language_model(decoder), prompts, steps=steps, positions=positions(decoder))


# ---- opening ----


def open_engine(
    base: str | None,
    arms: Sequence[str],
    *,
    dtype: str | None = None,
    chat_template: str | None = None,
    trust_remote_code: bool = False,
) -> tuple[Engine, tuple[str, ...]]:
    """Return the engine that reads the fewest weights per token, and the objectives that a preference can weight.

    `arms` are folders or Hub ids of autoregressive reward models, in the format of `parse_arms`. `dtype` is the
    precision of the base model, by default that of the first guide.
    """
    guides = parse_arms(arms)
    folders = [folder for _, folder in guides]
    if len(guides) > 1 and not all(objective for objective, _ in guides):
        raise UsageError(f"several reward models must be given as OBJECTIVE=FOLDER each; got {' '.join(arms)}")
    contracts = {folder: load_contract(Path(folder)) for folder in folders if (Path(folder) / FILE).exists()}
    for objective, folder in guides:
        _check_objective(objective, folder, contracts[folder].objectives if folder in contracts else UNNAMED)
    source = check_guides(base, folders)
    dtype = dtype or next((contract.dtype for contract in contracts.values()), "float32")
    tokenizer = load_tokenizer(source, chat_template=chat_template, trust_remote_code=trust_remote_code)
    model = load_causal_lm(source, tokenizer, dtype=dtype, trust_remote_code=trust_remote_code)
    decoder = decoding_model(model, tokenizer)

    def open_guide(folder: str, *, copy: bool) -> DecodingModel:
        """Load a guide. A guide that is an adapter on the base model shares the base model's weights."""
        over = (share_weights(model) if copy else model) if _is_adapter_of(folder, decoder) else None
        return load_autoregressive(folder, base=over, trust_remote_code=trust_remote_code)

    if not guides:
        return SeparateModels(decoder), ()
    if guides[0][0]:
        by_objective = {objective: open_guide(folder, copy=True) for objective, folder in guides}
        return SeparateModels(decoder, by_objective), tuple(by_objective)
    shares_backbone = _is_adapter_of(folders[0], decoder)
    guide = open_guide(folders[0], copy=not shares_backbone)
    adapter = guide.adapter
    objectives = adapter.objectives if adapter and adapter.settings.follows_preference else ()
    if not shares_backbone:
        return SeparateModels(decoder, guide), objectives
    late = adapter is not None and adapter.settings.from_layer > 0
    late = late and guide.contract.template == decoder.contract.template  # otherwise their prompts differ
    return SharedBackbone(guide, encoder=decoder.encoder, late=late), objectives


def _is_adapter_of(folder: str, base: DecodingModel) -> bool:
    """Return whether the reward model in `folder` is an adapter on this base model."""
    path = Path(folder)
    return (path / SETTINGS).exists() and load_settings(path).base_fingerprint == fingerprint(base.model)


def _check_objective(objective: str, folder: str, stated: tuple[str, ...]) -> None:
    """Raise `UsageError` if `objective` is not among the guide's objectives `stated`. Unnamed ones match any."""
    if objective and stated != UNNAMED and OVERALL not in stated and objective not in stated:
        raise UsageError(
            f"--arm {objective}={folder}: its {FILE} says that it was trained for {', '.join(stated)}; write "
            f"{stated[0]}={folder}, or give the folder of a model for {objective}"
        )


def check_room(engine: Engine, prompts: Sequence[tuple[str, Messages]]) -> None:
    """Raise a `DataError` with the id of the first prompt that leaves no room for a completion."""
    for id, prompt in prompts:
        for decoder in engine.models:
            try:
                max_completion_lengths(decoder, [decoder.encoder.encode_prompt(prompt)])
            except DataError as error:
                raise DataError(f"{error} (the prompt with id {id})") from error


def parse_arms(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return objective and folder of each guide. The objective is empty for a folder without OBJECTIVE=.

    >>> parse_arms(["helpful=runs/a", "harmless=runs/b"]), parse_arms(["runs/lr=0.1/both"])
    ([('helpful', 'runs/a'), ('harmless', 'runs/b')], [('', 'runs/lr=0.1/both')])
    """
    parts = [(text, *text.partition("=")) for text in texts]
    return [(name, folder) if sign and "/" not in name else ("", text) for text, name, sign, folder in parts]


def check_guides(base: str | None, folders: Sequence[str]) -> str:
    """Return the base model: `base` if given, else the base model of the first guide that is an adapter.

    Raise `UsageError` if the folder of a guide is missing or no base model is known.
    """
    for folder in folders:
        if not Path(folder).exists() and (base is None or is_path(folder)):
            hub = "" if is_path(folder) else "; for a guide from the Hub, name its base model with --base"
            raise UsageError(f"--arm {folder}: no such folder here; check the path{hub}")
    adapters = [Path(folder) for folder in folders if (Path(folder) / SETTINGS).exists()]
    if base or adapters:
        return base or load_settings(adapters[0]).base
    raise UsageError(
        f"--base is missing: only an adapter names its base model, and {' '.join(folders)} is not one; set --base"
    )


def preference_objectives(arms: Sequence[str]) -> tuple[str, ...]:
    """Return the objectives of several guides, or the objectives of a single guide's adapter."""
    guides = parse_arms(arms)
    if guides and all(objective for objective, _ in guides):
        return tuple(objective for objective, _ in guides)
    if len(guides) == 1 and (Path(guides[0][1]) / SETTINGS).exists():
        settings = load_settings(Path(guides[0][1]))
        return settings.objectives if settings.follows_preference else ()
    return ()
