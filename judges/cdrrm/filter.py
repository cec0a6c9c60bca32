"""Filter of rubrics: an independent judge must recover the label under the rubric in both orders.

Liu et al. 2026, arXiv:2603.08035, keep a rubric if judging under it gives the label. Their released code uses the
rubric's writer as judge. Here the judge's requests contain responses and rubric, never the label.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...rm.types import prompt_text
from ..backends.chat import Chat
from ..rubrics.rubric import MOST_RULES, Rubric, Rule
from .profile import Profile
from .requests import Rejected
from .ruling import Checked, RulingRequest, check, rule
from .synthesise import Sides, Synthesis

WORD = re.compile(r"\w{4,}")


@dataclass(frozen=True)
class FilterLimits:
    """Thresholds of the filter."""

    most_rules: int = MOST_RULES
    overlap: float = 0.5
    """Maximum share of a rule's words that occur in only one response. Rules above it describe only that response."""
    alike: float = 0.8
    """Maximum share of common words of two rules. Above it, the second rule is dropped as a near-duplicate."""


class FilteredRubric(NamedTuple):
    """A pair, with the rubric under which the judge recovers the pair's label in both orders."""

    sides: Sides
    rubric: Rubric
    useful: bool
    """Whether the judge gets the pair wrong without a rubric, so that this rubric helps."""
    diagnoses: tuple[Profile, Profile] | None = None
    """Diagnoses of responses A and B from which the rubric was written."""


def words(text: str) -> frozenset[str]:
    """Return the words of at least four letters, in lower case."""
    return frozenset(WORD.findall(text.lower()))


def answer_specific(rule: Rule, sides: Sides) -> float:
    """Return the larger of |w ∩ (A \\ B \\ x)| / |w| and |w ∩ (B \\ A \\ x)| / |w|, in [0, 1].

    w, A, B and x are the sets of words of the rule's criterion, of the two responses and of the prompt.
    """
    rule_words, prompt_words = words(rule.criterion), words(prompt_text(sides.prompt))
    a, b = words(sides.a), words(sides.b)
    alone = max(len(rule_words & (a - b - prompt_words)), len(rule_words & (b - a - prompt_words)))
    return alone / max(1, len(rule_words))


def without_duplicates(rubric: Rubric, alike: float) -> Rubric:
    """Remove near-duplicate rules.

    A rule is removed if an earlier rule of its type shares more than `alike` of their words: |u ∩ v| / |u ∪ v| for word
    sets u and v.
    """
    distinct: list[Rule] = []
    for candidate in rubric.rules:
        rule_words = words(candidate.criterion)
        near_duplicates = (
            len(rule_words & words(other.criterion)) > alike * len(rule_words | words(other.criterion))
            for other in distinct
            if other.type == candidate.type
        )
        if not any(near_duplicates):
            distinct.append(candidate)
    return replace(rubric, rules=tuple(distinct))


def keep_discriminative(rubric: Rubric, preferred: Sequence[bool], other: Sequence[bool]) -> Rubric | Rejected:
    """Keep the rules that the preferred response meets and the other response does not, and renumber the rules.

    These are the rules whose removal lowers the margin Σ_r w_r (met by the preferred - met by the other), with weights
    w_r > 0. `preferred` and `other` state which rules each response meets.
    """
    rules = [rule for rule, ours, theirs in zip(rubric.rules, preferred, other, strict=True) if ours and not theirs]
    if not rules:
        return Rejected("not discriminative")
    return replace(rubric, rules=tuple(replace(rule, id=f"r{index}") for index, rule in enumerate(rules, start=1)))


def objection(rubric: Rubric, sides: Sides, limits: FilterLimits) -> Rejected | None:
    """Return the first objection to a rubric from the checks that need no model. None without an objection."""
    if len(rubric.rules) > limits.most_rules:
        return Rejected("too many rules", f"{len(rubric.rules)} > {limits.most_rules}")
    for hard_rule in rubric.rules:
        share = answer_specific(hard_rule, sides)
        if share > limits.overlap:
            return Rejected("answer-specific", f"{share:.2f} of '{hard_rule.criterion}' occurs in one response alone")
    return None


def verify(
    judge: Chat, pairs: Sequence[Sides], syntheses: Sequence[Synthesis], limits: FilterLimits | None = None
) -> list[FilteredRubric | Rejected]:
    """Filter the rubrics. Return each pair's remaining rubric, or the reason why the pair has no rubric.

    Steps: remove duplicates; apply the checks without a model; check every rule on each response and remove the rules
    that do not favour the preferred response; let the judge decide under the remaining rules in both orders.
    """
    limits = limits or FilterLimits()
    outcomes: list[Rubric | FilteredRubric | Rejected] = []
    for rubric, each in zip(pairs, syntheses, strict=True):
        plain = each.rubric if isinstance(each.rubric, Rejected) else without_duplicates(each.rubric, limits.alike)
        outcomes.append(plain if isinstance(plain, Rejected) else objection(plain, rubric, limits) or plain)
    checked = _only_recovering(judge, pairs, _only_discriminative(judge, pairs, outcomes))
    return [
        outcome if isinstance(outcome, Rejected) else outcome._replace(diagnoses=each.diagnoses)
        for outcome, each in zip(checked, syntheses, strict=True)
    ]


def _only_discriminative(judge: Chat, pairs: Sequence[Sides], rubrics: Sequence) -> list:
    """Return the rubrics, reduced to the rules that the preferred response meets and the other does not."""
    candidates = {index: rubric for index, rubric in enumerate(rubrics) if isinstance(rubric, Rubric)}
    checks = [
        Checked(pairs[i].prompt, answer, rubric) for i, rubric in candidates.items() for answer in pairs[i].answers
    ]
    results, outcomes = iter(check(judge, checks)), list(rubrics)
    for index, rubric in candidates.items():
        met = [next(results), next(results)]
        failed = next((result for result in met if isinstance(result, Rejected)), None)
        if failed:
            outcomes[index] = Rejected("unchecked", f"{failed.reason}: {failed.detail}")
        else:
            outcomes[index] = keep_discriminative(rubric, *(met if pairs[index].preferred == "A" else met[::-1]))
    return outcomes


def _only_recovering(judge: Chat, pairs: Sequence[Sides], rubrics: Sequence) -> list[FilteredRubric | Rejected]:
    """Return the rubrics under which the judge prefers the labelled response in both orders."""
    candidates = {index: rubric for index, rubric in enumerate(rubrics) if isinstance(rubric, Rubric)}
    requests = [
        RulingRequest(pairs[index].prompt, pairs[index].answers, rubric) for index, rubric in candidates.items()
    ]
    with_rubric = rule(judge, requests)
    bare = rule(judge, [request._replace(rubric=None) for request in requests])
    outcomes = list(rubrics)
    for index, ruling, without in zip(candidates, with_rubric, bare, strict=True):
        label = "AB".index(pairs[index].preferred)
        if ruling.winner == label:
            outcomes[index] = FilteredRubric(pairs[index], candidates[index], useful=without.winner != label)
        else:
            outcomes[index] = Rejected("label not recovered", f"verdicts {ruling.first} and {ruling.second}")
    return outcomes
