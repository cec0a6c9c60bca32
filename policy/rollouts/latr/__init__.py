"""LATR rollouts: completions that branch where the next token is uncertain, without branches that are similar."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ....rm.data.conversation_split import as_prompt
from ...decoding.engines import DecodingModel, SeparateModels, end_tokens
from ...decoding.guided import decode
from ...decoding.requests import Request
from ...decoding.search import derived
from ...types import RolloutSource
from .._partners import BATCH_SIZE, sampling_arguments, with_samples
from .lookahead_tree import Tokens, Write, branches, tree


def latr(
    *, second: float = 0.25, gap: float = 0.15, lookahead: int = 20, least: float = 0.4, seed: int = 0
) -> RolloutSource:
    """Branch into the second token where p_2 > 0.25 and p_1 - p_2 < 0.15; keep branches that differ after r tokens

    LATR 2025, arXiv:2510.24302. p_1 >= p_2 are the two largest probabilities of the next token. A branch is pruned if
    the edit distance of its next r = `lookahead` tokens to its parent's is less than `least` per token. The constants
    are those of the released code. A group has a sample, its branches, the branches of these (earlier first), and
    further samples up to the group size. Unlike the released code, a completion is finished before it branches, and no
    schedule mixes in plain samples. The trainer computes the log-probabilities; evaluation only samples.
    """
    if not (0 < second <= 0.5 and 0 < gap <= 1 and 0 <= least <= 1 and lookahead >= 1):
        raise ValueError(
            f"latr: second must be in (0, 0.5], gap in (0, 1], least in [0, 1] and lookahead at least 1, got {second}, "
            f"{gap}, {least} and {lookahead}"
        )

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        ids, size = trainer._tokenize_prompts(list(prompts))[0], int(trainer.num_generations)
        tokens_by_row: dict[int, list[int]] = {}
        if trainer.model.training:
            policy, step = DecodingModel(trainer.language_model, trainer.encoder), trainer.state.global_step + 1

            def points(row: int, chain: Tokens) -> list[Tokens]:
                return branches(next_probabilities(policy.model, ids[row], chain), chain, second, gap)

            for row in range(0, len(prompts), size):
                first = derived(seed, step, row)
                write = writer(policy, Request(as_prompt(prompts[row]), **sampling_arguments(trainer.args)), first)
                chains = tree(partial(points, row), write, size, lookahead, least)
                tokens_by_row |= {row + index: [*chain] for index, chain in enumerate(chains)}
            trainer.model.train()  # decoding has set evaluation mode
            trainer._note("latr/branches", len(tokens_by_row) / len(prompts))
        return with_samples(trainer, ids, tokens_by_row)

    return rollout


def writer(policy: DecodingModel, request: Request, seed: int) -> Write:
    """Return a function that continues prefixes by sampling; its calls have different seeds."""
    complete, calls = set[Tokens](), iter(range(10**6))
    ends, longest = end_tokens(policy), request.max_new_tokens

    def is_open(prefix: Tokens) -> bool:
        return prefix not in complete and not {*prefix[-1:]} & {*ends} and len(prefix) < longest

    def write(prefixes: Sequence[Tokens], number: int) -> list[Tokens]:
        call, incomplete = next(calls), [*filter(is_open, prefixes)]
        requests = [
            replace(
                request, prefix=prefix, seed=derived(seed, call, i), max_new_tokens=min(number, longest - len(prefix))
            )
            for i, prefix in enumerate(incomplete)
        ]
        completions = decode(SeparateModels(policy), requests, batch_size=BATCH_SIZE, progress=False)
        written = {}
        for prefix, completion in zip(incomplete, completions, strict=True):
            written[prefix] = prefix + completion.tokens
            if completion.finished != "length":
                complete.add(written[prefix])
        return [written.get(prefix, prefix) for prefix in prefixes]

    return write


@torch.no_grad()
def next_probabilities(model: Any, prompt: Sequence[int], chain: Tokens) -> Float[Tensor, "T V"]:
    """Return the probabilities of all tokens at each position of the chain."""
    device = next(model.parameters()).device
    logits = model(input_ids=torch.tensor([[*prompt, *chain]], device=device)).logits[0, len(prompt) - 1 : -1]
    return logits.float().softmax(1)
