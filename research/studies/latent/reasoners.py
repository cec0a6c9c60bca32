"""Reward models that reason in hidden space, in text or not at all: their training, accuracy and time per response."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from ....benchmarks.garden.models import causal_lm, tokenizer
from ....rm.backbones.logprobs import head_logits
from ....rm.backbones.tokenization import Batch, pad
from ....rm.kinds.latent.model import DEPTH_HEAD as DEPTH_MODULE
from ....rm.kinds.latent.model import HEAD, Depth, LatentRewardModel, LatentScores, latent_from_config
from ....rm.kinds.latent.steps import LatentSteps, states_after
from ....rm.kinds.latent.training import LatentRow, LatentTask, encode_latent
from ....rm.types import OVERALL, PreferencePair
from ....tests.stand_ins.small_training import Fit, fit
from .._runs.job_cache import Arrays, Job
from .pairs import RATIONALE, VOCABULARY, draw_pairs, shuffled

ACCURACY, STEPS, SECONDS, UPDATES = "accuracy", "steps", "cpu", "updates"
MILLISECONDS = "milliseconds"
"""Arrays of a job: accuracy on unseen pairs, mean latent steps, and CPU-seconds and optimizer steps of the training."""
WEIGHT = "weight "
"""Prefix of the names of weights among the arrays of a job."""
BATCH = 32


@dataclass(frozen=True)
class Arm:
    """How a reward model of a seed is trained, and how it scores."""

    latent_steps: int = RATIONALE
    latent_depth: Depth = "fixed"
    alignment: float = 1.0
    rationale_weight: float = 1.0
    share: float = 1.0
    """Optimizer steps, relative to those of the other arms."""
    shuffled: bool = False
    """Whether rationales are those of other pairs."""
    writes: bool = False
    """Whether it writes the rationale before it scores, instead of latent steps."""
    start: str = ""
    """Arm whose trained weights it starts from; empty: random weights."""
    equal_depths: bool = False
    """Whether all depths are equally likely at first under the depth head, and not mostly the largest number."""
    learning_rate: float = 5e-3


NO_STEPS, LONGER, NO_RATIONALE = "no steps", "no steps, longer", "no steps, no rationale"
ALIGNED, UNALIGNED, SHUFFLED = "aligned", "unaligned", "shuffled rationales"
TRAINED_ON, DEPTH_HEAD, FROM_ALL = "aligned, trained on", "depth head", "depth head, from all steps"
WRITER = "writer"
ARMS: Mapping[str, Arm] = {
    NO_STEPS: Arm(latent_steps=0),
    LONGER: Arm(latent_steps=0, share=1.5),
    NO_RATIONALE: Arm(latent_steps=0, rationale_weight=0.0),
    ALIGNED: Arm(),
    UNALIGNED: Arm(alignment=0.0),
    SHUFFLED: Arm(shuffled=True),
    TRAINED_ON: Arm(share=0.375, start=ALIGNED),
    DEPTH_HEAD: Arm(latent_depth="head", share=0.375, start=ALIGNED, equal_depths=True),
    FROM_ALL: Arm(latent_depth="head", share=0.375, start=ALIGNED, learning_rate=5e-4),
    WRITER: Arm(writes=True),
}


# ---- a model that writes ----


class WrittenSteps(LatentSteps):
    """h_t = f(x, y_1, ..., y_t)_{L+t},   y_t = argmax_v p_v(h_{t-1})

    Greedy decoding: as latent steps, but the next input is the embedding of the token that the LM head reads from the
    state, and not the state itself.
    """

    def __init__(self, model: Any, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]):
        self.model = model
        super().__init__(model, tokens, attention)

    def advance(self) -> Float[Tensor, "N D"]:
        """Write one token and return the state behind it."""
        self.state = self.model.get_input_embeddings()(head_logits(self.model, self.state).argmax(dim=-1))
        return super().advance()


class Writer(LatentRewardModel):
    """A reward model that writes as many tokens as its contract has steps, and scores the state behind the last one."""

    def scores(self, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]) -> LatentScores:
        """Return rewards and numbers of written tokens of tokenised sequences, padded on either side."""
        run = WrittenSteps(self.language_model, tokens, attention)
        written = self.depths(run.state)
        return LatentScores(self.language_model.get_submodule(HEAD)(states_after(run, written)), written)


class WriterTask(LatentTask):
    """L = L_BT(r) + μ L_rationale, in nats; r is the score behind the conversation and its given rationale"""

    def collate(self, rows: Sequence[LatentRow]) -> dict[str, Tensor]:
        """Collate rows into sequences that end with their rationales."""
        batch = super().collate(rows)
        return batch | {"tokens": batch["read_tokens"], "attention": batch["read_attention"]}


# ---- training ----


@dataclass(frozen=True)
class Reasoner(Job):
    """A reward model of one arm, trained on pairs and measured on pairs of other problems.

    All arms of a seed have the same pairs, backbone and random weights, unless they start from a trained arm.
    """

    seed: int
    arm: Arm
    start: "Reasoner | None"
    pairs: int
    updates: int
    """Number of optimizer steps of an arm whose share is 1."""
    tested: int
    """Number of pairs on which it is measured."""

    def __str__(self) -> str:
        """Return the label in progress messages."""
        return f"{next(name for name, arm in ARMS.items() if arm == self.arm)}, seed {self.seed}"

    def work(self, cache: Path) -> Arrays:
        """Train and measure; return the weights too."""
        model, (train, test) = self.untrained(), draw_pairs(self.pairs, self.tested, self.seed)
        if self.start is not None:
            put_weights(model, self.start.result(cache))
        rows = encode_latent(model.encoder, shuffled(train, self.seed) if self.arm.shuffled else train, OVERALL)[0].rows
        updates, before = round(self.updates * self.arm.share), time.process_time()
        fit(model, self.task(model), rows, Fit(updates, self.arm.learning_rate, BATCH, self.seed))
        figures = {SECONDS: time.process_time() - before, UPDATES: updates} | measure(model, test)
        weights = {f"{WEIGHT}{name}": weight.numpy() for name, weight in model.model.state_dict().items()}
        return weights | {name: np.array(figure) for name, figure in figures.items()}

    def untrained(self) -> LatentRewardModel:
        """Return the arm's model of about 100,000 random weights."""
        words = tokenizer(VOCABULARY)
        how = {"latent_steps": self.arm.latent_steps, "latent_depth": self.arm.latent_depth}
        model = latent_from_config(causal_lm(words).config, words, seed=self.seed, **how)
        if self.arm.equal_depths:
            nn.init.zeros_(model.language_model.get_submodule(DEPTH_MODULE).bias)
        return Writer(model.model, model.encoder) if self.arm.writes else model

    def task(self, model: LatentRewardModel) -> LatentTask:
        """Return the arm's loss; a writer takes no latent steps in training, where the rationale is given."""
        weights = {"alignment": self.arm.alignment, "rationale_weight": self.arm.rationale_weight}
        if self.arm.writes:
            return WriterTask(model.with_steps(0), seed=self.seed, **weights)
        return LatentTask(model, seed=self.seed, **weights)

    def load(self, cache: Path) -> LatentRewardModel:
        """Return the trained model."""
        model = self.untrained()
        put_weights(model, self.result(cache))
        model.model.eval()
        return model


