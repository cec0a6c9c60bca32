"""DACR rollouts: two agents complete the prompt, criticise each other and rewrite; the policy is one of them."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ...rm.data.conversation_split import as_prompt
from ...rm.errors import UsageError
from ..decoding.engines import DecodingModel
from ..decoding.search import derived
from ..types import RolloutSource
from ._partners import Exchange, Side, open_partner, read_role, sampling_arguments, with_role

CRITICISE = "Another assistant answered:\n{}\n\nCriticise that answer."
REWRITE = "Another assistant says of your first answer:\n{}\n\nWrite your answer anew."
ANSWER, CRITIQUE, FINAL = range(3)


def dacr(
    *, partner: str, longest: int = 256, role: str = "", chat_template: str | None = None, seed: int = 0
) -> RolloutSource:
    """Generate a completion, a critique of the partner's completion, and a rewrite      DACR 2026, arXiv:2603.21574

    The rewrite follows the partner's critique. All three form one completion, with the partner's turns between them.
    Only the policy's tokens are trained on, with one advantage. The language model `partner` (path or Hub id) has its
    own conversation in each row, with the system message in the file `role` if given, and is not trained. A turn of the
    policy has at most --max_completion_length tokens and uses the run's sampling settings; a turn of the partner has
    at most `longest`, at temperature 1. Seeds are derived from the seed, the step, the turn and the index. Evaluation
    does the same. Needs `--reward 'dacr(reward=SOURCE)'`, which rates the turns.
    """
    if longest < 1:
        raise ValueError(f"dacr: the partner's turns need at least 1 token, got longest={longest}")
    text, other = read_role(role), open_partner(partner, chat_template=chat_template)

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        sources, conversations = trainer.sources.sources.values(), tuple(map(as_prompt, prompts))
        listeners = [source for source in sources if isinstance(source, DialogueReward)]
        if not listeners:
            raise UsageError("dacr: no reward source rates the dialogue; give --reward 'dacr(reward=SOURCE)'")
        step, training = trainer.state.global_step + 1, trainer.model.training
        policy = DecodingModel(trainer.language_model, trainer.encoder)
        sides = (
            Side(policy, conversations, **sampling_arguments(trainer.args)),
            Side(other, [with_role(prompt, text) for prompt in conversations], max_new_tokens=longest),
        )

        def turn(number: int) -> tuple[list[str], list[str]]:
            first, second = (
                side.generate([derived(seed, step, 6 * index + 2 * number + agent) for index in range(len(prompts))])
                for agent, side in enumerate(sides)
            )
            return first, second

        try:
            completions = turn(ANSWER)
            _exchange(sides, CRITICISE, completions)
            critiques = turn(CRITIQUE)
            _exchange(sides, REWRITE, critiques)
            dialogue = Exchange(conversations, completions, critiques, turn(FINAL))
        finally:
            trainer.model.train(training)  # decoding has set evaluation mode
        for listener in listeners:
            listener.listen(dialogue)
        return {
            "prompt_ids": trainer._tokenize_prompts(list(conversations))[0],
            "completion_ids": sides[0].tokens,
            "env_mask": sides[0].mask,
            "logprobs": None,
        }

    return rollout


def _exchange(sides: tuple[Side, Side], template: str, turns: tuple[list[str], list[str]]) -> None:
    """Append each side's texts to the other side's conversations."""
    for side, texts in zip(sides, reversed(turns), strict=True):
        side.append_turn([template.format(text) for text in texts])


@runtime_checkable
class DialogueReward(Protocol):
    """A reward source that rates dialogues of two agents."""

    def listen(self, dialogue: Exchange) -> None:
        """Store a dialogue for the next call of `rate`."""
        ...
