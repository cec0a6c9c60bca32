import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from peft import LoraConfig
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.errors import UsageError
from rewardlab.rm.kinds.latent.model import DEPTH_HEAD, LatentRewardModel, latent_from_config, load_latent
from rewardlab.rm.kinds.latent.objectives import aligned_tokens, bidirectional_kl, pair_returns, reinforce
from rewardlab.rm.kinds.latent.steps import states_without_cache
from rewardlab.rm.kinds.latent.training import LatentRow, LatentTask, encode_latent
from rewardlab.rm.training.fault_tolerance import Piece, split_in_half
from rewardlab.rm.training.trainer import RewardArguments, RewardTrainer
from rewardlab.rm.types import PreferencePair, user_turn
from transformers import EvalPrediction

from tests.rm.spread_models import spread

ROWS = [
    LatentRow([7, 8, 9, 10], [7, 9], 1.0, ([11, 12, 13], [14]), 0),
    LatentRow([9, 7, 8], [9, 10, 11, 12, 13], 0.25, ([], [8, 9]), 1),
    LatentRow([5, 6], [6, 5], 1.0, ([], []), 2),
]


def small(steps: int = 2, depth: str = "fixed", seed: int = 0) -> LatentRewardModel:
    tokenizer = small_tokenizer(["roba kano mino suba " * 20], 280)
    config = small_config(tokenizer, hidden=32, layers=1, heads=2)
    made = latent_from_config(config, tokenizer, latent_steps=steps, latent_depth=depth, seed=seed)
    spread(made.model.eval(), seed)
    return made


def test_formulas_of_steps_divergence_and_returns_by_hand():
    expected = [[1, 2, 3, 4], [2, 3, 5, 6], [1, 1, 1, 1], [0, 0, 0, 0]]
    assert aligned_tokens(torch.tensor([4, 6, 1, 0]), 4).tolist() == expected
    p, q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.2, 0.2, 0.6])
    expected = 0.5 * ((p * (p / q).log()).sum() + (q * (q / p).log()).sum())
    torch.testing.assert_close(bidirectional_kl(p.log() + 3.0, q.log()), expected)
    assert bidirectional_kl(p.log(), p.log()).item() == 0.0
    chosen, rejected = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 2.0]])
    returns = pair_returns(chosen, rejected, torch.tensor([0.75]), price=0.1)
    expected = [0.25, 0.25 - 0.05, 0.75 - 0.05, 0.0 - 0.1]  # equal scores are no order
    assert returns[0].flatten().tolist() == pytest.approx(expected)


def test_reinforce_follows_the_exact_gradient_on_average():
    draw = torch.Generator().manual_seed(0)
    chosen, rejected = (torch.randn(1, 3, generator=draw, dtype=torch.float64).requires_grad_() for _ in range(2))
    returns = torch.randn(1, 3, 3, generator=draw, dtype=torch.float64)
    p, q = chosen.softmax(1), rejected.softmax(1)
    exact = torch.autograd.grad(-torch.einsum("bt,bu,btu->", p, q, returns), [chosen, rejected], retain_graph=True)
    average = [torch.zeros_like(chosen), torch.zeros_like(chosen)]
    for t in range(3):
        for u in range(3):
            loss = reinforce(returns, chosen, rejected, (torch.tensor([t]), torch.tensor([u]))).sum()
            gradients = torch.autograd.grad(loss, [chosen, rejected], retain_graph=True)
            chance = (p[0, t] * q[0, u]).item()
            average = [total + chance * gradient for total, gradient in zip(average, gradients, strict=True)]
    for total, gradient in zip(average, exact, strict=True):
        torch.testing.assert_close(total, gradient)


def log_probs(model: LatentRewardModel, state: torch.Tensor) -> torch.Tensor:
    return model.model.lm_head(state).log_softmax(-1)


def by_hand(model: LatentRewardModel, ids: list[int], rationale: list[int], steps: int, terminal: bool = False):
    """Score after every step, divergences, and the rationale's mean negative log-likelihood, of a row alone."""
    inner = model.model
    states = states_without_cache(inner, ids, steps)
    scores = inner.latent_score(states)[:, 0]
    texts = [[*ids, *rationale[:index]] for index in range(len(rationale))]
    predictions = [log_probs(model, states_without_cache(inner, text, 0)[0]) for text in texts]
    divergences = [0.0]
    for t in range(1, steps + 1):
        token = len(rationale) if terminal else math.ceil(t * len(rationale) / steps)
        kl = bidirectional_kl(log_probs(model, states[t]), predictions[token - 1]).item() if rationale else 0.0
        divergences.append(kl)
    nll = -np.mean([predictions[index][token].item() for index, token in enumerate(rationale)]) if rationale else 0.0
    return scores.tolist(), divergences, nll


