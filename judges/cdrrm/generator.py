"""Rubric generator: training records, and a judge that uses the generated rubrics.

Liu et al. 2026, arXiv:2603.08035: the generator learns p(rubric | prompt, both responses), the judge p(reasons, verdict
| prompt, both responses, rubric), by next-token likelihood. The generator sees both responses at inference, too.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from ...rm.errors import DataError
from ...rm.types import Messages, content_hash, prompt_text
from ..backends.chat import Ask, Chat
from ..judge import Outcome, failure, judgment
from ..parsing.statements import NoVerdict
from ..rubrics.rubric import SCHEMA, Rubric, rubric_json
from ..types import Case, Comparison, Judgment, Reason
from .filter import FilteredRubric
from .requests import Rejected, ask, system_prompt
from .ruling import ORDERS, Ruling, RulingRequest, rule, verdict_request
from .synthesise import Sides, contrast, read_rubric

Record = dict[str, list[dict[str, str]]]
"""Conversation for TRL's SFTTrainer: `prompt` and `completion` as lists of messages."""


def rubric_request(prompt: Messages, answers: tuple[str, str]) -> Ask:
    """Return the request for a rubric from a prompt and both responses."""
    parts = {"instruction": prompt_text(prompt), "answer_a": answers[0], "answer_b": answers[1]}
    return ask("generate", parts, SCHEMA)


def generator_records(accepted: Iterable[FilteredRubric], *, contrast_first: bool = False) -> list[Record]:
    """Return two conversations for every accepted rubric, one in each order of the responses, with the same rubric.

    Each pair has its preferred response in slot A once and in slot B once, so that the position carries no label. With
    `contrast_first`, the two diagnoses precede the rubric, one criterion per line, as reasoning that a small model can
    learn to write. The default, as in the released code, is to train on the rubric alone.
    """
    return [
        conversation_record(
            rubric_request(example.sides.prompt, example.sides.answers), _completion(example, contrast_first)
        )
        for pair in accepted
        for example in (pair, _swap_sides(pair))
    ]


def _swap_sides(accepted: FilteredRubric) -> FilteredRubric:
    diagnoses = accepted.diagnoses and (accepted.diagnoses[1], accepted.diagnoses[0])
    return accepted._replace(sides=accepted.sides.swapped(), diagnoses=diagnoses)


def _completion(accepted: FilteredRubric, contrast_first: bool) -> str:
    if not contrast_first:
        return rubric_json(accepted.rubric)
    if accepted.diagnoses is None:
        raise DataError(f"{prompt_text(accepted.sides.prompt)!r:.60}: no stored diagnoses to put before the rubric")
    return f"{contrast(accepted.diagnoses)}\n{rubric_json(accepted.rubric)}"


def judge_records(teacher: Chat, accepted: Sequence[FilteredRubric]) -> list[Record]:
    """Return the teacher's replies on the accepted pairs under their rubrics, if both orders have the right verdict."""
    questions = [RulingRequest(example.sides.prompt, example.sides.answers, example.rubric) for example in accepted]
    return [
        conversation_record(verdict_request(question, order), reply.text)
        for example, question, ruling in zip(accepted, questions, rule(teacher, questions), strict=True)
        if ruling.winner == "AB".index(example.sides.preferred)
        for order, reply in zip(ORDERS, ruling.replies, strict=True)
    ]


def conversation_record(request: Ask, reply: str) -> Record:
    """Return a request and its reply as a training conversation."""
    prompt = [{"role": turn["role"], "content": turn["content"]} for turn in request.messages]
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": reply}]}


def generate(chat: Chat, pairs: Sequence[Sides]) -> list[Rubric | Rejected]:
    """Return a generated rubric for every pair, from one request each with prompt and responses."""
    replies = chat.ask([rubric_request(pair.prompt, pair.answers) for pair in pairs])
    return [read_rubric(reply) for reply in replies]


def rule_with(judge: Chat, pairs: Sequence[Sides], rubrics: Sequence[Rubric | Rejected]) -> list[Ruling]:
    """Return a ruling on every pair under its rubric. A pair whose rubric was rejected is judged without one."""
    questions = [
        RulingRequest(pair.prompt, pair.answers, None if isinstance(rubric, Rejected) else rubric)
        for pair, rubric in zip(pairs, rubrics, strict=True)
    ]
    return rule(judge, questions)


class RubricJudge:
    """Judge of cases with two responses: the generator writes a rubric, the judge decides under it in both orders.

    The winner scores 1, the other response 0. Contradictory verdicts are a tie (½ each) or an abstention. An unreadable
    verdict is an abstention. `fallbacks` counts the reasons for which pairs were judged without a rubric.
    """

    role = "model"

    def __init__(self, generator: Chat, judge: Chat, *, on_flip: Literal["tie", "abstain"] = "tie", name: str = ""):
        self.generator, self.judge, self.on_flip = generator, judge, on_flip
        self.name = name or f"cdrrm: {generator.name}, {judge.name}"
        prompts = [system_prompt(name) for name in ("generate", "judge", "bare")]
        self.contract = content_hash([generator.name, judge.name, on_flip, prompts])
        self.fallbacks: Counter[str] = Counter()

    def __call__(self, cases: Sequence[Case]) -> list[Judgment]:
        """Return one judgment per case, in order. The judge abstains unless a case has two responses."""
        pair_cases = {index: case for index, case in enumerate(cases) if len(case.answers) == 2}
        pairs = [Sides(case.prompt, *case.texts, preferred="A") for case in pair_cases.values()]
        rubrics = generate(self.generator, pairs)
        self.fallbacks.update(rubric.reason for rubric in rubrics if isinstance(rubric, Rejected))
        rulings = dict(zip(pair_cases, rule_with(self.judge, pairs, rubrics), strict=True))
        return [self._judgment(case, rulings.get(index)) for index, case in enumerate(cases)]

    def _judgment(self, case: Case, ruling: Ruling | None) -> Judgment:
        if ruling is None:
            return judgment(case, f"{len(case.answers)} responses; the judge needs exactly two", self.judge, ())
        duels = [Comparison(order, _first_credit(ruling, order)) for order in ORDERS]
        return judgment(case, self._outcome(ruling), self.judge, ruling.replies, orders=ORDERS, comparisons=duels)

    def _outcome(self, ruling: Ruling) -> Outcome:
        if ruling.winner is not None:
            return [float(index == ruling.winner) for index in range(2)]
        if ruling.flipped and self.on_flip == "tie":
            return [0.5, 0.5]
        if ruling.flipped:
            return NoVerdict(Reason.FLIP)
        return next(filter(None, map(failure, ruling.replies)), NoVerdict(Reason.NO_VERDICT))


def _first_credit(ruling: Ruling, order: tuple[int, int]) -> float:
    """Return 1 if the response in slot A won in this order, 0 if it lost. NaN without a readable verdict."""
    winner = ruling.second if order[0] else ruling.first
    return float("nan") if winner is None else float(winner == order[0])


def check_records(records: Sequence[Record]) -> None:
    """Raise a `DataError` with the indices of records that a trainer would misread."""
    if not records:
        raise DataError("no records to train on, since all pairs were dropped; see the logged reasons")
    for index, record in enumerate(records):
        if not record.get("prompt") or not record.get("completion"):
            raise DataError(f"record {index}: prompt and completion must be lists of messages, got {record!r:.80}")
