"""What the verbs do, each a function that a notebook can call as well."""

import importlib.util
import json
import shutil
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from peft import LoraConfig

from ..benchmarks.evaluate import Evaluation, evaluate
from ..benchmarks.nulls import nulls_for
from ..benchmarks.render import figure, markdown, reliability_figure
from ..benchmarks.scorers import RewardScorer, load_stored, open_scorer, short_names
from ..benchmarks.types import Suite
from ..kernels.choose import backend
from ..rm.checkpoint import check_golden, load_reward_model, write_golden
from ..rm.data import RowReport, load_examples, load_pairs
from ..rm.errors import UsageError
from ..rm.models.scalar import ScalarRewardModel, scalar, scalar_from_config
from ..rm.plugins import load
from ..rm.trainer import Encoding, RewardArguments, RewardTrainer, encode_pairs, last_complete_checkpoint
from ..rm.trunks import small_config, small_tokenizer
from ..rm.types import PreferencePair
from .config import DoctorConfig, EvalConfig, ScoreConfig, StudyConfig, TrainConfig
from .ledger import LEADER, Kept, Process, announce, join, process
from .runs import data_hash, partial_folder, replace_file, run_folder, versions, write_json, write_manifest
from .tables import margin, write_items, write_scores

CHECKPOINTS = "checkpoints"
PROGRESS = "progress"


def say(message: str) -> None:
    """Progress goes to stderr; stdout is for results."""
    print(message, file=sys.stderr, flush=True)


# ---- train ----


def train(config: TrainConfig, arguments: RewardArguments) -> dict[str, Any]:
    """Train a reward model of any kind and put its folder in place, checked to give the same scores after loading."""
    output = config.output or arguments.output_dir
    if not output:
        raise UsageError("--output is missing")
    started = time.time()
    recipe = _recipe(config, arguments)
    with run_folder(output, recipe, overwrite=config.overwrite, resume=config.resume, keep=f"{CHECKPOINTS}/*") as work:
        pairs, rows = load_pairs(config.data, on_bad_row=config.on_bad_row)
        eval_pairs, eval_rows = _load_optional(config)
        _tell_rows("data", rows)
        if config.kind == "scalar":
            model, facts = _train_scalar(config, arguments, pairs, eval_pairs, work)
        else:
            model, facts = _train_head(config, pairs)
        model.save(work)
        write_golden(model, [pair.examples[i % 2] for i, pair in enumerate(pairs[: config.golden])], work)
        facts["golden_difference"] = check_golden(load_reward_model(str(work), check=False, **_trust(config)), work)
        facts |= {
            "arguments": arguments.to_sanitized_dict(),
            "contract": model.contract.hash(),
            "rows": rows.as_json(),
            "eval_rows": eval_rows.as_json(),
        }
        write_manifest(work, data=[*config.data, *config.eval_data], seed=arguments.seed, started=started, **facts)
    return {"model": output, "kind": config.kind, "pairs": len(pairs), "contract": model.contract.hash()} | {
        name: value for name, value in facts.items() if name.startswith(("train_", "eval_loss", "eval_accuracy"))
    }


def _recipe(config: TrainConfig, arguments: RewardArguments) -> dict[str, Any]:
    """The settings that decide the result; resuming with others is refused."""
    own = {name: value for name, value in asdict(config).items() if name not in ("resume", "overwrite", "output")}
    defaults = RewardArguments()
    changed = {
        name: value
        for name, value in vars(arguments).items()
        if name in RewardArguments.__dataclass_fields__ and name != "output_dir" and value != getattr(defaults, name)
    }
    data = {source: data_hash(source) for source in [*config.data, *config.eval_data]}
    return json.loads(json.dumps(own | changed | {"data_sha256": data}, default=str))


def _load_optional(config: TrainConfig) -> tuple[list[PreferencePair], RowReport]:
    return load_pairs(config.eval_data, on_bad_row=config.on_bad_row) if config.eval_data else ([], RowReport())


def _tell_rows(name: str, rows: RowReport) -> None:
    if rows.dropped:
        say(f"{name}: {len(rows.dropped)} of {rows.read} rows dropped: {rows.reasons}")


def _trust(config: TrainConfig | EvalConfig | ScoreConfig) -> dict[str, bool]:
    return {"trust_remote_code": True} if config.trust_remote_code else {}


