"""`rewardlab rubrics apply`: a rubric for every case by a generator, and verdicts under them."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ....benchmarks.accounts import evaluate_judges
from ....benchmarks.suites._cases import CaseFile
from ....judges.backends.chat import Chat
from ....judges.backends.open import TOTAL
from ....judges.backends.scripted import dry_run_chat
from ....judges.backends.settings import ChatConfig
from ....judges.cdrrm.generator import RubricJudge, generate
from ....judges.cdrrm.requests import Rejected
from ....judges.cdrrm.synthesise import Sides
from ....judges.rubrics.files import RUBRICS, rubric_row
from ....judges.rubrics.rubric import Rubric
from ....judges.run import stored_replies
from ....judges.types import Case
from ....rm.errors import DataError
from ...runs.judgments import write_judged
from ...runs.run_folder import log, write_manifest, write_rows
from .roles import Cast, cast, cast_folder
from .settings import RubricsConfig


def apply(config: RubricsConfig, chats: ChatConfig, seed: int) -> dict[str, Any]:
    """Generate a rubric for every case of two responses; with --judge also evaluate verdicts under them."""
    started, roles = time.time(), cast(config, chats)
    suite = CaseFile(config.objective, config.on_bad_row)
    cases, notes = suite.cases(config.data)
    pairs = [case for case in cases if len(case.answers) == 2]
    if len(pairs) < len(cases):
        notes.append(f"{len(cases) - len(pairs)} of {len(cases)} cases have other than two answers and are left out.")
    if not pairs:
        raise DataError(f"{config.data}: none of {len(cases)} cases has two answers, which a contrast needs")
    if config.dry_run:
        imagined = roles.models.dry_run()
        _generated(imagined[roles.writer], pairs)
        if config.judge:
            _as_judge(config, dry_run_chat(), imagined[roles.judge], roles)(pairs)
            log("each verdict's prompt is longer by its rubric, which is not counted")
        total = "cost_without_rubrics" if config.judge else TOTAL
        return {"cases": len(pairs), **roles.models.estimate(imagined, log, total=total)}
    opened = roles.models.open()
    with cast_folder(config, chats, seed=seed) as work:
        with stored_replies(opened, roles.models.prices, work, config.on_fault) as counted:
            outcomes = _generated(counted[roles.writer], pairs)
            reasons = Counter(outcome.reason for outcome in outcomes.values() if isinstance(outcome, Rejected))
            facts: dict[str, Any] = {"cases": len(pairs), "rubrics": len(outcomes) - reasons.total()}
            facts["without_rubric"] = dict(reasons.most_common())
            if config.judge:
                judge = _as_judge(config, counted[roles.writer].chat, counted[roles.judge], roles)
                evaluation = evaluate_judges(suite, pairs, [judge], seed=seed, notes=notes, progress=log)
                facts["judges"] = write_judged(suite, evaluation, [judge], work)
                facts["judged_without_rubric"] = dict(judge.fallbacks)
            facts["models"] = {name: chat.account() for name, chat in counted.items()}
        good = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Rubric)}
        write_rows(work / RUBRICS, [rubric_row(name, rubric) for name, rubric in good.items()])
        summary = {**facts, "notes": notes, "chats": asdict(chats)}
        write_manifest(work, data=config.data, seed=seed, started=started, **summary)
    return {"run": config.output, **facts}


def _generated(writer: Chat, cases: Sequence[Case]) -> dict[str, Rubric | Rejected]:
    """Generate a rubric for each case; the responses keep the case's order, which does not depend on which is right."""
    shown = [Sides(case.prompt, case.answers[0], case.answers[1], preferred="A") for case in cases]
    return dict(zip([case.id for case in cases], generate(writer, shown), strict=True))


def _as_judge(config: RubricsConfig, generator: Chat, judge: Chat, roles: Cast) -> RubricJudge:
    made = RubricJudge(generator, judge, on_flip=config.flip)
    made.name = f"{roles.judge} with rubrics of {roles.writer}"
    return made
