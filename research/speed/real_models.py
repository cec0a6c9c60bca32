"""CPU-seconds of two pretrained models: training beside TRL, scoring beside Transformers, and commands.

MiniLM (all weights) and SmolLM2-135M-Instruct (LoRA of rank 16 on every linear layer), in float32; `make models`
fetches them. Everything that is compared runs in turns in one process.

    training    TRL's RewardTrainer and ours on the same batches of random tokens, with UltraFeedback's lengths cut at
                256: CPU-seconds of a step, and of `train` outside its steps; the largest difference of the losses
    scoring     `rate`; Transformers' text-classification pipeline as `rewardbench` calls it; and a loop over batches of
                8 sequences of similar length: CPU-seconds of RewardBench's conversations, and how far the scores of
                sequences that are not cut differ
    commands    CPU-seconds of `rewardlab train --help`, of a mistyped setting, and of Python with Transformers alone
"""

import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from peft import LoraConfig
from transformers import PrinterCallback

from ...examples.fetch_models import fetched
from ...rm.backbones.tokenization import pad
from ...rm.io.markdown import table
from ...rm.kinds.scalar.model import ScalarRewardModel, load_scalar
from . import scoring as scoring_script
from . import training as training_script
from ._scripts import argument_parser, machine, write
from .scoring import ScoringInputs, by_rewardbench, scoring_inputs, spread
from .training import StepClock, by_trl, ours, ragged_rows

MODELS = {"minilm": "plain", "smollm2": None}
"""Chat template by model."""
TRAINED = {
    "minilm": training_script.Size(batch=4, limit=256, warm_up=4, steps=16),
    "smollm2": training_script.Size(batch=1, limit=256, warm_up=4, steps=16),
}
SCORED = {"minilm": scoring_script.Size(pairs=48, limit=512), "smollm2": scoring_script.Size(pairs=12, limit=512)}
TINY = training_script.Size(batch=1, limit=32, warm_up=1, steps=1), scoring_script.Size(pairs=2, limit=32)
TURNS, SORTED = 2, 8
COMMANDS = {
    "python with transformers": ["-c", "import transformers, torch; transformers.TrainingArguments"],
    "rewardlab train --help": ["-m", "rewardlab.apps.cli", "train", "--help"],
    "rewardlab train --learningrate": ["-m", "rewardlab.apps.cli", "train", "--learningrate", "1"],
}


def model_of(name: str, limit: int, seed: int = 0) -> ScalarRewardModel:
    """Load a model with a new head, and for SmolLM2 adapters."""
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear") if name == "smollm2" else None
    return load_scalar(fetched(name), fresh=True, max_length=limit, chat_template=MODELS[name], lora=lora, seed=seed)


# ---- training ----


def trained(name: str, trainer_of: Callable[..., Any], size: training_script.Size) -> dict[str, Any]:
    """Train once and return the CPU-seconds of the steps, those outside of them, and the losses."""
    clock, reward_model = StepClock("cpu"), model_of(name, size.limit)
    model = reward_model.model
    rows = ragged_rows(size, model.config.vocab_size)
    model.config.pad_token_id = 0  # that of both collators' batches
    with tempfile.TemporaryDirectory() as folder:
        settings = training_script.settings_of(size, "cpu", folder)
        settings |= {"learning_rate": 1e-5, "logging_strategy": "steps", "logging_steps": 1}
        start = time.process_time()
        trainer = trainer_of(model, rows, settings)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(clock)
        trainer.train()
        total = time.process_time() - start
    steps = np.diff(clock.times)
    return {
        "steps": steps[size.warm_up - 1 :].tolist(),
        "outside": total - float(steps.sum()),
        "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
    }


def training(name: str, size: training_script.Size, turns: int = TURNS) -> dict[str, Any]:
    """Train by both trainers in turns, and return the ratio of ours to TRL's."""
    trainers: Mapping[str, Callable[..., Any]] = {"ours": ours, "trl": by_trl}
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in trainers}
    for turn in range(turns):
        for way in sorted(trainers, reverse=bool(turn % 2)):
            runs[way].append(trained(name, trainers[way], size))
    losses = [np.array([run["losses"] for run in runs[way]]) for way in trainers]
    steps = {way: np.array([np.median(run["steps"]) for run in some]) for way, some in runs.items()}
    outside = {way: np.array([run["outside"] for run in some]) for way, some in runs.items()}
    return {
        "ratio": spread(steps["ours"] / steps["trl"]),
        "CPU-seconds of a step": {way: float(np.median(some)) for way, some in steps.items()},
        "CPU-seconds outside the steps": {way: float(np.median(some)) for way, some in outside.items()},
        "steps": len(runs["ours"][0]["losses"]),
        "difference": float(np.abs(losses[0] - losses[1]).max()),
    }


# ---- scoring ----


