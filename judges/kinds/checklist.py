"""Checklist judge: yes-or-no questions for each turn of a conversation."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ...rm.errors import UNREADABLE, DataError, UsageError
from ...rm.io.checked_files import from_toml
from ...rm.types import Messages, completion_turns, message_text, prompt_text
from ..backends.chat import Ask, Chat, Reply
from ..judge import Judging, ask_all, describe_setting, judgment
from ..parsing.statements import NoVerdict
from ..parsing.verdicts import Marks
from ..prompts import GREEDY, Sampling, instructions, messages
from ..types import Case, Criterion, Judgment, Reason
from .rubric import as_criteria, marks_schema, read_marks


class Question(NamedTuple):
    """Item of a checklist."""

    id: str
    text: str
    """A question that is answered with yes or no."""
    turn: int = -1
    """Index of the assistant turn that the question is about; -1 is the last turn, the response itself."""
    weight: float = 1.0
    passes_if: str = ""
    fails_if: str = ""
    depends_on: tuple[str, ...] = ()
    """Ids of the prerequisite questions. A yes counts only if these are answered yes too."""


Questions = Sequence[Question]


def read_checklist(source: str) -> list[Question]:
    """Load questions from `[[questions]]` of a TOML file, with `id`, `text` and optional other fields of `Question`."""
    try:
        values = from_toml(Path(source).read_text(encoding="utf-8"))["questions"]
        return [Question(**{**value, "depends_on": tuple(value.get("depends_on", ()))}) for value in values]
    except OSError as error:
        raise UsageError(f"cannot read the checklist {source}: {error}") from error
    except UNREADABLE as error:
        fields = ", ".join(Question._fields)
        raise DataError(f"{source}: a checklist must have tables [[questions]] with {fields}; {error}") from error


def checklist(
    chat: Chat,
    questions: Questions | Callable[[Sequence[Case]], Sequence[Questions]],
    *,
    prompt: str = "checklist",
    sampling: Sampling = GREEDY,
    name: str = "",
) -> Judging:
    """Score each response by the weighted share of its checklist questions answered yes, averaged over turns.

        s_i = mean over turns t with questions of Σ_k w_k m_k / Σ_k w_k, in [0, 1]          after CM2

    w_k is the weight of question k of the turn, and m_k is 1 if question k and all its `depends_on` are answered yes,
    else 0. The turns are the assistant turns of the prompt, then response i. The judge sees a turn with the
    conversation before it, in one request per response and turn; turns of the prompt are judged once for all responses.
    The m_k are stored as criteria, for a reward per turn.
    """
    system = instructions(prompt)

    def ask(case: Case, index: int, turn: int, items: Questions) -> Ask:
        parts = {
            "conversation": prompt_text(conversation_until(case, index, turn)),
            "checklist": "\n".join(map(_line, items)),
        }
        return sampling.ask(messages(system, parts), marks_schema([question.id for question in items]))

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        lists = questions(cases) if callable(questions) else [questions] * len(cases)
        plans = [_group_by_turn(case, items) for case, items in zip(cases, lists, strict=True)]
        asks = [
            [ask(case, index, turn, items) for turn, items in plan.items() for index in _criterion_range(case, turn)]
            for case, plan in zip(cases, plans, strict=True)
        ]
        return [_case_judgment(*parts, chat) for parts in zip(cases, plans, ask_all(chat, asks), strict=True)]

    settings: dict[str, Any] = {
        "kind": "checklist", "chat": chat.name, "system": system, "sampling": sampling._asdict(),
        "questions": describe_setting(questions) if callable(questions) else [item._asdict() for item in questions],
    }  # fmt: skip
    return Judging(name or f"{chat.name} checklist", settings, judge)


def count_turns(case: Case) -> int:
    """Return the number of assistant turns: those of the prompt, plus the response."""
    return 1 + sum(message["role"] == "assistant" for message in case.prompt)


def conversation_until(case: Case, index: int, turn: int) -> Messages:
    """Return the conversation up to and including the given assistant turn."""
    ends = [end for end, message in enumerate(case.prompt, 1) if message["role"] == "assistant"]
    return case.prompt[: ends[turn]] if turn < len(ends) else (*case.prompt, *completion_turns(case.answers[index]))


def _turn_text(case: Case, index: int, turn: int) -> str:
    return (
        case.texts[index] if turn == count_turns(case) - 1 else message_text(conversation_until(case, index, turn)[-1])
    )


def _line(question: Question) -> str:
    passes = f" Yes if: {question.passes_if}" if question.passes_if else ""
    fails = f" No if: {question.fails_if}" if question.fails_if else ""
    return f"[{question.id}] {question.text}{passes}{fails}"


def _criterion_range(case: Case, turn: int) -> range:
    """Return the indices of the responses for which a turn is judged: all for the last turn, one for a shared turn."""
    return range(len(case.answers)) if turn == count_turns(case) - 1 else range(1)


def _group_by_turn(case: Case, items: Questions) -> dict[int, list[Question]]:
    """Group questions by turn. Raise an error for a missing turn or an unknown dependency."""
    last, ids = count_turns(case) - 1, {question.id for question in items}
    if len(ids) < len(items) or not items:
        raise UsageError(
            f"case '{case.id}': a checklist needs questions with unique ids, got {[question.id for question in items]}"
        )
    questions_by_turn: dict[int, list[Question]] = {}
    for checked in items:
        turn = last if checked.turn == -1 else checked.turn
        if not 0 <= turn <= last:
            raise UsageError(
                f"case '{case.id}': question '{checked.id}' is about turn {checked.turn}; turns are 0 to {last}"
            )
        if missing := set(checked.depends_on) - ids:
            raise UsageError(
                f"case '{case.id}': question '{checked.id}' depends on '{min(missing)}', which is not a question"
            )
        if not checked.weight > 0:
            raise UsageError(
                f"case '{case.id}': question '{checked.id}' has the weight {checked.weight}; weights must be > 0"
            )
        questions_by_turn.setdefault(turn, []).append(checked)
    return dict(sorted(questions_by_turn.items()))


def _case_judgment(case: Case, plan: dict[int, list[Question]], replies: Sequence[Reply], chat: Chat) -> Judgment:
    requests = [(turn, index) for turn in plan for index in _criterion_range(case, turn)]
    read = [
        read_marks(reply, [question.id for question in plan[turn]], _turn_text(case, index, turn))
        for (turn, index), reply in zip(requests, replies, strict=True)
    ]
    criteria_ = [
        criterion
        for (turn, index), marks in zip(requests, read, strict=True)
        for answer in (range(len(case.answers)) if len(_criterion_range(case, turn)) == 1 else [index])
        for criterion in as_criteria(marks, answer, _turn_text(case, index, turn))
    ]
    return judgment(
        case, _scores(case, plan, read, criteria_), chat, replies,
        orders=[(index,) for _, index in requests],
        reasoning=[marks.reasoning for marks in read if isinstance(marks, Marks)],
        criteria=criteria_,
    )  # fmt: skip


def _scores(
    case: Case, plan: dict[int, list[Question]], read: Sequence[Marks | NoVerdict], criteria_: Sequence[Criterion]
) -> list[float] | NoVerdict:
    if unread := [item for item in read if isinstance(item, NoVerdict)]:
        return unread[0]
    if unclear := [criterion for criterion in criteria_ if criterion.value not in (0, 1)]:
        return NoVerdict(Reason.MALFORMED, f"{unclear[0].name} is neither yes nor no")
    marks = [
        {criterion.name: criterion.value for criterion in criteria_ if criterion.answer == index}
        for index in range(len(case.answers))
    ]
    return [fmean(turn_score(items, of_answer) for items in plan.values()) for of_answer in marks]


def turn_score(items: Questions, marks: dict[str, float]) -> float:
    """Return the weighted share of a turn's questions that are answered yes together with all their dependencies.

    >>> turn_score([Question("a", "?", weight=3.0), Question("b", "?", depends_on=("a",))], {"a": 0.0, "b": 1.0})
    0.0
    """
    won = [
        question.weight for question in items if all(marks[name] == 1 for name in (question.id, *question.depends_on))
    ]
    return sum(won) / sum(question.weight for question in items)
