"""Log-probability of a fixed token after the completion under the policy: second reward of `--advantage laser`."""

from collections.abc import Sequence
from math import isnan

from ...policy.decoding.engines import language_model, positions
from ...policy.rewards.reference_probability import reference_probabilities, total_logprob
from ...policy.types import RewardFunction
from ...rm.errors import UsageError
from ...rm.types import Example
from ..runs.run_folder import log
from ._open import RunFacts


def laser(*, run: RunFacts, token: str, together: int = 16) -> RewardFunction:
    """ℓ = log π(z | x, y), nats                                                                 LaSeR: arXiv:2510.14943

    π is the current policy, x the prompt, y the completion with its end-of-text token, and z a fixed token that the
    policy does not use. `token` is the string of z, such as <|vision_start|> for Qwen; it has no default, since unused
    tokens differ between vocabularies. The reward is missing if z does not fit into the policy's context. `together` is
    the batch size. The reward must come after the verifier's:

        --reward verdict=SOURCE 'laser=laser(token=Z)' --weight verdict=0.9 laser=0.1 --advantage 'laser(reference=C)'

    C is the mean ℓ of the initial policy: the metric `rewards/laser/mean` of the first step, from a run with `--watch`.
    """
    encoder = run.policy.encoder
    ids = encoder.tokenizer(token, add_special_tokens=False).input_ids
    if len(ids) != 1 or (ids[0] == encoder.tokenizer.unk_token_id and token != encoder.tokenizer.unk_token):
        raise UsageError(f"laser: token must be one unused token of the policy's vocabulary, got {token!r}")
    model, end, longest = language_model(run.policy), str(encoder.tokenizer.eos_token or ""), positions(run.policy)

    def rate(examples: Sequence[Example]) -> list[float | None]:
        prompts, answers = [example.prompt for example in examples], [example.text + end for example in examples]
        probabilities = reference_probabilities(
            model, encoder, prompts, answers, [token] * len(examples), together=together, longest=longest,
            formula=total_logprob,
        ).tolist()  # fmt: skip
        if unread := sum(map(isnan, probabilities)):
            log(f"laser: {token!r} exceeds the policy's context after {unread} of {len(examples)} completions")
        return [None if isnan(value) else value for value in probabilities]

    return rate
