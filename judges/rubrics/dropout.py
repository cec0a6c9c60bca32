"""Rubric dropout: leave out random criteria in each step, so that a policy cannot exploit single criteria."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from ...rm.errors import UsageError
from ...rm.types import content_hash, prompt_text
from ..judge import RubricSource, describe_setting, rubrics_for
from ..types import Case
from .rubric import Rubric


def with_dropout(rubric: Rubric | RubricSource, share: float, *, least: int = 3, seed: int = 0) -> RubricSource:
    """Return a source of rubrics without `share` of their rewarded criteria              2026, arXiv:2608.11669

    Of n rewarded criteria (rules `must`, principles of positive weight) floor(f n) are left out, f = `share`, but
    `least` are kept. All responses to a prompt in a call have the same criteria; they depend on the seed, the prompt
    and the responses, and so change from step to step. This is ours: in the paper, draws depend on row and step.
    """
    if not 0 < share < 1 or least < 1:
        raise UsageError(f"dropout must lie in (0, 1) and must keep 1 criterion or more, got {share} and {least}")

    def source(cases: Sequence[Case]) -> list[Rubric | None]:
        responses: dict[str, list[str]] = {}
        for case in cases:
            responses.setdefault(prompt_text(case.prompt), []).extend(map(str, case.texts))
        seeds = {prompt: content_hash([seed, prompt, sorted(texts)]) for prompt, texts in responses.items()}
        rubrics = zip(cases, rubrics_for(rubric, cases), strict=True)
        return [full and reduced(full, share, least, Random(seeds[prompt_text(case.prompt)])) for case, full in rubrics]

    source.__qualname__ = f"dropout {share} of {content_hash(describe_setting(rubric))}"
    return source


def reduced(rubric: Rubric, share: float, least: int, draw: Random) -> Rubric:
    """Return the rubric without min(floor(f n), n - least) of its n rewarded criteria."""
    rewarded = [rule.id for rule in rubric.rules if rule.type == "must"]
    rewarded += [principle.id for principle in rubric.principles if principle.weight > 0]
    number = int(share * len(rewarded) + 1e-9)  # 0.58 · 50 is below 29 in floating point
    dropped = {*draw.sample(rewarded, max(0, min(number, len(rewarded) - least)))}
    return replace(
        rubric,
        rules=tuple(rule for rule in rubric.rules if rule.id not in dropped),
        principles=tuple(principle for principle in rubric.principles if principle.id not in dropped),
    )