def put_weights(model: LatentRewardModel, arrays: Arrays) -> None:
    """Give a model the weights of a trained one; a head that the trained one lacks stays as it is."""
    stored = {name.removeprefix(WEIGHT): torch.from_numpy(value) for name, value in arrays.items() if WEIGHT in name}
    model.model.load_state_dict(model.model.state_dict() | stored)


def measure(model: LatentRewardModel, pairs: Sequence[PreferencePair]) -> dict[str, float]:
    """Return the share of pairs whose chosen completion has the higher reward, and the mean number of steps."""
    rewards, steps = model.rate_with_steps([example for pair in pairs for example in pair.examples])
    chosen, rejected = rewards.reshape(-1, 2).T
    return {ACCURACY: float((chosen > rejected).mean()), STEPS: float(steps.mean())}


# ---- time ----


@dataclass(frozen=True)
class Timing(Job):
    """Milliseconds of CPU time per response of all arms of a seed, in turn, on one thread, at one batch."""

    reasoners: tuple[Reasoner, ...]
    responses: int = 64
    repeats: int = 25

    def __str__(self) -> str:
        """Return the label in progress messages."""
        return f"timing of {len(self.reasoners)} arms, seed {self.reasoners[0].seed}"

    def work(self, cache: Path) -> Arrays:
        """Return the median over repeats of every arm [A], in the order of the reasoners."""
        first = self.reasoners[0]
        pairs = draw_pairs(first.pairs, first.tested, first.seed)[1][: self.responses // 2]
        models = [reasoner.load(cache) for reasoner in self.reasoners]
        encoded = models[0].encoder.encode_all([example for pair in pairs for example in pair.examples])
        batch = pad([some.ids for some in encoded])
        rounds = [[seconds(model, batch) for model in models] for _ in range(self.repeats + 1)]
        return {MILLISECONDS: 1000 * np.median(rounds[1:], axis=0) / len(encoded)}  # the first round warms up


def seconds(model: LatentRewardModel, batch: Batch) -> float:
    """Return the CPU-seconds in which a batch is scored."""
    before = time.process_time()
    with torch.inference_mode():
        model.scores(*batch)
    return time.process_time() - before
