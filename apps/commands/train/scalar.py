"""Scalar reward models of one or several objectives: model, rows and loss from settings and data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from peft import LoraConfig
from transformers import PreTrainedTokenizerBase

from ....rm.backbones.loading import small_config, small_tokenizer
from ....rm.backbones.lora_classifier import ADAPTER
from ....rm.data.preference_vectors import parse_preference
from ....rm.data.scored_rows import Judged
from ....rm.errors import DataError, UsageError
from ....rm.losses._pair_batch import PairBatch, PairLoss, as_pair_loss
from ....rm.losses._pair_losses import with_other_gaps
from ....rm.models.multi_head import MultiHeadRewardModel, check_body
from ....rm.models.multi_head.uncertain_heads import HeadFit
from ....rm.models.multi_objective import checked_weights, labelled_overall, learned_weights, untrained, with_overall
from ....rm.models.scalar import OBJECTIVES, ScalarRewardModel, scalar, scalar_from_config
from ....rm.registry import load
from ....rm.training.encoding import Encoding, encode_pairs
from ....rm.training.guide_diagnostics import CollapseMonitor
from ....rm.training.multi_objective_task import ObjectivesTask, encode_objectives, encode_scored, label_counts
from ....rm.training.trainer import RewardArguments, ScalarTask, Task
from ....rm.types import OVERALL, Example, PreferencePair, message_text
from ...runs.run_folder import log, log_costs, trust
from ...settings.plain_functions import plain_form, signatures
from ...settings.reading import edges
from ...settings.specs import build, parse_spec
from .settings import TrainConfig
from .several_settings import LEARNED, POSITIVE, SeveralConfig


class Prepared(NamedTuple):
    """A model with what the trainer needs: rows to learn from, rows to evaluate on, and what is done with them."""

    model: Any
    task: Task
    encoding: Encoding
    eval_rows: list[Any] | None
    facts: Mapping[str, Any] = MappingProxyType({})
    encode: Callable[[list[PreferencePair]], Encoding] | None = None
    """Of a block of pairs, as those of the encoding were; None where there are rated answers."""
    monitor: CollapseMonitor | None = None


def shown(data: Judged) -> list[Example]:
    """Return a conversation of every pair, chosen and rejected in turn, or else the rated responses."""
    return [pair.examples[index % 2] for index, pair in enumerate(data.pairs)] or [
        answer.example for answer in data.completions
    ]


def prepare_scalar(
    config: TrainConfig,
    names: list[str],
    several: SeveralConfig,
    arguments: RewardArguments,
    data: Judged,
    held: Judged,
) -> Prepared:
    """Prepare a model of one objective, or of several that each learn from the rows labelled for them."""
    outputs = (*names, OVERALL) if several.weights else tuple(names)
    log_costs("--weights", _checked(several.weights, names) or {})
    if several.weights in (LEARNED, POSITIVE):
        labelled_overall(held.pairs or data.pairs)
    if config.kind == "multi_head":
        _head_fit(several, arguments.seed)  # raises an error for settings out of range
    losses = {name: _pair_loss(config.loss, arguments) for name in names}
    if len(names) > 1 and "other" in losses[names[0]].requires:
        raise UsageError(f"--loss {config.loss} reads another model of one objective; leave --objectives out")
    if config.stream and losses[names[0]].other is not None:
        raise UsageError(f"--loss {config.loss} reads another model's gaps of all pairs; leave --stream out")
    model = build_scalar(config, outputs if len(names) > 1 else OBJECTIVES, data, arguments.seed)
    if config.kind == "multi_head":
        check_body(model)
    log(f"the first sequence reads: {model.encoder.render(shown(data)[0])[:300]!r}")
    if len(names) == 1:
        task: Any = ScalarTask(losses[names[0]])
        known, known_held = (with_other_gaps(losses[names[0]], part.pairs, **trust(config)) for part in (data, held))
        encoding = _encode(model, known, names[0], config, "data")
        eval_rows = _encode(model, known_held, names[0], config, "eval_data").rows if held.pairs else None
        task.check(encoding.rows)
        more = partial(encode_pairs, model.encoder, objective=names[0], on_long=config.on_long, allow_empty=True)
        return Prepared(model, task, encoding, eval_rows, encode=more)
    task = ObjectivesTask(losses, several.regression_weight)
    encoding = _encode_several(model, data, names, config, "data")
    eval_rows = (
        _encode_several(model, held, names, config, "eval_data").rows if held.pairs or held.completions else None
    )
    task.check(encoding.rows)
    counts = label_counts(encoding.rows, names)
    for name, count in counts.items():
        labels = f"{count['pairs']} pairs and {count['scores']} scores for '{name}'"
        log(f"data: {labels}, {count['unlabelled']} rows without")
    more = partial(encode_objectives, model.encoder, objectives=names, on_long=config.on_long, allow_empty=True)
    return Prepared(model, task, encoding, eval_rows, {"labels": counts}, None if data.completions else more)


def finish_scalar(
    prepared: Prepared,
    config: TrainConfig,
    names: list[str],
    several: SeveralConfig,
    data: Judged,
    held: Judged,
    seed: int,
) -> tuple[Any, dict[str, Any]]:
    """Add an overall reward or heads to a trained model, and return it with its facts."""
    model, facts = prepared.model, dict(prepared.facts)
    if modules := getattr(prepared.task, "modules", None):
        terms = zip(names, modules.values(), strict=True)
        facts["length_term"] = {
            name: {"weight": term.weight.item(), "scale": term.scale.item()} for name, term in terms
        }
        log(f"length explains, and scores leave out: {facts['length_term']}")
    if several.weights:
        weights = _checked(several.weights, names)
        if weights is None:
            pairs, positive = held.pairs or data.pairs, several.weights == POSITIVE
            weights = learned_weights(model, names, pairs, positive=positive)
            log(f"learned weights: {weights}")
        model = with_overall(model, weights)
        facts["weights"] = model.weights
    if config.kind == "multi_head":
        model = MultiHeadRewardModel.on(model, data.pairs, names[0], several.rule(), _head_fit(several, seed))
    return model, facts


def _head_fit(several: SeveralConfig, seed: int) -> HeadFit:
    return HeadFit(
        heads=several.heads,
        form=several.head_form,
        steps=several.head_steps,
        learning_rate=several.head_learning_rate,
        bootstrap=several.head_bootstrap,
        seed=seed,
    )


def _checked(weights: str | None, names: list[str]) -> dict[str, float] | None:
    """Return the given weights; None if they are learned or absent."""
    if weights is not None and OVERALL in names:
        raise UsageError(f"'{OVERALL}' is what the weights make; leave it out of --objectives, or leave --weights out")
    if weights in (None, LEARNED, POSITIVE):
        return None
    return checked_weights(parse_preference(str(weights)), names)


def _pair_loss(text: str, arguments: RewardArguments) -> PairLoss:
    center, function = arguments.center_rewards_coefficient, load("rm.losses", parse_spec(text).name)
    if plain_form("rm.losses", function):
        loss = replace(build("rm.losses", text), center=center)
    elif "center" in signature(function).parameters:
        loss = as_pair_loss(build("rm.losses", text, center=center))
    else:
        more = signatures("rm.losses") if ":" in text else "; take bradley_terry"
        raise UsageError(f"--loss {text} is no loss of a pair's two rewards{more}")
    if ":" in text:
        _check_pair_loss(loss, text)
    return loss


def _check_pair_loss(loss: PairLoss, text: str) -> None:
    """Run a user's loss forward and backward on three made-up pairs."""
    chosen = torch.tensor([1.0, 0.0, -1.0], requires_grad=True)
    column = torch.tensor([0.5, 0.0, 1.0])
    try:
        losses = loss(PairBatch(chosen, column, torch.tensor([1.0, 0.5, 0.0]), column, column, column))
        (gradient,) = torch.autograd.grad(losses.sum(), chosen)
    except Exception as error:  # user functions raise arbitrary errors
        raise UsageError(f"--loss {text} fails on made-up pairs ({error}){signatures('rm.losses')}") from error
    if losses.shape != chosen.shape or not (losses.isfinite().all() and gradient.isfinite().all()):
        raise UsageError(
            f"--loss {text} returns {losses.tolist()} for three made-up pairs, where three finite losses are expected"
        )


