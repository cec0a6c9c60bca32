"""What R2M's feedback costs a step of policy training: `rewardlab bench feedback`.

GRPO with two passes over each batch of answers, which are replayed instead of generated, in three arms. Their optimizer
steps alternate in one process and are told in CPU-seconds, so that the load of other processes falls on none of them. A
step is here everything between two generations: rating, both passes, and what the reward model learns.

    scalar   a scalar reward model, which reads no states
    frozen   R2M's control of that name: rated on the states, but nothing learns
    r2m      R2M with its own settings

The policy reads the answers before the first pass in all of them, as the second needs its log-probabilities. No KL is
measured: that would be one forward more of each step, and R2M a smaller share of it. What generating the answers costs
is told apart. The RM phase is what `learn` takes and what `rate` takes more than the scalar model's.

Then, beside their formulas, the bytes that R2M holds and the multiply-adds of its attention; and the attention's time,
forward and backward, as it is computed (absorbed) and as it is defined (literal), in turns.
"""

import argparse
import copy
import json
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PrinterCallback

from ....policy.advantages.grpo import grpo
from ....policy.aggregations.token_mean import token_mean
from ....policy.composition.algorithm import Algorithm
from ....policy.losses.ppo import ppo
from ....policy.rewards.r2m import OnlineFeedback
from ....policy.rewards.r2m_controls import CONTROLS, FeedbackArguments
from ....policy.rewards.sources import RewardSources
from ....policy.training.arguments import PolicyArguments
from ....policy.training.trainer import PolicyTrainer
from ....rm.models.r2m import FeedbackRewardModel
from ....rm.models.scalar import scalar_from_config
from ...statistics.cluster_bootstrap import t_interval
from .. import policy
from ..decoding import machine, tokenizer
from ..policy import Answers, Turns, generation, ratio, start_in
from .cost import PAPER, Shape, attention, bytes_of, held_bytes, predicted_bytes

ARMS = ("scalar", "frozen", "r2m")
PASSES = 2
WARM = 2  # steps of an arm that are not counted
LIMIT = 0.05
"""What the RM phase may be of a step."""


