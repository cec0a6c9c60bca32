"""Scaffolding: hints in the prompts of some completions during generation, which are removed for training."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from math import nan
from random import Random
from typing import Any, NamedTuple

import torch

from ...rm.backbones.tokenization import pad
from ...rm.data.conversation_split import as_prompt
from ...rm.errors import UsageError
from ...rm.types import Example, Message, Messages, prompt_text
from ..types import RolloutSource

Schedule = Callable[[float, int], Sequence[float]]
"""(progress of training in [0, 1], size of a group) -> the share of hints for each completion."""

# ---- prompts ----


class Hints(NamedTuple):
    """Points that completions of a prompt should include, and others to avoid."""

    include: tuple[str, ...]
    avoid: tuple[str, ...] = ()

    def sample(self, share: float, draw: Random) -> "Hints":
        """Return round(λ n) random hints of all n hints, in their order; λ = `share`.

        >>> Hints(("a", "b"), ("c", "d")).sample(0.0, Random(0))
        Hints(include=(), avoid=())
        """
        number, total = len(self.include), len(self.include) + len(self.avoid)
        indices = sorted(draw.sample(range(total), int(share * total + 0.5)))
        include = tuple(self.include[index] for index in indices if index < number)
        return Hints(include, tuple(self.avoid[index - number] for index in indices if index >= number))


def with_hints(prompt: Messages, hints: Hints) -> Messages:
    """Return the prompt with the hints appended to its system message, or in a new one; unchanged without hints.

    >>> print(with_hints(({"role": "user", "content": "Why?"},), Hints(("Names a cause.",)))[0]["content"])
    Points that the answer should make:
    - Names a cause.
    Answer as if you had not seen these points: mention neither them nor that there are any.
    """
    if not any(hints):
        return prompt
    heads = ("Points that the answer should make:", "What the answer should avoid:")
    parts = [[head, *(f"- {text}" for text in texts)] for head, texts in zip(heads, hints, strict=True) if texts]
    secret = "Answer as if you had not seen these points: mention neither them nor that there are any."
    hint = "\n".join([*chain(*parts), secret])
    if prompt[0]["role"] == "system":
        return ({**prompt[0], "content": f"{prompt[0]['content']}\n\n{hint}"}, *prompt[1:])
    return (Message(role="system", content=hint), *prompt)


# ---- rollouts ----


def scaffold_rollouts(
    hints: Callable[[Messages], Hints],
    schedule: Schedule,
    *,
    longest: int | None = None,
    seed: int = 0,
    rollouts: RolloutSource | None = None,
) -> RolloutSource:
    """Create a rollout function that generates with hints in the prompts and returns the prompts without them.

    Log-probabilities, ratios, KL and gradients are all for the prompt without hints. There is no correction for the
    different prompt at generation (RuscaRL, arXiv:2508.16949). Completion i of a group is the i-th row of its prompt.
    A prompt that would have more than `longest` tokens with its hints gets no hints, as in evaluation.
    `rollouts` generates the completions, for example `server_rollouts`; by default the trainer does. Random choices of
    hints depend on the seed, the step and the row. With a schedule whose attribute `after_failure` is true, only groups
    without a reward above 0 are generated again with hints, with ratios relative to the policy with the hints.
    """

    def generate(prompts: Sequence[Messages], trainer: Any) -> list[list[int]]:
        if rollouts is not None:
            return rollouts(prompts, trainer)["completion_ids"]
        return trainer._generate_single_turn(*trainer._tokenize_prompts(prompts), num_generations=1)[0]

    def rollout(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        plain = [as_prompt(prompt) for prompt in prompts]
        full, logprobs, training = plain, None, trainer.model.training
        if training:
            step, progress = trainer.state.global_step, trainer.state.global_step / max(1, trainer.state.max_steps - 1)
            shares = schedule(min(1.0, progress), int(trainer.num_generations))
            full = add_hints(plain, step, shares, trainer.encoder.encode_prompt)
        if training and getattr(schedule, "after_failure", False):
            completion_ids = generate(plain, trainer)
            failed = failed_rows(plain, completion_ids, trainer)
            full = [hinted if index in failed else plain[index] for index, hinted in enumerate(full)]
            again = generate([full[index] for index in failed], trainer) if failed else []
            for index, completion in zip(failed, again, strict=True):
                completion_ids[index] = completion
            logprobs = hinted_logprobs(full, completion_ids, failed, trainer)
        else:
            completion_ids = generate(full, trainer)
        if training:
            changes = [prompt != other for prompt, other in zip(full, plain, strict=True)]
            trainer._note("scaffold/hinted", sum(changes) / len(changes))
        plain_ids = trainer._tokenize_prompts(plain)[0]
        return {"prompt_ids": plain_ids, "completion_ids": completion_ids, "logprobs": logprobs}

    def add_hints(
        prompts: Sequence[Messages], step: int, shares: Sequence[float], encode: Callable[[Messages], Sequence[int]]
    ) -> list[Messages]:
        """Return the prompts with their share of hints, except where they would be too long."""
        long_prompts = []
        for index, prompt in enumerate(prompts):
            sample = hints(prompt).sample(shares[index % len(shares)], Random(f"{seed} {step} {index}"))
            long_prompt = with_hints(prompt, sample)
            fits = longest is None or len(encode(long_prompt)) <= longest
            long_prompts.append(long_prompt if fits else prompt)
        return long_prompts

    return rollout


# ---- after a failure ----


def failed_rows(prompts: Sequence[Messages], completion_ids: Sequence[Sequence[int]], trainer: Any) -> list[int]:
    """Return the rows of the groups in which no completion has a weighted sum of present rewards above 0."""
    if len(prompts) % trainer.num_generations:
        raise UsageError(
            "this scaffold rates complete groups; make the batch of each process a multiple of --num_generations"
        )
    if trainer.sources.reads_states:
        raise UsageError("this scaffold rates completions during generation; remove rewards that read hidden states")
    row_of = {prompt_text(as_prompt(row["prompt"])): row.get("row", 0) for row in trainer.train_dataset}
    texts = trainer.processing_class.batch_decode(completion_ids, skip_special_tokens=True)
    rewards, _ = trainer.sources(
        [Example(prompt, text) for prompt, text in zip(prompts, texts, strict=True)],
        rows=[row_of[prompt_text(prompt)] for prompt in prompts],
        finished=[ids[-1] in trainer.eos_token_ids for ids in completion_ids],
    )
    size = trainer.num_generations
    successes = (trainer.algorithm.weighted(replace(rewards, values=rewards.values.nan_to_num(0))) > 0).tolist()
    return [row for row in range(len(prompts)) if not any(successes[row // size * size : (row // size + 1) * size])]


def hinted_logprobs(
    prompts: Sequence[Messages], completion_ids: Sequence[list[int]], rows: Sequence[int], trainer: Any
) -> list[list[float]]:
    """Return the log-probabilities of the completions of `rows` after their prompts; NaN for the other rows."""
    logprobs = [[nan] * len(ids) for ids in completion_ids]
    if rows:
        prompt_ids = trainer._tokenize_prompts([prompts[row] for row in rows])[0]
        before = pad([ids[::-1] for ids in prompt_ids])  # TRL pads prompts on the left
        after = pad([completion_ids[row] for row in rows])
        device, parts = trainer.accelerator.device, zip(before, after, strict=True)
        tokens, attention = (torch.cat([x.flip(1), y], 1).long().to(device) for x, y in parts)
        read = trainer._get_per_token_logps_and_entropies
        read_logprobs = read(trainer.model, tokens, attention, after.tokens.shape[1])[0]
        for row, values in zip(rows, read_logprobs.float().tolist(), strict=True):
            logprobs[row] = values[: len(completion_ids[row])]
    return logprobs
