"""Exact attributions of rewards that are sums: of weighted words and length, of tokens, or of a mean over tokens."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...rm.types import Example, Guide, MeansTokens, SumsTokens, SumsWords, WordTerms
from .types import Attribution, Cause, Pieces, bundle, word_causes

SIGNS = (1, -1)
Pair = tuple[Example, Example]


def attribute_words(model: SumsWords, pair: Pair) -> Attribution:
    """Attribute r(x, y) = Σ_i t_i(y) + t_length(y): a cause's contribution is t_i(first) - t_i(second).

    t_i is the term of word or word pair i. In the pieces, each word of a pair gets half of the term.
    """
    terms = [model.terms(example) for example in pair]
    lengths = np.array([term.length for term in terms])
    detail = " against ".join(f"{len(example.text):,}" for example in pair)
    grams = [
        Cause(f"the words '{gram}'" if " " in gram else f"the word '{gram}'", np.array([sign * value]))
        for sign, term in zip(SIGNS, terms, strict=True)
        for gram, value in term.words.items()
    ]
    first, second = map(_spread, pair, terms)
    causes = Cause("length", lengths[:1] - lengths[1:], f"{detail} characters"), *bundle(grams, "words")
    pieces = first, second._replace(values=-second.values)
    return Attribution(causes, pieces, "The reward is a sum over words and length.")


def _spread(example: Example, terms: WordTerms) -> Pieces:
    """Return a text in words, with the terms of words and word pairs divided among their occurrences."""
    text = example.text
    grams = [(text[start:end].lower(), (index,)) for index, (start, end) in enumerate(terms.spans)]
    grams += [(f"{a} {b}", (*i, *j)) for (a, i), (b, j) in pairwise(grams)]
    counts = Counter(gram for gram, _ in grams)
    values = np.zeros((1, 1 + len(terms.spans)))
    for gram, indices in grams:
        values[0, np.add(indices, 1)] += terms.words.get(gram, 0.0) / counts[gram] / len(indices)
    cuts = [0, *(start for start, _ in terms.spans), len(text)]
    return Pieces(tuple(text[a:b] for a, b in pairwise(cuts)), values)


def attribute_sum(model: SumsTokens, pair: Pair) -> Attribution:
    """Attribute r = Σ_t r_t, r_t = β log π_r(y_t | x, y_<t) or the log-ratio of an implicit reward times β.

        margin = (T_1 - T_2) m + Σ_t (r_1t - m) - Σ_t (r_2t - m),   m = (mean_t r_1t + mean_t r_2t) / 2

    T is the number of tokens. The first term is the contribution of length.
    """
    read = [reading.logprobs(pair) for reading in _models_by_reward(model)]
    beta = model.contract.beta  # pyright: ignore[reportAttributeAccessIssue]  # of a contract of log-probabilities
    rewards = [beta * np.stack([of_objective[index] for of_objective in read]) for index in range(2)]
    centre = sum(values.sum(1) / max(1, values.shape[1]) for values in rewards) / 2
    counts = [values.shape[1] for values in rewards]
    length = Cause("length", (counts[0] - counts[1]) * centre, f"{counts[0]:,} against {counts[1]:,} tokens")
    pieces = tuple(
        Pieces(texts, sign * (values - centre[:, None]), cut)
        for sign, values, (texts, cut) in zip(
            SIGNS, rewards, (_tokens(model, example) for example in pair), strict=True
        )
    )
    method = "The reward is a sum over tokens; a word adds its tokens' differences from the mean token reward."
    return Attribution((length, *word_causes(pieces)), (pieces[0], pieces[1]), method)


def _tokens(model: SumsTokens, example: Example) -> tuple[tuple[str, ...], str]:
    """Return the completion's tokens, and a note if some were truncated."""
    from ...policy.decoding.guided import token_texts  # which imports torch

    row = model.encoder.encode_completion(example)
    cut = row.length - len(row.ids)
    note = f"{cut:,} tokens at the beginning were truncated." if cut else ""
    return tuple(token_texts(model.encoder.tokenizer, row.ids[row.start :])), note


def _models_by_reward(model: Any) -> Sequence[SumsTokens]:
    """Return a model for each reward. A preference-conditioned model appears once per objective."""
    if not isinstance(model, Guide) or model.adapter is None or model.preference is not None:
        return [model]
    if not model.adapter.settings.follows_preference:
        return [model]
    names = model.adapter.objectives
    return [model.at({name: float(name == objective) for name in names}) for objective in names]  # type: ignore[misc]


def attribute_mean(model: MeansTokens, pair: Pair) -> Attribution:
    """Attribute r = q P + (1 - q) C, with the mean token rewards P of prompt and C of response, q the prompt's share.

        margin = (q_1 - q_2)(P - C) + q (P_1 - P_2) + (1 - q)(C_1 - C_2)

    Letters without an index are means over both responses. The first term is the contribution of length (a longer
    response has a larger share of the mean), the second that of the prompt, which an encoder reads together with the
    response. In the third, token t of response i contributes (1 - q)(r_t - C) / n_i.
    """
    read = [model.token_rewards(example) for example in pair]
    share = np.array([len(tokens.before) / (len(tokens.before) + len(tokens.rewards)) for tokens in read])
    prompts, means = _means([tokens.before for tokens in read]), _means([tokens.rewards for tokens in read])
    q, prompt, centre = share.mean(), prompts.mean(), means.mean()
    counts = [len(tokens.rewards) for tokens in read]
    causes = (
        Cause("length", np.diff(share[::-1]) * (prompt - centre), f"{counts[0]:,} against {counts[1]:,} tokens"),
        Cause("the prompt beside the response", np.diff(prompts[::-1]) * q),
    )
    first, second = (
        Pieces(tokens.pieces, (sign * (1 - q) * (tokens.rewards - centre) / max(1, len(tokens.rewards)))[None])
        for sign, tokens in zip(SIGNS, read, strict=True)
    )
    method = "The reward is a mean over tokens; a word adds its tokens' weighted differences from the mean reward."
    return Attribution((*causes, *word_causes((first, second))), (first, second), method)


def _means(rewards: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean of each array. An empty array has the mean of the other one."""
    means = [values.mean() for values in rewards if len(values)]
    return np.array([values.mean() if len(values) else sum(means) for values in rewards])


def term_of_length(weight: float, scale: float, longer: float) -> float:
    """Return φ(d) = a tanh(d / s), the length term of margins in length-controlled training, which scores leave out.

    a = `weight` and s = `scale` as `rm.losses.length_controlled` learned them; d is a difference in tokens.
    """
    return weight * float(np.tanh(longer / scale))