@dataclass(frozen=True)
class Size(policy.Size):
    """What is measured; by default a policy and a reward model of 8 million parameters each."""

    layers: int = 3
    vocabulary: int = 8_000
    rows: int = 16
    """Answers of a step; each pass takes them in two micro-batches."""
    group: int = 8
    steps: int = 20 + WARM
    """Of every arm; the first two are not counted."""
    inner: int = 192
    """d: width of R2M's queries, keys and values."""
    attended: int = 512
    """Of the attention alone: states of each row, ..."""
    attending: int = 16
    """... rows, ..."""
    width: int = 1024
    """... and how wide states and reward tokens are; queries are half as wide."""
    pairs: int = 20
    """Of its turns."""

    @property
    def attention(self) -> Shape:
        """Of the attention alone."""
        return Shape(self.attending, self.attended, self.width, self.width, self.width // 2)


# ---- the arms ----


class Watched:
    """A method that remembers what its calls took, in CPU-seconds, and what the last of them were given."""

    def __init__(self, run: Callable[..., Any], keep: int | None = None):
        self.run = run
        self.seconds: list[float] = []
        self.given: deque[Any] = deque(maxlen=keep)

    def __call__(self, first: Any, *rest: Any) -> Any:
        """The method."""
        began = time.process_time()
        found = self.run(first, *rest)
        self.seconds.append(time.process_time() - began)
        self.given.append(first)
        return found


class Arm(NamedTuple):
    """A training loop and its reward model, whose calls are watched."""

    source: Any
    loop: Any
    rate: Watched
    learn: Watched | None


def arm(name: str, size: Size, answers: Answers, start: Any, folder: str) -> Arm:
    """One of the three, ready to train."""
    given = source(name, size, start)
    rate, learn = Watched(given.rate), None
    given.rate = rate
    if name != "scalar":
        given.learn = learn = Watched(given.learn, keep=1)
    return Arm(given, loop(given, size, answers, start, folder), rate, learn)


def source(name: str, size: Size, start: Any) -> Any:
    """An arm's rewards; the reward model has the policy's architecture and random weights, the same in all arms."""
    body = scalar_from_config(copy.deepcopy(start.config), tokenizer(size.vocabulary))
    if name == "scalar":
        return body
    model = FeedbackRewardModel.on(body, size.hidden, size.inner)
    return OnlineFeedback(model, size.steps, FeedbackArguments(**CONTROLS.get(name, {})))


def loop(rewards: Any, size: Size, answers: Answers, start: Any, folder: str) -> Any:
    """GRPO on the answers."""
    arguments = PolicyArguments(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        max_steps=PASSES * size.steps,
        num_iterations=PASSES,
        num_generations=size.group,
        per_device_train_batch_size=size.rows // 2,
        gradient_accumulation_steps=2,
        max_completion_length=size.answer,
        gradient_checkpointing=False,
        measure_kl=False,
        save_strategy="no",
        disable_tqdm=True,
    )
    sources, algorithm = RewardSources({"reward": rewards}), Algorithm(grpo(), ppo(), token_mean())
    made: Any = PolicyTrainer(
        copy.deepcopy(start), sources, algorithm, arguments, answers.prompts, tokenizer=answers.words
    )
    made._generate = answers
    made.remove_callback(PrinterCallback)
    return made


# ---- the loop's time, and what R2M holds ----


def overhead(size: Size, folder: str) -> dict[str, Any]:
    """Steps of the arms in turns: their ratios, the RM phase's share, and the bytes behind the last step."""
    answers, start = Answers(size), start_in(folder, size)
    arms = {name: arm(name, size, answers, start, folder) for name in ARMS}
    rounds = Turns({name: one.loop for name, one in arms.items()}).run()
    asked = [row["prompt"] for row in answers.prompts.select(range(size.rows // size.group)) for _ in range(size.group)]
    seconds = {
        "step": {name: np.reshape(each, (-1, PASSES)).sum(1)[WARM:].tolist() for name, each in rounds.items()},
        "rate": {name: one.rate.seconds[WARM:] for name, one in arms.items()},
        "learn": {name: one.learn.seconds[WARM:] for name, one in arms.items() if one.learn},
        "generation": [generation(asked, answers, start, size) for _ in range(3)],
    }
    same = all([*arm.rate.given] == [*arms["r2m"].rate.given] for arm in arms.values())
    r2m, step = arms["r2m"], seconds["step"]
    numbers = {"policy": start, "reward model": r2m.source.model.body.model, "head": r2m.source.model.head}
    return {
        "parameters": {name: sum(one.numel() for one in model.parameters()) for name, model in numbers.items()},
        "time": {
            "seconds": seconds,
            "ratio": {f"r2m / {name}": ratio(step["r2m"], step[name]) for name in ("scalar", "frozen")},
            "share": shares(seconds),
            "same answers": same,
        },
        "bytes": held(r2m, size),
    }


def shares(seconds: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Parts of R2M's step: their mean share of it over the steps, with Student's 95 % interval."""
    step, learn = (np.array(seconds[name]["r2m"]) for name in ("step", "learn"))
    more = np.subtract(seconds["rate"]["r2m"], seconds["rate"]["scalar"])
    parts = {"learn": learn / step, "rate, beyond the scalar model's": more / step, "RM phase": (learn + more) / step}
    parts["RM phase, with generation"] = (learn + more) / (step + np.median(seconds["generation"]))
    return {name: t_interval(one)._asdict() for name, one in parts.items()}


def held(r2m: Arm, size: Size) -> dict[str, Any]:
    """Bytes of R2M with the last step's answers rated once more, beside the formula."""
    assert r2m.learn is not None
    cycle = r2m.learn.given[-1]
    r2m.source.rate(cycle.examples, cycle.states)
    shape = Shape(len(cycle.examples), len(cycle.states[0]) + 1, size.hidden, size.hidden, size.inner)
    return {
        "shape": shape._asdict(),
        "counted": held_bytes(r2m.source, cycle),
        "formula": predicted_bytes(shape),
        "last pass": bytes_of(cycle.states),
        "at the paper's size": predicted_bytes(PAPER),
    }


# ---- telling ----


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(size: Size) -> dict[str, Any]:
    """Everything, on one thread."""
    with one_thread(), TemporaryDirectory() as folder:
        place = machine("cpu") | {"dtype": "float32"}
        found = overhead(size, folder)
        alone = attention(size.attention, size.pairs)
    alone["ratio"] = {"literal / absorbed": ratio(alone["seconds"]["literal"], alone["seconds"]["absorbed"])}
    return {"size": asdict(size), "machine": place, **found, "attention": alone}


def markdown(found: Mapping[str, Any]) -> str:
    """The tables."""
    return "\n\n".join((_told_time(found["time"]), _told_bytes(found["bytes"]), _told_attention(found["attention"])))


def _told_time(timed: Mapping[str, Any]) -> str:
    seconds, parts = timed["seconds"], ("step", "rate", "learn")
    lines = ["| CPU-seconds, median | " + " | ".join(parts) + " |", "|---" * 4 + "|"]
    for name in ARMS:
        cells = [f"{np.median(seconds[part][name]):.3f}" if name in seconds[part] else "–" for part in parts]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", *_told_ratios(timed["ratio"])]
    for name, one in timed["share"].items():
        low, high = (f"{100 * one[end]:.2f}" for end in ("low", "high"))
        lines.append(f"{name}: {100 * one['value']:.2f} % of r2m's step [{low}, {high}]")
    within = "within" if timed["share"]["RM phase"]["value"] <= LIMIT else "above"
    lines.append(
        f"which is {within} {100 * LIMIT:.0f} %; generating: {np.median(seconds['generation']):.2f} CPU-seconds"
    )
    return "\n".join(lines)


def _told_ratios(ratios: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [
        f"{name}: {one['mean']:.4g} [{one['low']:.4g}, {one['high']:.4g}] over {one['pairs']} pairs"
        for name, one in ratios.items()
    ]


def _told_bytes(held: Mapping[str, Any]) -> str:
    lines = ["| bytes | counted | formula | at the paper's size |", "|---" * 4 + "|"]
    columns = [held[name] for name in ("counted", "formula", "at the paper's size")]
    for name in columns[0]:
        lines.append(f"| {name} | " + " | ".join(f"{column[name]:,}" for column in columns) + " |")
    lines.append("| together | " + " | ".join(f"{sum(column.values()):,}" for column in columns) + " |")
    return "\n".join([*lines, f"\nlast pass: {held['last pass']:,}"])


def _told_attention(found: Mapping[str, Any]) -> str:
    lines = ["| multiply-adds | counted | formula | of an answer at the paper's size |", "|---" * 4 + "|"]
    for name, row in found["multiply-adds"].items():
        lines.append(f"| {name} | " + " | ".join(f"{one:,}" for one in row.values()) + " |")
    gaps = found["difference"]
    most = max(one["relative"] for name, one in gaps.items() if name != "output")
    lines += ["", f"largest difference: output {gaps['output']['relative']:.1e}, gradients {most:.1e} of the largest"]
    return "\n".join([*lines, *_told_ratios(found["ratio"])])


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    found = measure(size or Size())
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(markdown(found))


if __name__ == "__main__":
    main()
