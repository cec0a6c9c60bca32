"""Process reward models: model, rows and task from settings and labelled solutions."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from ....rm.data.scored_rows import Judged
from ....rm.data.solutions import Solution
from ....rm.models.process import ProcessRewardModel, process, process_from_config
from ....rm.training.process_task import ProcessTask, encode_solutions
from ....rm.training.trainer import RewardArguments
from ....rm.types import Example, message_text
from ...runs.run_folder import log, trust
from ...settings.reading import edges
from .process_settings import ProcessConfig
from .scalar import Prepared, log_encoding, log_small_model, lora_config, small_backbone
from .settings import TrainConfig


def prepare_process(
    config: TrainConfig, steps: ProcessConfig, arguments: RewardArguments, data: Judged, held: Judged
) -> Prepared:
    """Return a token classifier, the rows of the solutions, and counts of labels."""
    model = build_process(config, steps, data.solutions, arguments.seed)
    encoding = encode_solutions(model.encoder, data.solutions, config.on_long)
    log(f"the first sequence reads: {model.encoder.tokenizer.decode(encoding.rows[0].ids)[:300]!r}")
    encoding = log_encoding("data", encoding, config, "solutions")
    eval_rows = None
    if held.solutions:
        evaluation = encode_solutions(model.encoder, held.solutions, config.on_long)
        eval_rows = log_encoding("eval_data", evaluation, config, "solutions").rows
    return Prepared(model, ProcessTask(), encoding, eval_rows, {"labels": _log_labels(data.solutions, model)})


def build_process(
    config: TrainConfig, steps: ProcessConfig, solutions: Sequence[Solution], seed: int
) -> ProcessRewardModel:
    """Return the named backbone with a new head at every token, or a small causal LM from scratch."""
    options: dict[str, Any] = {name: getattr(steps, name) for name in ("step_separator", "step_token", "aggregate")}
    options |= {"max_length": config.max_length, "seed": seed}
    if config.model:
        options |= {"chat_template": config.chat_template, "dtype": config.dtype, "lora": lora_config(config)}
        return process(config.model, fresh=True, **options, **edges(config), **trust(config))
    texts = [message_text(turn) for solution in solutions for turn in solution.prompt]
    tokenizer, shape = small_backbone(config, [*texts, *(step for solution in solutions for step in solution.steps)])
    model = process_from_config(shape, tokenizer, **options)
    log_small_model(model.model, tokenizer)
    return model


def shown_solutions(model: ProcessRewardModel, solutions: Sequence[Solution], number: int) -> list[Example]:
    """Return the first solutions, as plain text, that the model reads as a whole."""
    separator, limit = model.encoder.separator, model.contract.max_length
    examples = (Example(solution.prompt, separator.join(solution.steps)) for solution in solutions)
    return [*islice((some for some in examples if not limit or model.encoder.encode(some).length <= limit), number)]


def _log_labels(solutions: Sequence[Solution], model: ProcessRewardModel) -> dict[str, int]:
    """Count the labels, and the steps that would be split further if they were read as text."""
    labels = np.concatenate([solution.labels for solution in solutions])
    counts = {
        "correct": int((labels == 1).sum()),
        "wrong": int((labels == 0).sum()),
        "between": int(((labels > 0) & (labels < 1)).sum()),
        "unlabelled": int(np.isnan(labels).sum()),
    }
    log(f"data: {', '.join(f'{count} {name}' for name, count in counts.items())} steps")
    separator = model.encoder.separator
    if divided := sum(separator in step.strip() for solution in solutions for step in solution.steps):
        log(
            f"data: {divided} steps have the separator {separator!r} in them and would be split there when they are "
            "scored as text; another --step_separator may fit better"
        )
    return counts
