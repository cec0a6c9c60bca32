"""`rewardlab judge --audit`: what a judge's verdicts follow beside the answers' worth."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..judges.attacks import ATTACKS
from ..judges.audit import audit, facts
from ..judges.audit_plan import plan
from ..judges.audit_report import markdown, trusts
from ..judges.types import BatchJudge, Case
from .runs import say, write_json


def probes(cases: Sequence[Case], seed: int) -> list[Sequence[Case]]:
    """All that an audit shows a judge."""
    return [*plan(cases, ATTACKS, seed=seed).shown.values()]


def audit_judges(
    judges: Sequence[BatchJudge], cases: Sequence[Case], folder: Path, *, samples: int, seed: int
) -> dict[str, dict[str, str]]:
    """Every judge's figures to `audit.json` and its sentences to `audit.md`; for which uses it may be trusted."""
    found = [audit(judge, cases, samples=samples, seed=seed, progress=say) for judge in judges]
    text = "\n".join(map(markdown, found))
    (folder / "audit.md").write_text(text, encoding="utf-8")
    told: dict[str, Any] = {one.judge: facts(one) for one in found}
    write_json(folder / "audit.json", told)
    say(text)
    return {one.judge: {trust.use: trust.answer for trust in trusts(one)} for one in found}
