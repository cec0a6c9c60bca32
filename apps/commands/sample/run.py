"""`rewardlab sample`: training data from the best of several completions, beside random controls."""

import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ....judges.backends.openai_endpoint import Endpoint
from ....policy.decoding.engines import check_room, open_engine, parse_arms
from ....policy.decoding.requests import Request
from ....policy.decoding.search import repeated
from ....policy.decoding.selection import (
    random_of_all,
    random_of_prompts,
    random_pairs,
    select_best,
    select_pairs,
    select_top,
    usable_completions,
    win_shares,
    without_length,
)
from ....policy.rewards.sources import RewardSources
from ....policy.training.prompts import Prompts, load_prompts, rows_by_prompt
from ....rm.data.preference_vectors import checked_preference
from ....rm.errors import DataError, UsageError
from ....rm.registry.settings import changed_settings
from ....rm.types import prompt_text
from ...assembly.policy_sampling import (
    ALL,
    Sample,
    SampledCompletion,
    log_gains,
    rate,
    sample_from_server,
    sample_locally,
    write_all,
    write_selection,
)
from ...rewards._open import NoPolicy, RunFacts, check_functions, open_fixed_rewards, sources_by_name
from ...runs.model_hashes import model_hashes
from ...runs.run_folder import data_hash, log_rows, run_folder, seconds_since, trust_option, write_manifest
from .settings import SELECTIONS, SampleConfig

LATER = (
    *("reward", "watch", "on_fault", "select", "rejected", "margin", "min_wins"),
    *("length_penalty", "length_unit", "share"),
)
"""Settings of the steps after generation. A resumed run repeats these steps and may change their settings."""
FREE = (*LATER, "output", "resume", "overwrite", "concurrency", "key_variable")
SERVED_SAMPLING = ("top_k", "top_p", "min_p", "stop")
"""Settings that are sent to a server as options of a request, if they are not the default."""
SERVED = "the policy is behind a server, so its weights are not available; load the policy with --base"
PROGRESS, FAULTS = "progress", "faults.jsonl"


