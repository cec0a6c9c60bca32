"""Effects of format, order, length, words and sentences on a margin, from rewards of changed responses."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ...rm.types import Example, Messages, RewardModel
from .edits import Parts, Position, padded, parts_of, plain, repeated, shortened
from .types import Attribution, Cause, Pieces, bundle, word_key

ORDERS = 6
"""Number of orders of the sentences over which rewards are averaged."""
MOST_PARTS, MOST_CHARACTERS = 60, 2_000_000
"""Maximum number of parts (words or sentences) removed from a response, and of characters scored for the removals."""
Rate = Callable[[Sequence[str]], np.ndarray]
"""Function that returns the rewards [N, K] of N responses to one prompt."""
METHOD = (
    "Format, order and length: by how much the margin shrinks if both responses lose their Markdown, if their "
    "sentences are reordered, and if they are equally long (the median of shortening, repeating and padding). Amount "
    "of content: what shortening costs beyond length and the removed words. A word or sentence: by how much the margin "
    "shrinks without it, compared with others of the same length in the response."
)


def attribute_counterfactuals(
    model: RewardModel, pair: tuple[Example, Example], labels: tuple[str, str], margin: np.ndarray
) -> Attribution:
    """Attribute a margin by a chain of changes to both responses; the rest of the margin is not explained.

        format = Δ - Δ_plain,   order = Δ_plain - Δ',   length = Δ' - median_w Δ'(w)

    Δ is the margin, Δ_plain the margin without Markdown, Δ' the mean of Δ_plain over rotations of the sentences, and
    Δ'(w) the same for responses made equally long in three ways w: the longer one is shortened, or the shorter one is
    repeated or padded with filler words. Words or sentences have the effects of `part_effects`, without Markdown. What
    shortening costs beyond length, and beyond the effects of the words removed, is the amount of content.
    """
    rate = partial(_rate, model, pair[0].prompt)
    texts = [parts_of(example.text) for example in pair]
    chain, variants = _chain(rate, pair, texts, margin)
    effects = [part_effects(rate, text, label) for text, label in zip(texts, labels, strict=True)]
    chain += _length_causes(rate, texts, variants, effects)
    causes = [
        Cause(part.name, sign * value)
        for sign, effect in zip((1, -1), effects, strict=True)
        for part, value in zip(effect.parts, effect.values, strict=True)
    ]
    pieces = [_pieces(text, *effect) for text, effect in zip(texts, effects, strict=True)]
    second = pieces[1]._replace(values=-pieces[1].values)
    return Attribution((*chain, *bundle(causes, "words and sentences")), (pieces[0], second), METHOD)


def _rate(model: RewardModel, prompt: Messages, texts: Sequence[str]) -> np.ndarray:
    """Return the rewards [N, K] of texts, rating equal texts once."""
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
        causes.append(Cause("parts other than plain text, such as tool calls", before - margin))
    unmarked = [plain(text) for text in texts]
    if unmarked != texts:
        before, margin = margin, _gap(rate, unmarked[:1], unmarked[1:])
        causes.append(Cause("Markdown formatting", before - margin))
    variants = [[part.text(order) for order in part.orders(ORDERS)] for part in parts]
    if any(len(orders) > 1 for orders in variants):
        causes.append(Cause("the order of the sentences", margin - _gap(rate, *variants)))
    return causes, variants


def _length_causes(
    rate: Rate, texts: Sequence[Parts], variants: Sequence[list[str]], effects: Sequence["PartEffects"]
) -> list[Cause]:
    """Return the effects of length and of the amount of content."""
    sizes = [max(map(len, responses)) for responses in variants]
    longer = int(sizes[1] > sizes[0])
    text, effect, shorter, margin = texts[longer], effects[longer], variants[1 - longer], _gap(rate, *variants)
    cuts = [(order, text.beyond(order, min(sizes))) for order in text.orders(ORDERS)]
    equal = [([text.text(order, cut) for order, cut in cuts], shorter)]
    equal += [(variants[longer], [way(response, max(sizes)) for response in shorter]) for way in (repeated, padded)]
    changes = [margin - _gap(rate, *(pair[::-1] if longer else pair)) for pair in equal]
    length = np.median(changes, axis=0)
    lost = [np.mean([len(cut & {*part.positions}) / len(part.positions) for _, cut in cuts]) for part in effect.parts]
    amount = changes[0] - length - (-1 if longer else 1) * np.array(lost) @ effect.values
    detail = f"{sizes[0]:,} against {sizes[1]:,} characters"
    return [Cause("length", length, detail), Cause("the amount of content", amount, detail)]


class Part(NamedTuple):
    """A sentence of a response, or all occurrences of a word in the response or in one sentence."""

    name: str
    positions: Sequence[Position]


class PartEffects(NamedTuple):
    """Parts of a response, and their effects [parts, K] on the reward of this response."""

    parts: Sequence[Part]
    values: np.ndarray


def part_effects(rate: Rate, text: Parts, label: str) -> PartEffects:
    """Return r(y) - r(y without s) - λ |s| for the words or sentences s of a response y, |s| in characters.

    λ is the median of (r(y) - r(y without s)) / |s|, the effect per removed character of any text, which is
    attributed to length or to the amount of content instead. Rewards are means over as many orders of the sentences as
    60 variants allow. If a response has at most 60 different words, each word is removed everywhere; else, whole
    sentences are removed, and then each word of the sentence with the largest effect.
    """
    parts = _words(text, range(len(text.sentences)))
    if by_sentence := len(parts) > MOST_PARTS and len(text.sentences) > 1:
        parts = [Part(_sentence(text, index, label), text.positions(index)) for index in range(len(text.sentences))]
    size = len(text.text())
    parts = parts[: min(MOST_PARTS, max(1, MOST_CHARACTERS // max(1, size)))] if len(parts) > 1 else []
    orders = text.orders(max(1, MOST_PARTS // max(1, len(parts))))
    complete = rate([text.text(order) for order in orders])
    if not parts:
        return PartEffects([], np.empty((0, complete.shape[1])))

    def effects(parts: Sequence[Part]) -> np.ndarray:
        """Return r(y) - r(y without s) [parts, K]."""
        reduced = rate([text.text(order, {*part.positions}) for part in parts for order in orders])
        return complete.mean(0) - reduced.reshape(len(parts), len(orders), -1).mean(1)

    values = effects(parts)
    slope = np.median(values / _sizes(text, parts), axis=0)
    values = values - slope * _sizes(text, parts)
    strongest = int(np.abs(values).max(1).argmax())
    inner = _words(text, [parts[strongest].positions[0][0]])[:MOST_PARTS] if by_sentence else []
    if len(inner) > 1:
        finer = effects(inner) - slope * _sizes(text, inner)
        parts = [*parts[:strongest], *inner, *parts[strongest + 1 :]]
        values = np.concatenate([values[:strongest], finer, values[strongest + 1 :]])
    return PartEffects(parts, values)


def _words(text: Parts, sentences: Iterable[int]) -> list[Part]:
    """Return the distinct words of some sentences, with all of their positions in these sentences."""
    positions: dict[str, list[Position]] = {}
    for i in sentences:
        for j, word in enumerate(text.sentences[i]):
            positions.setdefault(word_key(word), []).append((i, j))
    return [Part(f"the word '{word}'", where) for word, where in positions.items()]


def _sentence(text: Parts, index: int, label: str) -> str:
    """Return the name of a sentence: its number, the response and its first words."""
    beginning = shortened("".join(text.sentences[index]).strip(), 40)
    return f"sentence {index + 1} of {label} ('{beginning}')"


def _sizes(text: Parts, parts: Sequence[Part]) -> np.ndarray:
    """Return the number of characters [parts, 1] of each part."""
    return np.array([[sum(len(text.sentences[i][j]) for i, j in part.positions)] for part in parts], float)


def _pieces(text: Parts, parts: Sequence[Part], values: np.ndarray) -> Pieces:
    """Return the response in words; each has an equal share of the value of its part."""
    part_of = {position: index for index, part in enumerate(parts) for position in part.positions}
    positions = [position for index in range(len(text.sentences)) for position in text.positions(index)]
    pieces, columns = [], []
    for index, run in groupby(positions, part_of.get):
        run = list(run)
        pieces.append("".join(text.sentences[i][j] for i, j in run))
        share = np.full(values.shape[1], np.nan) if index is None else values[index] / len(parts[index].positions)
        columns.append(share * len(run))
    missing = sum(position not in part_of for position in positions)
    note = f"{missing:,} words at the end were not tested." if missing and parts else ""
    return Pieces(tuple(pieces), np.array(columns).reshape(len(columns), values.shape[1]).T, note)
