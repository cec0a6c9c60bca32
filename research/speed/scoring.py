"""Tokens per second of scoring, compared with rewardbench and TRL.

One Qwen 3 classifier with random weights scores the same conversations by three methods, in float32 with PyTorch's
fused attention, on one thread. Each method takes rendered texts, and tokenizes, batches and scores them:

    ours          `rate`, with a token budget of 16 of the longest sequences, at most 2,048 tokens at once on a CPU
    rewardbench   Transformers' text-classification pipeline as `rewardbench` calls it: chosen, then rejected
                  responses in file order, 16 to a batch, padded to the longest of the batch
    trl           TRL's collator in a DataLoader: 8 pairs to a batch, chosen first, padded to the longest of the batch

Useful tokens are those of all sequences without padding, the same for all methods. The methods alternate in one
process, in another order each round, and ratios are computed within a round: of CPU-seconds, which the load of other
processes hardly affects, and of wall time. Memory is the growth of a fresh process over all sets.

    RewardBench   pairs at even distances in the file, in file order, so that subsets are represented by size
    RM-Bench      groups of three chosen and three rejected responses, selected likewise
    generated     groups of six responses to one prompt of random words, which is at least 75 % of each sequence

Each ratio is reported with its upper bounds: padded / useful tokens (padding), and useful / distinct tokens, where a
shared prefix counts once (sharing). A ratio above their product comes from the batch size: ours is smaller on a CPU.
Exit code 5 if a score, a ratio or the memory is out of bounds.

On a GPU the model has 0.9 billion parameters in bfloat16, and ratios, which have no bounds there, are of wall time.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from torch.utils.data import DataLoader
from transformers import pipeline

from ...benchmarks.suites.rewardbench import rewardbench
from ...benchmarks.suites.rm_bench import rm_bench
from ...judges.types import Case
from ...rm.backbones.loading import small_config, small_tokenizer
from ...rm.backbones.packing import common_prefix_length
from ...rm.kinds.scalar.model import ScalarRewardModel, scalar_from_config
from ...rm.types import Example, user_turn
from ._memory import peak_of
from ._scripts import VERSIONS, argument_parser, in_fresh_process, machine, write

BATCH = 16
TOLERANCE = 1e-4
LEAST = {"RewardBench": 1.6, "RM-Bench": 1.6, "generated": 3.0}
"""Smallest acceptable ratio, by set."""
FILES = {"RewardBench": (rewardbench, "rewardbench_v1/*.parquet"), "RM-Bench": (rm_bench, "rm_bench_public/*.jsonl.gz")}


@dataclass(frozen=True)
class Size:
    """Sizes of the backbone and of the sets; by default a backbone of 5.5 million parameters."""

    layers: int = 4
    hidden: int = 256
    vocabulary: int = 8192
    limit: int = 1024
    """Maximum tokens of a sequence, TRL's default; longer ones are truncated on the left."""
    pairs: int = 64
    groups: int = 16
    """Number of groups of RM-Bench, and of the generated set."""
    words: int = 160
    """Approximate number of words of a generated prompt."""
    repeats: int = 5


ON_A_GPU = Size(layers=16, hidden=2048, groups=64)
Sets = dict[str, list[Case]]


# ---- conversations ----


def read_sets(size: Size, data: Path) -> tuple[Sets, dict[str, str]]:
    """Return the conversations of every set, and for each missing set the reason."""
    sets, absent = {}, {}
    for name, (suite, pattern) in FILES.items():
        files = sorted(str(path) for path in data.glob(pattern))
        if not files:
            absent[name] = f"no {pattern} in {data}; name the folder with --data"
            continue
        cases, _ = suite().cases(files)
        sets[name] = evenly(cases, size.pairs if name == "RewardBench" else size.groups)
    return sets | {"generated": generated(size)}, absent


def evenly(cases: Sequence[Case], number: int) -> list[Case]:
    """Select `number` cases at even distances, in order.

    >>> evenly(range(10), 3)
    [0, 4, 9]
    """
    return [cases[index] for index in np.linspace(0, len(cases) - 1, min(number, len(cases))).astype(int)]


