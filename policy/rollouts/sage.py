"""SAGE rollouts: some of a group's completions are found by beam search over steps, the others are sampled."""

from collections.abc import Sequence
from typing import Any

from ...rm.data.conversation_split import as_prompt
from ...rm.errors import UsageError
from ..decoding.engines import DecodingModel, SeparateModels
from ..decoding.requests import Request
from ..decoding.search import derived, mean_logprob, step_beam
from ..types import RolloutSource
from ._partners import sampling_arguments, with_samples


def sage(*, r: int = 2, m: int = 2, step_end: str = "\n\n", max_steps: int = 64, seed: int = 0) -> RolloutSource:
    """Find r of a group's G completions by `step_beam`: m prefixes, 2m continuations each, ranked by Φ

    Φ(y) = 1/T Σ_t log π(y_t | x, y_<t)                                               SAGE-RL: arXiv:2602.08354

    r = 2, m = 2 and G = 8 are the paper's. The first rows of a group are the completions from the search, best first.
    If the search completes fewer than r, the others are sampled; in evaluation all are sampled. The trainer computes
    the log-probabilities, so that every ratio starts at 1. Unlike in the paper, a chain ends with its text, not with
    its thought. Steps are sampled at the run's temperature, top_p, top_k and min_p, with seeds derived from the seed,
    the step and the prompt's index.
    """
    if r < 1 or m < 1 or max_steps < 1 or not step_end:
        raise ValueError(
            f"sage: r, m and max_steps must be at least 1 and step_end not empty, "
            f"got {r}, {m}, {max_steps} and {step_end!r}"
        )

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        ids, size = trainer._tokenize_prompts(list(prompts))[0], int(trainer.num_generations)
        if r >= size:
            raise UsageError(f"sage: r is {r} and a group has {size} completions; lower r, or raise --num_generations")
        tokens_by_row: dict[int, list[int]] = {}
        if trainer.model.training:
            step, settings = trainer.state.global_step + 1, sampling_arguments(trainer.args)
            requests = [
                Request(as_prompt(prompt), seed=derived(seed, step, index), **settings)
                for index, prompt in enumerate(prompts[::size])
            ]
            search = {"beam": m, "finished": r, "step_end": step_end, "max_steps": max_steps}
            engine = SeparateModels(DecodingModel(trainer.language_model, trainer.encoder))
            try:
                rankings = [step_beam(engine, request, mean_logprob(), **search) for request in requests]
            finally:
                trainer.model.train()  # decoding has set evaluation mode
            for index, ranking in enumerate(rankings):
                complete = [completion for completion in ranking.completions if completion.finished == "eos"]
                tokens_by_row |= {index * size + rank: [*best.tokens] for rank, best in enumerate(complete)}
            trainer._note("sage/searched", len(tokens_by_row) / len(prompts))
        return with_samples(trainer, ids, tokens_by_row)

    return rollout
