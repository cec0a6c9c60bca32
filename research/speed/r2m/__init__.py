"""Cost of R2M's feedback in a step of policy training.

GRPO with two passes over each batch of completions, which are replayed instead of generated, in three arms. Their
optimizer steps alternate in one process and are measured in CPU-seconds, which the load of other processes hardly
affects. A step comprises everything between two generations: rating, both passes, and the reward model's update.

    scalar   a scalar reward model, which reads no states
    frozen   R2M's control of that name: rates on the states, without updates
    r2m      R2M with its own settings

In all arms the policy scores the completions before the first pass, as the second needs its log-probabilities. No KL is
measured: it would add a forward to each step and so reduce R2M's share. The cost of generation is reported separately.
The RM phase is the time of `learn` plus the additional time of `rate` compared with the scalar model.

Then the bytes that R2M holds and the multiply-adds of its attention, compared with their formulas; and the attention's
time, forward and backward, as it is computed (absorbed) and as it is defined (literal), alternating.
"""

import copy
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PrinterCallback

from ....policy.advantages.grpo import grpo
from ....policy.aggregations.token_mean import token_mean
from ....policy.losses.ppo import ppo
from ....policy.rewards.r2m_controls import CONTROLS, R2MArguments
from ....policy.rewards.r2m_online_updates import OnlineR2M
from ....policy.rewards.sources import RewardSources
from ....policy.step.algorithm import Algorithm
from ....policy.training.arguments import PolicyArguments
from ....policy.training.trainer import PolicyTrainer
from ....rm.kinds.r2m.model import R2MRewardModel
from ....rm.kinds.scalar.model import scalar_from_config
from ...statistics.estimates import t_interval
from .. import policy
from .._scripts import argument_parser, machine, write
from ..decoding import tokenizer
from ..policy import Answers, Turns, generation, ratio, start_in
from .cost import PAPER, Shape, attention, bytes_of, held_bytes, predicted_bytes

ARMS = ("scalar", "frozen", "r2m")
PASSES = 2
WARM = 2  # steps of an arm that are not counted
LIMIT = 0.05
"""Largest acceptable share of the RM phase in a step."""


