"""Tokens per second of scoring, beside rewardbench's way and TRL's: `rewardlab bench scoring`.

One Qwen 3 classifier with random weights scores the same conversations in three ways, in float32 through PyTorch's
fused attention, on one thread. Texts come rendered; each way makes tokens, batches and scores of them:

    ours          `rate`, with the token budget of 16 of the longest sequences, of which a CPU is given 4,096 at once
    rewardbench   Transformers' text-classification pipeline as `rewardbench` calls it: the chosen, then the rejected
                  answers in file order, 16 to a batch, padded to the longest of it
    trl           TRL's collator in a DataLoader: 8 pairs to a batch, the chosen in front, padded to the longest of it

Useful tokens are those of all sequences without padding, the same for all. The ways take turns in one process, each
round in another order, and a ratio is taken within each round: of CPU-seconds, so that the load of other processes
falls on none of them, and of wall time beside it. Memory is what a fresh process grows by over all sets.

    RewardBench   pairs at even distances in the file, in its order, so that its subsets are there by their sizes
    RM-Bench      groups of three chosen and three rejected answers, in the same way
    generated     groups of six answers to one prompt of made-up words, which is 75 % of each sequence or more

Beside each ratio stands what it can be at most: padded tokens by useful ones (padding), useful ones by distinct ones,
which counts a shared beginning once (sharing). More than both together comes from the size of the batches: ours are
smaller on a CPU. Exit code 5 where a score, a ratio or the memory is out of its bounds.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
import trl
from torch.utils.data import DataLoader
from transformers import pipeline
from trl.trainer.reward_trainer import DataCollatorForPreference

from ...judges.types import Case
from ...rm.backbones.loading import small_config, small_tokenizer
from ...rm.backbones.packing import shared
from ...rm.models.scalar import ScalarRewardModel, scalar_from_config
from ...rm.types import Example, user_turn
from ..suites.rewardbench import rewardbench
from ..suites.rm_bench import rm_bench
from .decoding import machine
from .head import peak_of

BATCH = 16
TOLERANCE = 1e-4
LEAST = {"RewardBench": 1.6, "RM-Bench": 1.6, "generated": 3.0}
"""What the ratio has to be."""
FILES = {"RewardBench": (rewardbench, "rewardbench_v1/*.parquet"), "RM-Bench": (rm_bench, "rm_bench_public/*.jsonl.gz")}


@dataclass(frozen=True)
class Size:
    """What is measured; by default a backbone of 5.5 million parameters."""

    layers: int = 4
    hidden: int = 256
    vocabulary: int = 8192
    limit: int = 1024
    """Tokens of a sequence at most, which is TRL's default; longer ones lose their beginning."""
    pairs: int = 64
    groups: int = 16
    """Of RM-Bench, and of the generated ones."""
    words: int = 160
    """Of a generated prompt, about."""
    repeats: int = 5


Sets = dict[str, list[Case]]


# ---- what is scored ----


def read_sets(size: Size, data: Path) -> tuple[Sets, dict[str, str]]:
    """The conversations of every set, and why a set is not there."""
    sets, absent = {}, {}
    for name, (suite, pattern) in FILES.items():
        files = sorted(str(one) for one in data.glob(pattern))
        if not files:
            absent[name] = f"no {pattern} in {data}; name the folder with --data"
            continue
        cases, _ = suite().cases(files)
        sets[name] = evenly(cases, size.pairs if name == "RewardBench" else size.groups)
    return sets | {"generated": generated(size)}, absent


def evenly(cases: Sequence[Case], number: int) -> list[Case]:
    """So many of them, at even distances and in their order.

    >>> evenly(range(10), 3)
    [0, 4, 9]
    """
    return [cases[place] for place in np.linspace(0, len(cases) - 1, min(number, len(cases))).astype(int)]


