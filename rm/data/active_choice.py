"""Active choice of the unlabelled pairs to label next: spread of an ensemble, small margin, diversity, or random."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer

from ..errors import UsageError
from ..types import Example, PreferencePair, ReportsSpread, RewardModel, prompt_text

STRATEGIES = ("spread", "margin", "diversity", "random")


def largest_spread(gaps: Float[np.ndarray, "M B"], number: int) -> list[int]:
    """Return the pairs on which M reward models disagree most, the largest standard deviation of their gaps first.

    Query by committee, Seung et al. 1992; for reward models Gleave & Irving 2022, arXiv:2203.07472.
    """
    return np.argsort(-gaps.std(axis=0), kind="stable")[:number].tolist()


def smallest_margin(gaps: Float[np.ndarray, " B"], number: int) -> list[int]:
    """Return the pairs with the smallest |gap|, ascending: their labels have the most entropy under Bradley-Terry."""
    return np.argsort(np.abs(gaps), kind="stable")[:number].tolist()


def k_center(
    vectors: Float[np.ndarray, "B D"], number: int, covered: Float[np.ndarray, "L D"] | None = None
) -> list[int]:
    """Return pairs that cover all others: each is the pair farthest from the pairs chosen before and from `covered`.

    Greedy k-center, at most twice the radius of the best cover (Gonzalez 1985); as an active choice Sener & Savarese
    2018, arXiv:1708.00489. Without `covered`, the first pair is the one farthest from the mean.
    """
    first = vectors.mean(axis=0, keepdims=True) if covered is None or not len(covered) else covered
    distance = np.min([((vectors - center) ** 2).sum(axis=1) for center in first], axis=0)
    chosen: list[int] = []
    for _ in range(min(number, len(vectors))):
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, ((vectors - vectors[chosen[-1]]) ** 2).sum(axis=1))
        distance[chosen] = -1  # a pair is chosen once, also where others are equal to it
    return chosen


def pair_vectors(pairs: Sequence[PreferencePair], words: int = 512) -> Float[np.ndarray, "B D"]:
    """Return TF-IDF vectors of pairs: of the prompt, and the absolute difference of the responses' vectors."""
    vectorizer = TfidfVectorizer(max_features=words, sublinear_tf=True, dtype=np.float32)
    vectorizer.fit([text for pair in pairs for text in pair.texts])
    sources = [text for pair in pairs for text in pair.texts], [prompt_text(pair.prompt) for pair in pairs]
    responses, prompts = (csr_matrix(vectorizer.transform(texts)).toarray() for texts in sources)
    return np.hstack([prompts, np.abs(responses[::2] - responses[1::2])])


def choose_pairs(
    choice: str, pairs: Sequence[PreferencePair], model: RewardModel | None = None, *, seed: int = 0
) -> list[PreferencePair]:
    """Return the pairs to label next, best first; existing labels are ignored.

    `choice` is STRATEGY:NUMBER, such as `spread:100` (with an ensemble), `margin:100` (with a reward model),
    `diversity:100` or `random:100`.

    >>> pairs = [PreferencePair(str(n), ({"role": "user", "content": "Hi?"},), f"hello {n}", "no") for n in range(9)]
    >>> len(choose_pairs("random:3", pairs)), len(choose_pairs("diversity:20", pairs))
    (3, 9)
    """
    strategy, _, text = choice.partition(":")
    if strategy not in STRATEGIES or not text.isdecimal() or not int(text):
        raise UsageError(f"'{choice}' is not a choice of pairs; give STRATEGY:NUMBER with {', '.join(STRATEGIES)}")
    number, examples = int(text), [example for pair in pairs for example in pair.examples]
    if strategy == "random":
        indices = np.random.default_rng(seed).permutation(len(pairs))[:number].tolist()
    elif strategy == "diversity":
        indices = k_center(pair_vectors(pairs), number)
    elif model is None:
        raise UsageError(f"'{choice}' needs a reward model, whose rewards it compares; name one")
    elif strategy == "margin":
        indices = smallest_margin(_reward_gaps(model.rate(examples)[None, :, 0])[0], number)
    else:
        indices = largest_spread(_reward_gaps(_member_rewards(choice, model, examples)), number)
    return [pairs[index] for index in indices]


def _member_rewards(choice: str, model: RewardModel, examples: Sequence[Example]) -> Float[np.ndarray, "M N"]:
    """Return the rewards [M, N] of the members of an ensemble; raise `UsageError` for a single model."""
    if not isinstance(model, ReportsSpread):
        raise UsageError(f"'{choice}' needs an ensemble, got a single model; use margin instead")
    return model.spread(examples)[:, :, 0]


def _reward_gaps(rewards: Float[np.ndarray, "M N"]) -> Float[np.ndarray, "M B"]:
    """Return reward gaps of pairs, from rewards in which chosen and rejected completions alternate."""
    return rewards[:, ::2] - rewards[:, 1::2]
