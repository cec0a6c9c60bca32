"""Probes of an audit: a pair from each case, and the same pairs after each attack."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from ...rm.errors import DataError, UsageError, did_you_mean
from ..types import BatchJudge, Case
from .attacks import Attack, mask_prompt, repeat_response, signatures, swap_responses

AS_GIVEN = "as given"
SWAPPED = "in the other order"
MASKED = "without the question"
TWINS = "one answer twice"
TIES = "labelled ties"
SIGNED = ("signed with its own name", "signed with another name")


class Names(NamedTuple):
    """Names of authors for self-preference: the judge's model and another model."""

    own: str
    other: str


@dataclass(frozen=True)
class AuditPlan:
    """The pairs of an audit, and the cases of each probe in the order of the pairs."""

    pairs: tuple[Case, ...]
    """Cases with a right and a wrong response, in random order."""
    ties: tuple[Case, ...]
    """Cases with two equally good responses."""
    attacks: Mapping[str, Attack]
    names: Names | None
    probes: Mapping[str, tuple[Case, ...]]

    @property
    def right(self) -> list[int]:
        """Index of the right response in each pair."""
        return [pair.best[0] for pair in self.pairs]

    @property
    def wrong(self) -> list[int]:
        """Index of the wrong response in each pair."""
        return [1 - index for index in self.right]


def plan(cases: Sequence[Case], attacks: Mapping[str, Attack], names: Names | None = None, seed: int = 0) -> AuditPlan:
    """Return the cases of every probe. Seed and case id determine each case's pair and its order.

    Attacks change the wrong response; a susceptible judge then prefers it. Cases with a single response are left out.
    """
    if clash := {*attacks} & {AS_GIVEN, SWAPPED, MASKED, TWINS, TIES, *SIGNED}:
        raise DataError(f"an attack cannot be called '{min(clash)}', which is the name of a probe; give another name")
    case_pairs = [pair_of(case, seed) for case in cases if len(case.answers) > 1]
    pairs = tuple(pair for pair in case_pairs if len(pair.best) == 1)
    if not pairs:
        raise DataError(f"none of {len(cases)} cases has a right and a wrong answer; an audit needs pairs with a label")
    ties = tuple(pair for pair in case_pairs if len(pair.best) == 2)
    probes = {
        AS_GIVEN: pairs,
        SWAPPED: tuple(map(swap_responses, pairs)),
        MASKED: tuple(map(mask_prompt, pairs)),
        TWINS: tuple(repeat_response(pair, pair.best[0]) for pair in pairs),
    }
    if ties:
        probes[TIES] = ties
    if names is not None:
        for probe, order in zip(SIGNED, (names, names[::-1]), strict=True):
            probes[probe] = tuple(signatures(pair, 1 - pair.best[0], order) for pair in pairs)
    probes |= {name: tuple(attack.change(pair, 1 - pair.best[0]) for pair in pairs) for name, attack in attacks.items()}
    return AuditPlan(pairs, ties, attacks, names, probes)


def pair_of(case: Case, seed: int = 0) -> Case:
    """Return a right and a wrong response of a case in random order. If all responses are right, return two of them."""
    rng = Random(f"{seed} {case.id}")
    wrong = [index for index in range(len(case.answers)) if index not in case.best]
    two = [rng.choice(case.best), rng.choice(wrong)] if wrong else rng.sample(case.best, 2)
    rng.shuffle(two)
    first, second = two
    return replace(
        case,
        answers=(case.answers[first], case.answers[second]),
        best=tuple(index for index, of_case in enumerate(two) if of_case in case.best),
        values=(case.values[first], case.values[second]) if case.values else (),
        sets=(),
        preferences=(),
        authors=(case.authors[first], case.authors[second]) if case.authors else (),
    )


def single_note(cases: Sequence[Case]) -> list[str]:
    """Return a note on cases with a single response, which an audit leaves out. Empty if there are no such cases."""
    single = sum(len(case.answers) == 1 for case in cases)
    return [f"{single} of {len(cases)} cases have a single response and are left out of the audit."] if single else []


def names_of(
    texts: Sequence[str],
    judges: Sequence[BatchJudge],
    cases: Sequence[Case],
    *,
    other_author: str = "",
    short_names: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Names]:
    """Parse texts MODEL=AUTHOR or JUDGE=AUTHOR. Return for each judge its model's author name and another author.

    `short_names` are the short names of the models. The name of a judge begins with its model's name.
    """
    authors = Counter(author for case in cases for author in case.authors)
    names_by_judge: dict[str, Names] = {}
    for text in texts:
        key, sign, author = text.rpartition("=")
        if not (key and sign and author):
            raise UsageError(f"--names must be MODEL=AUTHOR or JUDGE=AUTHOR, got '{text}'")
        if authors and author not in authors:
            raise UsageError(f"--names {text}: none of the answers is by '{author}'; {did_you_mean(author, authors)}")
        model = f"{short_names.get(key, key)} "
        matches = [judge.name for judge in judges if judge.name == key or judge.name.startswith(model)]
        if not matches:
            raise UsageError(f"--names {text}: no judge '{key}'; {did_you_mean(key, [judge.name for judge in judges])}")
        names = Names(author, other_author or _other_author(text, author, authors))
        names_by_judge |= dict.fromkeys(matches, names)
    return names_by_judge


def _other_author(text: str, author: str, authors: Counter[str]) -> str:
    """Return the most frequent author other than `author`."""
    others = [other for other, _ in authors.most_common() if other != author]
    if not others:
        raise UsageError(
            f"--names {text}: the cases name no author besides '{author}' to compare with; name one with "
            "--other_author, or add a column `authors` to the cases"
        )
    return others[0]
