"""The training of a guide from its settings: adapter, loss, sampled preferences, rows and the monitor of a collapse."""

from functools import partial
from typing import Any

from ...adapters.settings import AdapterSettings
from ...data.preference_vectors import Sampler, at_vertices, dirichlet, on_grid
from ...errors import UsageError, did_you_mean
from ...losses.sequence_logistic import SequenceLogistic, sequence_logistic
from ...training.encoding import Encoding
from ...training.protocol import Prepared, TrainingData
from .._training import BackboneTraining, StreamedTraining
from .diagnostics import CollapseMonitor, mean_surprise, measured_rows
from .model import AutoregressiveRewardModel, load_autoregressive
from .preference_task import PreferenceTask, encode_preferences
from .settings import AutoregressiveSettings

MEASURED = 256
"""Number of pairs on which the base model is measured before the training."""
GUIDE_RANK, GUIDE_TARGETS = 8, ("q_proj", "k_proj", "v_proj")
"""Defaults of a guide's adapter."""
ADAPTER_SETTINGS = ("shared_rank", "from_layer", "generator", "embedding", "span", "scale", "shift")
"""Settings of guides that are their adapters' too."""


class AutoregressiveTraining(StreamedTraining, BackboneTraining):
    """Trains GenARM, PARM, UniARM, or all weights of a causal language model, on labelled pairs."""

    settings: AutoregressiveSettings

    def prepare(self, data: TrainingData) -> Prepared:
        """Return the base model with its adapter, the rows of the pairs, and the loss at sampled preferences."""
        given = self.settings
        model = self.build()
        task = self._task(model)
        encode = partial(encode_preferences, model.encoder, objectives=given.objectives, on_long=given.on_long)
        encoding = self.log_encoding("data", encode(data.train.pairs))
        task.check(encoding.rows)
        if given.token_baseline == "constant":
            model = self._with_constant_baseline(model, task, encoding)
        held = data.held_out.pairs
        eval_rows = self.log_encoding("eval_data", encode(held)).rows if held else None
        monitor = None
        if model.adapter and given.monitor_steps:
            options: Any = {"every": given.monitor_steps, "restarts": given.restarts, "report": self.report}
            monitor = CollapseMonitor(task, measured_rows(eval_rows or encoding.rows), **options)
        stream = self.stream(data, partial(encode, allow_empty=True))
        return Prepared(model, task, encoding, eval_rows, {}, stream, monitor)

    def build(self) -> AutoregressiveRewardModel:
        """Return the base model with a new adapter, or with all weights trainable."""
        given = self.settings
        options = self.loading_options() | {"beta": given.train_beta, "centred": given.token_baseline == "expected"}
        return load_autoregressive(str(given.model), adapter=self._adapter(), **options)

    def _adapter(self) -> AdapterSettings | None:
        given = self.settings
        if given.adapter == "none":
            return None
        rank = given.lora_r or GUIDE_RANK
        return AdapterSettings(
            kind=given.adapter,  # pyright: ignore[reportArgumentType]
            objectives=tuple(given.objectives),
            texts=tuple(given.texts),
            rank=rank,
            factor=2.0 if given.lora_alpha is None else given.lora_alpha / (rank + given.shared_rank),
            dropout=given.lora_dropout,
            targets=tuple(given.lora_target_modules) or GUIDE_TARGETS,
            seed=self.arguments.seed,
            **{name: vars(given)[name] for name in ADAPTER_SETTINGS},
        )

    def _task(self, model: AutoregressiveRewardModel) -> PreferenceTask:
        given = self.settings
        return PreferenceTask(
            model.adapter,
            given.objectives,
            self._loss(),
            sampler_of(given),
            reference=given.subtract_reference,
            normalised=given.normalise_length,
            per_batch=given.per_batch,
            seed=self.arguments.seed,
            centred=given.token_baseline == "expected",
            rates={"A": given.rate_of_a, "modulation": given.rate_of_modulation},
        )

    def _loss(self) -> SequenceLogistic:
        given = self.settings
        return sequence_logistic(
            betas_of(given),
            weight=given.global_weight if len(given.objectives) > 1 else 0.0,
            form=given.global_form,  # pyright: ignore[reportArgumentType]
            label_smoothing=given.label_smoothing,
            ignore_ties=given.ignore_ties,
        )

    def _with_constant_baseline(
        self, model: AutoregressiveRewardModel, task: PreferenceTask, encoding: Encoding
    ) -> AutoregressiveRewardModel:
        """Return the model with the base model's mean surprise added to every token's log-probability."""
        self.report("measuring the base model's mean surprise by a token")
        task.token_offset = round(mean_surprise(task, model.model, encoding.rows[:MEASURED]), 2)
        self.report(
            f"every token's log-probability is raised by {task.token_offset:g} nats, the base model's mean surprise"
        )
        return model.with_token_offset(task.token_offset)


def betas_of(settings: AutoregressiveSettings) -> list[float]:
    """Return β of the loss for every objective."""
    named = {name: settings.train_beta for name in settings.objectives}
    for text in settings.objective_betas:
        name, _, value = text.partition("=")
        try:
            beta = float(value)
        except ValueError as error:
            raise UsageError(f"--objective_betas are NAME=β, such as helpful=0.5; got '{text}'") from error
        if name not in named:
            raise UsageError(f"--objective_betas: no objective '{name}'; {did_you_mean(name, settings.objectives)}")
        named[name] = beta
    return [*named.values()]


def sampler_of(settings: AutoregressiveSettings) -> Sampler:
    """Return the distribution of the preferences in training."""
    k = len(settings.objectives)
    if settings.preferences == "dirichlet":
        return dirichlet(k, settings.concentration)
    return at_vertices(k) if settings.preferences == "vertices" else on_grid(k)
