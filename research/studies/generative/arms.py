"""Arms of the study: the generative judge before and after its stages, what does the same work, and other judges."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from ....benchmarks.garden.models import causal_lm, tokenizer
from ....judges.backends.chat import Ask, Chat
from ....judges.backends.local_model import chat_from_model
from ....judges.backends.scripted import scripted
from ....judges.cdrrm.generator import Record
from ....judges.cdrrm.requests import read_part
from ....judges.kinds._comparison import orders_of
from ....judges.kinds.generative.rewards import PROMPTS, VerdictRewards, labelled_prompts, verdict_row
from ....judges.kinds.generative.traces import Traces, select_traces
from ....judges.kinds.rubric import rubric
from ....judges.prompts import Sampling
from ....judges.rubrics.rubric import Rubric, Rule
from ....judges.types import Case
from ....rm.backbones.tokenization import Encoder, describe_tokenizer
from ....rm.contract.scoring_contract import ScoringContract
from ....rm.data.conversation_split import as_prompt
from ....rm.kinds.scalar.model import scalar_from_config
from ....rm.kinds.scalar.training import ScalarTask, encode_pairs
from ....rm.losses.bradley_terry import bradley_terry
from ....rm.types import OVERALL, Example, prompt_text
from ....tests.stand_ins.small_training import Fit, fit
from ...worlds.small_policies import Completions, PolicyLoop, clipped, train_policy
from ...worlds.small_policies.supervised import SupervisedLoop, rows_of_examples, train_supervised
from .._runs.job_cache import Arrays, Job
from .demands import PROMPT, REPLY, VOCABULARY, Teacher, demands_of, draw_pairs, marks_of, preference
from .measures import measure, verdicts_of_scores

TRACED, CURVE = "traced", "curve"
"""Number of pairs with traces, and the mean reward of every cycle of policy training."""
BEFORE, SFT, RL, MISSING, RANDOM, MORE_SFT, OWN_REPLIES, SCALAR, RUBRIC = (
    "before SFT",
    "SFT",
    "SFT, then RL",
    "SFT, then RL, missing rewards",
    "SFT, then RL on random labels",
    "SFT, then more of it",
    "SFT, then SFT on own replies",
    "scalar",
    "rubric on SFT's evidence",
)
BATCH, GROUP, ROWS = 32, 8, 16
"""Replies of a supervised step, completions of a pair and pairs of a cycle of policy training."""
SFT_RATE, MORE_RATE, RL_RATE, SCALAR_RATE = 4e-3, 1e-3, 2e-4, 2e-3
"""Learning rates of the first stage, of further supervised training, of policy training and of the scalar model."""
READ_AT_ONCE = 512


@cache
def encoder() -> Encoder:
    """Return the encoder of the study's judges."""
    words = tokenizer(VOCABULARY)
    return Encoder(words, ScoringContract(kind="policy", **describe_tokenizer(words)))


def untrained(seed: int) -> Any:
    """Return a language model of about 100,000 random weights."""
    return causal_lm(encoder().tokenizer, seed=seed)


def chat_of(model: Any) -> Chat:
    """Return the model as a chat."""
    return chat_from_model(model, encoder().tokenizer, batch_size=READ_AT_ONCE)


def supervise(model: Any, records: Sequence[Record], steps: int, learning_rate: float, seed: int) -> None:
    """Train the model in place on the replies of conversations."""
    examples = [Example(as_prompt(record["prompt"]), record["completion"][0]["content"]) for record in records]
    loop = SupervisedLoop(steps, BATCH, learning_rate)
    train_supervised(model, rows_of_examples(examples, encoder()), loop, seed=seed)
    model.eval()


