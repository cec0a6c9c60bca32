"""Refits of the reward model's head on fixed pools, by states, labels and update size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from ....kernels.r2m_attention import absorbed
from ....rm.kinds.r2m.model import R2MHead, linear_head
from ....rm.losses.grebt import Pairs, extremes, grebt
from ....rm.types import content_hash
from ...worlds.policies import split_prompts
from .._runs.job_cache import Arrays, Job
from .pools import GROUP, Pool, R2MDrift, private, sample_pool

FROZEN, HEAD = "frozen", "head only"
STATES = ("own", "stale", "shuffled", "noise")
LABELS: Mapping[str, float | None] = {
    "own labels": None,
    "random labels": 0.5,
    "55 % right": 0.55,
    "65 % right": 0.65,
    "75 % right": 0.75,
    "85 % right": 0.85,
    "95 % right": 0.95,
    "gold labels": 1.0,
}
"""Probability that a label agrees with gold; None: the reward model's own order."""
MOVEMENT = 0.006
"""Largest movement of a weight in one step, in standard deviations of the initial attention (Xavier)."""
SIZES: Mapping[str, int] = {"1 step": 1, "10 steps": 10}
"""Optimizer steps on each pool: the paper's movement in all its cycles, and ten times that."""
OMEGA, ALPHA, MAX_GRAD_NORM = 0.6, 0.3, 1.0
GARDEN, PRIVATE = "garden", "private"
SHARE, STRENGTH = 1.0, 2.0
ACCURACY, BEST, LABEL_ACCURACY = "accuracy", "best of 8", "label accuracy"


class Arm(NamedTuple):
    """What a refit reads, learns from, and how far it moves."""

    states: str
    labels: str = ""
    size: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, self))


ARMS = (Arm(FROZEN), *(Arm(*arm) for arm in product((HEAD, *STATES), LABELS, SIZES)))


# ---- one refit ----


def attended(
    u: Float[Tensor, "N P"], states: Float[Tensor, "N W P"], bounds: Tensor, mask: Bool[Tensor, "N W"] | None
) -> Float[Tensor, "N P"]:
    """Return Σ_t softmax(h_t · u)_t h_t over the masked positions of padded states, for `absorbed`; no bounds."""
    logits = torch.bmm(states, u[:, :, None]).squeeze(2)
    weights = (logits if mask is None else logits.masked_fill(~mask, -torch.inf)).softmax(1)
    return torch.bmm(weights[:, None], states).squeeze(1)


class Input(NamedTuple):
    """What an arm reads of a pool."""

    tokens: Float[Tensor, "N D"]
    states: Float[Tensor, "N W P"] | None
    mask: Bool[Tensor, "N W"] | None


def read_pool(pool: Pool, states: str, seed: int) -> Input:
    """Return the input of arms that read these states; None for those that read the reward token alone."""
    if states in (FROZEN, HEAD):
        return Input(pool.tokens, None, None)
    return Input(pool.tokens, pool.states(states, seed), pool.state_mask(states))


def head_rewards(head: R2MHead, given: Input) -> Float[Tensor, " N"]:
    """Return φ((1 - ω) Ĥ + ω H), R2M's eqs. 3 and 4 (see `R2MHead`), or φ(H) without states; differentiable."""
    tokens = given.tokens
    if given.states is not None:
        matrices = (head.W_q, head.W_k, head.W_v, head.W_o)
        read = absorbed(attended, tokens, given.states, torch.empty(0), *matrices, mask=given.mask)
        tokens = (1 - OMEGA) * read + OMEGA * tokens
    return head.score(tokens)[:, 0]


def label_pairs(rewards: Float[Tensor, "G R"], gold: Float[Tensor, "G R"], right: float | None, seed: int) -> Pairs:
    """Return the best and worst of every group by the model's rewards, and a label of them.

    The label is gold's order with probability `right`, else the reverse; None: the model's own order. Gold's ties have
    no label. Labels of one seed are nested: those that are wrong at .95 are wrong at .85 too.
    """
    pairs = extremes(rewards)
    if right is None:
        return pairs
    gap = (gold.gather(1, pairs.best[:, None]) - gold.gather(1, pairs.worst[:, None])).squeeze(1)
    wrong = torch.rand(len(gap), generator=Generator().manual_seed(seed)) >= right
    wins = torch.where((gap > 0) ^ wrong, 1.0, 0.0).to(rewards.dtype)
    return pairs._replace(wins=wins.masked_fill((gap.abs() < 1e-9) | pairs.wins.isnan(), torch.nan))


def label_accuracy(pairs: Pairs, gold: Float[Tensor, "G R"]) -> float:
    """Return the share of labels that agree with gold, except its ties."""
    gap = (gold.gather(1, pairs.best[:, None]) - gold.gather(1, pairs.worst[:, None])).squeeze(1)
    counts = (gap.abs() > 1e-9) & ~pairs.wins.isnan()
    return ((gap > 0) == (pairs.wins > 0.5))[counts].float().mean().item()


