"""Training task of autoregressive reward models (GenARM, PARM, UniARM): pairs labelled for several objectives."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import EvalPrediction

from ...adapters.adapter import PreferenceAdapter
from ...backbones.forward_hooks import run_inside
from ...backbones.logprobs import centred_logprobs, completion_logprobs
from ...backbones.tokenization import EncodedCompletion, Encoder, pad
from ...data.preference_vectors import Sampler, simplex_grid, vertex_sampler
from ...errors import DataError
from ...io.checked_files import from_json
from ...losses.sequence_logistic import SequenceLogistic
from ...training.encoding import Encoding, OnLong, encode_labelled
from ...training.protocol import Task, count_pairs
from ...types import Example, PreferencePair

RESTARTS = "restarts.json"
GRID = 4
"""Steps of the grid of preferences in evaluation."""
Part = Literal["A", "B", "modulation"]


def part_of(name: str) -> Part | None:
    """Return the part of an adapter that a parameter belongs to (A, B or modulation); None for base model parameters.

    >>> part_of("base_model.model.model.layers.0.mlp.up_proj.lora_A.default.weight")
    'A'
    """
    parts = name.split(".")
    if "preference_heads" in parts or "preference_mixer" in parts:
        return "modulation"
    return "A" if "lora_A" in parts else "B" if "lora_B" in parts else None


class PreferenceRow(NamedTuple):
    """A tokenised pair: both sequences with their completions' start indices, and labels by objective (NaN: none)."""

    chosen: list[int]
    rejected: list[int]
    starts: tuple[int, int]
    wins: tuple[float, ...]
    gaps: tuple[float, ...]
    pair_index: int
    """Index of the pair in the data, on which random draws depend."""
    tool_results: tuple[tuple[range, ...], tuple[range, ...]] = ((), ())
    """Index ranges of tool results in each sequence, which the assistant did not write."""


def encode_preferences(
    encoder: Encoder,
    pairs: Sequence[PreferencePair],
    objectives: Sequence[str],
    on_long: OnLong = "truncate",
    *,
    allow_empty: bool = False,
) -> Encoding:
    """Tokenise the pairs that are labelled for at least one of the objectives, in order."""

    def row(index: int, pair: PreferencePair, chosen: EncodedCompletion, rejected: EncodedCompletion) -> PreferenceRow:
        wins = tuple(pair.chance(name) for name in objectives)
        gaps = tuple(pair.gaps.get(name, float("nan")) for name in objectives)
        spans = (chosen.tool_results, rejected.tool_results)
        return PreferenceRow(chosen.ids, rejected.ids, (chosen.start, rejected.start), wins, gaps, index, spans)

    def encode(examples: list[Example]) -> list[EncodedCompletion]:
        return [*map(encoder.encode_completion, examples)]

    options: Any = {"on_long": on_long, "allow_empty": allow_empty, "encode": encode}
    return encode_labelled(encoder, pairs, objectives, row, **options)


def completion_lengths(inputs: Mapping[str, Tensor]) -> Int[Tensor, " M"]:
    """Return the number of tokens of each completion in a collated batch, without tool results."""
    return inputs["attention"].sum(dim=1) - inputs["start"] - inputs["tool_results"].sum(dim=1)