def nll_of(gap: float, wins: float) -> float:
    return wins * math.log1p(math.exp(-gap)) + (1 - wins) * math.log1p(math.exp(gap))


@torch.no_grad()
def test_the_loss_of_both_stages_by_hand():
    model = small(steps=2)
    task = LatentTask(model, alignment=0.7, rationale_weight=0.3)
    loss, outputs = task.loss(model.model, task.collate(ROWS))
    expected = 0.0
    for row, output in zip(ROWS, outputs.tolist(), strict=True):
        sides = [by_hand(model, ids, rationale, 2) for ids, rationale in zip(row[:2], row.rationales, strict=True)]
        assert output == pytest.approx([sides[0][0][2], sides[1][0][2], 2, 2], abs=1e-4)
        expected += nll_of(sides[0][0][2] - sides[1][0][2], row.wins)
        expected += sum(0.7 * sum(divergences) / 2 + 0.3 * nll for _, divergences, nll in sides) / 2
    assert loss.item() == pytest.approx(expected / 3, rel=1e-4)
    task = LatentTask(model, rationale_weight=0.0, stage_1_steps=5)
    loss, outputs = task.loss(model.model, task.collate(ROWS), step=4)
    scores = [[by_hand(model, ids, [], 0)[0][0] for ids in row[:2]] for row in ROWS]
    assert outputs[:, :2].tolist() == [pytest.approx(row, abs=1e-4) for row in scores]
    expected = np.mean([nll_of(first - second, row.wins) for (first, second), row in zip(scores, ROWS, strict=True)])
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert task.loss(model.model, task.collate(ROWS), step=5)[1][:, 2:].eq(2).all()


@torch.no_grad()
def test_the_loss_of_drawn_steps_by_hand():
    model = small(steps=3, depth="head")
    torch.nn.init.normal_(model.model.latent_depth.weight, generator=torch.Generator().manual_seed(3))
    task = LatentTask(model, alignment=0.7, rationale_weight=0.0, price=0.05, seed=1)
    loss, outputs = task.loss(model.model, task.collate(ROWS), step=2)
    expected = 0.0
    for row, (first, second, *drawn) in zip(ROWS, outputs.tolist(), strict=True):
        steps = [int(number) for number in drawn]
        texts = zip(row[:2], row.rationales, strict=True)
        sides = [by_hand(model, ids, rationale, 3, terminal=True) for ids, rationale in texts]
        scores = [torch.tensor([scores]) for scores, *_ in sides]
        chosen = [side[0][number] for side, number in zip(sides, steps, strict=True)]
        assert [first, second] == pytest.approx(chosen, abs=1e-4)
        heads = [model.model.latent_depth(states_without_cache(model.model, ids, 0)) for ids in row[:2]]
        returns = pair_returns(*scores, torch.tensor([row.wins]), 0.05)
        expected += nll_of(first - second, row.wins)
        expected += 0.7 * sum(side[1][number] for side, number in zip(sides, steps, strict=True)) / 2
        expected += reinforce(returns, *heads, tuple(torch.tensor([number]) for number in steps)).item()
    assert loss.item() == pytest.approx(expected / 3, rel=1e-3)


@torch.no_grad()
def test_draws_depend_on_seed_step_and_pair_and_follow_the_head():
    model = small(steps=3, depth="head")
    task = LatentTask(model, seed=1)
    together = task.loss(model.model, task.collate(ROWS), step=2)[1][:, 2:]
    alone = torch.cat([task.loss(model.model, task.collate([row]), step=2)[1][:, 2:] for row in ROWS])
    assert together.tolist() == alone.tolist()
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    drawn = task._sample_steps(logits.expand(40_000, -1), torch.arange(20_000), 0)
    shares = torch.bincount(drawn, minlength=4) / 40_000
    assert shares.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.01)
    assert not torch.equal(drawn, task._sample_steps(logits.expand(40_000, -1), torch.arange(20_000), 1))