@dataclass(frozen=True)
class Size(policy.Size):
    """Sizes of models and batches; by default a policy and a reward model of 8 million parameters each."""

    layers: int = 3
    vocabulary: int = 8_000
    rows: int = 16
    """Completions of a step; each pass uses two micro-batches."""
    group: int = 8
    steps: int = 20 + WARM
    """Steps of every arm; the first two are not counted."""
    inner: int = 192
    """d: width of R2M's queries, keys and values."""
    attended: int = 512
    """In the attention benchmark: states of each row, ..."""
    attending: int = 16
    """... rows, ..."""
    width: int = 1024
    """... and width of states and reward tokens; queries are half as wide."""
    pairs: int = 20
    """Rounds of the attention benchmark."""

    @property
    def attention(self) -> Shape:
        """Shape of the attention benchmark."""
        return Shape(self.attending, self.attended, self.width, self.width, self.width // 2)


# ---- arms ----


class TimedMethod:
    """A method that records the CPU-seconds of its calls and the first arguments of the last calls."""

    def __init__(self, run: Callable[..., Any], keep: int | None = None):
        self.run = run
        self.seconds: list[float] = []
        self.given: deque[Any] = deque(maxlen=keep)

    def __call__(self, first: Any, *rest: Any) -> Any:
        """Call the method and record its time."""
        began = time.process_time()
        output = self.run(first, *rest)
        self.seconds.append(time.process_time() - began)
        self.given.append(first)
        return output


class Arm(NamedTuple):
    """A training loop and its reward model, whose calls are timed."""

    source: Any
    loop: Any
    rate: TimedMethod
    learn: TimedMethod | None


def arm(name: str, size: Size, answers: Answers, start: Any, folder: str) -> Arm:
    """Build one of the three arms."""
    given = source(name, size, start)
    rate, learn = TimedMethod(given.rate), None
    given.rate = rate
    if name != "scalar":
        given.learn = learn = TimedMethod(given.learn, keep=1)
    return Arm(given, loop(given, size, answers, start, folder), rate, learn)


def source(name: str, size: Size, start: Any) -> Any:
    """Build an arm's reward source on a random model of the policy's architecture, the same in all arms."""
    body = scalar_from_config(copy.deepcopy(start.config), tokenizer(size.vocabulary))
    if name == "scalar":
        return body
    model = R2MRewardModel.on(body, size.hidden, size.inner)
    return OnlineR2M(model, size.steps, R2MArguments(**CONTROLS.get(name, {})))


def loop(rewards: Any, size: Size, answers: Answers, start: Any, folder: str) -> Any:
    """Build a GRPO trainer that replays the completions."""
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


# ---- time of the loop, and bytes of R2M ----


def overhead(size: Size, folder: str) -> dict[str, Any]:
    """Measure alternating steps of the arms: ratios, the RM phase's share, and the bytes after the last step."""
    answers, start = Answers(size), start_in(folder, size)
    arms = {name: arm(name, size, answers, start, folder) for name in ARMS}
    rounds = Turns({name: trained_arm.loop for name, trained_arm in arms.items()}).run()
    distinct = answers.prompts.select(range(size.rows // size.group))
    prompts = [row["prompt"] for row in distinct for _ in range(size.group)]
    seconds = {
        "step": {name: np.reshape(each, (-1, PASSES)).sum(1)[WARM:].tolist() for name, each in rounds.items()},
        "rate": {name: trained_arm.rate.seconds[WARM:] for name, trained_arm in arms.items()},
        "learn": {name: trained_arm.learn.seconds[WARM:] for name, trained_arm in arms.items() if trained_arm.learn},
        "generation": [generation(prompts, answers, start, size) for _ in range(3)],
    }
    same = all([*arm.rate.given] == [*arms["r2m"].rate.given] for arm in arms.values())
    r2m, step = arms["r2m"], seconds["step"]
    numbers = {"policy": start, "reward model": r2m.source.model.body.model, "head": r2m.source.model.head}
    return {
        "parameters": {name: sum(weights.numel() for weights in model.parameters()) for name, model in numbers.items()},
        "time": {
            "seconds": seconds,
            "ratio": {f"r2m / {name}": ratio(step["r2m"], step[name]) for name in ("scalar", "frozen")},
            "share": shares(seconds),
            "same answers": same,
        },
        "bytes": held(r2m, size),
    }


def shares(seconds: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Compute the mean share of each part in R2M's step, with Student's 95 % interval."""
    step, learn = (np.array(seconds[name]["r2m"]) for name in ("step", "learn"))
    more = np.subtract(seconds["rate"]["r2m"], seconds["rate"]["scalar"])
    parts = {"learn": learn / step, "rate, beyond the scalar model's": more / step, "RM phase": (learn + more) / step}
    parts["RM phase, with generation"] = (learn + more) / (step + np.median(seconds["generation"]))
    return {name: t_interval(share)._asdict() for name, share in parts.items()}


def held(r2m: Arm, size: Size) -> dict[str, Any]:
    """Count R2M's bytes after rating the last step's completions again, and compute them by the formula."""
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


# ---- report ----


@contextmanager
def one_thread() -> Iterator[None]:
    """Run PyTorch on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(size: Size) -> dict[str, Any]:
    """Measure time, bytes and attention on one thread."""
    with one_thread(), TemporaryDirectory() as folder:
        environment = machine("cpu") | {"dtype": "float32"}
        overheads = overhead(size, folder)
        alone = attention(size.attention, size.pairs)
    alone["ratio"] = {"literal / absorbed": ratio(alone["seconds"]["literal"], alone["seconds"]["absorbed"])}
    return {"size": asdict(size), "machine": environment, **overheads, "attention": alone}


def markdown(measurements: Mapping[str, Any]) -> str:
    """Format the tables as Markdown."""
    time_tables, bytes_table = _time_tables(measurements["time"]), _bytes_table(measurements["bytes"])
    return "\n\n".join((time_tables, bytes_table, _attention_table(measurements["attention"])))


def _time_tables(timed: Mapping[str, Any]) -> str:
    seconds, parts = timed["seconds"], ("step", "rate", "learn")
    lines = ["| CPU-seconds, median | " + " | ".join(parts) + " |", "|---" * 4 + "|"]
    for name in ARMS:
        cells = [f"{np.median(seconds[part][name]):.3f}" if name in seconds[part] else "–" for part in parts]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", *_ratio_lines(timed["ratio"])]
    for name, share in timed["share"].items():
        low, high = (f"{100 * share[end]:.2f}" for end in ("low", "high"))
        lines.append(f"{name}: {100 * share['value']:.2f} % of r2m's step [{low}, {high}]")
    within = "within" if timed["share"]["RM phase"]["value"] <= LIMIT else "above"
    lines.append(
        f"which is {within} {100 * LIMIT:.0f} %; generating: {np.median(seconds['generation']):.2f} CPU-seconds"
    )
    return "\n".join(lines)


def _ratio_lines(ratios: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [
        f"{name}: {interval['mean']:.4g} [{interval['low']:.4g}, {interval['high']:.4g}] over {interval['pairs']} pairs"
        for name, interval in ratios.items()
    ]


def _bytes_table(held: Mapping[str, Any]) -> str:
    lines = ["| bytes | counted | formula | at the paper's size |", "|---" * 4 + "|"]
    columns = [held[name] for name in ("counted", "formula", "at the paper's size")]
    for name in columns[0]:
        lines.append(f"| {name} | " + " | ".join(f"{column[name]:,}" for column in columns) + " |")
    lines.append("| together | " + " | ".join(f"{sum(column.values()):,}" for column in columns) + " |")
    return "\n".join([*lines, f"\nlast pass: {held['last pass']:,}"])


def _attention_table(measurements: Mapping[str, Any]) -> str:
    lines = ["| multiply-adds | counted | formula | of an answer at the paper's size |", "|---" * 4 + "|"]
    for name, row in measurements["multiply-adds"].items():
        lines.append(f"| {name} | " + " | ".join(f"{count:,}" for count in row.values()) + " |")
    gaps = measurements["difference"]
    most = max(difference["relative"] for name, difference in gaps.items() if name != "output")
    lines += ["", f"largest difference: output {gaps['output']['relative']:.1e}, gradients {most:.1e} of the largest"]
    return "\n".join([*lines, *_ratio_lines(measurements["ratio"])])


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> None:
    """Measure and print."""
    options = argument_parser(__doc__).parse_args(arguments)
    warnings.filterwarnings("ignore")
    measurements = measure(size or Size())
    write(measurements, options.output)
    print(markdown(measurements))
