"""Contextual bandit over completions: features, models of the gain, and selection."""

import math
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..advantages._groups import groups
from ..types import Rollout, State

FEATURES, BOUND = 10, 3.0


# ---- features ----


class History(NamedTuple):
    """Previous use of each completion in training. All values are 0 for new completions."""

    age: Float[Tensor, " N"]
    """Age in batches."""
    uses: Float[Tensor, " N"]
    """Number of times that the completion was selected."""
    clipped: Float[Tensor, " N"]
    """Share of clipped tokens in the last training step that used the completion."""


def contexts(
    rewards: Float[Tensor, " N"],
    advantage: Float[Tensor, " N"],
    rollout: Rollout,
    *,
    longest: int,
    history: History | None = None,
) -> Float[Tensor, "N 10"]:
    """Compute ten features of each completion, clamped to ±3. All are 0 if the reward is missing.

    They are: reward z-score within the group, |A|, sign A, mean entropy, mean log π_old, share of clipped tokens,
    tokens / `longest`, truncated, log(1 + age), log(1 + uses). The types of features are the paper's, the list is ours.
    """
    (entropy, logprobs), tokens = rollout.require("cbs", "entropy", "logprobs"), rollout.response.sum(1).double()
    statistics, zero = groups(rewards, rollout.group), torch.zeros_like(tokens)
    spread = statistics.variance.sqrt()
    history = history or History(zero, zero, zero)

    def mean(values: Tensor) -> Tensor:
        return torch.where(rollout.response, values, 0).double().sum(1) / tokens.clamp_min(1)

    columns = [
        torch.where(spread > 0, (rewards.double() - statistics.mean) / spread.clamp_min(1e-12), 0),
        advantage.double().abs(),
        advantage.double().sign(),
        mean(entropy),
        mean(logprobs),
        history.clipped.double(),
        tokens / longest,
        (~rollout.finished).double(),
        history.age.double().log1p(),
        history.uses.double().log1p(),
    ]
    return torch.where(rewards.isnan()[:, None], 0, torch.stack(columns, 1).clamp(-BOUND, BOUND))


# ---- models of the gain ----


class Predictor(NamedTuple):
    """A model that predicts the gain of training on a completion from its features. The state starts as {}."""

    score: Callable[[State, Float[Tensor, "N 10"]], Float[Tensor, " N"]]
    learn: Callable[[State, Float[Tensor, "N 10"], float], State]
    """(state, features of the selected completions, their common gain) -> next state."""
    explores: Callable[[int], float]
    """Maps the number of steps after the warm-up to the probability of selecting a random completion."""


def ridge(*, shrink: float, bonus: float) -> Predictor:
    """θᵀx + α sqrt(xᵀ M⁻¹ x),   θ = M⁻¹ b,  M = λ I + Σ x xᵀ,  b = Σ gain x

    LinUCB: Li et al. 2010, arXiv:1003.0146. x are the features of a completion with a constant 1 appended; the sums are
    over all selected completions. λ = `shrink` > 0, α = `bonus` >= 0 in units of the gain.
    """
    if not shrink > 0 or not bonus >= 0:
        raise ValueError(f"cbs: shrink must be above 0 and bonus at least 0, got {shrink} and {bonus}")

    def matrices(state: State) -> tuple[Tensor, Tensor]:
        if not state:
            return shrink * torch.eye(FEATURES + 1, dtype=torch.float64), torch.zeros(FEATURES + 1, dtype=torch.float64)
        return tuple(torch.tensor(state[name], dtype=torch.float64) for name in ("M", "b"))  # type: ignore

    def score(state: State, x: Float[Tensor, "N 10"]) -> Float[Tensor, " N"]:
        M, b = matrices(state)
        x = _with_constant(x)
        return x @ torch.linalg.solve(M, b) + bonus * (x * torch.linalg.solve(M, x.T).T).sum(1).clamp_min(0).sqrt()

    def learn(state: State, x: Float[Tensor, "N 10"], gain: float) -> State:
        M, b = matrices(state)
        x = _with_constant(x)
        return {"M": (M + x.T @ x).tolist(), "b": (b + gain * x.sum(0)).tolist()}

    return Predictor(score, learn, lambda step: 0.0)


def _with_constant(x: Float[Tensor, "N 10"]) -> Float[Tensor, "N 11"]:
    return torch.cat([x.cpu().double(), torch.ones(len(x), 1, dtype=torch.float64)], 1)


def mlp(
    *, learning_rate: float, over: int, hidden: int = 32, first: float = 0.1, last: float = 0.01, weights: int = 0
) -> Predictor:
    """f(x) = v·tanh(W x + u) + c, with one step of gradient descent on ½ mean (f(x) - gain)² after every batch

    x are the features of a completion; v, W, u and c are trained. Selection is ε-greedy: the probability of a random
    completion instead of the best changes from `first` to `last` over `over` steps. `weights` is the seed of the
    initial weights.
    """
    if not learning_rate > 0 or over < 1 or hidden < 1 or not 0 <= last <= first <= 1:
        raise ValueError(
            "cbs: learning_rate must be above 0, `over` and `hidden` at least 1 and 0 <= last <= first <= 1, got "
            f"{learning_rate}, {over}, {hidden}, {last} and {first}"
        )

    def layers(state: State) -> list[Tensor]:
        if state:
            return [torch.tensor(state[name], dtype=torch.float64) for name in ("W", "u", "v", "c")]
        draw = np.random.default_rng(weights)
        W, v = draw.normal(0, FEATURES**-0.5, (hidden, FEATURES)), draw.normal(0, hidden**-0.5, hidden)
        return [torch.tensor(array, dtype=torch.float64) for array in (W, np.zeros(hidden), v, 0.0)]

    def score(state: State, x: Float[Tensor, "N 10"]) -> Float[Tensor, " N"]:
        W, u, v, c = layers(state)
        return (x.cpu().double() @ W.T + u).tanh() @ v + c

    def learn(state: State, x: Float[Tensor, "N 10"], gain: float) -> State:
        W, u, v, c = layers(state)
        x = x.cpu().double()
        h = (x @ W.T + u).tanh()
        error = (h @ v + c - gain) / len(x)
        inner = error[:, None] * v * (1 - h.square())
        slopes = {"W": inner.T @ x, "u": inner.sum(0), "v": error @ h, "c": error.sum()}
        after = zip(slopes.items(), (W, u, v, c), strict=True)
        return {name: (old - learning_rate * slope).tolist() for (name, slope), old in after}

    return Predictor(score, learn, lambda step: max(last, first - (first - last) * step / over))