class PreferenceTask(Task):
    """Training task with a preference vector α per pair, and a loss of Δ(α) = log π_α(y0 | x) - log π_α(y1 | x).

    y0 and y1 are the chosen and the rejected completion. `reference`: log-probabilities are relative to the base model,
    as in proxy tuning. `normalised`: they are means per token. `token_offset` (nats) is added per token, and `centred`
    subtracts the base model's expectation. `per_batch`: all pairs of a step share one α, as in PARM's public code.
    Without an adapter the complete model is trained for one objective. In evaluation the loss is the mean over a fixed
    grid of α, and accuracies are computed at one-hot α (vertices). `rates` are learning rates of the adapter's parts
    relative to the trainer's: the LoRA matrices A and B, and `modulation`, which computes γ, δ or the core from α.
    """

    def __init__(
        self,
        adapter: PreferenceAdapter | None,
        objectives: Sequence[str],
        loss: SequenceLogistic,
        sampler: Sampler,
        *,
        reference: bool = False,
        normalised: bool = False,
        per_batch: bool = False,
        seed: int = 0,
        rates: Mapping[Part, float] | None = None,
        centred: bool = False,
    ):
        self.adapter, self.objectives = adapter, tuple(objectives)
        self.sequence_logistic, self.sampler = loss, sampler
        self.reference, self.normalised = reference, normalised
        self.per_batch, self.seed = per_batch, seed
        self.rates, self.token_offset, self.centred = dict(rates or {}), 0.0, centred
        self.restarts = 0
        """Number of restarts after a collapse; each halves the learning rate of A."""
        self.grid = torch.tensor(simplex_grid(len(self.objectives), GRID), dtype=torch.float32)

    items = staticmethod(count_pairs)

    def check(self, rows: Sequence[PreferenceRow]) -> None:
        """Raise `DataError` if the loss needs scores that no row has."""
        if self.sequence_logistic.needs_scores and all(np.isnan(row.gaps).all() for row in rows):
            raise DataError("--global_form scores needs pairs with a 'gaps' column; choose another form, or add it")

    def collate(self, rows: Sequence[PreferenceRow]) -> dict[str, Tensor]:
        """Collate rows into 2B sequences, the chosen ones first, so that one forward pass serves both."""
        batch = pad([row.chosen for row in rows] + [row.rejected for row in rows])
        completion_mask = torch.zeros_like(batch.attention)
        for sequence, spans in enumerate([row.tool_results[side] for side in (0, 1) for row in rows]):
            for span in spans:
                completion_mask[sequence, span.start : span.stop] = True
        return {
            "tool_results": completion_mask,
            "tokens": batch.tokens,
            "attention": batch.attention,
            "start": torch.tensor([row.starts[0] for row in rows] + [row.starts[1] for row in rows]),
            "wins": torch.tensor([row.wins for row in rows]),
            "gaps": torch.tensor([row.gaps for row in rows]),
            "pair_index": torch.tensor([row.pair_index for row in rows]),
        }

    def loss(self, model: Any, inputs: dict[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """Return the mean loss at preferences sampled from (seed, step, row), and Δ(α) [B]."""
        wins, draws = inputs["wins"], self._draws(inputs["pair_index"].tolist(), step)
        alpha = self._preferences(draws).to(wins)
        extra: dict[str, Tensor] = {"scores": inputs["gaps"]}
        gap = self.gap(model, inputs, alpha)
        if self.sequence_logistic.needs_vertices:
            at_vertex = vertex_sampler(len(self.objectives))
            vertex = torch.cat([at_vertex(1, draw) for draw in draws]).to(wins)
            extra |= {"vertex": vertex, "vertex_gap": self.gap(model, inputs, vertex)}
        return self.sequence_logistic(gap, wins, alpha, **extra).mean(), gap

    def labelled_gaps(self, outputs: Tensor, inputs: dict[str, Tensor], step: int) -> tuple[Tensor, Tensor]:
        """Return Δ(α) and label 1/2 + Σ_k α_k (w_k - 1/2) of labelled objectives k, at the preferences of `loss`."""
        alpha = self._preferences(self._draws(inputs["pair_index"].tolist(), step)).to(outputs)
        return outputs, 0.5 + (alpha * (inputs["wins"] - 0.5).nan_to_num(0.0)).sum(dim=1)

    def _preferences(self, draws: Sequence[torch.Generator]) -> Float[Tensor, "B K"]:
        return torch.cat([self.sampler(1, draw) for draw in draws])

    def _draws(self, indices: Sequence[int], step: int) -> list[torch.Generator]:
        """Create one generator per row, so that samples do not depend on the row's batch or process."""
        rows = [0] * len(indices) if self.per_batch else indices
        return [torch.Generator().manual_seed(hash((self.seed, step, row)) % 2**63) for row in rows]

    def evaluate(self, model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the mean loss over the grid of preferences, and Δ at each one-hot preference [B, K]."""
        wins = inputs["wins"]
        vertices = torch.eye(len(self.objectives)).to(wins)
        extra: dict[str, Tensor] = {"scores": inputs["gaps"], "vertex": wins.new_zeros(wins.shape)}
        extra["vertex_gap"] = wins.new_zeros(len(wins))
        losses = []
        for preference in self.grid.to(wins):
            alpha = preference.expand(len(wins), -1)
            losses.append(self.sequence_logistic(self.gap(model, inputs, alpha), wins, alpha, **extra).mean())
        at_vertex = [self.gap(model, inputs, vertex.expand(len(wins), -1)) for vertex in vertices]
        return torch.stack(losses).mean(), torch.stack(at_vertex, dim=1)

    def gap(self, model: Any, inputs: dict[str, Tensor], alpha: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
        """Return Δ(α) of a collated batch, in nats."""
        return run_inside(model, partial(self._gap, inputs=inputs, alpha=alpha))

    def _gap(self, model: Any, inputs: dict[str, Tensor], alpha: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
        """Compute Δ(α) in the model's forward pass."""
        if self.adapter is not None and self.adapter.settings.follows_preference:
            self.adapter.set_preference(torch.cat([alpha, alpha]), self.objectives)
        sequences = inputs["tokens"], inputs["attention"], inputs["start"]
        if self.centred and self.adapter is not None:
            logprobs = centred_logprobs(model, self.adapter.disabled, *sequences)
        else:
            logprobs = completion_logprobs(model, *sequences)
        rewards = self._completion_logprobs(logprobs, inputs)
        if self.reference and self.adapter is not None:
            with torch.no_grad(), self.adapter.disabled():
                before = self._completion_logprobs(completion_logprobs(model, *sequences), inputs)
            rewards = rewards - before
        chosen, rejected = rewards.chunk(2)
        return chosen - rejected

    def _completion_logprobs(self, logprobs: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """Sum (or average) log-probabilities over each completion, without tool results; rows are right-padded."""
        total = logprobs.masked_fill(inputs["tool_results"], 0.0).sum(dim=1)
        written = completion_lengths(inputs)
        if self.normalised:
            return total / written.clamp_min(1)
        return total + self.token_offset * written

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Compute each objective's accuracy at its one-hot α (a gap of 0 is wrong), and the mean accuracy."""
        both = (prediction.predictions, prediction.label_ids)
        gaps, wins = (np.asarray(array, float).reshape(-1, len(self.objectives)) for array in both)
        right = gaps * (wins - 0.5) > 0
        decided = ~np.isnan(wins) & (wins != 0.5)
        shares = {
            f"accuracy_{name}": float(right[decided[:, i], i].mean()) if decided[:, i].any() else float("nan")
            for i, name in enumerate(self.objectives)
        }
        return shares | {"accuracy": float(np.nanmean([*shares.values()])) if decided.any() else float("nan")}

    def rate_factor(self, name: str) -> float:
        """Return a parameter's learning rate relative to the base rate; each restart halves the rate of LoRA's A."""
        part = part_of(name)
        factor = self.rates.get(part, 1.0) if part else 1.0
        return factor * 0.5**self.restarts if part == "A" else factor

    def save(self, folder: Path) -> None:
        """Save the adapter's weights and the number of restarts in a checkpoint."""
        if self.adapter is not None:
            self.adapter.save_pretrained(folder)
        (folder / RESTARTS).write_text(json.dumps({"restarts": self.restarts}) + "\n", encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Load the adapter's weights and the number of restarts from a checkpoint."""
        if self.adapter is not None:
            self.adapter.load_weights(folder)
        if (folder / RESTARTS).exists():
            self.restarts = int(from_json((folder / RESTARTS).read_text(encoding="utf-8"))["restarts"])
