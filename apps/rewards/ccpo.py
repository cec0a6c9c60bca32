"""CCPO: rewards of a solver's completions with and without the policy's thought in the prompt."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...policy.decoding.engines import DecodingModel, language_model
from ...policy.rollouts._partners import open_partner, read_role, sample_texts, seeds_of, with_role, with_thought
from ...rm.contract.scoring_contract import ScoringContract
from ...rm.errors import UsageError
from ...rm.types import Example
from ._open import Rate, RunFacts, open_rate


def ccpo(
    *, run: RunFacts, solver: str, reward: str, longest: int = 256, role: str = "", chat_template: str | None = None
) -> "JointAndSoloRewards":
    """Return R_joint and R_solo as components `joint` and `solo`                          CCPO 2026, arXiv:2603.21563

    The policy is CCPO's thinker: its completion is a thought. The language model `solver` (path or Hub id) completes
    each prompt twice: with the thought (R_joint), and without it as the counterfactual (R_solo). `reward`, any source
    of --reward, scores both as completions of the original prompt. Completions of the solver have at most `longest`
    tokens and are sampled at temperature 1; a seed depends on the run's seed, the step's thoughts and the row.
    `role` is a file with the solver's system message, which replaces that of the prompt. The released code has two
    variants of the settings:

        --advantage 'ccpo(lam=0.2)'
        --reward_transform 'ccpo_thinker(joint=ccpo.joint, solo=ccpo.solo)' --weight ccpo.solo=0 --advantage grpo

    CCPO's other phase trains the solver, with `--rollouts 'ccpo(thinker=PATH)'`.
    """
    if longest < 1:
        raise UsageError(f"ccpo: longest must be 1 or more, got {longest}")
    device = str(language_model(run.policy).device)
    who = open_partner(solver, device=device, chat_template=chat_template, **run.loading)
    return JointAndSoloRewards(who, open_rate(reward, run), read_role(role), longest, run.seed)


@dataclass(frozen=True)
class JointAndSoloRewards:
    """Reward source that scores a solver's completions of the prompt with and without the policy's thought."""

    solver: DecodingModel
    rating: Rate
    role: str
    longest: int
    seed: int
    reads_rows = True
    contract: ScoringContract = ScoringContract(kind="ccpo", objectives=("joint", "solo"), dtype="float64")

    def rate(self, examples: Sequence[Example], rows: Sequence[int] = ()) -> Float[np.ndarray, "N K"]:
        """Return the rewards R_joint and R_solo of each thought, [N, 2]."""
        prompts = [with_role(example.prompt, self.role) for example in examples]
        conversations = [
            with_thought(prompt, example.text) for prompt, example in zip(prompts, examples, strict=True)
        ] + prompts
        seeds = seeds_of(self.seed, [[[*example.prompt], example.text] for example in examples], len(conversations))
        answers = sample_texts(self.solver, conversations, seeds, self.longest)
        pairs = zip([*examples, *examples], answers, strict=True)
        rated = self.rating([Example(example.prompt, answer) for example, answer in pairs], [*rows, *rows])
        return rated.reshape(2, len(examples)).T
