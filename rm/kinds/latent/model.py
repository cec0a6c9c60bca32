"""Latent reasoning reward model: a causal language model that takes steps in hidden space before it scores."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from peft import LoraConfig, TaskType
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from ...backbones.forward_hooks import language_model_of
from ...backbones.hub import text_option
from ...backbones.loading import load_causal_lm, load_tokenizer
from ...backbones.lora_classifier import apply_saved_lora, base_of, read_lora
from ...backbones.tokenization import Encoder, position_limit
from ...contract.scoring_contract import Edge
from ...errors import DataError, UsageError
from ...io.sharded_weights import gather_tensor, put
from ...types import Example
from .._batches import Row, compute_distinct, padded_batches
from .._classifier import SavedClassifier, add_lora, determined_fields, open_source
from . import Depth, LatentContract
from .steps import LatentSteps, check_steps, states_after, states_without_cache

HEAD, DEPTH_HEAD, HEADS = "latent_score", "latent_depth", "latent_heads.safetensors"
P_DEEPEST = 0.9
"""Probability of the largest number of steps under an untrained depth head."""
STEPS = 4
"""Number of latent steps of a new model."""


class LatentScores(NamedTuple):
    """Rewards of N sequences, and the number of latent steps taken for each."""

    rewards: Float[Tensor, "N 1"]
    steps: Int[Tensor, " N"]


class LatentRewardModel(SavedClassifier[Encoder]):
    """r(x, y) = w · h_T of T latent steps: h_0 is a conversation's last hidden state, h_t the state after input h_{t-1}

    After LASAR (arXiv:2605.10207, known to us by its abstract). The scoring contract defines T: `latent_steps`, or, if
    `latent_depth` is `head`, argmax_t (V h_0 + c)_t in 0, ..., `latent_steps` (the smallest if several are equal) with
    the parameters V and c of the depth head. See `steps.LatentSteps` for a single step.
    """

    contract: LatentContract

    @property
    def language_model(self) -> Any:
        """Return the causal language model, which has the heads as modules, without the adapter wrapper."""
        return language_model_of(self.model)

    def score(self, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]) -> Float[Tensor, "N 1"]:
        """Return the rewards of tokenised sequences, padded on either side; differentiable."""
        return self.scores(tokens, attention).rewards

    def scores(self, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]) -> LatentScores:
        """Return rewards and numbers of steps of tokenised sequences, padded on either side."""
        model = self.language_model
        run = LatentSteps(model, tokens, attention)
        steps = self.depths(run.state)
        return LatentScores(model.get_submodule(HEAD)(states_after(run, steps)), steps)

    def depths(self, states: Float[Tensor, "N D"]) -> Int[Tensor, " N"]:
        """Return the number of steps of conversations with the last hidden states h_0."""
        if self.contract.latent_depth == "head":
            return self.language_model.get_submodule(DEPTH_HEAD)(states).argmax(dim=-1)
        return torch.full((len(states),), self.contract.latent_steps, device=states.device)

    def rate(self, examples: Sequence[Example], *, batch_tokens: int = 16_384) -> np.ndarray:
        """Return rewards [N, 1] in float64, independent of batching; at most `batch_tokens` tokens are read at once."""
        return self.rate_with_steps(examples, batch_tokens=batch_tokens)[0]

    def rate_with_steps(
        self, examples: Sequence[Example], *, batch_tokens: int = 16_384
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rewards [N, 1] and numbers of latent steps [N]. Equal sequences are computed once."""
        rows = [tuple(encoded.ids) for encoded in self.encoder.encode_all(examples)]

        def compute(distinct: list[Row]) -> Iterator[tuple[list[Row], Iterable[tuple[float, int]]]]:
            for some, batch in padded_batches(sorted(distinct), self.language_model.device, batch_tokens):
                rewards, steps = self.scores(*batch)
                yield some, zip(rewards[:, 0].double().tolist(), steps.tolist(), strict=True)

        results = compute_distinct(self.model, rows, compute)
        rewards, steps = np.array(results, float).reshape(len(rows), 2).T
        return rewards[:, None], steps.astype(int)

    def rate_without_cache(self, examples: Sequence[Example]) -> np.ndarray:
        """Return the rewards computed without a KV cache: every step reads each conversation again."""
        model, rewards = self.language_model, []
        self.model.eval()
        with torch.inference_mode():
            for encoded in self.encoder.encode_all(examples):
                states = states_without_cache(model, encoded.ids, self.contract.latent_steps)
                rewards.append(model.get_submodule(HEAD)(states[self.depths(states[:1])]))
        return torch.cat(rewards).double().cpu().numpy()

    def with_steps(self, steps: int) -> "LatentRewardModel":
        """Return a model with the same weights that always takes the same number of steps."""
        contract = replace(self.contract, latent_steps=steps, latent_depth="fixed")
        return LatentRewardModel(self.model, Encoder(self.encoder.tokenizer, contract))

    def save(self, folder: Path) -> None:
        """Save the causal language model or its adapter, the heads beside it, and the contract."""
        super().save(folder)
        save_heads(self.language_model, folder)

    def _state(self) -> dict[str, Any]:
        """Return the weights without the heads, which `save_heads` saves."""
        state = super()._state() or self.model.state_dict()
        return {name: tensor for name, tensor in state.items() if not {HEAD, DEPTH_HEAD} & {*name.split(".")}}


