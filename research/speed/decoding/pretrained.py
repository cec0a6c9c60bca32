"""Time per token on a pretrained model.

Variants alternate within a round, and ratios are computed within it. A round decodes the same prompts greedily to
completions of fixed length, prefill included.

    generate   Transformers' `generate`
    plain      the base alone by the engine of guided decoding
    guided     with a LoRA of the default rank on all linear layers, as GenARM's guides have
    late       with this LoRA on the last quarter of the layers, below which base and guide share the computation

The LoRA has random weights that are large enough to change tokens; the share of changed tokens is reported.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from ....policy.decoding.engines import (
    DecodingModel,
    Engine,
    SeparateModels,
    SharedBackbone,
    decoding_model,
    prompts_of,
)
from ....policy.decoding.guided import decode
from ....policy.decoding.requests import Request
from ....rm.adapters.adapter import attach
from ....rm.adapters.settings import AdapterSettings
from ....rm.backbones.loading import share_weights
from ....rm.types import user_turn
from .._scripts import machine
from . import round_of, summary, take_turns

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""The CPU time of the process is the steadier one on a machine with other load, if there is one thread."""
SUBJECTS = ("the sea", "a clock", "two rivers", "bread", "a lost key", "winter", "the moon", "a small town")
STD = 0.02
"""Standard deviation of the LoRA's B."""


def load(path: str, dtype: str, device: str) -> tuple[Any, PreTrainedTokenizerBase]:
    """Load a causal language model and its tokenizer."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, use_safetensors=True).to(device)
    return model.eval(), AutoTokenizer.from_pretrained(path)


def guide(model: Any, tokenizer: PreTrainedTokenizerBase, from_layer: int = 0) -> DecodingModel:
    """Return a guide that shares the model's weights, with a random LoRA on all linear layers from `from_layer` on."""
    model = share_weights(model)
    adapter = attach(model, AdapterSettings("lora", ("objective",), targets=("all-linear",), from_layer=from_layer))
    for name, weight in adapter.state().items():
        if name.endswith(".B"):
            torch.nn.init.normal_(weight, std=STD)
    return decoding_model(model, tokenizer, adapter)


def requests(rows: int, tokens: int) -> list[Request]:
    """Return requests with prompts of different lengths and greedy completions of equal length."""
    subjects = (" and ".join([SUBJECTS[row % len(SUBJECTS)]] * (1 + row // len(SUBJECTS))) for row in range(rows))
    prompts = (user_turn(f"Tell me a story about {subject}.") for subject in subjects)
    return [Request(prompt, temperature=0.0, max_new_tokens=tokens, ignore_eos=True) for prompt in prompts]


@torch.inference_mode()
def generate(base: DecodingModel, requests: Sequence[Request]) -> None:
    """Decode the requests by Transformers' `generate`, with left padding."""
    tokens = requests[0].max_new_tokens
    prompts = prompts_of(base.encoder, requests)
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts], device=base.model.device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=ids.device)
    lengths = {"max_new_tokens": tokens, "min_new_tokens": tokens, "pad_token_id": 0}
    base.model.generate(ids, attention_mask=mask, do_sample=False, **lengths)


def measure(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    *,
    rows: Sequence[int] = (1, 2, 8),
    tokens: int = 64,
    budget: float = 600,
    clock: str = "wall",
    variants: Sequence[str] = ("generate", "plain", "guided", "late"),
) -> Iterator[dict[str, Any]]:
    """Yield the measurements so far after each number of rows; ratios are to the first of the variants.

    `budget` is in seconds, of which each number of rows gets an equal share, and one round at least.
    """
    device = model.device.type
    torch.manual_seed(0)
    base = decoding_model(share_weights(model), tokenizer)
    layers = model.config.get_text_config().num_hidden_layers
    engines: dict[str, Engine] = {
        "plain": SeparateModels(base),
        "guided": SharedBackbone(guide(model, tokenizer)),
        "late": SharedBackbone(guide(model, tokenizer, layers * 3 // 4), late=True),
    }
    results: dict[str, Any] = {
        "model": {"type": model.config.model_type, "parameters": sum(weight.numel() for weight in model.parameters())},
        "machine": machine(device) | {"dtype": str(model.dtype).removeprefix("torch."), "clock": clock},
        "tokens": tokens,
        "changed": {},
        "variants": {},
    }
    for number in rows:
        batch = requests(number, tokens)
        runs: dict[str, Callable[[], object]] = {"generate": lambda batch=batch: generate(base, batch)}
        runs |= {name: _decoded(engine, batch) for name, engine in engines.items()}
        timed = {name: _milliseconds(runs[name], tokens, device, clock) for name in variants}
        results["changed"][f"N={number}"] = changed(engines["plain"], engines["guided"], batch)
        for rounds in take_turns(round_of(timed), budget / len(rows)):
            results["variants"][f"N={number}"] = {f"ms per token ({clock})": summary(rounds, variants[0])}
            yield results


def changed(plain: Engine, guided: Engine, batch: Sequence[Request]) -> float:
    """Return the share of positions at which the guided completions have another token than the plain ones."""
    first, second = (
        np.array([one.tokens for one in decode(engine, batch, progress=False)]) for engine in (plain, guided)
    )
    return float((first != second).mean())


def _decoded(engine: Engine, batch: Sequence[Request]) -> Callable[[], object]:
    return lambda: decode(engine, batch, progress=False)


def _milliseconds(run: Callable[[], object], tokens: int, device: str, clock: str) -> Callable[[], float]:
    """Return a function that measures one run in milliseconds per token."""

    def measured() -> float:
        start = CLOCKS[clock]()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        return 1000 * (CLOCKS[clock]() - start) / tokens

    return measured
