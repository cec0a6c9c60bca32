"""Adapters for SkyRL, inspect_ai and verifiers: with the installed library, and with a stand-in of its interface."""

import asyncio
import math
from types import SimpleNamespace

import pytest
from rewardlab.rm.types import Example, user_turn

from tests.rm.spread_models import make
from tests.stand_ins.scoring_server import serve_in_thread


@pytest.fixture(scope="module")
def served():
    """A model and the address of its server."""
    model = make()
    with serve_in_thread(model) as url:
        yield model, url


def rated(model, prompt, text):
    return pytest.approx(model.rate([Example(prompt, text)])[0, 0], abs=1e-5)


def test_skyrls_environment_gives_the_models_reward_and_ends(adapter, served):
    model, url = served
    adapter("skyrl_env", "skyrl_gym")
    import skyrl_gym

    environment = skyrl_gym.make("rewardlab", env_config={}, extras={"reward_spec": {"url": url}, "max_turns": 1})
    prompt = [{"role": "user", "content": "kano"}]
    assert environment.init(prompt) == (prompt, {})
    step = environment.step("roba mino")
    assert step["reward"] == rated(model, user_turn("kano"), "roba mino")
    assert step["done"] is True and step["observations"] == []


def sample(completion: str):
    """The part of a TaskState that a scorer reads."""
    turns = [SimpleNamespace(role="user", text="question"), SimpleNamespace(role="assistant", text=completion)]
    return SimpleNamespace(messages=turns, output=SimpleNamespace(completion=completion))


def test_inspects_scorer_is_the_judge_or_the_reward_model_and_an_abstention_is_unscored(
    adapter, judge_settings, served
):
    scorers = adapter("inspect_scorer", "inspect_ai")
    score = scorers.judged(**judge_settings)

    async def scores():
        return await asyncio.gather(*(score(sample(text), None) for text in ("abc", "abcdef", "garbled")))

    first, second, absent = asyncio.run(scores())
    assert (first.value, second.value) == (3.0, 6.0) and first.answer == "abc"
    assert math.isnan(absent.value) and absent.explanation == "the judge abstained"
    model, url = served
    score = adapter("inspect_scorer", "inspect_ai").rewarded(url=url)
    assert asyncio.run(score(sample("roba"), None)).value == rated(model, user_turn("question"), "roba")


def task_and_trace(reply: str):
    """The parts of a task and its trace that a judge reads."""
    return SimpleNamespace(prompt_text="question", system_prompt=None), SimpleNamespace(last_reply=reply)


def test_verifiers_judge_scores_the_last_reply_or_is_a_reward_model_and_an_abstention_raises(
    adapter, judge_settings, served
):
    judges = adapter("verifiers_judge", "verifiers")
    judge = judges.RewardlabJudge(judges.RewardlabJudgeConfig(id="rewardlab", settings=judge_settings))
    assert asyncio.run(judge.score(*task_and_trace("abcd"))) == 4.0
    with pytest.raises(ValueError, match="abstained"):
        asyncio.run(judge.score(*task_and_trace("garbled")))
    model, url = served
    judges = adapter("verifiers_judge", "verifiers")
    judge = judges.RewardlabJudge(judges.RewardlabJudgeConfig(id="rewardlab", url=url))
    assert asyncio.run(judge.score(*task_and_trace("roba"))) == rated(model, user_turn("question"), "roba")


def test_verifiers_loads_the_judge_from_a_module_of_one_line(adapter, tmp_path, monkeypatch):
    judges = adapter("verifiers_judge", "verifiers")
    loaders = pytest.importorskip("verifiers.v1.utils.loaders", reason="the stand-in of verifiers loads no plug-ins")
    (tmp_path / "rewardlab_judge.py").write_text(f"from {judges.__name__} import RewardlabJudge, __all__\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = loaders.judge_config_type("rewardlab_judge")(id="rewardlab_judge", url="http://127.0.0.1:9")
    assert isinstance(loaders.load_judge(config), judges.RewardlabJudge) and config.url == "http://127.0.0.1:9"
