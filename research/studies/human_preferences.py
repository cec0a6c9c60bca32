"""Study of cheap reward models on human preferences: cross-validated by prompt, and evaluated on RewardBench."""

import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import GroupKFold

from ...benchmarks.baselines import all_baselines
from ...benchmarks.evaluate import Evaluation, evaluate
from ...benchmarks.report import figure, markdown
from ...benchmarks.scorers import StoredScores
from ...benchmarks.suites.pairs import Pairs, as_cases
from ...benchmarks.suites.rewardbench import rewardbench
from ...judges.types import Case
from ...rm.data.conversation_split import first_turn, normal_prompt
from ...rm.data.pairs import RowReport, load_pairs
from ...rm.types import Example, Messages, PreferencePair, content_hash
from ._runs.worker_processes import in_processes
from ._study import Log, Study

SOURCES = {
    "HH harmless": ["hh_rlhf/harmless_base_test.public.jsonl.gz"],
    "HH helpful": ["hh_rlhf/helpful_rmgallery.public.jsonl.gz"],
    "UltraFeedback": ["ultrafeedback_sample/train.jsonl.gz", "ultrafeedback_sample/eval.jsonl.gz"],
}
REWARDBENCH = "rewardbench_v1/filtered-00000-of-00001.parquet"
FOLDS = 5
KINDS = ("linear", "small LM")
RECIPE = 1  # to be raised when the code that trains or rates changes a number
LIBRARIES = ("torch", "transformers", "scikit-learn")
LINEAR = {"C": 0.3}
SMALL_LM = {
    "hidden": 64,
    "layers": 2,
    "vocabulary": 4096,
    "max_length": 256,
    "epochs": 2,
    "learning_rate": 1e-3,
    "batch": 32,
}


class Job(NamedTuple):
    """Train one model on pairs and rate examples with it; the rewards are stored under the job's content hash."""

    kind: str
    name: str
    train: Sequence[PreferencePair]
    rate: Sequence[Example]
    seed: int
    cache: Path

    @property
    def file(self) -> Path:
        """Return the file of the rewards, named by the hash of settings, data and seed."""
        libraries = [importlib.metadata.version(name) for name in LIBRARIES]
        settings = [LINEAR if self.kind == "linear" else SMALL_LM, RECIPE, libraries]
        pairs = [[pair.prompt, *pair.texts, dict(pair.wins)] for pair in self.train]
        return self.cache / f"{self.kind}-{content_hash([settings, self.seed, pairs, list(self.rate)])}.npy"


class Fold(NamedTuple):
    """Indices of training and held-out pairs."""

    train: np.ndarray
    held_out: np.ndarray


