"""`rewardlab lint`: defects of preference data by row and reason, and a cleaned file."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from ....benchmarks.contamination import benchmark_prompts, nearest_prompts, split_name
from ....judges.case_rows import parse_case
from ....rm.data.lint import SIMILAR, UNUSABLE, Finding, LintResult, lint, markdown
from ....rm.data.messages_and_tools import TrackedRow, check_characters
from ....rm.data.pairs import RowReport, check_id, parse_pair
from ....rm.data.rankings import UNREAD, expand_rankings
from ....rm.data.readers import Row, read_rows
from ....rm.errors import UNREADABLE, CheckFailed, DataError, UsageError
from ....rm.types import PreferencePair, ReadsTokens
from ...publishing.hub_upload import open_repository, source_names, upload_data
from ...runs.run_folder import log, log_report, log_rows, run_folder, trust_option, write_manifest, write_rows
from .settings import LintConfig

REPORT, FINDINGS = "report.md", "findings.jsonl"


class Read(NamedTuple):
    """Rows of the data, pairs parsed from these rows, and defects of the rows that are not pairs."""

    rows: list[Row]
    pair_rows: list[int]
    """Index of the row of each pair."""
    pairs: list[PreferencePair]
    first: list[bool | None]
    """Whether the chosen response was shown first, if the row states it."""
    unusable: list[Finding]
    ignored: RowReport
    """Ignored columns."""


def run_lint(config: LintConfig) -> dict[str, Any]:
    """Check every row. Raise `CheckFailed` if there are findings, unless `--fix` writes a file without those rows."""
    started = time.time()
    existing = [path for path in _output_paths(config.fix) if path.exists()] if config.fix else []
    if existing and not config.overwrite:
        raise UsageError(f"{existing[0]} exists already; name another file with --fix, or replace it with --overwrite")
    repository = open_repository(config, "dataset")
    settings = asdict(config)
    with run_folder(config.output, settings, overwrite=config.overwrite) if config.output else nullcontext() as work:
        read = read_pairs(config.data)
        log_rows("data", read.ignored)
        linted = _all_findings(read, config)
        text, title = markdown(linted, _row_locator(read, config.data), len(read.rows)), ", ".join(config.data)
        log_report(f"\n{title}\n\n{text}")
        facts = _facts(read, linted)
        if work is not None:
            (work / REPORT).write_text(f"# {title}\n\n{text}", encoding="utf-8")
            write_rows(work / FINDINGS, (_finding_row(read, finding) for finding in linted.findings))
            data = [*config.data, *filter(None, (source for _, source in map(split_name, config.against)))]
            write_manifest(work, data=data, seed=None, started=started, **facts)
    if config.fix:
        reasons = linted.left_out(config.keep)
        facts |= _write_fixed_data(read, reasons, Path(config.fix))
        about = _card_text(config.data, facts, Counter(reasons.values()))
        return facts | upload_data(repository, config.fix, about, [Path(config.fix).name], config.hub_license)
    if linted.findings or linted.leaks:
        worst = ", ".join(f"{reason} {number}" for reason, number in linted.reasons.items())
        summary_reason = worst or "the label can be guessed"
        raise CheckFailed(f"{', '.join(config.data)}: {summary_reason}; --fix FILE writes the rows without findings")
    return facts


def _row_locator(read: Read, sources: Sequence[str]) -> Callable[[int], str]:
    """Return a function that maps the index of a row to its file name and line.

    The file name is omitted if there is only one file; the folder is added if two files have the same name.
    """
    names = Counter(Path(source).name for source in sources)

    def describe(index: int) -> str:
        row, name = read.rows[index], Path(read.rows[index].source).name
        source = name if names[name] == 1 else row.source
        return row.place if len(sources) == 1 else f"{source}, {row.place}"

    return describe


def _facts(read: Read, linted: LintResult) -> dict[str, Any]:
    """Return the counts of rows and of findings, label leakage and contamination for the summary."""
    facts = {"rows": len(read.rows), "reasons": linted.reasons, "leaks": [leak.sentence for leak in linted.leaks]}
    facts |= {"ignored": dict(sorted(read.ignored.ignored.items()))} if read.ignored.ignored else {}
    return facts | ({"shared": [overlap._asdict() for overlap in linted.shared]} if linted.shared else {})


def read_pairs(sources: Sequence[str]) -> Read:
    """Load rows as pairs: all formats of `rewardlab train`, and rows with `answers` and `best` in display order."""
    read = Read([], [], [], [], [], RowReport())
    for source in sources:
        first_by_id: dict[tuple[str, str], str] = {}
        for row in expand_rankings(read_rows(source)):
            read.rows.append(row)
            try:
                if row.error:
                    raise ValueError(row.error)
                pair, first = _pair(values := TrackedRow(row.values))
                check_id(row, first_by_id)
                check_characters(values.read_values)
            except UNREADABLE as error:
                read.unusable.append(Finding(len(read.rows) - 1, UNUSABLE, str(error)))
            else:
                read.pair_rows.append(len(read.rows) - 1)
                read.pairs.append(pair)
                read.first.append(first)
                read.ignored.ignored.update(values.ignored)
    if not read.rows:
        raise DataError(f"{', '.join(sources)}: no row in it")
    return read


def _pair(values: Mapping[str, Any]) -> tuple[PreferencePair, bool | None]:
    """Return the pair of a row, and whether its chosen response was shown first (None if unknown)."""
    if "answers" not in values:
        return parse_pair(values), None
    case = parse_case(values)
    wrong = [answer for index, answer in enumerate(case.answers) if index not in case.best]
    if not wrong:
        raise ValueError("every answer is right, so the row has no rejected response")
    chosen = case.answers[case.best[0]]
    first = case.best[0] == 0 if len(case.answers) == 2 else None
    return PreferencePair(case.id, case.prompt, chosen, wrong[0], case.subset), first


def _all_findings(read: Read, config: LintConfig) -> LintResult:
    """Return the findings of unusable rows and of pairs, sorted by row."""
    benchmarks = benchmark_prompts(config.against)
    linted = lint(
        read.pairs, benchmarks=benchmarks, first=read.first, near=config.near, alike=config.alike, **_encoding(config)
    )
    similar = _similar_prompts(read.pairs, benchmarks, config) if config.encoder else []
    rows = read.pair_rows
    of_pairs = [
        finding._replace(row=rows[finding.row], other=None if finding.other is None else rows[finding.other])
        for finding in [*linted.findings, *similar]
    ]
    findings = sorted([*read.unusable, *of_pairs], key=lambda finding: finding.row)
    leaks = [leak._replace(rows=tuple(rows[row] for row in leak.rows)) for leak in linted.leaks]
    return LintResult(tuple(findings), tuple(leaks), linted.shared)


def _similar_prompts(
    pairs: Sequence[PreferencePair], benchmarks: Mapping[str, Sequence[str]], config: LintConfig
) -> list[Finding]:
    """Return a finding for each row whose prompt is, by the encoder, similar to a prompt of a benchmark."""
    from ....judges.retrieval.encoder import load_encoder  # PyTorch, which a check without an encoder does not need

    findings = []
    encoder = load_encoder(str(config.encoder), **trust_option(config))
    for name, nearest in nearest_prompts(pairs, benchmarks, encoder):
        hits = {row: hit for row, hit in nearest.items() if hit.score >= config.similar}
        log(f"{name}: the encoder finds {len(hits)} of {len(nearest)} rows similar to a prompt of this benchmark")
        findings += [
            Finding(row, SIMILAR, f"{name}, similarity {hit.score:.2f}: {hit.id[:80]!r}") for row, hit in hits.items()
        ]
    return findings


def _encoding(config: LintConfig) -> dict[str, Any]:
    """Return the tokenizer options of `lint` from the configured reward model. Empty without a model."""
    if not config.model:
        return {}
    from ....rm.backbones.tokenization import (  # PyTorch, which a check without a model does not need
        Encoder,
        control_tokens,
    )
    from ....rm.load import load_reward_model

    model: Any = load_reward_model(config.model, check=False, **trust_option(config))
    if not isinstance(model, ReadsTokens):
        raise UsageError(f"{config.model} has no tokenizer; name a model with a tokenizer, or remove --model")
    limit = config.max_length or model.contract.max_length
    encoder = Encoder(model.encoder.tokenizer, replace(model.contract, max_length=limit))
    return {"encode": encoder.encode_all, "max_length": limit, "special": control_tokens(encoder.tokenizer)}


# ---- output ----


def _output_paths(fix: str) -> tuple[Path, Path]:
    """Return the paths of the cleaned file and of the file of removed rows."""
    path = Path(fix)
    return path, path.with_name(f"{path.stem}.left_out.jsonl")


def _write_fixed_data(read: Read, reasons: Mapping[int, str], path: Path) -> dict[str, Any]:
    """Write the kept rows unchanged, and the removed rows with their reasons."""
    rows = [_stated(row) for index, row in enumerate(read.rows) if index not in reasons]
    if not rows:
        raise DataError(f"all {len(read.rows)} rows have findings, so there is no row to write")
    clean, left_out = _output_paths(str(path))
    removed = []
    for index, reason in reasons.items():
        row = read.rows[index]
        values = {"row": _stated(row)} if row.values else {"error": row.error}
        removed.append({"place": row.location, "reason": reason, **values})
    write_rows(clean, rows)
    write_rows(left_out, removed)
    return {"fixed": str(clean), "left_out": str(left_out), "kept": len(rows), "dropped": len(reasons)}


def _stated(row: Row) -> dict[str, Any]:
    """Return the values of a row, without the columns that only count the fields of ranked completions."""
    return {name: value for name, value in row.values.items() if not name.startswith(UNREAD)}


def _card_text(sources: Sequence[str], facts: Mapping[str, Any], reasons: Mapping[str, int]) -> str:
    """Return the text of the data card."""
    counts = f"{facts['kept']} of {facts['rows']} rows of {source_names(sources)}, checked by `rewardlab lint`"
    left_out = ", ".join(f"{reason} ({number})" for reason, number in reasons.items())
    return f"Preference pairs: {counts}. Left out: {left_out or 'no row'}."


def _finding_row(read: Read, finding: Finding) -> dict[str, Any]:
    record = {"place": read.rows[finding.row].location, "reason": finding.reason, "detail": finding.detail}
    return record if finding.other is None else record | {"other": read.rows[finding.other].location}
