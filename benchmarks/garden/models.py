"""A word tokenizer and small untrained language models of real architectures for the garden."""

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from ...rm.backbones.loading import Architecture, small_config
from ...rm.types import Example, Message
from . import vocabulary

ROLE_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>")
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>", *ROLE_TOKENS)
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|> ' + message['content'] + ' </s>' }}"
    "{% if not loop.last %}{{ ' ' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ ' <|assistant|>' }}{% endif %}"
)


def tokenizer(tokens: Sequence[str] | None = None) -> PreTrainedTokenizerFast:
    """Build a word-level tokenizer, by default for the garden's words. A turn is `<|role|> words </s>` without BOS."""
    ids = {token: index for index, token in enumerate((*SPECIALS, *(vocabulary() if tokens is None else tokens)))}
    words = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=list(ROLE_TOKENS),
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def causal_lm(words: PreTrainedTokenizerFast, architecture: Architecture = "qwen3", seed: int = 0) -> PreTrainedModel:
    """Build an untrained language model of about 100,000 parameters."""
    config = small_config(words, architecture, hidden=64, layers=2, heads=4, positions=256)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config).float()


def conversation(example: Example) -> list[dict[str, str]]:
    """Return prompt and completion as a list of messages for `apply_chat_template`."""
    turns = (*example.prompt, Message(role="assistant", content=example.text))
    return [{"role": turn["role"], "content": turn["content"]} for turn in turns]


def pretrain(
    model: PreTrainedModel,
    words: PreTrainedTokenizerFast,
    examples: Sequence[Example],
    *,
    steps: int = 600,
    seed: int = 0,
    batch_size: int = 64,
    learning_rate: float = 3e-3,
    longest: int | None = None,
) -> list[float]:
    """Train a new model as the initial policy, by next-token prediction on conversations of at most `longest` tokens.

    AdamW with a learning rate that decays linearly to 0; returns the loss of every step in nats per token.
    """
    texts = words.apply_chat_template([conversation(example) for example in examples], return_dict=False)
    sequences = [torch.tensor(ids[:longest]) for ids in texts]
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    model.train()
    losses, generator = [], torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(len(sequences), (batch_size,), generator=generator)
        labels = pad_sequence([sequences[row] for row in rows.tolist()], batch_first=True, padding_value=-100)
        attention = (labels != -100).long()
        # tokens at padding positions are neither attended to nor predicted
        tokens = labels * attention
        loss = model(input_ids=tokens, attention_mask=attention, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    return losses
