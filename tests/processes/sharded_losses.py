"""Every loss on a model that FSDP2 has split over two processes, beside that on the whole model; run by torchrun."""

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator, PartialState
from rewardlab.apps.runs.processes import leave
from rewardlab.kernels.policy_loss import ClipRule, policy_loss
from rewardlab.policy.advantages._groups import bounds_of_rows
from rewardlab.policy.losses._kinds import TokenLoss
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.step.forward import CompletionBatch, completion_states, install, own_states
from rewardlab.policy.step.step import Processes, completion_loss_inputs
from rewardlab.policy.training.critic import CriticArguments, CriticLearner, Targets
from rewardlab.rm.adapters.adapter import attach
from rewardlab.rm.adapters.settings import AdapterSettings
from rewardlab.rm.backbones.forward_hooks import install as install_reading
from rewardlab.rm.backbones.loading import small_config, small_tokenizer
from rewardlab.rm.backbones.sequence_scores import sequence_scores
from rewardlab.rm.contract.golden_scores import check_golden, write_golden
from rewardlab.rm.contract.scoring_contract import ScoringContract
from rewardlab.rm.data.preference_vectors import dirichlet
from rewardlab.rm.io.sharded_weights import gather_tensor
from rewardlab.rm.kinds.autoregressive.preference_task import PreferenceRow, PreferenceTask
from rewardlab.rm.kinds.multi_objective.training import ObjectiveRow, ObjectivesTask
from rewardlab.rm.kinds.scalar.model import scalar_from_config
from rewardlab.rm.kinds.scalar.training import PairRow, ScalarTask
from rewardlab.rm.load import load_reward_model
from rewardlab.rm.losses.grebt import extremes, grebt
from rewardlab.rm.losses.sequence_logistic import FORMS, sequence_logistic
from rewardlab.rm.registry import load, names
from rewardlab.rm.training.distributed import reduce_gradients
from rewardlab.rm.types import Example, user_turn
from safetensors.torch import load_file
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

ROWS, GROUP, LENGTH, PROMPT = 8, 4, 9, 3
TEXTS = [f"the quick brown fox number {number} jumps over the lazy dog" for number in range(60)]
WORDS = small_tokenizer(TEXTS, 120)
DRAWS = torch.Generator().manual_seed(0)
TOKENS = torch.randint(4, 100, (2 * ROWS, LENGTH), generator=DRAWS)
SETTINGS = {
    "boosted": {"share": 0.5}, "kimi": {"tau": 0.5}, "p3o": {"epsilon": 0.2}, "rpo": {"beta": 0.5, "eta": 1.0},
    "cispo": {"high": 1.3}, "hacpo": {"delta": 0.8},
    "dispo": {"right_low": 0.0, "right_high": 1.3, "wrong_low": 0.5, "wrong_high": 2.0},
}  # fmt: skip
BOTH = ("helpful", "harmless")
ADAPTERS = ("none", "lora", "pblora")


def chance(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=DRAWS)


def classifier(outputs: tuple[str, ...] = ("reward",)):
    return scalar_from_config(small_config(WORDS, hidden=32), WORDS, objectives=outputs).model


def language_model(kind: str = "none"):
    torch.manual_seed(0)
    config = small_config(WORDS, hidden=32)
    model = AutoModelForCausalLM.from_config(config)
    if kind == "none":
        return model, None
    settings = AdapterSettings(kind=kind, objectives=objectives_of(kind), rank=4, embedding="random")
    adapter = attach(model, settings)
    with torch.no_grad():
        for one in adapter.model.parameters():
            if one.requires_grad:
                one.add_(0.1 * torch.randn(one.shape, generator=torch.Generator().manual_seed(one.numel())))
    return adapter.model, adapter


def objectives_of(kind: str) -> tuple[str, ...]:
    return BOTH if kind in ("pblora", "moslora") else ("reward",)


