"""Agents of unlike models learn from each other's answers, and go on after a kill."""

import copy
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch
from rewardlab.policy.losses.hacpo import hacpo as hacpo_loss
from rewardlab.policy.rewards.sources import RewardSources
from rewardlab.policy.rollouts import _exchange as exchange
from rewardlab.policy.rollouts._exchange import AgentCompletions, StepHashes, exchange_rollouts, read, store, wait
from rewardlab.policy.training.trainer import PolicyTrainer
from rewardlab.policy.transforms.hacpo import hacpo
from rewardlab.rm.errors import DataError, UsageError
from rewardlab.rm.types import content_hash, user_turn

from tests.policy.toy_training import algorithm, logged, prompts

pytestmark = pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
ASKED = StepHashes("prompts", "words")
SAID = AgentCompletions([[5, 6, 7], [8]], [[-0.5, -1.0, -2.0], [-0.25]])


def even(examples) -> list[float]:
    """Right where an answer has an even number of words."""
    return [float(len(one.completion.split()) % 2 == 0) for one in examples]


@pytest.fixture
def agent(base, llama, make_trainer, tmp_path):
    """A trainer of one of two agents, which are unlike models; what its loss is told is kept in `seen`."""

    def make(number: int, *, output: str, model=None, **changes) -> PolicyTrainer:
        loss, seen = hacpo_loss(delta=0.8, agents=2), []
        formulas = algorithm(
            loss=lambda answers: (seen.append(answers), loss(answers))[1], aggregation="completion_mean",
            advantage_transforms={"hacpo": hacpo(floor=0.05, agents=2)},
        )  # fmt: skip
        settings = {"output_dir": str(tmp_path / f"{output}-{number}"), "max_steps": 4, "rollout_steps": 1}
        trainer = make_trainer(
            formulas, RewardSources({"even": even}), model=copy.deepcopy(model or (base, llama)[number]),
            eval_dataset=prompts(2), **settings | changes,
            rollout_func=exchange_rollouts(tmp_path / "shared", agent=number, agents=2, timeout=0.0, seed=5),
        )  # fmt: skip
        trainer.seen = seen
        return trainer

    return make


def by_one_forward(model, before, said) -> list[float]:
    with torch.no_grad():
        logp = model(torch.tensor([[*before, *said]])).logits[0].log_softmax(-1)
    return [logp[len(before) - 1 + t, token].item() for t, token in enumerate(said)]


