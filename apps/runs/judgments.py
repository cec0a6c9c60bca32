"""Files of evaluated judges: the files of an evaluation, the table of judgments, and audits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...benchmarks.accounts import account
from ...benchmarks.evaluate import Evaluation
from ...benchmarks.report import markdown
from ...benchmarks.types import Suite
from ...judges.audit.plan import Names
from ...judges.audit.report import markdown as audit_markdown
from ...judges.audit.report import trusts
from ...judges.audit.run import audit, chance_of, facts
from ...judges.types import BatchJudge, Case, Judgment
from .evaluation_files import write_evaluation
from .run_folder import log_report, write_json
from .tables import JUDGMENTS

TEXT, INTEGER, REAL = pa.string(), pa.int64(), pa.float64()
CRITERION = {"answer": INTEGER, "name": TEXT, "value": REAL, "evidence": TEXT, "quoted": pa.bool_()}
COLUMNS = {
    "scorer": TEXT, "case": TEXT, "criteria": pa.list_(pa.struct(list(CRITERION.items()))), "reasoning": TEXT,
    "raw": pa.list_(TEXT), "orders": pa.list_(pa.list_(INTEGER)), "prompt_tokens": INTEGER,
    "completion_tokens": INTEGER, "seconds": REAL, "cost": REAL, "requests": INTEGER, "estimated": INTEGER,
    "retrieved": pa.list_(TEXT),
}  # fmt: skip


def write_judgments(evaluation: Evaluation, names: Sequence[str], folder: Path) -> None:
    """Write one row per judge and case with criteria, reasoning and replies. The keys are scorer and case."""
    rows = [_row(name, judgment) for name in names for judgment in evaluation.judgments[name]]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(list(COLUMNS.items()))), folder / JUDGMENTS)


def _row(scorer: str, judgment: Judgment) -> dict[str, Any]:
    same = {name: value for name, value in vars(judgment).items() if name in COLUMNS}
    criteria = [criterion._asdict() for criterion in judgment.criteria]
    tokens = dict(zip(("prompt_tokens", "completion_tokens"), judgment.tokens, strict=True))
    return {**same, "scorer": scorer, "criteria": criteria, **tokens}


def write_judged(
    suite: Suite, evaluation: Evaluation, judges: Sequence[BatchJudge], folder: Path
) -> dict[str, dict[str, Any]]:
    """Write the run folder of an evaluation of judges, log the report, and return usage metrics by judge."""
    write_evaluation(evaluation, folder)
    write_judgments(evaluation, [judge.name for judge in judges], folder)
    log_report(markdown(evaluation.report))
    return {judge.name: account(suite, evaluation.cases, evaluation.judgments[judge.name]).facts for judge in judges}


def write_audits(
    judges: Sequence[BatchJudge],
    cases: Sequence[Case],
    folder: Path,
    *,
    names: Mapping[str, Names],
    chance: str | None,
    **options: Any,
) -> dict[str, dict[str, str]]:
    """Audit the judges, write `audit.json` and `audit.md`, and return judge -> use -> fitness (yes, no, not shown).

    `chance` is an argument of `chance_of`; `options` are further arguments of `audit`.
    """
    convert = chance_of(chance) if chance else None
    audits = [audit(judge, cases, names=names.get(judge.name), chance=convert, **options) for judge in judges]
    text = "\n".join(map(audit_markdown, audits))
    (folder / "audit.md").write_text(text, encoding="utf-8")
    write_json(folder / "audit.json", {result.judge: facts(result) for result in audits})
    log_report(text)
    return {result.judge: {trust.use: trust.answer for trust in trusts(result)} for result in audits}