def test_halves_of_a_batch_give_its_gradient_and_rationales_are_counted_and_cut():
    for depth in ["fixed", "head"]:
        model = small(steps=2, depth=depth)
        task = LatentTask(model, seed=1)
        inputs = Piece(task.collate(ROWS))
        loss = task.loss(model.model, inputs, 3)[0]
        parts = sum(task.loss(model.model, half, 3)[0] * task.items(half) / 3 for half in split_in_half(inputs, 3))
        assert parts.item() == pytest.approx(loss.item(), rel=1e-5), depth
    model = small()
    encoding, counts = encode_latent(model.encoder, pairs(8), "overall", longest=3)
    assert counts == (16, 12, 12)
    assert [len(row.rationales[0]) for row in encoding.rows] == [0, 3, 3, 3] * 2
    ids = model.encoder.tokenizer("no roba in").input_ids
    room = len(encoding.rows[1].chosen) + 2
    (short, *_), _ = encode_latent(model.encoder, pairs(8)[1:2], "overall", positions=room)
    assert len(short[0].rationales[0]) <= 2 and short[0].rationales[0] == ids[: len(short[0].rationales[0])]


def test_the_depth_head_learns_and_passes_no_gradient_to_the_backbone():
    model = small(steps=2, depth="head")
    torch.nn.init.normal_(model.model.latent_depth.weight, generator=torch.Generator().manual_seed(3))
    task = LatentTask(model, alignment=0.0, rationale_weight=0.0)
    outputs = task.outputs(model.model, task.collate(ROWS), 2)
    returns = pair_returns(*outputs.scores.detach().chunk(2), torch.ones(3), 0.1)
    steps = torch.tensor([0, 1, 2]), torch.tensor([2, 0, 1])
    reinforce(returns, *outputs.depths.chunk(2), steps).sum().backward()
    moved = {name for name, weight in model.model.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert moved == {f"{DEPTH_HEAD}.weight", f"{DEPTH_HEAD}.bias"}


def pairs(number: int, stated: bool = True) -> list[PreferencePair]:
    words = ["roba", "kano", "mino", "suba"]
    draw = np.random.default_rng(0)
    made = []
    for index in range(number):
        good, bad = (" ".join(draw.choice(words[part:], draw.integers(1, 6))) for part in (1, 0))
        texts = (f"no roba in {good}", f"roba in {bad}") if stated and index % 4 else ("", "")
        made.append(PreferencePair(str(index), user_turn("say"), f"{good} suba", f"roba {bad}", rationales=texts))
    return made


def test_alignment_without_rationales_is_refused_and_metrics_tell_accuracy_and_steps():
    model = small()
    rows = encode_latent(model.encoder, pairs(8, stated=False), "overall")[0].rows
    with pytest.raises(UsageError, match="no pair has one; add columns rationale_chosen"):
        LatentTask(model).check(rows)
    LatentTask(model, alignment=0.0).check(rows)
    outputs = np.array([[2.0, 1.0, 0, 3], [0.0, 1.0, 2, 2]])
    metrics = LatentTask(small()).metrics(EvalPrediction(outputs, np.array([1.0, 1.0])))
    assert (metrics["accuracy"], metrics["latent_steps"]) == (0.5, 1.75)


def arguments(folder, steps: int, **changes) -> RewardArguments:
    plain = RewardArguments(
        output_dir=str(folder), max_steps=steps, learning_rate=3e-3, per_device_train_batch_size=8, save_steps=2,
        save_strategy="steps", disable_tqdm=True, use_cpu=True, lr_scheduler_type="constant", seed=0,
    )  # fmt: skip
    return replace(plain, **changes)


def test_a_resumed_training_ends_with_the_same_weights(tmp_path):
    small(seed=2).save(tmp_path / "base")

    def train(name: str, steps: int, checkpoint: str | None = None) -> LatentRewardModel:
        adapters = LoraConfig(r=4, target_modules="all-linear")
        base = str(tmp_path / "base")
        model = load_latent(base, fresh=True, latent_steps=3, latent_depth="head", lora=adapters)
        rows = encode_latent(model.encoder, pairs(32), "overall")[0].rows
        task = LatentTask(model, stage_1_steps=1)
        RewardTrainer(model, arguments(tmp_path / name, steps), task, rows).train(resume_from_checkpoint=checkpoint)
        return model

    whole = train("whole", 4)
    train("part", 2)
    resumed = train("part", 4, str(tmp_path / "part" / "checkpoint-2"))
    for name, weight in whole.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], weight, msg=name)
    assert whole.language_model.latent_depth.weight.abs().sum() > 0
