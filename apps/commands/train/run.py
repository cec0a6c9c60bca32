"""`rewardlab train`: every kind of reward model from preference data to a checked folder."""

import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ....rm.backbones.loading import load_tokenizer
from ....rm.backbones.tokenization import check_renders
from ....rm.contract.golden_scores import check_golden, load_reward_model, write_golden
from ....rm.data.labelling import labelled_for
from ....rm.data.pairs import RowReport, load_pairs, refuse_bad_rows
from ....rm.data.scored_rows import Judged, load_judged
from ....rm.data.solutions import load_solutions
from ....rm.data.streaming import PairStream, StreamPosition
from ....rm.errors import UsageError
from ....rm.io.sharded_weights import is_sharded, rank_0_folder
from ....rm.registry import load
from ....rm.training.checkpointing import last_complete_checkpoint
from ....rm.training.learning_signal import check_fitted
from ....rm.training.trainer import RewardArguments, RewardTrainer
from ....rm.types import OVERALL, Example, PreferencePair
from ...runs.processes import Process, broadcast_from_rank_0, shared_run_folder, trained_by
from ...runs.run_folder import CHECKPOINTS, data_hash, log, log_rows, training_recipe, trust, write_manifest, write_rows
from ...runs.stop_training import train_until_asked
from ...settings.fields import changed_settings
from .ensembles import make_boosted, make_ensemble
from .guides import prepare_guide
from .kind_settings import BY_GRADIENT, FITTED, check_read
from .latent import prepare_latent
from .latent_settings import LatentConfig
from .process import prepare_process, shown_solutions
from .process_settings import ProcessConfig
from .scalar import Prepared, finish_scalar, prepare_scalar, shown
from .settings import GuideConfig, TrainConfig, with_objectives
from .several_settings import SeveralConfig

FREE = ("resume", "overwrite", "output")
"""Settings that may change when a run is resumed; `processes` may not, because a step's batch is of all of them."""


def train(
    config: TrainConfig,
    guide: GuideConfig,
    several: SeveralConfig,
    steps: ProcessConfig,
    latent: LatentConfig,
    arguments: RewardArguments,
) -> dict[str, Any]:
    """Train a reward model of any kind and save its folder, after checking that loading it gives the same scores."""
    output = config.output or arguments.output_dir
    here = trained_by(config.processes, "train", arguments)
    if here.world > 1 and config.kind not in BY_GRADIENT:
        raise UsageError(f"a {config.kind} reward model is trained by one process; leave --processes out")
    config, guide = with_objectives(config, guide)
    names = guide.objectives
    several.validate(config.kind, len(names))
    steps.validate(config.kind)
    latent.validate(config.kind)
    check_read(config, guide, arguments)
    if config.kind == "ensemble":
        return make_ensemble(config, several, output)
    if config.kind == "boosted":
        return make_boosted(config, several, output)
    if config.kind == "autoregressive":
        guide.validate()
    if config.stream:
        check_stream(config, guide, several, arguments)
    if config.model and config.kind in BY_GRADIENT:  # before all data are read
        check_renders(load_tokenizer(config.model, chat_template=config.chat_template, **trust(config)))
    started = time.time()
    recipe = _recipe(config, guide, several, arguments, changed_settings(steps) | changed_settings(latent))
    folder_options = {"overwrite": config.overwrite, "resume": config.resume, "keep": f"{CHECKPOINTS}/*"}
    with shared_run_folder(output, recipe, here, **folder_options) as work:
        data, rows = _first_block(config) if config.stream else _load(config.data, config, guide, steps)
        held, held_rows = _load(config.eval_data, config, guide, steps)
        if config.on_bad_row == "refuse":
            refuse_bad_rows(rows + held_rows)
        log_rows("data", rows)
        log_rows("eval_data", held_rows)
        model, facts = _trained(config, guide, several, steps, latent, arguments, data, held, work, here)
        numbers = {"solutions": len(data.solutions)} if config.kind == "process" else {"pairs": len(data.pairs)}
        summary = {"model": output, "kind": config.kind, **numbers, "contract": model.contract.hash()}
        summary |= {"processes": here.world} if here.world > 1 else {}
        golden = shown(data)[: config.golden] or shown_solutions(model, data.solutions, config.golden)
        if here.leads:
            log(f"computing the rewards of {len(golden)} golden conversations, now and after loading the saved model")
        _save(model, golden, work, here)
        if not here.leads:
            return summary | {"rank": here.rank}
        facts["golden_difference"] = check_golden(load_reward_model(str(work), check=False, **trust(config)), work)
        facts |= {
            "arguments": arguments.to_sanitized_dict(),
            "contract": model.contract.hash(),
            "rows": rows.as_json(),
            "eval_rows": held_rows.as_json(),
        }
        sources = [_source(name, guide)[1] for name in [*config.data, *config.eval_data]]
        write_manifest(work, data=sources, seed=arguments.seed, started=started, **facts)
    shared = ("train_", "eval_loss", "eval_accuracy", "eval_first_error", "eval_latent", "weights")
    return summary | {name: value for name, value in facts.items() if name.startswith(shared)}


