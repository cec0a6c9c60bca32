"""Metrics of a step: rewards, KL, entropy, ratios, diversity and critic quality; the learning signal of a run."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from trl.trainer.utils import nanstd

from ...kernels.policy_loss import PolicyLoss
from ...rm.data import text_style as texts
from ..advantages._groups import groups
from ..types import Rewards, Rollout
from .algorithm import Scored
from .step import Processes


def step_metrics(
    scored: Scored, rollout: Rollout, faults: int, is_own: Bool[Tensor, " N"] | None = None
) -> Iterator[tuple[str, float]]:
    """Yield names and values of the metrics of one training step. `faults` is the number of unusable rewards.

    Standard errors of means over completions are clustered by prompts. `is_own` marks the completions that the policy
    generated itself; the others are from partner models. Reward metrics include all completions; KL, length and text
    metrics include only the policy's. Components are logged after the last transform. Two explained variances of the
    total reward are logged: by the critic's values at the first token, and by the mean reward of the group's other
    completions.
    """
    final = [*scored.rewards.values()][-1]
    yield "reward", scored.total.nanmean().item()
    yield "reward_stderr", standard_error(scored.total, rollout.group)
    yield "reward_std", nanstd(scored.total).item()
    yield "rewards/faults", faults
    yield from statistics(final, rollout.group)
    for name, values in zip(final.names, final.values.T, strict=True):
        yield f"rewards/{name}/stderr", standard_error(values, rollout.group)
    if is_own is None or is_own.all():
        yield from watched_metrics(rollout, scored.total)
    else:
        yield "reward_own", scored.total[is_own].nanmean().item()
        yield "reward_own_stderr", standard_error(scored.total[is_own], rollout.group[is_own])
        yield from watched_metrics(
            Rollout(*(field[is_own] if isinstance(field, Tensor) else None for field in rollout)), scored.total[is_own]
        )
    if rollout.values is not None:
        reward_groups = groups(scored.total, rollout.group)
        others = (reward_groups.number * reward_groups.mean - scored.total) / (reward_groups.number - 1)
        for name, values in (("first", rollout.values[:, 0]), ("of_others", others)):
            yield f"critic/explained_variance_{name}", explained_variance(values, scored.total, reward_groups.valid)


def token_metrics(
    loss: PolicyLoss,
    entropy: Float[Tensor, "N L"],
    response: Bool[Tensor, "N L"],
    processes: Processes,
    *,
    compares: bool,
) -> Iterator[tuple[str, float]]:
    """Yield names and means of token metrics over one micro-batch of each process.

    The entropy (nats) is the mean over all completion tokens. The share of clipped ratios and the mean ratio are over
    the tokens in the loss, if there are any. With `compares`, the KL to the reference policy (nats) is logged too.
    """
    facts = loss.sums[:, 1:].detach().sum(0)
    gap, clipped, live, ratio = processes.sum(facts).tolist()
    sums = torch.stack([entropy.detach().sum(), response.sum()])
    total, n_tokens = processes.sum(sums).tolist()
    yield "entropy", total / max(n_tokens, 1.0)
    if live:
        yield "clip_ratio/region_mean", clipped / live
        yield "ratio", ratio / live
        if compares:
            yield "kl", gap / live


# ---- rewards and critic ----


def statistics(rewards: Rewards, group: Int[Tensor, " N"]) -> Iterator[tuple[str, float]]:
    """Yield statistics of the reward components under TRL's names.

    These are mean, standard deviation (N - 1), number of missing rewards, share of groups with equal rewards, and
    correlations between components.
    """
    for name, values in zip(rewards.names, rewards.values.double().T, strict=True):
        present, group_statistics = values[~values.isnan()], groups(values, group)
        flat = group_statistics.valid & (group_statistics.variance == 0)
        yield f"rewards/{name}/mean", present.mean().item()
        yield f"rewards/{name}/std", present.std().item() if len(present) > 1 else math.nan
        yield f"rewards/{name}/missing", float(values.isnan().sum())
        yield f"rewards/{name}/frac_zero_std", (flat.sum() / group_statistics.valid.sum()).item()
    for index, first in enumerate(rewards.names):
        for second in rewards.names[index + 1 :]:
            yield f"rewards/correlation/{first}/{second}", correlation(rewards[first], rewards[second])


def correlation(x: Float[Tensor, " N"], y: Float[Tensor, " N"]) -> float:
    """Return Pearson's correlation over the rows where both values are present. NaN if x or y is constant."""
    both = ~(x.isnan() | y.isnan())
    if both.sum() < 2:
        return math.nan
    return torch.corrcoef(torch.stack([x[both], y[both]]).double())[0, 1].item()


