"""LATR: groups of completions that branch at uncertain tokens."""

import pytest
import torch
from rewardlab.policy.rollouts.latr import latr
from rewardlab.rm.types import user_turn

from tests.policy.rollouts.stand_in_trainer import stand_in_trainer

PROMPTS = [[dict(turn) for turn in user_turn(text)] for text in ("describe bees", "describe ponds") for _ in range(4)]


def trainer_of(base, words, training=True):
    def draw(ids, images, fields, num_generations):
        return [[5] for _ in ids], None

    return stand_in_trainer(base, words, training, max_completion_length=8, _generate_single_turn=draw)


def test_branches_take_the_other_likely_token(base, words):
    """With loose limits every token is a branch point: each branch has a common start with a chain before it, and its
    next token is one of the two likeliest.
    """
    trainer, rollout = trainer_of(base, words), latr(second=1e-9, gap=1.0, lookahead=2, least=0.0)
    found = rollout(PROMPTS, trainer)
    assert trainer.noted == [("latr/branches", 1.0)] and found["logprobs"] is None
    for row, chain in enumerate(found["completion_ids"]):
        assert 1 <= len(chain) <= 8
        if row % 4:
            earlier = found["completion_ids"][row // 4 * 4 : row]
            common = max(sum(1 for _ in same(chain, other)) for other in earlier)
            with torch.no_grad():
                ids = [*found["prompt_ids"][row], *chain[:common]]
                likely = base(torch.tensor([ids])).logits[0, -1].topk(2).indices.tolist()
            assert chain[common] in likely
    assert rollout(PROMPTS, trainer)["completion_ids"] == found["completion_ids"]


def same(a, b):
    for x, y in zip(a, b, strict=False):
        if x != y:
            return
        yield x


def test_a_group_without_branch_points_and_an_evaluation_are_sampled(base, words):
    found = latr(second=0.5)(PROMPTS, trainer_of(base, words))["completion_ids"]
    assert [row for row in range(8) if found[row] != [5]] == [0, 4]
    assert latr()(PROMPTS, trainer_of(base, words, training=False))["completion_ids"] == [[5]] * 8
    with pytest.raises(ValueError, match="latr: second must be in"):
        latr(second=0.9)