def _train_head(config: TrainConfig, pairs: list[PreferencePair]) -> tuple[Any, dict[str, Any]]:
    """Linear and embedding reward models: fixed features, one convex fit."""
    options: dict[str, Any] = {}
    if config.kind == "embedding":
        options = {"encoder": config.model, "dtype": config.dtype} | _trust(config)
        options |= {"max_length": config.max_length} if config.max_length else {}
    elif config.model or config.lora:
        raise UsageError(f"a {config.kind} reward model has no backbone; leave --model and --lora out")
    fit = {"C": config.inverse_regularization} if config.inverse_regularization else {}
    model = load("rm.models", config.kind)(**options).fit(pairs, objective=config.objective, **fit)
    if config.kind != "embedding":
        return model, {}
    over = model.over_length([example for pair in pairs for example in pair.examples])
    if over:
        say(f"data: {over} of {2 * len(pairs)} sequences exceed {model.contract.max_length} tokens and lose the start")
    return model, {"over_length": over}


def _train_scalar(
    config: TrainConfig,
    arguments: RewardArguments,
    pairs: list[PreferencePair],
    eval_pairs: list[PreferencePair],
    work: Path,
) -> tuple[ScalarRewardModel, dict[str, Any]]:
    if arguments.world_size > 1 or arguments.n_gpu > 1:
        raise UsageError(
            f"train works on one device and sees {max(arguments.world_size, arguments.n_gpu)}; "
            "choose one with CUDA_VISIBLE_DEVICES=0"
        )
    model = build_scalar(config, pairs, arguments.seed)
    encoding = _encode(model, pairs, config, "data")
    eval_rows = _encode(model, eval_pairs, config, "eval_data").rows if eval_pairs else None
    say(f"the first sequence reads: {model.encoder.render(pairs[0].examples[0])[:300]!r}")
    trainer = RewardTrainer(
        model,
        _for_folder(arguments, work / CHECKPOINTS, evaluates=eval_rows is not None),
        load("rm.losses", config.loss)(center=arguments.center_rewards_coefficient),
        encoding.rows,
        eval_rows,
    )
    checkpoint = last_complete_checkpoint(work / CHECKPOINTS) if config.resume else None
    if checkpoint:
        say(f"resuming from {checkpoint.name}")
    result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    facts: dict[str, Any] = {"encoding": encoding.account(), "train_loss": result.training_loss}
    if eval_rows is not None:
        facts |= {
            name: value for name, value in trainer.evaluate().items() if "runtime" not in name and "per_s" not in name
        }
    with open(work / "metrics.jsonl", "w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(line) + "\n" for line in trainer.state.log_history)
    return model, facts


def build_scalar(config: TrainConfig, pairs: list[PreferencePair], seed: int) -> ScalarRewardModel:
    """The backbone that was named with a fresh head, or a small causal LM from scratch when none was."""
    lora = None
    if config.lora:
        targets: Any = config.lora_target_modules
        lora = LoraConfig(
            r=config.lora_r,
            lora_alpha=config.lora_alpha,
            lora_dropout=config.lora_dropout,
            target_modules=targets[0] if targets == ["all-linear"] else targets,
        )
    if config.model:
        options = {"max_length": config.max_length, "chat_template": config.chat_template, "dtype": config.dtype}
        return scalar(config.model, fresh=True, lora=lora, seed=seed, **options, **_trust(config))
    if config.lora:
        raise UsageError("--lora adapts a backbone; name one with --model, or leave --lora out")
    texts = [turn["content"] for pair in pairs for turn in pair.prompt]
    texts += [answer for pair in pairs for answer in (pair.chosen, pair.rejected)]
    tokenizer = small_tokenizer(texts, config.small_vocabulary)
    shape = small_config(tokenizer, hidden=config.small_hidden, layers=config.small_layers)
    model = scalar_from_config(shape, tokenizer, max_length=config.max_length, seed=seed)
    size = sum(parameter.numel() for parameter in model.model.parameters())
    say(
        f"no --model: built a small {shape.model_type} from scratch with {size:,} random weights and "
        f"{len(tokenizer):,} tokens learnt from the training text; name a pretrained backbone with --model "
        "for a useful reward model"
    )
    return model


def _encode(model: ScalarRewardModel, pairs: list[PreferencePair], config: TrainConfig, name: str) -> Encoding:
    encoding = encode_pairs(model.encoder, pairs, config.objective, config.on_long)
    if encoding.over_length:
        verb = "truncated" if config.on_long == "truncate" else "left out"
        say(f"{name}: {encoding.over_length} of {len(pairs)} pairs exceed {encoding.limit} tokens and were {verb}")
    if encoding.identical or encoding.unlabelled:
        say(
            f"{name}: {encoding.identical} pairs identical after truncation, {encoding.unlabelled} unlabelled, left out"
        )
    return encoding


def _for_folder(arguments: RewardArguments, folder: Path, *, evaluates: bool) -> RewardArguments:
    """The arguments for this folder; with evaluation data the result is the checkpoint of the lowest loss on them."""
    changes: dict[str, Any] = {"output_dir": str(folder)}
    if evaluates and arguments.save_strategy != "no":
        by = arguments.save_strategy if arguments.save_strategy == "epoch" else "steps"
        changes |= {
            "eval_strategy": by,
            "save_steps": arguments.eval_steps if by == "steps" else arguments.save_steps,
            "load_best_model_at_end": True,
            "metric_for_best_model": "loss",
            "greater_is_better": False,
        }
    return replace(arguments, **changes)


# ---- evaluate, score ----


def run_eval(config: EvalConfig) -> dict[str, Any]:
    """Judge a suite with the models, the references and every null, and write the run folder."""
    started, here = time.time(), process(config.processes)
    options: dict[str, Any] = {"objective": config.objective or "overall"} if config.benchmark == "pairs" else {}
    suite = load("benchmarks.suites", config.benchmark)(on_bad_row=config.on_bad_row, **options)
    sources = config.data or [suite.hub]
    if not all(sources):
        raise UsageError(f"--data is missing; '{config.benchmark}' has no data set of its own on the Hub")
    if not here.leads:
        return _follow(config, suite, sources, here)
    recipe = {name: value for name, value in asdict(config).items() if name not in ("resume", "overwrite", "processes")}
    recipe["data_sha256"] = {source: data_hash(source) for source in [*sources, *config.scores]}
    with run_folder(
        config.output, recipe, overwrite=config.overwrite, resume=config.resume, keep=f"{PROGRESS}/*/*.jsonl"
    ) as work:
        announce(work, here)
        cases, notes = suite.cases(sources)
        models = _open_models(config)
        stored = [load_stored(source) for source in config.scores]
        notes += [note for scores in stored for note in scores.notes(cases)]
        evaluation = evaluate(
            suite,
            cases,
            [*_kept(models, work, here), *stored, *nulls_for(cases, config.seed)],
            notes=notes,
            samples=config.samples,
            seed=config.seed,
            progress=lambda name: say(f"scoring {len(cases)} cases with {name}"),
        )
        write_evaluation(evaluation, work)
        contracts = {model.name: model.contract for model in models}
        write_manifest(work, data=sources, seed=config.seed, started=started, suite=suite.name, contracts=contracts)
        shutil.rmtree(work / PROGRESS, ignore_errors=True)
        (work / LEADER).unlink()
    say(markdown(evaluation.report))
    return {
        "run": config.output,
        "suite": suite.name,
        "cases": len(cases),
        "processes": here.world,
        "overall": {row.scorer: row.overall._asdict() for row in evaluation.report.rows},
    }


def _open_models(config: EvalConfig) -> list[RewardScorer]:
    reading: dict[str, Any] = {"objective": config.objective, "kind": config.read_as} | _trust(config)
    reading |= {"reference": config.reference_policy} if config.reference_policy else {}
    scorers = [open_scorer(name, **reading) for name in config.model]
    scorers += [open_scorer(name, role="reference") for name in config.reference]
    short_names(scorers)
    return scorers


def _kept(models: list[RewardScorer], work: Path, here: Process) -> list[Kept]:
    return [Kept(model, work / PROGRESS / f"{place:03d}", here) for place, model in enumerate(models)]


def _follow(config: EvalConfig, suite: Suite, sources: list[str], here: Process) -> dict[str, Any]:
    """A process that does not lead makes its share of the models' judgments and is done."""
    work = partial_folder(Path(config.output).absolute())
    join(work, here)
    cases, _ = suite.cases(sources)
    for kept in _kept(_open_models(config), work, here):
        kept.work(cases)
    return {"run": config.output, "rank": here.rank, "processes": here.world}


def write_evaluation(evaluation: Evaluation, folder: Path) -> None:
    """Report, figure, summary, and every case and score as Parquet."""
    (folder / "report.md").write_text(markdown(evaluation.report), encoding="utf-8")
    save_figure(figure(evaluation.report), folder / "report.png")
    if margins := _model_margins(evaluation):
        save_figure(reliability_figure(margins), folder / "calibration.png")
    write_json(folder / "summary.json", asdict(evaluation.report))
    write_items(evaluation, folder)
    write_scores(evaluation, folder)


def _model_margins(evaluation: Evaluation) -> dict[str, np.ndarray]:
    """Every model's margins, for its calibration."""
    models = [row.scorer for row in evaluation.report.rows if row.role == "model" and row.scored]
    return {
        name: np.array(
            [
                margin(c.best, j.scores)
                for c, j in zip(evaluation.cases, evaluation.judgments[name], strict=True)
                if j.scores
            ]
        )
        for name in models
    }


def save_figure(drawing: Figure, path: Path) -> None:
    """The same figure, the same bytes."""
    drawing.savefig(path, dpi=150, metadata={"Software": None})


def run_score(config: ScoreConfig) -> dict[str, Any]:
    """Rewards of every conversation in a file."""
    if Path(config.output).exists() and not config.overwrite:
        raise UsageError(
            f"{config.output} exists already; name another file with --output, or replace it with --overwrite"
        )
    model = load_reward_model(config.model, check=config.check, **_trust(config))
    named, rows = load_examples(config.data, on_bad_row=config.on_bad_row)
    _tell_rows("data", rows)
    rewards = model.rate([example for _, example in named])
    columns = {"id": [name for name, _ in named]}
    columns |= {name: rewards[:, k].tolist() for k, name in enumerate(model.contract.objectives)}
    replace_file(Path(config.output), lambda path: _write_columns(columns, path, config.output.endswith(".parquet")))
    return {
        "scores": config.output,
        "rows": len(named),
        "dropped": len(rows.dropped),
        "contract": model.contract.hash(),
    }


def _write_columns(columns: dict[str, list], path: Path, parquet: bool) -> None:
    if parquet:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path)
    else:
        lines = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