def human_preferences(
    data: Path, cache: Path, *, seed: int = 0, workers: int = 2, rows: int | None = None, log: Log = print
) -> Study:
    """Train the linear reward model and a small causal LM on human preferences, and evaluate them.

    `data` holds `SOURCES` and RewardBench; trained models' rewards are stored in `cache`. Folds are by first user turn.
    `rows` shortens every source and the benchmark, for a dry run.
    """
    suite = rewardbench()
    bench, notes = suite.cases([str(data / REWARDBENCH)])
    pairs, dropped, reports = training_pairs(data, [case.prompt for case in bench], rows)
    bench = bench[:: max(1, len(bench) // rows)] if rows else bench
    log(f"{len(pairs)} training pairs, {len(dropped)} dropped because their prompt is in RewardBench")

    folds = list(_folds(pairs, seed))
    jobs = {kind: _jobs(kind, pairs, folds, bench, seed, cache) for kind in KINDS}
    n_cached = run_jobs([job for of_kind in jobs.values() for job in of_kind], workers, log)
    log("aggregating")
    cases, undecided = as_cases(pairs)
    decided = np.array([pair.chance() != 0.5 for pair in pairs])
    held_out = [as_scorer(kind, cases, _held_out(jobs[kind], folds)[decided]) for kind in KINDS]
    on_bench = [as_scorer(kind, bench, _rewards(jobs[kind][-1])) for kind in KINDS]
    ties = f"{undecided} pairs have equal scores, so no right answer, and are left out."
    evaluations = {
        "held-out": evaluate(Pairs(), cases, [*held_out, *all_baselines(seed)], notes=[ties], seed=seed),
        "rewardbench": evaluate(suite, bench, [*on_bench, *all_baselines(seed)], notes=notes, seed=seed),
    }
    facts = {
        "pairs": len(pairs),
        "prompts": len({first_turn(pair.prompt) for pair in pairs}),
        "dropped_in_rewardbench": [f"{pair.subset} {pair.id}" for pair in dropped],
        "rows": {name: report.as_json() for name, report in reports.items()},
        "models_found_in_the_cache": n_cached,
        "settings": {"linear": LINEAR, "small LM": SMALL_LM, "folds": FOLDS, "seed": seed},
    }
    text = _text(evaluations, facts, reports)
    sources = [str(data / file) for files in (*SOURCES.values(), [REWARDBENCH]) for file in files]
    figures = {name: figure(evaluation.report) for name, evaluation in evaluations.items()}
    return Study(text, sources, figures, evaluations, facts)


# ---- data ----


def training_pairs(
    data: Path, prompts: Sequence[Messages], rows: int | None = None
) -> tuple[list[PreferencePair], list[PreferencePair], dict[str, RowReport]]:
    """Load the pairs of every source, with its name as subset, those dropped for their prompt, and row reports."""
    pairs, reports = [], {}
    for name, files in SOURCES.items():
        loaded, reports[name] = load_pairs([str(data / file) for file in files], on_bad_row="skip")
        pairs += [
            PreferencePair(f"{index}", pair.prompt, pair.chosen, pair.rejected, name, pair.wins)
            for index, pair in enumerate(loaded[:rows])
        ]
    return *without_prompts(pairs, prompts), reports


def without_prompts(
    pairs: Iterable[PreferencePair], prompts: Iterable[Messages]
) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Return (kept, dropped) pairs; a pair is dropped if one of its user turns is a user turn of the prompts."""

    def users(messages: Messages) -> set[str]:
        return {normal_prompt(turn["content"]) for turn in messages if turn["role"] == "user"}

    known = set().union(*(users(prompt) for prompt in prompts))
    remaining: list[PreferencePair] = []
    dropped: list[PreferencePair] = []
    for pair in pairs:
        (dropped if users(pair.prompt) & known else remaining).append(pair)
    return remaining, dropped


def _folds(pairs: Sequence[PreferencePair], seed: int) -> Iterator[Fold]:
    groups = [first_turn(pair.prompt) for pair in pairs]
    for train, held_out in GroupKFold(FOLDS, shuffle=True, random_state=seed).split(groups, groups=groups):
        yield Fold(train, held_out)


# ---- training and rating ----


def _jobs(
    kind: str,
    pairs: Sequence[PreferencePair],
    folds: Sequence[Fold],
    bench: Sequence[Case],
    seed: int,
    cache: Path,
) -> list[Job]:
    """Return a job per fold, which rates its held-out pairs, and one on all pairs, which rates RewardBench."""
    of_folds = [
        Job(
            kind,
            f"{kind}, fold {index} of {FOLDS}",
            [pairs[i] for i in fold.train],
            [example for i in fold.held_out for example in pairs[i].examples],
            seed,
            cache,
        )
        for index, fold in enumerate(folds, start=1)
    ]
    examples = [Example(case.prompt, answer) for case in bench for answer in case.answers]
    return [*of_folds, Job(kind, f"{kind}, all pairs", pairs, examples, seed, cache)]


def as_scorer(name: str, cases: Sequence[Case], rewards: np.ndarray) -> StoredScores:
    """Return a scorer of stored rewards, given in the order of the cases' responses."""
    ends = np.cumsum([len(case.answers) for case in cases])[:-1]
    pieces = np.split(rewards.reshape(-1), ends)
    return StoredScores(name, {case.id: tuple(piece.tolist()) for case, piece in zip(cases, pieces, strict=True)})


def _rewards(job: Job) -> np.ndarray:
    """Load rewards [M, 2], two responses per row."""
    return np.load(job.file, allow_pickle=False).reshape(-1, 2)


def _held_out(jobs: Sequence[Job], folds: Sequence[Fold]) -> np.ndarray:
    """Return rewards [M, 2] of all pairs, each by the model whose training had no pair of its prompt."""
    rewards = np.full((sum(len(fold.held_out) for fold in folds), 2), np.nan)
    for job, fold in zip(jobs, folds, strict=False):  # the last job is the one on all pairs
        rewards[fold.held_out] = _rewards(job)
    return rewards


def run_jobs(jobs: Sequence[Job], workers: int, log: Log) -> int:
    """Run the jobs that are not cached, in `workers` processes of one thread each; return the number of cached jobs."""
    waiting = [job for job in jobs if not job.file.exists()]
    log(f"{len(jobs) - len(waiting)} of {len(jobs)} models are in the cache")
    longest_first = sorted(waiting, key=lambda job: (job.kind != "linear", len(job.train)), reverse=True)
    for name in in_processes(_train_and_rate, longest_first, workers):
        log(f"done: {name}")
    return len(jobs) - len(waiting)


def _train_and_rate(job: Job) -> str:
    model = _linear(job) if job.kind == "linear" else _small_lm(job)
    rewards = model.rate(job.rate)[:, 0]
    job.cache.mkdir(parents=True, exist_ok=True)
    unfinished = job.file.with_suffix(f".{os.getpid()}.npy")
    np.save(unfinished, rewards)
    unfinished.replace(job.file)
    return job.name


def _linear(job: Job):
    from ...rm.kinds.linear.model import new_linear

    return new_linear().fit(job.train, **LINEAR)


def _small_lm(job: Job):
    from ...rm.backbones.loading import small_config, small_tokenizer
    from ...rm.kinds.scalar.model import scalar_from_config
    from ...rm.kinds.scalar.training import ScalarTask, encode_pairs
    from ...rm.losses.bradley_terry import bradley_terry
    from ...rm.training.trainer import RewardArguments, RewardTrainer

    texts = [turn["content"] for pair in job.train for turn in pair.prompt]
    texts += [text for pair in job.train for text in pair.texts]
    tokenizer = small_tokenizer(texts, SMALL_LM["vocabulary"])
    config = small_config(tokenizer, hidden=SMALL_LM["hidden"], layers=SMALL_LM["layers"])
    model = scalar_from_config(config, tokenizer, max_length=SMALL_LM["max_length"], seed=job.seed)
    with TemporaryDirectory() as folder:
        arguments = RewardArguments(
            output_dir=folder,
            num_train_epochs=SMALL_LM["epochs"],
            learning_rate=SMALL_LM["learning_rate"],
            per_device_train_batch_size=SMALL_LM["batch"],
            warmup_steps=10,
            save_strategy="no",
            seed=job.seed,
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=1_000_000,
        )
        rows = encode_pairs(model.encoder, job.train, "overall").rows
        RewardTrainer(model, arguments, ScalarTask(bradley_terry()), rows).train()
    return model


# ---- report ----


def _text(evaluations: dict[str, Evaluation], facts: dict[str, Any], reports: dict[str, RowReport]) -> str:
    bad = ", ".join(f"{name} {len(report.dropped)} of {report.read}" for name, report in reports.items())
    head = [
        "# Cheap reward models on human preferences",
        "",
        f"{facts['pairs']} pairs over {facts['prompts']} prompts from HH (helpful, harmless) and UltraFeedback. Left "
        f"out: {len(facts['dropped_in_rewardbench'])} pairs whose prompt is in RewardBench, and bad rows ({bad}).",
        "",
        f"`linear`: TF-IDF of the answer and its log length, pairwise logistic. `small LM`: a causal LM from scratch "
        f"({SMALL_LM['layers']} layers of width {SMALL_LM['hidden']}, {SMALL_LM['epochs']} epochs). Neither starts "
        "from pretrained weights, so the figures are small; compare them with the baselines.",
        "",
        "The `linear` model never reads the prompt, so on its own data it is the prompt-blind baseline with other "
        "folds.",
        "",
    ]
    titles = {
        "held-out": f"Held-out fifths of the training data ({FOLDS} folds by prompt)",
        "rewardbench": "RewardBench",
    }
    for name, evaluation in evaluations.items():
        body = markdown(evaluation.report).split("\n", 2)[2].replace("\n## ", "\n### ")
        head += [f"## {titles[name]}", "", f"![{titles[name]}]({name}.png)", body]
    return "\n".join(head)
