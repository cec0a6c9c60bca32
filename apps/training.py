"""`rewardlab train`: every kind of reward model from preference data to a checked folder."""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..rm.adapter_settings import AdapterSettings
from ..rm.checkpoint import check_golden, load_reward_model, write_golden
from ..rm.data import RowReport, load_pairs
from ..rm.errors import UsageError
from ..rm.losses.sequence_logistic import sequence_logistic
from ..rm.models.autoregressive import AutoregressiveRewardModel, autoregressive
from ..rm.plugins import load
from ..rm.preference_task import PreferenceTask, encode_preferences
from ..rm.preferences import Sampler, at_vertices, dirichlet, on_grid, once_per_batch
from ..rm.scored import Judged, load_judged
from ..rm.trainer import RewardArguments, RewardTrainer, last_complete_checkpoint
from ..rm.types import OVERALL, PreferencePair
from .config import GuideConfig, TrainConfig
from .ensembling import make_boosted, make_ensemble
from .runs import data_hash, run_folder, say, tell_rows, trust, write_manifest
from .several_config import SeveralConfig
from .training_scalar import Prepared, finish_scalar, objectives_of, prepare_scalar, shown, tell_encoding

CHECKPOINTS = "checkpoints"


def train(
    config: TrainConfig, guide: GuideConfig, several: SeveralConfig, arguments: RewardArguments
) -> dict[str, Any]:
    """Train a reward model of any kind and put its folder in place, checked to give the same scores after loading."""
    output = config.output or arguments.output_dir
    if not output:
        raise UsageError("--output is missing")
    names = objectives_of(config, guide)
    several.validate(config.kind, len(names))
    if config.kind == "ensemble":
        return make_ensemble(config, several, output)
    if config.kind == "boosted":
        return make_boosted(config, several, output)
    if config.kind == "autoregressive":
        guide.validate()
    elif config.kind != "scalar" and len(names) > 1:
        raise UsageError(f"a {config.kind} reward model learns one objective, got {', '.join(names)}")
    started = time.time()
    recipe = _recipe(config, guide, several, arguments)
    with run_folder(output, recipe, overwrite=config.overwrite, resume=config.resume, keep=f"{CHECKPOINTS}/*") as work:
        data, rows = _load(config.data, config, guide)
        held, held_rows = _load(config.eval_data, config, guide)
        tell_rows("data", rows)
        if config.kind in ("scalar", "multi_head"):
            _check_one_device(arguments)
            prepared = prepare_scalar(config, names, several, arguments, data, held)
            facts = _run(prepared, config, arguments, work)
            model, more = finish_scalar(prepared, config, names, several, data, held, arguments.seed)
            facts |= more
        elif config.kind == "autoregressive":
            _check_one_device(arguments)
            prepared = _prepare_guide(config, guide, arguments, data.pairs, held.pairs)
            model, facts = prepared.model, _run(prepared, config, arguments, work)
        else:
            model, facts = _train_head(config, names[0], data.pairs)
        model.save(work)
        write_golden(model, shown(data)[: config.golden], work)
        facts["golden_difference"] = check_golden(load_reward_model(str(work), check=False, **trust(config)), work)
        facts |= {
            "arguments": arguments.to_sanitized_dict(),
            "contract": model.contract.hash(),
            "rows": rows.as_json(),
            "eval_rows": held_rows.as_json(),
        }
        sources = [_source(name, guide)[1] for name in [*config.data, *config.eval_data]]
        write_manifest(work, data=sources, seed=arguments.seed, started=started, **facts)
    told = ("train_", "eval_loss", "eval_accuracy", "weights")
    return {"model": output, "kind": config.kind, "pairs": len(data.pairs), "contract": model.contract.hash()} | {
        name: value for name, value in facts.items() if name.startswith(told)
    }


def _recipe(
    config: TrainConfig, guide: GuideConfig, several: SeveralConfig, arguments: RewardArguments
) -> dict[str, Any]:
    """The settings that decide the result; resuming with others is refused."""
    own = {name: value for name, value in asdict(config).items() if name not in ("resume", "overwrite", "output")}
    own |= asdict(guide) if config.kind == "autoregressive" else several.changed()
    own |= {"objectives": guide.objectives} if guide.objectives != [OVERALL] else {}
    defaults = RewardArguments()
    changed = {
        name: value
        for name, value in vars(arguments).items()
        if name in RewardArguments.__dataclass_fields__ and name != "output_dir" and value != getattr(defaults, name)
    }
    data = {source: data_hash(_source(source, guide)[1]) for source in [*config.data, *config.eval_data]}
    return json.loads(json.dumps(own | changed | {"data_sha256": data}, default=str))


def _source(text: str, guide: GuideConfig) -> tuple[str | None, str]:
    """`harmless=pairs.jsonl` as the objective that the file is labelled for, and the file."""
    name, sign, path = text.partition("=")
    return (name, path) if sign and name in guide.objectives else (None, text)


def _load(sources: list[str], config: TrainConfig, guide: GuideConfig) -> tuple[Judged, RowReport]:
    """What all sources say; pairs of a file for one objective carry its label under the objective's name.

    Rated answers are read too where several objectives are to be learnt by a scalar model.
    """
    data, report = Judged([], []), RowReport()
    scored = config.kind == "scalar" and len(guide.objectives) > 1
    for objective, path in (_source(source, guide) for source in sources):
        if scored and objective is None:
            found, read = load_judged(path, guide.objectives, on_bad_row=config.on_bad_row)
        else:
            pairs, read = load_pairs(path, on_bad_row=config.on_bad_row)
            found = Judged(
                [replace(pair, wins={objective: pair.chance(OVERALL)}) for pair in pairs] if objective else pairs, []
            )
        data = Judged(data.pairs + found.pairs, data.answers + found.answers)
        report = RowReport(report.read + read.read, report.dropped + read.dropped)
    return data, report


