"""Explanation of a reward model's score: rewards of tokens, effects of sentences, and objectives."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from ......rm.errors import UNREADABLE
from ......rm.io.checked_files import from_json
from ......rm.kinds.autoregressive import LogprobContract
from ......rm.types import AnyCompletion, Example, Guide, Messages, RewardModel, SumsTokens
from .....runs.run_folder import MANIFEST
from .... import figures, html
from ....figures import PALETTE
from ....html import number, text_html
from ....texts import tokens
from ....texts.tokens import Scale, heat_html, legend_html, scale_of, shades

MOST_SENTENCES, MOST_CHARACTERS = 60, 2_000_000  # of the shorter answers that a model is given at once
TOLERANCE = 1e-4
SENTENCE = re.compile(r"(?:[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+|\n)\s*")


class TokenRewards(NamedTuple):
    """Reward of a response at each of its T tokens for K objectives, in units of the reward (β times nats)."""

    pieces: tuple[str, ...]
    values: np.ndarray
    """[K objectives, T tokens]. The sum of a row is the reward of its objective."""
    cut: int
    """Number of tokens of prompt and response that were truncated."""


class SentenceEffects(NamedTuple):
    """Change of the reward when one of the S sentences of a response is removed."""

    sentences: tuple[str, ...]
    """Sentences that join to the response. Sentences that were not removed, if any, are merged into the last entry."""
    values: np.ndarray
    """[K objectives, S sentences]: reward without the sentence minus reward with it. NaN for untried sentences."""
    untried: int
    """Number of sentences that were not removed, which the last entry contains."""


class Explanation(NamedTuple):
    """One model's rewards of R responses for K objectives, with the contributions of tokens or sentences."""

    model: str
    kind: str
    """Kind of reward model: the name of a module in `rm.kinds`."""
    contract: str
    objectives: tuple[str, ...]
    rewards: np.ndarray
    """[R responses, K objectives]"""
    parts: tuple[TokenRewards, ...] | tuple[SentenceEffects, ...]
    """Rewards of tokens, or effects of sentences, for each response."""
    beta: float | None = None

    @property
    def by_token(self) -> bool:
        """Whether the reward is a sum over tokens."""
        return isinstance(self.parts[0], TokenRewards)


def explain(name: str, model: RewardModel, prompt: Messages, answers: Sequence[AnyCompletion]) -> Explanation:
    """Explain rewards by token if the reward is a sum over tokens, else by removing one sentence at a time."""
    examples = [Example(prompt, answer) for answer in answers]
    rewards = model.rate(examples)
    if isinstance(model, SumsTokens):
        parts: Any = token_rewards(model, examples)
    else:
        parts = tuple(sentence_effects(model, *item) for item in zip(examples, rewards, strict=True))
    contract = model.contract
    beta = contract.beta if isinstance(contract, LogprobContract) else None
    return Explanation(name, contract.kind, contract.hash(), contract.objectives, rewards, parts, beta)


# ---- tokens ----


def token_rewards(model: Any, examples: Sequence[Example]) -> tuple[TokenRewards, ...]:
    """Compute r_t = β log π_r(y_t | x, y_<t), or r_t = β (log π - log π_ref)(y_t | x, y_<t) for an implicit reward.

    x is the prompt, y_t token t of the response, β the factor in the model's scoring contract, π_r the autoregressive
    reward model, π the trained policy and π_ref its reference policy.
    """
    read = [reading.logprobs(examples) for reading in _readings(model)]
    encoder = model.encoder
    from ......policy.decoding.guided import token_texts

    rewards = []
    for index, example in enumerate(examples):
        row = encoder.encode_completion(example)
        texts = token_texts(encoder.tokenizer, row.ids[row.start :])
        values = model.contract.beta * np.stack([of_objective[index] for of_objective in read])
        rewards.append(TokenRewards(tuple(texts), values, row.length - len(row.ids)))
    return tuple(rewards)


