"""The folder of an ensemble or a boosted model: where its members are, and how their rewards become one."""

import time
from pathlib import Path
from typing import Any

from ....rm.contract.golden_scores import GOLDEN, check_golden, load_reward_model, read_golden, write_golden
from ....rm.data.pairs import load_pairs
from ....rm.errors import UsageError
from ....rm.models.boosted import BoostedRewardModel
from ....rm.models.ensemble import EnsembleRewardModel, ensemble
from ...runs.run_folder import data_hash, log_rows, run_folder, trust, write_manifest
from .settings import TrainConfig
from .several_settings import SeveralConfig


def make_ensemble(config: TrainConfig, several: SeveralConfig, output: str) -> dict[str, Any]:
    """Open the members, check their golden scores, and save the ensemble with golden scores of its own."""
    if config.data or config.eval_data:
        raise UsageError(
            "an ensemble is made of reward models that are trained already; leave --data and --eval_data out"
        )
    started, recipe = time.time(), {"kind": config.kind, "members": several.members, "combine": several.combine}
    with run_folder(output, recipe, overwrite=config.overwrite) as work:
        model = _open(several, **trust(config))
        model.save(work)
        facts: dict[str, Any] = {}
        first = Path(several.members[0])
        if (first / GOLDEN).exists():
            write_golden(model, read_golden(first)[0][: config.golden], work)
            facts["golden_difference"] = check_golden(load_reward_model(str(work), check=False, **trust(config)), work)
        facts |= {"contract": model.contract.hash(), "members": model.names}
        write_manifest(work, data=[], seed=0, started=started, **facts)
    return {"model": output, "kind": config.kind, "members": len(model.members), "contract": model.contract.hash()}


def make_boosted(config: TrainConfig, several: SeveralConfig, output: str) -> dict[str, Any]:
    """Fit the weights of trained stages in order on the pairs of --data."""
    started, recipe = time.time(), {"kind": config.kind, "members": several.members, "data": config.data}
    recipe |= {"objective": config.objective, "data_sha256": {name: data_hash(name) for name in config.data}}
    with run_folder(output, recipe, overwrite=config.overwrite) as work:
        pairs, rows = load_pairs(config.data, on_bad_row=config.on_bad_row)
        log_rows("data", rows)
        names = [str(Path(name).resolve()) if Path(name).exists() else name for name in several.members]
        stages = [load_reward_model(name, **trust(config)) for name in names]
        model = BoostedRewardModel.fitted(stages, names, pairs, objective=config.objective)
        model.save(work)
        write_golden(model, [pair.examples[index % 2] for index, pair in enumerate(pairs)][: config.golden], work)
        facts: dict[str, Any] = {"weights": dict(zip(names, model.weights, strict=True))}
        facts["losses"] = model.losses(pairs, config.objective)
        facts["golden_difference"] = check_golden(load_reward_model(str(work), check=False, **trust(config)), work)
        facts["contract"] = model.contract.hash()
        write_manifest(work, data=config.data, seed=None, started=started, **facts)
    summary = {"model": output, "kind": config.kind, "contract": model.contract.hash(), "members": len(stages)}
    return summary | {"pairs": len(pairs), "weights": model.weights, "losses": facts["losses"]}


def _open(several: SeveralConfig, **options: Any) -> EnsembleRewardModel:
    """Open the ensemble; mean and mean - λ std are passed as a pessimism of λ, so that contracts stay the same."""
    rule, source = several.rule(), ",".join(several.members)
    if rule.name in ("mean", "mean_std"):
        return ensemble(source, pessimism=rule.arguments.get("weight", 0.0), **options)
    return ensemble(source, rule=rule, **options)