def _train_head(config: TrainConfig, objective: str, pairs: list[PreferencePair]) -> tuple[Any, dict[str, Any]]:
    """Linear and embedding reward models: fixed features, one convex fit."""
    options: dict[str, Any] = {}
    if config.kind == "embedding":
        options = {"encoder": config.model, "dtype": config.dtype} | trust(config)
        options |= {"max_length": config.max_length} if config.max_length else {}
    elif config.model or config.lora:
        raise UsageError(f"a {config.kind} reward model has no backbone; leave --model and --lora out")
    fit = {"C": config.inverse_regularization} if config.inverse_regularization else {}
    model = load("rm.models", config.kind)(**options).fit(pairs, objective=objective, **fit)
    if config.kind != "embedding":
        return model, {}
    over = model.over_length([example for pair in pairs for example in pair.examples])
    if over:
        say(f"data: {over} of {2 * len(pairs)} sequences exceed {model.contract.max_length} tokens and lose the start")
    return model, {"over_length": over}


def _check_one_device(arguments: RewardArguments) -> None:
    if arguments.world_size > 1 or arguments.n_gpu > 1:
        raise UsageError(
            f"train works on one device and sees {max(arguments.world_size, arguments.n_gpu)}; "
            "choose one with CUDA_VISIBLE_DEVICES=0"
        )


def _run(prepared: Prepared, config: TrainConfig, arguments: RewardArguments, work: Path) -> dict[str, Any]:
    """Train under Transformers' Trainer, from the last complete checkpoint if there is one; what came of it."""
    folder = work / CHECKPOINTS
    trainer = RewardTrainer(
        prepared.model,
        _for_folder(arguments, folder, evaluates=prepared.eval_rows is not None),
        prepared.task,
        prepared.encoding.rows,
        prepared.eval_rows,
    )
    checkpoint = last_complete_checkpoint(folder) if config.resume else None
    if checkpoint:
        say(f"resuming from {checkpoint.name}")
    result = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    facts: dict[str, Any] = {"encoding": prepared.encoding.account(), "train_loss": result.training_loss}
    if prepared.eval_rows is not None:
        facts |= {
            name: value for name, value in trainer.evaluate().items() if "runtime" not in name and "per_s" not in name
        }
    with open(work / "metrics.jsonl", "w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(line) + "\n" for line in trainer.state.log_history)
    return facts


# ---- autoregressive ----


def _prepare_guide(
    config: TrainConfig,
    guide: GuideConfig,
    arguments: RewardArguments,
    pairs: list[PreferencePair],
    eval_pairs: list[PreferencePair],
) -> Prepared:
    """GenARM, PARM or UniARM on a base model."""
    if config.model is None:
        raise UsageError("an autoregressive reward model needs the language model to start from; name it with --model")
    if config.lora:
        raise UsageError("--lora belongs to --kind scalar; here it is --adapter lora")
    model = build_guide(config, guide, arguments.seed)
    loss = sequence_logistic(
        guide.train_beta,
        weight=guide.global_weight if len(guide.objectives) > 1 else 0.0,
        form=guide.global_form,
        label_smoothing=guide.label_smoothing,
    )
    task = PreferenceTask(
        model.adapter,
        guide.objectives,
        loss,
        _sampler(guide),
        reference=guide.subtract_reference,
        normalised=guide.normalise_length,
        seed=arguments.seed,
    )
    encoding = tell_encoding("data", encode_preferences(model.encoder, pairs, guide.objectives, config.on_long), config)
    task.check(encoding.rows)
    eval_rows = None
    if eval_pairs:
        evaluation = encode_preferences(model.encoder, eval_pairs, guide.objectives, config.on_long)
        eval_rows = tell_encoding("eval_data", evaluation, config).rows
    return Prepared(model, task, encoding, eval_rows)


def build_guide(config: TrainConfig, guide: GuideConfig, seed: int) -> AutoregressiveRewardModel:
    """The base model with a new adapter, or all of its weights to be trained."""
    if guide.adapter == "none" and len(guide.objectives) > 1:
        raise UsageError(f"without an adapter a model learns one objective, got {', '.join(guide.objectives)}")
    settings = None
    if guide.adapter != "none":
        settings = AdapterSettings(
            kind=guide.adapter,
            objectives=tuple(guide.objectives),
            texts=tuple(guide.texts),
            rank=guide.rank,
            shared_rank=guide.shared_rank,
            factor=guide.factor,
            dropout=guide.dropout,
            targets=tuple(guide.targets),
            from_layer=guide.from_layer,
            generator=guide.generator,
            embedding=guide.embedding,
            scale=guide.scale,
            shift=guide.shift,
            seed=seed,
        )
    options = {"max_length": config.max_length, "chat_template": config.chat_template, "dtype": config.dtype}
    return autoregressive(str(config.model), beta=guide.train_beta, adapter=settings, **options, **trust(config))


def _sampler(guide: GuideConfig) -> Sampler:
    k = len(guide.objectives)
    samplers = {
        "dirichlet": lambda: dirichlet(k, guide.concentration),
        "vertices": lambda: at_vertices(k),
        "grid": lambda: on_grid(k),
    }
    sampler = samplers[guide.preferences]()
    return once_per_batch(sampler) if guide.per_batch else sampler


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
