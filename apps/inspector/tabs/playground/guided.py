"""Completions of guided decoding: log-probabilities of base model and guides, and each guide's effect on tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...figures import PALETTE
from ...html import box_html, number, text_html
from ...texts.tokens import Shade, heat_html, legend_html, scale_of, shades, swatches_html

WHO, ALL = "who pushed most", "the guide's push"
ENDS = {"length": "cut at the longest length", "context": "cut where the context is full"}


@dataclass(frozen=True, eq=False)
class ShownCompletion:
    """A completion of T tokens with log-probabilities [T] in nats under base model, guides and their mixture."""

    title: str
    text: str
    finished: str
    pieces: tuple[str, ...]
    base: np.ndarray
    mixed: np.ndarray
    kl: np.ndarray
    entropy: np.ndarray
    guides: Mapping[str, np.ndarray]
    """Guide -> log-probabilities [T]. NaN at tokens where the guide was not evaluated."""
    weights: Mapping[str, float]
    """Guide i -> w α_i: guidance weight w times preference α_i. Empty if unknown."""

    @property
    def push(self) -> np.ndarray:
        """Effect of all guides: log π̃ - log π_base [T] in nats. Above 0 the mixture π̃ makes the token more likely."""
        return self.mixed - self.base

    @property
    def by_guide(self) -> dict[str, np.ndarray]:
        """Guide i -> its part p_i [T] of `push`. Empty for a single guide, or if weights are unknown.

        p_i = w_i (log π_i(y_t) - c_t),  c_t = (log π_base + Σ_i w_i log π_i - log π̃) / Σ_i w_i,  w_i = w α_i

        All log-probabilities are of the token y_t: π_base is the base model, π_i a guide, π̃ the mixture. The numerator
        of c_t is log Z, the normaliser of the mixture, shared by weight, so that Σ_i p_i = `push`.
        """
        read = {name: self.weights[name] for name in self.guides if self.weights.get(name)}
        total = sum(read.values())
        if len(self.guides) < 2 or not total:
            return {}
        guide_sum = sum(weight * self.guides[name] for name, weight in read.items())
        level = (self.base + guide_sum - self.mixed) / total
        return {name: weight * (self.guides[name] - level) for name, weight in read.items()}


def shown_completion(title: str, answer: Any, tokenizer: Any, weights: Mapping[str, float]) -> ShownCompletion:
    """Convert a completion of `policy.decoding.guided` for display."""
    from .....policy.decoding.guided import token_texts

    curves = answer.base, answer.mixed, answer.kl, answer.entropy, answer.guides
    texts = tuple(token_texts(tokenizer, answer.tokens))
    return ShownCompletion(title, answer.text, answer.finished, texts, *curves, weights)


# ---- what is shown ----


def colours_of(answers: Sequence[ShownCompletion]) -> list[str]:
    """Return the names of the values by which tokens can be coloured."""
    parts = _guides_with_parts(answers)
    return [*([WHO] if parts else []), ALL, *parts, "KL", "entropy"]


def _guides_with_parts(answers: Sequence[ShownCompletion]) -> list[str]:
    """Return the guides in `by_guide` of any completion, in the engine's order, so that each keeps its colour."""
    guide_names = {name for answer in answers for name in answer.by_guide}
    return [name for name in dict.fromkeys(name for answer in answers for name in answer.guides) if name in guide_names]


def answers_html(answers: Sequence[ShownCompletion], colour: str = ALL) -> str:
    """Return completions side by side, coloured on a common scale."""
    if colour == WHO:
        boxes, legend = _main_guide_colours(answers)
    else:
        values = [_values(answer, colour) for answer in answers]
        scale = scale_of(values)
        boxes = [_box(answer, shades(row, scale)) for answer, row in zip(answers, values, strict=True)]
        legend = legend_html(scale, unit="nats", low=f"{colour}:", high="")
    return f'<div class="rl">{legend}<div class="answers">{"".join(boxes)}</div></div>'


def _values(answer: ShownCompletion, colour: str) -> np.ndarray:
    """Return the values by which the tokens of a completion are coloured."""
    named = {ALL: answer.push, "KL": answer.kl, "entropy": answer.entropy, **answer.by_guide}
    return named.get(colour, np.full(len(answer.base), np.nan))


def _main_guide_colours(answers: Sequence[ShownCompletion]) -> tuple[list[str], str]:
    """Colour every token by the guide with the largest part of the push, the more strongly the larger this part is."""
    names = _guides_with_parts(answers)
    parts = [_stack_parts(answer, names) for answer in answers]
    scale = scale_of([np.nanmax(part, axis=0, initial=0.0) for part in parts])
    boxes = []
    for guided_answer, part in zip(answers, parts, strict=True):
        best = part.argmax(0) if len(names) else np.zeros(len(guided_answer.base), int)
        strength = np.clip(np.take_along_axis(part, best[None], 0)[0] / scale.limit, 0, 1)
        colours = [Shade(PALETTE[k % len(PALETTE)], float(s)) for k, s in zip(best, strength, strict=True)]
        boxes.append(_box(guided_answer, colours))
    limit = f"full colour from {number(scale.limit)} nats on"
    return boxes, f'<div class="legend">{swatches_html(names)}<span class="faint">{limit}</span></div>'


def _stack_parts(answer: ShownCompletion, names: Sequence[str]) -> np.ndarray:
    """Return the parts of the push [G, T] for G guides and T tokens. 0 for a guide that was not evaluated."""
    return np.stack([answer.by_guide.get(name, np.zeros(len(answer.base))) for name in names])


def _box(answer: ShownCompletion, colours: Sequence[Shade]) -> str:
    note = ENDS.get(answer.finished, "")
    size = f"{len(answer.pieces):,} tokens, KL {number(float(answer.kl.sum()))} nats"
    head = f'<span>{text_html(answer.title)}</span><span class="faint end">{size}</span>'
    return box_html(head, f'{heat_html(answer.pieces, colours, _titles(answer))}<div class="faint">{note}</div>')


def _titles(answer: ShownCompletion) -> list[str]:
    """Return a tooltip for each token with its values in nats."""
    parts = answer.by_guide
    rows = []
    for index, push in enumerate(answer.push):
        title_lines = [f"push {push:+.3f}", *(f"{name} {part[index]:+.3f}" for name, part in parts.items())]
        title_lines += [f"log p: base {answer.base[index]:.3f}, mixed {answer.mixed[index]:.3f}"]
        title_lines += [f"{name} {row[index]:.3f}" for name, row in answer.guides.items() if np.isfinite(row[index])]
        rows.append(", ".join([*title_lines, f"KL {answer.kl[index]:.3f}", f"entropy {answer.entropy[index]:.3f}"]))
    return rows


def streaming_html(titles: Sequence[str], texts: Sequence[str]) -> str:
    """Return completions that are still being decoded."""
    boxes = "".join(
        box_html(text_html(title), f'<div class="text">{text_html(text)}<span class="faint"> …</span></div>')
        for title, text in zip(titles, texts, strict=True)
    )
    return f'<div class="rl"><div class="answers">{boxes}</div></div>'
