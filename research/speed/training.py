"""Tokens per second of training a reward model, with and without padding, beside TRL.

A Llama with random weights and a scalar head learns random tokens in pairs, by complete trainers with AdamW: on a GPU
in bfloat16 and the shape of Llama 3.2 1B, on a CPU in float32 and one layer of SmolLM2-135M. Every case trains on the
same batches, in the same order:

    padded       `rewardlab train`: chosen and rejected in one batch, padded to its longest sequence
    packed       the same with --padding_free: no padding, and a prompt that both share once
    flash        the same by --attn_implementation flash_attention_2, which shares no prompt
    trl          TRL's RewardTrainer, padded as ours, without gradient checkpointing

Lengths are log-normal with the moments of UltraFeedback's prompts and responses in SmolLM2's tokens, correlated within
a pair, and cut at `limit`. A case runs in turns, the cases alternating; a turn builds the model, warms up and measures
steps: from the end of a step to the end of the next, loading, forward, backward and optimizer included.

    tokens per second   tokens of all sequences, without padding; a shared prompt counts in each sequence
    computed            tokens that the backbone computes: padding counts, and a prompt that is shared counts once
    MFU                 3 Σ_i layers (L_i Σ 2 m n + 4 H d L_i²) / (seconds x peak FLOP/s): three forward passes of
                        every sequence, of length L_i, by `rm.capacity.flops`; PaLM, arXiv:2204.02311, appendix B

MFU counts no padding, and deducts nothing for a prompt that is computed once.
On a CPU seconds are CPU-seconds, which the load of other processes hardly affects.
"""

import gc
import importlib.util
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import cycle
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
)

from ...rm.backbones.loading import name_labels, small_tokenizer
from ...rm.backbones.packing import pack_batch
from ...rm.capacity.choices import GPUS
from ...rm.capacity.config_shapes import shape_of
from ...rm.capacity.flops import HeadOutputs, training_flops
from ...rm.capacity.shapes import table_settings
from ...rm.io.markdown import table
from ...rm.kinds.scalar.training import PairRow, ScalarTask, collate
from ...rm.losses.bradley_terry import bradley_terry
from ...rm.training.trainer import RewardArguments, RewardTrainer
from ._scripts import VERSIONS, argument_parser, machine, write

PROMPT, RESPONSE, CORRELATION = (4.36, 1.35), (4.98, 1.38), 0.52
"""Mean and standard deviation of log lengths in tokens over 1,000 pairs; correlation of the two responses."""
PEAK = GPUS["h100"].bfloat16 * 1e12
"""FLOP/s of an H100 in bfloat16, dense: 989e12."""


@dataclass(frozen=True)
class Size:
    """Shape of the backbone and of the batches."""

    backbone: str = "llama3-1b"
    """Name in the table of `rm.capacity.shapes`."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """Fields of its config that differ."""
    batch: int = 8
    """Pairs of a step."""
    limit: int = 1024
    """Maximum tokens of a sequence, TRL's default."""
    warm_up: int = 2
    steps: int = 4
    """Measured steps of a turn."""


SMOLLM = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 1,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 8192,
}
TOY = {
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 300,
}
SIZES = {"cuda": Size(), "cpu": Size(changes=SMOLLM, batch=4, warm_up=1, steps=2)}
TINY = Size(changes=TOY, batch=2, limit=64, warm_up=1, steps=1)


class Turn(NamedTuple):
    """Measurements of one turn of a case."""

    seconds: list[float]
    """Of every measured step."""
    peak: int | None
    """Peak bytes of a GPU's memory."""


# ---- work ----