def generated(size: Size) -> list[Case]:
    """Generate groups of six responses, each at most a quarter as long as their prompt."""
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
    """Return all texts of the cases, from which the vocabulary is built."""
    return [text for case in cases for text in (*(turn["content"] for turn in case.prompt), *case.texts)]


def reward_model(size: Size, sets: Sets, device: str = "cpu") -> ScalarRewardModel:
    """Build a classifier with random weights, in bfloat16 on a GPU, and a tokenizer trained on the texts."""
    words = small_tokenizer([text for cases in sets.values() for text in texts_of(cases)], size.vocabulary)
    shape = {"hidden": size.hidden, "layers": size.layers, "heads": size.hidden // 64, "positions": size.limit}
    config = small_config(words, "qwen3", **shape)
    config.vocab_size = max(size.vocabulary, len(words))
    with torch.device(device):  # weights are made where they are used
        model = scalar_from_config(config, words, max_length=size.limit)
    if device == "cuda":
        model.model.to(device, torch.bfloat16)
    model.encoder.tokenizer.truncation_side = "left"  # as rewardbench sets it
    model.model.eval()
    return model


class ScoringInputs(NamedTuple):
    """One set in the forms that the methods take."""

    examples: list[Example]
    """Chosen and rejected responses, alternating."""
    texts: list[str]
    """The examples rendered with the chat template."""
    ids: list[list[int]]
    """Token ids of the examples, for counting."""


def scoring_inputs(model: ScalarRewardModel, cases: Sequence[Case]) -> ScoringInputs:
    """Pair the first half of each case's responses with the second half."""
    examples = []
    for case in cases:
        half = len(case.answers) // 2
        for pair in zip(case.answers[:half], case.answers[half:], strict=True):
            examples += [Example(case.prompt, answer) for answer in pair]
    ids = [tokens.ids for tokens in model.encoder.encode_all(examples)]
    return ScoringInputs(examples, [model.encoder.render(example) for example in examples], ids)


# ---- methods ----


def ours(model: ScalarRewardModel, work: ScoringInputs) -> np.ndarray:
    """Return the scores by `rate`."""
    return model.rate(work.examples, batch_tokens=BATCH * max(map(len, work.ids)))[:, 0]


def by_rewardbench(model: ScalarRewardModel, work: ScoringInputs) -> np.ndarray:
    """Return the scores by Transformers' pipeline."""
    pipe = pipeline(
        "text-classification", model=model.model, tokenizer=model.encoder.tokenizer, device=model.model.device
    )
    options = {
        "truncation": True,
        "padding": True,
        "max_length": model.contract.max_length,
        "function_to_apply": "none",
    }
    scores = np.empty(len(work.texts))
    for side in range(2):
        outputs = pipe(work.texts[side::2], batch_size=BATCH, **options)
        scores[side::2] = [output["score"] for output in outputs]
    return scores


def by_trl(model: ScalarRewardModel, work: ScoringInputs) -> np.ndarray:
    """Return the scores by a loop over TRL's batches."""
    from trl.trainer.reward_trainer import DataCollatorForPreference  # an image with a GPU may lack it

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
            inputs = {name: tensor.to(model.model.device) for name, tensor in batch.items()}
            logits = model.model(**inputs, use_cache=False).logits[:, 0]
            scores += torch.stack(logits.chunk(2), dim=1).flatten().tolist()
    return np.array(scores)


METHODS: dict[str, Callable[[ScalarRewardModel, ScoringInputs], np.ndarray]] = {
    "ours": ours,
    "rewardbench": by_rewardbench,
    "trl": by_trl,
}


def padded_tokens(ids: Sequence[Sequence[int]], method: str) -> int:
    """Count the tokens of a method's batches, padding included."""
    lengths = np.array([len(tokens) for tokens in ids])
    sides = [lengths] if method == "trl" else [lengths[::2], lengths[1::2]]
    batches = [side[first : first + BATCH] for side in sides for first in range(0, len(side), BATCH)]
    return sum(int(batch.max()) * len(batch) for batch in batches)


def distinct_tokens(ids: Sequence[Sequence[int]]) -> int:
    """Count the tokens that have to be computed if every shared prefix is computed once.

    >>> distinct_tokens([[1, 2, 3], [1, 2, 4, 5], [1, 2, 3]])
    5
    """
    rows = sorted({tuple(tokens) for tokens in ids})
    return sum(len(row) - common_prefix_length(before, row, 1) for before, row in pairwise([(), *rows]))


# ---- measurement ----


def timed(model: ScalarRewardModel, work: ScoringInputs, repeats: int, end: float) -> dict[str, Any]:
    """Measure wall and CPU seconds of rounds, none begun after `end`, and the scores' largest difference from ours."""
    runs = {name: partial(method, model, work) for name, method in METHODS.items()}
    names, scores = [*runs], {}
    seconds = {kind: {name: [] for name in names} for kind in ("wall", "cpu")}
    for turn in range(repeats):
        if turn and time.perf_counter() >= end:
            break
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            wall, cpu = time.perf_counter(), time.process_time()
            scores[name] = runs[name]()
            seconds["wall"][name].append(time.perf_counter() - wall)
            seconds["cpu"][name].append(time.process_time() - cpu)
    difference = max(float(np.abs(scores[name] - scores["ours"]).max()) for name in names)
    return {"seconds": seconds, "difference": difference, "std of scores": float(scores["ours"].std())}


def compared(work: ScoringInputs, timings: dict[str, Any], kind: str = "cpu") -> dict[str, Any]:
    """Compute useful tokens per second, and ratios of CPU-seconds or wall time with their spread and bounds."""
    useful, distinct = sum(map(len, work.ids)), distinct_tokens(work.ids)
    wall, chosen = timings["seconds"]["wall"], timings["seconds"][kind]
    others = {}
    for name in [*METHODS][1:]:
        padding = padded_tokens(work.ids, name) / useful
        others[name] = {
            "ratio": spread(np.divide(chosen[name], chosen["ours"])),
            "ratio of wall time": spread(np.divide(wall[name], wall["ours"])),
            "bounds": {"padding": padding, "sharing": useful / distinct, "both": padding * useful / distinct},
        }
    speeds = {
        kind: {name: useful / float(np.median(seconds)) for name, seconds in rounds.items()}
        for kind, rounds in timings["seconds"].items()
    }
    tokens = {"useful": useful, "distinct": distinct, "longest": max(map(len, work.ids))}
    return {
        "sequences": len(work.ids),
        "tokens": tokens,
        "useful tokens per second": speeds,
        "against": others,
        **timings,
    }


def spread(values: np.ndarray) -> dict[str, float]:
    """Return median, minimum and maximum over the rounds."""
    return {"median": float(np.median(values)), "min": float(values.min()), "max": float(values.max())}


def memory(method: str, size: Size, data: Path) -> float:
    """Measure the peak megabytes of a method over all sets, above what was resident before; call in a fresh process."""
    sets, _ = read_sets(size, data)
    model = reward_model(size, sets)
    works = [scoring_inputs(model, cases) for cases in sets.values()]
    METHODS[method](model, ScoringInputs(*(items[:2] for items in works[-1])))  # what a first call loads is not counted
    return peak_of(lambda: [METHODS[method](model, work) for work in works], "cpu") / 1e6


def memory_in_subprocess(method: str, size: Size, data: Path) -> float:
    """Run `memory` in a subprocess, where nothing else has been loaded or freed."""
    options = ["--way", method, "--size", json.dumps(asdict(size)), "--data", str(data)]
    return float(in_fresh_process("scoring", *options))


# ---- report ----


def measure(size: Size, data: Path, device: str = "cpu", budget: float = 600) -> Iterator[dict[str, Any]]:
    """Yield the measurements so far after each set, and with the memory of every method."""
    end, cuda = time.perf_counter() + budget, device == "cuda"
    environment = machine(device, (*VERSIONS, "trl")) | ({} if cuda else {"dtype": "float32"})
    sets, absent = read_sets(size, data)
    model = reward_model(size, sets, device)
    measurements = {
        "size": asdict(size),
        "parameters": sum(weights.numel() for weights in model.model.parameters()),
        "attention": model.model.config._attn_implementation,
        "machine": environment,
        "sets": {},
        "not run": absent,
        "peak MB": {},
    }
    for name, cases in sets.items():
        work = scoring_inputs(model, cases)
        for method in METHODS.values():
            method(model, ScoringInputs(*(items[:2] for items in work)))
        timings = timed(model, work, size.repeats, end)
        measurements["sets"][name] = compared(work, timings, "wall" if cuda else "cpu")
        yield measurements
    for name, method in METHODS.items():
        run = partial(method, model, work)
        measurements["peak MB"][name] = peak_of(run, device) / 1e6 if cuda else memory_in_subprocess(name, size, data)
        yield measurements


def faults(measurements: Mapping[str, Any]) -> list[str]:
    """Return a message for every figure that is out of bounds."""
    messages = []
    for name, comparison in measurements["sets"].items():
        if not comparison["difference"] <= TOLERANCE:
            messages.append(f"{name}: scores differ by {comparison['difference']:.1e}, at most {TOLERANCE:.0e}")
        for method, against in comparison["against"].items():
            ratio = against["ratio"]["median"]
            if not ratio >= LEAST[name]:
                messages.append(f"{name}: {ratio:.2f} times as fast as {method}, at least {LEAST[name]}")
    peaks = measurements["peak MB"]
    messages += [
        f"memory: {peaks['ours']:.1f} MB, {method} {peak:.1f} MB"
        for method, peak in peaks.items()
        if peak < peaks["ours"]
    ]
    return messages


def markdown(measurements: Mapping[str, Any]) -> str:
    """Format the tables as Markdown."""
    lines = [
        "| set, against | ratio | min | max | wall time | bound: padding | sharing | both | largest difference |",
        "|---" * 9 + "|",
    ]
    for name, comparison in measurements["sets"].items():
        for method, against in comparison["against"].items():
            ratio, bounds = against["ratio"], against["bounds"]
            cells = [*ratio.values(), against["ratio of wall time"]["median"], *bounds.values()]
            cells = " | ".join(f"{cell:.2f}" for cell in cells)
            lines.append(f"| {name}, {method} | {cells} | {comparison['difference']:.1e} |")
    lines += [f"| {name} | not run: {why} |" + " |" * 7 for name, why in measurements["not run"].items()]
    lines += ["", "| useful tokens per CPU-second | " + " | ".join(METHODS) + " |", "|---" * (1 + len(METHODS)) + "|"]
    for name, comparison in measurements["sets"].items():
        cells = " | ".join(f"{comparison['useful tokens per second']['cpu'][method]:,.0f}" for method in METHODS)
        lines.append(
            f"| {name}, {comparison['sequences']} sequences, {comparison['tokens']['useful']:,} tokens | {cells} |"
        )
    lines.append("| peak MB | " + " | ".join(f"{peak:.0f}" for peak in measurements["peak MB"].values()) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, size: Size | None = None) -> int:
    """Measure and print; with `--way`, print the peak memory of one method (used in a subprocess)."""
    parser = argument_parser(__doc__, ("--way", "--size"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the benchmarks")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--budget", type=float, default=600, help="seconds after which no round begins")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if options.way is not None:
        print(memory(options.way, Size(**json.loads(options.size)), options.data))
        return 0
    chosen = Size(**json.loads(options.size)) if options.size else ON_A_GPU if options.device == "cuda" else Size()
    size, measurements = size or chosen, {}
    for measurements in measure(size, options.data, options.device, options.budget):
        write(measurements, options.output)
    print(markdown(measurements))
    messages = [] if options.device == "cuda" or options.size else faults(measurements)
    print("\n".join(messages), file=sys.stderr, end="\n" if messages else "")
    return 5 if messages else 0