def explained_variance(
    values: Float[Tensor, "N ..."], returns: Float[Tensor, "N ..."], mask: Bool[Tensor, "N ..."]
) -> float:
    """Compute 1 - Var(R - V) / Var(R) of values V and returns R over `mask`: at most 1. NaN if R is constant."""
    v, r = values[mask].double(), returns[mask].double()
    if len(r) < 2 or bool(r.min() == r.max()):
        return float("nan")
    return (1 - (r - v).var() / r.var()).item()


# ---- completions ----


def watched_metrics(rollout: Rollout, total: Float[Tensor, " N"]) -> Iterator[tuple[str, float]]:
    """Yield KL (if `logprobs` and `base` are set), length, text statistics (if `tokens` is set) and reward spread."""
    if rollout.logprobs is not None and rollout.base is not None:
        divergence = log_ratio(rollout.logprobs, rollout.base, rollout.response)
        yield "watch/kl", divergence.mean().item()
        yield "watch/kl_stderr", standard_error(divergence, rollout.group)
    yield "watch/length", rollout.response.sum(1).double().mean().item()
    yield "watch/unfinished", 1 - rollout.finished.double().mean().item()
    if rollout.tokens is not None:
        yield "watch/repetition", repetition(rollout)
        yield "watch/distinct_1", distinct(rollout, 1)
        yield "watch/distinct_2", distinct(rollout, 2)
    yield "watch/reward_spread", reward_spread(total, rollout.group)


# ---- distance from the reference policy ----


def log_ratio(
    logprobs: Float[Tensor, "N L"], base: Float[Tensor, "N L"], response: Bool[Tensor, "N L"]
) -> Float[Tensor, " N"]:
    """k1 = Σ_t log π(y_t) - log base(y_t) of every completion, in nats         http://joschu.net/blog/kl-approx.html

    π is the policy and base the reference policy. The mean of k1 over samples of π is an unbiased estimate of
    KL(π | base). Single completions may have a negative k1.
    """
    return torch.where(response, logprobs.double() - base.double(), 0).sum(1)


def standard_error(values: Float[Tensor, " N"], group: Int[Tensor, " N"]) -> float:
    """Return the standard error s of the mean of N values x, clustered by G prompts. NaN values are left out.

    s² = G/(G-1) Σ_g (Σ_{i∈g} (x_i - mean))² / N²                   Liang & Zeger 1986, doi:10.1093/biomet/73.1.13

    NaN for a single prompt.
    """
    values, group = values[~values.isnan()].double(), group[~values.isnan()]
    group_index = torch.unique(group, return_inverse=True)[1]
    number = len(group_index.unique())
    if number < 2:
        return math.nan
    totals = values.new_zeros(number).index_add(0, group_index, values - values.mean())
    return (totals.norm() * math.sqrt(number / (number - 1)) / len(values)).item()


def reward_spread(total: Float[Tensor, " N"], group: Int[Tensor, " N"]) -> float:
    """Return the standard deviation (n - 1) of a group's rewards, averaged over groups with two or more rewards."""
    statistics = groups(total, group)
    share = torch.where(statistics.valid, 1 / statistics.number, 0)  # the rows of a group have total weight 1
    return ((share * statistics.variance.sqrt()).sum() / share.sum()).item()


# ---- text statistics ----


def repetition(rollout: Rollout, n: int = 3) -> float:
    """Return the mean share of repeated n-grams over completions of n tokens or more. NaN without such completions."""
    shares = [texts.repetition(completion, n) for completion in _completions(rollout)]
    return torch.tensor(shares, dtype=torch.float64).nanmean().item()


def distinct(rollout: Rollout, n: int) -> float:
    """Return the share of distinct n-grams over all completions (`rm.data.text_style.distinct`)."""
    return texts.distinct(_completions(rollout), n)


