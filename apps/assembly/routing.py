"""Training of a routing probe from the runs of a cheap and of a strong judge."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...benchmarks.scorers import open_scorer
from ...judges.kinds.route import strong_needed
from ...judges.kinds.route.features import METADATA, REWARDS, case_features
from ...judges.kinds.route.probe import fit_probe, open_embedder
from ...rm.errors import UsageError
from ...rm.kinds.ensemble.combination import UncertainRewardModel
from ..runs.finished import Finished, open_finished, shared_cases
from ..runs.run_folder import log, run_folder, write_manifest


def fit_route(
    runs: Sequence[str],
    output: str,
    *,
    recipe: Mapping[str, Any],
    overwrite: bool,
    encoder: str,
    reward_model: str,
    loading: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    """Fit a probe to the judgments of two runs (RUN or RUN:JUDGE), and save it with a manifest of its training data.

    `encoder` and `reward_model` are folders or Hub ids (empty: none). `loading` contains options for opening models.
    """
    started = time.time()
    (first, cheap), (second, strong) = map(_open_judge_of_run, runs)
    cases = shared_cases(first, second)
    if left_out := len(first.cases) + len(second.cases) - 2 * len(cases):
        log(f"{left_out} cases are in only one of the two runs and are left out")
    model = open_scorer(reward_model, **loading).model if reward_model else None
    from_model = REWARDS[: 1 + isinstance(model, UncertainRewardModel)] if model else ()
    embedder = open_embedder(encoder, **loading) if encoder else None
    needed = strong_needed(cases, first.of(cheap, cases), second.of(strong, cases))
    with run_folder(output, recipe, overwrite=overwrite) as work:
        features = case_features(cases, model)
        probe = fit_probe(features, needed, inputs=(*METADATA, *from_model), embedder=embedder, seed=seed)
        probe.save(work)
        facts = {"cheap": cheap, "strong": strong, "contract": probe.contract, "left_out": left_out, **probe.facts}
        write_manifest(work, data=[], seed=seed, started=started, runs=list(runs), **facts)
    return {"run": output, **facts}


def _open_judge_of_run(text: str) -> tuple[Finished, str]:
    """Open RUN or RUN:JUDGE. Return the run and the name of its judge. JUDGE is optional for a run with one model."""
    folder, sign, name = text.rpartition(":")
    if Path(text).is_dir() or not sign:
        folder, name = text, ""
    run = open_finished(folder)
    try:
        return run, run.model(name or None)
    except UsageError as error:
        names = ", ".join(run.judgments)
        raise UsageError(f"{text}: write RUN:JUDGE with one of the run's judges: {names}") from error
