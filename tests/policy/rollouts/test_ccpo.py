"""CCPO: a thinker's and a solver's credit against plain loops, and whose prompt a thought is in."""

import json
import math

import pytest
import torch
from rewardlab.benchmarks import garden
from rewardlab.policy.advantages.ccpo import adv_ccpo, bonus, ccpo
from rewardlab.policy.advantages.dr_grpo import dr_grpo
from rewardlab.policy.decoding.engines import decoding_model
from rewardlab.policy.decoding.search import derived
from rewardlab.policy.rollouts import ccpo as search
from rewardlab.policy.rollouts._partners import sample_texts, with_role, with_thought
from rewardlab.policy.transforms.ccpo_solver import ccpo_solver
from rewardlab.policy.transforms.ccpo_thinker import ccpo_thinker
from rewardlab.policy.types import Rewards, Rollout
from rewardlab.rm.data.conversation_split import as_prompt
from rewardlab.rm.errors import DataError, UsageError

from tests.policy.rollouts.stand_in_trainer import stand_in_trainer

NAN = math.nan


def column(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def rollout(group) -> Rollout:
    rows = len(group)
    return Rollout(torch.tensor(group), torch.ones(rows, 2, dtype=torch.bool), torch.ones(rows, dtype=torch.bool))


def verdicts(seed: int, rows: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(2, (rows, 2), generator=generator).double() * 2 - 1
    return values.masked_fill(torch.rand(rows, 2, generator=generator) < 0.1, NAN)


def test_a_thought_that_helps_where_the_solver_alone_fails_counts_more_and_equal_rewards_bring_nothing():
    """Alone -1/2 on average: joint 1 gets 1.2 and -1 stays; their mean is 0.1. Alone 1/2: -1 gets -1.2, mean -0.1."""
    joint, group = column(1, -1, 1, -1, 1, -1, 1, -1), torch.tensor([0] * 4 + [1] * 4)
    solo = column(-1, -1, 1, -1, 1, 1, -1, 1)
    assert bonus(joint, solo, group, 0.0).tolist() == [1, 0, 1, 0, 0, -1, 0, -1]
    thinker, solver = adv_ccpo(joint, solo, group, 0.2, 0.0)
    torch.testing.assert_close(thinker, column(1.1, -1.1, 1.1, -1.1, 1.1, -1.1, 1.1, -1.1))
    assert solver.tolist() == joint.tolist()
    joint, group = column(1, -1, 1, -1), torch.tensor([0] * 4)
    assert bonus(joint, column(1, -1, -1, 1), group, 0.0).tolist() == [0, 0, 0, 0]
    assert bonus((joint + 1) / 2, column(0, 0, 1, 0), group, 0.5).tolist() == [1, 0, 1, 0]
    joint, solo = column(1, NAN, -1, -1, 1, -1), column(NAN, -1, NAN, -1, NAN, NAN)
    thinker, solver = adv_ccpo(joint, solo, torch.tensor([0, 0, 0, 0, 1, 1]), 0.2, 0.0)
    # r is 1.2, -, -1, -1 with mean -0.8/3; nobody was alone in the second group
    torch.testing.assert_close(thinker, column(1.2 + 0.8 / 3, 0, -1 + 0.8 / 3, -1 + 0.8 / 3, 0, 0))
    torch.testing.assert_close(solver, column(1 + 1 / 3, 0, -2 / 3, -2 / 3, 1, -1))


def test_the_estimator_is_the_thinkers_and_refuses_what_makes_no_sense():
    """Verdicts of 0 and 1 are half as far apart: λ = 1/2 is then what 1 is for -1 and 1."""
    values, batch = verdicts(3), rollout([0] * 4 + [1] * 4 + [2] * 4)
    verdict = (values + 1) / 2
    torch.testing.assert_close(
        ccpo([1.0, 1.0], lam=0.5)(verdict, batch), adv_ccpo(*values.unbind(1), batch.group, 1.0, 0.0)[0] / 2
    )
    with pytest.raises(ValueError, match="needs two rewards, joint and solo, got 3"):
        ccpo()(torch.ones(4, 3), rollout([0] * 4))
    with pytest.raises(ValueError, match="must have weight 1, got"):
        ccpo([1.0, 0.5])
    with pytest.raises(ValueError, match=r"lam must be at least 0, got -0\.1"):
        ccpo(lam=-0.1)


def test_a_solvers_rewards_worked_out_by_hand():
    """Rows 0 and 2 make a pair, and so do 1 and 3: joint 3 and 1, alone 1 and 1, Δ = 2 and 0.

    Then joint 4 and 0 are 2 above and 2 below their mean of 2, alone 1 and -1 are 0 and 2 below, as the deviation of
    equal rewards counts as 1; Δ = 3 and 1.
    """
    made, batch = ccpo_solver(reward="gold", eta=2.0, decay=0.8, least=2, epsilon=0.0), rollout([0] * 4)
    state, raw = made.change({"seen": 0}, Rewards(column(3, 1, 1, 1)[:, None], ("gold",)), batch)
    assert raw["gold"].tolist() == [3, 1, 1, 1] and state["delta"] == [1.0, 1.0] and state["joint"] == [2.0, 1.0]
    state = json.loads(json.dumps(state))
    after, shaped = made.change(state, Rewards(column(4, 0, 1, -1)[:, None], ("gold",)), batch)
    g = 1 / (1 + math.exp(-2.0))
    expected = [2 * g, -2 * g - 2 * (1 - g)]
    assert shaped["gold"].tolist() == pytest.approx(expected * 2)
    assert after["seen"] == 4 and after["delta"] == pytest.approx([1.2, 1.0])
    assert {*after} == {"seen", "delta", "joint", "solo"}


def test_a_thinkers_rewards_worked_out_by_hand():
    # First step Δ = 3 and 1: μ 2, σ 1. Then Δ = 3 is tanh 1 and 2 is 0; μ becomes 0.9 · 2 + 0.1 · 2.5
    made = ccpo_thinker(joint="r.joint", solo="r.solo", decay=0.9, least=2, epsilon=0.0)
    names, batch = ("r.joint", "r.solo"), rollout([0, 0])
    state, raw = made.change({"seen": 0}, Rewards(torch.tensor([[4.0, 1.0], [1.0, 0.0]]).double(), names), batch)
    assert raw["r.joint"].tolist() == [3.0, 1.0] and state == {"seen": 2, "delta": [2.0, 1.0]}
    state, shaped = made.change(state, Rewards(torch.tensor([[3.0, 0.0], [1.0, -1.0]]).double(), names), batch)
    assert shaped["r.joint"].tolist() == pytest.approx([math.tanh(1), 0.0])
    assert state["seen"] == 4 and state["delta"] == pytest.approx([2.05, 0.925])
    made, state = ccpo_thinker(joint="r.joint", solo="r.solo", least=1), {"seen": 0}
    for step in range(3):
        same = verdicts(step, 4)[:, :1].nan_to_num(0).expand(-1, 2)
        state, after = made.change(state, Rewards(same, ("r.joint", "r.solo")), rollout([0] * 4))
        assert after["r.joint"].tolist() == [0.0] * 4


def test_what_cannot_be_paired_or_counted_twice_is_refused():
    with pytest.raises(ValueError, match="pairs need groups of even size, got 3"):
        ccpo_solver(reward="r").change({"seen": 0}, Rewards(torch.ones(3, 1), ("r",)), rollout([0] * 3))
    with pytest.raises(ValueError, match="'r.solo' is already part of the difference"):
        ccpo_thinker(joint="r.joint", solo="r.solo").check(dr_grpo(), ["r.joint", "r.solo"])
    assert ccpo_thinker(joint="r.joint", solo="r.solo").check(dr_grpo(), ["r.joint"]) is None
    for made, names in ((ccpo_thinker, {"joint": "r.joint", "solo": "r.solo"}), (ccpo_solver, {"reward": "r"})):
        with pytest.raises(ValueError, match=r"decay must be in \[0, 1\) and `least` 1 or more, got 1.0 and 10"):
            made(**names, decay=1.0)
    empty = Rewards(torch.full((2, 2), NAN), ("r.joint", "r.solo"))
    assert ccpo_thinker(joint="r.joint", solo="r.solo").change({"seen": 0}, empty, rollout([0, 0]))[0] == {"seen": 0}


def trainer_of(base, words, size=4, longest=16):
    """A trainer that draws each prompt's length."""

    def draw(ids, images, fields, num_generations):
        return [[len(one)] for one in ids], None

    changes = {"num_generations": size, "max_completion_length": longest, "_generate_single_turn": draw}
    return stand_in_trainer(base, words, **changes)


@pytest.fixture
def thinker(base, words, monkeypatch):
    """Opened without a folder."""
    own = decoding_model(base, words)
    monkeypatch.setattr(search, "open_partner", lambda source, **options: own)
    return own


def test_the_first_half_of_a_group_reads_a_thought_and_the_second_does_not(base, words, thinker):
    trainer, prompts = trainer_of(base, words), [list(one) for one in garden.prompts(2, 0) for _ in range(4)]
    found = search.ccpo(thinker="any", longest=8, seed=7)(prompts, trainer)
    plain = [trainer.encoder.encode_prompt(as_prompt(one)) for one in prompts]
    thoughts = {}
    for place in (0, 1, 4, 5):
        (thoughts[place],) = sample_texts(thinker, [as_prompt(prompts[place])], [derived(7, 4, place)], 8)
        shown = trainer.encoder.encode_prompt(with_thought(as_prompt(prompts[place]), thoughts[place]))
        assert found["prompt_ids"][place] == shown and len(shown) > len(plain[place])
        assert words.decode(shown).count(thoughts[place]) == 1
    assert all(found["prompt_ids"][place] == plain[place] for place in (2, 3, 6, 7))
    assert found["completion_ids"] == [[len(one)] for one in found["prompt_ids"]] and found["logprobs"] is None
    assert len({*thoughts.values()}) == 4 and trainer.noted == [("ccpo/told", 0.5)]


def test_all_read_a_thought_where_nobody_answers_alone(base, words, thinker):
    trainer, prompts = trainer_of(base, words, size=3), [list(one) for one in garden.prompts(1, 0)] * 3
    found = search.ccpo(thinker="any", alone=False, longest=8)(prompts, trainer)
    plain = trainer.encoder.encode_prompt(as_prompt(prompts[0]))
    assert all(len(one) > len(plain) for one in found["prompt_ids"]) and trainer.noted == [("ccpo/told", 1.0)]


def test_a_role_is_the_partners_and_not_the_policys(base, words, thinker, tmp_path):
    (tmp_path / "role.txt").write_text("with some honey\n")
    prompt = ({"role": "system", "content": "hello friend"}, *garden.prompts(1, 0)[0])
    found = search.ccpo(thinker="any", longest=8, role=str(tmp_path / "role.txt"))(
        [list(prompt)] * 2, trainer_of(base, words, 2)
    )
    (thought,) = sample_texts(thinker, [with_role(prompt, "with some honey")], [derived(0, 4, 0)], 8)
    assert with_role(prompt, "with some honey")[0]["content"] == "with some honey" and len(with_role(prompt, "x")) == 2
    expected = [trainer_of(base, words).encoder.encode_prompt(one) for one in (with_thought(prompt, thought), prompt)]
    assert found["prompt_ids"] == expected
    with pytest.raises(DataError, match="no such file; a role is the path of a text file"):
        search.ccpo(thinker="any", role=str(tmp_path / "none.txt"))


def test_what_cannot_be_drawn_is_refused(base, words, thinker):
    prompts = [list(one) for one in garden.prompts(1, 0)] * 3
    with pytest.raises(UsageError, match="--num_generations must be even, got 3"):
        search.ccpo(thinker="any")(prompts, trainer_of(base, words, size=3))
    with pytest.raises(UsageError, match="the policy's context has room for 6 and a completion; lower longest"):
        search.ccpo(thinker="any", longest=8)(prompts[:2], trainer_of(base, words, size=2, longest=250))
    with pytest.raises(ValueError, match="at least 1 token, got longest=0"):
        search.ccpo(thinker="any", longest=0)
