"""Time and memory of a policy optimizer step, compared with TRL's GRPOTrainer.

Both trainers run GRPO with a KL to a frozen copy in the loss, on the same completions, which are replayed instead of
generated. Their steps alternate in one process and are measured in CPU-seconds, which the load of other processes
hardly affects; the cost of generating the completions is reported separately. Memory is that of a step after the
optimizer's first, each trainer in a separate process:

    ours    policy/training/trainer.py
    trl     TRL's trainer with its fused output head
    eager   TRL's trainer with all logits at once
"""

import copy
import json
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PrinterCallback, TrainerCallback

from ...policy.advantages.grpo import grpo
from ...policy.aggregations.token_mean import token_mean
from ...policy.losses.ppo import ppo
from ...policy.rewards.sources import RewardSources
from ...policy.step.algorithm import Algorithm, Penalty
from ..statistics.estimates import t_interval
from ._memory import peak_of
from ._scripts import argument_parser, in_fresh_process, machine, write
from .decoding import backbone, tokenizer

BETA = 0.04
GROUP = 4


@dataclass(frozen=True)
class Size:
    """Sizes of the policy and of the batch."""

    layers: int = 4
    hidden: int = 384
    vocabulary: int = 32_000
    rows: int = 16
    """Completions of a step, in two micro-batches."""
    prompt: int = 24
    answer: int = 64
    steps: int = 24
    """Pairs of steps; the first two are not counted."""


def eager_trainer() -> type:
    """Return TRL's trainer with the logits of all completions at once, the straightforward implementation."""
    from trl import GRPOTrainer  # imported late, as in `trainer`: the module can be read where TRL is missing
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    class Eager(GRPOTrainer):
        def _get_per_token_logps_and_entropies(
            self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, **_
        ):
            # Overrides TRL's method, which chunks the output head and so never holds all logits. The return value is
            # TRL's: log-probabilities, entropies, and a third value that only mixture-of-experts models need.
            parts = []
            for ids, mask in zip(
                *(tensor.split(batch_size or len(input_ids)) for tensor in (input_ids, attention_mask)), strict=True
            ):
                logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=logits_to_keep + 1).logits[:, :-1]
                logits = logits / self.temperature
                with torch.no_grad():
                    entropy = entropy_from_logits(logits)
                parts.append((selective_log_softmax(logits, ids[:, -logits_to_keep:]), entropy))
            logp, entropies = (torch.cat(column) for column in zip(*parts, strict=True))
            return logp, entropies, None

    return Eager


# ---- trainers ----


class Answers:
    """Fixed prompts and completions of equal length, replayed in place of generation."""

    def __init__(self, size: Size):
        from datasets import Dataset

        draw = np.random.default_rng(0)
        self.words = tokenizer(size.vocabulary)
        lines = [" ".join(f"w{word}" for word in row) for row in draw.integers(9000, size=(64, size.prompt))]
        self.prompts = Dataset.from_list([{"prompt": [{"role": "user", "content": line}]} for line in lines])
        self.completion_ids = draw.integers(10, size.vocabulary, (size.rows, size.answer)).tolist()

    def __call__(self, prompts: Sequence[Any]) -> tuple[Any, ...]:
        """Return the completions in the format of TRL's `_generate`."""
        ids = self.words.apply_chat_template(list(prompts), add_generation_prompt=True, return_dict=False)
        texts = [[{"role": "assistant", "content": self.words.decode(ids)}] for ids in self.completion_ids]
        return ids, self.completion_ids, None, texts, None, {}, None, []


def parity(text: str) -> float:
    """Return a cheap reward that differs between completions."""
    return sum(map(ord, text)) % 17 / 17