def sorted_batches(model: ScalarRewardModel, work: ScoringInputs) -> np.ndarray:
    """Return the scores by a plain loop over batches of similar length."""
    order = sorted(range(len(work.ids)), key=lambda index: len(work.ids[index]))
    scores = np.empty(len(order))
    with torch.inference_mode():
        for first in range(0, len(order), SORTED):
            some = order[first : first + SORTED]
            tokens, attention = pad([work.ids[index] for index in some], model.encoder.tokenizer.pad_token_id)
            scores[some] = model.model(input_ids=tokens, attention_mask=attention).logits[:, 0].tolist()
    return scores


def rated(model: ScalarRewardModel, work: ScoringInputs) -> np.ndarray:
    """Return the scores by `rate`."""
    return model.rate(work.examples)[:, 0]


def scoring(name: str, size: scoring_script.Size, data: Path, turns: int = TURNS) -> dict[str, Any]:
    """Score RewardBench's conversations by every method in turns, and return the ratios of ours to the others."""
    model = model_of(name, size.limit)
    model.model.eval()
    model.encoder.tokenizer.truncation_side = "left"
    sets, _ = scoring_script.read_sets(size, data)
    work = scoring_inputs(model, sets["RewardBench"])
    methods = {"ours": rated, "sorted batches": sorted_batches}
    if name != "minilm":  # the pipeline adds [CLS] and [SEP] to the rendered text by itself: other tokens
        methods["rewardbench"] = by_rewardbench
    used: dict[str, list[float]] = {way: [] for way in methods}
    scores: dict[str, np.ndarray] = {}
    for method in methods.values():
        method(model, ScoringInputs(*(items[:2] for items in work)))
    for turn in range(turns):
        for way in sorted(methods, reverse=bool(turn % 2)):
            start = time.process_time()
            scores[way] = methods[way](model, work)
            used[way].append(time.process_time() - start)
    others = [way for way in methods if way != "ours"]
    uncut = np.array([len(ids) < size.limit for ids in work.ids])  # of a cut sequence only ours keeps the BOS token
    return {
        "ratio": {way: spread(np.divide(used["ours"], used[way])) for way in others},
        "tokens": sum(map(len, work.ids)),
        "CPU-seconds": {way: float(np.median(some)) for way, some in used.items()},
        "difference": max(float(np.abs(scores[way] - scores["ours"])[uncut].max(initial=0)) for way in others),
    }


# ---- commands ----


def commands(turns: int = TURNS) -> dict[str, dict[str, float]]:
    """Return the CPU-seconds of each command, in turns."""
    used: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(turns):
        for name, words in COMMANDS.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *words], capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {name: spread(np.array(some)) for name, some in used.items()}


# ---- report ----


def measure(data: Path, cases: str, tiny: bool) -> Iterator[dict[str, Any]]:
    """Yield the measurements so far after each of them."""
    results: dict[str, Any] = {
        "machine": machine("cpu", ("torch", "transformers", "peft", "trl")) | {"dtype": "float32"}
    }
    runs: dict[str, Callable[[], Any]] = {}
    for name in MODELS:
        trained_size, scored_size = TINY if tiny else (TRAINED[name], SCORED[name])
        turns = 1 if tiny else TURNS
        runs[f"training {name}"] = lambda name=name, size=trained_size, turns=turns: training(name, size, turns)
        runs[f"scoring {name}"] = lambda name=name, size=scored_size, turns=turns: scoring(name, size, data, turns)
    runs["commands"] = lambda: commands(1 if tiny else TURNS)
    for title, run in runs.items():
        if re.search(cases, title):
            results[title] = run()
            yield results


def markdown(results: Mapping[str, Any]) -> str:
    """Format ratios of CPU-seconds, ours to the other way."""
    rows = []
    for title, found in results.items():
        if title.startswith("training"):
            outside = " / ".join(f"{seconds:.1f}" for seconds in found["CPU-seconds outside the steps"].values())
            rows.append(
                [
                    f"{title}, TRL",
                    _ratio(found["ratio"]),
                    f"{found['difference']:.0e}",
                    f"{outside} s outside the steps",
                ]
            )
        if title.startswith("scoring"):
            rows += [
                [f"{title}, {way}", _ratio(ratio), f"{found['difference']:.0e}", ""]
                for way, ratio in found["ratio"].items()
            ]
        if title == "commands":
            rows += [[name, "", "", f"{seconds['median']:.2f} s"] for name, seconds in found.items()]
    return table(["", "CPU-seconds, ours / theirs", "largest difference", ""], rows)


def _ratio(ratio: Mapping[str, float]) -> str:
    return f"{ratio['median']:.2f} [{ratio['min']:.2f}, {ratio['max']:.2f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write after each case, and print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with RewardBench")
    parser.add_argument("--cases", default="", metavar="REGEX", help="some of training, scoring, commands and models")
    parser.add_argument("--tiny", action="store_true", help="one short turn each, to rehearse")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for results in measure(options.data, options.cases, options.tiny):
        write(results, options.output)
    print(markdown(results))
    return 0
