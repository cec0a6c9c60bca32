"""Search over completions: best-of-N on complete samples, or a beam over reasoning steps.

    best-of-N   N completions of every request, ranked by a score
    beam        SAGE's step-wise search, arXiv:2602.08354: each of the m prefixes in the beam gets 2m continuations by
                one step, and the m best chains stay in the beam. The search ends when r chains are complete

The score is a parameter. SAGE's is Φ, the mean log-probability per token of the chain so far.

Seeds: sample i of step k of a request with seed s has the seed `derived(s, k, i)`. The first sample of the first step
has s itself, so best-of-1 equals `decode`, and the samples of best-of-n are among those of best-of-N, N > n.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from ...rm.contract.readings import UNREAD, rate_with_readings, unread_shares
from ...rm.data.preference_vectors import Preference, preference_vector
from ...rm.errors import UsageError, did_you_mean
from ...rm.types import Example, Messages, RewardModel
from .engines import Engine
from .guided import CompletionReader, decode
from .requests import FACTS, DecodedCompletion, Request


class Candidate(NamedTuple):
    """A prompt and a completion to be scored, which may be incomplete."""

    prompt: Messages
    completion: DecodedCompletion


Score = Callable[[Sequence[Candidate]], np.ndarray]
"""Returns scores [N] of candidates; higher is better. NaN for a candidate without a score."""


class Ranked(NamedTuple):
    """Completions of one request, best first; ties in sampling order."""

    completions: list[DecodedCompletion]
    scores: np.ndarray
    """Score of each completion; completions without a score are NaN and come last."""
    unscored: int
    """Number of candidates without a score, over the whole search."""


# ---- scores ----


def mean_logprob(of: Literal["mixed", "base", "sampled"] = "mixed") -> Score:
    """Φ(y) = 1/T Σ_t log π(y_t | x, y_<t), nats per token                                SAGE, arXiv:2602.08354

    T is the number of tokens. π is the guided distribution ("mixed"), the base model or the sampling distribution.
    """
    return lambda candidates: np.array([vars(candidate.completion)[of].mean() for candidate in candidates], float)


def by_reward_model(model: RewardModel, *, objective: str | None = None, preference: Preference | None = None) -> Score:
    """Score by a reward model: one objective's reward, or Σ_k α_k r_k for a preference.

    `objective` and `preference` may be omitted for a model with one objective. An autoregressive reward model with a
    fixed preference has one objective: it computes r_α directly, which differs from the sum of r_k.
    """
    names = model.contract.objectives
    if objective is not None and preference is not None:
        raise UsageError(f"score by either an objective or a preference, got '{objective}' and {dict(preference)}")
    if objective is not None and objective not in names:
        raise UsageError(f"no objective '{objective}' in this model; {did_you_mean(objective, names)}")
    if objective is None and preference is None and len(names) > 1:
        raise UsageError(f"the model has objectives {', '.join(names)}; score by one of them, or by a preference")
    alone = {name: float(objective in (None, name)) for name in names}
    shares = preference_vector(alone if preference is None else preference, names)
    used = shares > 0  # rewards of objectives with share 0 may be NaN

    def score(candidates: Sequence[Candidate]) -> np.ndarray:
        examples = [Example(candidate.prompt, candidate.completion.text) for candidate in candidates]
        rewards, read = rate_with_readings(model, examples)
        for what, share in unread_shares(read).items():
            warnings.warn(f"the reward model of the search: {UNREAD[what].format(share)}", stacklevel=2)
        return rewards[:, used] @ shares[used]

    return score


# ---- best of N ----


def best_of_n(
    engine: Engine, requests: Sequence[Request], n: int, score: Score, *, batch_size: int = 64
) -> list[Ranked]:
    """Decode `n` completions of each request and rank them by score."""
    if n < 1:
        raise UsageError(f"best-of-n: n must be at least 1, got {n}")
    samples = repeated(requests, n)
    completions = decode(engine, samples, batch_size=batch_size)
    pairs = zip(samples, completions, strict=True)
    scores = _scored(score, [Candidate(request.prompt, completion) for request, completion in pairs])
    return [_ranked(completions[first : first + n], scores[first : first + n]) for first in range(0, len(samples), n)]


def repeated(requests: Sequence[Request], n: int) -> list[Request]:
    """Return each request n times in succession, with a derived seed for each copy."""
    return [replace(request, seed=derived(request.seed, 0, i)) for request in requests for i in range(n)]


def derived(seed: int, step: int, sample: int) -> int:
    """Return a sample's seed: `seed` for sample 0 of step 0, else 63 bits of numpy's SeedSequence of all arguments.

    >>> derived(7, 0, 0)
    7
    """
    if step == sample == 0:
        return seed
    return int(np.random.SeedSequence([seed, step, sample]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _scored(score: Score, candidates: Sequence[Candidate]) -> np.ndarray:
    """Return the scores of the candidates; raise `UsageError` unless there is one per candidate."""
    scores = np.asarray(score(candidates), float) if candidates else np.empty(0)
    if scores.shape != (len(candidates),):
        raise UsageError(f"a score must be one number per candidate, [{len(candidates)}], got shape {scores.shape}")
    return scores


def _best_first(scores: np.ndarray) -> list[int]:
    """Return indices from best to worst; ties keep their order, NaN comes last."""
    return np.argsort(-scores, kind="stable").tolist()


def _ranked(completions: Sequence[DecodedCompletion], scores: np.ndarray) -> Ranked:
    order = _best_first(scores)
    return Ranked([completions[index] for index in order], scores[order], int(np.isnan(scores).sum()))


# ---- beam search over steps ----


def step_beam(
    engine: Engine,
    request: Request,
    score: Score,
    *,
    beam: int = 2,
    finished: int = 2,
    branches: int | None = None,
    step_end: str = "\n\n",
    max_steps: int = 64,
) -> Ranked:
    """Search up to `finished` complete completions of one request; `request.stop` may be an end-of-thought marker.

    A step ends with `step_end`, which stays in the chain; each prefix in the beam gets `branches` continuations, by
    default 2 `beam`. Duplicate chains count once (ours). A chain that reaches `max_new_tokens`, the end
    of the context or `max_steps` leaves the beam too; such completions, with `finished` "length" or "context", are
    returned only if none is complete. Fewer than `finished` are returned if no chain is left to continue. Each step
    is one batch and recomputes the keys and values of its prefixes.
    """
    branches = 2 * beam if branches is None else branches
    _check(beam=beam, finished=finished, branches=branches, max_steps=max_steps, characters_of_step_end=len(step_end))
    steps = _Steps(engine, request, branches, step_end)
    live, complete, cut, unscored = [steps.empty()], [], [], 0
    for step in range(max_steps):
        chains = steps.continued(live, step)
        scores = _scored(score, [Candidate(request.prompt, chain.completion) for chain in chains])
        unscored += int(np.isnan(scores).sum())
        best = [(chains[index], scores[index]) for index in _best_first(scores)[:beam]]
        live = [chain.completion for chain, _ in best if not chain.ended]
        for chain, value in best:
            if chain.ended or step + 1 == max_steps:
                (complete if chain.completion.finished in ("eos", "stop") else cut).append((chain.completion, value))
        if len(complete) >= finished or not live:
            break
    completions, values = zip(*(complete or cut), strict=True)
    ranked = _ranked(completions, np.array(values))
    return Ranked(ranked.completions[:finished], ranked.scores[:finished], unscored)


def _check(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise UsageError(f"step_beam: {name} must be at least 1, got {number}")


class _Chain(NamedTuple):
    completion: DecodedCompletion
    """For an unfinished chain, `finished` is "length": the chain stopped at the end of a step."""
    ended: bool


class _Steps:
    """Extends chains of one request by one step."""

    def __init__(self, engine: Engine, request: Request, branches: int, step_end: str):
        self.engine, self.request, self.branches = engine, request, branches
        self.stop = (*request.stop, step_end)
        with engine.session([request]) as session:
            (self.room,) = session.room

    def empty(self) -> DecodedCompletion:
        """Return the empty chain."""
        empty = np.empty(0)
        guides = dict.fromkeys(self.engine.guides, empty)
        return DecodedCompletion("", (), "length", 0, guides=guides, **dict.fromkeys(FACTS, empty))

    def continued(self, live: Sequence[DecodedCompletion], step: int) -> list[_Chain]:
        """Return all continuations of the chains, in order; of duplicates only the first."""
        parents = [chain for chain in live for _ in range(self.branches)]
        continuations = [self._next(chain, step, index) for index, chain in enumerate(parents)]
        pieces = decode(self.engine, continuations, batch_size=len(continuations), progress=False)
        distinct: dict[tuple[int, ...], _Chain] = {}
        for chain in map(self._concatenated, parents, pieces):
            distinct.setdefault(chain.completion.tokens, chain)
        return [*distinct.values()]

    def _next(self, chain: DecodedCompletion, step: int, sample: int) -> Request:
        """Return the request for a continuation of the chain by one step."""
        return replace(
            self.request,
            prefix=(*self.request.prefix, *chain.tokens),
            seed=derived(self.request.seed, step, sample),
            max_new_tokens=min(self.request.max_new_tokens, self.room) - len(chain.tokens),
            stop=self.stop,
        )

    def _concatenated(self, chain: DecodedCompletion, piece: DecodedCompletion) -> _Chain:
        """Return the chain with the piece appended, read again from the start: a stop string may span two steps."""
        reader = CompletionReader(self.request, self.engine.base.encoder.tokenizer, self.engine.eos, self.room)
        reader.read([*chain.tokens, *piece.tokens])

        def concatenated(first: np.ndarray, second: np.ndarray) -> np.ndarray:
            return np.concatenate([first, second])[: len(reader.tokens)]

        guides = {name: concatenated(values, piece.guides[name]) for name, values in chain.guides.items()}
        facts = [concatenated(vars(chain)[name], vars(piece)[name]) for name in FACTS]
        completion = reader.completion(chain.prompt_tokens or piece.prompt_tokens, guides, facts)
        return _Chain(completion, reader.finished is not None)
