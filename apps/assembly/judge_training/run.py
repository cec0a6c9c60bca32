"""`rewardlab judge train`: train a generative judge by SFT on traces with right verdicts, then by RL."""

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ....benchmarks.suites.pairs import CaseFile
from ....judges.backends.open import LanguageModels
from ....judges.cdrrm.generator import Record
from ....judges.cdrrm.training import SupervisedSettings, save_trained, sft_trainer
from ....judges.judge import rubrics_for
from ....judges.kinds._comparison import comparison_prompt
from ....judges.kinds.generative.rewards import verdict_row
from ....judges.kinds.generative.traces import labelled_pairs, select_traces
from ....judges.open import check_prompt
from ....judges.prompts import Sampling
from ....judges.rubrics.files import check_matches, open_rubric
from ....judges.rubrics.rubric import Rubric
from ....judges.run import stored_replies
from ....judges.types import Case
from ....policy.training.arguments import PolicyArguments
from ....policy.training.models import open_language_model
from ....policy.training.prompts import PromptRow, Prompts, check_number
from ....rm.backbones.loading import load_causal_lm, load_tokenizer
from ....rm.backbones.tokenization import check_renders
from ....rm.data.pairs import RowReport
from ....rm.errors import CheckFailed, DataError, UsageError
from ....rm.training import CHECKPOINTS
from ....rm.training.checkpointing import MarkComplete, last_complete_checkpoint
from ...runs.model_hashes import with_model_hashes
from ...runs.run_folder import (
    MANIFEST,
    data_hash,
    log,
    run_folder,
    seconds_since,
    training_recipe,
    trust_option,
    write_manifest,
    write_rows,
)
from ...runs.stop_training import train_until_signal
from ..policy_training.run import POLICY, checked_algorithm, train_policy
from ..policy_training.settings import RlConfig
from .settings import JudgeTrainConfig

JUDGE, SFT, RL, MODEL = "judge", "sft", "rl", "model"
"""Folders of a run: the trained judge, the supervised and the RL stage, and the weights of the supervised stage."""
TRACES, DROPPED, PROMPTS = "traces.jsonl", "dropped.jsonl", "prompts.jsonl"


def train_judge(config: JudgeTrainConfig, arguments: PolicyArguments) -> dict[str, Any]:
    """Train a generative judge in one or two stages and save its run folder."""
    started = time.time()
    check_prompt("--prompt", config.prompt)
    check_renders(load_tokenizer(config.base, chat_template=config.chat_template, **trust_option(arguments)))
    pairs, notes = load_pairs(config)
    check_stages(config, arguments, len(pairs.cases))
    data = {source: data_hash(source) for source in config.sources}
    recipe = training_recipe(with_model_hashes(config.identity() | {"data_sha256": data}), arguments)
    with run_folder(config.output, recipe, overwrite=config.overwrite, resume=config.resume, keep="*/*") as work:
        facts: dict[str, Any] = {"pairs": len(pairs.cases)}
        model, fault = config.base, None
        if config.stage != "rl":
            facts |= supervise(config, arguments, pairs, work)
            model = str(work / SFT / MODEL)
        if config.stage != "sft":
            facts["rl"], fault = reinforce(config, arguments, pairs, model, work)
        if not (work / JUDGE).exists():
            _save_judge(config, arguments, work)
        write_manifest(work, data=config.sources, seed=arguments.seed, started=started, notes=notes, **facts)
    if fault:  # raised after the folder is complete, as in `rewardlab rl`
        raise CheckFailed(str(fault).replace(str(work), config.output)) from fault
    judge = f"{config.output}/{JUDGE}"
    return {"output": config.output, "judge": judge, **facts, "seconds": round(seconds_since(started), 1)}


class TrainingPairs(NamedTuple):
    """Pairs of a right and a wrong response, and the rubric in the judge's prompt for each pair."""

    cases: list[Case]
    rubrics: list[Rubric | None]


