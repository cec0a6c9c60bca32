"""DACR rollouts: two agents complete the prompt, criticise each other and rewrite; the policy is one of them."""

from collections.abc import Sequence
from typing import Any

from ...rm.data.conversation_split import as_prompt
from ...rm.errors import UsageError
from ..decoding.language_models import DecodingModel
from ..decoding.search import derived
from ..scaffolds._scaffold import Rollouts
from ._partners import Exchange, Side, in_role, open_partner, read_role, sampling_of

CRITICISE = "Another assistant answered:\n{}\n\nCriticise that answer."
REWRITE = "Another assistant says of your first answer:\n{}\n\nWrite your answer anew."
ANSWER, CRITIQUE, FINAL = range(3)


def dacr(
    *, partner: str, longest: int = 256, role: str = "", chat_template: str | None = None, seed: int = 0
) -> Rollouts:
    """A completion, a critique of the partner's, and a rewrite after the partner's      DACR 2026, arXiv:2603.21574

    All three form one completion, with the partner's turns between them: these are read, and only the policy's tokens
    are trained on, with one advantage. The language model `partner` (path or Hub id) has its own conversation in each
    row, with the system message in the file `role` if given, and is not trained. A turn of the policy has at most
    --max_completion_length tokens and uses the run's sampling settings, one of the partner at most `longest` at
    temperature 1; seeds are derived from the seed, the step, the turn and the index. Evaluation does the same. Needs
    `--reward 'dacr(reward=SOURCE)'`, which rates the turns.
    """
    if longest < 1:
        raise ValueError(f"dacr: the partner's turns have 1 token or more, got longest={longest}")
    text, who = read_role(role), open_partner(partner, chat_template=chat_template)

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        listening, asked = _listeners(trainer), tuple(map(as_prompt, prompts))
        step, training = trainer.state.global_step + 1, trainer.model.training
        sides = (
            Side(DecodingModel(trainer.language_model, trainer.encoder), asked, **sampling_of(trainer)),
            Side(who, [in_role(prompt, text) for prompt in asked], max_new_tokens=longest),
        )

        def turn(number: int) -> tuple[list[str], list[str]]:
            first, second = (
                side.generate([derived(seed, step, 6 * index + 2 * number + which) for index in range(len(asked))])
                for which, side in enumerate(sides)
            )
            return first, second

        try:
            completions = turn(ANSWER)
            _log_samples(sides, CRITICISE, completions)
            critiques = turn(CRITIQUE)
            _log_samples(sides, REWRITE, critiques)
            dialogue = Exchange(asked, completions, critiques, turn(FINAL))
        finally:
            trainer.model.train(training)  # decoding has set evaluation mode
        for listener in listening:
            listener.listen(dialogue)
        return {
            "prompt_ids": trainer._tokenize_prompts(list(asked))[0],
            "completion_ids": sides[0].tokens,
            "env_mask": sides[0].own,
            "logprobs": None,
        }

    return rollout


def _log_samples(sides: tuple[Side, Side], words: str, rewrites: tuple[list[str], list[str]]) -> None:
    """Append each side's texts to the other side's conversations."""
    for side, texts in zip(sides, reversed(rewrites), strict=True):
        side.hear([words.format(text) for text in texts])


def _listeners(trainer: Any) -> list[Any]:
    """Return the reward sources that rate dialogues."""
    listeners = [source for source in trainer.sources.sources.values() if hasattr(source, "listen")]
    if not listeners:
        raise UsageError("dacr: no reward listens to what the two say; give --reward 'dacr(reward=SOURCE)'")
    return listeners
