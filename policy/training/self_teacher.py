"""Self-teacher of SDPO: the policy with a better completion of the prompt's group in its prompt."""

from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from jaxtyping import Float
from torch import Tensor

from ...rm.backbones.tokenization import pad
from ...rm.types import Example, Message, Messages
from ..advantages._groups import groups
from ..decoding.engines import DecodingModel, positions
from ..step.forward import Batch, completion_batch
from ..types import Rewards

HINT = "A correct solution:\n{}\n\nNow answer the original question."


def hinted_prompts(examples: Sequence[Example], total: Float[Tensor, " N"], size: int) -> list[Messages | None]:
    """Return each completion's prompt with the group's best other completion as a hint, if rewarded above the mean.

    None where no other completion is above the mean of the group's rewards. `size` consecutive completions are a group.
    """
    index = torch.arange(len(total))
    above = (total > groups(total, index // size).mean).tolist()
    hinted: list[Messages | None] = []
    for row, example in enumerate(examples):
        group = range(row // size * size, min(len(total), (row // size + 1) * size))
        others = [other for other in group if other != row and above[other]]
        best = max(others, key=lambda other: float(total[other]), default=None)
        hinted.append(None if best is None else with_hint(example.prompt, examples[best].text))
    return hinted


def with_hint(prompt: Messages, solution: str) -> Messages:
    """Return the prompt with a further user turn that shows a solution."""
    return (*prompt, Message(role="user", content=HINT.format(solution)))


def teacher_logprobs(trainer: Any, rewards: Rewards, batch: Batch, response: Tensor) -> Float[Tensor, "N L"]:
    """Return log-probabilities of the completions of all processes under the policy with a hint; NaN without a hint.

    `rewards` are the weighted rewards of each source for this process's completions. A completion that exceeds the
    policy's context together with prompt and hint has no hint.
    """
    total = trainer.processes.gather(trainer.algorithm.weighted(rewards).to(response.device))
    examples, local = gather_object(trainer._examples), trainer.processes.local(len(total))
    hints = hinted_prompts(examples, total.cpu(), trainer.step.size)[local]
    limit = positions(DecodingModel(trainer.language_model, trainer.encoder)) - response.shape[1]
    ids = [[] if hint is None else trainer.encoder.encode_prompt(hint) for hint in hints]
    rows = [row for row, prompt in enumerate(ids) if 0 < len(prompt) <= limit]
    teacher = torch.full(response.shape, torch.nan, device=response.device)
    if rows:
        prompts = pad([ids[row] for row in rows])
        mask, tokens = batch["completion_mask"][rows], batch["completion_ids"][rows]
        prompt = [part.to(tokens.device) for part in (prompts.tokens, prompts.attention.long())]
        read = trainer._read(trainer.model, completion_batch(*prompt, tokens, mask, response[rows]))
        teacher[rows] = read.logprob.to(teacher.dtype)
    return trainer.processes.gather(teacher, torch.nan)