def put_heads(model: Any, depths: int | None, seed: int) -> None:
    """Add the scalar head to a language model and, unless `depths` is None, a depth head that selects one of `depths`.

    The scalar head is initialised from the seed with the model's `initializer_range`. The depth head starts with
    probability `P_DEEPEST` for the largest number of steps, so that it can continue a training with a fixed number.
    With equal probabilities, a small model unlearned its latent steps (`research/studies/latent`).
    """
    width = model.get_output_embeddings().weight.shape[1]
    like = {"device": model.device, "dtype": model.dtype}
    head = nn.Linear(width, 1, bias=False)
    deviation = text_option(model.config, "initializer_range") or 0.02
    nn.init.normal_(head.weight, std=deviation, generator=torch.Generator().manual_seed(seed))
    model.add_module(HEAD, head.to(**like))
    if depths is not None:
        chooser = nn.Linear(width, depths)
        nn.init.zeros_(chooser.weight)
        nn.init.zeros_(chooser.bias)
        nn.init.constant_(chooser.bias[-1:], math.log(P_DEEPEST / (1 - P_DEEPEST) * max(depths - 1, 1)))
        model.add_module(DEPTH_HEAD, chooser.to(**like))


def _heads(model: Any) -> dict[str, nn.Parameter]:
    """Return the parameters of the heads by name."""
    modules = {name: module for name, module in model.named_children() if name in (HEAD, DEPTH_HEAD)}
    return {f"{name}.{key}": value for name, module in modules.items() for key, value in module.named_parameters()}


def save_heads(model: Any, folder: Path) -> None:
    """Save the heads of a language model."""
    state = {name: gather_tensor(parameter).detach().cpu().contiguous() for name, parameter in _heads(model).items()}
    save_file(state, folder / HEADS)


def load_heads(model: Any, folder: Path, *, new_depth: bool = False) -> None:
    """Load the heads of a folder. With `new_depth` a missing depth head, or one of another size, is not an error."""
    try:
        stored = load_file(folder / HEADS)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{folder / HEADS}: missing or damaged ({error}); restore it") from error
    for name, parameter in _heads(model).items():
        shape = stored[name].shape if name in stored else None
        if shape == parameter.shape:
            put(parameter, stored[name])
        elif not (new_depth and name.startswith(DEPTH_HEAD)):
            raise DataError(f"{folder / HEADS}: '{name}' has shape {shape}, not {tuple(parameter.shape)}; restore it")


