"""A Hugging Face language model in this process as a chat: batched, with greedy decoding or seeded sampling."""

import copy
import random
import time
from collections.abc import Iterator, Sequence
from os.path import commonprefix
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tqdm import tqdm

from ...rm.errors import DataError
from ...rm.types import content_hash
from .chat import Arrived, Ask, Choice, Reply, failed_reply

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ...rm.backbones.tokenization import Encoder


class TokenizedRequest(NamedTuple):
    """A tokenized request with its limits and its sampling parameters."""

    index: int
    prompt: list[int]
    most: int
    """Maximum length of the reply in tokens."""
    temperature: float
    seed: int
    """Seed of the sampling noise, which depends only on the seed, the token and its position."""


class Local:
    """A language model and its tokenizer as a chat.

    A reply depends on its request alone and not on the rest of the batch, up to rounding in the forward pass. JSON
    schemas are not enforced. The model's generation settings are ignored except for its end-of-text tokens.
    """

    def __init__(self, model: Any, encoder: "Encoder", *, name: str, context: int, batch_size: int = 16):
        from transformers import GenerationConfig

        from ...rm.backbones.tokenization import end_token_ids

        self.name, self.encoder, self.context, self.batch_size = name, encoder, context, batch_size
        self.ends = sorted(end_token_ids(model, encoder.tokenizer))
        self.model = copy.copy(model)
        self.model.generation_config = GenerationConfig()  # `generate` merges the model's own with the given settings

    def ask(self, asks: Sequence[Ask], arrived: Arrived | None = None) -> list[Reply]:
        """See `Chat`. Prompts of similar length share a batch."""
        replies: dict[int, Reply] = {}
        with tqdm(total=len(asks), desc=self.name, disable=None, delay=1) as bar:
            for ask_index, reply in self._replies(asks):
                replies[ask_index] = reply
                bar.update()
                if arrived is not None:
                    arrived(ask_index, reply)
        return [replies[index] for index in range(len(asks))]

    def choice_logprobs(self, choices: Sequence[Choice]) -> list[list[float]]:
        """Return log P(option | messages, beginning) in nats, at temperature 1, for every option of every choice.

        Each text is tokenized together with its option. The sum covers the tokens after the prefix that all options of
        a choice share, so that a token across the boundary is included.
        """
        rows = [row for choice in choices for row in self._option_rows(choice)]
        longest_first = sorted(range(len(rows)), key=lambda index: -len(rows[index][0]))
        values = [0.0] * len(rows)
        for start in range(0, len(rows), self.batch_size):
            indices = longest_first[start : start + self.batch_size]
            for index, value in zip(indices, self._logprobs([rows[index] for index in indices]), strict=True):
                values[index] = value
        remaining = iter(values)
        return [[next(remaining) for _ in choice.options] for choice in choices]

    def _option_rows(self, choice: Choice) -> list[tuple[list[int], int]]:
        """Return the token ids of the conversation with each option, and the index of the first token that differs."""
        prompt = self.encoder.encode_prompt(choice.messages)
        texts = [choice.beginning + option for option in choice.options]
        replies = self.encoder.tokenizer(texts, add_special_tokens=False, verbose=False).input_ids
        return [([*prompt, *ids], len(prompt) + len(commonprefix(replies))) for ids in replies]

    def _logprobs(self, rows: Sequence[tuple[list[int], int]]) -> list[float]:
        import torch

        from ...rm.backbones.logprobs import completion_logprobs
        from ...rm.backbones.tokenization import pad

        tokens, attention = (part.to(self.model.device) for part in pad([ids for ids, _ in rows]))
        starts = torch.tensor([start for _, start in rows], device=tokens.device)
        with torch.inference_mode():
            return completion_logprobs(self.model, tokens, attention, starts).double().sum(1).tolist()

    def _replies(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        rows = []
        for index, ask in enumerate(asks):
            try:
                prompt = self.encoder.encode_prompt(ask.messages)
            except DataError as error:  # the chat template refuses its roles
                yield index, failed_reply(str(error))
                continue
            free, omitted = self.context - len(prompt), self.encoder.rendered(ask.messages).omitted
            if omitted:
                yield index, failed_reply(f"the model's chat template leaves out {omitted[:60]!r}")
            elif free < 1:
                yield index, failed_reply(f"the prompt has {len(prompt)} tokens, the model's context is {self.context}")
            else:
                rows.append(TokenizedRequest(index, prompt, min(ask.max_tokens, free), ask.temperature, _seed_of(ask)))
        for batch in self._batches(sorted(rows, key=lambda row: len(row.prompt))):
            yield from self._generate_batch(batch)

    def _batches(self, rows: Sequence[TokenizedRequest]) -> Iterator[list[TokenizedRequest]]:
        """Split rows, sorted by prompt length, into batches. Each batch leaves room for its longest reply."""
        batch: list[TokenizedRequest] = []
        for row in rows:
            longest = max((other.most for other in batch), default=0)
            if len(batch) == self.batch_size or len(row.prompt) + max(longest, row.most) > self.context:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _generate_batch(self, rows: Sequence[TokenizedRequest]) -> Iterator[tuple[int, Reply]]:
        import torch
        from transformers import GenerationConfig

        from ...rm.backbones.tokenization import pad

        start = time.monotonic()
        reversed_rows = pad([row.prompt[::-1] for row in rows])
        tokens, attention = (part.flip(1).long().to(self.model.device) for part in reversed_rows)  # padded on the left
        padding = self.ends[0] if self.ends else 0
        most, width = max(row.most for row in rows), tokens.shape[1]
        ends = {"eos_token_id": self.ends or None, "pad_token_id": padding}
        how = GenerationConfig(max_new_tokens=most, do_sample=False, **ends)
        draws = [_Draws(rows, width)] if any(row.temperature > 0 for row in rows) else []
        with torch.inference_mode():
            written = self.model.generate(
                tokens, attention_mask=attention, generation_config=how, logits_processor=draws
            )
        seconds = (time.monotonic() - start) / len(rows)
        for row, ids in zip(rows, written[:, width:].tolist(), strict=True):
            yield row.index, self._reply(row, ids, seconds)

    def _reply(self, row: TokenizedRequest, ids: list[int], seconds: float) -> Reply:
        ids = ids[: row.most]
        end = next((index for index, id in enumerate(ids) if id in self.ends), None)
        text = self.encoder.tokenizer.decode(ids[:end], skip_special_tokens=True)
        used = len(ids) if end is None else end + 1
        return Reply(text, "length" if end is None else "stop", len(row.prompt), used, seconds)


def _seed_of(ask: Ask) -> int:
    """Return a seed that also depends on the request's content, so that noise is independent across requests."""
    seed = random.getrandbits(63) if ask.seed is None else ask.seed
    return int(content_hash([seed, ask.messages]), 16) >> 1


class _Draws:
    """Logits processor that replaces the greedy choice of some rows by a sample (Gumbel-max trick).

    argmax_v (log p_v / T + G_v), with a standard Gumbel variable G_v for every token, is distributed as softmax of
    log p / T. The noise is a function of (seed, token, position), so neither the batch nor its order can matter.
    """

    def __init__(self, rows: Sequence[TokenizedRequest], width: int):
        self.rows, self.width = rows, width

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        from ...kernels.philox import gumbel, words

        position, device = input_ids.shape[1] - self.width, scores.device
        heat = torch.tensor([[row.temperature] for row in self.rows], dtype=torch.float64, device=device)
        seeds = torch.tensor([[row.seed] for row in self.rows], device=device)
        tokens = torch.arange(scores.shape[1], device=device)
        noise = gumbel(words(seeds, tokens, torch.full_like(tokens, position), 0)[0])
        return torch.where(heat > 0, scores.double() / heat.where(heat > 0, 1.0) + noise, scores.double())


def local(
    source: str,
    *,
    batch_size: int = 16,
    dtype: str = "float32",
    device: str | None = None,
    chat_template: str | None = None,
    trust_remote_code: bool = False,
) -> Local:
    """Open a causal language model or PEFT adapter by folder or Hub id.

    The chat's name includes a fingerprint of weights and chat template.
    """
    from ...rm.backbones.loading import load_causal_lm, load_tokenizer

    tokenizer = load_tokenizer(source, chat_template=chat_template, trust_remote_code=trust_remote_code)
    model = load_causal_lm(source, tokenizer, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    return chat_from_model(model, tokenizer, name=Path(source).name, batch_size=batch_size)


def chat_from_model(model: Any, tokenizer: "PreTrainedTokenizerBase", *, name: str = "", batch_size: int = 16) -> Local:
    """Return a loaded causal language model as a chat. The model is set to evaluation mode."""
    from ...rm.backbones.loading import fingerprint
    from ...rm.backbones.tokenization import Encoder, context_length
    from ...rm.kinds.autoregressive.model import completion_contract

    contract = completion_contract(
        "autoregressive", tokenizer, [model], dtype=str(model.dtype).rpartition(".")[2], max_length=None, beta=1.0
    )
    full_name = " ".join([name or type(model).__name__, fingerprint(model), contract.template or "", contract.dtype])
    encoder, context = Encoder(tokenizer, contract), context_length(model, tokenizer)
    return Local(model.eval(), encoder, name=full_name, context=context, batch_size=batch_size)
