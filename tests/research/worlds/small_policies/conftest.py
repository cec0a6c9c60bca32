"""Small policies with random weights, and completions of any length."""

import pytest
import torch
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.policy.step.forward import CompletionBatch


def random_policy(seed: int):
    """A policy whose distributions are far from uniform."""
    model = causal_lm(tokenizer(), seed=seed).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3 if weight.dim() > 1 else 1)
    return model


@pytest.fixture
def policy():
    return random_policy(0)


@pytest.fixture(scope="session")
def rows() -> CompletionBatch:
    """Prompts of 3, 5, 3 and 4 tokens, the first and the third alike; completions of 2, 6, 1 and 4 tokens."""
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(8, 60, (length,), generator=generator) for length in (3, 5, 3, 4)]
    prompts[2] = prompts[0]
    completions = [torch.randint(8, 60, (length,), generator=generator) for length in (2, 6, 1, 4)]
    sequences = [torch.cat(pair) for pair in zip(prompts, completions, strict=True)]
    tokens = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return CompletionBatch(
        tokens,
        torch.arange(tokens.shape[1]) < lengths[:, None],
        torch.tensor([len(prompt) for prompt in prompts]),
        torch.arange(6) < torch.tensor([len(completion) for completion in completions])[:, None],
    )