def build_scalar(config: TrainConfig, objectives: tuple[str, ...], data: Judged, seed: int) -> ScalarRewardModel:
    """Return the named backbone with a new head, or a small causal LM from scratch."""
    if config.model:
        options: dict[str, Any] = {
            "max_length": config.max_length,
            "chat_template": config.chat_template,
            "dtype": config.dtype,
            "lora": lora_config(config),
            "seed": seed,
            **edges(config),
            **trust(config),
        }
        return _named(config.model, objectives, options)
    examples = [example for pair in data.pairs for example in pair.examples]
    examples += [answer.example for answer in data.completions]
    texts = [message_text(turn) for pair in data.pairs for turn in pair.prompt]
    texts += [message_text(turn) for answer in data.completions for turn in answer.example.prompt]
    texts += [example.completion for example in examples]
    tokenizer, shape = small_backbone(config, texts)
    model = scalar_from_config(shape, tokenizer, objectives=objectives, max_length=config.max_length, seed=seed)
    log_small_model(model.model, tokenizer)
    return model


def small_backbone(config: TrainConfig, texts: Sequence[str]) -> tuple[PreTrainedTokenizerBase, Any]:
    """Return a tokenizer that is trained on the texts, and the configuration of a small model for it."""
    if config.lora:
        raise UsageError("--lora adapts a backbone; name one with --model, or leave --lora out")
    named = {"chat_template": config.chat_template, "dtype": config.dtype != "float32"} | edges(config)
    if name := next((name for name, value in named.items() if value), ""):
        raise UsageError(
            f"--{name} belongs to a backbone, and a small model from scratch has its own; name one with --model"
        )
    tokenizer = small_tokenizer(texts, config.small_vocabulary)
    return tokenizer, small_config(tokenizer, hidden=config.small_hidden, layers=config.small_layers)