# ---- studies ----


def run_study(config: StudyConfig) -> dict[str, Any]:
    """Run a study and write what it returns; each evaluation gets a folder that `inspect` opens."""
    started = time.time()
    study = load("benchmarks.studies", config.name)
    data = Path(config.data)
    if not data.is_dir():
        raise UsageError(f"no folder {data}; give the one that holds the study's data with --data")
    options = {"seed": config.seed, "workers": config.workers, "rows": config.rows}
    with run_folder(config.output, asdict(config), overwrite=config.overwrite) as work:
        found = study(data, Path(config.cache).expanduser() / config.name, **options, say=say)
        (work / "report.md").write_text(found.text, encoding="utf-8")
        for name, drawing in found.figures.items():
            save_figure(drawing, work / f"{name}.png")
        for name, evaluation in found.evaluations.items():
            (work / name).mkdir()
            write_evaluation(evaluation, work / name)
        write_manifest(work, data=found.sources, seed=config.seed, started=started, study=config.name, **found.facts)
    say(found.text)
    overall = {
        name: {row.scorer: row.overall._asdict() for row in evaluation.report.rows}
        for name, evaluation in found.evaluations.items()
    }
    return {"run": config.output, "study": config.name, "seconds": round(time.time() - started, 1), "overall": overall}


# ---- doctor ----


def doctor(_config: DoctorConfig) -> dict[str, Any]:
    """Versions, devices, and which extras are there."""
    devices = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
    facts = {
        "versions": versions(),
        "python": sys.version.split()[0],
        "devices": devices or ["cpu"],
        "threads": torch.get_num_threads(),
        "kernels": backend(),
        "extras": {
            name: importlib.util.find_spec(name) is not None for name in ("triton", "vllm", "wandb", "playwright")
        },
    }
    for name, value in facts.items():
        say(f"{name:>10}  {value}")
    return facts
