"""RLPR: the policy's probability of a reference answer after its reasoning, a reward without a verifier."""

from collections.abc import Sequence
from math import isnan

import torch

from ...policy.decoding.engines import language_model, positions
from ...policy.rewards.reference_probability import (
    TAGS,
    debiased,
    is_well_formed,
    reasoning_prefix,
    reference_probabilities,
)
from ...policy.types import RewardFunction
from ...rm.errors import UsageError
from ...rm.types import Example, Messages, prompt_text
from ..runs.run_folder import log
from ._open import RunFacts


def rlpr(
    *, run: RunFacts, reference: str = "reference", tags: Sequence[str] = TAGS, form: float = 0.1, together: int = 16
) -> RewardFunction:
    """(1 - w) clip(p(y* | x, z) - p(y* | x), 0, 1) + w 1[the tags are in order]           RLPR: arXiv:2506.18254

    p is the mean probability of the tokens of reference y* under the current policy, x the prompt, and z the completion
    up to its tag `tags[-2]` (p = 0 without this tag, as in the released code). p(y* | x) is the probability after empty
    tags; w = `form`. A completion is not rewarded (NaN) if reference and completion exceed the policy's context.
    `reference` is a column of the prompts' rows, `together` the batch size. `policy/transforms/std_filter.py` drops
    prompts with similar rewards.
    """
    if len(tags) < 2 or not all(isinstance(tag, str) and tag for tag in tags) or not 0 <= form <= 1:
        raise UsageError(f"rlpr: tags must be two or more texts and form in [0, 1], got {tags!r} and {form}")
    references_by_prompt = run.texts_by_prompt(reference)
    model, encoder, nothing = language_model(run.policy), run.policy.encoder, "".join(tags[:-1])
    longest = positions(run.policy)

    def chances(prompts: Sequence[Messages], openings: Sequence[str]) -> torch.Tensor:
        references = [references_by_prompt[prompt_text(prompt)] for prompt in prompts]
        return reference_probabilities(
            model, encoder, prompts, openings, references, together=together, longest=longest
        )

    def rate(examples: Sequence[Example]) -> list[float | None]:
        opened = {
            index: z
            for index, example in enumerate(examples)
            if (z := reasoning_prefix(example.text, tags)) is not None
        }
        prompts = [examples[index].prompt for index in opened]
        distinct = {prompt_text(prompt): prompt for prompt in prompts}
        before = dict(zip(distinct, chances([*distinct.values()], [nothing] * len(distinct)), strict=True))
        alone = torch.tensor([float(before[prompt_text(prompt)]) for prompt in prompts], dtype=torch.float64)
        gains = dict(zip(opened, debiased(chances(prompts, [*opened.values()]), alone).tolist(), strict=True))
        if unread := sum(map(isnan, gains.values())):
            log(f"rlpr: the reference exceeds the policy's context after {unread} of {len(examples)} completions")
        rewards = [
            (1 - form) * gains.get(index, 0.0) + form * is_well_formed(example.text, tags)
            for index, example in enumerate(examples)
        ]
        return [None if isnan(reward) else reward for reward in rewards]

    return rate
