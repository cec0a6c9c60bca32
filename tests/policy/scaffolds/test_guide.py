"""Guide: hints only after a failure, and ratios relative to the policy with the hints."""

import math
from types import SimpleNamespace

import pytest
import torch
from rewardlab.policy.scaffolds._scaffold import Hints, scaffold_rollouts
from rewardlab.policy.scaffolds.guide import guide
from rewardlab.policy.types import Rewards
from rewardlab.rm.types import prompt_text

from tests.policy.scaffolds.test_scaffold import Engine
from tests.policy.toy_training import algorithm


class Rated(Engine):
    """Rewards the completions whose prompt has a digit, which are those of the first group; it has the second seen."""

    class Sources:
        reads_states, trained = False, ("gold",)

        def __call__(self, examples, *, rows, finished):
            self.rows = rows
            return Rewards(torch.tensor([[float("1" in prompt_text(one.prompt))] for one in examples]), ("gold",)), []

    def __init__(self, training=True, **shares):
        super().__init__(training=training)
        self.algorithm = algorithm(shares=shares)
        prompts = [[{"role": "user", "content": text}] for text in ("Tell me 1.", "Tell me.")]
        self.train_dataset = [{"prompt": prompt, "row": row + 7} for row, prompt in enumerate(prompts)]
        self.sources, self.eos_token_ids, self.processing_class = self.Sources(), [1], self
        self.accelerator = SimpleNamespace(device="cpu")

    def _tokenize_prompts(self, prompts):
        """Words by their lengths."""
        ids, *others = super()._tokenize_prompts(prompts)
        return [[len(word) for word in words] for words in ids], *others

    def _get_per_token_logps_and_entropies(self, model, ids, attention, width):
        """Minus the sum of the prompt's ids."""
        total = (ids * attention)[:, :-width].sum(1, keepdim=True)
        return -total.expand(-1, width).float(), None, None

    def batch_decode(self, ids, skip_special_tokens):
        return [str(one) for one in ids]


def test_a_failed_group_is_generated_again_with_hints():
    engine = Rated()
    prompts = [row["prompt"] for row in engine.train_dataset for _ in range(2)]
    found = scaffold_rollouts(lambda prompt: Hints(("wax",)), guide())(prompts, engine)
    assert engine.sources.rows == [7, 7, 8, 8] and engine.noted == [("scaffold/hinted", 0.5)]
    solved, failed = found["completion_ids"][:2], found["completion_ids"][2:]
    assert solved == [[4], [4]] and failed[0] == failed[1] and failed[0][0] > 20  # words of the prompts
    assert [math.isnan(row[0]) for row in found["logprobs"]] == [True, True, False, False]
    plain, hinted = sum(map(len, ["user:", "Tell", "me."])), -found["logprobs"][2][0]
    assert hinted > plain + 50 and found["logprobs"][2] == found["logprobs"][3]  # after the prompt with hints
    assert [len(ids) for ids in found["prompt_ids"]] == [4, 4, 3, 3]


def test_a_success_is_a_weighted_reward():
    engine = Rated(gold=0.0)
    prompts = [row["prompt"] for row in engine.train_dataset for _ in range(2)]
    scaffold_rollouts(lambda prompt: Hints(("wax",)), guide())(prompts, engine)
    assert engine.noted == [("scaffold/hinted", 1.0)]


def test_evaluation_is_without_hints_and_shares_are_checked():
    engine = Rated(training=False)
    found = scaffold_rollouts(lambda prompt: Hints(("wax",)), guide())([engine.train_dataset[1]["prompt"]], engine)
    assert found["completion_ids"] == [[3]] and found["logprobs"] is None
    assert guide(share=0.5)(0.3, 2) == [0.5, 0.5]
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\]"):
        guide(share=0.0)
