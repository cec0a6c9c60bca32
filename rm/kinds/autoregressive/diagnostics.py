"""Diagnostics of autoregressive reward models: context sensitivity, and accuracy beyond length.

A guide (an autoregressive reward model that guides decoding) may collapse to a context-free state: its next-token
probabilities hardly depend on the prompt and the preceding tokens. Its reward is then a constant per token and measures
length only, which the training loss does not show.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ...backbones.forward_hooks import run_inside
from ...backbones.logprobs import completion_logprobs
from ...io.sharded_weights import put
from ...training.protocol import Monitor
from .preference_task import PreferenceRow, PreferenceTask, completion_lengths

COLLAPSED = 1 / 3
"""A guide counts as context-free if its context sensitivity is below this share of the base model's.

The value was chosen on half of the seeds of `research/studies/guide_recipes` and validated on the other half.
"""

MOST_PAIRS, MOST_TOKENS = 64, 16_384
"""Maximum numbers of pairs and of their tokens for measurements during training; at least one pair is used."""
AT_ONCE = 512
"""Number of contexts per batch whose distributions over the vocabulary are computed, in float64."""


class GuideDiagnostics(NamedTuple):
    """Diagnostics of a guide on pairs, with all weight on one objective."""

    context_sensitivity: float
    """Σ_v SD_c[p(v | c)] over contexts c: the ratio of SD and mean of a token's probability, weighted by its mean."""
    entropy: float
    """Mean entropy of the next token, in nats."""
    length_correlation: float
    """Correlation of Δ = log π(y0 | x) - log π(y1 | x) with the difference of lengths in tokens; NaN if constant."""
    accuracy: float
    """Accuracy of sign Δ over the pairs with a preference for the objective; Δ = 0 is wrong."""
    accuracy_without_length: float
    """Accuracy after subtracting from Δ its least-squares fit by the length difference (without intercept)."""
    pairs: int
    """Number of pairs with a preference for the objective."""


def pair_diagnostics(gaps: np.ndarray, lengths: np.ndarray, wins: np.ndarray) -> tuple[float, float, float, int]:
    """Return length correlation, accuracy, accuracy with length regressed out, and number of pairs with a preference.

    `gaps` are Δ [B], `lengths` are |y0| - |y1| [B], `wins` are P(y0 better) [B].

    >>> pair_diagnostics(np.array([-4.0, 3.0, -2.0]), np.array([4.0, -4.0, 3.0]), np.array([1.0, 1.0, 0.0]))[1]
    0.6666666666666666
    """
    decided = ~np.isnan(wins) & (wins != 0.5)
    constant = len(gaps) < 2 or gaps.std() == 0 or lengths.std() == 0
    correlation = float("nan") if constant else float(np.corrcoef(gaps, lengths)[0, 1])
    slope = gaps @ lengths / (lengths @ lengths) if (lengths @ lengths) > 0 else 0.0
    right = _accuracy(gaps, wins, decided), _accuracy(gaps - slope * lengths, wins, decided)
    return correlation, *right, int(decided.sum())


def _accuracy(gaps: np.ndarray, wins: np.ndarray, decided: np.ndarray) -> float:
    return float((gaps * (wins - 0.5) > 0)[decided].mean()) if decided.any() else float("nan")


class ContextSpread:
    """Mean and SD of next-token probabilities over contexts, accumulated batch by batch."""

    def __init__(self):
        self.contexts = 0
        self.sums: Any = 0.0
        self.squares: Any = 0.0
        self.entropies = 0.0

    def add(self, logits: Tensor) -> None:
        """Add the logits [M, V] of M contexts."""
        for part in logits.split(AT_ONCE):
            logprobs = part.double().log_softmax(dim=-1)
            chances = logprobs.exp()
            self.contexts += len(part)
            self.sums, self.squares = self.sums + chances.sum(0), self.squares + chances.square().sum(0)
            self.entropies += float(-(chances * logprobs).sum())

    def values(self) -> tuple[float, float]:
        """Return Σ_v SD_c[p(v | c)] over tokens v and prompts c, and the mean entropy in nats."""
        means = self.sums / self.contexts
        spread = (self.squares / self.contexts - means.square()).clamp_min(0).sqrt().sum()
        return float(spread), self.entropies / self.contexts