def trainer(name: str, size: Size, answers: Answers, start: Any, folder: str) -> Any:
    """Build one of the three trainers."""
    from trl import GRPOConfig, GRPOTrainer

    from ...policy.training.arguments import PolicyArguments
    from ...policy.training.trainer import PolicyTrainer

    shared = {
        "output_dir": folder, "use_cpu": not torch.cuda.is_available(), "bf16": False, "max_steps": size.steps,
        "per_device_train_batch_size": size.rows // 2, "gradient_accumulation_steps": 2, "num_generations": GROUP,
        "max_completion_length": size.answer, "learning_rate": 1e-5, "gradient_checkpointing": False,
        "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1, "report_to": "none", "disable_dropout": True,
    }  # fmt: skip
    if name == "ours":
        algorithm = Algorithm(grpo(), ppo(), token_mean(), penalty=Penalty(BETA, corrected=False))
        sources = RewardSources({"parity": lambda examples: [parity(example.text) for example in examples]})
        policy_trainer: Any = PolicyTrainer(
            copy.deepcopy(start),
            sources,
            algorithm,
            PolicyArguments(**shared),
            answers.prompts,
            tokenizer=answers.words,
        )
    else:
        settings = GRPOConfig(**shared, beta=BETA, loss_type="dapo", use_bias_correction_kl=False)
        kind = eager_trainer() if name == "eager" else GRPOTrainer
        policy_trainer = kind(
            start.config.name_or_path, [_theirs], settings, answers.prompts, processing_class=answers.words
        )
    policy_trainer._generate = answers  # both trainers then score the same completions, without generating any
    policy_trainer.remove_callback(PrinterCallback)
    return policy_trainer


def _theirs(prompts: Any, completions: Any, **_: Any) -> list[float]:
    return [parity(completion[0]["content"]) for completion in completions]


def start_in(folder: str, size: Size) -> Any:
    """Save and return the initial model of all trainers: TRL loads its frozen copy from disk."""
    torch.manual_seed(0)
    model = backbone(size, torch.float32)
    model.save_pretrained(folder)
    model.config.name_or_path = folder
    return model


# ---- time ----


