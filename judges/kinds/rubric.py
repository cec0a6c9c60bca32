"""Each answer against a rubric, item by item with quoted evidence; a formula makes the score, not the judge."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from ...rm.types import prompt_text
from ..backends.chat import Ask, Chat, Reply
from ..judge import Judging, RubricSource, ask_all, described, failure, judgment, one_of, rubrics_for, stands_in
from ..parsing.statements import NoVerdict
from ..parsing.verdicts import Marks, criteria
from ..prompting import GREEDY, Sampling, instructions, messages, object_schema
from ..rubrics.rubric import Rubric, render
from ..rubrics.scoring import RubricScore, gated
from ..types import Case, Criterion, Judgment, Reason


def rubric(
    chat: Chat,
    rubric: Rubric | RubricSource,
    *,
    score: RubricScore = gated,
    evidence: Literal["kept", "required"] = "kept",
    together: bool = True,
    prompt: str = "rubric",
    sampling: Sampling = GREEDY,
    name: str = "",
) -> Judging:
    """s_i = score(rubric, v_i), v_ik in {0, 1/2, 1} the judge's mark for criterion k on answer i, shown alone.

    `score` is one of `rubric_score` (gates and vetoes, weights, Rubric Anchors, HealthBench's signed points) or your
    own. Criteria that do not apply are left out. One request per answer, or per answer and criterion
    (`together=False`, as HealthBench asks). Every criterion gets a mark or the case is an abstention, and so it is with
    `evidence="required"` where a mark that needs a quotation (a `must` that is met, a `forbid` that is broken) has none
    that stands in the answer.
    """
    one_of("evidence", evidence, ("kept", "required"))
    system = instructions(prompt)

    def asks(case: Case, found: Rubric | None) -> list[Ask]:
        if found is None:
            return []
        about = {"instruction": prompt_text(case.prompt), "reference": case.reference or None}
        return [
            sampling.ask(messages(system, about | {"rubric": render(part), "answer": answer}), marks_schema(part.ids))
            for answer in case.answers
            for part in _requests(found, together)
        ]

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        rubrics = rubrics_for(rubric, cases)
        replied = ask_all(chat, [asks(case, found) for case, found in zip(cases, rubrics, strict=True)])
        return [
            _judged(case, found, replies, chat, score, evidence == "required", together)
            for case, found, replies in zip(cases, rubrics, replied, strict=True)
        ]

    settings: dict[str, Any] = {
        "kind": "rubric", "chat": chat.name, "rubric": described(rubric), "score": described(score),
        "evidence": evidence, "together": together, "system": system, "sampling": sampling._asdict(),
    }  # fmt: skip
    return Judging(name or f"{chat.name} rubric", settings, judge)


def marks_schema(ids: Sequence[str]) -> dict[str, Any]:
    """The reply that is asked for: evidence before the mark, every id once."""
    row = object_schema(
        id={"type": "string", "enum": list(ids)},
        evidence={"type": "string"},
        met={"type": "string", "enum": ["yes", "no", "partial", "not applicable"]},
    )
    return object_schema(rules={"type": "array", "items": row, "minItems": len(ids), "maxItems": len(ids)})


def _requests(found: Rubric, together: bool) -> list[Rubric]:
    """What is asked at once: the whole rubric, or each of its criteria."""
    if together:
        return [found]
    return [Rubric(rules=(rule,)) for rule in found.rules] + [
        Rubric(principles=(principle,)) for principle in found.principles
    ]


def _judged(
    case: Case,
    found: Rubric | None,
    replies: Sequence[Reply],
    chat: Chat,
    score: RubricScore,
    required: bool,
    together: bool,
) -> Judgment:
    if found is None:
        return judgment(case, NoVerdict(Reason.NO_RUBRIC), chat, replies)
    parts = _requests(found, together)
    read = [
        failure(reply)
        or criteria(
            reply.text, parts[index % len(parts)].ids, quoted=[case.answers[index // len(parts)]], finish=reply.finish
        )
        for index, reply in enumerate(replies)
    ]
    kept = [
        Criterion(
            index // len(parts),
            name,
            mark.value,
            mark.evidence,
            stands_in(mark.evidence, case.answers[index // len(parts)]),
        )
        for index, one in enumerate(read)
        if isinstance(one, Marks)
        for name, mark in one.values.items()
        if not math.isnan(mark.value)
    ]
    return judgment(
        case,
        _scores(case, found, read, kept, score, required),
        chat,
        replies,
        orders=[(index // len(parts),) for index in range(len(replies))],
        reasoning=[one.reasoning for one in read if isinstance(one, Marks)],
        criteria=kept,
    )


def _scores(
    case: Case,
    found: Rubric,
    read: Sequence[Marks | NoVerdict],
    kept: Sequence[Criterion],
    score: RubricScore,
    required: bool,
) -> list[float] | NoVerdict:
    if unread := [one for one in read if isinstance(one, NoVerdict)]:
        return unread[0]
    if required and (bare := [one for one in kept if _needs_quotation(found, one) and not one.quoted]):
        return NoVerdict(Reason.NO_EVIDENCE, f"{bare[0].name} of answer {bare[0].answer}")
    values = [{one.name: one.value for one in kept if one.answer == index} for index in range(len(case.answers))]
    if not all(values):
        return NoVerdict(Reason.NO_VERDICT, "no criterion applies")
    return [score(found, marks) for marks in values]


def _needs_quotation(found: Rubric, one: Criterion) -> bool:
    """What an answer does can be quoted; what it does not do cannot."""
    forbids = one.name in {rule.id for rule in found.rules if rule.type == "forbid"}
    return one.value < 1 if forbids else one.value > 0
