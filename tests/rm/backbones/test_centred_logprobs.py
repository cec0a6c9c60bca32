from contextlib import contextmanager

import pytest
import torch
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.backbones.logprobs import centred_logprobs
from rewardlab.rm.backbones.tokenization import pad
from transformers import AutoModelForCausalLM

LENGTHS, STARTS = (9, 5, 7), (4, 2, 1)


class Pair:
    """A guide and its base: two sets of decoder weights of one model with one head, exchanged within `base()`."""

    def __init__(self, model):
        self.model = model
        self.guide = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        generator = torch.Generator().manual_seed(1)
        self.other = {
            name: weight + 0.3 * torch.randn(weight.shape, generator=generator) * ("layers" in name)
            for name, weight in self.guide.items()
        }

    @contextmanager
    def base(self):
        self._use(self.other)
        try:
            yield
        finally:
            self._use(self.guide)

    @torch.no_grad()
    def _use(self, weights):
        for name, weight in self.model.named_parameters():
            weight.data = weights[name].data


@pytest.fixture(params=["qwen3", "scaled logits"])
def pair(request):
    torch.manual_seed(0)
    tokenizer = small_tokenizer(["a b c d e f g h i j k l"])
    config = small_config(tokenizer, hidden=16, layers=1, positions=32)
    model = AutoModelForCausalLM.from_config(config).double().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    if request.param == "scaled logits":  # the head alone does not give the model's logits
        forward = model.forward

        def scaled(*args, **options):
            out = forward(*args, **options)
            out.logits = 0.5 * out.logits
            return out

        model.forward = scaled
    return Pair(model)


def sequences(vocabulary: int):
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(0, vocabulary, (length,), generator=generator).tolist() for length in LENGTHS]


def directly(pair: Pair, tokens: list[int], start: int) -> torch.Tensor:
    """Row by row from all logits: log π(y_t) - Σ_v π_0(v) log π(v)."""
    ids = torch.tensor([tokens])
    logprobs = pair.model(input_ids=ids).logits[0].float().log_softmax(-1)
    with torch.no_grad(), pair.base():
        base = pair.model(input_ids=ids).logits[0].float().softmax(-1)
    values = [logprobs[t - 1, tokens[t]] - base[t - 1] @ logprobs[t - 1] for t in range(start, len(tokens))]
    return torch.stack(values)


def test_values_and_gradients_are_those_of_the_definition(pair):
    for logits in [2**24, 1]:
        rows = sequences(pair.model.config.vocab_size)
        batch = pad(rows)
        values = centred_logprobs(
            pair.model, pair.base, batch.tokens, batch.attention, torch.tensor(STARTS), logits=logits
        )
        parts = list(pair.model.parameters())
        weights = torch.linspace(0.5, 1.5, values.shape[1])
        gradient = torch.autograd.grad((values * weights).sum(), parts)
        expected = values.new_zeros(values.shape)
        total = 0.0
        for index, (row, start) in enumerate(zip(rows, STARTS, strict=True)):
            direct = directly(pair, row, start)
            expected[index, start : len(row)] = direct.detach()
            total = total + (direct * weights[start : len(row)]).sum()
        torch.testing.assert_close(values.detach(), expected, atol=1e-5, rtol=1e-5)
        for found, wanted in zip(gradient, torch.autograd.grad(total, parts), strict=True):
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def test_padding_side_and_batch_change_nothing(pair):
    rows = sequences(pair.model.config.vocab_size)
    right = pad(rows)
    start = torch.tensor(STARTS)
    first = centred_logprobs(pair.model, pair.base, right.tokens, right.attention, start)
    shifts = [max(LENGTHS) - length for length in LENGTHS]
    tokens, attention = (
        torch.stack([row.roll(shift) for row, shift in zip(part, shifts, strict=True)])
        for part in (right.tokens, right.attention)
    )
    second = centred_logprobs(pair.model, pair.base, tokens, attention, start)
    torch.testing.assert_close(second[attention.bool()], first[right.attention.bool()], atol=1e-5, rtol=1e-5)


def test_a_token_that_the_base_model_draws_has_mean_0(pair):
    """Σ_v π_0(v) (log π(v) - Σ_u π_0(u) log π(u)) = 0 at every state: all next tokens of one prompt."""
    vocabulary, prompt = pair.model.config.vocab_size, sequences(pair.model.config.vocab_size)[0][:4]
    batch = pad([[*prompt, token] for token in range(vocabulary)])
    values = centred_logprobs(
        pair.model, pair.base, batch.tokens, batch.attention, torch.full((vocabulary,), len(prompt))
    )
    with torch.no_grad(), pair.base():
        chances = pair.model(input_ids=torch.tensor([prompt])).logits[0, -1].float().softmax(-1)
    assert (chances * values[:, -1]).sum().item() == pytest.approx(0, abs=1e-5)
    assert values[:, -1].abs().max() > 0.1
