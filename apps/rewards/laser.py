"""Log-probability of one token after the completion under the policy: the second reward of `--advantage laser`."""

from collections.abc import Sequence
from math import isnan

from ...policy.decoding.language_models import language_model, positions
from ...policy.rewards.reference_probability import reference_probabilities, total_logprob
from ...policy.types import RewardFunction
from ...rm.errors import UsageError
from ...rm.types import Example
from ..runs.run_folder import log
from ._run import RunFacts


def laser(*, run: RunFacts, token: str, together: int = 16) -> RewardFunction:
    """ℓ = log π(z | x, y), nats: of one fixed unused token z after the completion and its end   LaSeR: arXiv:2510.14943

    π is the current policy. `token` is z as the tokenizer writes it, such as <|vision_start|> of Qwen's; it has no
    default, since unused tokens differ between vocabularies. A completion that leaves no room for z in the policy's
    context has no reward; `together` is the batch size. Name it after the verifier:

        --reward verdict=SOURCE 'said=laser(token=Z)' --weight verdict=0.9 said=0.1 --advantage 'laser(reference=C)'

    C is the mean of the start policy: `rewards/said/mean` of the first step, as one step with `--watch` logs it.
    """
    encoder = run.policy.encoder
    ids = encoder.tokenizer(token, add_special_tokens=False).input_ids
    if len(ids) != 1 or (ids[0] == encoder.tokenizer.unk_token_id and token != encoder.tokenizer.unk_token):
        raise UsageError(
            f"laser: token is one token of the policy's vocabulary, and {token!r} is none; take an unused one"
        )
    model, end, longest = language_model(run.policy), str(encoder.tokenizer.eos_token or ""), positions(run.policy)

    def rate(examples: Sequence[Example]) -> list[float | None]:
        prompts, answers = [example.prompt for example in examples], [example.completion + end for example in examples]
        probabilities = reference_probabilities(
            model, encoder, prompts, answers, [token] * len(examples), together=together, longest=longest,
            formula=total_logprob,
        ).tolist()  # fmt: skip
        if unread := sum(map(isnan, probabilities)):
            log(f"laser: behind {unread} of {len(examples)} answers the policy has no room for {token!r}")
        return [None if isnan(value) else value for value in probabilities]

    return rate