def run_sample(config: SampleConfig) -> dict[str, Any]:
    """Sample completions, compute their rewards, and write the selected rows to the run folder."""
    started = time.time()
    prompts = load_prompts(config.data, skip_bad_rows=config.on_bad_row == "skip")
    log_rows("data", prompts.report)
    check_functions([*sources_by_name([*config.reward, *config.watch]).values()], prompts.rows)
    folder_options: dict[str, Any] = {"overwrite": config.overwrite, "resume": config.resume}
    with run_folder(config.output, _recipe(config), keep=f"{PROGRESS}/*.jsonl*", **folder_options) as work:
        (work / PROGRESS).mkdir(exist_ok=True)
        sources, completions, generated = _sample(config, prompts, work)
        sources.truncate_record(0)  # all rewards are computed again after --resume
        batch_size = max(1, config.batch_size // config.n) * config.n
        rewards = rate(sources, prompts.rows, completions, batch_size)
        sample = Sample(prompts.rows, completions, rewards, sources.trained)
        write_all(sample, sources.contracts, work / ALL)
        facts = {"contracts": sources.contracts} | _select(config, sample, work)
        settings = {name: vars(config)[name] for name in LATER}
        write_manifest(work, data=config.data, seed=config.seed, started=started, settings=settings, **facts)
        shutil.rmtree(work / PROGRESS)
    counts = {
        "output": config.output,
        "prompts": len(prompts.rows),
        "completions": len(completions),
        "generated": generated,
        "tokens": sum(completion.tokens for completion in completions),
        "cut_off": sum(completion.is_cut for completion in completions),
    }
    return counts | facts | {"seconds": round(seconds_since(started), 2)}


def _recipe(config: SampleConfig) -> dict[str, Any]:
    """Return the settings and file hashes that determine completions and must not change when a run is resumed."""
    recipe = {name: value for name, value in asdict(config).items() if name not in FREE}
    recipe["endpoint"] = config.endpoint[:1]
    recipe["data_sha256"] = {source: data_hash(source) for source in config.data}
    models = [*([config.base] if config.base else []), *(folder for _, folder in parse_arms(config.arm))]
    return recipe | {"model_sha256": model_hashes(models)}


# ---- completions and rewards ----


def _sample(config: SampleConfig, prompts: Prompts, work: Path) -> tuple[RewardSources, list[SampledCompletion], int]:
    """Return the reward sources, n completions of each prompt, and the number of newly generated completions."""
    if config.endpoint:
        _refuse_parts(prompts)
        requests = _requests(config, prompts, guided=False)
        sources = _open_rewards(config, prompts, NoPolicy(SERVED), work)
        return sources, *sample_from_server(_server_endpoint(config), requests, work / PROGRESS)
    engine, objectives = open_engine(
        config.base, config.arm, dtype=config.dtype, chat_template=config.chat_template, **trust_option(config)
    )
    check_room(engine, [(str(index), row.prompt) for index, row in enumerate(prompts.rows)])
    preference = checked_preference(config.preference, objectives)
    requests = _requests(config, prompts, preference=preference, guided=bool(engine.guides))
    sources = _open_rewards(config, prompts, engine.base, work)
    file = work / PROGRESS / "completions.jsonl"
    return sources, *sample_locally(engine, requests, file, batch_size=config.batch_size)


def _requests(config: SampleConfig, prompts: Prompts, *, guided: bool, preference: Any = None) -> list[Request]:
    """Return `n` generation requests per prompt, each prompt with its own seed."""
    common = config.request_settings(guided=guided)
    rows = enumerate(prompts.rows)
    return repeated([Request(row.prompt, preference, seed=config.seed + i, **common) for i, row in rows], config.n)


def _refuse_parts(prompts: Prompts) -> None:
    """Raise a `DataError` for a message with more than its content, such as tools, which a server would not read."""
    for index, row in enumerate(prompts.rows):
        if parts := {key for turn in row.prompt for key in turn} - {"role", "content", "name"}:
            raise DataError(
                f"prompt {index} ({prompt_text(row.prompt)[:60]!r}) has {', '.join(sorted(parts))}, which a server "
                "would not read; load the policy with --base, or leave such prompts out"
            )


def _server_endpoint(config: SampleConfig) -> Endpoint:
    options = {name: value for name, value in changed_settings(config).items() if name in SERVED_SAMPLING}
    key = {} if config.key_variable is None else {"key_variable": config.key_variable}
    return Endpoint(config.model or "", config.endpoint, concurrency=config.concurrency, options=options, **key)


def _open_rewards(config: SampleConfig, prompts: Prompts, policy: Any, work: Path) -> RewardSources:
    table = prompts.rows
    facts = RunFacts(policy, 1, config.seed, trust_option(config), rows_by_prompt(table), table)
    sources = open_fixed_rewards(config.reward, config.watch, facts, work / FAULTS, skip=config.on_fault == "skip")
    if config.min_wins and len(sources.trained) < 2 and not {*sources.trained} & {*sources.ensembles}:
        raise UsageError(f"--min_wins {config.min_wins} needs an ensemble or several rewards, got one; leave it out")
    return sources


# ---- selection ----


def _select(config: SampleConfig, sample: Sample, work: Path) -> dict[str, Any]:
    """Write the files of all selections. Return counts of dropped completions, mean rewards, and expected gains."""
    rewards = sample.total
    usable, dropped = usable_completions(sample.texts(), rewards)
    if not usable.any():
        raise DataError(f"none of {rewards.size} completions has text and a reward: {dict(dropped)}; fix the rewards")
    ranking = without_length(
        rewards,
        sample.lengths(config.length_unit == "share"),
        config.length_penalty,
        relative=config.length_unit == "share",
    )
    facts: dict[str, Any] = {"dropped": dict(dropped)} | log_gains(sample)
    for name in config.select:
        seeds = ([config.seed, SELECTIONS.index(name), part] for part in range(2))
        rng, of_control = map(np.random.default_rng, seeds)
        without_pair: dict[str, int] = {}
        if name == "best":
            picks = select_best(ranking, usable)
            control: Any = random_of_prompts(picks, usable, of_control)
        elif name == "top":
            picks = select_top(ranking, usable, config.share)
            control = random_of_all(len(picks), usable, of_control)
        else:
            rules: Any = {"rejected": config.rejected, "margin": config.margin, "ranking": ranking}
            picks, without_pair = select_pairs(rewards, usable, rng, **rules)
            if config.min_wins and (parts := sample.parts) is not None:
                agreed = win_shares(picks, parts) >= config.min_wins
                without_pair["wins"] = int((~agreed).sum())
                picks = [pick for pick, is_agreed in zip(picks, agreed, strict=True) if is_agreed]
            control = random_pairs(picks, usable, of_control)
        write_selection(sample, name, picks, control, work)
        means = [float(np.mean([rewards[pick[:2]] for pick in part])) if part else None for part in (picks, control)]
        facts[name] = {"rows": len(picks), "mean_reward": means[0], "control_mean_reward": means[1], **without_pair}
    return facts