def ragged_rows(size: Size, vocabulary: int) -> list[PairRow]:
    """Return the pairs of a turn; chosen and rejected begin with the same prompt."""
    random = np.random.default_rng(0)
    covariance = np.array([[1, CORRELATION], [CORRELATION, 1]])

    def tokens(logarithm: float, spread: tuple[float, float], limit: int) -> list[int]:
        length = np.clip(np.exp(spread[0] + spread[1] * logarithm), 1, limit)
        return random.integers(6, vocabulary, int(length)).tolist()

    rows = []
    for _ in range(size.batch * (size.warm_up + size.steps)):
        prompt = tokens(random.standard_normal(), PROMPT, size.limit // 2)
        both = random.multivariate_normal([0, 0], covariance)
        chosen, rejected = (prompt + tokens(logarithm, RESPONSE, size.limit - len(prompt)) for logarithm in both)
        rows.append(PairRow(chosen, rejected, 1.0, float("nan")))
    return rows


@cache
def pad_only() -> PreTrainedTokenizerBase:
    """Return a tokenizer whose pad token is 0; nothing else of it is read."""
    return small_tokenizer(["roba kano"], 300)


def config_of(size: Size) -> Any:
    """Return the configuration of the backbone."""
    config = AutoConfig.for_model(**table_settings(size.backbone))
    config.update({**size.changes, "head_dim": 64, "pad_token_id": 0})
    return config


def build_model(size: Size, device: str) -> Any:
    """Build the classifier on the device, with random weights: bfloat16 on a GPU, float32 on a CPU."""
    torch.manual_seed(0)
    config = config_of(size)
    name_labels(config, ("reward",))
    with torch.device(device):
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        return AutoModelForSequenceClassification.from_config(config, dtype=dtype)


# ---- trainers ----


def settings_of(size: Size, device: str, folder: str) -> dict[str, Any]:
    """Return the training arguments that all cases share."""
    return {
        "output_dir": folder, "max_steps": size.warm_up + size.steps, "per_device_train_batch_size": size.batch,
        "learning_rate": 1e-6, "optim": "adamw_torch", "train_sampling_strategy": "sequential",
        "use_cpu": device == "cpu", "bf16": False, "save_strategy": "no",
        "logging_strategy": "no", "report_to": "none", "disable_tqdm": True,
    }  # fmt: skip


def ours(model: Any, rows: list[PairRow], settings: dict[str, Any], **changes: Any) -> Any:
    """Return our trainer."""
    encoder = SimpleNamespace(tokenizer=pad_only(), contract=SimpleNamespace(max_length=None))
    arguments = RewardArguments(**settings | changes)
    reward_model = SimpleNamespace(model=model, encoder=encoder)
    return RewardTrainer(reward_model, arguments, ScalarTask(bradley_terry()), rows)


def by_trl(model: Any, rows: list[PairRow], settings: dict[str, Any]) -> Any:
    """Return TRL's trainer on the same pairs."""
    from datasets import Dataset
    from trl import RewardConfig
    from trl import RewardTrainer as Peer

    dataset = Dataset.from_list([{"chosen_ids": row.chosen, "rejected_ids": row.rejected} for row in rows])
    arguments = RewardConfig(**settings, max_length=None, gradient_checkpointing=False)
    return Peer(model, arguments, train_dataset=dataset, processing_class=pad_only())


CASES: Mapping[str, Callable[[Any, list[PairRow], dict[str, Any]], Any]] = {
    "packed": lambda *work: ours(*work, padding_free=True),
    "padded": ours,
    "trl": by_trl,
    "flash": lambda *work: ours(*work, padding_free=True, attn_implementation="flash_attention_2"),
}
NEEDS = {"trl": ("trl", "datasets"), "flash": ("flash_attn",)}
"""Packages that a case needs beside our own."""


def why_not(name: str) -> str | None:
    """Return why a case cannot be run here."""
    absent = [package for package in NEEDS.get(name, ()) if importlib.util.find_spec(package) is None]
    return f"no {' and no '.join(absent)} here" if absent else None


# ---- measurement ----


class StepClock(TrainerCallback):
    """Callback that records when each step has ended."""

    def __init__(self, device: str):
        self.device = device
        self.times: list[float] = []

    def on_step_end(self, args, state, control, **kwargs):
        """Record the time, after all work on the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        self.times.append(time.process_time() if self.device == "cpu" else time.perf_counter())


def turn(name: str, size: Size, device: str) -> Turn:
    """Build a model, train it by a case, and measure the steps after the warm-up."""
    gc.collect()  # trainers refer to themselves, and the memory of the last one would count in the peak
    clock, model = StepClock(device), build_model(size, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        rows = ragged_rows(size, model.config.vocab_size)
        trainer = CASES[name](model, rows, settings_of(size, device, folder))
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(clock)
        trainer.train()
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    return Turn(np.diff(clock.times[size.warm_up - 1 :]).tolist(), peak)


def measured_rows(size: Size) -> list[PairRow]:
    """Return the pairs of the measured steps."""
    return ragged_rows(size, config_of(size).vocab_size)[size.batch * size.warm_up :]


def token_counts(size: Size) -> dict[str, float]:
    """Return the tokens of a mean measured step, and those that padded and packed batches compute."""
    rows = measured_rows(size)
    batches = [collate(rows[first : first + size.batch]) for first in range(0, len(rows), size.batch)]
    both = [(batch["tokens"], batch["attention"]) for batch in batches]
    return {
        "tokens": float(np.mean([attention.sum().item() for _, attention in both])),
        "padded": float(np.mean([tokens.numel() for tokens, _ in both])),
        "packed": float(np.mean([pack_batch(*batch)[0].tokens.numel() for batch in both])),
    }


def flops_of_step(size: Size) -> float:
    """Return the model FLOPs of a mean measured step: 3 forward passes of every sequence, nothing computed again."""
    shape = shape_of(config_of(size), size.backbone)
    lengths = [len(sequence) for row in measured_rows(size) for sequence in (row.chosen, row.rejected)]
    return sum(training_flops(shape, 1, length, HeadOutputs(scores=1), fused=False) for length in lengths) / size.steps


def measure(size: Size, device: str, budget: float, cases: str = "", peak: float = PEAK) -> Iterator[dict[str, Any]]:
    """Yield the measurements so far after every turn; no further one begins that would end after `budget` seconds."""
    begin, longest = time.perf_counter(), 0.0
    chosen = [name for name in CASES if re.search(cases, name)]
    absent = {name: reason for name in chosen if (reason := why_not(name))}
    turns: dict[str, list[Turn]] = {name: [] for name in chosen if name not in absent}
    environment = machine(device, (*VERSIONS, "trl")) | ({} if device == "cuda" else {"dtype": "float32"})
    facts = {"machine": environment, "size": asdict(size), "budget": budget, "peak FLOP/s": peak}
    facts |= {"tokens of a step": (counts := token_counts(size)), "FLOPs of a step": (flops := flops_of_step(size))}
    facts["seconds are"] = "CPU-seconds" if device == "cpu" else "seconds"
    for name in cycle(turns):
        start = time.perf_counter()
        if longest and start - begin + longest > budget:
            return
        turns[name].append(turn(name, size, device))
        longest = max(longest, time.perf_counter() - start)
        rows = {name: summary(name, some, counts, flops / peak) for name, some in turns.items() if some}
        yield facts | {
            "cases": rows,
            "not run": absent | {name: "the budget ended" for name in turns if name not in rows},
        }


def summary(name: str, turns: Sequence[Turn], counts: Mapping[str, float], least: float) -> dict[str, Any]:
    """Return the row of a case from the median of its steps; `least` is a step's seconds at the device's peak."""
    seconds = np.array([some.seconds for some in turns])
    peaks = [some.peak for some in turns if some.peak is not None]
    return {
        "tokens per second": counts["tokens"] / float(np.median(seconds)),
        "range": [counts["tokens"] / float(bound) for bound in (seconds.mean(1).max(), seconds.mean(1).min())],
        "computed": counts[{"packed": "packed", "flash": "tokens"}.get(name, "padded")],
        "MFU": least / float(np.median(seconds)) if peaks else None,
        "peak GB": max(peaks) / 1e9 if peaks else None,
        "seconds": seconds.tolist(),
    }


def markdown(measurements: Mapping[str, Any]) -> str:
    """Format the rows as Markdown."""
    rows = [
        [
            name,
            f"{row['tokens per second']:,.0f}",
            " to ".join(f"{bound:,.0f}" for bound in row["range"]),
            f"{row['computed']:,.0f}",
            *(f"{row[name]:{form}}" if row[name] else "-" for name, form in (("MFU", ".1%"), ("peak GB", ".1f"))),
        ]
        for name, row in measurements["cases"].items()
    ]
    rows += [[name, f"not run: {reason}", "", "", "", ""] for name, reason in measurements["not run"].items()]
    unit = measurements["seconds are"].removesuffix("s")
    head = [f"{measurements['tokens of a step']['tokens']:,.0f} tokens a step", f"tokens per {unit}", "range of turns"]
    return table([*head, "computed", "MFU", "peak GB"], rows)


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> int:
    """Measure, write after every turn, and print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--budget", type=float, default=120, help="seconds, after which no turn begins")
    parser.add_argument("--cases", default="", metavar="REGEX", help=f"some of {', '.join(CASES)}")
    parser.add_argument("--tiny", action="store_true", help="a shape of a few seconds, to rehearse")
    parser.add_argument("--peak", type=float, default=PEAK, help="dense FLOP/s of the device, for the MFU")
    options = parser.parse_args(arguments)
    transformers.logging.set_verbosity_error()
    chosen = size or (TINY if options.tiny else SIZES[options.device])
    measurements: dict[str, Any] = {}
    for measurements in measure(chosen, options.device, options.budget, options.cases, options.peak):
        write(measurements, options.output)
    print(markdown(measurements))
    return 0
