"""`rewardlab judge`: evaluate judges on cases; every reply is stored in the run folder."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from ....benchmarks.evaluate import Evaluation, evaluate
from ....benchmarks.report import markdown
from ....benchmarks.scorers import open_scorer
from ....benchmarks.types import Suite
from ....judges.backends.open import LanguageModels
from ....judges.backends.settings import ChatConfig
from ....judges.kinds.checklist import read_checklist
from ....judges.open import Materials, open_judges
from ....judges.prompts import Sampling
from ....judges.retrieval.selection import SELECTIONS
from ....judges.rubrics.files import check_matches, open_levels, open_rubric
from ....judges.run import REPLIES, stored_replies
from ....judges.store import FILE
from ....judges.types import BatchJudge, Case
from ....rm.errors import UsageError
from ....rm.registry import load
from ...runs.evaluation_files import write_evaluation
from ...runs.model_hashes import model_hashes
from ...runs.run_folder import CONFIG, data_hash, log, log_report, replace_text, run_folder, write_manifest
from .audit import audit_judges, check_chance, left_out, names_of, probes
from .fit_route import fit_route
from .records import CaseFile, account, drawn, write_judgments
from .retrieval import RetrievalConfig, open_examples, open_retrieved_rubrics, retrieval_notes
from .settings import READ_LATER, JudgeConfig


def run_judge(config: JudgeConfig, retrieval: RetrievalConfig, chats: ChatConfig) -> dict[str, Any]:
    """Judge cases and write the run folder, or report the estimated cost; with --fit_route fit a routing probe."""
    if config.fit_route:
        return fit_route(config, chats.loading)
    started = time.time()
    chats.validate()
    retrieval.validate(config.rubric)
    suite = open_suite(config)
    sources = config.data or [suite.hub]
    if not all(sources):
        raise UsageError(f"--data is missing; '{config.benchmark}' has no data set of its own on the Hub")
    models, given = LanguageModels(chats), read_materials(config, chats.loading, retrieval)
    imagined = models.dry_run()
    dry_run_judges = open_judges(config.kind, config.together, imagined, given)  # reports wrong settings first
    check_chance(config.chance, dry_run_judges)
    cases, notes = suite.cases(sources)
    cases, of_draw = drawn(cases, config.limit, config.seed)
    check_matches(config.rubric, given.rubric, cases)
    check_matches(config.levels, given.levels, cases)
    of_audit = left_out(cases) if config.audit else []
    notes = [*notes, *of_draw, *of_audit, *retrieval_notes(retrieval, config.rubric)]
    signed = names_of(dry_run_judges, cases, config, {name: short for short, name in models.names.items()})
    if config.dry_run:
        for judge in dry_run_judges:
            for shown in probes(cases, signed.get(judge.name), config.seed) if config.audit else [cases]:
                judge(shown)
        return {"cases": len(cases), **models.estimate(imagined, log, tokenizer=config.tokenizer)}
    recipe = config.identity() | retrieval.identity() | chats.identity()
    rubric = None if config.rubric in SELECTIONS else config.rubric
    files = [*sources, *filter(None, (rubric, config.levels, config.checklist)), *retrieval.files]
    recipe["data_sha256"] = {source: data_hash(source) for source in files}
    recipe["model_sha256"] = model_hashes(models.names.values())
    opened = models.open()
    with run_folder(
        config.output, recipe, overwrite=config.overwrite, resume=config.resume, keep=f"{REPLIES}/{FILE}"
    ) as work:
        with stored_replies(opened, models.prices, work, config.on_fault) as counted:
            judges = open_judges(config.kind, config.together, counted, given)
            if config.audit:
                facts = {"trusted_for": audit_judges(judges, cases, signed, work, config)}
            else:
                options = {"seed": config.seed, "samples": config.bootstrap_samples}
                evaluation = judged(suite, cases, judges, notes=notes, **options)
                facts: dict[str, Any] = {"judges": write_judged(suite, evaluation, judges, work)}
                facts["overall"] = {row.scorer: row.overall._asdict() for row in evaluation.report.rows}
            facts["models"] = {name: chat.account() for name, chat in counted.items()}
        contracts = {judge.name: judge.contract for judge in judges}
        about = {"suite": suite.name, "contracts": contracts, "notes": notes, "chats": asdict(chats)}
        write_manifest(work, data=sources, seed=config.seed, started=started, **about, **facts)
        # last of all: until here the run may be resumed with other ones
        settings = recipe | {name: getattr(config, name) for name in READ_LATER}
        replace_text(work / CONFIG, yaml.safe_dump(settings, sort_keys=True, allow_unicode=True))
    return {"run": config.output, "suite": suite.name, "cases": len(cases), **facts}


def read_materials(config: JudgeConfig, loading: Mapping[str, Any], retrieval: RetrievalConfig) -> Materials:
    """Read and check the files of the settings."""
    rubric = None
    if config.rubric:
        retrieved = config.rubric in SELECTIONS
        rubric = open_retrieved_rubrics(retrieval, config) if retrieved else open_rubric(config.rubric)
    return Materials(
        rubric=rubric,
        examples=open_examples(retrieval, config),
        score=config.score,
        levels=open_levels(config.levels) if config.levels else None,
        questions=read_checklist(config.checklist) if config.checklist else (),
        sampling=Sampling(config.max_tokens, config.temperature, config.seed),
        loading=loading,
        open_scorer=open_scorer,
    )


def write_judged(
    suite: Suite, evaluation: Evaluation, judges: Sequence[BatchJudge], work: Path
) -> dict[str, dict[str, Any]]:
    """Write the folder of an evaluation and the table of judgments, log the report, and return each judge's account."""
    write_evaluation(evaluation, work)
    write_judgments(evaluation, [judge.name for judge in judges], work)
    log_report(markdown(evaluation.report))
    return {judge.name: account(suite, evaluation.cases, evaluation.judgments[judge.name]).facts for judge in judges}


def open_suite(config: JudgeConfig) -> Suite:
    """Open a benchmark, or the suite of any file of cases and pairs."""
    if config.benchmark == CaseFile.name:
        return CaseFile(config.objective, config.on_bad_row)
    return load("benchmarks.suites", config.benchmark)(on_bad_row=config.on_bad_row)


def judged(
    suite: Suite,
    cases: Sequence[Case],
    judges: Sequence[BatchJudge],
    *,
    notes: Sequence[str],
    seed: int = 0,
    samples: int = 1000,
) -> Evaluation:
    """Evaluate the judges beside the baselines; notes of the report state each judge's coverage, bounds and cost."""
    evaluation = evaluate(
        suite,
        cases,
        [*judges, *suite.baselines(cases, seed)],
        notes=notes,
        samples=samples,
        seed=seed,
        progress=lambda name: log(f"judging {len(cases)} cases with {name}"),
    )
    sentences = [account(suite, cases, evaluation.judgments[judge.name]).sentence(judge.name) for judge in judges]
    report = evaluation.report
    return evaluation._replace(report=replace(report, notes=(*report.notes, *sentences)))