def _trained(
    config: TrainConfig,
    guide: GuideConfig,
    several: SeveralConfig,
    steps: ProcessConfig,
    latent: LatentConfig,
    arguments: RewardArguments,
    data: Judged,
    held: Judged,
    work: Path,
    here: Process,
) -> tuple[Any, dict[str, Any]]:
    """Train a model of the configured kind, and return it with the facts of its training."""
    names = guide.objectives
    if config.kind in ("scalar", "multi_head"):
        prepared = prepare_scalar(config, names, several, arguments, data, held)
        facts = _run(prepared, config, arguments, work, here)
        model, more = finish_scalar(prepared, config, names, several, data, held, arguments.seed)
        return model, facts | more
    if config.kind == "process":
        prepared = prepare_process(config, steps, arguments, data, held)
        return prepared.model, dict(prepared.facts) | _run(prepared, config, arguments, work, here)
    if config.kind == "latent":
        prepared = prepare_latent(config, latent, arguments, data.pairs, held.pairs)
        return prepared.model, dict(prepared.facts) | _run(prepared, config, arguments, work, here)
    if config.kind == "autoregressive":
        prepared = prepare_guide(config, guide, arguments, data.pairs, held.pairs)
        return prepared.model, _run(prepared, config, arguments, work, here)
    return _train_head(config, names[0], data.pairs)


def _save(model: Any, examples: list[Example], work: Path, here: Process) -> None:
    """Save weights and golden scores to the run folder; collective if the weights are sharded."""
    if here.leads or is_sharded(model.model):
        with rank_0_folder(work, writes=here.leads) as folder:
            model.save(folder)
            write_golden(model, examples, folder)


def _recipe(
    config: TrainConfig,
    guide: GuideConfig,
    several: SeveralConfig,
    arguments: RewardArguments,
    of_kind: dict[str, object],
) -> dict[str, Any]:
    settings = {name: value for name, value in asdict(config).items() if name not in FREE}
    settings |= asdict(guide) if config.kind == "autoregressive" else changed_settings(several) | of_kind
    settings |= {"objectives": guide.objectives} if guide.objectives != [OVERALL] else {}
    sources = [*config.data, *config.eval_data]
    settings["data_sha256"] = {source: data_hash(_source(source, guide)[1]) for source in sources}
    return training_recipe(settings, arguments)


def _source(text: str, guide: GuideConfig) -> tuple[str | None, str]:
    """Split `harmless=pairs.jsonl` into the objective that the file is labelled for, and the file."""
    name, sign, path = text.partition("=")
    return (name, path) if sign and name in guide.objectives else (None, text)


def _load(
    sources: list[str], config: TrainConfig, guide: GuideConfig, steps: ProcessConfig
) -> tuple[Judged, RowReport]:
    """Load all sources; pairs of a file for one objective are labelled under the objective's name.

    Bad rows are in the report whatever --on_bad_row says, so that those of all files are refused together.
    Rated answers are read too where several objectives are to be learnt by a scalar model.
    """
    data, report = Judged([], []), RowReport()
    if config.kind == "process" and sources:
        solutions, report = load_solutions(sources, neutral=steps.neutral_label, on_bad_row="skip")
        return Judged([], [], solutions), report
    scored = config.kind == "scalar" and len(guide.objectives) > 1
    for objective, path in (_source(source, guide) for source in sources):
        if scored and objective is None:
            judged_pairs, read = load_judged(path, guide.objectives, on_bad_row="skip")
        else:
            pairs, read = load_pairs(path, on_bad_row="skip")
            judged_pairs = Judged([labelled_for(pair, objective) for pair in pairs] if objective else pairs, [])
        data = Judged(data.pairs + judged_pairs.pairs, data.completions + judged_pairs.completions)
        report += read
    return data, report


# ---- streams ----