def test_groups_hold_both_agents_answers_with_the_log_probabilities_of_who_wrote_them(agent, base, llama, tmp_path):
    trainers = {}
    for number in (0, 1, 0):  # the first has nobody to learn from yet
        trainers[number] = agent(number, output="run")
        with pytest.raises(DataError, match="has not written"):
            trainers[number].train()
    for number, trainer in trainers.items():
        rows = pq.read_table(tmp_path / f"run-{number}" / "rollouts" / "step-000000.parquet").to_pylist()
        both = [tmp_path / "shared" / f"step-000000-agent-{one}.safetensors" for one in (number, 1 - number)]
        asked = StepHashes(read_metadata(both[0])["prompts"], trainer.encoder.contract.tokenizer)
        written = [read(path, asked, 8) for path in both]
        expected = [(written[row % 4 // 2], row // 4 * 2 + row % 2) for row in range(16)]
        assert [one["tokens"] for one in rows] == [said.completions[place] for said, place in expected]
        assert [one["logprobs_of"] for one in rows] == ["policy", "policy", *[f"agent {1 - number}"] * 2] * 4
        for one, (said, place) in zip(rows, expected, strict=True):
            assert one["logprobs"] == pytest.approx(said.logprobs[place], abs=1e-6)
        before = trainer.encoder.encode_prompt(user_turn(rows[0]["prompt"].removeprefix("user: ")))
        for said, model in zip(written, ((base, llama), (llama, base))[number], strict=True):
            assert said.logprobs[0] == pytest.approx(by_one_forward(model, before, said.completions[0]), abs=1e-4)
        columns = [torch.cat([getattr(one, name) for one in trainer.seen[:2]]) for name in ("group", "index", "old")]
        told = {(group, place): old for group, place, old in zip(*(one.tolist() for one in columns), strict=True)}
        sums = [sum(said.logprobs[place]) for said, place in expected]
        assert [told[divmod(row, 4)] for row in range(16)] == pytest.approx(sums, abs=1e-4)
        own = [one["reward/sources/even"] for place, one in enumerate(rows) if place % 4 < 2]
        assert logged(trainer, "reward_own")[0] == pytest.approx(sum(own) / 8)


class Letters:
    """A tokenizer whose tokens are letters."""

    eos_token_id = 0

    def __call__(self, text, add_special_tokens):
        return SimpleNamespace(input_ids=[ord(letter) for letter in text])

    def batch_decode(self, rows, **settings):
        return ["".join(map(chr, row)) for row in rows]


def test_completions_of_another_tokenizer_are_encoded_again_and_keep_their_log_probability(tmp_path):
    path = tmp_path / "one.safetensors"
    said = SAID._replace(texts=[("abé", True), ("", False)])
    store(path, said, StepHashes("ids", "words", "messages"))
    found = read(path, StepHashes("others", "letters", "messages"), 2, Letters())
    assert found.completions == [[97, 98, 233, 0], [0]] and found.texts == said.texts
    assert found.logprobs == [[pytest.approx(-3.5 / 4)] * 4, [pytest.approx(-0.25)]]
    assert read(path, StepHashes("ids", "words", "messages"), 2, Letters()) == said
    with pytest.raises(DataError, match=r"to other prompts \(messages, here others\)"):
        read(path, StepHashes("ids", "letters", "others"), 2, Letters())


def read_metadata(path) -> dict:
    with exchange.safe_open(path, "pt") as file:
        return file.metadata()


def test_equal_agents_write_different_answers_and_an_evaluation_exchanges_nothing(agent, base, tmp_path):
    for number in range(2):
        trainer = agent(number, output="equal", model=base)
        with pytest.raises(DataError, match=f"agent {1 - number} has not written"):
            trainer.train()
        files = sorted((tmp_path / "shared").iterdir())
        assert trainer.evaluate()["eval_completions/mean_length"] > 0
        assert sorted((tmp_path / "shared").iterdir()) == files
    one, other = (tmp_path / "shared" / f"step-000000-agent-{number}.safetensors" for number in range(2))
    asked = StepHashes(read_metadata(one)["prompts"], trainer.encoder.contract.tokenizer)
    assert read(one, asked, 8).completions != read(other, asked, 8).completions


def test_a_group_is_its_own_answers_and_then_its_partners_in_the_order_of_their_numbers(tmp_path):
    """Agent 1 of three, two answers each to prompts [1] and [2]; what it draws itself is always token 9."""
    ids = [[1]] * 6 + [[2]] * 6
    asked = StepHashes(content_hash([[1], [2]]), "words")
    for number in (0, 2):
        said = AgentCompletions([[10 * number + row + 10] for row in range(4)], [[-float(number)]] * 4)
        store(tmp_path / f"step-000003-agent-{number}.safetensors", said, asked)
    noted = []
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(device=torch.device("cpu")),
        encoder=SimpleNamespace(contract=SimpleNamespace(tokenizer="words"), tokenizer=Letters()),
        state=SimpleNamespace(global_step=3),
        eos_token_ids=[0, 9],
        args=SimpleNamespace(num_generations=6, num_generations_eval=None),
        _tokenize_prompts=lambda prompts: (prompts, None, {}),
        _generate_single_turn=lambda ids, images, fields, num_generations: ([[9] for _ in ids], None),
        _read=lambda model, rows: SimpleNamespace(logprob=torch.full(rows.response.shape, -0.5)),
        _note=lambda name, value: noted.append(name),
    )
    found = exchange_rollouts(tmp_path, agent=1, agents=3, timeout=0.0)(ids, trainer)
    assert [one[0] for one in found["completion_ids"]] == [9, 9, 10, 11, 30, 31, 9, 9, 12, 13, 32, 33]
    assert [one[0] for one in found["logprobs"]] == [-0.5, -0.5, 0, 0, -2, -2] * 2
    assert found["own"] == [True, True, False, False, False, False] * 2 and found["prompt_ids"] == ids
    stored = read(tmp_path / "step-000003-agent-1.safetensors", asked, 4)
    assert noted == ["exchange/waited"] and [ended for _, ended in stored.texts or ()] == [True] * 4


def test_a_file_appears_whole_an_equal_one_is_kept_and_another_is_refused(tmp_path):
    path = tmp_path / "deep" / "one.safetensors"
    assert store(path, SAID, ASKED) is SAID
    assert read(path, ASKED, 2) == SAID and [one.name for one in path.parent.iterdir()] == [path.name]
    path = tmp_path / "one.safetensors"
    store(path, SAID, ASKED)
    before = path.read_bytes()
    again = SAID._replace(logprobs=[[-0.5001, -1.0, -2.0], [-0.25]])
    assert store(path, again, ASKED) == SAID and path.read_bytes() == before
    for other in (
        SAID._replace(completions=[[5, 6, 9], [8]]),
        SAID._replace(logprobs=[[-0.6, -1.0, -2.0], [-0.25]]),
        AgentCompletions([[5, 6], [7, 8]], [[-0.5, -1.0], [-2.0, -0.25]]),
    ):
        with pytest.raises(DataError, match=r"one.safetensors differs from the completions .* use an empty folder"):
            store(path, other, ASKED)


def test_what_cannot_be_learnt_from_is_refused(tmp_path):
    path = tmp_path / "one.safetensors"
    store(path, SAID, ASKED)
    others = r"its completions belong to other prompts \(prompts, here others\); give all agents the same data"
    for asked, number, reason in (
        (StepHashes("others", "words"), 2, others),
        (StepHashes("prompts", "letters"), 2, r"another tokenizer \(words, here letters\) and without texts"),
        (ASKED, 4, "2 completions, expected 4; give all agents the same number"),
    ):
        with pytest.raises(DataError, match=reason):
            read(path, asked, number)
    path.write_text("no tensors")
    with pytest.raises(DataError, match=r"one.safetensors: not an agent's completions .* delete it and resume that"):
        read(path, ASKED, 2)


def test_waiting_is_told_of_and_ends_when_the_file_is_there_or_the_time_is_over(tmp_path, monkeypatch):
    """The partner writes once it has been told of three times, each after twice the time."""
    now, told, path = [0.0], [], tmp_path / "one.safetensors"

    def tell(sentence):
        told.append(sentence)
        if len(told) == 3:
            store(path, SAID, ASKED)

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds))
    monkeypatch.setattr(exchange, "time", clock)
    wait(path, 1, 7, 60.0, tell)
    assert told == [f"step 7: waiting for the completions of agent 1 for {waited} seconds" for waited in (5, 10, 20)]
    late = r"agent 1 has not written its completions of step 7 in 0.2 seconds; check that it runs"
    with pytest.raises(DataError, match=late):
        wait(tmp_path / "two.safetensors", 1, 7, 0.2, print)


def test_agents_are_numbered_and_share_answers_evenly(agent, tmp_path):
    with pytest.raises(UsageError, match="numbered from 0 to 1, got 2"):
        exchange_rollouts(tmp_path, agent=2, agents=2, timeout=1.0)
    with pytest.raises(UsageError, match="must be a multiple of the number of agents, 2, got 3"):
        agent(0, output="odd", num_generations=3, per_device_train_batch_size=6).train()