PREDICTORS: dict[str, Callable[..., Predictor]] = {"ridge": ridge, "mlp": mlp}


def predictor(name: str, settings: Mapping[str, Any]) -> Predictor:
    """Create a predictor by name; raise `ValueError` for an unknown name or wrong settings."""
    if name not in PREDICTORS:
        raise ValueError(f"cbs: model must be one of {', '.join(PREDICTORS)}, got {name!r}")
    try:
        signature(PREDICTORS[name]).bind(**settings)
    except TypeError as error:
        parameters = ", ".join(map(str, signature(PREDICTORS[name]).parameters))
        raise ValueError(f"cbs: {error}; model={name} takes {parameters}") from error
    return PREDICTORS[name](**settings)


# ---- the bandit ----


class Bandit(NamedTuple):
    """Contextual bandit that selects completions by their predicted gain.

    The state has the keys "step", "performance" (V of `cbs`), "gain" (the last gain), "chosen" (features of the
    selected completions) and "model" (state of the predictor).
    """

    predictor: Predictor
    penalty: float
    ceiling: float
    rate: float
    warm_up: int
    seed: int

    def observe(self, state: State, mean: float, entropy: float) -> dict[str, Any]:
        """Update the predictor with the gain of the previously selected completions, and V += rate (mean - V).

        With a NaN mean neither the predictor nor V changes.
        """
        next_state = dict(state)
        features, before = next_state.get("chosen", []), next_state.get("performance")
        next_state["chosen"] = []
        if math.isnan(mean):
            return next_state
        if before is None:
            return next_state | {"performance": mean}
        step_gain = gain(mean, before, entropy, self.penalty, self.ceiling)
        if features:
            x = torch.tensor(features, dtype=torch.float64)
            next_state["model"] = self.predictor.learn(next_state.get("model", {}), x, step_gain)
        return next_state | {"performance": before + self.rate * (mean - before), "gain": step_gain}

    def choose(
        self, state: State, x: Float[Tensor, "N 10"], sets: Sequence[Int[Tensor, " _"]], number: int
    ) -> tuple[dict[str, Any], list[list[int]]]:
        """Return the next state and `number` selected rows of each set, or all rows of a smaller set.

        The selection is random during the warm-up.
        """
        step = int(state.get("step", 0))
        explore = 1.0 if step < self.warm_up else self.predictor.explores(step - self.warm_up)
        scores = self.predictor.score(state.get("model", {}), x).tolist()
        draw = np.random.default_rng([self.seed, step])
        selection = []
        for rows in sets:
            some = rows.tolist()
            selection.append([some[index] for index in pick([scores[row] for row in some], number, explore, draw)])
        features = x[[row for rows in selection for row in rows]].tolist()
        return {**state, "step": step + 1, "chosen": features}, selection


def bandit(
    model: str, settings: Mapping[str, Any], *, penalty: float, ceiling: float, rate: float, warm_up: int, seed: int
) -> Bandit:
    """Create a bandit from the name and settings of a predictor. Raise an error for invalid settings."""
    if not penalty >= 0 or not 0 < rate <= 1 or warm_up < 0 or math.isnan(ceiling):
        raise ValueError(
            "cbs: penalty and warm_up must be at least 0, rate in (0, 1] and ceiling a number of nats, got "
            f"{penalty}, {warm_up}, {rate} and {ceiling}"
        )
    return Bandit(predictor(model, settings), penalty, ceiling, rate, warm_up, seed)


def gain(mean: float, before: float, entropy: float, penalty: float, ceiling: float) -> float:
    """Compute the gain μ_{t+1} - V_t - c max(0, H - H_max): mean reward minus its previous estimate and a penalty.

    >>> gain(0.75, 0.5, 2.5, 0.25, 2.0)
    0.125
    """
    return mean - before - penalty * max(0.0, entropy - ceiling)


def pick(scores: Sequence[float], number: int, explore: float, draw: np.random.Generator) -> list[int]:
    """Select `number` indices: each time the best remaining score, or with probability `explore` a random one.

    >>> pick([1.0, 3.0, 2.0], 2, 0.0, np.random.default_rng(0))
    [1, 2]
    """
    remaining, rows = sorted(range(len(scores)), key=lambda index: -scores[index]), []
    for _ in range(min(number, len(remaining))):
        rows.append(remaining.pop(int(draw.integers(len(remaining))) if draw.random() < explore else 0))
    return rows


def mean_entropy(rollout: Rollout) -> float:
    """Return the mean entropy over all completion tokens, in nats per token. 0 if there are no tokens."""
    (entropy,) = rollout.require("cbs", "entropy")
    return (torch.where(rollout.response, entropy, 0).sum() / rollout.response.sum().clamp_min(1)).item()
