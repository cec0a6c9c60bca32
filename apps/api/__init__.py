"""The Python API: the command line's verbs as functions with typed results.

>>> import rewardlab as rl
>>> rl.plan("7b", gpus=8, lora_r=16, batch=2)["fits"]
True
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...rm.errors import CheckFailed, UsageError
from ...rm.io.checked_files import from_json, from_json_lines
from ...rm.types import RewardModel
from ..commands.sample.settings import SELECTIONS
from ..runs.run_folder import MANIFEST
from . import results
from .calls import add_verb_settings, call, plain_value, python_setting_names
from .inputs import FilePath, Rows, conversation_rows, data_source, path_of, prompt_rows, scratch_folder, write_rows

__all__ = [
    "compare",
    "decode",
    "evaluate",
    "judge",
    "label",
    "lint",
    "load",
    "plan",
    "reinforce",
    "sample",
    "score",
    "train",
    "train_judge",
]

Model = FilePath | RewardModel | Callable[..., Any]
"""A reward model to score with: its folder or Hub id, a loaded model, or a function of the completions."""


def load(path: FilePath, *, check: bool = True, **options: Any) -> results.LoadedModel:
    """Load a reward model from a folder, or from the Hub as a model of kind `scalar`.

    With `check`, raise `CheckFailed` if the weights no longer reproduce the golden scores in the folder.

    >>> rl.load("runs/rm").rate(["How do I water a fern?"], ["With rain water."])   # doctest: +SKIP
    array([[1.27]])
    """
    with python_setting_names():
        model = results.LoadedModel(path, check=check, **options)
        _ = model.model
    return model


@add_verb_settings("train")
def train(data: Rows, *, output: FilePath, model: FilePath | None = None, **settings: Any) -> results.TrainedModel:
    """Train a reward model and return it.

    `data` is one or more files, or rows with `prompt`, `chosen` and `rejected`. Other keyword arguments are settings of
    `rewardlab train`, which include Transformers' `TrainingArguments`.
    """
    with scratch_folder() as scratch:
        settings |= _data_sources(data, settings, scratch, by_objective=True)
        facts = call("train", settings | {"output": output, "model": model})
    loading = {"trust_remote_code": True} if settings.get("trust_remote_code") else {}
    return results.TrainedModel(output, facts, **loading)


@add_verb_settings("score")
def score(
    model: FilePath | RewardModel,
    data: Rows | None = None,
    *,
    prompts: Sequence[Any] | None = None,
    completions: Sequence[Any] | None = None,
    output: FilePath | None = None,
    **settings: Any,
) -> results.Scores:
    """Return the rewards of conversations in `data`, or of `completions` to `prompts`."""
    with scratch_folder() as scratch:
        if data is not None and (prompts is not None or completions is not None):
            raise UsageError("score takes data, or prompts and completions, but got both; remove one of them")
        if callable(model) and path_of(model) is None:
            raise UsageError("score takes a reward model, got a function; call it, or give it to evaluate")
        if prompts is not None:
            data = conversation_rows(prompts, completions if completions is not None else [])
        file = output or scratch / "scores.jsonl"
        facts = call("score", {"model": model, "data": data_source(data, scratch), "output": file} | settings)
        rows = _table_rows(Path(file))
    return results.Scores(
        rows, Path(output) if output else None, f"Rewards by {plain_value(model)}", omitted=facts["omitted"]
    )


@add_verb_settings("eval")
def evaluate(
    model: Model | Sequence[Model] | None = None,
    data: Rows | None = None,
    *,
    benchmark: str = "pairs",
    output: FilePath | None = None,
    **settings: Any,
) -> results.Evaluation:
    """Evaluate reward models and baselines on a benchmark. Without `output` the run folder is temporary."""
    return _run_evaluation("eval", {"model": model, "benchmark": benchmark} | settings, data, output)


@add_verb_settings("judge")
def judge(data: Rows | None = None, *, output: FilePath | None = None, **settings: Any) -> results.Evaluation:
    """Evaluate language models as judges of cases. Without `output` the run folder is temporary.

    Raise `UsageError` for `audit`, `dry_run` and `fit_route`, whose result is not an evaluation.
    """
    if others := [name for name in ("audit", "dry_run", "fit_route") if settings.get(name)]:
        raise UsageError(f"{others[0]} returns no evaluation; use the command `rewardlab judge` for it")
    return _run_evaluation("judge", settings, data, output)


@add_verb_settings("judge train")
def train_judge(data: Rows, *, base: FilePath, output: FilePath, **settings: Any) -> results.TrainedJudge:
    """Train a generative judge on pairs by GRPO with the verdict reward. `settings` include TRL's `GRPOConfig`.

    The result can be used as the path of the weights: `judge(test, local=[trained], kind="generative")`.
    """
    with scratch_folder() as scratch:
        sources = {"data": data_source(data, scratch, "data")}
        facts = call("judge train", sources | {"base": base, "output": output} | settings)
    return results.TrainedJudge(facts, Path(output), "Trained judge")


def _run_evaluation(
    verb: str, settings: Mapping[str, Any], data: Rows | None, output: FilePath | None
) -> results.Evaluation:
    from ..runs.summaries import read_report

    if output:
        folder, temporary = Path(output), None
    else:
        temporary = tempfile.TemporaryDirectory()
        folder = Path(temporary.name) / results.RUN
    with scratch_folder() as scratch:
        call(verb, {**settings, "data": data_source(data, scratch), "output": folder})
    return results.Evaluation(read_report(folder), folder if output else None, temporary)


@add_verb_settings("compare")
def compare(first: FilePath, second: FilePath, **settings: Any) -> results.Comparison:
    """Compare two runs of `evaluate` or `judge` on their common cases: the second minus the first.

    Raise `CheckFailed` if a score drops by more than the rules in `gate` allow. `output` is a folder for the result.
    """
    from ..commands.compare.run import checked_comparison

    if settings.get("runs"):
        raise UsageError("compare takes both runs as first and second; leave runs out")
    return results.Comparison(call("compare", {"runs": [first, second]} | settings, checked_comparison))


@add_verb_settings("decode")
def decode(
    model: FilePath | Mapping[str, FilePath] | None = None,
    prompts: Sequence[Any] = (),
    *,
    preference: Mapping[str, float] | str | None = None,
    weight: float = 1.0,
    output: FilePath | None = None,
    **settings: Any,
) -> results.Decoded:
    """Decode prompts with a base model and guides: one autoregressive reward model, or one for each objective.

    `model` is the guide's folder, or a mapping objective -> folder. `base` is the base model, required if the guide's
    folder does not name one. `weight` is the guidance weight. The engine that reads the fewest weights is chosen.
    """
    guide = {"arm": model} if model is not None else {}
    has_prompts = not isinstance(prompts, tuple) or len(prompts) > 0
    for name, stated, other in (("prompts", has_prompts, "data"), ("model", model is not None, "arm")):
        if stated and settings.get(other) is not None:
            raise UsageError(f"decode takes {name} or {other}, got both; leave one out")
    with scratch_folder() as scratch:
        data = data_source(settings.pop("data", None), scratch) or write_rows(
            prompt_rows(prompts), scratch / "prompts.jsonl"
        )
        file = output or scratch / "completions.jsonl"
        call("decode", guide | {"data": data, "preference": preference, "weight": weight, "output": file} | settings)
        rows = _table_rows(Path(file))
    traces = ("tokens", "pieces", "base", "mixed", "kl", "entropy", "guide", *rows[0].keys() - _SHOWN)
    return results.Decoded(rows, Path(output) if output else None, "Guided decoding", traces)


_SHOWN = {"id", "preference", "weight", "prompt", "completion", "finished"}


@add_verb_settings("lint")
def lint(data: Rows, **settings: Any) -> results.LintReport:
    """Check preference data and return the findings by row. Findings do not raise an error."""
    with scratch_folder() as scratch:
        folder = Path(settings.pop("output", None) or scratch / "lint")
        with suppress(CheckFailed):  # findings are the result here
            call("lint", {"data": data_source(data, scratch), "output": folder} | settings)
        rows = [{"location": row.pop("place"), **row} for row in _table_rows(folder / "findings.jsonl")]
        leaks = from_json((folder / MANIFEST).read_text(encoding="utf-8"))["leaks"]
        return results.LintReport(rows, title="; ".join(("Findings", *leaks[:1])), leaks=leaks)


@add_verb_settings("plan")
def plan(model: FilePath, **settings: Any) -> results.MemoryPlan:
    """Compute how much memory each GPU needs for a job and how long the job takes, without loading weights."""
    facts = call("plan", {"model": model} | settings)
    folder = Path(settings["output"]) if settings.get("output") else None
    return results.MemoryPlan(facts, folder, f"{facts['model']}: {facts['job']} on {facts['gpus']} x {facts['gpu']}")


@add_verb_settings("rl")
def reinforce(
    model: FilePath,
    data: Rows,
    *,
    reward: Model | Sequence[Model] | Mapping[str, Model],
    output: FilePath,
    **settings: Any,
) -> results.TrainedPolicy:
    """Train a policy on rewards (GRPO, PPO and others by name). `settings` include those of TRL's `GRPOConfig`.

    A reward is a reward model's path or a function `(prompts, completions, **columns) -> list[float | None]`. Give
    several rewards as a list, or as a mapping name -> reward. Raise `CheckFailed` if the policy could not learn because
    all rewards were missing or equal. The run folder then states the cause.
    """
    with scratch_folder() as scratch:
        settings |= _data_sources(data, settings, scratch)
        facts = call("rl", settings | {"model": model, "reward": plain_value(reward), "output": output})
    return results.TrainedPolicy(facts, Path(output), "Trained policy")


@add_verb_settings("sample")
def sample(
    data: Rows,
    *,
    reward: Model | Sequence[Model] | Mapping[str, Model],
    output: FilePath | None = None,
    **settings: Any,
) -> results.Sampled:
    """Sample completions, and return those that the first method in `select` selects. Give `reward` as in `reinforce`.

    `output` is a folder for the rows of every selection, its random control, and all completions with their rewards.
    """
    with scratch_folder() as scratch:
        source = data_source(data, scratch, "data")
        folder = Path(output or scratch / results.RUN)
        facts = call("sample", {"data": source, "reward": plain_value(reward), "output": folder} | settings)
        first = next(name for name in facts if name in SELECTIONS)
        rows = _table_rows(folder / f"{first}.jsonl")
    return results.Sampled(rows, Path(output) if output else None, f"Sampled {first}", facts=facts)


@add_verb_settings("label")
def label(
    data: Rows,
    *,
    reward: Model | Sequence[Model] | Mapping[str, Model],
    output: FilePath | None = None,
    **settings: Any,
) -> results.Labelled:
    """Label responses: preference pairs, or scores if no prompt has two responses. Give `reward` as in `reinforce`.

    `output` is a folder for scores and pairs.
    """
    with scratch_folder() as scratch:
        source = data_source(data, scratch, "data")
        folder = Path(output or scratch / results.RUN)
        facts = call("label", {"data": source, "reward": plain_value(reward), "output": folder} | settings)
        pairs = folder / "pairs.jsonl"
        rows = _table_rows(pairs if pairs.exists() else folder / "scores.jsonl")
    return results.Labelled(rows, Path(output) if output else None, "Labels", facts=facts)


def _data_sources(data: Rows, settings: Mapping[str, Any], scratch: Path, **options: bool) -> dict[str, Any]:
    """Return the paths of the training data and, if the settings name evaluation data, of the evaluation data."""
    sources = {"data": data} | {name: settings[name] for name in ("eval_data",) if name in settings}
    return {name: data_source(source, scratch, name, **options) for name, source in sources.items()}


def _table_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines or Parquet file."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path).to_pylist()
    return from_json_lines(path.read_text(encoding="utf-8"))