@dataclass(frozen=True)
class Supervised(Job):
    """A judge after the first stage, from which the other arms of a seed start."""

    seed: int
    pairs: int
    """Number of labelled pairs."""
    steps: int

    def work(self, cache: Path) -> Arrays:
        """Train on the teacher's traces; return the weights by name and the number of pairs kept."""
        model, traces = untrained(self.seed), self.traces()
        supervise(model, traces.records, self.steps, SFT_RATE, self.seed)
        return {name: weight.numpy() for name, weight in model.state_dict().items()} | {
            TRACED: np.array(len(traces.ids))
        }

    def traces(self) -> Traces:
        """Return the teacher's traces."""
        return select_traces(scripted(Teacher(self.seed), "teacher"), self.labelled, PROMPT)

    @property
    def labelled(self) -> list[Case]:
        """The labelled pairs, which all arms train on."""
        return draw_pairs(self.pairs, self.seed, "train")

    def load(self, cache: Path) -> Any:
        """Return the trained model."""
        model, arrays = untrained(self.seed), self.result(cache)
        model.load_state_dict({name: torch.from_numpy(arrays[name]) for name in model.state_dict()})
        return model.eval()


@dataclass(frozen=True)
class Arm(Job):
    """A judge, measured on unseen pairs."""

    arm: str
    start: Supervised
    cycles: int
    """Batches of completions of policy training, of 16 pairs with 4 completions in each order."""
    more_steps: int
    """Steps of further supervised training."""
    scalar_steps: int
    tested: int
    """Number of unseen pairs, each judged in both orders."""

    @property
    def unseen(self) -> list[Case]:
        """The unseen pairs."""
        return draw_pairs(self.tested, self.start.seed, "test")

    def work(self, cache: Path) -> Arrays:
        """Train and measure."""
        return ARMS[self.arm](self, cache)


# ---- policy training ----


class VerdictReward:
    """The verdict reward as `train_policy` asks for it; `prompts` are the requests of every pair in both orders."""

    def __init__(self, pairs: Sequence[Case], no_verdict: float = 0.0):
        rows = [verdict_row(pair, PROMPT) for pair in pairs]
        requests = [[as_prompt(prompt) for prompt in (row["prompt"], *row[PROMPTS])] for row in rows]
        self.prompts = [prompt for of_pair in requests for prompt in of_pair]
        labelled = [labelled_prompts(*of_pair) for of_pair in zip(requests, rows, strict=True)]
        self.source = VerdictRewards(labelled, no_verdict=no_verdict)
        self.row_of = {prompt_text(prompt): row for row, of_pair in enumerate(requests) for prompt in of_pair}

    def __call__(self, completions: Completions) -> np.ndarray:
        """Return the rewards; NaN is missing."""
        rows = [self.row_of[prompt_text(example.prompt)] for example in completions.examples]
        return np.array(self.source(completions.examples, rows, completions.finished.tolist()))


def reinforce(model: Any, reward: VerdictReward, cycles: int, seed: int) -> np.ndarray:
    """Train the judge in place by GRPO on the verdict reward; return the mean reward of every cycle."""
    loop = PolicyLoop(cycles, prompts=ROWS, group=GROUP, variants=2, learning_rate=RL_RATE, longest=REPLY)
    reports = train_policy(model, reward, clipped(), loop, reward.prompts, seed=seed, encoder=encoder())
    curve = [report.metrics["reward"] for report in reports if report.scored]
    model.eval()
    return np.array(curve)


def with_random_labels(pairs: Sequence[Case], seed: int) -> list[Case]:
    """Return the pairs with the better response by a coin, the same in both orders."""
    random = Random(f"labels {seed}")
    return [replace(pair, best=(random.randrange(2),)) for pair in pairs]


def _before(job: Arm, cache: Path) -> Arrays:
    return measure(chat_of(untrained(job.start.seed)), job.unseen)


def _sft(job: Arm, cache: Path) -> Arrays:
    return measure(chat_of(job.start.load(cache)), job.unseen) | {TRACED: np.array(len(job.start.traces().ids))}


def _rl(job: Arm, cache: Path) -> Arrays:
    return _reinforced(job, cache, VerdictReward(job.start.labelled))


def _missing(job: Arm, cache: Path) -> Arrays:
    return _reinforced(job, cache, VerdictReward(job.start.labelled, no_verdict=math.nan))


def _random(job: Arm, cache: Path) -> Arrays:
    return _reinforced(job, cache, VerdictReward(with_random_labels(job.start.labelled, job.start.seed)))