def check_stream(config: TrainConfig, guide: GuideConfig, several: SeveralConfig, arguments: RewardArguments) -> None:
    """Raise an error for settings that need all pairs in memory."""
    if arguments.max_steps < 1:
        raise UsageError("--stream reads without end; say with --max_steps how long to train")
    if arguments.dataloader_num_workers:
        raise UsageError(
            "--stream counts the rows that it reads in the training process; leave --dataloader_num_workers out"
        )
    if several.weights:
        raise UsageError("--weights need the rewards of all pairs; leave --stream or --weights out")
    if config.kind == "scalar" and not config.model:
        raise UsageError("a small model from scratch learns its tokens from all of the text; name one with --model")
    if labelled := [source for source in config.data if _source(source, guide)[0]]:
        raise UsageError(f"--stream takes a row's own labels, not '{labelled[0]}'; give the pairs a column wins")


def _first_block(config: TrainConfig) -> tuple[Judged, RowReport]:
    """Return the first block of pairs, which is checked and shown before training."""
    stream = PairStream(config.data, list, block=config.stream_block, on_bad_row=config.on_bad_row)
    pairs, _ = stream.read(StreamPosition())
    return Judged(pairs, []), stream.report


def _train_head(config: TrainConfig, objective: str, pairs: list[PreferencePair]) -> tuple[Any, dict[str, Any]]:
    """Fit a linear or embedding reward model: fixed features, convex optimization."""
    options: dict[str, Any] = {}
    if config.kind == "embedding":
        options = {"encoder": config.model, "dtype": config.dtype} | trust(config)
        options |= {"max_length": config.max_length} if config.max_length else {}
    fit = {"C": config.inverse_regularization} if config.inverse_regularization else {}
    unlabelled = sum(objective not in pair.wins for pair in pairs)
    if unlabelled:
        log(f"data: {unlabelled} of {len(pairs)} pairs unlabelled for '{objective}', left out")
    facts = {"encoding": {"pairs": len(pairs), "unlabelled": unlabelled, "kept": len(pairs) - unlabelled}}
    model = load("rm.models", config.kind)(**options).fit(pairs, objective=objective, **fit)
    if config.kind in FITTED:
        check_fitted(model.weights, config.kind)
    if config.kind != "embedding":
        return model, facts
    over = model.over_length([example for pair in pairs for example in pair.examples])
    if over:
        log(f"data: {over} of {2 * len(pairs)} sequences exceed {model.contract.max_length} tokens and lose the start")
    return model, facts | {"over_length": over}


def _run(
    prepared: Prepared, config: TrainConfig, arguments: RewardArguments, work: Path, here: Process
) -> dict[str, Any]:
    """Train with Transformers' Trainer, from the last complete checkpoint if there is one; return the results."""
    folder = work / CHECKPOINTS
    checkpoint = broadcast_from_rank_0(last_complete_checkpoint(folder, log) if config.resume and here.leads else None)
    if checkpoint:
        log(f"resuming from {checkpoint.name}")
    trainer = _trainer(prepared, config, arguments, folder)
    result = train_until_asked(trainer, checkpoint)
    while prepared.monitor and prepared.monitor.restart():
        if here.leads:  # --resume would take the checkpoint of the latest step, which the collapsed guide may have
            shutil.rmtree(folder, ignore_errors=True)
        trainer = _trainer(prepared, config, arguments, folder)
        result = train_until_asked(trainer, None)
    facts: dict[str, Any] = {"encoding": prepared.encoding.account(), "train_loss": result.metrics["train_loss"]}
    if stream := trainer.stream:
        facts["stream"] = stream.counts | stream.report.as_json()
        log_rows("data, streamed", stream.report)
    if prepared.eval_rows is not None:
        facts |= {
            name: value for name, value in trainer.evaluate().items() if "runtime" not in name and "per_s" not in name
        }
    if prepared.monitor and prepared.monitor.active:
        if here.leads:
            log(f"measuring the trained guide on {len(prepared.monitor.rows)} pairs for each objective")
        facts["guide"] = prepared.monitor.summary(trainer.model)
    if here.leads:
        write_rows(work / "metrics.jsonl", trainer.state.log_history)
    return facts


def _trainer(prepared: Prepared, config: TrainConfig, arguments: RewardArguments, folder: Path) -> RewardTrainer:
    rows: Any = prepared.encoding.rows
    if config.stream:
        assert prepared.encode is not None
        more = {"block": config.stream_block, "seed": arguments.seed, "on_bad_row": config.on_bad_row}
        rows = PairStream(config.data, prepared.encode, **more)
    return RewardTrainer(
        prepared.model,
        _for_folder(arguments, folder, evaluates=prepared.eval_rows is not None),
        prepared.task,
        rows,
        prepared.eval_rows,
        (prepared.monitor,) if prepared.monitor else (),
    )


def _for_folder(arguments: RewardArguments, folder: Path, *, evaluates: bool) -> RewardArguments:
    """Return the training arguments; with evaluation data, the checkpoint of the lowest evaluation loss is kept."""
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
