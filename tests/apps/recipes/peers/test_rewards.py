"""Rewards of the scoring server for verl and OpenRLHF: the numbers of the model, and files that fit their schemas."""

import asyncio
import importlib
import inspect
from pathlib import Path

import httpx
import pytest
import yaml
from rewardlab.apps.recipes import peers
from rewardlab.apps.recipes.peers import verl_reward
from rewardlab.apps.recipes.peers._rewards import BatchedReward, require_reward, served_rewards
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import Example, user_turn

from tests.rm.spread_models import LIMIT, WORDS, make
from tests.stand_ins.scoring_server import serve_in_thread

FOLDER = Path(peers.__file__).parent
TEXTS = ["roba", "kano roba", "mili suno tebe"]


@pytest.fixture(scope="module")
def model():
    return make()


@pytest.fixture(scope="module")
def server(model):
    with serve_in_thread(model) as url:
        yield url


def rated(model, *texts):
    return [row[0] for row in model.rate([Example(user_turn("kano"), text) for text in texts])]


def test_calls_that_arrive_together_share_requests_and_an_error_reaches_every_caller():
    sizes = []

    def rewards(examples):
        sizes.append(len(examples))
        return [None if example.completion == "" else float(len(example.completion)) for example in examples]

    async def all_of(texts):
        reward = BatchedReward(rewards)
        return await asyncio.gather(*(reward("question", text) for text in texts))

    assert asyncio.run(all_of(["a", "bbb", "", "cc"])) == [1.0, 3.0, None, 2.0]
    assert sum(sizes) == 4 and len(sizes) <= 2
    outcomes = iter([RuntimeError("down"), [5.0]])

    def scripted(examples):
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def twice():
        reward = BatchedReward(scripted)
        first = await asyncio.gather(reward("q", "a"), reward("q", "b"), return_exceptions=True)
        return first, await reward("q", "c")

    first, second = asyncio.run(twice())
    assert [str(error) for error in first] == ["down", "down"] and second == 5.0


REWARD = {  # verl/trainer/config/reward/reward.yaml
    "num_workers": None,
    "custom_reward_function": {"path", "name", "reward_kwargs"},  # reward_kwargs: verl/trainer/ppo/reward.py
    "reward_manager": {"source", "name", "module"},
    "reward_model": {"enable", "enable_resource_pool", "n_gpus_per_node", "nnodes", "model_path", "inference"},
    "sandbox_fusion": {"url", "max_concurrent", "memory_limit_mb"},
}


def test_verls_overrides_fit_its_schema_and_name_a_function_with_its_arguments():
    config = yaml.safe_load((FOLDER / "verl.yaml").read_text())
    for name, section in config["reward"].items():
        assert name in REWARD and set(section if isinstance(section, dict) else ()) <= (REWARD[name] or set())
    custom = config["reward"]["custom_reward_function"]
    function = getattr(importlib.import_module(custom["path"].removeprefix("pkg://")), custom["name"])
    parameters = inspect.signature(function).parameters
    assert inspect.iscoroutinefunction(function)
    assert {"data_source", "solution_str", "ground_truth", "extra_info", *custom["reward_kwargs"]} <= {*parameters}


def called_by_verl(solution: str, extra_info: dict, **reward_kwargs):
    """As verl's naive reward manager calls it, with the keywords of the configuration."""
    given = {"data_source": "d", "solution_str": solution, "ground_truth": None, "extra_info": extra_info}
    return verl_reward.compute_score(**given, **reward_kwargs)


def test_verl_gets_the_models_rewards_and_a_completion_that_is_too_long_is_cut_or_missing(server, model):
    async def rewards(prompt):
        calls = [called_by_verl(text, {"prompt": prompt, "num_turns": 2}, url=server) for text in TEXTS]
        return await asyncio.gather(*calls)

    for prompt in ("kano", [{"role": "user", "content": "kano"}]):
        assert asyncio.run(rewards(prompt)) == pytest.approx(rated(model, *TEXTS), abs=1e-5), prompt
    long = " ".join(WORDS * 4)
    assert len(long.split()) > LIMIT
    cut = asyncio.run(called_by_verl(long, {"prompt": "kano"}, url=server, truncate=True))
    assert cut == pytest.approx(rated(model, long)[0], abs=1e-5)
    assert asyncio.run(called_by_verl(long, {"prompt": "kano"}, url=server, missing=-2.0)) == -2.0
    with pytest.raises(KeyError, match="extra_info has no 'prompt'"):
        asyncio.run(called_by_verl("roba", {}, url=server))
    assert require_reward(1.5, None) == 1.5 and require_reward(None, -1.0) == -1.0
    with pytest.raises(DataError, match="no reward"):
        require_reward(None, None)


def test_openrlhfs_request_and_a_server_named_by_a_variable_give_the_models_rewards(server, model, monkeypatch):
    render = model.encoder.render
    examples = [Example(user_turn("kano"), text) for text in TEXTS]
    body = {"query": [render(example) for example in examples], "prompts": ["kano"] * 3, "labels": [None] * 3}
    reply = httpx.post(f"{server}/get_reward", json=body).json()
    assert reply["rewards"] == reply["scores"] == pytest.approx(rated(model, *TEXTS), abs=1e-5)
    assert {len(values) for values in reply["extra_logs"].values()} == {3}
    served_rewards.cache_clear()
    monkeypatch.delenv("REWARDLAB_URL", raising=False)
    with pytest.raises(UsageError, match="set REWARDLAB_URL"):
        served_rewards()
    monkeypatch.setenv("REWARDLAB_URL", server)
    examples = [Example(user_turn("kano"), text) for text in TEXTS]
    assert served_rewards()(examples) == pytest.approx(rated(model, *TEXTS), abs=1e-5)
