"""Time per token of speculative guided decoding.

The big model has random weights. As random models do not agree, the small model consists of the big model's first
layers with its embedding and head: the acceptance rate is a property of this pair, and is printed next to every time.

    plain      the big model alone
    guided     the big model and the guide, one step of each per token
    draft=g    the same with speculative decoding, g tokens drafted per round
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....policy.decoding.engines import SeparateModels
from ....policy.decoding.requests import Request
from ....policy.decoding.speculative import Counts, speculate
from ....rm.backbones.loading import share_weights
from .._scripts import machine, seconds
from . import TURN, Bench, Size, per_token, summary, take_turns

DRAFTS = (1, 2, 4, 8)


def first_layers(model: Any, layers: int) -> Any:
    """Return a model of the first layers that shares the weights."""
    small = share_weights(model)
    small.config.num_hidden_layers = layers
    small.model.layers = small.model.layers[:layers]
    return small


def measure(size: Size, layers: int, device: str, budget: float) -> dict[str, Any]:
    """Measure milliseconds per token of one completion after its first 16; acceptance and tokens per big forward."""
    bench = Bench(size, device)
    small = first_layers(bench.model, layers)
    parameters = [sum(weights.numel() for weights in model.parameters()) for model in (bench.model, small)]
    guide = bench.guide(model=small)
    engines = {"plain": SeparateModels(bench.base()), "guided": SeparateModels(bench.base(), guide)}
    requests, counts = bench.requests(1), {}
    short = [replace(request, max_new_tokens=TURN) for request in requests]
    decoding = per_token({name: (engine, requests) for name, engine in engines.items()}, device)

    def speculated(draft: int) -> float:
        def write(batch: Sequence[Request]) -> None:
            counts[draft] = speculate(bench.base(), guide, batch, draft=draft)[0].counts

        short_seconds, all_seconds = seconds(lambda: write(short), device), seconds(lambda: write(requests), device)
        return 1000 * (all_seconds - short_seconds) / (size.tokens - TURN)

    def turn() -> dict[str, float]:
        return decoding() | {f"draft={draft}": speculated(draft) for draft in DRAFTS}

    *_, rounds = take_turns(turn, budget)
    times = summary(rounds, "plain")
    for draft in DRAFTS:
        times[f"draft={draft}"] |= facts(counts[draft], size.tokens)
    return {"parameters": parameters, "size": vars(size), "machine": machine(device), "times": times}


def facts(counts: Counts, tokens: int) -> dict[str, float]:
    """Return the figures that do not depend on the machine."""
    return {"acceptance": counts.acceptance, "tokens per big forward": tokens / counts.big, "small": counts.small}


def markdown(measurements: dict[str, Any]) -> str:
    """Format a table with a row for every decoding method."""
    lines = ["| N=1, ms per token | median | p10 | p90 | ratio | p10 | p90 | acceptance | tokens per big forward |"]
    lines.append("|---" * 9 + "|")
    for name, row in measurements["times"].items():
        cells = [*row["ms"].values(), *row["ratio"].values()]
        cells += [row.get("acceptance", np.nan), row.get("tokens per big forward", 1)]
        lines.append(f"| {name} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    return "\n".join(lines)
