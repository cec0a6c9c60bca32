"""Pointwise judge: a rating of each response, shown alone, on a numeric scale."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ...rm.errors import UsageError
from ...rm.types import prompt_text
from ..backends.chat import Ask, Chat, Reply
from ..judge import ExampleSource, Judging, ask_all, describe_setting, examples_for, failure, judgment, with_examples
from ..parsing.statements import NoVerdict
from ..parsing.verdicts import Points, points
from ..prompts import GREEDY, Sampling, instructions, messages, object_schema
from ..rubrics.formats import Levels, LevelsSource
from ..types import Case, Criterion, Judgment, Reason


def pointwise(
    chat: Chat,
    *,
    low: float = 1.0,
    high: float = 10.0,
    levels: Levels | LevelsSource | None = None,
    examples: ExampleSource | None = None,
    samples: int = 1,
    prompt: str = "pointwise",
    sampling: Sampling = GREEDY,
    name: str = "",
) -> Judging:
    """Score each response by its mean rating in [low, high] over `samples` replies.

    A reply without a number is left out of the mean. The judge abstains on a case unless more than half of the replies
    for each response have a number. `levels` describe the integers of the scale (as in BiGGen Bench, 1 to 5) and set
    `low` and `high`. If only some cases have levels, no request is sent for the others. The request contains
    `examples`. The single ratings are kept as criteria `sample 1, ...`.
    """
    if samples < 1 or (samples > 1 and sampling.temperature == 0):
        raise UsageError(
            f"{samples} samples at temperature {sampling.temperature}; more than one need a temperature > 0"
        )
    schema = object_schema(reasoning={"type": "string"}, score={"type": "number"})
    unfilled = with_examples(instructions(prompt), examples)

    def asks(case: Case, scale: Levels | None, example: str | None) -> list[Ask]:
        if levels is not None and scale is None:
            return []
        ends = (scale.low, scale.high) if scale else (low, high)
        system = unfilled.replace("{low}", f"{ends[0]:g}").replace("{high}", f"{ends[1]:g}")
        about = {
            "examples": example,
            "instruction": prompt_text(case.prompt),
            "reference": case.reference or None,
            "scale": scale.render() if scale else None,
        }
        return [
            sampling.ask(messages(system, about | {"answer": answer}), schema, sample)
            for answer in case.texts
            for sample in range(samples)
        ]

    def judge(cases: Sequence[Case]) -> list[Judgment]:
        scales = _scales(levels, cases)
        inputs = zip(cases, scales, examples_for(examples, cases), strict=True)
        replied = ask_all(chat, [asks(case, scale, example) for case, scale, example in inputs])
        ends = [(scale.low, scale.high) if scale else (low, high) for scale in scales]
        return [_judgment(chat, samples, *parts) for parts in zip(cases, ends, replied, strict=True)]

    settings: dict[str, Any] = {
        "kind": "pointwise", "chat": chat.name, "low": low, "high": high, "samples": samples,
        "levels": describe_setting(levels), "system": unfilled, "sampling": sampling._asdict(),
    } | ({"examples": describe_setting(examples)} if examples else {})  # fmt: skip
    return Judging(name or f"{chat.name} pointwise", settings, judge, sources=(examples,))


def _judgment(chat: Chat, samples: int, case: Case, ends: tuple[float, float], replies: Sequence[Reply]) -> Judgment:
    """Return the judgment of a case from `samples` replies for each response. A case without replies has no levels."""
    if not replies:
        return judgment(case, NoVerdict(Reason.NO_RUBRIC), chat, replies)
    read = [
        failure(reply) or points(reply.text, *ends, quoted=[case.texts[index // samples]], finish=reply.finish)
        for index, reply in enumerate(replies)
    ]
    means = [_mean(read[start : start + samples]) for start in range(0, len(read), samples)]
    ratings = [(index, item) for index, item in enumerate(read) if isinstance(item, Points)]
    return judgment(
        case, next((mean for mean in means if isinstance(mean, NoVerdict)), means), chat, replies,  # type: ignore[arg-type]
        orders=[(index // samples,) for index in range(len(replies))],
        reasoning=[rating.reasoning for _, rating in ratings],
        criteria=[Criterion(i // samples, f"sample {i % samples + 1}", rating.value) for i, rating in ratings],
    )  # fmt: skip


def _scales(levels: Levels | LevelsSource | None, cases: Sequence[Case]) -> Sequence[Levels | None]:
    if levels is None or isinstance(levels, Levels):
        return [levels] * len(cases)
    return levels(cases)


def _mean(read: Sequence[Points | NoVerdict]) -> float | NoVerdict:
    """Return the mean of the ratings, or an abstention unless more than half of the replies have one."""
    values = [item.value for item in read if isinstance(item, Points)]
    if 2 * len(values) > len(read):
        return fmean(values)
    return next((item for item in read if isinstance(item, NoVerdict)), NoVerdict(Reason.NO_VERDICT))