def scalar_case(name: str):
    loss = load("rm.losses", name)(**SETTINGS.get(name, {}))
    task, rows = ScalarTask(loss), TOKENS.tolist()
    other, margin = chance(ROWS // 2).repeat(2).tolist(), (1 + chance(ROWS)).tolist()  # `boosted` divides by a mean
    pairs = [
        PairRow(rows[place], rows[ROWS + place][: 4 + place % 5], 1.0, margin[place], other[place])
        for place in range(ROWS)
    ]
    task.check(pairs)
    return classifier(), lambda model, own: task.loss(model, task.collate(pairs[own]))[0]


def objectives_case():
    task, rows = ObjectivesTask({name: load("rm.losses", "bradley_terry")() for name in BOTH}), TOKENS.tolist()
    scores = chance(ROWS, 2).tolist()
    made = [ObjectiveRow(rows[i], rows[ROWS + i], (1.0, 0.0), (1.0, 1.0), tuple(scores[i])) for i in range(ROWS)]
    return classifier(BOTH), lambda model, own: task.loss(model, task.collate(made[own]))[0].sum()


def preference_case(kind: str, form: str):
    model, adapter = language_model(kind)
    named = objectives_of(kind)
    loss = sequence_logistic(0.5, weight=0.5 if len(named) > 1 else 0.0, form=form)
    task = PreferenceTask(adapter, named, loss, dirichlet(len(named)), reference=kind == "lora")
    rows, wins = TOKENS.tolist(), chance(ROWS, len(named)).round().tolist()
    made = [
        PreferenceRow(rows[i], rows[ROWS + i], (PROMPT, PROMPT), tuple(wins[i]), tuple(wins[i]), i) for i in range(ROWS)
    ]

    return model, lambda model, own: task.loss(model, task.collate(made[own]), 3)[0]


def group_case():
    groups = torch.arange(ROWS).view(-1, GROUP)

    def value(model, own):
        rewards = sequence_scores(model, TOKENS[:ROWS][own], torch.ones(ROWS, LENGTH)[own])[:, 0]
        table = rewards.view(-1, GROUP)
        return grebt(0.3)(table, extremes(table.detach())).loss.mean()

    assert groups.numel() == ROWS
    return classifier(), value


def some_answers() -> CompletionBatch:
    """Eight answers of 2 to 6 tokens."""
    response = torch.arange(LENGTH - PROMPT) < torch.randint(2, 7, (ROWS, 1), generator=DRAWS)
    attention = torch.cat([torch.ones(ROWS, PROMPT, dtype=torch.bool), response], 1)
    return CompletionBatch(TOKENS[:ROWS], attention, torch.full((ROWS,), PROMPT), response)


def policy_case(name: str):
    rule = load("policy.losses", name)(**SETTINGS.get(name, {}))
    model, _ = language_model()
    made = some_answers()
    response = made.response
    advantages = torch.randn(ROWS, 1, generator=DRAWS).expand(-1, LENGTH - PROMPT).contiguous()
    weights = response / response.sum()
    old = torch.randn(ROWS, LENGTH - PROMPT, generator=DRAWS) * 0.1 - 4.5

    def value(model, own):
        rows, share = CompletionBatch(*(one[own] for one in made)), weights[own] * ROWS / len(weights[own])
        read = model(completions=rows)
        if isinstance(rule, ClipRule):
            flat = (read.logprob, old[own], advantages[own], share)
            mask = rows.response.flatten()
            bounds = bounds_of_rows(read.logprob)
            return policy_loss(*(one.flatten() for one in flat), bounds, rule=rule, mask=mask).total
        if isinstance(rule, TokenLoss):
            return rule.total(read.logprob, old[own], advantages[own], share, rows.response)
        inputs = {"advantages": advantages[own], "row": torch.arange(len(share)), "old_per_token_logps": old[own]}
        inputs["base"] = old[own] - 0.05
        answered = completion_loss_inputs(read.logprob, rows.response, share, inputs, GROUP, 0)
        return (share.sum(1) * rule(answered)).sum()

    return model, value


NO_PAIR_LOSS = ("attribute_regression", "grebt", "listwise_cross_entropy", "plackett_luce", "sequence_logistic")
PAIR_LOSSES = [name for name in names("rm.losses") if name not in NO_PAIR_LOSS]
POLICY_LOSSES = [name for name in names("policy.losses") if name != "laser"]  # one of these and a second term
CASES: dict[str, Callable[[], tuple[Any, Callable[[Any, slice], Any]]]] = {
    **{f"rm/{name}": partial(scalar_case, name) for name in PAIR_LOSSES},
    "rm/attribute_regression": objectives_case,
    "rm/grebt": group_case,
    **{f"rm/sequence_logistic, {kind}": partial(preference_case, kind, FORMS[0]) for kind in ADAPTERS},
    **{f"rm/sequence_logistic, moslora, {form}": partial(preference_case, "moslora", form) for form in FORMS},
    **{f"policy/{name}": partial(policy_case, name) for name in POLICY_LOSSES},
}


def made(name: str):
    """The same every time."""
    DRAWS.manual_seed(0)
    return CASES[name]()


def read_inside(model, name: str) -> None:
    own = model.get_base_model() if hasattr(model, "get_base_model") else model
    install(own) if name.startswith("policy/") else install_reading(model)


def split(model, mesh):
    own = model.get_base_model() if hasattr(model, "get_base_model") else model
    for layer in own.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def gradients(model) -> dict[str, torch.Tensor]:
    return {name: gather_tensor(one.grad) for name, one in model.named_parameters() if one.grad is not None}


def compare(name: str, mesh) -> float:
    """The largest difference of a gradient, in units of the largest gradient."""
    (model, value), (other, other_value) = made(name), made(name)
    for one in (model, other):
        one.train()
        read_inside(one, name)
    expected = value(model, slice(0, ROWS))
    expected.backward()
    half = ROWS // distributed.get_world_size()
    mine = slice(distributed.get_rank() * half, (distributed.get_rank() + 1) * half)
    found = other_value(split(other, mesh), mine)
    found.backward()
    losses = torch.stack([found.detach()])
    distributed.all_reduce(losses)
    torch.testing.assert_close(losses[0] / distributed.get_world_size(), expected.detach(), rtol=1e-5, atol=1e-6)
    truth, ours = gradients(model), gradients(other)
    assert truth.keys() == ours.keys(), {*truth} ^ {*ours}
    largest = max(one.abs().max() for one in truth.values())
    assert largest > 0
    return max(((ours[key] - one).abs().max() / largest).item() for key, one in truth.items())


def states_read_alike(mesh) -> None:
    """R2M and PPO's critic read a split policy's states as a whole one's; the critic's gradients are added up."""
    DRAWS.manual_seed(0)
    rows, values = some_answers(), torch.randn(2, ROWS, LENGTH - PROMPT, generator=DRAWS)
    (model, _), (other, _) = language_model(), language_model()
    for one in (model, other):
        install(one)
    with torch.no_grad():
        truth, found = model(completions=rows), split(other, mesh)(completions=rows)
    torch.testing.assert_close(found.states, truth.states, rtol=1e-5, atol=1e-5)
    for one, expected in zip(own_states(found.states, rows), own_states(truth.states, rows), strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-2, atol=1e-2)  # bfloat16
    torch.manual_seed(distributed.get_rank())  # each draws a critic of its own, and the first one's is taken
    alone, shared = (CriticLearner(32, CriticArguments(hidden=8), torch.device("cpu")) for _ in range(2))
    shared.critic.load_state_dict(alone.critic.state_dict())
    half = ROWS // distributed.get_world_size()
    for learner, read, own in (
        (alone, truth, slice(0, ROWS)),
        (shared, found, slice(distributed.get_rank() * half, (distributed.get_rank() + 1) * half)),
    ):
        mine = CompletionBatch(*(one[own] for one in rows))
        targets = Targets(values[0][own], values[1][own], mine.response, 1 / rows.response.sum().item())
        learner.learn(completion_states(read.states[own], mine), targets)
    reduce_gradients(shared.critic.parameters(), "sum")
    for one, expected in zip(shared.critic.parameters(), alone.critic.parameters(), strict=True):
        torch.testing.assert_close(one.grad, expected.grad, rtol=1e-4, atol=1e-6)


def saved_whole(folder: Path, mesh) -> None:
    """A split reward model is saved whole: opened again it gives the scores that the processes gave together."""
    model = scalar_from_config(small_config(WORDS, hidden=32), WORDS, objectives=BOTH)
    examples = [Example(user_turn(text), "the dog " * (1 + place % 4)) for place, text in enumerate(TEXTS[:12])]
    before = model.rate(examples)
    split(model.model, mesh)
    own = folder / str(distributed.get_rank())
    model.save(own)
    write_golden(model, examples, own)
    if distributed.get_rank() == 0:
        again = load_reward_model(str(own), check=False)
        assert again.contract == model.contract and check_golden(again, own) < 1e-5 * abs(before).max()
        assert abs(again.rate(examples) - before).max() < 1e-6


def adapter_saved_whole(folder: Path, mesh) -> None:
    """A split adapter is saved whole, and put back in its shares."""
    model, adapter = language_model("moslora")
    before = {name: one.clone() for name, one in adapter.state().items()}
    split(model, mesh)
    own = folder / f"adapter-{distributed.get_rank()}"
    adapter.save_pretrained(own)
    kept = load_file(own / "preference_adapter.safetensors")
    assert kept.keys() == before.keys() and all(torch.equal(kept[name], one) for name, one in before.items())
    for one in adapter.model.parameters():
        torch.nn.init.zeros_(one)
    adapter.load_weights(own)
    assert all(torch.equal(gather_tensor(adapter.state()[name]), one) for name, one in before.items())


class Ensemble:
    """Three members that rate a completion by its length, with offsets of -1, 0 and 1."""

    contract = ScoringContract(kind="ensemble", objectives=("overall",))

    def __init__(self, fails: bool):
        self.fails = fails

    def rate(self, examples):
        if self.fails:
            raise RuntimeError("no server")
        return self.spread(examples).mean(0)

    def spread(self, examples):
        return np.array([[[len(example.completion) + shift] for example in examples] for shift in (-1.0, 0.0, 1.0)])


def missing_members() -> None:
    """An ensemble may have no value at all in the second process."""
    accelerator = Accelerator(cpu=True)
    examples = [Example(user_turn("why?"), completion) for completion in ("so", "no")]
    sources = RewardSources({"rm": Ensemble(fails=distributed.get_rank() == 1)}, skip=True)
    scores = sources(examples)[0].members
    assert scores is not None
    members = Processes(accelerator).widen(scores, 2, math.nan)
    assert members.shape == (2, 1, 3)
    everywhere = accelerator.gather(members)
    assert everywhere[:2, 0].tolist() == [[1.0, 2.0, 3.0]] * 2 and everywhere[2:].isnan().all()


if __name__ == "__main__":
    PartialState(cpu=True)  # which joins the processes
    assert distributed.get_world_size() == 2, "start me with torchrun --nproc_per_node 2"
    mesh = init_device_mesh("cpu", (2,))
    worst = {}
    for name in CASES:
        worst[name] = compare(name, mesh)
        if distributed.get_rank() == 0:
            print(f"{worst[name]:.1e}  {name}", flush=True)
    states_read_alike(mesh)
    saved_whole(Path(sys.argv[1]), mesh)
    adapter_saved_whole(Path(sys.argv[1]), mesh)
    missing_members()
    leave(finished=True)
    sys.exit(max(worst.values()) > 1e-5)
