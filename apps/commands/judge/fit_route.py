"""`rewardlab judge --fit_route`: a routing probe from the runs of a cheap and of a strong judge."""

import time
from pathlib import Path
from typing import Any

from ....benchmarks.scorers import open_scorer
from ....judges.kinds.route import strong_needed
from ....judges.kinds.route.features import METADATA, REWARDS, case_features
from ....judges.kinds.route.probe import fit_probe, open_embedder
from ....rm.errors import UsageError
from ....rm.kinds.ensemble.uncertain import UncertainRewardModel
from ...runs.finished import Finished, open_finished, shared_cases
from ...runs.run_folder import log, run_folder, write_manifest
from .settings import JudgeConfig


def fit_route(config: JudgeConfig, loading: dict[str, Any]) -> dict[str, Any]:
    """Fit a probe to the stored judgments of both judges and save it; the manifest says on what it was fitted."""
    started = time.time()
    (first, cheap), (second, strong) = map(opened, config.fit_route)
    cases = shared_cases(first, second)
    if left_out := len(first.cases) + len(second.cases) - 2 * len(cases):
        log(f"{left_out} cases are in one of the runs only and are left out")
    model = open_scorer(config.fit_reward_model, **loading).model if config.fit_reward_model else None
    read = REWARDS[: 1 + isinstance(model, UncertainRewardModel)] if model else ()
    embedder = open_embedder(config.encoder, **loading) if config.encoder else None
    needed = strong_needed(cases, first.of(cheap, cases), second.of(strong, cases))
    recipe = config.identity()
    with run_folder(config.output, recipe, overwrite=config.overwrite) as work:
        features = case_features(cases, model)
        probe = fit_probe(features, needed, inputs=(*METADATA, *read), embedder=embedder, seed=config.seed)
        probe.save(work)
        facts = {"cheap": cheap, "strong": strong, "contract": probe.contract, "left_out": left_out, **probe.facts}
        write_manifest(work, data=[], seed=config.seed, started=started, runs=config.fit_route, **facts)
    return {"run": config.output, **facts}


def opened(text: str) -> tuple[Finished, str]:
    """Open RUN or RUN:JUDGE; return the run and its judge, by default its only model."""
    folder, sign, name = text.rpartition(":")
    if Path(text).is_dir() or not sign:
        folder, name = text, ""
    run = open_finished(folder)
    try:
        return run, run.model(name or None)
    except UsageError as error:
        names = ", ".join(run.judgments)
        raise UsageError(f"{text}: write RUN:JUDGE with one of the run's judges: {names}") from error
