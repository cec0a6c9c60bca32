"""The self-teacher of SDPO: who gets which hint, and what the policy says with it."""

import math

import pytest
import torch
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.step.forward import completion_batch
from rewardlab.policy.training.self_teacher import HINT, hinted_prompts, with_hint
from rewardlab.policy.transforms.sdpo import sdpo
from rewardlab.policy.types import Rollout, Transform
from rewardlab.rm.types import Example

from tests.policy.toy_training import algorithm

NAN = math.nan


def test_the_hint_is_the_best_other_completion_above_the_mean():
    prompt = ({"role": "user", "content": "q"},)
    examples = [Example(prompt, text) for text in "abcdefgh"]
    # of the first three, c is above the mean 1, and nobody else beside it; equal rewards have no hint
    total = torch.tensor([0.0, 0.5, 2.5, 1.0, 1.0, 1.0, NAN, 3.0])
    hints = [hint and hint[-1]["content"] for hint in hinted_prompts(examples, total, 3)]
    c = HINT.format("c")
    assert hints == [c, c, None, None, None, None, None, None]
    total = torch.tensor([3.0, 2.0, 0.0, 0.0])
    hints = [hint and hint[-1]["content"] for hint in hinted_prompts(examples[:4], total, 4)]
    a, b = HINT.format("a"), HINT.format("b")
    assert hints == [b, a, a, a]


def test_the_advantage_is_what_the_teacher_adds_to_the_log_probability():
    response = torch.tensor([[True, True], [True, False], [True, True]])
    logprobs = torch.tensor([[-1.0, -2.0], [-3.0, 0.0], [-1.0, -1.0]])
    teacher = torch.tensor([[-0.5, -2.5], [NAN, NAN], [-0.5, -0.5]])
    rollout = Rollout(torch.zeros(3, dtype=torch.long), response, torch.ones(3, dtype=torch.bool), logprobs=logprobs,
                      teacher=teacher, total=torch.tensor([1.0, 0.0, NAN]))  # fmt: skip
    found = sdpo(weight=2.0, keep=0.5).change({}, torch.tensor([1.0, -1.0, 0.0]), rollout)[1]
    assert found.tolist() == [[1.5, -0.5], [-0.5, 0.0], [0.0, 0.0]]
    with pytest.raises(ValueError, match="`weight` must be above 0"):
        sdpo(weight=0.0)


def test_a_run_reads_the_completions_with_the_hint_before_them(make_trainer):
    seen = []

    def keep(state, advantages, rollout):
        seen.append(rollout.teacher)
        return state, advantages

    reads = Transform("advantage", keep, stage=4, reads=("teacher",))

    def rewards(examples):
        return [float(index % 4 == 0) for index in range(len(examples))]

    trainer = make_trainer(algorithm(advantage_transforms={"kept": reads}), RewardSources({"r": rewards}), max_steps=1)
    batches, generate = [], trainer._generate_and_score_completions

    def recorded(inputs):
        texts = generate(inputs)
        batches.append((texts, list(trainer._examples)))
        teacher = seen[-1]
        for row, example in enumerate(trainer._examples):
            if row % 4 == 0:
                assert teacher[row].isnan().all()
                continue
            hint = with_hint(example.prompt, trainer._examples[row // 4 * 4].text)
            ids = torch.tensor([trainer.encoder.encode_prompt(hint)])
            mask = texts["completion_mask"][row : row + 1]
            completion = texts["completion_ids"][row : row + 1]
            rows = completion_batch(ids, torch.ones_like(ids), completion, mask, mask.bool())
            truth = trainer._read(trainer.model, rows).logprob
            torch.testing.assert_close(teacher[row : row + 1, : truth.shape[1]], truth, atol=1e-4, rtol=0)
        return texts

    trainer._generate_and_score_completions = recorded
    trainer.train()
    assert batches
