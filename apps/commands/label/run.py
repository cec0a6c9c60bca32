"""`rewardlab label`: preference pairs and scores of responses by reward models and judges, and their agreement."""

import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ....policy.decoding.selection import select_pairs, usable_completions
from ....policy.training.prompts import rows_by_prompt
from ....rm.errors import DataError, UsageError
from ....rm.registry.specs import is_function, parse_spec
from ....rm.types import completion_text
from ...assembly.labelling import DATA, Group, Ratings, agreement, load_groups, rate_groups, write_pairs, write_scores
from ...rewards._open import NoPolicy, RunFacts, check_functions, open_fixed_rewards, sources_by_name
from ...runs.model_hashes import model_hashes
from ...runs.run_folder import log, log_rows, recipe_of, run_folder, seconds_since, trust_option, write_manifest
from .settings import LabelConfig

LATER = ("rejected", "margin", "agreement", "threshold")
"""Settings of the steps after labelling. A resumed run may change them."""
FREE = (*LATER, "output", "resume", "overwrite")
PROGRESS, REPLIES, FAULTS = "progress", "replies", "faults.jsonl"


def run_label(config: LabelConfig) -> dict[str, Any]:
    """Compute the rewards of all responses, and write scores and preference pairs to the run folder."""
    started = time.time()
    groups, report = load_groups(config.data, skip_bad_rows=config.on_bad_row == "skip")
    log_rows("data", report)
    if DATA in sources_by_name(config.reward):
        raise UsageError(f"--reward {DATA}=... is the name of the labels in the data; rename it with NAME=SOURCE")
    table = [group.row for group in groups]
    check_functions([*sources_by_name(config.reward).values()], table)
    folder_options: dict[str, Any] = {"overwrite": config.overwrite, "resume": config.resume}
    with run_folder(config.output, _recipe(config), keep="*/*.jsonl*", **folder_options) as work:
        (work / PROGRESS).mkdir(exist_ok=True)
        policy: Any = NoPolicy("rewardlab label loads no policy; name labellers that need only texts")
        loading, by_prompt = trust_option(config), rows_by_prompt(table)
        run = RunFacts(policy, 1, config.seed, loading, by_prompt, table, str(work / REPLIES))
        sources = open_fixed_rewards(config.reward, (), run, work / FAULTS, skip=config.on_fault == "skip")
        if config.agreement and len(sources.names) < 2 and not sources.ensembles:
            raise UsageError(f"--agreement {config.agreement} needs an ensemble or several labellers; remove it")
        ratings, labelled = rate_groups(sources, groups, work / PROGRESS / "rewards.jsonl", config.batch_size)
        facts = {"contracts": sources.contracts} | _write(config, groups, ratings, work)
        settings = {name: vars(config)[name] for name in LATER}
        write_manifest(work, data=config.data, seed=config.seed, started=started, settings=settings, **facts)
        shutil.rmtree(work / PROGRESS)
    responses = sum(len(group.responses) for group in groups)
    counts = {"output": config.output, "prompts": len(groups), "responses": responses, "labelled": labelled}
    return counts | facts | {"seconds": round(seconds_since(started), 2)}


def _recipe(config: LabelConfig) -> dict[str, Any]:
    """Return the settings and file hashes that determine the rewards and must not change when a run is resumed."""
    sources = sources_by_name(config.reward).values()
    functions = [parse_spec(source).name for source in sources if is_function(source)]
    files = [source for source in sources if os.path.exists(source) or "(" not in source] + functions
    return recipe_of(config, FREE, config.data) | {"model_sha256": model_hashes(files)}


def _write(config: LabelConfig, groups: list[Group], ratings: Ratings, work: Path) -> dict[str, Any]:
    """Write scores and pairs. Return the agreement of the labellers, and counts of dropped responses."""
    rewards = ratings.total
    usable, dropped = usable_completions([[*map(completion_text, group.responses)] for group in groups], rewards)
    if not usable.any():
        raise DataError(f"none of the responses has text and a reward: {dict(dropped)}; correct the labellers")
    sizes = np.array([len(group.responses) for group in groups])
    present = np.arange(rewards.shape[1]) < sizes[:, None]
    missing = (np.isnan(ratings.rewards) & present[:, :, None]).sum((0, 1))
    rng = np.random.default_rng(config.seed)
    pairs, without_pair = select_pairs(rewards, usable, rng, rejected=config.rejected, margin=config.margin)
    agreed = [pair for pair in pairs if ratings.share(pair) >= config.agreement]
    without_pair += Counter(disagreement=len(pairs) - len(agreed)) if len(agreed) < len(pairs) else Counter()
    write_scores(groups, ratings, usable, config.threshold, work / "scores.jsonl")
    if (sizes > 1).any():
        write_pairs(groups, ratings, agreed, work / "pairs.jsonl")
    facts = agreement(groups, ratings)
    for both, values in facts.get("pairs", {}).items():
        log(f"{both}: equal on {values['equal']:.1%} of {values['prompts']} prompts, kappa {values['kappa']:.2f}")
    return {
        "scores": {"rows": int(usable.sum()), "mean_reward": float(rewards[usable].mean())},
        "pairs": {"rows": len(agreed), **without_pair},
        "abstentions": dict(zip(ratings.names, missing.tolist(), strict=True)),
        "dropped": dict(dropped),
        "agreement": facts,
    }
