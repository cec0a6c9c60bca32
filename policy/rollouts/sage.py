"""SAGE rollouts: some of a group's completions are found by beam search over steps, the others are sampled."""

from collections.abc import Sequence
from typing import Any

from ...rm.data.conversation_split import as_prompt
from ...rm.errors import UsageError
from ..decoding.engines import SeparateModels
from ..decoding.language_models import DecodingModel
from ..decoding.requests import Request
from ..decoding.search import derived, mean_logprob, step_beam
from ..scaffolds._scaffold import Rollouts


def sage(*, r: int = 2, m: int = 2, step_end: str = "\n\n", max_steps: int = 64, seed: int = 0) -> Rollouts:
    """r of a group's G completions are found by `step_beam`: m prefixes, 2m continuations each, ranked by Φ

    Φ(y) = 1/T Σ_t log π(y_t | x, y_<t)                                               SAGE-RL: arXiv:2602.08354

    r = 2, m = 2 and G = 8 are the paper's; the objective is unchanged. Searched completions are a group's first rows,
    best first; if fewer than r complete ones are found the rest is sampled, as are all in evaluation. Their
    log-probabilities are not returned: the trainer recomputes them, so that every ratio starts at 1. Searched
    completions are more likely than samples of the policy, which is not corrected for. Ours: a chain is finished at the
    end of its text, not of its thought, and a completion is sampled in place of a truncated chain. Steps are sampled at
    the run's temperature, top_p, top_k and min_p, with seeds derived from the seed, the step and the prompt's index.
    """
    if r < 1 or m < 1 or max_steps < 1 or not step_end:
        raise ValueError(
            f"sage: r, m and max_steps are 1 or more and step_end is a text, got {r}, {m}, {max_steps} and {step_end!r}"
        )

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        ids, size = trainer._tokenize_prompts(list(prompts))[0], int(trainer.num_generations)
        if r >= size:
            raise UsageError(
                f"sage searches {r} completions of each group and a group has {size}; lower r or give it more"
            )
        tokens_by_row: dict[int, list[int]] = {}
        if trainer.model.training:
            asked = [as_prompt(prompt) for prompt in prompts[::size]]
            requests = [_request(trainer, seed, index, prompt) for index, prompt in enumerate(asked)]
            search = {"beam": m, "finished": r, "step_end": step_end, "max_steps": max_steps}
            for prompt_index, completions in enumerate(_searched(trainer, requests, **search)):
                tokens_by_row |= {prompt_index * size + rank: completion for rank, completion in enumerate(completions)}
            trainer._note("sage/searched", len(tokens_by_row) / len(prompts))
        others = [index for index in range(len(prompts)) if index not in tokens_by_row]
        drawn = trainer._generate_single_turn([ids[other] for other in others], None, {}, num_generations=1)[0]
        tokens_by_row |= dict(zip(others, drawn, strict=True))
        return {
            "prompt_ids": ids,
            "completion_ids": [tokens_by_row[index] for index in range(len(prompts))],
            "logprobs": None,
        }

    return rollout


def _request(trainer: Any, seed: int, index: int, prompt: Any) -> Request:
    return Request(
        prompt,
        temperature=trainer.temperature,
        top_k=trainer.top_k or 0,
        top_p=trainer.top_p,
        min_p=trainer.min_p or 0.0,
        seed=derived(seed, trainer.state.global_step + 1, index),
        max_new_tokens=trainer.max_completion_length,
    )


def _searched(trainer: Any, requests: Sequence[Request], **search: Any) -> list[list[list[int]]]:
    """Return the tokens of each prompt's complete completions, best first; `search` are settings of `step_beam`."""
    engine = SeparateModels(DecodingModel(trainer.language_model, trainer.encoder))
    try:
        ranked = [step_beam(engine, request, mean_logprob(), **search) for request in requests]
    finally:
        trainer.model.train()  # decoding has set evaluation mode
    return [
        [[*completion.tokens] for completion in ranking.completions if completion.finished == "eos"]
        for ranking in ranked
    ]
