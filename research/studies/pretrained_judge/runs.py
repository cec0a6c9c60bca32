"""Jobs of the study: a judge after critiques, after the verdict reward, and each one's judgments of the test."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....apps.api import judge, train_judge
from ....judges.cdrrm.training import SupervisedSettings, train
from ....judges.kinds._comparison import comparison_prompt, orders_of
from ....rm.backbones.loading import load_causal_lm, load_tokenizer
from ....rm.errors import CheckFailed
from .._runs.job_cache import Arrays, Job
from .._runs.saved_models import model_folder
from .texts import Pair, Trace, load_texts

LABELS = ("A", "B")
MAX_TOKENS = 96
DTYPE = "bfloat16"


@dataclass(frozen=True)
class Critiqued(Job):
    """SmolLM2 after supervised training on Auto-J's critiques in both orders of each pair."""

    texts: str
    model: str
    seed: int
    epochs: float

    def __str__(self) -> str:
        return "training on critiques"

    def folder(self, cache: Path) -> Path:
        """Return the folder of the model."""
        return self.file(cache).with_suffix("")

    def work(self, cache: Path) -> Arrays:
        """Train and save it; return the number of conversations and seconds."""
        started, source = time.time(), model_folder(self.model)
        records = [record for trace in load_texts(cache, self.texts).traces for record in conversations(trace)]
        how = SupervisedSettings(
            epochs=self.epochs, learning_rate=1e-4, batch=2, accumulate=4, max_length=1024, lora_rank=16, seed=self.seed
        )
        tokenizer = load_tokenizer(source)
        train(load_causal_lm(source, tokenizer, dtype=DTYPE), records, self.folder(cache), how, tokenizer)
        return {"conversations": np.array(len(records)), "seconds": np.array(time.time() - started)}


def conversations(trace: Trace) -> list[dict[str, Any]]:
    """Return the requests of the judge in both orders, each with the reply to learn: first sentences and a verdict."""
    case = Pair(trace.query, trace.responses, trace.better).case(trace.query[:40])
    prompt = comparison_prompt(ties=False)
    records = []
    for order in orders_of(case):
        reasoning = " ".join(f"{label}: {trace.critiques[index]}" for label, index in zip(LABELS, order, strict=True))
        reply = {"reasoning": reasoning, "winner": LABELS[order.index(trace.better)]}
        messages = [dict(turn) for turn in prompt.ask(case, order).messages]
        content = json.dumps(reply, ensure_ascii=False)
        records.append({"prompt": messages, "completion": [{"role": "assistant", "content": content}]})
    return records


@dataclass(frozen=True)
class Rewarded(Job):
    """That judge after policy training on the verdict reward; its run folder is beside the result."""

    start: Critiqued
    steps: int

    def __str__(self) -> str:
        return f"{self.steps} steps of the verdict reward"

    def folder(self, cache: Path) -> Path:
        """Return the run folder."""
        return self.file(cache).with_suffix("")

    def work(self, cache: Path) -> Arrays:
        """Train it; return the reward of every step, NaN if nothing was learned from it."""
        started, pairs = time.time(), load_texts(cache, self.start.texts).training
        with suppress(CheckFailed):  # a judge that learned nothing is a result, and has no folder
            train_judge(
                [rows_of(pair, index) for index, pair in enumerate(pairs)],
                base=str(self.start.folder(cache)),
                output=str(self.folder(cache)),
                stage="rl",
                lora=True,
                dtype=DTYPE,
                learning_rate=1e-4,
                lr_scheduler_type="constant",
                num_generations=8,
                per_device_train_batch_size=4,
                gradient_accumulation_steps=2,
                max_completion_length=MAX_TOKENS,
                max_steps=self.steps,
                save_strategy="no",
                disable_tqdm=True,
                use_cpu=True,
                seed=self.start.seed,
                overwrite=True,
            )
        file, rewards = self.folder(cache) / "rl" / "steps.jsonl", [np.nan]
        if file.exists():
            lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
            rewards = [row["reward"] for row in lines if "reward" in row]
        return {"reward": np.array(rewards, float), "seconds": np.array(time.time() - started)}


def source_of(judge: Critiqued | Rewarded, cache: Path) -> str:
    """Return the folder of a judge's weights; one that learned nothing from the reward is the one it started from."""
    if isinstance(judge, Critiqued):
        return str(judge.folder(cache))
    trained = judge.folder(cache) / "judge"
    return str(trained if trained.exists() else judge.start.folder(cache))


def rows_of(pair: Pair, index: int) -> dict[str, Any]:
    """Return a pair as a row of cases."""
    return {"id": f"{index}", "prompt": pair.prompt, "answers": list(pair.responses), "best": [pair.better]}


@dataclass(frozen=True)
class Judged(Job):
    """Judgments of the test pairs in both orders by a judge, or by the model that it starts from (None)."""

    texts: str
    model: str
    judge: Critiqued | Rewarded | None

    def __str__(self) -> str:
        return f"judgments after {self.judge}" if self.judge else "judgments of the start model"

    def work(self, cache: Path) -> Arrays:
        """Return for each case whether a verdict was read and its credit, and the flip rate of read pairs."""
        source = source_of(self.judge, cache) if self.judge else model_folder(self.model)
        pairs, output = load_texts(cache, self.texts).test, self.file(cache).with_suffix("")
        judge(
            [rows_of(pair, index) for index, pair in enumerate(pairs)],
            output=str(output),
            local=[source],
            dtype=DTYPE,
            kind="pairwise",
            max_tokens=MAX_TOKENS,
            batch_size=24,
            overwrite=True,
        )
        (facts,) = json.loads((output / "manifest.json").read_text(encoding="utf-8"))["judges"].values()
        names = ("cases", "answered", "right", "asked_in_both_orders", "flip_rate", "first_position_rate")
        return {name: np.array(np.nan if facts[name] is None else facts[name], float) for name in names}