def load_pairs(config: JudgeTrainConfig) -> tuple[TrainingPairs, list[str]]:
    """Load the pairs with their rubrics. Return them with notes about omitted rows."""
    cases, notes = CaseFile(config.objective, config.on_bad_row).cases(config.data)
    rubrics: list[Rubric | None] = [None] * len(cases)
    if config.rubric:
        source = open_rubric(config.rubric)
        check_matches(config.rubric, source, cases)
        rubrics = rubrics_for(source, cases)
    by_case = [
        labelled_pairs(case) if rubric or not config.rubric else [] for case, rubric in zip(cases, rubrics, strict=True)
    ]
    needed = "a wrong response and a rubric" if config.rubric else "a wrong response"
    labelled = [(pair, rubric) for pairs, rubric in zip(by_case, rubrics, strict=True) for pair in pairs]
    if not labelled:
        raise DataError(f"{', '.join(config.data)}: none of {len(cases)} cases has {needed}")
    if incomplete := by_case.count([]):
        notes = [*notes, f"{incomplete} of {len(cases)} cases do not have {needed}, and are left out."]
    for note in notes:
        log(f"data: {note}")
    return TrainingPairs(*map(list, zip(*labelled, strict=True))), notes


def check_stages(config: JudgeTrainConfig, arguments: PolicyArguments, pairs: int) -> None:
    """Raise `UsageError` for settings that the last stage refuses, before the first stage starts."""
    if arguments.world_size > 1:
        raise UsageError(
            "judge train runs in one process; for several processes, run rewardlab rl with --reward verdict on "
            "prompts.jsonl in its run folder"
        )
    if config.stage != "sft":
        checked_algorithm(_policy_settings(config, config.base, Path(config.output)), arguments)
        in_both_orders = PromptRow((), as_text=False, columns={}, variants=((),))
        check_number(Prompts([in_both_orders] * pairs, RowReport()), arguments)


# ---- supervised stage ----


def supervise(config: JudgeTrainConfig, arguments: PolicyArguments, pairs: TrainingPairs, work: Path) -> dict[str, Any]:
    """Fine-tune the base model on traces; return information for the manifest.

    A stage that was completed before the run was resumed is not repeated.
    """
    if not (work / SFT).exists():
        records, account = collect_traces(config, arguments, pairs, work)
        _train_on(records, account, config, arguments, str(work / SFT))
    manifest = json.loads((work / SFT / MANIFEST).read_text(encoding="utf-8"))
    return {"traces": manifest["traces"], "sft": {"train_loss": manifest["train_loss"]}}


def collect_traces(
    config: JudgeTrainConfig, arguments: PolicyArguments, pairs: TrainingPairs, work: Path
) -> tuple[list[Record], dict[str, Any]]:
    """Collect and save the training conversations. Return them with the counts of dropped traces."""
    chats = config.teacher_chat()
    chats.trust_remote_code = bool(trust_option(arguments))
    models = LanguageModels(chats)
    (short,) = models.names
    sampling = Sampling(
        arguments.max_completion_length or 1024, arguments.temperature if config.samples > 1 else 0.0, arguments.seed
    )
    prompt = comparison_prompt(config.prompt, ties=False, sampling=sampling)
    with stored_replies(models.open(), models.prices, work, config.on_fault) as teacher_chats:
        log(f"requesting from {short} {config.samples} replies in each order of {len(pairs.cases)} pairs")
        traces = select_traces(teacher_chats[short], pairs.cases, prompt, rubrics=pairs.rubrics, samples=config.samples)
        account = traces.account() | {"teacher": teacher_chats[short].account()}
    write_rows(work / TRACES, traces.records)
    write_rows(work / DROPPED, [{"case": name, "reason": reason} for name, reason in traces.dropped.items()])
    log(f"traces: {len(traces.ids)} of {len(pairs.cases)} pairs kept; dropped: {account['dropped']}")
    if not traces.records:
        raise DataError(
            f"none of {len(pairs.cases)} pairs has the right verdict in both orders ({account['dropped']}); use "
            "another --teacher or more --samples"
        )
    return traces.records, account


