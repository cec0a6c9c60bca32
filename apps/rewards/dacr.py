"""What two agents' answers and rewrites are worth, of a talk between the policy and its partner."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ...policy.advantages.dacr import COMPONENTS
from ...policy.rollouts._partners import Exchange
from ...rm.contract.scoring_contract import ScoringContract
from ...rm.errors import DataError
from ...rm.types import Example
from ._partner import Rate, open_rate
from ._run import RunFacts


def dacr(*, run: RunFacts, reward: str) -> "OfTalks":
    """R_answer and R_rewrite of the policy and of its partner, as four components       DACR 2026, arXiv:2603.21574

    For `--rollouts 'dacr(partner=PATH)' --advantage 'dacr(gamma=G)'`. `reward` is any source that --reward takes; it is
    shown the prompt as it is and each of the four texts alone.
    """
    return OfTalks(open_rate(reward, run))


class OfTalks:
    """A reward of what was said in the talks that it heard last."""

    contract = ScoringContract(kind="dacr", objectives=COMPONENTS, dtype="float64")

    def __init__(self, rating: Rate):
        self.rating = rating
        self.talk: Exchange | None = None

    def listen(self, conversation: Exchange) -> None:
        """Set the dialogues to be rated next."""
        self.talk = conversation

    def rate(self, examples: Sequence[Example]) -> Float[np.ndarray, "N K"]:
        """The four rewards of every talk; other answers than the talks' are a `DataError`."""
        conversation = self.talk
        if conversation is None or conversation.prompts != tuple(example.prompt for example in examples):
            raise DataError("dacr heard no talk about these prompts; give --rollouts 'dacr(partner=PATH)'")
        own_rewrites, partner = zip(conversation.completions, conversation.rewrites, strict=True)
        texts = [*own_rewrites, *partner]
        asked = [
            Example(prompt, text) for column in texts for prompt, text in zip(conversation.prompts, column, strict=True)
        ]
        return self.rating(asked).reshape(len(texts), len(examples)).T
