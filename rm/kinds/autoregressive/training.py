"""Training of guides (autoregressive reward models that guide decoding): adapter, loss, rows, and collapse monitor."""

from functools import partial
from typing import Any

from ...adapters.settings import AdapterSettings
from ...data.preference_vectors import Sampler, dirichlet, grid_sampler, vertex_sampler
from ...errors import UsageError, did_you_mean
from ...losses.sequence_logistic import SequenceLogistic, sequence_logistic
from ...training.encoding import Encoding
from ...training.protocol import Prepared, TrainingData
from .._training import BackboneTraining, StreamedTraining
from . import AutoregressiveSettings
from .diagnostics import CollapseMonitor, mean_negative_logprob, measured_rows
from .model import AutoregressiveRewardModel, load_autoregressive
from .preference_task import PreferenceTask, encode_preferences

MEASURED = 256
"""Maximum number of pairs for measuring the base model before the training."""
GUIDE_RANK, GUIDE_TARGETS = 8, ("q_proj", "k_proj", "v_proj")
"""Default LoRA rank and target layers of a guide's adapter."""
ADAPTER_SETTINGS = ("shared_rank", "from_layer", "generator", "embedding", "span", "scale", "shift")
"""Names of settings that are passed on to the adapter."""


class AutoregressiveTraining(StreamedTraining, BackboneTraining):
    """Trains GenARM, PARM, UniARM, or all weights of a causal language model, on labelled pairs."""

    settings: AutoregressiveSettings

    def prepare(self, data: TrainingData) -> Prepared:
        """Return the base model with its adapter, the rows of the pairs, and the loss at sampled preferences."""
        settings = self.settings
        model = self.build()
        task = self._task(model)
        encode = partial(encode_preferences, model.encoder, objectives=settings.objectives, on_long=settings.on_long)
        encoding = self.log_encoding("data", encode(data.train.pairs))
        task.check(encoding.rows)
        if settings.token_baseline == "constant":
            model = self._with_constant_baseline(model, task, encoding)
        held = data.held_out.pairs
        eval_rows = self.log_encoding("eval_data", encode(held)).rows if held else None
        monitor = None
        if model.adapter and settings.monitor_steps:
            options: Any = {"every": settings.monitor_steps, "restarts": settings.restarts, "report": self.report}
            monitor = CollapseMonitor(task, measured_rows(eval_rows or encoding.rows), **options)
        stream = self.stream(data, partial(encode, allow_empty=True))
        return Prepared(model, task, encoding, eval_rows, {}, stream, monitor)

    def build(self) -> AutoregressiveRewardModel:
        """Return the base model with a new adapter, or with all weights trainable."""
        settings = self.settings
        options = self.loading_options() | {
            "beta": settings.train_beta,
            "centred": settings.token_baseline == "expected",
        }
        return load_autoregressive(str(settings.model), adapter=self._adapter(), **options)

    def _adapter(self) -> AdapterSettings | None:
        """Return the settings of the adapter; None to train all weights."""
        settings = self.settings
        if settings.adapter == "none":
            return None
        rank = settings.lora_r or GUIDE_RANK
        return AdapterSettings(
            kind=settings.adapter,  # pyright: ignore[reportArgumentType]
            objectives=tuple(settings.objectives),
            texts=tuple(settings.texts),
            rank=rank,
            factor=2.0 if settings.lora_alpha is None else settings.lora_alpha / (rank + settings.shared_rank),
            dropout=settings.lora_dropout,
            targets=tuple(settings.lora_target_modules) or GUIDE_TARGETS,
            seed=self.arguments.seed,
            **{name: vars(settings)[name] for name in ADAPTER_SETTINGS},
        )

    def _task(self, model: AutoregressiveRewardModel) -> PreferenceTask:
        settings = self.settings
        return PreferenceTask(
            model.adapter,
            settings.objectives,
            self._loss(),
            sampler_of(settings),
            reference=settings.subtract_reference,
            normalised=settings.normalise_length,
            per_batch=settings.per_batch,
            seed=self.arguments.seed,
            centred=settings.token_baseline == "expected",
            rates={"A": settings.rate_of_a, "modulation": settings.rate_of_modulation},
        )

    def _loss(self) -> SequenceLogistic:
        settings = self.settings
        return sequence_logistic(
            betas_of(settings),
            weight=settings.global_weight if len(settings.objectives) > 1 else 0.0,
            form=settings.global_form,  # pyright: ignore[reportArgumentType]
            label_smoothing=settings.label_smoothing,
            ignore_ties=settings.ignore_ties,
        )

    def _with_constant_baseline(
        self, model: AutoregressiveRewardModel, task: PreferenceTask, encoding: Encoding
    ) -> AutoregressiveRewardModel:
        """Return the model with `token_offset` set to the base model's mean of -log π per token."""
        self.report("measuring the base model's mean of -log p per token")
        task.token_offset = round(mean_negative_logprob(task, model.model, encoding.rows[:MEASURED]), 2)
        self.report(
            f"every token's log-probability is raised by {task.token_offset:g} nats, the base model's mean of -log p"
        )
        return model.with_token_offset(task.token_offset)


def betas_of(settings: AutoregressiveSettings) -> list[float]:
    """Return β of the loss for every objective."""
    betas = {name: settings.train_beta for name in settings.objectives}
    for text in settings.objective_betas:
        name, _, value = text.partition("=")
        try:
            beta = float(value)
        except ValueError as error:
            raise UsageError(f"--objective_betas must be NAME=β, such as helpful=0.5; got '{text}'") from error
        if name not in betas:
            raise UsageError(f"--objective_betas: no objective '{name}'; {did_you_mean(name, settings.objectives)}")
        betas[name] = beta
    return [*betas.values()]


def sampler_of(settings: AutoregressiveSettings) -> Sampler:
    """Return the sampler of preferences in training."""
    k = len(settings.objectives)
    if settings.preferences == "dirichlet":
        return dirichlet(k, settings.concentration)
    return vertex_sampler(k) if settings.preferences == "vertices" else grid_sampler(k)