def _train_on(
    records: Sequence[Record],
    account: dict[str, Any],
    config: JudgeTrainConfig,
    arguments: PolicyArguments,
    output: str,
) -> None:
    """Fine-tune on conversations in a separate run folder. A resumed run uses its last complete checkpoint."""
    started, settings = time.time(), _supervised_settings(config, arguments)
    with run_folder(output, vars(settings), overwrite=False, resume=config.resume, keep=f"{CHECKPOINTS}/*") as folder:
        tokenizer = load_tokenizer(config.base, chat_template=config.chat_template, **trust_option(arguments))
        model = load_causal_lm(
            config.base, tokenizer, dtype=config.dtype, device=str(arguments.device), **trust_option(arguments)
        )
        names = ("disable_tqdm", "use_cpu", "save_steps", "save_total_limit", "logging_steps")
        trainer_arguments = {"save_strategy": "steps"} | {name: vars(arguments)[name] for name in names}
        trainer = sft_trainer(model, records, folder / CHECKPOINTS, settings, tokenizer, **trainer_arguments)
        trainer.add_callback(MarkComplete())
        checkpoint = last_complete_checkpoint(folder / CHECKPOINTS, log) if config.resume else None
        if checkpoint:
            log(f"resuming from {checkpoint.name} of the supervised stage")
        result = train_until_signal(trainer, checkpoint)
        save_trained(trainer, folder / MODEL)
        write_rows(folder / "metrics.jsonl", trainer.state.log_history)
        facts = {"traces": account, "train_loss": result.training_loss, "steps": trainer.state.global_step}
        chat = asdict(config.teacher_chat())
        write_manifest(folder, data=[], seed=settings.seed, started=started, chat=chat, **facts)


def _supervised_settings(config: JudgeTrainConfig, arguments: PolicyArguments) -> SupervisedSettings:
    return SupervisedSettings(
        epochs=config.sft_epochs,
        learning_rate=config.sft_learning_rate,
        batch=config.sft_batch,
        accumulate=config.sft_accumulate,
        max_length=config.sft_max_length,
        lora_rank=config.lora_r if config.lora else 0,
        bf16=bool(arguments.bf16),
        attn_implementation=arguments.attn_implementation,
        seed=arguments.seed,
    )


# ---- policy training stage ----


def reinforce(
    config: JudgeTrainConfig, arguments: PolicyArguments, pairs: TrainingPairs, model: str, work: Path
) -> tuple[dict[str, Any], CheckFailed | None]:
    """Train the judge on the verdict reward, in a run folder with the layout of `rewardlab rl`.

    Return the results of the training, and the error if nothing was learned from the rewards.
    """
    fault = None
    if not (work / RL).exists():
        prompt = comparison_prompt(config.prompt, ties=False)
        write_rows(work / PROMPTS, [verdict_row(pair, prompt, rubric) for pair, rubric in zip(*pairs, strict=True)])
        try:
            train_policy(_policy_settings(config, model, work), arguments)
        except CheckFailed as error:
            fault = error
    manifest = json.loads((work / RL / MANIFEST).read_text(encoding="utf-8"))
    return {name: manifest[name] for name in ("steps", "reward", "kl")}, fault


def _policy_settings(config: JudgeTrainConfig, model: str, work: Path) -> RlConfig:
    """Return the settings of `rewardlab rl` for the prompts in a run folder."""
    missing = "" if config.no_verdict is None else f"(no_verdict={config.no_verdict})"
    return RlConfig(
        model=model,
        data=[str(work / PROMPTS)],
        output=str(work / RL),
        reward=[f"verdict{missing}"],
        advantage=config.advantage,
        loss=config.loss,
        kl=config.kl,
        lora=config.lora,
        lora_r=config.lora_r,
        lora_alpha=2 * config.lora_r,
        dtype=config.dtype,
        chat_template=config.chat_template,
        resume=config.resume,
    )


def _save_judge(config: JudgeTrainConfig, arguments: PolicyArguments, work: Path) -> None:
    """Write the weights of the last stage, with merged adapters, to the folder `judge`. The stages' folders remain."""
    last, unfinished = work / SFT / MODEL if config.stage == "sft" else work / RL / POLICY, work / f"{JUDGE}.unfinished"
    merges = config.lora and config.stage != "sft"
    shutil.rmtree(unfinished, ignore_errors=True)
    if merges:
        merged = open_language_model(str(last), RlConfig(dtype=config.dtype), arguments)
        merged.model.save_pretrained(unfinished)
        merged.encoder.tokenizer.save_pretrained(unfinished)
    else:
        shutil.copytree(last, unfinished, copy_function=_link_or_copy)
    unfinished.rename(work / JUDGE)
    for file in last.glob("adapter_*") if merges else ():  # it names its base by a path of the unfinished run
        file.unlink()


def _link_or_copy(source: str, target: str) -> None:
    """Create a hard link to a file. Copy the file if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
