"""`rewardlab rubrics build`: rubrics from preference pairs, what is dropped and why, and records to learn from."""

import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....benchmarks.suites.pairs import case_ids, collect_files
from ....judges.backends.settings import ChatConfig
from ....judges.cdrrm.filter import Bar, FilteredRubric, verify
from ....judges.cdrrm.generator import generator_records, judge_records
from ....judges.cdrrm.requests import Rejected
from ....judges.cdrrm.synthesise import Sides, sides, synthesise
from ....judges.rubrics.files import RUBRICS, rubric_row
from ....judges.rubrics.rubric import Rubric
from ....judges.run import CountedChat, stored_replies
from ....rm.data.pairs import parse_pair
from ....rm.errors import DataError
from ....rm.io.markdown import table
from ...runs.run_folder import log, log_rows, write_json, write_manifest, write_rows
from .roles import Cast, cast, cast_folder
from .settings import RubricsConfig

DROPPED = "dropped.jsonl"
LATER = (
    "this is for the diagnoses alone; each pair then costs up to nine requests more: a rubric, two checks, two "
    "verdicts with it and two without, and two that the judge may learn from"
)


def build(config: RubricsConfig, chats: ChatConfig, seed: int) -> dict[str, Any]:
    """Profile, synthesise and filter rubrics; list the dropped pairs with reasons, and write training records."""
    started, roles = time.time(), cast(config, chats)
    bar = Bar(config.most_rules, config.overlap, config.alike)
    pairs, rows = collect_files(config.data, parse_pair, config.on_bad_row, unique_ids=True)
    log_rows("data", rows)
    known = [better for pair in pairs if (better := pair.preferred(config.objective)) is not None]
    undecided = len(pairs) - len(known)
    shown = {name: sides(pair, seed) for name, pair in zip(case_ids(known), known, strict=True)}
    if not shown:
        raise DataError(f"{config.data}: none of {len(pairs)} pairs has a preference for '{config.objective}'")
    if config.dry_run:
        imagined = roles.models.dry_run()
        synthesise(imagined[roles.writer], [*shown.values()])
        log(LATER)
        estimated = roles.models.estimate(imagined, log, total="cost_of_diagnoses")
        return {"pairs": len(shown), **estimated}
    opened = roles.models.open()
    with cast_folder(config, chats, seed=seed) as work:
        with stored_replies(opened, roles.models.prices, work, config.on_fault) as counted:
            outcomes = made(shown, counted, roles, bar)
            good = [outcome for outcome in outcomes.values() if isinstance(outcome, FilteredRubric)]
            taught = judge_records(counted[roles.writer], good)
            usage = {name: chat.account() for name, chat in counted.items()}
        facts = {"pairs": len(shown), "without_preference": undecided, **filter_summary(outcomes), "models": usage}
        write_built(work, outcomes, facts)
        write_rows(work / "generator.jsonl", generator_records(good, contrast_first=config.contrast_first))
        write_rows(work / "judge.jsonl", taught)
        facts |= {"judge_records": len(taught), "rows": rows.as_json(), "chats": asdict(chats)}
        write_manifest(work, data=config.data, seed=seed, started=started, **facts)
    return {"run": config.output, **{name: value for name, value in facts.items() if name not in ("rows", "chats")}}


def made(
    shown: dict[str, Sides], chats: dict[str, CountedChat], roles: Cast, bar: Bar
) -> dict[str, FilteredRubric | Rejected]:
    """Write a rubric for each pair, or record why there is none."""
    pairs = [*shown.values()]
    log(f"diagnosing both answers of {len(pairs)} pairs and writing their rubrics with {roles.writer}")
    written = synthesise(chats[roles.writer], pairs)
    log(
        f"judging under {sum(isinstance(synthesis.rubric, Rubric) for synthesis in written)} rubrics with {roles.judge}"
    )
    return dict(zip(shown, verify(chats[roles.judge], pairs, written, bar), strict=True))


def filter_summary(outcomes: dict[str, FilteredRubric | Rejected]) -> dict[str, Any]:
    """Return the numbers of kept rubrics, and of dropped ones by reason."""
    good = [outcome for outcome in outcomes.values() if isinstance(outcome, FilteredRubric)]
    reasons = Counter(outcome.reason for outcome in outcomes.values() if isinstance(outcome, Rejected))
    rules = sum(len(accepted.rubric.rules) for accepted in good)
    return {
        "kept": len(good),
        "useful": sum(accepted.useful for accepted in good),
        "mean_rules": rules / len(good) if good else None,
        "dropped": dict(reasons.most_common()),
    }


def write_built(work: Path, outcomes: dict[str, FilteredRubric | Rejected], facts: dict[str, Any]) -> None:
    """Write the rubrics by pair, the dropped pairs with their reasons, and a report."""
    good = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, FilteredRubric)}
    write_rows(
        work / RUBRICS, [rubric_row(name, accepted.rubric, **_pair_facts(accepted)) for name, accepted in good.items()]
    )
    dropped = [(name, outcome) for name, outcome in outcomes.items() if isinstance(outcome, Rejected)]
    write_rows(work / DROPPED, [{"case": name, **rejected._asdict()} for name, rejected in dropped])
    lines = [[reason, str(count)] for reason, count in facts["dropped"].items()]
    text = (
        f"# Rubrics from contrast\n\n{facts['kept']} of {facts['pairs']} pairs have a rubric under which the judge "
        f"finds the preferred answer in both orders; for {facts['useful']} of them it does not without the rubric. "
        f"{facts['without_preference']} more had no preference.\n\n"
    )
    (work / "report.md").write_text(text + table(["dropped because", "pairs"], lines) + "\n", encoding="utf-8")
    write_json(work / "summary.json", facts)


def _pair_facts(accepted: FilteredRubric) -> dict[str, Any]:
    diagnoses = [each.as_json() for each in accepted.diagnoses] if accepted.diagnoses else None
    shown = accepted.sides._asdict() | {"prompt": list(accepted.sides.prompt)}
    return {"useful": accepted.useful, **shown, "diagnoses": diagnoses}
