"""`rewardlab rubrics`: build rubrics from preferences, train a rubric generator, lint files, apply rubrics."""

import time
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ....benchmarks.accounts import evaluate_judges
from ....benchmarks.suites.pairs import CaseFile, case_ids, collect_files
from ....judges.backends.open import TOTAL, LanguageModels
from ....judges.backends.scripted import dry_run_chat
from ....judges.backends.settings import ChatConfig
from ....judges.cdrrm import build as cdrrm
from ....judges.cdrrm.filter import FilterLimits
from ....judges.cdrrm.generator import RubricJudge, generator_records, judge_records
from ....judges.cdrrm.synthesise import sides, synthesise
from ....judges.cdrrm.training import SupervisedSettings, read_records, train
from ....judges.rubrics.files import RUBRICS, lint_files, rubric_row
from ....judges.rubrics.rubric import Rubric
from ....judges.run import REPLIES, stored_replies
from ....judges.store import FILE
from ....rm.data.pairs import parse_pair
from ....rm.errors import DataError, UsageError
from ...publishing.hub_upload import open_repository, source_names, upload_data
from ...runs.judgments import write_judged
from ...runs.run_folder import (
    data_hash,
    log,
    log_rows,
    run_folder,
    seconds_since,
    write_json,
    write_manifest,
    write_rows,
)
from .settings import RubricsConfig

LATER = (
    "this is the cost of the diagnoses alone; each pair then takes up to nine more requests: a rubric, two checks, two "
    "verdicts with the rubric, two without it, and two for the training data of the judge"
)


class Roles(NamedTuple):
    """The configured language models, and the short names of the rubric generator and the judge."""

    models: LanguageModels
    writer: str
    judge: str


def run_rubrics(config: RubricsConfig, chats: ChatConfig, training: SupervisedSettings) -> dict[str, Any]:
    """Run the configured action: build, train, lint or apply."""
    if config.does == "lint":
        return lint_files(config.files, log)
    if config.does == "train":
        return train_model(config, chats, training)
    chats.validate([*filter(None, [config.judge])])
    if len(chats.names) != 1:
        raise UsageError(
            f"rubrics {config.does} takes one writer, got {len(chats.names)}: name it with --endpoint and --model, or "
            "with --local; give a separate judge with --judge"
        )
    models = LanguageModels(chats, [*filter(None, [config.judge])])
    shorts = {name: short for short, name in models.names.items()}
    roles = Roles(models, shorts[chats.names[0]], shorts[config.judge or chats.names[0]])
    repository = open_repository(config, "dataset")
    facts = (build if config.does == "build" else apply)(config, roles, training.seed)
    about = f"Rubrics for {source_names(config.data)} by {chats.names[0]}, by `rewardlab rubrics {config.does}`."
    return facts | upload_data(repository, config.output, about, [RUBRICS], config.hub_license)


def train_model(config: RubricsConfig, chats: ChatConfig, training: SupervisedSettings) -> dict[str, Any]:
    """Fine-tune a rubric generator on the training records that `build` wrote."""
    from ....rm.backbones.loading import load_causal_lm, load_tokenizer

    started = time.time()
    files, records, rows = read_records(config.data, config.learn, config.on_bad_row)
    log_rows("data", rows)
    recipe = config.identity() | asdict(training) | {"data_sha256": {file: data_hash(file) for file in files}}
    with run_folder(config.output, recipe, overwrite=config.overwrite) as work:
        tokenizer = load_tokenizer(config.base, chat_template=chats.chat_template, **chats.loading)
        model = load_causal_lm(config.base, tokenizer, dtype=chats.dtype, **chats.loading)
        train(model, records, work, training, tokenizer)
        (work / "README.md").unlink(missing_ok=True)  # TRL's model card, of a model whose name it does not know
        write_manifest(work, data=files, seed=training.seed, started=started, records=len(records))
    return {"output": config.output, "records": len(records), "seconds": round(seconds_since(started), 1)}


def _open_folder(config: RubricsConfig, roles: Roles, **recipe: Any) -> AbstractContextManager[Path]:
    """Open the run folder. An interrupted run resumes only with the same settings, data and seed."""
    recipe = config.identity() | roles.models.config.identity() | recipe
    recipe["data_sha256"] = {source: data_hash(source) for source in config.data}
    return run_folder(config.output, recipe, overwrite=config.overwrite, resume=config.resume, keep=f"{REPLIES}/{FILE}")


