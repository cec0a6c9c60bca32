"""Small reward models that are trained on one cause, and pairs of responses whose margin it decides."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.kinds.linear.model import LinearRewardModel, new_linear
from rewardlab.rm.types import Example, PreferencePair, user_turn
from torch import nn

MARKER = "kano"
OTHERS = [f"{a}{b}" for a in ("ro", "mi", "su", "te") for b in ("ba", "no", "li", "ke")]
IDS = {word: 1 + index for index, word in enumerate([MARKER, *OTHERS])}
LONGEST, WIDTH = 64, 16
Cause = Callable[[np.random.Generator], tuple[str, str]]
"""Function that returns a better and a worse response."""


# ---- causes ----


def text(random: np.random.Generator, number: int, marked: int = -1) -> str:
    """Return sentences of three to five words. That with the index `marked` has the marker."""
    sentences = [[*random.choice(OTHERS, int(random.integers(3, 6)))] for _ in range(number)]
    if marked >= 0:
        sentences[marked][int(random.integers(len(sentences[marked])))] = MARKER
    return " ".join(f"{' '.join(words)}." for words in sentences)


def longer(random: np.random.Generator) -> tuple[str, str]:
    """The longer response is better."""
    short, long = sorted(random.choice(range(1, 9), 2, replace=False))
    return text(random, long), text(random, short)


def earlier(random: np.random.Generator) -> tuple[str, str]:
    """The response with the marker in its first sentence is better than the one with the marker in its last."""
    first, second = random.integers(3, 6, 2)
    return text(random, first, 0), text(random, second, second - 1)


def marked(random: np.random.Generator) -> tuple[str, str]:
    """The response with the marker is better, of whatever length and wherever the marker is."""
    first, second = random.integers(2, 6, 2)
    return text(random, first, int(random.integers(first))), text(random, second)


def pairs(cause: Cause, number: int, seed: int) -> list[PreferencePair]:
    """Return preference pairs with the cause."""
    random = np.random.default_rng(seed)
    return [PreferencePair(str(index), user_turn("tell me"), *cause(random)) for index in range(number)]


# ---- models ----


def linear(cause: Cause) -> LinearRewardModel:
    """Return a linear reward model that is trained on the cause."""
    return new_linear().fit(pairs(cause, 200, seed=0))


class Network(nn.Module):
    """r(y) = v · tanh(W Σ_t tanh(e(y_t) + p(t)) / 8): a reward of words, their positions and their number."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(len(IDS) + 1, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.hidden, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.contract = ScoringContract(kind="scalar")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states = torch.tanh(self.words(tokens.clamp(min=0)) + self.positions.weight) * (tokens >= 0)[..., None]
        return self.head(torch.tanh(self.hidden(states.sum(1) / 8)))[:, 0]

    @torch.no_grad()
    def rate(self, examples: Sequence[Example]) -> np.ndarray:
        """Return rewards [N, 1]."""
        return self(tokens_of([example.text for example in examples])).double().numpy()[:, None]


def tokens_of(texts: Sequence[str]) -> torch.Tensor:
    """Return words as ids [N, LONGEST], 0 for other words and -1 behind the end; full stops are left out."""
    tokens = torch.full((len(texts), LONGEST), -1)
    for row, words in enumerate(texts):
        ids = [IDS.get(word, 0) for word in words.replace(".", " ").split()][:LONGEST]
        tokens[row, : len(ids)] = torch.tensor(ids, dtype=torch.long)
    return tokens


def scalar(cause: Cause) -> Network:
    """Return a network that is trained on the cause by the Bradley-Terry loss."""
    torch.manual_seed(0)
    model, data = Network(), pairs(cause, 3000, seed=0)
    chosen, rejected = (tokens_of([pair.texts[side] for pair in data]) for side in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-2)
    for batch in torch.randint(len(data), (250, 128)):
        optimizer.zero_grad()
        nn.functional.softplus(model(rejected[batch]) - model(chosen[batch])).mean().backward()
        optimizer.step()
    return model