def _readings(model: Any) -> list[Any]:
    """Return a model for each reward. A preference-conditioned model appears once per objective."""
    if not isinstance(model, Guide) or model.adapter is None or model.preference is not None:
        return [model]
    if not model.adapter.settings.follows_preference:
        return [model]
    names = model.adapter.objectives
    return [model.at({name: float(name == objective) for name in names}) for objective in names]


def sum_error(explanation: Explanation) -> float:
    """Return the largest |Σ_t r_t - reward| over responses and objectives, where r_t is the reward of token t."""
    sums = np.stack([part.values.sum(1) for part in explanation.parts])
    return float(np.abs(sums - explanation.rewards).max())


# ---- sentences ----


def sentences(text: str) -> list[str]:
    """Split a text into sentences and lines with their trailing white space; joined, they are the text.

    A sentence also ends at the full stop of an abbreviation.

    >>> sentences("One, e.g. 1.5. Two!\\n\\nThree")
    ['One, e.g. ', '1.5. ', 'Two!\\n\\n', 'Three']
    """
    begins = len(text) - len(text.lstrip())
    cuts = [0, *(match.end() for match in SENTENCE.finditer(text) if match.end() > begins), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


def sentence_effects(model: RewardModel, example: Example, reward: np.ndarray) -> SentenceEffects:
    """Compute r(x, y without s) - r(x, y) for the first sentences s of a response y to a prompt x, in one batch.

    The only sentence of a response is not removed, since the response would be empty.
    """
    parts = sentences(example.text)
    most = min(MOST_SENTENCES, MOST_CHARACTERS // max(1, len(example.text)))
    tried = min(len(parts), most) if len(parts) > 1 else 0
    shorter = [Example(example.prompt, _text_without(parts, index)) for index in range(tried)]
    effects = (model.rate(shorter) - reward).T if tried else np.empty((len(reward), 0))
    rest = "".join(parts[tried:])
    unknown = np.full((len(reward), 1 if rest else 0), np.nan)
    texts = (*parts[:tried], *([rest] if rest else []))
    return SentenceEffects(texts, np.concatenate([effects, unknown], axis=1), len(parts) - tried)


def _text_without(parts: Sequence[str], index: int) -> str:
    """Return the text without one part. Trailing white space is stripped if the original text has none."""
    rest = "".join((*parts[:index], *parts[index + 1 :]))
    return rest if parts[-1] != parts[-1].rstrip() else rest.rstrip()


# ---- the score in the run ----


def contracts_of(folder: Path) -> dict[str, str]:
    """Load the hash of every scorer's scoring contract from the manifest of a run. Empty if the manifest has none."""
    try:
        contracts = from_json((folder / MANIFEST).read_text(encoding="utf-8"))["contracts"]
        return {str(name): str(contract) for name, contract in contracts.items()}
    except UNREADABLE:
        return {}


def stored_scores_note(
    explanation: Explanation,
    contracts: Mapping[str, str],
    scores: Mapping[str, Sequence[float]],
    objective: str | None = None,
) -> str:
    """Return a sentence on whether the rewards equal the stored scores of a scorer with the same scoring contract.

    The run's score is the reward for its `objective`, or the mean over all objectives.
    """
    same = [name for name, contract in contracts.items() if contract == explanation.contract and scores.get(name)]
    if not same:
        return f"No score in this run was made under the contract of '{explanation.model}'."
    column = explanation.objectives.index(objective) if objective in explanation.objectives else None
    now = explanation.rewards.mean(1) if column is None else explanation.rewards[:, column]
    off = {name: float(np.abs(np.array(scores[name]) - now).max()) for name in same}
    name = min(off, key=off.__getitem__)
    if off[name] <= TOLERANCE * max(1.0, float(np.abs(now).max())):
        return f"These are the scores of '{name}' in the run (to {off[name]:.1g})."
    return f"The scores of '{name}' in the run differ by {off[name]:.4g}: its weights are not those of this model."


# ---- what is shown ----


def explanation_html(explanation: Explanation, objective: int, *, centred: bool = False, recorded: str = "") -> str:
    """Return the responses side by side, with parts coloured by their effect on the reward of one objective."""
    rows = [part.values[objective] for part in explanation.parts]
    scale = scale_of(rows, _mean(rows) if centred else 0.0)
    boxes = "".join(
        f'<div class="box"><div class="head"><span>Response {index + 1}</span>'
        f'<span class="end">{number(explanation.rewards[index, objective])}</span></div>'
        f'<div class="body">{_part_html(part, objective, scale)}</div></div>'
        for index, part in enumerate(explanation.parts)
    )
    return (
        f'{html.STYLE}{tokens.STYLE}<div class="rl">{_lead(explanation, scale)}'
        f'{_faint_html(recorded)}<div class="answers">{boxes}</div></div>'
    )


def _mean(rows: Sequence[np.ndarray]) -> float:
    known = np.concatenate(rows)
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else 0.0


def _lead(explanation: Explanation, scale: Scale) -> str:
    if not explanation.by_token:
        return legend_html(scale, unit="reward", low="helps", high="hurts") + _faint_html(
            "Colour of a sentence: the reward of the response without it minus the reward with it."
        )
    off = sum_error(explanation)
    size = max(1.0, float(np.abs(explanation.rewards).max()))
    sums = (
        f"The tokens of each response add up to its reward (to {off:.1g})."
        if off <= TOLERANCE * size
        else f"The tokens do NOT add up to the reward: they are off by {off:.4g}."
    )
    what = "log π - log π_ref" if explanation.kind == "implicit" else "log-probability"
    beta = f"Reward of a token: β times its {what} in nats, β = {number(explanation.beta)}. {sums}"
    return legend_html(scale, unit="reward", low="", high="") + _faint_html(beta)


def _faint_html(text: str) -> str:
    return f'<div class="faint">{text_html(text)}</div>'


def _part_html(part: TokenRewards | SentenceEffects, objective: int, scale: Scale) -> str:
    values = part.values[objective]
    if isinstance(part, TokenRewards):
        sums = values.cumsum()
        titles = [f"{value:+.4f}, sum {total:+.4f}" for value, total in zip(values, sums, strict=True)]
        cut = _faint_html(f"{part.cut:,} tokens at the beginning did not fit the model.") if part.cut else ""
        return cut + heat_html(part.pieces, shades(values, scale), titles)
    return heat_html(part.sentences, shades(values, scale), [*map(_effect, values)]) + _untried(part)


def _effect(value: float) -> str:
    return "not tried" if np.isnan(value) else f"without it {value:+.4f}"


def _untried(part: SentenceEffects) -> str:
    if len(part.sentences) == part.untried == 1:
        return _faint_html("One sentence: nothing would remain without it.")
    return _faint_html(f"{part.untried:,} sentences at the end were not tried.") if part.untried else ""


def sums_figure(explanation: Explanation, objective: int) -> go.Figure:
    """Draw the cumulative sum of the tokens' rewards, one line per response."""
    figure = go.Figure()
    for index, part in enumerate(explanation.parts):
        sums = part.values[objective].cumsum()
        colour = PALETTE[index % len(PALETTE)]
        figure.add_scatter(y=sums, x=np.arange(1, len(sums) + 1), name=f"Response {index + 1}", line={"color": colour})
    return figures.layout(figure, x="tokens of the response", y="reward so far")


def objectives_figure(explanation: Explanation) -> go.Figure:
    """Draw the rewards of all objectives as bars, one colour per response."""
    figure = go.Figure()
    names = [*map(figures.plot_text, explanation.objectives)]
    for index, rewards in enumerate(explanation.rewards):
        figure.add_bar(x=names, y=rewards, name=f"Response {index + 1}", marker_color=PALETTE[index % len(PALETTE)])
    return figures.layout(figure, x="objective", y="reward")