def build(config: RubricsConfig, roles: Roles, seed: int) -> dict[str, Any]:
    """Profile pairs, synthesise and filter rubrics, list dropped pairs with reasons, and write training records."""
    started, models = time.time(), roles.models
    limits = FilterLimits(config.most_rules, config.overlap, config.alike)
    pairs, rows = collect_files(config.data, parse_pair, config.on_bad_row, unique_ids=True)
    log_rows("data", rows)
    preferred = [better for pair in pairs if (better := pair.preferred(config.objective)) is not None]
    labelled = {name: sides(pair, seed) for name, pair in zip(case_ids(preferred), preferred, strict=True)}
    if not labelled:
        raise DataError(f"{config.data}: none of {len(pairs)} pairs has a preference for '{config.objective}'")
    if config.dry_run:
        chats = models.dry_run()
        synthesise(chats[roles.writer], [*labelled.values()])
        log(LATER)
        return {"pairs": len(labelled), **models.estimate(chats, log, total="cost_of_diagnoses")}
    opened = models.open()
    with _open_folder(config, roles, seed=seed) as work:
        with stored_replies(opened, models.prices, work, config.on_fault) as chats:
            writer, judge = chats[roles.writer], chats[roles.judge]
            names = roles.writer, roles.judge
            outcomes = cdrrm.build_rubrics(labelled, writer, judge, limits=limits, names=names, log=log)
            accepted = [*cdrrm.accepted_rubrics(outcomes).values()]
            lessons = judge_records(writer, accepted)
            usage = {name: chat.account() for name, chat in chats.items()}
        counts = {"pairs": len(labelled), "without_preference": len(pairs) - len(preferred)}
        facts = {**counts, **cdrrm.filter_summary(outcomes), "models": usage}
        write_rows(work / RUBRICS, cdrrm.rubric_rows(outcomes))
        write_rows(work / "dropped.jsonl", cdrrm.dropped_rows(outcomes))
        (work / "report.md").write_text(cdrrm.build_report(facts), encoding="utf-8")
        write_json(work / "summary.json", facts)
        write_rows(work / "generator.jsonl", generator_records(accepted, contrast_first=config.contrast_first))
        write_rows(work / "judge.jsonl", lessons)
        facts["judge_records"] = len(lessons)
        about = {"rows": rows.as_json(), "chats": asdict(models.config)}
        write_manifest(work, data=config.data, seed=seed, started=started, **facts, **about)
    return {"run": config.output, **facts}


def apply(config: RubricsConfig, roles: Roles, seed: int) -> dict[str, Any]:
    """Generate a rubric for every case of two responses. With `--judge`, also evaluate a judge with these rubrics."""
    started, models = time.time(), roles.models
    suite = CaseFile(config.objective, config.on_bad_row)
    cases, notes = suite.cases(config.data)
    pairs = [case for case in cases if len(case.answers) == 2]
    if len(pairs) < len(cases):
        notes.append(f"{len(cases) - len(pairs)} of {len(cases)} cases do not have two answers and are left out.")
    if not pairs:
        raise DataError(f"{config.data}: none of {len(cases)} cases has two answers; give pairs of responses")
    judge_name = f"{roles.judge} with rubrics of {roles.writer}"
    if config.dry_run:
        chats = models.dry_run()
        cdrrm.generate_rubrics(chats[roles.writer], pairs)
        if config.judge:
            RubricJudge(dry_run_chat(), chats[roles.judge], on_flip=config.flip, name=judge_name)(pairs)
            log("the estimate leaves out the rubric, which makes the prompt of each verdict longer")
        total = "cost_without_rubrics" if config.judge else TOTAL
        return {"cases": len(pairs), **models.estimate(chats, log, total=total)}
    opened = models.open()
    with _open_folder(config, roles, seed=seed) as work:
        with stored_replies(opened, models.prices, work, config.on_fault) as chats:
            writer = chats[roles.writer]
            outcomes = cdrrm.generate_rubrics(writer, pairs)
            rubrics = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Rubric)}
            facts: dict[str, Any] = {"cases": len(pairs), "rubrics": len(rubrics)}
            facts["without_rubric"] = cdrrm.count_reasons(outcomes)
            if config.judge:
                judge = RubricJudge(writer.chat, chats[roles.judge], on_flip=config.flip, name=judge_name)
                evaluation = evaluate_judges(suite, pairs, [judge], seed=seed, notes=notes, progress=log)
                facts["judges"] = write_judged(suite, evaluation, [judge], work)
                facts["judged_without_rubric"] = dict(judge.fallbacks)
            facts["models"] = {name: chat.account() for name, chat in chats.items()}
        write_rows(work / RUBRICS, [rubric_row(name, rubric) for name, rubric in rubrics.items()])
        about = {"notes": notes, "chats": asdict(models.config)}
        write_manifest(work, data=config.data, seed=seed, started=started, **facts, **about)
    return {"run": config.output, **facts}
