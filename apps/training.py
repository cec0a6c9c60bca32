"""`rewardlab train`: every kind of reward model from preference data to a checked folder."""

import json
import time
from dataclasses import asdict, replace
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from peft import LoraConfig

from ..rm.adapter_settings import AdapterSettings
from ..rm.checkpoint import check_golden, load_reward_model, write_golden
from ..rm.data import RowReport, load_pairs
from ..rm.errors import UsageError
from ..rm.losses.bradley_terry import PairLoss
from ..rm.losses.sequence_logistic import sequence_logistic
from ..rm.models.autoregressive import AutoregressiveRewardModel, autoregressive
from ..rm.models.scalar import ScalarRewardModel, scalar, scalar_from_config
from ..rm.plugins import load
from ..rm.preference_task import PreferenceTask, encode_preferences
from ..rm.preferences import Sampler, at_vertices, dirichlet, on_grid, once_per_batch
from ..rm.trainer import (
    Encoding,
    RewardArguments,
    RewardTrainer,
    ScalarTask,
    Task,
    encode_pairs,
    last_complete_checkpoint,
)
from ..rm.trunks import small_config, small_tokenizer
from ..rm.types import OVERALL, PreferencePair
from .config import GuideConfig, TrainConfig
from .runs import data_hash, run_folder, say, tell_rows, trust, write_manifest

CHECKPOINTS = "checkpoints"


class Prepared(NamedTuple):
    """A model with what the trainer needs: rows to learn from, rows to evaluate on, and what is done with them."""

    model: Any
    task: Task
    encoding: Encoding
    eval_rows: list[Any] | None


def train(config: TrainConfig, guide: GuideConfig, arguments: RewardArguments) -> dict[str, Any]:
    """Train a reward model of any kind and put its folder in place, checked to give the same scores after loading."""
    output = config.output or arguments.output_dir
    if not output:
        raise UsageError("--output is missing")
    if config.kind == "autoregressive":
        guide.validate()
    started = time.time()
    recipe = _recipe(config, guide, arguments)
    with run_folder(output, recipe, overwrite=config.overwrite, resume=config.resume, keep=f"{CHECKPOINTS}/*") as work:
        pairs, rows = _load(config.data, config, guide)
        eval_pairs, eval_rows = _load(config.eval_data, config, guide)
        tell_rows("data", rows)
        if config.kind in ("scalar", "autoregressive"):
            _check_one_device(arguments)
            prepared = (
                _prepare_scalar(config, arguments, pairs, eval_pairs)
                if config.kind == "scalar"
                else _prepare_guide(config, guide, arguments, pairs, eval_pairs)
            )
            model, facts = prepared.model, _run(prepared, config, arguments, work)
        else:
            model, facts = _train_head(config, pairs)
        model.save(work)
        write_golden(model, [pair.examples[i % 2] for i, pair in enumerate(pairs[: config.golden])], work)
        facts["golden_difference"] = check_golden(load_reward_model(str(work), check=False, **trust(config)), work)
        facts |= {
            "arguments": arguments.to_sanitized_dict(),
            "contract": model.contract.hash(),
            "rows": rows.as_json(),
            "eval_rows": eval_rows.as_json(),
        }
        data = [_source(name, guide)[1] for name in [*config.data, *config.eval_data]]
        write_manifest(work, data=data, seed=arguments.seed, started=started, **facts)
    return {"model": output, "kind": config.kind, "pairs": len(pairs), "contract": model.contract.hash()} | {
        name: value for name, value in facts.items() if name.startswith(("train_", "eval_loss", "eval_accuracy"))
    }


def _recipe(config: TrainConfig, guide: GuideConfig, arguments: RewardArguments) -> dict[str, Any]:
    """The settings that decide the result; resuming with others is refused."""
    own = {name: value for name, value in asdict(config).items() if name not in ("resume", "overwrite", "output")}
    own |= asdict(guide) if config.kind == "autoregressive" else {}
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


def _load(sources: list[str], config: TrainConfig, guide: GuideConfig) -> tuple[list[PreferencePair], RowReport]:
    """All pairs of all sources; those of a file for one objective carry its label under the objective's name."""
    pairs, report = [], RowReport()
    for objective, path in (_source(source, guide) for source in sources):
        found, read = load_pairs(path, on_bad_row=config.on_bad_row)
        pairs += [replace(pair, wins={objective: pair.chance(OVERALL)}) for pair in found] if objective else found
        report = RowReport(report.read + read.read, report.dropped + read.dropped)
    return pairs, report


def _train_head(config: TrainConfig, pairs: list[PreferencePair]) -> tuple[Any, dict[str, Any]]:
    """Linear and embedding reward models: fixed features, one convex fit."""
    options: dict[str, Any] = {}
    if config.kind == "embedding":
        options = {"encoder": config.model, "dtype": config.dtype} | trust(config)
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
    encoding = _tell_encoding(
        "data", encode_preferences(model.encoder, pairs, guide.objectives, config.on_long), config
    )
    task.check(encoding.rows)
    eval_rows = None
    if eval_pairs:
        evaluation = encode_preferences(model.encoder, eval_pairs, guide.objectives, config.on_long)
        eval_rows = _tell_encoding("eval_data", evaluation, config).rows
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


# ---- scalar ----


def _prepare_scalar(
    config: TrainConfig, arguments: RewardArguments, pairs: list[PreferencePair], eval_pairs: list[PreferencePair]
) -> Prepared:
    model = build_scalar(config, pairs, arguments.seed)
    encoding = _encode(model, pairs, config, "data")
    eval_rows = _encode(model, eval_pairs, config, "eval_data").rows if eval_pairs else None
    say(f"the first sequence reads: {model.encoder.render(pairs[0].examples[0])[:300]!r}")
    loss = _pair_loss(config.loss, arguments)
    return Prepared(model, ScalarTask(loss), encoding, eval_rows)


def _pair_loss(name: str, arguments: RewardArguments) -> PairLoss:
    factory = load("rm.losses", name)
    if "center" not in signature(factory).parameters:
        raise UsageError(f"--loss {name} is no loss of a pair's two rewards; take bradley_terry")
    return factory(center=arguments.center_rewards_coefficient)


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
        return scalar(config.model, fresh=True, lora=lora, seed=seed, **options, **trust(config))
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
    return _tell_encoding(name, encode_pairs(model.encoder, pairs, config.objective, config.on_long), config)


def _tell_encoding(name: str, encoding: Encoding, config: TrainConfig) -> Encoding:
    if encoding.over_length:
        verb = "truncated" if config.on_long == "truncate" else "left out"
        say(f"{name}: {encoding.over_length} of {encoding.pairs} pairs exceed {encoding.limit} tokens and were {verb}")
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
