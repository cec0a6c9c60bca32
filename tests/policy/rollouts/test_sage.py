"""SAGE-RL: which answers are searched, and how they are in the training."""

import pyarrow.parquet as pq
import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.policy.decoding.engines import SeparateModels, decoding_model
from rewardlab.policy.decoding.guided import decode
from rewardlab.policy.decoding.requests import Request
from rewardlab.policy.decoding.search import derived
from rewardlab.policy.rollouts.sage import sage
from rewardlab.rm.errors import UsageError
from rewardlab.rm.registry import names
from rewardlab.rm.types import user_turn

from tests.policy.rollouts.stand_in_trainer import stand_in_trainer
from tests.policy.toy_training import logged
from tests.policy.toy_training import prompts as toy_prompts

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
DRAWN, LONGEST = [5], 24


def trainer_of(base, words, training=True):
    """A trainer that draws one token for every prompt."""

    def draw(ids, images, fields, num_generations):
        return [DRAWN for _ in ids], None

    return stand_in_trainer(base, words, training, max_completion_length=LONGEST, _generate_single_turn=draw)


def phi(base, before, chain) -> float:
    """By one forward of the whole text."""
    with torch.no_grad():
        logp = base(torch.tensor([[*before, *chain]])).logits[0].log_softmax(-1)
    said = [logp[len(before) - 1 + t, token].item() for t, token in enumerate(chain)]
    return sum(said) / len(said)


def by_loop(base, words, prompt, seed, m, r, step_end) -> list[list[int]]:
    """A beam in plain lists; each step of each chain is decoded alone."""
    own = decoding_model(base, words)
    before, live, whole, step = own.encoder.encode_prompt(prompt), [()], [], 0
    while live and len(whole) < r:
        chains = []
        for place, parent in enumerate([one for one in live for _ in range(2 * m)]):
            asked = Request(
                prompt, prefix=parent, seed=derived(seed, step, place), stop=(step_end,),
                max_new_tokens=LONGEST - len(parent),
            )  # fmt: skip
            chain = (*parent, *decode(SeparateModels(own), [asked])[0].tokens)
            if chain not in chains:
                chains.append(chain)
        kept = sorted(chains, key=lambda chain: -phi(base, before, chain))[:m]
        whole += [chain for chain in kept if chain[-1] == words.eos_token_id]
        live = [chain for chain in kept if chain[-1] != words.eos_token_id and len(chain) < LONGEST]
        step += 1
    return [[*chain] for chain in sorted(whole, key=lambda chain: -phi(base, before, chain))[:r]]


def test_the_first_rows_of_a_group_are_its_plain_loop_and_the_others_are_drawn(base, words):
    trainer, prompts = trainer_of(base, words), garden.prompts(2, 0)
    asked = [[dict(turn) for turn in prompt] for prompt in prompts for _ in range(4)]
    found = sage(r=2, m=2, step_end="the", seed=7)(asked, trainer)
    assert found["logprobs"] is None and found["prompt_ids"] == trainer._tokenize_prompts(asked)[0]
    number = 0
    for place, prompt in enumerate(prompts):
        searched = by_loop(base, words, prompt, derived(7, 4, place), 2, 2, "the")
        assert found["completion_ids"][4 * place : 4 * place + 4] == searched + [DRAWN] * (4 - len(searched))
        number += len(searched)
    assert 3 <= number <= 4 and trainer.noted == [("sage/searched", number / 8)]


def test_an_evaluation_searches_nothing_where_no_chain_ends_all_are_drawn_and_refusals(base, words):
    trainer = trainer_of(base, words, training=False)
    assert sage(r=2)([list(user_turn("describe bees"))] * 4, trainer)["completion_ids"] == [DRAWN] * 4
    assert trainer.noted == []
    # One step of a word is never a whole answer
    trainer = trainer_of(base, words)
    trainer.max_completion_length = 1
    assert sage(r=3)([list(user_turn("describe bees"))] * 4, trainer)["completion_ids"] == [DRAWN] * 4
    assert names("policy.rollouts") == ["ccpo", "dacr", "ead", "latr", "sage", "vllm"]
    with pytest.raises(UsageError, match="sage: r is 4 and a group has 4 completions"):
        sage(r=4)([list(user_turn("describe bees"))] * 4, trainer_of(base, words))
    for settings in ({"r": 0}, {"m": 0}, {"max_steps": 0}, {"step_end": ""}):
        with pytest.raises(ValueError, match="at least 1 and step_end not empty"):
            sage(**settings)


def test_in_a_training_they_are_read_as_the_policy_finds_them(base, make_trainer, tmp_path):
    """Log-probabilities are those of one forward, ratios begin at 1, and the searched have the higher Φ."""
    changes = {"max_steps": 1, "rollout_steps": 1, "max_completion_length": 32}
    trainer = make_trainer(data=toy_prompts(16), rollout_func=sage(r=2, step_end="the"), **changes)
    trainer.train()
    assert logged(trainer, "ratio") == pytest.approx([1], abs=1e-4) and trainer.model.training
    assert logged(trainer, "sage/searched") == [0.5] and logged(trainer, "grad_norm")[0] > 0
    rows = pq.read_table(tmp_path / "run" / "rollouts" / "step-000000.parquet").to_pylist()
    means: dict[bool, list[float]] = {True: [], False: []}
    for place, row in enumerate(rows):
        before = trainer.encoder.encode_prompt(user_turn(row["prompt"].removeprefix("user: ")))
        means[place % 4 < 2].append(phi(base, before, row["tokens"]))
        assert sum(row["logprobs"]) / row["length"] == pytest.approx(means[place % 4 < 2][-1], abs=1e-4)
    assert sum(means[True]) / 8 > sum(means[False]) / 8 + 0.1
