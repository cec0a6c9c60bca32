"""`rewardlab sft` and `rewardlab dpo`: fine-tuning by TRL's trainers on checked rows, saved as a run folder."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ....policy.training.arguments import DpoArguments, SftArguments
from ....policy.training.fine_tuning import (
    encode_conversations,
    encode_preferences,
    fine_tuning_trainer,
    load_conversations,
    load_preferences,
    training_encoder,
)
from ....policy.training.models import lora_config, open_language_model, open_with_same_vocabulary, save_policy
from ....rm.backbones.loading import load_tokenizer
from ....rm.backbones.tokenization import check_renders
from ....rm.training import CHECKPOINTS
from ....rm.training.checkpointing import checkpoint_to_resume
from ...publishing.hub_upload import open_repository
from ...runs.model_hashes import with_model_hashes
from ...runs.processes import Process, shared_run_folder, trained_by
from ...runs.run_folder import (
    log,
    log_rows,
    recipe_of,
    seconds_since,
    training_recipe,
    trust_option,
    write_manifest,
    write_rows,
)
from ...runs.stop_training import train_until_signal
from ..policy_training.run import POLICY
from .settings import DpoSettings, SftSettings

DATA = ("data", "eval_data")
FREE = ("resume", "overwrite", "output", "processes")  # may be others when a run is resumed
FINAL = {"rewards/accuracies": "accuracy", "rewards/margins": "margin", "mean_token_accuracy": "token_accuracy"}
"""TRL's name of a metric -> the name of its last value in the summary."""


class Verb(NamedTuple):
    """Name, row type and data functions of `sft` or `dpo`."""

    name: str
    noun: str
    """Rows of the data."""
    load: Callable[..., Any]
    encode: Callable[..., Any]


SFT = Verb("sft", "conversations", load_conversations, encode_conversations)
DPO = Verb("dpo", "pairs", load_preferences, encode_preferences)


def run_sft(settings: SftSettings, arguments: SftArguments) -> dict[str, Any]:
    """Fine-tune a policy on conversations, and return the summary of the run."""
    return _fine_tune(SFT, settings, arguments)


def run_dpo(settings: DpoSettings, arguments: DpoArguments) -> dict[str, Any]:
    """Train a policy on preference pairs by DPO, and return the summary of the run."""
    return _fine_tune(DPO, settings, arguments)


def _fine_tune(
    verb: Verb, settings: SftSettings | DpoSettings, arguments: SftArguments | DpoArguments
) -> dict[str, Any]:
    output, started = settings.output or arguments.output_dir, time.time()
    here = trained_by(settings.processes, verb.name, arguments)
    check_renders(load_tokenizer(settings.model, chat_template=settings.chat_template, **trust_option(arguments)))
    repository = open_repository(arguments, leads=here.leads)
    folder_options = {"overwrite": settings.overwrite, "resume": settings.resume, "keep": f"{CHECKPOINTS}/*"}
    sources = [*settings.data, *settings.eval_data]
    recipe = training_recipe(with_model_hashes(recipe_of(settings, FREE, sources)), arguments) if here.leads else {}
    with shared_run_folder(output, recipe, here, **folder_options) as work:
        arguments.output_dir = str(work / CHECKPOINTS)
        trainer, account = _prepare(verb, settings, arguments)
        facts = _train(trainer, work, here, resume=settings.resume)
        if not here.leads:
            return {"output": output, "processes": here.world, "rank": here.rank}
        account["arguments"] = arguments.to_sanitized_dict()
        write_manifest(work, data=sources, seed=arguments.seed, started=started, **account, **facts)
    summary = {"output": output, "policy": f"{output}/{POLICY}", verb.noun: account[verb.noun]["kept"], **facts}
    if repository:
        summary["commit"] = repository.upload(Path(output) / POLICY)
    return summary | {"seconds": round(seconds_since(started), 1)}


def _prepare(
    verb: Verb, settings: SftSettings | DpoSettings, arguments: SftArguments | DpoArguments
) -> tuple[Any, dict[str, Any]]:
    """Return the trainer and manifest entries: hash of the policy's contract, counts of rows and tokens."""
    items: dict[str, tuple[Any, Any]] = {}
    for name in filter(vars(settings).get, DATA):  # all bad rows are refused before a model is loaded
        items[name] = verb.load(vars(settings)[name], settings.on_bad_row)
        log_rows(name, items[name][1])
    policy = open_language_model(settings.model, settings, arguments)
    encoder = training_encoder(policy, arguments.max_length)
    rows: dict[str, Sequence[Any]] = {}
    account: dict[str, Any] = {"contract": encoder.contract.hash()}
    for name, (loaded, report) in items.items():
        encoding = verb.encode(encoder, loaded, settings.on_long)
        for line in encoding.lines(name, verb.noun, settings.on_long):
            log(line)
        rows[name] = encoding.rows
        account[name.replace("data", verb.noun)] = report.as_json() | encoding.account()
    options: dict[str, Any] = {"peft_config": lora_config(settings, policy.model)}
    if isinstance(settings, DpoSettings) and settings.reference:
        options["reference"] = open_with_same_vocabulary(policy, settings.reference, settings, arguments)
    trainer = fine_tuning_trainer(policy, arguments, rows["data"], rows.get("eval_data"), **options)
    return trainer, account


def _train(trainer: Any, work: Path, here: Process, *, resume: bool) -> dict[str, Any]:
    """Train the policy and save it with its metrics. Return the results."""
    checkpoint = checkpoint_to_resume(work / CHECKPOINTS, log, resume=resume, leads=here.leads)
    result = train_until_signal(trainer, checkpoint)
    metrics: Mapping[str, float] = trainer.evaluate() if trainer.eval_dataset is not None else {}
    save_policy(trainer, work / POLICY)
    if not here.leads:
        return {}
    (work / CHECKPOINTS / "README.md").unlink(missing_ok=True)  # TRL's model card, which names another model
    write_rows(work / "metrics.jsonl", trainer.state.log_history)
    last = {name: row[name] for row in trainer.state.log_history for name in FINAL if name in row}
    facts = {"steps": trainer.state.global_step, "train_loss": result.training_loss}
    facts |= {FINAL[name]: value for name, value in last.items()}
    return facts | {name: value for name, value in metrics.items() if name in ("eval_loss", "eval_rewards/accuracies")}