def refit(head: R2MHead, optimizer: torch.optim.Optimizer, given: Input, pairs: Pairs, steps: int) -> None:
    """Take steps of GREBT on all groups of a pool."""
    loss = grebt(ALPHA)
    for _ in range(steps):
        losses = loss(head_rewards(head, given).unflatten(0, (-1, GROUP)), pairs).loss
        if not (counts := ~losses.isnan()).any():
            return
        losses[counts].mean().backward()
        nn.utils.clip_grad_norm_(head.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def initial_std(head: R2MHead) -> float:
    """Return the standard deviation of Xavier's uniform initialisation, √(2 / (rows + columns)), of W_q."""
    return (2 / sum(head.W_q.shape)) ** 0.5


# ---- measures ----


def pair_accuracy(rewards: Float[Tensor, "G R"], gold: Float[Tensor, "G R"]) -> float:
    """Return the share of pairs within groups ordered as by gold, except gold's ties; tied rewards are wrong."""
    first, second = torch.triu_indices(GROUP, GROUP, 1)
    truth, gaps = gold[:, first] - gold[:, second], rewards[:, first] - rewards[:, second]
    return ((truth * gaps) > 0)[truth.abs() > 1e-9].double().mean().item()


def best_gold(rewards: Float[Tensor, "G R"], gold: Float[Tensor, "G R"]) -> float:
    """Return the mean gold of each group's best completion by the rewards."""
    return gold.gather(1, rewards.argmax(1, keepdim=True)).double().mean().item()


# ---- all arms of a seed ----


@dataclass(frozen=True)
class R2MRefits(Job):
    """All arms refit on the same pools in the same order, each measured on the next checkpoint's pool."""

    drift: R2MDrift
    world: str = GARDEN
    prompts: int = 144
    """Training prompts, of `GROUP` completions each."""
    asked: int = 88
    """Completions of each unseen prompt in a pool of the evaluation; a multiple of `GROUP`."""
    unseen: int = 48
    arms: tuple[Arm, ...] = ARMS
    zero_out: bool = True
    """Whether W_o starts at 0, so that arms order completions as the frozen model does until they have learned."""

    def __str__(self) -> str:
        start = "" if self.zero_out else ", random W_o"
        return f"refits, {self.world}{start}, seed {self.drift.proxy.seed}"

    def work(self, cache: Path) -> Arrays:
        """Return accuracy and best-of-8 gold [A, T] on T next checkpoints, and the accuracy of the labels [A, T]."""
        head = self._head(cache)
        pools = self._pools(cache)
        results = []
        for states in dict.fromkeys(arm.states for arm in self.arms):
            inputs = [
                [read_pool(pool, states, self._seed("noise", index, number)) for number, pool in enumerate(both)]
                for index, both in enumerate(pools)
            ]
            arms = [arm for arm in self.arms if arm.states == states]
            results += [self._run(arm, head(), pools, inputs) for arm in arms]
        return {name: np.array([result[name] for result in results]) for name in (ACCURACY, BEST, LABEL_ACCURACY)}

    def _head(self, cache: Path):
        body, seed = self.drift.proxy.load(cache), self.drift.proxy.seed
        width = body.model.config.hidden_size
        return lambda: R2MHead(linear_head(body), width, width, zero_out=self.zero_out, seed=seed)

    def _pools(self, cache: Path) -> list[tuple[Pool, Pool]]:
        """Return for every checkpoint but the last its pool to learn from, and the next one's to be measured on."""
        policies, body = self.drift.policies(cache), self.drift.proxy.load(cache)
        seen, unseen = split_prompts()
        learnt = [prompt for prompt in seen[: self.prompts] for _ in range(GROUP)]
        measured = [prompt for prompt in unseen[: self.unseen] for _ in range(self.asked)]
        pools = []
        for index, pair in enumerate(pairwise(policies)):
            both = [
                sample_pool(writer, policies[0], body, prompts, seed=self._seed("pool", index, number))
                for number, (writer, prompts) in enumerate(zip(pair, (learnt, measured), strict=True))
            ]
            if self.world == PRIVATE:
                both = [
                    private(pool, share=SHARE, strength=STRENGTH, seed=self._seed("private", index, number))
                    for number, pool in enumerate(both)
                ]
            pools.append((both[0], both[1]))
        return pools

    def _seed(self, use: str, *index: int) -> int:
        """Return a seed of its own for every use, so that no draw repeats the random numbers of another."""
        return int(content_hash([use, self.drift.proxy.seed, *index]), 16)

    def _run(
        self, arm: Arm, head: R2MHead, pools: Sequence[tuple[Pool, Pool]], inputs: Sequence[Sequence[Input]]
    ) -> dict[str, list[float]]:
        rate = MOVEMENT * initial_std(head)
        optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=0.0)
        rows: dict[str, list[float]] = {ACCURACY: [], BEST: [], LABEL_ACCURACY: []}
        for index, ((learnt, measured), (given, asked)) in enumerate(zip(pools, inputs, strict=True)):
            by_group = learnt.gold.unflatten(0, (-1, GROUP))
            with torch.no_grad():
                rewards = head_rewards(head, given).unflatten(0, (-1, GROUP))
            pairs = label_pairs(rewards, by_group, LABELS.get(arm.labels), self._seed("labels", index))
            refit(head, optimizer, given, pairs, SIZES.get(arm.size, 0))
            with torch.no_grad():
                rewards = head_rewards(head, asked).unflatten(0, (-1, GROUP))
            truth = measured.gold.unflatten(0, (-1, GROUP))
            rows[ACCURACY].append(pair_accuracy(rewards, truth))
            rows[BEST].append(best_gold(rewards, truth) / truth.std().item())
            rows[LABEL_ACCURACY].append(label_accuracy(pairs, by_group))
        return rows
