"""CCPO rollouts: completions of a solver with and without the thoughts of a thinker in the prompt."""

from collections.abc import Sequence
from typing import Any

from ...rm.data.conversation_split import as_prompt
from ...rm.errors import UsageError
from ...rm.types import Messages
from ..decoding.engines import DecodingModel, positions
from ..decoding.search import derived
from ..types import RolloutSource
from ._partners import group_size, open_partner, read_role, sample_texts, with_role, with_thought


def ccpo(
    *,
    thinker: str,
    alone: bool = True,
    longest: int = 256,
    role: str = "",
    chat_template: str | None = None,
    seed: int = 0,
) -> RolloutSource:
    """Generate completions of CCPO's solver, the policy, with thoughts in the prompt     CCPO 2026, arXiv:2603.21563

    The language model `thinker` (path or Hub id) samples one thought per completion. The policy is trained on the
    prompt with the thought; reward sources get the prompt without it. With `alone`, only the first half of each group
    has thoughts (`transforms/ccpo_solver.py`); otherwise all completions have thoughts (`advantages/ccpo.py`). This
    also holds in evaluation. A thought has at most `longest` tokens and is sampled at temperature 1, with a seed
    derived from `seed`, the step and the index. `role` is a file with the thinker's system message, which replaces the
    prompt's.
    """
    if longest < 1:
        raise ValueError(f"ccpo: a thought needs at least 1 token, got longest={longest}")
    text, model = read_role(role), open_partner(thinker, chat_template=chat_template)

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        plain = [as_prompt(prompt) for prompt in prompts]
        size = group_size(trainer.args, training=trainer.model.training)
        if alone and size % 2:
            raise UsageError(f"ccpo: half of a group has no thought, so --num_generations must be even, got {size}")
        with_thoughts = [index for index in range(len(plain)) if not alone or index % size < size // 2]
        seeds = [derived(seed, trainer.state.global_step + 1, index) for index in with_thoughts]
        texts = sample_texts(model, [with_role(plain[index], text) for index in with_thoughts], seeds, longest)
        thoughts = dict(zip(with_thoughts, texts, strict=True))
        full_prompts = [
            with_thought(prompt, thoughts[index]) if index in thoughts else prompt for index, prompt in enumerate(plain)
        ]
        policy = DecodingModel(trainer.language_model, trainer.encoder)
        ids = _encode(full_prompts, policy, trainer.args.max_completion_length or 0)
        trainer._note("ccpo/told", len(with_thoughts) / len(plain))
        completion_ids = trainer._generate_single_turn(ids, None, {}, num_generations=1)[0]
        return {"prompt_ids": ids, "completion_ids": completion_ids, "logprobs": None}

    return rollout


def _encode(prompts: Sequence[Messages], policy: DecodingModel, longest: int) -> list[list[int]]:
    """Return token ids; raise `UsageError` if a prompt leaves no room for a completion of `longest` tokens."""
    ids = [policy.encoder.encode_prompt(prompt) for prompt in prompts]
    capacity = positions(policy) - longest
    if (most := max(map(len, ids))) > capacity:
        raise UsageError(
            f"ccpo: a prompt with its thought has {most} tokens, but the policy's context has room for {capacity} and "
            "a completion; lower longest, or --max_completion_length"
        )
    return ids
