"""`rewardlab train`: train any kind of reward model on preference data."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....rm.registry import kind_of
from ....rm.registry.settings import Settings
from ....rm.training import CHECKPOINTS
from ....rm.training.fit import fit
from ....rm.training.protocol import Training
from ....rm.training.trainer import RewardArguments
from ...publishing.hub_upload import open_repository
from ...runs.model_hashes import with_model_hashes
from ...runs.processes import shared_run_folder, trained_by
from ...runs.run_folder import data_hash, log, log_rows, training_recipe, trust_option, write_manifest, write_rows
from ...runs.stop_training import train_until_signal
from .settings import TrainConfig, own_settings

FREE = ("resume", "overwrite", "output")
"""Settings that may change when a run is resumed. `processes` is not among them, since it changes the batch size."""


def train(config: TrainConfig, kind_settings: Any, arguments: RewardArguments) -> dict[str, Any]:
    """Train a reward model, check that loading it gives the same scores, and save its folder."""
    output, started = config.output or arguments.output_dir, time.time()
    here = trained_by(config.processes, "train", arguments)
    settings = own_settings(config, kind_settings, arguments)
    training = kind_of(config.kind).training(settings, arguments, report=log, **trust_option(config))
    training.check(config.data)
    repository = open_repository(arguments, leads=here.leads)
    recipe = _recipe(config, settings, training) if here.leads else {}
    folder_options = {"overwrite": config.overwrite, "resume": config.resume, "keep": f"{CHECKPOINTS}/*"}
    with shared_run_folder(output, recipe, here, **folder_options) as work:
        data = training.read(config.data, config.eval_data)
        log_rows("data", data.rows)
        log_rows("eval_data", data.held_out_rows)
        model, facts, steps = fit(
            training, data, work, golden=config.golden, resume=config.resume, run=train_until_signal
        )
        summary = {"model": output, "kind": config.kind, "contract": model.contract.hash()}
        summary |= {"processes": here.world} if here.world > 1 else {}
        if not here.leads:
            return summary | {"rank": here.rank}
        if steps:
            write_rows(work / "metrics.jsonl", steps)
        rows = {"rows": data.rows.as_json(), "eval_rows": data.held_out_rows.as_json()}
        facts |= {"arguments": arguments.to_sanitized_dict(), "contract": model.contract.hash(), **rows}
        sources = training.files([*config.data, *config.eval_data])
        write_manifest(work, data=sources, seed=arguments.seed, started=started, **facts)
    if repository:
        summary["commit"] = repository.upload(Path(output))
    return summary | training.summary(model, data, facts)


def _recipe(config: TrainConfig, settings: Settings, training: Training[Any]) -> dict[str, Any]:
    """Return the settings that determine the result, with hashes of data and models."""
    stated = {name: value for name, value in asdict(config).items() if name not in FREE}
    stated |= asdict(settings)  # pyright: ignore[reportArgumentType]
    sources = [*config.data, *config.eval_data]
    hashes = [data_hash(path) for path in training.files(sources)]
    stated["data_sha256"] = dict(zip(sources, hashes, strict=True))
    return training_recipe(with_model_hashes(stated), training.arguments)
