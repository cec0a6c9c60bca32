"""Rubric judge: a mark for each criterion and response with quoted evidence, aggregated by a score function."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ...rm.errors import UsageError
from ...rm.types import prompt_text
from ..backends.chat import Ask, Chat, Reply
from ..judge import (
    ByCase,
    Judging,
    RubricSource,
    ask_all,
    describe_setting,
    failure,
    is_quotation_of,
    judgment,
    one_of,
    rubrics_for,
)
from ..parsing.statements import NoVerdict
from ..parsing.verdicts import Marks, criteria
from ..prompts import GREEDY, Sampling, instructions, messages, object_schema
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
    """Score each response by s_i = score(rubric, v_i), with the marks v_ik in {0, 1/2, 1} of criterion k.

    Each response is shown alone, in one request, or in one request per criterion with `together=False` (as in
    HealthBench). `score` is a `RubricScore`: gates and vetoes, weights, Rubric Anchors, HealthBench's signed points, or
    your function. Criteria that do not apply are left out. The judge abstains on a case if a criterion has no mark.
    With `evidence="required"`, it also abstains if a fulfilled `must` or a broken `forbid` has no quotation from the
    response.
    """
    one_of("evidence", evidence, ("kept", "required"))
    for case_id, fixed_rubric in _fixed_rubrics(rubric).items():
        _check_score(score, fixed_rubric, case_id)
    system = instructions(prompt)

    def asks(case: Case, case_rubric: Rubric | None) -> list[Ask]:
        if case_rubric is None:
            return []
        about = {"instruction": prompt_text(case.prompt), "reference": case.reference or None}
        return [
            sampling.ask(messages(system, about | {"rubric": render(part), "answer": answer}), marks_schema(part.ids))
            for answer in case.texts
            for part in _requests(case_rubric, together)
        ]

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        rubrics = rubrics_for(rubric, cases)
        for case, case_rubric in zip(cases, rubrics, strict=True):
            if case_rubric is not None:
                _check_score(score, case_rubric, case.id)
        replied = ask_all(chat, [asks(case, case_rubric) for case, case_rubric in zip(cases, rubrics, strict=True)])
        return [judgment_of(*parts) for parts in zip(cases, rubrics, replied, strict=True)]

    def judgment_of(case: Case, case_rubric: Rubric | None, replies: Sequence[Reply]) -> Judgment:
        if case_rubric is None:
            return judgment(case, NoVerdict(Reason.NO_RUBRIC), chat, replies)
        parts = _requests(case_rubric, together)
        requests = [(index, part) for index in range(len(case.answers)) for part in parts]
        read, case_criteria = _read_replies(case, requests, replies)
        return judgment(
            case, _scores(case, case_rubric, read, case_criteria, score, evidence == "required"), chat, replies,
            orders=[(index,) for index, _ in requests],
            reasoning=[marks.reasoning for marks in read if isinstance(marks, Marks)],
            criteria=case_criteria,
        )  # fmt: skip

    settings: dict[str, Any] = {
        "kind": "rubric", "chat": chat.name, "rubric": describe_setting(rubric), "score": describe_setting(score),
        "evidence": evidence, "together": together, "system": system, "sampling": sampling._asdict(),
    }  # fmt: skip
    return Judging(name or f"{chat.name} rubric", settings, judge, sources=(rubric,))


def _read_replies(
    case: Case, requests: Sequence[tuple[int, Rubric]], replies: Sequence[Reply]
) -> tuple[list[Marks | NoVerdict], list[Criterion]]:
    """Return the marks of every request (response, criteria), and all criteria that apply."""
    read = [
        read_marks(reply, part.ids, case.texts[index]) for (index, part), reply in zip(requests, replies, strict=True)
    ]
    values = [
        criterion
        for (index, _), marks in zip(requests, read, strict=True)
        for criterion in as_criteria(marks, index, case.texts[index])
        if not math.isnan(criterion.value)
    ]
    return read, values


def _fixed_rubrics(rubric: Rubric | RubricSource) -> Mapping[str, Rubric]:
    """Return the rubrics that are known before the first case, by case id."""
    if isinstance(rubric, Rubric):
        return {"": rubric}
    return rubric.items if isinstance(rubric, ByCase) else {}


def _check_score(score: RubricScore, rubric: Rubric, case_id: str) -> None:
    """Raise a `UsageError` if the score function fails even with every criterion met."""
    try:
        score(rubric, dict.fromkeys(rubric.ids, 1.0))
    except ValueError as error:
        of_case = f" of case '{case_id}'" if case_id else ""
        raise UsageError(
            f"score {describe_setting(score)} does not fit the rubric{of_case}: {error}; use another score or rubric"
        ) from error


def marks_schema(ids: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of the reply: each id once, with the evidence before the mark."""
    row = object_schema(
        id={"type": "string", "enum": list(ids)},
        evidence={"type": "string"},
        met={"type": "string", "enum": ["yes", "no", "partial", "not applicable"]},
    )
    return object_schema(rules={"type": "array", "items": row, "minItems": len(ids), "maxItems": len(ids)})


def read_marks(reply: Reply, ids: Sequence[str], text: str) -> Marks | NoVerdict:
    """Parse the marks of a reply about a text, or return the reason why the reply has no marks."""
    return failure(reply) or criteria(reply.text, ids, quoted=[text], finish=reply.finish)


def as_criteria(marks: Marks | NoVerdict, index: int, text: str) -> list[Criterion]:
    """Return the marks as criteria of one response. Empty without a verdict."""
    values = marks.values if isinstance(marks, Marks) else {}
    return [
        Criterion(index, name, mark.value, mark.evidence, is_quotation_of(mark.evidence, text))
        for name, mark in values.items()
    ]


def _requests(rubric_: Rubric, together: bool) -> list[Rubric]:
    """Return the rubrics of the requests: the full rubric, or one rubric per criterion."""
    if together:
        return [rubric_]
    return [Rubric(rules=(rule,)) for rule in rubric_.rules] + [
        Rubric(principles=(principle,)) for principle in rubric_.principles
    ]


def _scores(
    case: Case,
    rubric_: Rubric,
    read: Sequence[Marks | NoVerdict],
    criteria_: Sequence[Criterion],
    score: RubricScore,
    required: bool,
) -> list[float] | NoVerdict:
    if unread := [item for item in read if isinstance(item, NoVerdict)]:
        return unread[0]
    if required and (
        bare := [criterion for criterion in criteria_ if _needs_quotation(rubric_, criterion) and not criterion.quoted]
    ):
        return NoVerdict(Reason.NO_EVIDENCE, f"{bare[0].name} of answer {bare[0].answer}")
    values = [
        {criterion.name: criterion.value for criterion in criteria_ if criterion.answer == index}
        for index in range(len(case.answers))
    ]
    if not all(values):
        return NoVerdict(Reason.NO_VERDICT, "no criterion applies")
    return [score(rubric_, marks) for marks in values]


def _needs_quotation(rubric_: Rubric, criterion: Criterion) -> bool:
    """Return whether a mark needs a quotation: if it states what a response does, rather than what it omits."""
    forbids = criterion.name in {rule.id for rule in rubric_.rules if rule.type == "forbid"}
    return criterion.value < 1 if forbids else criterion.value > 0