def _completions(rollout: Rollout) -> list[list[int]]:
    """Return the token ids of every completion."""
    (tokens,) = rollout.require("metrics", "tokens")
    return [row[mask].tolist() for row, mask in zip(tokens.cpu(), rollout.response.cpu(), strict=True)]


# ---- over a run ----


def learning_signal(scored: Scored, group: Int[Tensor, " N"]) -> "LearningSignal":
    """Return the counts of missing, truncated and equal rewards of a batch of completions."""
    earned = scored.earned if scored.earned.dim() == 1 else scored.earned.sum(1)
    rewarded, statistics = ~scored.total.isnan(), groups(earned, group)
    n_missing = sum((rows.int() for rows in scored.missing.values()), torch.zeros_like(group))
    partial = (n_missing > 0) & (n_missing < len(scored.missing))
    equal = statistics.valid & (statistics.variance == 0)
    return LearningSignal(
        completions=len(group),
        without_reward=int((~rewarded).sum()),
        partial=int(partial.sum()),
        summed=int((partial & rewarded).sum()),
        truncated=int((rewarded & ~scored.trained.any(1)).sum()),
        missing={name: int(rows.sum()) for name, rows in scored.missing.items()},
        groups=len(group[statistics.valid].unique()),
        equal_groups=len(group[equal].unique()),
        steps_without_reward=int(not rewarded.any()),
    )


@dataclass(frozen=True)
class LearningSignal:
    """Counts of usable, missing and equal rewards over a batch of completions or a run. Saved in checkpoints."""

    completions: int = 0
    without_reward: int = 0
    """Number of completions that are not trained on because of a missing reward."""
    partial: int = 0
    """Number of completions with some missing and some present rewards."""
    summed: int = 0
    """Number of completions in `partial` that are trained on their present rewards."""
    truncated: int = 0
    """Number of completions with a reward that are not trained on because they were truncated."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Number of completions with a missing reward, by reward component."""
    groups: int = 0
    """Number of groups with two or more rewards."""
    equal_groups: int = 0
    """Number of groups with two or more rewards in which all rewards are equal."""
    steps_without_reward: int = 0
    """Number of batches in which no completion has a reward."""
    updates: int = 0
    """Number of optimizer steps with at least one non-zero advantage."""

    def __add__(self, other: "LearningSignal") -> "LearningSignal":
        """Return the sum of the counts."""
        first, second = asdict(self), asdict(other)
        missing = [counts.pop("missing") for counts in (first, second)]
        names = dict.fromkeys(name for counts in missing for name in counts)
        return LearningSignal(
            **{name: number + second[name] for name, number in first.items()},
            missing={name: sum(counts.get(name, 0) for counts in missing) for name in names},
        )

    def warning(self, before: "LearningSignal") -> str:
        """Return a warning about missing rewards in this batch, unless the earlier counts `before` have some too."""
        if self.steps_without_reward and not before.steps_without_reward:
            return f"none of {self.completions} completions has a reward ({self._missing}), so none is trained on"
        if self.partial and not before.partial and not self.steps_without_reward:
            return (
                f"{self.partial} of {self.completions} completions lack some of their rewards ({self._missing}); "
                f"{self.summed} are trained on the rest, {self.partial - self.summed} are dropped; see --on_missing"
            )
        return ""

    @property
    def fault(self) -> str:
        """Return why the policy could not learn from the rewards. Empty if it learned, or if there was no step."""
        if self.updates or not self.completions:
            return ""
        if self.without_reward == self.completions:
            some = self.partial == self.completions
            remedy = "; each has some of its rewards, see --on_missing" if some else ""
            return f"none of {self.completions} completions had a reward ({self._missing}){remedy}"
        return (
            f"every advantage was 0: {self.equal_groups} of {self.groups} groups had equal rewards, and of "
            f"{self.completions} completions {self.without_reward} had no reward ({self._missing}) and "
            f"{self.truncated} were truncated and masked"
        )

    @property
    def _missing(self) -> str:
        """Return the numbers of missing rewards by source, such as "missing: judge 4, form 0"."""
        return f"missing: {', '.join(f'{name} {number}' for name, number in self.missing.items())}"
