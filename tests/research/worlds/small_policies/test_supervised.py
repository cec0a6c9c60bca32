import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.research.worlds.small_policies import supervised
from rewardlab.research.worlds.small_policies.trunk import completion_logits, layout_of
from torch.nn.functional import cross_entropy


@pytest.fixture(scope="module")
def examples():
    return garden.supervised_examples(6, 0)


@pytest.fixture
def policy():
    return causal_lm(tokenizer(), seed=0)


def reference_costs(policy, rows):
    """Mean cross-entropy of every completion by the model's own forward pass."""
    logits = policy(input_ids=rows.tokens, attention_mask=rows.attention.long()).logits
    costs = []
    for row, (tokens, start) in enumerate(zip(rows.tokens, rows.start.tolist(), strict=True)):
        end = start + int(rows.response[row].sum())
        costs.append(cross_entropy(logits[row, start - 1 : end - 1], tokens[start:end]))
    return torch.stack(costs)


def test_costs_are_those_of_the_models_own_forward_pass(policy, examples):
    rows = supervised.rows_of_examples(examples)
    expected = reference_costs(policy, rows)
    torch.testing.assert_close(supervised.costs_and_entropies(policy, rows)[0], expected.detach(), atol=1e-4, rtol=1e-4)
    layout = layout_of(rows)
    losses = supervised.plain_losses(completion_logits(policy, layout), layout)
    tokens = rows.response.sum(1)
    torch.testing.assert_close(losses.sum(), (expected * tokens).sum(), atol=1e-3, rtol=1e-4)
    assert supervised.nats_per_token(policy, rows) == pytest.approx((losses.sum() / tokens.sum()).item(), abs=1e-4)


def test_training_draws_by_the_probabilities_and_starts_at_their_loss(policy, examples):
    rows, drawn = supervised.rows_of_examples(examples), []
    only = torch.tensor([0.0, 0, 0, 1, 0, 0])
    first = reference_costs(policy, rows)[3].item()

    def losses(logits, layout):
        drawn.append(layout.targets.view(4, -1))
        return supervised.plain_losses(logits, layout)

    options = {"seed": 0, "losses": losses, "probabilities": only}
    history = supervised.train_supervised(policy, rows, supervised.SupervisedLoop(5, 4), **options)
    expected = rows.tokens[3][rows.attention[3]][rows.start[3] :]
    assert all(torch.equal(batch, expected.expand(4, -1)) for batch in drawn) and len(drawn) == 5
    assert history[0] == pytest.approx(first, abs=1e-4)
    assert history[-1] < history[0] - 0.1
