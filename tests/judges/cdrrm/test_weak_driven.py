"""judges/cdrrm/weak_driven.py: the loss on the mixed logits of a model and an earlier one, by hand and in training."""

import copy
import math

import pytest
import torch
from datasets import Dataset
from rewardlab.benchmarks import garden
from rewardlab.benchmarks.garden.models import causal_lm, tokenizer
from rewardlab.judges.cdrrm.training import SupervisedSettings, train
from rewardlab.judges.cdrrm.weak_driven import IGNORED, WeakDrivenTrainer, mixed_cross_entropy, mixed_loss
from rewardlab.rm.errors import UsageError
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM
from trl import SFTConfig


def test_loss_and_gradient_by_hand_and_plain_cross_entropy_without_a_share_of_the_weak_model():
    """(0, 0) / 2 + (0, ln 9) / 2 = (0, ln 3): 1/4 for token 0, so a loss of ln 4 and (1/4 - 1, 3/4) / 2 as gradient."""
    strong = torch.zeros(2, 2, requires_grad=True)
    weak = torch.tensor([[0.0, math.log(9)], [5.0, 5.0]], requires_grad=True)
    loss = mixed_cross_entropy(strong, weak, torch.tensor([0, IGNORED]), 0.5)
    assert loss.tolist() == [pytest.approx(math.log(4)), 0.0]
    loss.sum().backward()
    assert strong.grad is not None and weak.grad is None
    assert strong.grad.tolist() == [pytest.approx([-0.375, 0.375]), [0.0, 0.0]]
    strong, weak = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([1, 2, IGNORED, 4, 5])
    plain = cross_entropy(strong, targets, reduction="none")
    torch.testing.assert_close(mixed_cross_entropy(strong, weak, targets, 1.0), plain)
    assert plain[2] == 0


def test_the_reduction_is_over_learnt_tokens_and_at_the_minimum_the_model_is_extrapolated():
    """Texts with p = (0.9, 0.1) and a weak model of (0.5, 0.5), λ = 1/2: the loss is least at p² / p_weak, 81 to 1."""
    texts, weak = torch.tensor([0.9, 0.1]), torch.full((2, 2), math.log(0.5))
    strong = torch.tensor([math.log(81), 0.0], requires_grad=True)
    loss = (texts * mixed_cross_entropy(strong.expand(2, 2), weak, torch.tensor([0, 1]), 0.5)).sum()
    loss.backward()
    assert strong.grad is not None and strong.grad.tolist() == pytest.approx([0, 0], abs=1e-6)
    assert loss.item() == pytest.approx(-0.9 * math.log(0.9) - 0.1 * math.log(0.1))
    outputs = type("Outputs", (), {"logits": torch.zeros(2, 3, 4)})
    labels = torch.tensor([[IGNORED, 1, 2], [IGNORED, IGNORED, 3]])
    weak = torch.zeros(2, 3, 4)
    assert mixed_loss(outputs, labels, weak, 0.5).item() == pytest.approx(math.log(4))
    assert mixed_loss(outputs, labels, weak, 0.5, torch.tensor(12)).item() == pytest.approx(math.log(4) / 4)
    assert mixed_loss(outputs, torch.full((2, 3), IGNORED), weak, 0.5).item() == 0


@pytest.fixture(scope="module")
def words():
    return tokenizer()


@pytest.fixture(scope="module")
def records():
    rows = [(one.prompt, one.completion) for one in garden.supervised_examples(8, 0)]
    return [{"prompt": [*map(dict, a)], "completion": [{"role": "assistant", "content": b}]} for a, b in rows]


def trainer(words, records, folder, **options):
    args = SFTConfig(output_dir=str(folder), per_device_train_batch_size=4, completion_only_loss=True, use_cpu=True,
                     bf16=False, report_to="none", max_steps=1, save_strategy="no", disable_tqdm=True)  # fmt: skip
    model = causal_lm(words, seed=0)
    data = Dataset.from_list(records)
    return WeakDrivenTrainer(model=model, args=args, train_dataset=data, processing_class=words, **options)


def test_the_trainers_loss_and_gradient_are_the_mixtures(words, records, tmp_path):
    weak = causal_lm(words, seed=1)
    before = copy.deepcopy(weak.state_dict())
    made = trainer(words, records, tmp_path, weak=weak, share=0.4)
    batch = next(iter(made.get_train_dataloader()))
    made.model.train()
    loss = made.compute_loss(made.model, dict(batch))
    loss.backward()
    found = {name: one.grad for name, one in made.model.named_parameters()}
    strong, labels = causal_lm(words, seed=0), batch["labels"][:, 1:]
    read = {name: batch[name] for name in ("input_ids", "attention_mask")}
    mixed = 0.4 * strong(**read).logits + 0.6 * causal_lm(words, seed=1)(**read).logits.detach()
    expected = -mixed[:, :-1].log_softmax(-1)[labels != IGNORED].gather(1, labels[labels != IGNORED][:, None]).mean()
    expected.backward()
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    for name, one in strong.named_parameters():
        torch.testing.assert_close(found[name], one.grad, atol=1e-5, rtol=1e-4)
    assert all(one.grad is None and not one.requires_grad for one in weak.parameters())
    assert all(torch.equal(before[name], one) for name, one in weak.state_dict().items())


def test_the_trained_model_alone_is_saved(words, records, tmp_path):
    weak, strong = (causal_lm(words, seed=seed) for seed in (1, 0))
    weak.save_pretrained(tmp_path / "weak")
    words.save_pretrained(tmp_path / "weak")
    start = copy.deepcopy(strong.state_dict())
    how = SupervisedSettings(
        steps=2, batch=2, accumulate=2, learning_rate=1e-3, weak=str(tmp_path / "weak"), strong_share=0.5
    )
    folder = train(strong, records, tmp_path / "run", how, words)
    saved = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    distance = {name: (saved[name] - one).abs().max().item() for name, one in start.items()}
    assert 0 < max(distance.values()) < 0.01, "two steps of AdamW from the strong model"


def test_a_share_outside_its_range_and_a_weaker_model_with_other_tokens_are_refused(words, records, tmp_path):
    for share in [0.0, -0.5, 1.5]:
        with pytest.raises(UsageError, match=r"strong_share must be a share in \(0, 1\], got"):
            SupervisedSettings(strong_share=share)
    other = tokenizer()
    other.add_tokens(["<other>"])
    weak = causal_lm(words, seed=1)
    weak.resize_token_embeddings(len(other))
    weak.save_pretrained(tmp_path / "weak")
    other.save_pretrained(tmp_path / "weak")
    with pytest.raises(UsageError, match="has another tokenizer; give an earlier checkpoint"):
        train(causal_lm(words), records, tmp_path / "run", SupervisedSettings(weak=str(tmp_path / "weak")), words)
    with pytest.raises(UsageError, match="give an earlier checkpoint of the same model"):
        trainer(words, records, tmp_path / "b", weak=weak, share=0.5)
