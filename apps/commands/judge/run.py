"""`rewardlab judge`: evaluate or audit judges on cases, and store every reply in the run folder."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....benchmarks.accounts import evaluate_judges
from ....benchmarks.scorers import open_scorer
from ....benchmarks.suites.pairs import CaseFile, open_suite, sample_cases
from ....judges.audit.plan import names_of, single_note
from ....judges.audit.run import check_chance, probes
from ....judges.backends.open import LanguageModels
from ....judges.backends.settings import ChatConfig
from ....judges.kinds.checklist import read_checklist
from ....judges.open import Materials, open_judges
from ....judges.prompts import Sampling
from ....judges.retrieval.open import open_examples, open_rubrics, retrieval_notes
from ....judges.retrieval.settings import SELECTIONS, RetrievalConfig
from ....judges.rubrics.files import check_matches, open_levels, open_rubric
from ....judges.run import REPLIES, stored_replies
from ....judges.store import FILE
from ....rm.errors import UsageError
from ....rm.registry.specs import parse_spec
from ...assembly.human_labels import correct_run, read_labels
from ...assembly.routing import fit_route
from ...publishing.hub_upload import open_repository, source_names, upload_data
from ...runs.judgments import write_audits, write_judged
from ...runs.model_hashes import model_hashes
from ...runs.run_folder import CONFIG, data_hash, log, replace_text, run_folder, settings_yaml, write_manifest
from ...runs.summaries import SUMMARY
from ...runs.tables import ITEMS, JUDGMENTS, SCORES, read_items
from ...runs.trackers import log_figures, report_figures
from .settings import READ_LATER, JudgeConfig


def run_judge(config: JudgeConfig, retrieval: RetrievalConfig, chats: ChatConfig) -> dict[str, Any]:
    """Judge cases and write the run folder, or report the estimated cost. With `--fit_route`, fit a routing probe.

    With `--calibrate`, correct the figures of the run, or of a finished run at `--output`, by human labels.
    """
    if config.fit_route:
        return fit_route(
            config.fit_route, config.output, recipe=config.identity(), overwrite=config.overwrite, seed=config.seed,
            encoder=config.encoder, reward_model=config.fit_reward_model, loading=chats.loading,
        )  # fmt: skip
    is_finished = config.calibrate and not config.overwrite and (Path(config.output) / SUMMARY).is_file()
    facts = {} if is_finished else _judge(config, retrieval, chats)
    if not config.calibrate:
        return facts
    return facts | correct_run(config.output, config.calibrate, config.width, config.on_bad_row)


def _judge(config: JudgeConfig, retrieval: RetrievalConfig, chats: ChatConfig) -> dict[str, Any]:
    """Run the judges on the cases, or an audit, or a dry run. Return the summary."""
    started = time.time()
    chats.validate()
    retrieval.validate(config.rubric)
    is_file = config.benchmark == CaseFile.name  # of cases too, and not only of pairs
    suite = (
        CaseFile(config.objective, config.on_bad_row) if is_file else open_suite(config.benchmark, config.on_bad_row)
    )
    sources = config.data or [suite.hub]
    if not all(sources):
        raise UsageError(f"--data is missing; '{config.benchmark}' has no data set of its own on the Hub")
    models, materials = LanguageModels(chats), read_materials(config, chats.loading, retrieval)
    dry_run = models.dry_run()
    dry_run_judges = open_judges(config.kind, config.together, dry_run, materials)  # reports wrong settings first
    check_chance(config.chance, dry_run_judges)
    cases, notes = suite.cases(sources)
    cases, sample_notes = sample_cases(cases, config.limit, config.seed)
    if config.calibrate:
        read_labels(config.calibrate, cases, config.on_bad_row)  # reports wrong labels first
    check_matches(config.rubric, materials.rubric, cases)
    check_matches(config.levels, materials.levels, cases)
    notes += [*sample_notes, *(single_note(cases) if config.audit else ()), *retrieval_notes(retrieval, config.rubric)]
    short_names = {name: short for short, name in models.names.items()}
    names = names_of(config.names, dry_run_judges, cases, other_author=config.other_author, short_names=short_names)
    if config.dry_run:
        for judge in dry_run_judges:
            for probe in probes(cases, names.get(judge.name), config.seed) if config.audit else [cases]:
                judge(probe)
        return {"cases": len(cases), **models.estimate(dry_run, log, tokenizer=config.tokenizer)}
    repository = open_repository(config, "dataset")
    recipe = config.identity() | retrieval.identity() | chats.identity()
    recipe["data_sha256"] = {file: data_hash(file) for file in [*sources, *_files(config, retrieval)]}
    functions = [parse_spec(config.benchmark).name] if ":" in config.benchmark else []
    recipe["model_sha256"] = model_hashes([*models.names.values(), *functions])
    opened, keep = models.open(), f"{REPLIES}/{FILE}"
    with run_folder(config.output, recipe, overwrite=config.overwrite, resume=config.resume, keep=keep) as work:
        with stored_replies(opened, models.prices, work, config.on_fault) as run_chats:
            judges = open_judges(config.kind, config.together, run_chats, materials)
            figures: dict[str, float] = {}
            options: dict[str, Any] = {"seed": config.seed, "samples": config.bootstrap_samples, "progress": log}
            if config.audit:
                trusted_for = write_audits(judges, cases, work, names=names, chance=config.chance, **options)
                results = {"trusted_for": trusted_for}
            else:
                evaluation = evaluate_judges(suite, cases, judges, notes=notes, **options)
                results: dict[str, Any] = {"judges": write_judged(suite, evaluation, judges, work)}
                figures = report_figures(evaluation.report, results["judges"])
                results["overall"] = {row.scorer: row.overall._asdict() for row in evaluation.report.rows}
            results["models"] = {name: chat.account() for name, chat in run_chats.items()}
        contracts = {judge.name: judge.contract for judge in judges}
        about = {"suite": suite.name, "contracts": contracts, "notes": notes, "chats": asdict(chats)}
        write_manifest(work, data=sources, seed=config.seed, started=started, **about, **results)
        # last of all: until here the run may be resumed with other ones
        settings = recipe | {name: vars(config)[name] for name in READ_LATER}
        replace_text(work / CONFIG, settings_yaml(settings))
    log_figures(config.report_to, Path(config.output), figures, settings)
    facts = {"run": config.output, "suite": suite.name, "cases": len(cases), **results}
    by = ", ".join(judge.name for judge in judges)
    about = f"Judgments of {len(cases)} cases of {suite.name} ({source_names(sources)}) by {by}, by `rewardlab judge`."
    return facts | upload_data(repository, config.output, about, [JUDGMENTS, SCORES, ITEMS], config.hub_license)


def read_materials(config: JudgeConfig, loading: Mapping[str, Any], retrieval: RetrievalConfig) -> Materials:
    """Read and check the files that the settings name: rubrics, examples, score levels and checklist."""
    rubric = None
    if config.rubric:
        retrieved = config.rubric in SELECTIONS
        rubric = open_rubrics(retrieval, config.rubric, config.seed) if retrieved else open_rubric(config.rubric)
    suite, examples = CaseFile(config.objective, config.on_bad_row), []
    for source in retrieval.examples_from:
        examples += read_items(Path(source)) if Path(source).is_dir() else suite.cases([source])[0]
    return Materials(
        rubric=rubric,
        examples=open_examples(retrieval, examples, config.seed) if retrieval.examples else None,
        score=config.score,
        levels=open_levels(config.levels) if config.levels else None,
        questions=read_checklist(config.checklist) if config.checklist else (),
        sampling=Sampling(config.max_tokens, config.temperature, config.seed),
        loading=loading,
        open_scorer=open_scorer,
    )


def _files(config: JudgeConfig, retrieval: RetrievalConfig) -> list[str]:
    """Return the files, other than the data, that the judgments depend on."""
    rubric = None if config.rubric in SELECTIONS else config.rubric
    examples = [str(Path(path) / ITEMS) if Path(path).is_dir() else path for path in retrieval.examples_from]
    return [*filter(None, (rubric, config.levels, config.checklist, *examples, retrieval.rubrics_from))]
