"""UFO: a reward of several attempts, smaller for a later success and for repeated answers."""

from collections.abc import Sequence

from ...policy.types import RewardFunction
from ...rm.errors import UsageError
from ._answers import BOXED, answer_reader
from ._open import RunFacts, per_completion


def ufo(
    *, run: RunFacts, reference: str = "reference", answer: str = BOXED, gamma: float = 0.5, repeated: float = 0.5
) -> RewardFunction:
    """r = γ^(t - 1) - λ (1 - E / T), where attempt t is the first right one              UFO 2025, arXiv:2507.14295

    The first term is 0 if no attempt is right. The T attempts are the matches of the pattern `answer` in the completion
    up to the first right one; E is the number of distinct attempts, ignoring spaces and case. γ = `gamma` and
    λ = `repeated` are 0.5 in the released code. `reference` is a column with the right answer. Ours: the attempts are
    in one completion; in the paper the user says "try again" between them.
    """
    if not 0 <= gamma <= 1 or repeated < 0:
        raise UsageError(f"ufo: gamma must lie in [0, 1] and repeated must be 0 or more, got {gamma} and {repeated}")
    read = answer_reader(answer)
    return per_completion(
        run.texts_by_prompt(reference), lambda text, right: attempts_reward(read(text), right, gamma, repeated)
    )


def attempts_reward(attempts: Sequence[str], reference: str, gamma: float, repeated: float) -> float:
    """Compute r from the attempts of a completion, in order; 0 without an attempt.

    >>> attempts_reward(["3", " 3", "4"], "4", 0.5, 0.5)  # 0.25 - 0.5 / 3
    0.08333333333333331
    """
    normal, right = (["".join(text.split()).lower() for text in texts] for texts in (attempts, [reference]))
    used = normal[: normal.index(right[0]) + 1] if right[0] in normal else normal
    success = gamma ** (len(used) - 1) if used[-1:] == right else 0.0
    return success - repeated * (1 - len({*used}) / len(used)) if used else 0.0
