"""Autoregressive reward models (GenARM, PARM, UniARM): adapter, task and rows from settings and data."""

from functools import partial

from ....rm.adapters.settings import AdapterSettings
from ....rm.data.preference_vectors import Sampler, at_vertices, dirichlet, on_grid
from ....rm.errors import UsageError, did_you_mean
from ....rm.losses.sequence_logistic import sequence_logistic
from ....rm.models.autoregressive import AutoregressiveRewardModel, autoregressive
from ....rm.training.autoregressive_task import PreferenceTask, encode_preferences
from ....rm.training.guide_diagnostics import CollapseMonitor, mean_surprise, measured_rows
from ....rm.training.trainer import RewardArguments
from ....rm.types import PreferencePair
from ...runs.run_folder import log, trust
from ...settings.reading import edges
from .scalar import Prepared, log_encoding
from .settings import GuideConfig, TrainConfig

MEASURED = 256
"""Number of pairs on which the base model is measured before the training."""
GUIDE_RANK, GUIDE_TARGETS = 8, ("q_proj", "k_proj", "v_proj")
"""Defaults of a guide's adapter."""
ADAPTER_SETTINGS = ("shared_rank", "from_layer", "generator", "embedding", "span", "scale", "shift")
"""Settings of guides that are their adapters' too."""


def prepare_guide(
    config: TrainConfig,
    guide: GuideConfig,
    arguments: RewardArguments,
    pairs: list[PreferencePair],
    eval_pairs: list[PreferencePair],
) -> Prepared:
    """Train GenARM, PARM or UniARM on a base model."""
    if config.model is None:
        raise UsageError("an autoregressive reward model needs the language model to start from; name it with --model")
    if config.lora:
        raise UsageError("--lora belongs to --kind scalar; here it is --adapter lora")
    model = build_guide(config, guide, arguments.seed)
    loss = sequence_logistic(
        _betas(guide),
        weight=guide.global_weight if len(guide.objectives) > 1 else 0.0,
        form=guide.global_form,
        label_smoothing=guide.label_smoothing,
        ignore_ties=guide.ignore_ties,
    )
    task = PreferenceTask(
        model.adapter,
        guide.objectives,
        loss,
        _sampler(guide),
        reference=guide.subtract_reference,
        normalised=guide.normalise_length,
        per_batch=guide.per_batch,
        seed=arguments.seed,
        centred=guide.token_baseline == "expected",
        rates={"A": guide.rate_of_a, "modulation": guide.rate_of_modulation},
    )
    encoding = log_encoding("data", encode_preferences(model.encoder, pairs, guide.objectives, config.on_long), config)
    task.check(encoding.rows)
    if guide.token_baseline == "constant":
        log("measuring the base model's mean surprise by a token")
        task.token_offset = round(mean_surprise(task, model.model, encoding.rows[:MEASURED]), 2)
        model = model.with_token_offset(task.token_offset)
        log(f"every token's log-probability is raised by {task.token_offset:g} nats, the base model's mean surprise")
    eval_rows = None
    if eval_pairs:
        evaluation = encode_preferences(model.encoder, eval_pairs, guide.objectives, config.on_long)
        eval_rows = log_encoding("eval_data", evaluation, config).rows
    more = partial(
        encode_preferences, model.encoder, objectives=guide.objectives, on_long=config.on_long, allow_empty=True
    )
    monitor = None
    if model.adapter and guide.monitor_steps:
        options = {"every": guide.monitor_steps, "restarts": guide.restarts, "report": log}
        monitor = CollapseMonitor(task, measured_rows(eval_rows or encoding.rows), **options)
    return Prepared(model, task, encoding, eval_rows, encode=more, monitor=monitor)


def _betas(guide: GuideConfig) -> list[float]:
    """Return β of the loss for every objective."""
    named = {name: guide.train_beta for name in guide.objectives}
    for text in guide.objective_betas:
        name, _, value = text.partition("=")
        try:
            beta = float(value)
        except ValueError as error:
            raise UsageError(f"--objective_betas are NAME=β, such as helpful=0.5; got '{text}'") from error
        if name not in named:
            raise UsageError(f"--objective_betas: no objective '{name}'; {did_you_mean(name, guide.objectives)}")
        named[name] = beta
    return [*named.values()]


def build_guide(config: TrainConfig, guide: GuideConfig, seed: int) -> AutoregressiveRewardModel:
    """Return the base model with a new adapter, or with all weights trainable."""
    if guide.adapter == "none" and len(guide.objectives) > 1:
        raise UsageError(f"without an adapter a model learns one objective, got {', '.join(guide.objectives)}")
    settings, rank = None, config.lora_r or GUIDE_RANK
    if guide.adapter != "none":
        settings = AdapterSettings(
            kind=guide.adapter,
            objectives=tuple(guide.objectives),
            texts=tuple(guide.texts),
            rank=rank,
            factor=2.0 if config.lora_alpha is None else config.lora_alpha / (rank + guide.shared_rank),
            dropout=config.lora_dropout,
            targets=tuple(config.lora_target_modules) or GUIDE_TARGETS,
            seed=seed,
            **{name: getattr(guide, name) for name in ADAPTER_SETTINGS},
        )
    options = {"max_length": config.max_length, "chat_template": config.chat_template, "dtype": config.dtype}
    options |= {"beta": guide.train_beta, "centred": guide.token_baseline == "expected"}
    return autoregressive(str(config.model), adapter=settings, **options, **edges(config), **trust(config))


def _sampler(guide: GuideConfig) -> Sampler:
    k = len(guide.objectives)
    samplers = {
        "dirichlet": lambda: dirichlet(k, guide.concentration),
        "vertices": lambda: at_vertices(k),
        "grid": lambda: on_grid(k),
    }
    return samplers[guide.preferences]()
