"""`rewardlab judge --audit`: biases of a judge."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....judges.audit import measures as audit_measures
from ....judges.audit.attacks import ATTACKS
from ....judges.audit.plan import Names, plan
from ....judges.audit.report import markdown, trusts
from ....judges.audit.run import Chance, audit, facts
from ....judges.judge import Judging
from ....judges.kinds.reward_model import RewardScorer
from ....judges.types import BatchJudge, Case
from ....rm.errors import UsageError, did_you_mean
from ...runs.run_folder import log, log_report, write_json
from .settings import JudgeConfig

# ---- names of authors ----


def names_of(
    judges: Sequence[BatchJudge], cases: Sequence[Case], config: JudgeConfig, shorts: Mapping[str, str]
) -> dict[str, Names]:
    """Return judge -> its model's name as an author, and another author; `shorts` are the short names of the models."""
    wrote = Counter(author for case in cases for author in case.authors)
    names_by_judge: dict[str, Names] = {}
    for text in config.names:
        key, sign, result_name = text.rpartition("=")
        if not (key and sign and result_name):
            raise UsageError(f"--names is MODEL=AUTHOR or JUDGE=AUTHOR, got '{text}'")
        if wrote and result_name not in wrote:
            raise UsageError(
                f"--names {text}: none of the answers is by '{result_name}'; {did_you_mean(result_name, wrote)}"
            )
        of_model = f"{shorts.get(key, key)} "  # with which the names of all judges that use the model begin
        named = [judge.name for judge in judges if judge.name == key or judge.name.startswith(of_model)]
        if not named:
            raise UsageError(f"--names {text}: no judge '{key}'; {did_you_mean(key, [judge.name for judge in judges])}")
        names_by_judge |= dict.fromkeys(
            named, Names(result_name, config.other_author or _other(text, result_name, wrote))
        )
    return names_by_judge


def _other(text: str, result_name: str, wrote: Counter[str]) -> str:
    others = [author for author, _ in wrote.most_common() if author != result_name]
    if not others:
        raise UsageError(
            f"--names {text}: there is no other author that '{result_name}' could be preferred to; name one with "
            "--other_author, or give the cases a column authors"
        )
    return others[0]


# ---- the audit ----

ANY_SCALE = ("pointwise", "rubric", "checklist")
"""Kinds whose scores of two responses do not add up to one."""


def check_chance(name: str | None, judges: Sequence[BatchJudge]) -> None:
    """Raise a `UsageError` for judges whose scores are known to be no shares, before anything is asked."""
    for judge in judges if name == "shares" else ():
        kind = judge.settings["kind"] if isinstance(judge, Judging) else ""
        if kind in ANY_SCALE or isinstance(judge, RewardScorer):
            raise UsageError(
                f"--chance shares: the scores of {judge.name} are no shares of one; take bradley_terry, or leave it out"
            )


def probes(cases: Sequence[Case], names: Names | None, seed: int) -> list[Sequence[Case]]:
    """Return all sets of cases that an audit shows a judge."""
    return [*plan(cases, ATTACKS, names, seed).shown.values()]


def left_out(cases: Sequence[Case]) -> list[str]:
    """Return a note on the cases that an audit leaves out; none if there are none."""
    single = sum(len(case.answers) == 1 for case in cases)
    return [f"{single} of {len(cases)} cases have a single response and are left out of the audit."] if single else []


def audit_judges(
    judges: Sequence[BatchJudge], cases: Sequence[Case], names: Mapping[str, Names], folder: Path, config: JudgeConfig
) -> dict[str, dict[str, str]]:
    """Audit every judge, write `audit.json` and `audit.md`, and return for which uses each may be trusted."""
    how: dict[str, Any] = {"samples": config.bootstrap_samples, "seed": config.seed, "progress": log}
    if config.chance:
        how["chance"] = _claimed(config.chance)
    results = [audit(judge, cases, names=names.get(judge.name), **how) for judge in judges]
    text = "\n".join(map(markdown, results))
    (folder / "audit.md").write_text(text, encoding="utf-8")
    write_json(folder / "audit.json", {result.judge: facts(result) for result in results})
    log_report(text)
    return {result.judge: {trust.use: trust.answer for trust in trusts(result)} for result in results}


def _claimed(name: str) -> Chance:
    claim: Chance = getattr(audit_measures, name)

    def chance(first: float, second: float) -> float:
        try:
            return claim(first, second)
        except ValueError as error:
            raise UsageError(f"--chance {name}: {error}; take another, or leave it out") from error

    return chance