def _reinforced(job: Arm, cache: Path, reward: VerdictReward) -> Arrays:
    model = job.start.load(cache)
    curve = reinforce(model, reward, job.cycles, job.start.seed)
    return measure(chat_of(model), job.unseen) | {CURVE: curve}


def _more_sft(job: Arm, cache: Path) -> Arrays:
    model, traces = job.start.load(cache), job.start.traces()
    supervise(model, traces.records, job.more_steps, MORE_RATE, job.start.seed + 1)
    return measure(chat_of(model), job.unseen) | {TRACED: np.array(len(traces.ids))}


def _own_replies(job: Arm, cache: Path) -> Arrays:
    """Sample replies to all labelled pairs, and train on those that are right in both orders."""
    model, seed = job.start.load(cache), job.start.seed
    sampled = PROMPT._replace(sampling=Sampling(REPLY, 1.0, seed))
    traces = select_traces(chat_of(model), job.start.labelled, sampled)
    if traces.records:  # an untrained judge, as in a dry run, has none
        supervise(model, traces.records, job.more_steps, MORE_RATE, seed + 1)
    return measure(chat_of(model), job.unseen) | {TRACED: np.array(len(traces.ids))}


# ---- other judges ----


def _scalar(job: Arm, cache: Path) -> Arrays:
    """Train a Bradley-Terry model of the same size, from random weights, on the labelled pairs."""
    seed, words = job.start.seed, encoder().tokenizer
    model = scalar_from_config(untrained(seed).config, words, seed=seed)
    rows = encode_pairs(model.encoder, [preference(pair) for pair in job.start.labelled], OVERALL).rows
    fit(model, ScalarTask(bradley_terry()), rows, Fit(job.scalar_steps, SCALAR_RATE, BATCH, seed))
    answers = [Example(pair.prompt, answer) for pair in job.unseen for answer in pair.answers]
    return verdicts_of_scores(model.rate(answers).reshape(-1, 2))


def _rubric(job: Arm, cache: Path) -> Arrays:
    """Judge by the rubric of the prompt's demands, on the marks that the judge after SFT writes in one order."""
    pairs = job.unseen
    asks = [PROMPT.ask(pair, orders_of(pair)[0]) for pair in pairs]
    replies = chat_of(job.start.load(cache)).ask(asks)
    judge = rubric(marks_as_chat(pairs, [reply.text for reply in replies]), lambda cases: [*map(rubric_of, cases)])
    return verdicts_of_scores(np.array([judgment.scores or (np.nan, np.nan) for judgment in judge(pairs)]))


def rubric_of(pair: Case) -> Rubric:
    """Return the prompt's demands as rules."""
    return Rubric(
        tuple(Rule(name, "must", f"The response names a {name}.", "Search for one.") for name in demands_of(pair))
    )


def marks_as_chat(pairs: Sequence[Case], replies: Sequence[str]) -> Chat:
    """Return a chat that answers a rubric's requests with the marks of earlier replies, in the pairs' first order."""
    known: dict[tuple[str, str], str] = {}
    for pair, reply in zip(pairs, replies, strict=True):
        demands = demands_of(pair)
        for index, marks in zip(orders_of(pair)[0], marks_of(reply, demands) or (), strict=False):
            text = json.dumps({name: "yes" if mark else "no" for name, mark in zip(demands, marks, strict=True)})
            known[prompt_text(pair.prompt), pair.texts[index]] = text

    def answer(ask: Ask) -> str:
        text = str(ask.messages[-1]["content"])
        return known.get((read_part(text, "instruction") or "", read_part(text, "answer") or ""), "no marks")

    return scripted(answer, "marks of the judge after SFT")


ARMS: Mapping[str, Callable[[Arm, Path], Arrays]] = {
    BEFORE: _before,
    SFT: _sft,
    RL: _rl,
    MISSING: _missing,
    RANDOM: _random,
    MORE_SFT: _more_sft,
    OWN_REPLIES: _own_replies,
    SCALAR: _scalar,
    RUBRIC: _rubric,
}
