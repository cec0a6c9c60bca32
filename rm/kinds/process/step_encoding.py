"""Prompts and steps as token ids for process reward models, and the outputs of token classifiers."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ...backbones.tokenization import Encoded, Encoder, Rendered, right_padded, single_token_id
from ...types import AnyCompletion, Example, Message, Messages, Steps, completion_text, content_hash
from . import ProcessContract

COMPLETION = "completion"


class EncodedSteps(NamedTuple):
    """Token ids after truncation, the length before truncation, and the index of the last token of each step."""

    ids: list[int]
    length: int
    ends: tuple[int, ...]
    """Index of the last token of each step before truncation. Steps with an index >= `len(ids)` are truncated."""
    omitted: str = ""
    """A text of the prompt that the chat template omits, if any."""


def split_steps(completion: AnyCompletion, separator: str) -> tuple[str, ...]:
    """Return the steps stored in a completion (`rm.types.Steps`), or else its non-blank parts between separators.

    >>> split_steps("2 + 2 = 4\\n\\n\\n\\nSo 4.", "\\n\\n")
    ('2 + 2 = 4', 'So 4.')
    """
    if isinstance(completion, Steps):
        return completion.steps
    return tuple(step for step in completion_text(completion).split(separator) if step.strip())


class StepEncoder(Encoder):
    """Encodes the rendered prompt, followed by every step of the completion and the token that ends the step.

    A step ends with the scoring contract's step token, or else with the separator. Steps are tokenised one by one, so
    that the tokens of a step do not depend on later text. Text that the template writes after a completion is omitted.
    Truncation removes the last steps.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, contract: ProcessContract):
        super().__init__(tokenizer, contract)
        self.separator = contract.step_separator
        if contract.step_token is None:
            self.end = self._tokenize([self.separator])[0]
        else:
            self.end = [single_token_id(tokenizer, contract.step_token, "step_token")]

    def encode_steps(self, examples: Sequence[Example]) -> list[EncodedSteps]:
        """Return token ids and the ends of all steps; completions not stored as steps are split."""
        steps = [split_steps(example.completion, self.separator) for example in examples]
        distinct = [*{step for some in steps for step in some}]
        step_ids = dict(zip(distinct, self._tokenize(distinct), strict=True))
        keys = [content_hash(example.prompt) for example in examples]
        prompts = {key: example.prompt for key, example in zip(keys, examples, strict=True)}
        rendered = {key: self.head(prompt) for key, prompt in prompts.items()}
        heads = dict(zip(prompts, self._tokenize([head.text for head in rendered.values()]), strict=True))
        return [
            self._with_steps(self._with_bos(heads[key]), [step_ids[step] for step in some], rendered[key].omitted)
            for key, some in zip(keys, steps, strict=True)
        ]

    def _encode_all(self, examples: Sequence[Example]) -> list[Encoded]:
        steps = self.encode_steps(examples)
        return [Encoded(encoded.ids, encoded.length, encoded.omitted) for encoded in steps]

    def head(self, prompt: Messages) -> Rendered:
        """Return the rendered text that precedes any completion of the prompt."""
        before, omitted = self.rendered(prompt, add_generation_prompt=True)
        text = self.render_turns([*prompt, Message(role="assistant", content=COMPLETION)])
        start = text.find(COMPLETION, len(before))
        if not text.startswith(before) or start < 0:
            raise self._no_completion_error(before)
        return Rendered(text[:start], omitted)

    def _with_steps(self, head: Sequence[int], steps: Sequence[Sequence[int]], omitted: str) -> EncodedSteps:
        """Return the prompt's ids followed by every step and its end, truncated."""
        ids, ends = [*head], []
        for step in steps:
            ids += [*step, *self.end]
            ends.append(len(ids) - 1)
        return EncodedSteps(self.truncated(ids), len(ids), tuple(ends), omitted)

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer([*texts], add_special_tokens=False, verbose=False).input_ids if texts else []


def token_outputs(
    model: nn.Module, tokens: Int[Tensor, "N L"], attention: Shaped[Tensor, "N L"]
) -> Float[Tensor, "N L K"]:
    """Return a token classifier's outputs for right-padded copies of the rows. Outputs at padding are undefined."""
    tokens, attention = right_padded(tokens, attention)
    return model(input_ids=tokens, attention_mask=attention.long()).logits
