"""Rewards of sampled completions by one or several reward sources: total, spread, and gains of best-of-n."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from ....policy.decoding.best_of_n import Gain, expected_gains
from ....policy.rewards.sources import RewardSources
from ....policy.training.prompts import PromptRow
from ....policy.types import Rewards
from ....rm.types import Example
from ...runs.run_folder import log
from .generation import SampledCompletion


class Sample(NamedTuple):
    """Prompts, n completions of each in a flat list, and their rewards."""

    prompts: Sequence[PromptRow]
    completions: Sequence[SampledCompletion]
    rewards: Rewards
    names: Sequence[str]
    """Names of the rewards that select. The others are only reported."""

    @property
    def total(self) -> Float[ndarray, "P n"]:
        """Mean over the rewards that select. NaN if one of them is missing."""
        return self.by_prompt(self.rewards.values[:, self._columns].mean(1))

    @property
    def parts(self) -> Float[ndarray, "P n E"] | None:
        """Rewards that select, if there are several, else rewards by each member of the ensemble; None without one."""
        every = self.rewards.values if len(self.names) > 1 else self.rewards.members
        if every is None:
            return None
        parts = every[:, self._columns].flatten(1)
        parts = parts[:, ~parts.isnan().all(0)]  # a watched ensemble may have more members
        return parts.numpy().reshape(len(self.prompts), -1, parts.shape[1]) if parts.shape[1] else None

    @property
    def spread(self) -> Float[ndarray, " N"] | None:
        """Standard deviation over `parts`, if any."""
        return None if self.parts is None else self.parts.std(2).ravel()

    @property
    def _columns(self) -> list[int]:
        return [self.rewards.index(name) for name in self.names]

    def by_prompt(self, values: Float[Tensor, " N"]) -> Float[ndarray, "P n"]:
        """Return values of the completions as a table with a row for each prompt."""
        return values.numpy().reshape(len(self.prompts), -1)

    def texts(self) -> list[list[str]]:
        """Return the texts of the completions, [P][n]."""
        texts = iter(completion.text for completion in self.completions)
        return [[next(texts) for _ in range(len(self.completions) // len(self.prompts))] for _ in self.prompts]

    def lengths(self, in_tokens: bool) -> Float[ndarray, "P n"]:
        """Return the lengths of the completions in tokens or in characters."""
        counts = [completion.tokens if in_tokens else len(completion.text) for completion in self.completions]
        return self.by_prompt(torch.tensor(counts, dtype=torch.float64))

    def ids(self) -> list[str]:
        """Return the ids of the rows if they are unique, else the indices of the prompts."""
        stated = [row.columns.get("id") for row in self.prompts]
        unique = None not in stated and len({*map(str, stated)}) == len(stated)
        return [str(id) for id in (stated if unique else range(len(stated)))]


def rate(
    sources: RewardSources, prompts: Sequence[PromptRow], completions: Sequence[SampledCompletion], batch_size: int
) -> Rewards:
    """Return the rewards of all completions, computed in batches that do not split the completions of a prompt."""
    n, parts = len(completions) // len(prompts), []
    with tqdm(total=len(completions), desc="rewards", unit="completion", disable=None) as bar:
        for first in range(0, len(completions), batch_size):
            batch = completions[first : first + batch_size]
            rows = [(first + offset) // n for offset in range(len(batch))]
            pairs = zip(rows, batch, strict=True)
            examples = [Example(prompts[row].prompt, completion.text) for row, completion in pairs]
            rewards, _ = sources(examples, rows=rows, finished=[not completion.is_cut for completion in batch])
            parts.append(rewards)
            bar.update(len(batch))
    members = [part.members for part in parts if part.members is not None]
    most = max((part.shape[2] for part in members), default=0)  # a batch of faults has fewer
    padded = [pad(part, (0, most - part.shape[2]), value=math.nan) for part in members]
    values = torch.cat([part.values for part in parts])
    return Rewards(values, parts[0].names, members=torch.cat(padded) if len(padded) == len(parts) else None)


def log_gains(sample: Sample) -> dict[str, Any]:
    """Return and log the expected gain of best-of-n in the reward that selects, and in each of the others."""
    rewards = torch.from_numpy(sample.total)
    gains, watched = expected_gains(rewards, rewards), {}
    for gain in gains[-1:]:
        log(
            f"the best of {gain.n} by reward: expected gain {_text(gain)} over the mean completion ({gain.prompts} "
            f"prompts), at a KL of at most {gain.kl_bound:.3g} nats from the policy"
        )
    for name in (name for name in sample.rewards.names if name not in sample.names):
        values = torch.from_numpy(sample.by_prompt(sample.rewards[name]))
        for gain in expected_gains(rewards, values)[-1:]:
            watched[name] = gain._asdict()
            worse = "; the selection lowers it" if gain.high < 0 else ""
            log(f"expected gain in '{name}': {_text(gain)} ({gain.prompts} prompts){worse}")
    every = [gain._asdict() for gain in gains]
    return {"gain": every[-1] if every else None, "watched": watched, "gains": every}


def _text(gain: Gain) -> str:
    return f"{gain.value:+.3g} [{gain.low:.3g}, {gain.high:.3g}]"