@torch.no_grad()
def guide_diagnostics(
    task: PreferenceTask, model: Any, rows: Sequence[PreferenceRow], *, batch: int = 32
) -> dict[str, GuideDiagnostics]:
    """Return the diagnostics of every objective, with all weight on that objective, over the completions' prefixes."""
    training = model.training
    model.eval()
    wins = np.array([row.wins for row in rows], float)
    diagnostics = {}
    for index, name in enumerate(task.objectives):
        spread, gaps, lengths = _measure(task, model, rows, index, batch)
        diagnostics[name] = GuideDiagnostics(*spread.values(), *pair_diagnostics(gaps, lengths, wins[:, index]))
    model.train(training)
    return diagnostics


@torch.no_grad()
def base_context_sensitivity(task: PreferenceTask, model: Any, rows: Sequence[PreferenceRow], batch: int = 32) -> float:
    """Return the context sensitivity without the adapter."""
    with task.adapter.disabled() if task.adapter else nullcontext():
        return _measure(task, model, rows, 0, batch)[0].values()[0]


def _measure(
    task: PreferenceTask, model: Any, rows: Sequence[PreferenceRow], index: int, batch: int
) -> tuple[ContextSpread, np.ndarray, np.ndarray]:
    """Return the context spread, Δ and length differences of pairs, with all weight on objective `index`."""
    device = next(model.parameters()).device
    spread, gaps, lengths = ContextSpread(), [], []
    for start in tqdm(range(0, len(rows), batch), desc="measuring the guide", leave=False, disable=None, delay=1):
        inputs = {name: value.to(device) for name, value in task.collate(rows[start : start + batch]).items()}
        alpha = torch.eye(len(task.objectives), device=device)[index].expand(len(inputs["wins"]), -1)
        gaps.append(task.gap(model, inputs, alpha))
        lengths.append(torch.sub(*completion_lengths(inputs).chunk(2)))
        spread.add(_context_logits(model, inputs))
    return spread, torch.cat(gaps).double().cpu().numpy(), torch.cat(lengths).double().cpu().numpy()


