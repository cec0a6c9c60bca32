"""EAD rollouts: the sampling temperature falls within a completion, from exploration to exploitation."""

from collections.abc import Sequence
from typing import Any

from ...rm.data.conversation_split import as_prompt
from ..decoding.engines import DecodingModel, SeparateModels
from ..decoding.guided import decode
from ..decoding.requests import Annealing, Request
from ..decoding.search import derived
from ..types import RolloutSource
from ._partners import BATCH_SIZE, sampling_arguments


def ead(
    *,
    top: float = 1.2,
    floor: float = 0.1,
    start: int = 10,
    decay: float = 25.0,
    slower: float = 5.0,
    slowest: float = 40000.0,
    corrected: bool = False,
    seed: int = 0,
) -> RolloutSource:
    """T_t = max(1 + τ_max - exp(t / d_s), τ_min) for token t >= c, else 1; d_s = min(d_0 + 5 s, d_max)

    EAD 2025, arXiv:2510.05251. s is the training step: the annealing becomes slower. τ_max = `top`, τ_min = `floor`,
    c = `start`, d_0 = `decay`, 5 = `slower` and d_max = `slowest` are those of the released code. T_t multiplies the
    run's temperature. Ratios start at 1, relative to the policy at the run's temperature, or are relative to the
    sampling distribution if `corrected`; the released code has both. Evaluation is without annealing.
    """
    if decay <= 0 or floor <= 0 or top < floor or start < 0 or slower < 0:
        raise ValueError(
            f"ead: needs decay > 0, 0 < floor <= top, start >= 0 and slower >= 0, got {decay}, {floor}, {top}, "
            f"{start} and {slower}"
        )

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        ids, training = trainer._tokenize_prompts(list(prompts))[0], trainer.model.training
        if not training:
            completion_ids = trainer._generate_single_turn(ids, None, {}, num_generations=1)[0]
            return {"prompt_ids": ids, "completion_ids": completion_ids, "logprobs": None}
        step, settings = trainer.state.global_step, sampling_arguments(trainer.args)
        annealing = Annealing(min(decay + slower * step, slowest), top, floor, start)
        requests = [
            Request(as_prompt(prompt), seed=derived(seed, step + 1, index), annealing=annealing, **settings)
            for index, prompt in enumerate(prompts)
        ]
        try:
            policy = SeparateModels(DecodingModel(trainer.language_model, trainer.encoder))
            completions = decode(policy, requests, batch_size=BATCH_SIZE, progress=False)
        finally:
            trainer.model.train()  # decoding has set evaluation mode
        return {
            "prompt_ids": ids,
            "completion_ids": [[*completion.tokens] for completion in completions],
            "logprobs": [completion.sampled.tolist() for completion in completions] if corrected else None,
        }

    return rollout