def load_latent(
    source: str,
    *,
    fresh: bool = False,
    latent_steps: int | None = None,
    latent_depth: Depth | None = None,
    max_length: int | None = None,
    chat_template: str | None = None,
    dtype: str = "float32",
    lora: LoraConfig | None = None,
    seed: int = 0,
    device: str | None = None,
    trust_remote_code: bool = False,
    bos: Edge | None = None,
    eos: Edge | None = None,
) -> LatentRewardModel:
    """Load a latent reasoning reward model from a folder.

    A saved folder includes its scoring contract. With `fresh` the source is a causal language model to be trained, or a
    saved folder to continue training, for example with more latent steps. `latent_steps` (default 4) and `latent_depth`
    (default `fixed`) then set the new contract, and `lora` adds adapters. `max_length` is in tokens, without latent
    steps.
    """
    arguments = {"max_length": max_length, "bos": bos, "eos": eos}
    arguments |= {} if fresh else {"latent_steps": latent_steps, "latent_depth": latent_depth}
    opened = open_source(source, LatentContract, arguments, dtype=dtype, fresh=fresh, lora=lora)
    source, stated, adapted, dtype = opened
    if stated is None and not fresh:
        raise DataError(f"{source}: not a latent reward model; train one with rewardlab train --kind latent")
    tokenizer = load_tokenizer(source, chat_template=chat_template, trust_remote_code=trust_remote_code)
    base = base_of(read_lora(Path(source))[0]) if adapted else source
    loading = {"dtype": dtype, "device": device, "trust_remote_code": trust_remote_code}
    model = load_causal_lm(base, tokenizer, kind="latent", **loading)
    check_steps(model, source, trainable=fresh)
    if adapted:
        model = apply_saved_lora(model, Path(source), trainable=fresh)
    contract = stated or _new_contract(model, tokenizer, dtype, bos=bos, eos=eos)
    contract = _with_depth(contract, model, latent_steps, latent_depth, max_length)
    model_of_steps = _assemble(model, tokenizer, contract, lora=lora, seed=seed)
    if stated is not None:
        load_heads(model_of_steps.language_model, Path(source), new_depth=fresh and contract != stated)
    return model_of_steps


def latent_from_config(
    config: Any,
    tokenizer: PreTrainedTokenizerBase,
    *,
    latent_steps: int | None = None,
    latent_depth: Depth | None = None,
    max_length: int | None = None,
    seed: int = 0,
) -> LatentRewardModel:
    """Create an untrained latent reward model with random weights; see `latent` for its settings."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).float()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    new = _new_contract(model, tokenizer, "float32")
    contract = _with_depth(new, model, latent_steps, latent_depth, max_length)
    return _assemble(model, tokenizer, contract, lora=None, seed=seed)


def _new_contract(
    model: Any, tokenizer: PreTrainedTokenizerBase, dtype: str, *, bos: Edge | None = None, eos: Edge | None = None
) -> LatentContract:
    return LatentContract(
        kind="latent",
        objectives=("reward",),
        dtype=dtype,
        truncation="left",
        pooling="last",
        latent_steps=STEPS,
        latent_depth="fixed",
        **determined_fields(model, tokenizer, bos=bos, eos=eos),
    )


def _with_depth(
    contract: LatentContract, model: Any, latent_steps: int | None, latent_depth: Depth | None, max_length: int | None
) -> LatentContract:
    """Return the contract with these steps, depth and length; raise an error if they exceed the model's context."""
    steps = contract.latent_steps if latent_steps is None else latent_steps
    if steps < 0:
        raise UsageError(f"latent_steps must be a number of steps >= 0, got {steps}")
    positions = position_limit(model.config) or 2**31
    limit = positions - steps
    length = max_length or min(contract.max_length or limit, limit)
    if not 0 < length <= limit:
        raise UsageError(
            f"max_length {length} and {steps} latent steps exceed the {positions} positions of the model; give a "
            f"max_length of at most {limit}"
        )
    depth = latent_depth or contract.latent_depth
    if depth not in ("fixed", "head"):
        raise UsageError(f"latent_depth must be 'fixed' or 'head', got '{depth}'")
    return replace(contract, latent_steps=steps, latent_depth=depth, max_length=length)


def _assemble(
    model: Any, tokenizer: PreTrainedTokenizerBase, contract: LatentContract, *, lora: LoraConfig | None, seed: int
) -> LatentRewardModel:
    """Return the reward model, with new heads, and with new adapters if `lora` is given."""
    if lora is not None:
        torch.manual_seed(seed)
        model = add_lora(model, lora, TaskType.CAUSAL_LM)
    depths = contract.latent_steps + 1 if contract.latent_depth == "head" else None
    put_heads(language_model_of(model), depths, seed)  # after PEFT, which would adapt or freeze them
    return LatentRewardModel(model, Encoder(tokenizer, contract))