def log_small_model(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Log that a model was built from scratch, and its size."""
    size = sum(parameter.numel() for parameter in model.parameters())
    log(
        f"no --model: built a small {model.config.model_type} from scratch with {size:,} random weights and "
        f"{len(tokenizer):,} tokens learnt from the training text; name a pretrained backbone with --model "
        "for a useful reward model"
    )


def _named(source: str, objectives: tuple[str, ...], options: dict[str, Any]) -> ScalarRewardModel:
    if objectives != OBJECTIVES:
        if (Path(source) / ADAPTER).exists():
            raise UsageError(f"{source} is an adapter; start several objectives from its base, or merge it first")
        return untrained(source, objectives, **options)
    model = scalar(source, fresh=True, **options)
    if len(model.contract.objectives) != 1:
        raise UsageError(
            f"{source} is a reward model of {', '.join(model.contract.objectives)}; name its objectives with "
            "--objectives, or start from the backbone"
        )
    return model


def lora_config(config: TrainConfig) -> LoraConfig | None:
    """Return the adapters of --lora; None without it."""
    if not config.lora:
        return None
    targets: Any = config.lora_target_modules or ["all-linear"]
    rank = config.lora_r or 16
    return LoraConfig(
        r=rank,
        lora_alpha=2 * rank if config.lora_alpha is None else config.lora_alpha,  # type: ignore[arg-type]
        lora_dropout=config.lora_dropout,
        target_modules=targets[0] if targets == ["all-linear"] else targets,
    )


# ---- rows ----


def _encode(
    model: ScalarRewardModel, pairs: list[PreferencePair], objective: str, config: TrainConfig, name: str
) -> Encoding:
    return log_encoding(name, encode_pairs(model.encoder, pairs, objective, config.on_long), config)


def _encode_several(
    model: ScalarRewardModel, data: Judged, names: list[str], config: TrainConfig, name: str
) -> Encoding:
    """Encode pairs and rated responses; both are counted as pairs."""
    parts = []
    labelled = any(name in pair.wins for pair in data.pairs for name in names)
    if data.pairs and (labelled or not data.completions):
        parts.append(log_encoding(name, encode_objectives(model.encoder, data.pairs, names, config.on_long), config))
    if data.completions:
        parts.append(log_encoding(name, encode_scored(model.encoder, data.completions, names, config.on_long), config))
    if not any(part.rows for part in parts):
        raise DataError(f"{name}: no row is left to train on; raise --max_length, or say --on_long truncate")
    return Encoding(
        [row for part in parts for row in part.rows],
        sum(part.pairs for part in parts),
        parts[0].limit,
        max(part.longest for part in parts),
        *(sum(getattr(part, name) for part in parts) for name in ("over_length", "identical", "unlabelled", "omitted")),
        next((part.omitted_text for part in parts if part.omitted), ""),
    )


def log_encoding(name: str, encoding: Encoding, config: TrainConfig, what: str = "pairs") -> Encoding:
    """Log the numbers of truncated and dropped rows, and of those that lost a text to the chat template."""
    if encoding.over_length:
        verb = "truncated" if config.on_long == "truncate" else "left out"
        log(f"{name}: {encoding.over_length} of {encoding.pairs} {what} exceed {encoding.limit} tokens and were {verb}")
    if encoding.identical or encoding.unlabelled:
        equal, unlabelled = encoding.identical, encoding.unlabelled
        log(f"{name}: {equal} {what} identical after truncation, {unlabelled} unlabelled, left out")
    if encoding.omitted:
        text = encoding.omitted_text[:60]
        log(f"{name}: the chat template leaves out text of {encoding.omitted} of {encoding.pairs} {what}: {text!r}")
    return encoding
