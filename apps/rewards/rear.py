"""REAR: how much a preference raises the policy's probability of a completion."""

from collections.abc import Sequence

from ...policy.decoding.engines import language_model, positions
from ...policy.rewards.reference_probability import mean_logprob, reference_probabilities
from ...policy.rollouts._partners import with_role
from ...policy.types import RewardFunction
from ...rm.types import Example, prompt_text
from ._open import RunFacts


def rear(*, run: RunFacts, preference: str = "preference", weight: float = 20.0, together: int = 16) -> RewardFunction:
    """r = 1/T Σ_t [log π(y_t | x) + λ (log π(y_t | x, p) - log π(y_t | x))]                REAR 2026, arXiv:2606.30339

    π is the policy itself, x the prompt, y_t token t of the completion's T tokens, and p a preference (column
    `preference`), which replaces the prompt's system message in the second pass. λ = `weight` is 20 in the released
    configurations. The paper selects among samples and search branches by r: `rewardlab sample --reward rear`. r is
    missing if the completion does not fit in the policy's context. `together` is the batch size.
    """
    preferences = run.texts_by_prompt(preference)
    model, encoder, longest = language_model(run.policy), run.policy.encoder, positions(run.policy)

    def rate(examples: Sequence[Example]) -> list[float | None]:
        prompts = [example.prompt for example in examples]
        preferred = [with_role(prompt, preferences[prompt_text(prompt)]) for prompt in prompts]
        texts = [example.text for example in examples]
        plain, aligned = (
            reference_probabilities(
                model, encoder, part, [""] * len(texts), texts, together=together, longest=longest, formula=mean_logprob
            )
            for part in (prompts, preferred)
        )
        return [None if value != value else value for value in (plain + weight * (aligned - plain)).tolist()]

    return rate