def generated(size: Size) -> list[Case]:
    """Groups of six answers, each at most a quarter as long as their prompt."""
    random = np.random.default_rng(0)
    lexicon = ["".join(random.choice([*"bdfgklmnprstvz"], 3) + random.choice([*"aeiou"], 3)) for _ in range(500)]

    def text(low: float, high: float) -> str:
        return " ".join(random.choice(lexicon, random.integers(int(low) or 1, int(high) + 1)))

    cases = []
    for group in range(size.groups):
        prompt = text(0.7 * size.words, 1.3 * size.words)
        words = len(prompt.split())
        answers = tuple(text(words / 16, words / 4) for _ in range(6))
        cases.append(Case(f"generated/{group}", user_turn(prompt), answers, (0, 1, 2), sets=(3, 3)))
    return cases


def texts_of(cases: Sequence[Case]) -> list[str]:
    """Everything that is said, to learn a vocabulary from."""
    return [text for case in cases for text in (*(turn["content"] for turn in case.prompt), *case.answers)]


def reward_model(size: Size, sets: Sets) -> ScalarRewardModel:
    """Random weights, and a vocabulary learnt from the texts."""
    words = small_tokenizer([text for cases in sets.values() for text in texts_of(cases)], size.vocabulary)
    shape = {"hidden": size.hidden, "layers": size.layers, "heads": size.hidden // 64, "positions": size.limit}
    config = small_config(words, "qwen3", **shape)
    config.vocab_size = max(size.vocabulary, len(words))
    model = scalar_from_config(config, words, max_length=size.limit)
    model.encoder.tokenizer.truncation_side = "left"  # for rewardbench's way, which sets it too
    model.model.eval()
    return model


class Work(NamedTuple):
    """A set, as each way takes it."""

    examples: list[Example]
    """Chosen and rejected in turns."""
    texts: list[str]
    """The same, rendered."""
    ids: list[list[int]]
    """The same as tokens, to count them."""


def work_of(model: ScalarRewardModel, cases: Sequence[Case]) -> Work:
    """The first half of a case's answers beside the second."""
    examples = []
    for case in cases:
        half = len(case.answers) // 2
        for both in zip(case.answers[:half], case.answers[half:], strict=True):
            examples += [Example(case.prompt, answer) for answer in both]
    ids = [one.ids for one in model.encoder.encode_all(examples)]
    return Work(examples, [model.encoder.render(example) for example in examples], ids)


# ---- the ways ----


def ours(model: ScalarRewardModel, work: Work) -> np.ndarray:
    """Scores by `rate`."""
    return model.rate(work.examples, batch_tokens=BATCH * max(map(len, work.ids)))[:, 0]


def by_rewardbench(model: ScalarRewardModel, work: Work) -> np.ndarray:
    """Scores by Transformers' pipeline."""
    pipe = pipeline("text-classification", model=model.model, tokenizer=model.encoder.tokenizer, device="cpu")
    options = {
        "truncation": True,
        "padding": True,
        "max_length": model.contract.max_length,
        "function_to_apply": "none",
    }
    scores = np.empty(len(work.texts))
    for side in range(2):
        found = pipe(work.texts[side::2], batch_size=BATCH, **options)
        scores[side::2] = [one["score"] for one in found]
    return scores


def by_trl(model: ScalarRewardModel, work: Work) -> np.ndarray:
    """Scores by a loop over TRL's batches."""
    tokenizer = model.encoder.tokenizer
    ids = tokenizer(work.texts, add_special_tokens=False, truncation=True, max_length=model.contract.max_length)
    pairs = [
        {"chosen_ids": chosen, "rejected_ids": rejected}
        for chosen, rejected in zip(ids.input_ids[::2], ids.input_ids[1::2], strict=True)
    ]
    collate: Any = DataCollatorForPreference(pad_token_id=tokenizer.pad_token_id)
    scores: list[float] = []
    with torch.no_grad():
        for batch in DataLoader(pairs, batch_size=BATCH // 2, collate_fn=collate):
            logits = model.model(**batch, use_cache=False).logits[:, 0]
            scores += torch.stack(logits.chunk(2), dim=1).flatten().tolist()
    return np.array(scores)


WAYS: dict[str, Callable[[ScalarRewardModel, Work], np.ndarray]] = {
    "ours": ours,
    "rewardbench": by_rewardbench,
    "trl": by_trl,
}


def padded_tokens(ids: Sequence[Sequence[int]], way: str) -> int:
    """What a way's batches hold, padding included."""
    lengths = np.array([len(one) for one in ids])
    sides = [lengths] if way == "trl" else [lengths[::2], lengths[1::2]]
    batches = [side[first : first + BATCH] for side in sides for first in range(0, len(side), BATCH)]
    return sum(int(batch.max()) * len(batch) for batch in batches)


def distinct_tokens(ids: Sequence[Sequence[int]]) -> int:
    """What has to be computed if every beginning is computed once.

    >>> distinct_tokens([[1, 2, 3], [1, 2, 4, 5], [1, 2, 3]])
    5
    """
    rows = sorted({tuple(one) for one in ids})
    return sum(len(row) - shared(before, row, 1) for before, row in pairwise([(), *rows]))


# ---- how it is measured ----


def timed(model: ScalarRewardModel, work: Work, repeats: int) -> dict[str, Any]:
    """Seconds of every round and way, wall and CPU, and how far the others' scores are from ours."""
    runs = {name: partial(way, model, work) for name, way in WAYS.items()}
    names, scores = [*runs], {}
    seconds = {kind: {name: [] for name in names} for kind in ("wall", "cpu")}
    for turn in range(repeats):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            wall, cpu = time.perf_counter(), time.process_time()
            scores[name] = runs[name]()
            seconds["wall"][name].append(time.perf_counter() - wall)
            seconds["cpu"][name].append(time.process_time() - cpu)
    difference = max(float(np.abs(scores[name] - scores["ours"]).max()) for name in names)
    return {"seconds": seconds, "difference": difference, "std of scores": float(scores["ours"].std())}


def compared(work: Work, found: dict[str, Any]) -> dict[str, Any]:
    """Useful tokens per second, ratios with their spread, and their bounds."""
    useful, distinct = sum(map(len, work.ids)), distinct_tokens(work.ids)
    wall, cpu = found["seconds"]["wall"], found["seconds"]["cpu"]
    others = {}
    for name in [*WAYS][1:]:
        padding = padded_tokens(work.ids, name) / useful
        others[name] = {
            "ratio": spread(np.divide(cpu[name], cpu["ours"])),
            "ratio of wall time": spread(np.divide(wall[name], wall["ours"])),
            "bounds": {"padding": padding, "sharing": useful / distinct, "both": padding * useful / distinct},
        }
    speeds = {
        kind: {name: useful / float(np.median(one)) for name, one in rounds.items()}
        for kind, rounds in found["seconds"].items()
    }
    tokens = {"useful": useful, "distinct": distinct, "longest": max(map(len, work.ids))}
    return {
        "sequences": len(work.ids),
        "tokens": tokens,
        "useful tokens per second": speeds,
        "against": others,
        **found,
    }


def spread(values: np.ndarray) -> dict[str, float]:
    """Of the rounds."""
    return {"median": float(np.median(values)), "min": float(values.min()), "max": float(values.max())}


def memory(way: str, size: Size, data: Path) -> float:
    """Megabytes that a way takes at its peak over all sets, above what was resident before; in a fresh process."""
    sets, _ = read_sets(size, data)
    model = reward_model(size, sets)
    works = [work_of(model, cases) for cases in sets.values()]
    WAYS[way](model, Work(*(one[:2] for one in works[-1])))  # what a first call loads is not counted
    return peak_of(lambda: [WAYS[way](model, work) for work in works], "cpu") / 1e6


def in_a_process(way: str, size: Size, data: Path) -> float:
    """`memory` where nothing else has been loaded or freed."""
    module = __name__ if __name__ != "__main__" else f"{__package__}.scoring"
    command = [sys.executable, "-m", module, "--way", way, "--size", json.dumps(asdict(size)), "--data", str(data)]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return float(done.stdout.splitlines()[-1])


# ---- telling ----


def measure(size: Size, data: Path) -> dict[str, Any]:
    """Time and memory of every way on every set that is there."""
    place = machine("cpu") | {"dtype": "float32"}
    place["versions"]["trl"] = trl.__version__
    sets, absent = read_sets(size, data)
    model = reward_model(size, sets)
    found = {}
    for name, cases in sets.items():
        work = work_of(model, cases)
        for way in WAYS.values():
            way(model, Work(*(one[:2] for one in work)))
        found[name] = compared(work, timed(model, work, size.repeats))
    return {
        "size": asdict(size),
        "parameters": sum(one.numel() for one in model.model.parameters()),
        "attention": model.model.config._attn_implementation,
        "machine": place,
        "sets": found,
        "not run": absent,
        "peak MB": {way: in_a_process(way, size, data) for way in WAYS},
    }


def faults(found: Mapping[str, Any]) -> list[str]:
    """What is out of its bounds."""
    said = []
    for name, one in found["sets"].items():
        if not one["difference"] <= TOLERANCE:
            said.append(f"{name}: scores differ by {one['difference']:.1e}, at most {TOLERANCE:.0e}")
        for way, against in one["against"].items():
            ratio = against["ratio"]["median"]
            if not ratio >= LEAST[name]:
                said.append(f"{name}: {ratio:.2f} times as fast as {way}, at least {LEAST[name]}")
    peaks = found["peak MB"]
    said += [
        f"memory: {peaks['ours']:.1f} MB, {way} {peak:.1f} MB" for way, peak in peaks.items() if peak < peaks["ours"]
    ]
    return said


def markdown(found: Mapping[str, Any]) -> str:
    """The tables for people."""
    lines = [
        "| set, against | ratio | min | max | wall time | bound: padding | sharing | both | largest difference |",
        "|---" * 9 + "|",
    ]
    for name, one in found["sets"].items():
        for way, against in one["against"].items():
            ratio, bounds = against["ratio"], against["bounds"]
            cells = [*ratio.values(), against["ratio of wall time"]["median"], *bounds.values()]
            told = " | ".join(f"{cell:.2f}" for cell in cells)
            lines.append(f"| {name}, {way} | {told} | {one['difference']:.1e} |")
    lines += [f"| {name} | not run: {why} |" + " |" * 7 for name, why in found["not run"].items()]
    lines += ["", "| useful tokens per CPU-second | " + " | ".join(WAYS) + " |", "|---" * (1 + len(WAYS)) + "|"]
    for name, one in found["sets"].items():
        told = " | ".join(f"{one['useful tokens per second']['cpu'][way]:,.0f}" for way in WAYS)
        lines.append(f"| {name}, {one['sequences']} sequences, {one['tokens']['useful']:,} tokens | {told} |")
    lines.append("| peak MB | " + " | ".join(f"{found['peak MB'][way]:.0f}" for way in WAYS) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> int:
    """Measure and print; `--way` is the process of one, which prints its peak."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the benchmarks")
    parser.add_argument("--output", type=Path, help="a JSON file")
    for name in ("--way", "--size"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if options.way is not None:
        print(memory(options.way, Size(**json.loads(options.size)), options.data))
        return 0
    found = measure(size or Size(), options.data)
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(markdown(found))
    said = faults(found)
    print("\n".join(said), file=sys.stderr, end="\n" if said else "")
    return 5 if said else 0


if __name__ == "__main__":
    sys.exit(main())