def _context_logits(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Return the logits [M, V] that predict the completions' tokens, at the current preference."""
    tokens, attention = inputs["tokens"], inputs["attention"]
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    predicted = (columns >= inputs["start"][:, None].clamp_min(1)) & attention.bool() & ~inputs["tool_results"]

    def forward(inner: Any) -> Tensor:
        return inner(input_ids=tokens, attention_mask=attention.long()).logits[:, :-1][predicted[:, 1:]]

    return run_inside(model, forward)


@torch.no_grad()
def mean_negative_logprob(task: PreferenceTask, model: Any, rows: Sequence[PreferenceRow], batch: int = 32) -> float:
    """Return the base model's mean of -log π(y_t | x, y_<t) over the completions' tokens, for `token_offset`."""
    total, tokens = 0.0, 0
    for start in range(0, len(rows), batch):
        inputs = task.collate(rows[start : start + batch])
        inputs = {name: value.to(next(model.parameters()).device) for name, value in inputs.items()}
        sequences = inputs["tokens"], inputs["attention"], inputs["start"]
        with task.adapter.disabled() if task.adapter else nullcontext():
            logprobs = run_inside(model, lambda inner, sequences=sequences: completion_logprobs(inner, *sequences))
        total -= float(logprobs.masked_fill(inputs["tool_results"], 0.0).sum())
        tokens += int(completion_lengths(inputs).sum())
    return total / tokens


def measured_rows(rows: Sequence[PreferenceRow], tokens: int = MOST_TOKENS) -> Sequence[PreferenceRow]:
    """Return the first rows, at most `MOST_PAIRS` of them and at most `tokens` tokens in total; at least one row."""
    totals = accumulate(len(row.chosen) + len(row.rejected) for row in rows[:MOST_PAIRS])
    return rows[: max(1, sum(total <= tokens for total in totals))]


class CollapseMonitor(Monitor):
    """Callback that measures a guide on training pairs, reports a collapse, and can restart the training.

    Trainings of fewer than `every` steps are not measured.

    Measurements are logged as `context_sensitivity_NAME` and so on. `collapsed_objectives` defines a collapse, by
    default with the limit `COLLAPSED`. A collapse in the first half of the training stops it as long as `restarts`
    remain; `restart` then restores the initial weights and halves the learning rate of the LoRA matrices A.
    """

    def __init__(
        self,
        task: PreferenceTask,
        rows: Sequence[PreferenceRow],
        *,
        every: int = 25,
        limit: float | None = None,
        restarts: int = 0,
        report: Callable[[str], None] = print,
    ):
        assert task.adapter is not None
        self.task, self.adapter, self.rows, self.every = task, task.adapter, rows, every
        self.active = False
        """Whether the training is long enough for a measurement."""
        self.limit = COLLAPSED if limit is None else limit
        self.restarts, self.report = restarts, report
        self.initial = {name: weight.clone() for name, weight in task.adapter.state().items()}
        self.base = float("nan")
        self.collapsed_at: int | None = None
        """First step at which a collapse was measured, in the last attempt."""
        self.history: list[tuple[int, dict[str, GuideDiagnostics]]] = []
        """Steps and their measurements, in the last attempt."""
        self._stopped = False

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        """Measure the base model before the first step."""
        self.active = state.max_steps >= self.every
        if not self.active:
            return
        if state.is_world_process_zero:
            self.report(
                f"measuring whether the guide reads its context, on {len(self.rows)} pairs: now the base model, and "
                f"the guide every {self.every} steps and at the end; --monitor_steps 0 turns this off"
            )
        self.base = base_context_sensitivity(self.task, model, self.rows)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        """Measure the guide every `every` steps."""
        if not self.active or state.global_step % self.every:
            return
        measured = guide_diagnostics(self.task, model, self.rows)
        self.history.append((state.global_step, measured))
        state.log_history.append({"step": state.global_step, **flatten(measured)})
        collapsed = collapsed_objectives(measured, self.base, self.limit)
        if not collapsed or self.collapsed_at is not None:
            return
        self.collapsed_at = state.global_step
        early = 2 * state.global_step <= state.max_steps
        self._stopped = early and self.task.restarts < self.restarts
        control.should_training_stop |= self._stopped
        self.report(self._monitor_message(measured, collapsed, state.global_step))

    def restart(self) -> bool:
        """Restore the weights and halve A's learning rate after a collapse; return whether to train again."""
        if not self._stopped:
            return False
        for name, weight in self.adapter.state().items():
            put(weight, self.initial[name])
        self.task.restarts += 1
        self.collapsed_at, self.history, self._stopped = None, [], False
        return True

    def facts(self, model: Any) -> dict[str, Any]:
        """Measure the trained guide, and return its diagnostics for the manifest; empty for short trainings."""
        if not self.active:
            return {}
        self.report(f"measuring the trained guide on {len(self.rows)} pairs for each objective")
        measured = guide_diagnostics(self.task, model, self.rows)
        guide = {
            "pairs": len(self.rows),
            "base_context_sensitivity": self.base,
            "objectives": {name: at._asdict() for name, at in measured.items()},
            "collapsed": collapsed_objectives(measured, self.base, self.limit),
            "restarts": self.task.restarts,
        }
        return {"guide": guide}

    def _monitor_message(self, measured: Mapping[str, GuideDiagnostics], collapsed: Sequence[str], step: int) -> str:
        name = collapsed[0]
        next_step = "lower --learning_rate, or only A's with --rate_of_a, or set --restarts"
        next_step = "starting again with half the learning rate of A" if self._stopped else next_step
        return (
            f"step {step}: the guide has collapsed at {', '.join(collapsed)}: its next-token probabilities hardly "
            f"depend on the context any more (context sensitivity {measured[name].context_sensitivity:.2f}, base model "
            f"{self.base:.2f}), so that its reward measures little but length; {next_step}"
        )


def collapsed_objectives(measured: Mapping[str, GuideDiagnostics], base: float, limit: float) -> list[str]:
    """Return the objectives for which the guide has collapsed: it ignores context and predicts no better than length.

    With all weight on the objective, the context sensitivity is below `limit` times the base model's, and the accuracy
    with length regressed out is at most 1/2 + 1 / √n over n pairs (two standard errors of chance). The second condition
    is needed because a bag of words can predict labels without context.
    """
    return [
        name
        for name, at in measured.items()
        if at.context_sensitivity < limit * base and at.accuracy_without_length < 0.5 + max(1, at.pairs) ** -0.5
    ]


def flatten(diagnostics: Mapping[str, GuideDiagnostics]) -> dict[str, float]:
    """Return all measures by name, with the objective's name appended."""
    return {f"{key}_{name}": value for name, at in diagnostics.items() for key, value in at._asdict().items()}
