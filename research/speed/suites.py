"""CPU-seconds and peak memory of `rewardlab eval` on suites of their published sizes, beside the model.

The rows are synthetic, in the suites' formats: words by Zipf's law, so that a response has about as many distinct word
pairs as a real one. The scorer is a function that returns at once; all baselines run.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ._scripts import argument_parser, machine, write

SCORER = "def reward(completions):\n    return [float(len(completion) % 97) for completion in completions]\n"
WORDS, EXPONENT = 120_000, 1.05
SECTIONS = ("Helpfulness/Open QA", "Harmlessness/S1")
REWARDBENCH = ("alpacaeval-easy", "mt-bench-hard", "xstest-should-refuse", "math-prm", "hep-python")
Row = dict[str, Any]


class Texts:
    """Random texts; the length in words is log-normal with a median of 180."""

    def __init__(self, seed: int = 0):
        self.random = np.random.default_rng(seed)
        self.cumulative = np.cumsum(1 / np.arange(1, WORDS + 1) ** EXPONENT)
        syllables = np.array([first + second for first in "bcdfghjklmnprstvwz" for second in "aeiou"])
        self.words = ["".join(self.random.choice(syllables, size)) for size in self.random.integers(1, 5, WORDS)]

    def text(self, words: int | None = None) -> str:
        """Return a text of `words` words, or of a random length."""
        words = words or int(np.clip(self.random.lognormal(5.2, 0.7), 10, 900))
        drawn = self.random.random(words) * self.cumulative[-1]
        return " ".join(self.words[index] for index in np.searchsorted(self.cumulative, drawn))

    def texts(self, number: int) -> list[str]:
        """Return texts of random lengths."""
        return [self.text() for _ in range(number)]


def rmb(texts: Texts) -> Iterator[Row]:
    """Yield 12,646 pairs, four of each prompt, and 3,786 lists of five."""
    for index in range(12_646):
        if index % 4 == 0:
            prompt = [{"role": "user", "content": f"{texts.text(25)} {index}"}]
        chosen, rejected = ({"answer": text, "llm_name": "m"} for text in texts.texts(2))
        path = f"Pairwise_set/{SECTIONS[index % 2]}"
        of_pair = {"pair_uid": f"p{index}", "chosen": chosen, "reject": rejected}
        yield {"category_path": path, "conversation_input": prompt, **of_pair}
    for index in range(3_786):
        best, *others = ({"answer": text, "llm_name": "m"} for text in texts.texts(5))
        prompt = [{"role": "user", "content": f"{texts.text(25)} {index}"}]
        path = f"BoN_set/{SECTIONS[index < 1677]}"
        of_list = {"bon_uid": f"b{index}", "bon_best": best, "loser_list": others}
        yield {"category_path": path, "conversation_input": prompt, **of_list}


def rm_bench(texts: Texts) -> Iterator[Row]:
    """Yield 1,327 prompts with three chosen and three rejected responses."""
    for index in range(1_327):
        responses = texts.texts(6)
        domain = ("chat", "code", "math", "safety-refuse", "safety-response")[index % 5]
        of_item = {"chosen": responses[:3], "rejected": responses[3:], "domain": domain}
        yield {"id": index, "prompt": f"{texts.text(25)} {index}", **of_item}


def rewardbench(texts: Texts) -> Iterator[Row]:
    """Yield 2,985 pairs."""
    for index in range(2_985):
        chosen, rejected = texts.texts(2)
        of_pair = {"chosen": chosen, "rejected": rejected, "subset": REWARDBENCH[index % len(REWARDBENCH)]}
        yield {"id": index, "prompt": f"{texts.text(25)} {index}", **of_pair}


SUITES: dict[str, Callable[[Texts], Iterator[Row]]] = {"rewardbench": rewardbench, "rm_bench": rm_bench, "rmb": rmb}


def measure(suite: str, folder: Path, rows: int | None = None) -> dict[str, float]:
    """Evaluate a suite in a fresh process; return its CPU-seconds and its peak memory in MB."""
    data, scorer = folder / f"{suite}.jsonl", folder / "scorer.py"
    scorer.write_text(SCORER, encoding="utf-8")
    with data.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in islice(SUITES[suite](Texts()), rows))
    run = ["eval", "--benchmark", suite, "--model", f"{scorer}:reward", "--data", str(data)]
    command = [sys.executable, "-m", f"{__name__.partition('.')[0]}.apps.cli", *run, "--output", str(folder / suite)]
    evaluation = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert evaluation.stderr is not None
    messages = evaluation.stderr.read()
    _, status, usage = os.wait4(evaluation.pid, 0)
    if status:
        raise RuntimeError(f"the evaluation of {suite} failed: {messages[-2000:]}")
    return {"cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1), "peak_mb": round(usage.ru_maxrss / 1024)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the suites and print a line for each."""
    parser = argument_parser(__doc__)
    parser.add_argument("--suites", nargs="+", choices=[*SUITES], default=[*SUITES])
    parser.add_argument("--rows", type=int, help="at most this many rows of each suite")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    results: dict[str, list[dict[str, float]]] = {suite: [] for suite in options.suites}
    for run, suite in ((run, suite) for run in range(options.runs) for suite in options.suites):
        with tempfile.TemporaryDirectory() as folder:
            results[suite].append(measure(suite, Path(folder), options.rows))
        measured = results[suite][run]
        print(f"{suite}: {measured['cpu_seconds']} CPU-seconds, at most {measured['peak_mb']} MB", flush=True)
        environment = machine("cpu", ("numpy", "scipy", "scikit-learn")) | {"dtype": "float64"}
        write({"machine": environment, "suites": results}, options.output)
