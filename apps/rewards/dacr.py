"""DACR: rewards of the completions and rewrites of two agents, the policy and its partner."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ...policy.advantages.dacr import COMPONENTS
from ...policy.rollouts._partners import Exchange
from ...rm.contract.scoring_contract import ScoringContract
from ...rm.errors import DataError
from ...rm.types import Example
from ._open import Rate, RunFacts, open_rate


def dacr(*, run: RunFacts, reward: str) -> "ExchangeRewards":
    """Return four components: R_answer and R_rewrite of the policy and of its partner   DACR 2026, arXiv:2603.21574

    Use it with `--rollouts 'dacr(partner=PATH)' --advantage 'dacr(gamma=G)'`. `reward` is any source of --reward. It
    scores each of the four texts separately, as a completion of the original prompt.
    """
    return ExchangeRewards(open_rate(reward, run))


class ExchangeRewards:
    """Reward source for the dialogues between policy and partner that the last call of `listen` stored."""

    reads_rows = True
    contract = ScoringContract(kind="dacr", objectives=COMPONENTS, dtype="float64")

    def __init__(self, rating: Rate):
        self.rating = rating
        self.exchange: Exchange | None = None

    def listen(self, exchange: Exchange) -> None:
        """Store the dialogues for the next call of `rate`."""
        self.exchange = exchange

    def rate(self, examples: Sequence[Example], rows: Sequence[int] = ()) -> Float[np.ndarray, "N K"]:
        """Return the four rewards [N, 4] of each dialogue. Raise `DataError` for prompts without a dialogue."""
        exchange = self.exchange
        if exchange is None or exchange.prompts != tuple(example.prompt for example in examples):
            raise DataError("dacr found no partner responses for these prompts; give --rollouts 'dacr(partner=PATH)'")
        policy, partner = zip(exchange.completions, exchange.rewrites, strict=True)
        texts = [*policy, *partner]
        requests = [
            Example(prompt, text) for column in texts for prompt, text in zip(exchange.prompts, column, strict=True)
        ]
        return self.rating(requests, [*rows] * len(texts)).reshape(len(texts), len(examples)).T
