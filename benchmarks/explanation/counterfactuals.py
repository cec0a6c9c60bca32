"""Effects of format, order, length, words and sentences on a margin, from rewards of changed responses."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ...rm.types import Example, Messages, RewardModel
from .edits import Parts, Place, padded, parts_of, plain, repeated, shortened
from .types import Attribution, Cause, Pieces, bundle, word_key

ORDERS = 6
"""Number of orders of the sentences over which rewards are averaged."""
MOST_PARTS, MOST_CHARACTERS = 60, 2_000_000
"""Number of words or sentences of a response that are left out, and of characters that a model is given for it."""
Rate = Callable[[Sequence[str]], np.ndarray]
"""Function from N responses to the prompt to their rewards [N, K]."""
METHOD = (
    "Format, order and length: by how much the margin shrinks if both responses lose their Markdown, if their "
    "sentences are reordered, and if they are equally long (the median of shortening, repeating and padding). A word "
    "or sentence: by how much the margin shrinks without it, apart from its length."
)


def attribute_counterfactuals(
    model: RewardModel, pair: tuple[Example, Example], labels: tuple[str, str], margin: np.ndarray
) -> Attribution:
    """Attribute a margin by a chain of changes to both responses; the rest of the margin is not explained.

        format = Δ - Δ_plain,   order = Δ_plain - Δ',   length = Δ' - median_w Δ'(w)

    Δ' is the margin averaged over rotations of the sentences, and Δ'(w) the same for responses of equal length, by
    three ways w: the longer one is shortened, or the shorter one is repeated or padded with empty words. Then follow
    the effects of words or sentences (`part_effects`), measured without Markdown too.
    """
    rate = partial(_rate, model, pair[0].prompt)
    parts = [parts_of(example.text) for example in pair]
    chain, variants = _chain(rate, pair, parts, margin)
    effects = [part_effects(rate, part, label) for part, label in zip(parts, labels, strict=True)]
    own = [Cause(name, sign * value) for sign, part in zip((1, -1), effects, strict=True) for name, value in part.named]
    chain += [_length_cause(rate, variants), *bundle(own, "words and sentences")]
    first, second = (part.pieces for part in effects)
    return Attribution(tuple(chain), (first, second._replace(values=-second.values)), METHOD)


def _rate(model: RewardModel, prompt: Messages, texts: Sequence[str]) -> np.ndarray:
    distinct = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    return model.rate([Example(prompt, text) for text in distinct])[[distinct[text] for text in texts]]


def _gap(rate: Rate, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """Return the difference of the mean rewards [K] of two lists of responses."""
    rewards = rate([*first, *second])
    return rewards[: len(first)].mean(0) - rewards[len(first) :].mean(0)


def _chain(
    rate: Rate, pair: tuple[Example, Example], parts: Sequence[Parts], margin: np.ndarray
) -> tuple[list[Cause], list[list[str]]]:
    """Return the effects of format and order, and both responses in several orders without Markdown."""
    causes, texts = [], [example.text for example in pair]
    if any(not isinstance(example.completion, str) for example in pair):
        before, margin = margin, _gap(rate, texts[:1], texts[1:])
        causes.append(Cause("what is no plain text, such as calls of tools", before - margin))
    unmarked = [plain(text) for text in texts]
    if unmarked != texts:
        before, margin = margin, _gap(rate, unmarked[:1], unmarked[1:])
        causes.append(Cause("Markdown formatting", before - margin))
    variants = [[part.text(order) for order in part.orders(ORDERS)] for part in parts]
    if any(len(orders) > 1 for orders in variants):
        causes.append(Cause("the order of the sentences", margin - _gap(rate, *variants)))
    return causes, variants


def _length_cause(rate: Rate, variants: Sequence[list[str]]) -> Cause:
    lengths = [max(map(len, texts)) for texts in variants]
    margin, target = _gap(rate, *variants), (min(lengths), max(lengths))
    ways = [(shortened, target[0]), (repeated, target[1]), (padded, target[1])]
    effects = [margin - _gap(rate, *([way(text, size) for text in texts] for texts in variants)) for way, size in ways]
    return Cause("length", np.median(effects, axis=0), f"{lengths[0]:,} against {lengths[1]:,} characters")


# ---- words and sentences ----


class Part(NamedTuple):
    """A sentence of a response, or all occurrences of a word in it or in one of its sentences."""

    name: str
    places: Sequence[Place]


class PartEffects(NamedTuple):
    """Effects of the parts of a response on its own reward: names with values [K], and the response in pieces."""

    named: list[tuple[str, np.ndarray]]
    pieces: Pieces


def part_effects(rate: Rate, text: Parts, label: str) -> PartEffects:
    """Return r(y) - r(y without s) - λ |s| for the words or sentences s of a response y, |s| in characters.

    λ is the reward per character that removing parts, repeating the response and padding it have in common (the
    median), so that the effect of length is not in all parts again. Rewards are means over as many orders of the
    sentences as 60 variants allow. Of a response with at most 60 different words, each word is removed everywhere; of
    another one whole sentences, and then each word of the sentence with the largest effect.
    """
    removed = _words(text, range(len(text.sentences)))
    if by_sentence := len(removed) > MOST_PARTS and len(text.sentences) > 1:
        removed = [Part(_sentence(text, index, label), text.places(index)) for index in range(len(text.sentences))]
    size = len(text.text())
    removed = removed[: min(MOST_PARTS, max(1, MOST_CHARACTERS // max(1, size)))] if len(removed) > 1 else []
    orders = text.orders(max(1, MOST_PARTS // max(1, len(removed))))
    whole = [text.text(order) for order in orders]

    def effects(parts: Sequence[Part]) -> np.ndarray:
        """Return r(y) - r(y without s) [parts, K]."""
        reduced = [text.text(order, {*part.places}) for part in parts for order in orders]
        rewards = rate([*whole, *reduced])
        return rewards[: len(whole)].mean(0) - rewards[len(whole) :].reshape(len(parts), len(orders), -1).mean(1)

    if not removed:
        return PartEffects([], _pieces(text, [], np.empty((0, rate(whole).shape[1]))))
    values = effects(removed)
    slope = np.median([np.median(values / _sizes(text, removed), axis=0), *_slopes(rate, whole)], axis=0)
    values = values - slope * _sizes(text, removed)
    strongest = int(np.abs(values).max(1).argmax())
    inner = _words(text, [removed[strongest].places[0][0]])[:MOST_PARTS] if by_sentence else []
    if len(inner) > 1:
        finer = effects(inner) - slope * _sizes(text, inner)
        removed = [*removed[:strongest], *inner, *removed[strongest + 1 :]]
        values = np.concatenate([values[:strongest], finer, values[strongest + 1 :]])
    named = [(part.name, value) for part, value in zip(removed, values, strict=True)]
    return PartEffects(named, _pieces(text, removed, values))


def _words(text: Parts, sentences: Iterable[int]) -> list[Part]:
    """Return the distinct words of some sentences, with all of their places there."""
    places: dict[str, list[Place]] = {}
    for index in sentences:
        for place, word in enumerate(text.sentences[index]):
            places.setdefault(word_key(word), []).append((index, place))
    return [Part(f"the word '{word}'", where) for word, where in places.items()]


def _sentence(text: Parts, index: int, label: str) -> str:
    beginning = shortened("".join(text.sentences[index]).strip(), 40)
    return f"sentence {index + 1} of {label} ('{beginning}')"


def _sizes(text: Parts, parts: Sequence[Part]) -> np.ndarray:
    """Return the number of characters [parts, 1] of each part."""
    return np.array([[sum(len(text.sentences[i][j]) for i, j in part.places)] for part in parts], float)


def _slopes(rate: Rate, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the reward per character [K] of repeating, and of padding, responses to one and a half of their length."""
    return [
        _gap(rate, longer, texts) / max(1.0, np.mean([len(a) - len(b) for a, b in zip(longer, texts, strict=True)]))
        for way in (repeated, padded)
        if (longer := [way(text, len(text) * 3 // 2) for text in texts])
    ]


def _pieces(text: Parts, parts: Sequence[Part], values: np.ndarray) -> Pieces:
    """Return the response in pieces; a part's value is divided equally among its words."""
    part_of = {place: index for index, part in enumerate(parts) for place in part.places}
    places = [place for index in range(len(text.sentences)) for place in text.places(index)]
    pieces, columns = [], []
    for index, run in groupby(places, part_of.get):
        run = list(run)
        pieces.append("".join(text.sentences[i][j] for i, j in run))
        share = np.full(values.shape[1], np.nan) if index is None else values[index] / len(parts[index].places)
        columns.append(share * len(run))
    missing = sum(place not in part_of for place in places)
    note = f"{missing:,} words at the end were not removed." if missing and parts else ""
    return Pieces(tuple(pieces), np.array(columns).reshape(len(columns), values.shape[1]).T, note)