class Turns:
    """Training loops in threads of one process that alternate: one optimizer step each, one thread at a time."""

    def __init__(self, loops: Mapping[str, Any]):
        self.loops = loops
        self.seconds: dict[str, list[float]] = {name: [] for name in loops}
        self.losses: dict[str, list[float]] = {}
        self._names, self._turn, self._condition = [*loops], 0, threading.Condition()
        self._failed: list[BaseException] = []

    def run(self) -> dict[str, list[float]]:
        """Train all loops and return the CPU-seconds of every step."""
        threads = [threading.Thread(target=self._train, args=(name,)) for name in self._names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failed:
            raise self._failed[0]
        return self.seconds

    def _train(self, name: str) -> None:
        self.loops[name].add_callback(_Turn(self, name))
        try:
            self.loops[name].train()
            self.losses[name] = [row["loss"] for row in self.loops[name].state.log_history if "loss" in row]
        except BaseException as error:  # wake the other threads, which would otherwise wait forever for their turn
            with self._condition:
                self._failed.append(error)
                self._condition.notify_all()

    def begin(self, name: str) -> None:
        """Wait until the other loops have made their step, then start the clock."""
        # The clock is the process's: a thread's would miss PyTorch's own threads. It starts after the wait, and as one
        # loop runs at a time, all CPU time until `end` is this step's.
        with self._condition:
            self._condition.wait_for(lambda: self._failed or self._names[self._turn] == name)
        if self._failed:
            raise RuntimeError("another loop failed")
        self._started = time.process_time()

    def end(self, name: str) -> None:
        """Record the step's time and let the next loop run."""
        self.seconds[name].append(time.process_time() - self._started)
        with self._condition:
            self._turn = (self._turn + 1) % len(self._names)
            self._condition.notify_all()


class _Turn(TrainerCallback):
    """Block a trainer's step until it is its turn."""

    def __init__(self, turns: Turns, name: str):
        self.turns, self.name = turns, name

    def on_step_begin(self, args, state, control, **kwargs):
        self.turns.begin(self.name)

    def on_step_end(self, args, state, control, **kwargs):
        self.turns.end(self.name)


def times(size: Size, folder: str) -> dict[str, Any]:
    """Measure alternating steps of our trainer and TRL's, their ratio with its interval, and the cost of generation."""
    answers, start = Answers(size), start_in(folder, size)
    turns = Turns({name: trainer(name, size, answers, start, folder) for name in ("ours", "trl")})
    seconds = {name: rounds[2:] for name, rounds in turns.run().items()}
    prompts = [row["prompt"] for row in answers.prompts.select(range(size.rows))]
    return {
        "seconds": seconds,
        "ratio": ratio(seconds["ours"], seconds["trl"]),
        "generation": generation(prompts, answers, start, size),
        "loss difference": float(np.abs(np.subtract(turns.losses["ours"], turns.losses["trl"])).max()),
    }


def generation(conversations: Sequence[Any], answers: Answers, start: Any, size: Size) -> float:
    """Measure the CPU-seconds of generating completions of maximum length with Transformers."""
    prompts = answers.words.apply_chat_template(
        conversations, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    began = time.process_time()
    start.generate(**prompts, max_new_tokens=size.answer, min_new_tokens=size.answer, do_sample=True)
    return time.process_time() - began


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Return exp of the mean log-ratio of pairs, with Student's 95 % interval."""
    logs = np.log(np.divide(ours, theirs))
    middle, low, high = np.exp(t_interval(logs)).tolist()
    return {"mean": middle, "low": low, "high": high, "pairs": len(logs)}


# ---- memory ----


def memory(name: str, size: Size) -> float:
    """Measure the peak megabytes of the third step, above what was resident before; call in a fresh process."""
    with TemporaryDirectory() as folder:
        policy_trainer = trainer(name, size, Answers(size), start_in(folder, size), folder)
        step, peaks = policy_trainer.training_step, []

        def watched(*arguments: Any) -> Tensor:
            losses: list[Tensor] = []
            device = "cuda" if torch.cuda.is_available() else "cpu"
            peaks.append(peak_of(lambda: losses.append(step(*arguments)), device))
            return losses[0]

        policy_trainer.training_step = watched
        policy_trainer.args.max_steps = 3
        policy_trainer.train()
        return max(peaks[-2:]) / 1e6  # two micro-batches of the third step


def memory_in_subprocess(name: str, size: Size) -> float:
    """Run `memory` in a subprocess, where nothing else has been loaded or freed."""
    return float(in_fresh_process("policy", "--variant", name, "--size", json.dumps(asdict(size))))


# ---- report ----


def measure(size: Size) -> dict[str, Any]:
    """Measure time and memory."""
    with TemporaryDirectory() as folder:
        timings = times(size, folder)
    environment = machine("cuda" if torch.cuda.is_available() else "cpu") | {"dtype": "float32"}
    peaks = {name: memory_in_subprocess(name, size) for name in ("ours", "trl", "eager")}
    return {"size": asdict(size), "machine": environment, "time": timings, "peak MB": peaks}


def markdown(measurements: Mapping[str, Any]) -> str:
    """Format the tables as Markdown."""
    seconds, interval = measurements["time"]["seconds"], measurements["time"]["ratio"]
    lines = ["| | CPU-seconds a step | peak MB of a step |", "|---|---|---|"]
    for name, peak in measurements["peak MB"].items():
        cell = f"{np.median(seconds[name]):.2f}" if name in seconds else "–"
        lines.append(f"| {name} | {cell} | {peak:.0f} |")
    mean, low, high = (f"{interval[name]:.3f}" for name in ("mean", "low", "high"))
    lines.append(f"\nours / trl: {mean} [{low}, {high}] over {interval['pairs']} pairs; ")
    lines.append(f"generating the completions: {measurements['time']['generation']:.2f} CPU-seconds, in neither")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> None:
    """Measure and print; with `--variant`, print the peak memory of one trainer (used in a subprocess)."""
    parser = argument_parser(__doc__, ("--variant", "--size"))
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    if options.variant is not None:
        print(memory(options.variant, Size(**json.loads(options.size))))
        return
    measurements = measure(size or Size())
    write(measurements, options.output)
    print(markdown(measurements))
