"""Yes-or-no questions for every turn of a conversation."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from ...rm.errors import UsageError
from ...rm.types import Messages, completion_turns, message_text, prompt_text
from ..backends.chat import Ask, Chat, Reply
from ..judge import Judging, ask_all, described, failure, judgment, stands_in
from ..parsing.statements import NoVerdict
from ..parsing.verdicts import Marks, criteria
from ..prompting import GREEDY, Sampling, instructions, messages
from ..types import Case, Criterion, Judgment, Reason
from .rubric import marks_schema


class Question(NamedTuple):
    """One item of a checklist."""

    id: str
    text: str
    """A question that is answered by yes or no."""
    turn: int = -1
    """The assistant's turn that it is asked of, counted from 0; -1 is the last one, the answer itself."""
    weight: float = 1.0
    passes_if: str = ""
    fails_if: str = ""
    depends_on: tuple[str, ...] = ()
    """Ids of questions without whose yes a yes to this one counts for nothing."""


Questions = Sequence[Question]


def checklist(
    chat: Chat,
    questions: Questions | Callable[[Sequence[Case]], Sequence[Questions]],
    *,
    prompt: str = "checklist",
    sampling: Sampling = GREEDY,
    name: str = "",
) -> Judging:
    """s_i = mean over the turns t with questions of sum_k w_k m_k / sum_k w_k, in [0, 1]          after CM2

    m_k is 1 for a yes whose `depends_on` have a yes too. The turns of the assistant in the prompt come first, the
    answer is the last one; a turn is shown with what stands before it and nothing after. One request per answer and
    turn, so turns that all answers share are asked once. The marks are kept as criteria, for a reward per turn.
    """
    system = instructions(prompt)

    def ask(case: Case, place: int, turn: int, asked: Questions) -> Ask:
        shown = {"conversation": prompt_text(until(case, place, turn)), "checklist": "\n".join(map(_line, asked))}
        return sampling.ask(messages(system, shown), marks_schema([one.id for one in asked]))

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        lists = questions(cases) if callable(questions) else [questions] * len(cases)
        plans = [_by_turn(case, asked) for case, asked in zip(cases, lists, strict=True)]
        asks = [
            [ask(case, place, turn, asked) for turn, asked in plan.items() for place in _places(case, turn)]
            for case, plan in zip(cases, plans, strict=True)
        ]
        return [_judged(*one, chat) for one in zip(cases, plans, ask_all(chat, asks), strict=True)]

    settings: dict[str, Any] = {
        "kind": "checklist", "chat": chat.name, "system": system, "sampling": sampling._asdict(),
        "questions": described(questions) if callable(questions) else [question._asdict() for question in questions],
    }  # fmt: skip
    return Judging(name or f"{chat.name} checklist", settings, judge)


def turns(case: Case) -> int:
    """How many turns the assistant has: those in the prompt, and the answer."""
    return 1 + sum(message["role"] == "assistant" for message in case.prompt)


def until(case: Case, place: int, turn: int) -> Messages:
    """The conversation up to and with one of the assistant's turns."""
    ends = [end for end, message in enumerate(case.prompt, 1) if message["role"] == "assistant"]
    return case.prompt[: ends[turn]] if turn < len(ends) else (*case.prompt, *completion_turns(case.answers[place]))


def _said(case: Case, place: int, turn: int) -> str:
    return case.answers[place] if turn == turns(case) - 1 else message_text(until(case, place, turn)[-1])


def _line(one: Question) -> str:
    passes, fails = (
        f" {head} {text}" if text else "" for head, text in (("Yes if:", one.passes_if), ("No if:", one.fails_if))
    )
    return f"[{one.id}] {one.text}{passes}{fails}"


def _places(case: Case, turn: int) -> range:
    """The answers that a turn has to be judged for: all for the last turn, one for a turn that they share."""
    return range(len(case.answers)) if turn == turns(case) - 1 else range(1)


def _by_turn(case: Case, asked: Questions) -> dict[int, list[Question]]:
    """The questions of each turn that has some; a wrong turn or a dependence on nothing is refused."""
    last, known = turns(case) - 1, {one.id for one in asked}
    if len(known) < len(asked) or not asked:
        raise UsageError(
            f"case '{case.id}': a checklist has questions with an id each, got {[one.id for one in asked]}"
        )
    found: dict[int, list[Question]] = {}
    for one in asked:
        turn = last if one.turn == -1 else one.turn
        if not 0 <= turn <= last:
            raise UsageError(f"case '{case.id}': question '{one.id}' asks of turn {one.turn}; turns are 0 to {last}")
        if missing := set(one.depends_on) - known:
            raise UsageError(f"case '{case.id}': question '{one.id}' depends on '{min(missing)}', which is not asked")
        if not one.weight > 0:
            raise UsageError(f"case '{case.id}': question '{one.id}' has the weight {one.weight}; weights are > 0")
        found.setdefault(turn, []).append(one)
    return dict(sorted(found.items()))


def _judged(case: Case, plan: dict[int, list[Question]], replies: Sequence[Reply], chat: Chat) -> Judgment:
    asked = [(turn, place) for turn in plan for place in _places(case, turn)]
    read = [
        failure(reply)
        or criteria(reply.text, [one.id for one in plan[turn]], quoted=[_said(case, place, turn)], finish=reply.finish)
        for (turn, place), reply in zip(asked, replies, strict=True)
    ]
    kept = [
        Criterion(answer, name, mark.value, mark.evidence, stands_in(mark.evidence, _said(case, place, turn)))
        for (turn, place), one in zip(asked, read, strict=True)
        if isinstance(one, Marks)
        for answer in (range(len(case.answers)) if len(_places(case, turn)) == 1 else [place])
        for name, mark in one.values.items()
    ]
    return judgment(
        case,
        _scores(case, plan, read, kept),
        chat,
        replies,
        orders=[(place,) for _, place in asked],
        reasoning=[one.reasoning for one in read if isinstance(one, Marks)],
        criteria=kept,
    )


def _scores(
    case: Case, plan: dict[int, list[Question]], read: Sequence[Marks | NoVerdict], kept: Sequence[Criterion]
) -> list[float] | NoVerdict:
    if unread := [one for one in read if isinstance(one, NoVerdict)]:
        return unread[0]
    if unclear := [one for one in kept if one.value not in (0, 1)]:
        return NoVerdict(Reason.MALFORMED, f"{unclear[0].name} is neither yes nor no")
    marks = [{one.name: one.value for one in kept if one.answer == index} for index in range(len(case.answers))]
    return [fmean(turn_score(asked, of_answer) for asked in plan.values()) for of_answer in marks]


def turn_score(asked: Questions, marks: dict[str, float]) -> float:
    """The weighted share of a turn's questions that have a yes, as have all that they depend on.

    >>> turn_score([Question("a", "?", weight=3.0), Question("b", "?", depends_on=("a",))], {"a": 0.0, "b": 1.0})
    0.0
    """
    won = [one.weight for one in asked if all(marks[name] == 1 for name in (one.id, *one.depends_on))]
    return sum(won) / sum(one.weight for one in asked)
